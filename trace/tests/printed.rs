//! Every number that is told of a trace is what was counted: random traces, and an oracle that
//! keeps plain lists and recomputes each number from the depths after each line.

use std::collections::{BTreeMap, BTreeSet};

use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};
use tagmatch_testkit::random::Random;
use tagmatch_testkit::tagtrace::{LENS, random_trace};
use tagmatch_trace::{
    Census, DepthCounter, DepthSummary, Id, IndexedLists, Peak, Trace, TraceOp, run,
};

/// Context id, source and tag, of which the last two may be `*`, and a length.
type Entry<'a> = (&'a [&'a str], &'a str, u64);

/// The numbers of a trace, and the depths of both lists at each search and after each line.
#[derive(Default)]
struct Oracle<'a> {
    posted: Vec<Entry<'a>>,
    unexpected: Vec<Entry<'a>>,
    held: Vec<(&'a str, Option<u64>)>,
    searches: [Vec<u64>; 2],
    depths: Vec<[u64; 2]>,
    bytes_max: u128,
    /// Matched when posted, when unexpected, truncated, cancelled, late; probes, those that missed.
    counts: [u64; 7],
}

fn fits(pattern: &[&str], envelope: &[&str]) -> bool {
    pattern.iter().zip(envelope).all(|(wanted, is)| *wanted == "*" || wanted == is)
}

impl<'a> Oracle<'a> {
    fn take(&mut self, pattern: &[&str]) -> Option<u64> {
        let at = self.unexpected.iter().position(|(envelope, ..)| fits(pattern, envelope))?;
        Some(self.unexpected.remove(at).2)
    }

    fn see(&mut self, words: &'a [&'a str]) {
        let number = |word: &str| word.parse::<u64>().unwrap();
        let [posted, unexpected] = [self.posted.len(), self.unexpected.len()].map(|n| n as u64);
        match words {
            ["msg", id, envelope @ .., length] => {
                self.searches[0].push(posted);
                let length = number(length);
                match self.posted.iter().position(|(pattern, ..)| fits(pattern, envelope)) {
                    Some(at) => {
                        let room = self.posted.remove(at).2;
                        self.counts[0] += 1;
                        self.counts[2] += u64::from(length > room);
                    }
                    None => self.unexpected.push((envelope, id, length)),
                }
            }
            ["recv", id, pattern @ .., room] => {
                self.searches[1].push(unexpected);
                let room = number(room);
                match self.take(pattern) {
                    Some(length) => {
                        self.counts[1] += 1;
                        self.counts[2] += u64::from(length > room);
                    }
                    None => self.posted.push((pattern, id, room)),
                }
            }
            ["cancel", id] => match self.posted.iter().position(|(_, other, _)| other == id) {
                Some(at) => {
                    self.posted.remove(at);
                    self.counts[3] += 1;
                }
                None => self.counts[4] += 1,
            },
            ["probe", pattern @ ..] => {
                self.searches[1].push(unexpected);
                let is_there = self.unexpected.iter().any(|(other, ..)| fits(pattern, other));
                self.counts[5] += 1;
                self.counts[6] += u64::from(!is_there);
            }
            ["mprobe", id, pattern @ ..] => {
                self.searches[1].push(unexpected);
                let found = self.take(pattern);
                self.counts[5] += 1;
                self.counts[6] += u64::from(found.is_none());
                self.held.push((id, found));
            }
            [last @ ("mrecv" | "mcancel"), id, ..] => {
                let at = self.held.iter().position(|(other, _)| other == id).unwrap();
                if let (Some(length), "mrecv") = (self.held.remove(at).1, *last) {
                    self.counts[1] += 1;
                    self.counts[2] += u64::from(length > number(words[2]));
                }
            }
            ["lost", id] => self.unexpected.retain(|(_, other, _)| other != id),
            _ => panic!("not understood: {words:?}"),
        }
        let bytes = self.unexpected.iter().map(|entry| u128::from(entry.2)).sum();
        self.bytes_max = self.bytes_max.max(bytes);
        self.depths.push([self.posted.len() as u64, self.unexpected.len() as u64]);
    }
}

/// The summary of depths at searches, out of all of them.
fn summary(mut depths: Vec<u64>) -> DepthSummary {
    depths.sort_unstable();
    // Sorted, the depth of which at least this share of all searches met no larger one.
    let at = |per_mille: usize| {
        let first =
            (0..depths.len()).find(|before| (before + 1) * 1000 >= per_mille * depths.len());
        first.map_or(0, |at| depths[at])
    };
    DepthSummary {
        searches: depths.len() as u64,
        mean: depths.iter().sum::<u64>() as f64 / depths.len().max(1) as f64,
        p50: at(500),
        p90: at(900),
        p99: at(990),
        p999: at(999),
        max: depths.last().copied().unwrap_or(0),
    }
}

fn peak(depths: impl Iterator<Item = u64> + Clone) -> Peak {
    let depth = depths.clone().max().unwrap_or(0);
    let first = depths.clone().position(|other| other == depth).map_or(0, |at| at as u64 + 1);
    Peak { depth, operation: if depth == 0 { 0 } else { first } }
}

/// Adds losses of messages, most of which wait: a recorded trace has some, and the text has no word
/// for them.
fn with_losses<'a>(lines: Vec<Vec<&'a str>>, trace: &mut Trace, seed: u64) -> Vec<Vec<&'a str>> {
    let mut random = Random::stream(seed, 1);
    let mut came: BTreeMap<&str, Id> = BTreeMap::new();
    let mut all = Vec::new();
    let mut ops = Vec::new();
    for (words, op) in lines.into_iter().zip(&trace.ops) {
        if let TraceOp::Msg { id, .. } = op {
            came.insert(words[1], *id);
        }
        all.push(words);
        ops.push(*op);
        if random.chance(1, 8) && !came.is_empty() {
            let at = random.index(came.len());
            if let Some((name, msg)) = came.iter().nth(at).map(|(name, msg)| (*name, *msg)) {
                came.remove(name);
                all.push(vec!["lost", name]);
                ops.push(TraceOp::Lost { msg });
            }
        }
    }
    trace.ops = ops;
    all
}

#[test]
fn depths_peaks_and_matches_are_those_of_plain_lists() {
    for seed in 0..100 {
        let operations = [3, 60, 255, 257, 800][(seed % 5) as usize];
        let text = random_trace(seed, operations, &LENS);
        let lines = text.lines().skip(1).map(|line| line.split('#').next().unwrap());
        let lines: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
        let lines: Vec<_> = lines.into_iter().filter(|words| !words.is_empty()).collect();
        let mut trace = Trace::parse(text.as_bytes()).unwrap();
        let lines = if seed % 3 == 0 { with_losses(lines, &mut trace, seed) } else { lines };
        let mut oracle = Oracle::default();
        lines.iter().for_each(|words| oracle.see(words));

        let mut counter = DepthCounter::new(&trace);
        let pass = run(&trace, IndexedLists::default(), u64::MAX, |op, result| {
            counter.see(op, result);
            Ok::<_, ()>(())
        });
        pass.unwrap();
        let [posted, unexpected] = oracle.searches.clone().map(summary);
        assert_eq!(counter.summaries(), (posted, unexpected), "seed {seed}");
        let matches = counter.matches;
        let counts = [
            matches.posted,
            matches.unexpected,
            matches.truncated,
            matches.cancelled,
            matches.late,
            counter.probes,
            counter.probes_missed,
        ];
        assert_eq!(counts, oracle.counts, "seed {seed}");
        let bytes = u64::try_from(oracle.bytes_max).unwrap_or(u64::MAX);
        assert_eq!(counter.unexpected_bytes_max(), bytes, "seed {seed}");

        let timeline = &counter.timeline;
        let count = oracle.depths.len();
        assert_eq!(timeline.operations, count as u64);
        let points = count.min(256);
        for (list, series) in [&timeline.posted_max, &timeline.unexpected_max].iter().enumerate() {
            let mut stretches = vec![0; points];
            for (at, depths) in oracle.depths.iter().enumerate() {
                let stretch: &mut u64 = &mut stretches[at * points / count];
                *stretch = depths[list].max(*stretch);
            }
            assert_eq!(**series, stretches, "seed {seed}");
        }
        let peaks = [0, 1].map(|list| peak(oracle.depths.iter().map(|depths| depths[list])));
        assert_eq!([timeline.posted, timeline.unexpected], peaks, "seed {seed}");
        census_of_lines(&lines, &Census::new(&trace));
    }
}

fn census_of_lines(lines: &[Vec<&str>], census: &Census) {
    for (name, count) in census.operations.by_name() {
        let lines = lines.iter().filter(|words| words[0] == name);
        assert_eq!(count, lines.count() as u64, "{name}");
    }
    assert_eq!(census.operations.total(), lines.len() as u64);
    let patterns = lines.iter().filter_map(|words| match words[..] {
        ["recv" | "mprobe", _, _, source, tag, ..] | ["probe", _, source, tag] => {
            Some((source == "*", tag == "*"))
        }
        _ => None,
    });
    let patterns: Vec<(bool, bool)> = patterns.collect();
    let count = |class| patterns.iter().filter(|pattern| **pattern == class).count() as u64;
    let counted = census.patterns;
    let found = [counted.exact, counted.any_source, counted.any_tag, counted.any_both];
    let all = [(false, false), (true, false), (false, true), (true, true)];
    assert_eq!(found, all.map(count));
    assert_eq!(counted.total(), patterns.len() as u64);
    assert_eq!(counted.wildcards(), counted.total() - counted.exact);
    let classes: BTreeSet<_> = patterns.iter().collect();
    assert_eq!(census.mask_classes, classes.len());
    let messages = lines.iter().filter(|words| words[0] == "msg").map(|words| &words[2..5]);
    assert_eq!(census.envelopes, messages.collect::<BTreeSet<_>>().len());
}

/// A recorded trace has sources beside the tags, and masks of any kind.
#[test]
fn classes_and_envelopes_of_recorded_operations_are_counted() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut trace = Trace::parse(&b"tagtrace 1\n"[..]).unwrap();
        trace.recorded = Some(Vec::new());
        let mut classes = BTreeSet::new();
        let mut envelopes = BTreeSet::new();
        let mut masks = Vec::new();
        let mut sources = Vec::new();
        for number in 0..random.below_u32(20) {
            let tag = Tag(random.below(4));
            let source = random.below_u32(3);
            let mask = random.pick(&[0, 3, 0xf0, 0xff]);
            let mut pattern = Pattern::new(tag, TagMask(mask));
            let is_from = random.chance(1, 2);
            if is_from {
                pattern = pattern.from_source(SourceId(source));
            }
            let id = Id(number);
            trace.ops.push(match random.below(4) {
                0 => {
                    envelopes.insert((tag.0, source));
                    TraceOp::Msg { id, tag, source: SourceId(source) }
                }
                kind => {
                    classes.insert((mask, is_from));
                    masks.push(mask);
                    sources.push(is_from);
                    match kind {
                        1 => TraceOp::Recv { id, pattern, is_sole: false },
                        2 => TraceOp::Probe { pattern },
                        _ => TraceOp::Mprobe { id, pattern },
                    }
                }
            });
        }
        let census = Census::new(&trace);
        assert_eq!(census.mask_classes, classes.len(), "seed {seed}");
        assert_eq!(census.envelopes, envelopes.len(), "seed {seed}");
        // A tag is open where a mask compares fewer bits than all masks together, a source where
        // others name one.
        let widest = masks.iter().fold(0, |all, mask| all | mask);
        let names = sources.contains(&true);
        let class = |at: usize| (names && !sources[at], masks[at] != widest);
        let count = |wanted| (0..masks.len()).filter(|at| class(*at) == wanted).count() as u64;
        let counted = census.patterns;
        let found = [counted.exact, counted.any_source, counted.any_tag, counted.any_both];
        let all = [(false, false), (true, false), (false, true), (true, true)];
        assert_eq!(found, all.map(count), "seed {seed}");
    }
}
