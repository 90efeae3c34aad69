//! The verdict on a trace. It depends on counts only, so a trace always gets the same verdict.

use serde::Serialize;
use tagmatch_results::show::show_count;
use tagmatch_trace::Peak;

use super::facts::TraceFacts;
use super::wording::{percent, ratio, show_bytes, show_entries};

/// Entries that a search may walk without a cost that shows: a few cache lines, some ten ns.
const FEW: f64 = 8.0;
/// Entries from which on a walk costs more than everything else that is done for a message.
const MANY: f64 = 32.0;
/// Shares in percent from which on there is advice.
const UNEXPECTED_PERCENT: f64 = 20.0;
const WILDCARD_PERCENT: f64 = 10.0;
const MISSED_PERCENT: f64 = 50.0;
const WALKING_PERCENT: f64 = 20.0;
/// The longest list that needs no advice.
const SHALLOW: u64 = 32;

/// The verdict in sentences.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct TraceVerdict {
    pub(super) verdict: String,
    pub(super) deepest: String,
    pub(super) dominant: String,
    /// Changes of the program that would help, the most effective first.
    pub(super) advice: Vec<String>,
}

impl TraceVerdict {
    pub(super) fn new(facts: &TraceFacts) -> Self {
        let verdict = facts.verdict();
        let deepest = facts.deepest();
        Self { verdict, deepest, dominant: facts.dominant(), advice: facts.advice() }
    }
}

impl TraceFacts {
    fn verdict(&self) -> String {
        if self.operations.total() == 0 {
            return "nothing to match".into();
        }
        let walked = self.plain_walks.entries_per_search();
        let deep = self.posted_depth.p99.max(self.unexpected_depth.p99);
        let entries = format!("{} entries a search", show_entries(walked));
        if walked > MANY {
            format!("depth costs: a plain list walks {entries}; an index is needed")
        } else if walked > FEW {
            format!("depth is noticeable: a plain list walks {entries}; an index would help")
        } else if deep <= SHALLOW {
            format!(
                "a plain list is enough: it walks {entries}; 99 % of searches meet at most {deep}"
            )
        } else {
            format!(
                "a plain list is enough: lists are deep, 99 % up to {deep}, but searches end near \
                 the front; it walks {entries}"
            )
        }
    }

    fn deepest(&self) -> String {
        let peak = |peak: Peak| match peak.depth {
            0 => "0".into(),
            depth => format!("{} at operation {}", show_count(depth), show_count(peak.operation)),
        };
        format!(
            "posted {}; unexpected {}, at most {} waiting",
            peak(self.posted_peak),
            peak(self.unexpected_peak),
            show_bytes(self.unexpected_bytes_max),
        )
    }

    fn dominant(&self) -> String {
        let by = self.plain_walks.by_kind();
        let total = self.plain_walks.entries();
        match by.into_iter().max_by_key(|(_, entries)| *entries) {
            Some((what, entries)) if total > 0 => {
                format!("{:.0} % of a plain list's walking is {what}", percent(entries, total))
            }
            _ => "no search looks at an entry".into(),
        }
    }

    fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let matched = self.matches.posted + self.matches.unexpected;
        let unexpected = percent(self.matches.unexpected, matched);
        if unexpected >= UNEXPECTED_PERCENT && self.unexpected_peak.depth > SHALLOW {
            advice.push(format!(
                "post receives earlier: {unexpected:.0} % of messages came before their receive, \
                 up to {} at once, {} of payload",
                show_count(self.unexpected_peak.depth),
                show_bytes(self.unexpected_bytes_max),
            ));
        }
        let wildcards = percent(self.patterns.wildcards(), self.patterns.total());
        if wildcards >= WILDCARD_PERCENT
            && self.posted_peak.depth.max(self.unexpected_peak.depth) > SHALLOW
        {
            advice.push(format!(
                "name the source and tag where they are known: {wildcards:.0} % of receives \
                 and probes leave one open, which is slow in NICs and in matchers that hash whole \
                 envelopes"
            ));
        }
        advice.extend(self.walking());
        let missed = percent(self.probes_missed, self.probes);
        if missed >= MISSED_PERCENT && self.probes > SHALLOW {
            advice.push(format!(
                "{missed:.0} % of {} probes found nothing, and each of them searched the whole list: \
                 where the program probes, post a receive, which learns of its message without a \
                 search; an MPI library's own probes cost this, too",
                show_count(self.probes),
            ));
        }
        for (count, what) in [
            (self.matches.truncated, "messages were truncated: their receives are too small"),
            (
                self.left_posted,
                "receives were still posted at the end: cancel them, or find the missing sends",
            ),
            (self.left_unexpected, "messages were never received: find the missing receives"),
        ] {
            if count > 0 {
                advice.push(format!("{} {what}", show_count(count)));
            }
        }
        advice
    }

    /// Advice on long walks, one for each kind of search, the kind with the most entries first.
    fn walking(&self) -> Vec<String> {
        if self.plain_walks.entries_per_search() <= FEW {
            return Vec::new();
        }
        let messages = self.posted_depth.searches;
        let receives = self.unexpected_depth.searches - self.probes;
        let cancels = self.matches.cancelled;
        let walks = &self.plain_walks;
        let posted = self.posted_peak.depth;
        let unexpected = self.unexpected_peak.depth;
        let mut causes = [
            (
                (walks.entries_by_messages, messages),
                "post fewer receives at once, or in the order messages come: a message",
                (posted, "posted receives"),
            ),
            (
                (walks.entries_by_receives, receives),
                "receive in the order messages come, or before they do: a receive",
                (unexpected, "unexpected messages"),
            ),
            (
                (walks.entries_by_probes, self.probes),
                "receive what waits before the program probes: a probe",
                (unexpected, "unexpected messages"),
            ),
            (
                (walks.entries_by_cancels, cancels),
                "cancel less, or oldest first: a cancel",
                (posted, "posted receives"),
            ),
        ];
        causes.sort_by_key(|((entries, _), ..)| std::cmp::Reverse(*entries));
        let worth_a_word = |entries| percent(entries, walks.entries()) >= WALKING_PERCENT;
        let causes = causes.into_iter().filter(|((entries, _), ..)| worth_a_word(*entries));
        let advice = causes.map(|((entries, searches), what, (most, list))| {
            let each = show_entries(ratio(entries, searches));
            format!("{what} walks {each} of up to {} {list}", show_count(most))
        });
        advice.collect()
    }
}
