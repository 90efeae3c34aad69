//! Two runs side by side, and whether the later is slower.

mod interval;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;

use crate::Header;
use crate::saved_run::{Key, Metric, SavedResult, SavedRun};
use crate::show::{invalid, shorten, show_3, show_count};
use crate::style::Style;
use interval::Ratio;
pub(crate) use interval::{CONFIDENCE_PERCENT, ratio};

/// The range of a measurement's figures (ns, messages/s). Others would only make the table as wide
/// as their digits.
const FIGURES: RangeInclusive<f64> = 1e-6..=1e15;
/// Changes beyond this, in percent, are shown as powers of ten.
const CHANGE_MAX: f64 = 1e6;
/// Characters of the column that says what was measured. JSON has longer ones in full.
const WHAT_CHARS: usize = 100;

/// The verdict on one result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ResultVerdict {
    /// No difference beyond noise.
    Same,
    Faster,
    /// Slower, but not by more than the limit.
    WithinLimit,
    Slower,
}

/// A result that both runs have. Changes are of the time that a message takes, so more is always
/// worse.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct ComparedResult {
    what: String,
    #[serde(flatten)]
    key: Key,
    metric: &'static str,
    old: f64,
    new: f64,
    /// How many results of the old and of the new run each figure is the median of; absent where it
    /// is one of each.
    #[serde(skip_serializing_if = "is_one_of_each")]
    pooled: [usize; 2],
    /// Both figures, for people.
    #[serde(skip)]
    shown: [String; 2],
    time_change_percent: f64,
    /// Absent where a run has too few blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_percent: Option<[f64; 2]>,
    verdict: ResultVerdict,
}

impl ComparedResult {
    fn new(old: &SavedResult, new: &SavedResult, limit_percent: f64) -> Self {
        // The time of a message is a latency, or the inverse of a rate.
        let (shorter, longer) = match new.metric {
            Metric::LatencyNs => (old, new),
            Metric::MessagesPerS => (new, old),
        };
        let whole = longer.value / shorter.value;
        let blocks = ratio(&shorter.blocks, &longer.blocks);
        let percent = |ratio: f64| ((ratio - 1.0) * 1e4).round() / 1e2;
        let time_change_percent = percent(blocks.map_or(whole, |ratio| ratio.estimate));
        let interval = blocks.map(|Ratio { low, high, .. }| [percent(low), percent(high)]);
        // Without an interval the noise is not known, and the change itself decides.
        let [low, high] = interval.unwrap_or([time_change_percent; 2]);
        let verdict = if low > limit_percent {
            ResultVerdict::Slower
        } else if low > 0.0 {
            ResultVerdict::WithinLimit
        } else if high < 0.0 {
            ResultVerdict::Faster
        } else {
            ResultVerdict::Same
        };
        Self {
            what: new.key.label(),
            key: new.key.clone(),
            metric: new.metric.name(),
            old: old.value,
            new: new.value,
            pooled: [old.pooled, new.pooled],
            shown: [old, new].map(show),
            time_change_percent,
            interval_percent: interval,
            verdict,
        }
    }

    fn cells(&self) -> [String; 5] {
        let ends = self.interval_percent.map(|ends| ends.map(change));
        let interval = ends.map_or("-".into(), |[low, high]| format!("{low} .. {high} %"));
        let [old, new] = self.shown.clone();
        let time = format!("{} %", change(self.time_change_percent));
        [shorten(&self.what, WHAT_CHARS), old, new, time, interval]
    }
}

fn is_one_of_each(pooled: &[usize; 2]) -> bool {
    *pooled == [1, 1]
}

fn change(percent: f64) -> String {
    // Adding 0.0 turns -0.0 into 0.0: a change that rounds to 0 has no sign.
    let percent = (percent * 10.0).round() / 10.0 + 0.0;
    if percent.abs() < CHANGE_MAX { format!("{percent:+.1}") } else { format!("{percent:+.0e}") }
}

/// The results of the run called `name`, those with equal parameters merged; an error if
/// a figure is absurd. A result whose figure is 0, since no message has arrived, counts as none:
/// the figure has no ratio.
fn pooled(name: &str, run: &SavedRun) -> Result<Vec<SavedResult>, String> {
    let mut pooled = run.pooled();
    pooled.retain(|entry| entry.value != 0.0);
    for entry in &pooled {
        let mut figures = entry.blocks.iter().chain([&entry.value]);
        if let Some(absurd) = figures.find(|figure| !FIGURES.contains(figure)) {
            let what = entry.key.label();
            let least = FIGURES.start();
            let most = FIGURES.end();
            let what = shorten(&what, WHAT_CHARS);
            let figure = format!("figure of {what}");
            let error =
                invalid(&figure, format_args!("{absurd:e}"), format_args!("{least:e} to {most:e}"));
            return Err(format!("{name}: {error}"));
        }
    }
    Ok(pooled)
}

/// The figure in the unit of the test's table.
fn show(entry: &SavedResult) -> String {
    match (entry.metric, entry.key.test.as_str()) {
        (Metric::LatencyNs, _) => format!("{} us", show_3(entry.value / 1e3)),
        (_, "bw" | "bibw" | "put_bw" | "get_bw") => {
            format!("{} MB/s", show_3(entry.value * entry.key.size as f64 / 1e6))
        }
        (_, "drain") => format!("{} ns", show_3(1e9 / entry.value)),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
        _ => format!("{}/s", show_count(entry.value.round() as u64)),
    }
}

/// The comparison of two runs; in JSON the keys stand in this order.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    #[serde(flatten)]
    header: Header,
    old: String,
    new: String,
    fail_if_slower_percent: f64,
    confidence_percent: u32,
    results: Vec<ComparedResult>,
    /// Results that only one of the runs has.
    only_old: Vec<String>,
    only_new: Vec<String>,
    warnings: Vec<String>,
    slower: usize,
}

impl Comparison {
    /// Compares results with equal parameters.
    ///
    /// # Errors
    ///
    /// There are none, or a figure is absurd; the text says what is expected.
    pub fn new(
        names: [String; 2],
        old: &SavedRun,
        new: &SavedRun,
        limit_percent: f64,
    ) -> Result<Self, String> {
        let [old_results, new_results] = [pooled(&names[0], old)?, pooled(&names[1], new)?];
        let of = |entry: &SavedResult| (entry.key.clone(), entry.metric);
        let mut earlier: BTreeMap<_, _> =
            old_results.into_iter().map(|entry| (of(&entry), entry)).collect();
        let mut results = Vec::new();
        let mut only_new = Vec::new();
        for entry in new_results {
            match earlier.remove(&of(&entry)) {
                Some(old) => results.push(ComparedResult::new(&old, &entry, limit_percent)),
                None => only_new.push(entry.key.label()),
            }
        }
        let only_old: Vec<_> = earlier.into_keys().map(|(key, _)| key.label()).collect();
        let [old_name, new_name] = names;
        if results.is_empty() {
            let [there, here] = [&only_old, &only_new]
                .map(|labels| labels.first().map_or("none".into(), |l| shorten(l, WHAT_CHARS)));
            let names = format!("{old_name} and {new_name}");
            let use_these = "use runs of the same test with the same options";
            return Err(format!(
                "{names} have no result in common ({there} there, {here} here); {use_these}"
            ));
        }
        let mut warnings = Vec::new();
        let facts = [("machine", &old.cpu, &new.cpu), ("kernel", &old.kernel, &new.kernel)];
        for (what, old, new) in facts {
            if let (Some(old), Some(new)) = (old, new)
                && old != new
            {
                warnings.push(format!("another {what}: {old} before, {new} now"));
            }
        }
        if results.iter().any(|pair| pair.interval_percent.is_none()) {
            warnings.push("no interval where a run has too few blocks: measure longer".into());
        }
        let slower = results.iter().filter(|pair| pair.verdict == ResultVerdict::Slower).count();
        Ok(Self {
            header: Header::new("compare"),
            old: old_name,
            new: new_name,
            fail_if_slower_percent: limit_percent,
            confidence_percent: CONFIDENCE_PERCENT,
            results,
            only_old,
            only_new,
            warnings,
            slower,
        })
    }

    /// The comparison as a table, newline-terminated.
    pub fn text(&self, style: Style) -> String {
        let mut head = format!(
            "# comparison: time of a message, + is slower\n\
             # old         {}\n# new         {}\n\
             # interval    {CONFIDENCE_PERCENT} %, of the noise within the runs; slower: all of it \
             above {} %\n",
            self.old, self.new, self.fail_if_slower_percent,
        );
        let most = |side: usize| self.results.iter().map(|pair| pair.pooled[side]).max();
        if let (Some(old @ 2..), Some(new)) | (Some(old), Some(new @ 2..)) = (most(0), most(1)) {
            head += &format!(
                "# pooled      up to {old} of old and {new} of new in a line: their median, and the \
                 blocks of all\n"
            );
        }
        for warning in &self.warnings {
            head += &format!("# warning     {warning}\n");
        }
        let mut out = style.block(&head);
        let headings = ["result", "old", "new", "time", "interval"].map(String::from);
        let rows: Vec<_> = self.results.iter().map(ComparedResult::cells).collect();
        let widths: [usize; 5] = std::array::from_fn(|at| {
            let cells = rows.iter().chain([&headings]).map(|cells| cells[at].chars().count());
            cells.max().unwrap_or(0)
        });
        let line = |[what, rest @ ..]: &[String; 5]| {
            let rest = rest.iter().zip(&widths[1..]);
            let rest = rest.map(|(cell, width)| format!("  {cell:>width$}"));
            format!("{what:<width$}{}", rest.collect::<String>(), width = widths[0])
        };
        out += &style.heading(format!("{}  verdict", line(&headings)));
        out.push('\n');
        for (pair, cells) in self.results.iter().zip(&rows) {
            let verdict = match pair.verdict {
                ResultVerdict::Same => "same".into(),
                ResultVerdict::Faster => style.good("faster"),
                ResultVerdict::WithinLimit => {
                    format!("slower, within {} %", self.fail_if_slower_percent)
                }
                ResultVerdict::Slower => style.bad("SLOWER"),
            };
            out += &format!("{}  {verdict}\n", line(cells));
        }
        let count = |verdict| self.results.iter().filter(|pair| pair.verdict == verdict).count();
        let mut sum = format!(
            "# sum         {} compared: {} slower by more than {} %, {} slower within it, {} same, {} \
             faster\n",
            self.results.len(),
            self.slower,
            self.fail_if_slower_percent,
            count(ResultVerdict::WithinLimit),
            count(ResultVerdict::Same),
            count(ResultVerdict::Faster),
        );
        for (only, which) in [(&self.only_old, "old"), (&self.only_new, "new")] {
            if let Some(first) = only.first() {
                let count = only.len();
                let first = shorten(first, WHAT_CHARS);
                let more = if count > 1 { ", ..." } else { "" };
                sum += &format!("# alone       {count} only in {which}: {first}{more}\n");
            }
        }
        out + &style.block(&sum)
    }

    /// Whether all results keep the limit.
    ///
    /// # Errors
    ///
    /// Which results are slower by more than it.
    pub fn judge(&self) -> Result<(), String> {
        let slower = self.results.iter().filter(|pair| pair.verdict == ResultVerdict::Slower);
        let by = |pair: &&ComparedResult| pair.time_change_percent;
        match slower.max_by(|a, b| by(a).total_cmp(&by(b))) {
            None => Ok(()),
            Some(worst) => Err(format!(
                "{} of {} results are slower than in {} by more than {} %; worst: {} by {:.1} %",
                self.slower,
                self.results.len(),
                self.old,
                self.fail_if_slower_percent,
                shorten(&worst.what, WHAT_CHARS),
                worst.time_change_percent,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use tagmatch_testkit::random::Random;

    use super::*;
    use crate::{BlockFigures, Config, Document, Latency, Row};

    #[expect(clippy::cast_possible_truncation, reason = "a rate")]
    fn run(test: &'static str, metric: &str, figures: &[f64]) -> SavedRun {
        let p50 = figures[figures.len() / 2];
        let mut row = Row { size: 8, ..Row::default() };
        let mut blocks = BlockFigures::default();
        if metric == "latency_ns" {
            row.latency_ns = Some(Latency { p50, ..Latency::default() });
            blocks.latency_ns = figures.to_vec();
        } else {
            row.messages_per_s = Some(p50.round() as u64);
            blocks.messages_per_s = figures.to_vec();
        }
        row.blocks = Some(blocks);
        let mut document = Document::new(test, "shm".into(), Config::default(), true);
        document.results.push(row);
        let mut run = SavedRun::default();
        run.add(&document).unwrap();
        run
    }

    fn verdict(old: &SavedRun, new: &SavedRun, limit: f64) -> (ResultVerdict, Comparison) {
        let names = ["old".to_owned(), "new".to_owned()];
        let comparison = Comparison::new(names, old, new, limit).unwrap();
        (comparison.results[0].verdict, comparison)
    }

    fn around(figure: f64) -> Vec<f64> {
        (0..21).map(|n| figure * (0.99 + 0.001 * f64::from(n))).collect()
    }

    #[test]
    fn verdicts_of_latencies_and_of_rates() {
        for (metric, worse) in [("latency_ns", 1.1), ("messages_per_s", 1.0 / 1.1)] {
            let of = |factor: f64| run("lat", metric, &around(1000.0 * factor));
            let old = of(1.0);
            let new = of(worse);
            let (found, comparison) = verdict(&old, &new, 5.0);
            assert_eq!(found, ResultVerdict::Slower, "{metric}");
            assert!((comparison.results[0].time_change_percent - 10.0).abs() < 0.5);
            let failure = comparison.judge().unwrap_err();
            assert!(failure.contains("lat 8 B by 10.0 %"), "{failure}");
            let (found, comparison) = verdict(&old, &new, 12.0);
            assert_eq!(found, ResultVerdict::WithinLimit, "{metric}");
            comparison.judge().unwrap();
            assert_eq!(verdict(&new, &old, 0.0).0, ResultVerdict::Faster, "{metric}");
            assert_eq!(verdict(&old, &old, 0.0).0, ResultVerdict::Same, "{metric}");
        }
    }

    #[test]
    fn the_slowest_result_is_named_as_the_worst() {
        let all = |factors: [f64; 3]| {
            let mut run = SavedRun::default();
            for (test, factor) in ["a", "b", "c"].into_iter().zip(factors) {
                run.entries.extend(self::run(test, "latency_ns", &around(1000.0 * factor)).entries);
            }
            run
        };
        let (_, comparison) = verdict(&all([1.0; 3]), &all([1.1, 1.3, 1.2]), 5.0);
        let failure = comparison.judge().unwrap_err();
        assert!(failure.contains("3 of 3") && failure.contains("b 8 B by 30.0 %"), "{failure}");
    }

    #[test]
    fn noise_is_no_difference() {
        // The medians are 8 % apart, but so are the figures of each run.
        let noisy = |shift: f64| {
            let figures: Vec<f64> = (0..8).map(|n| 1000.0 + shift + 60.0 * f64::from(n)).collect();
            run("lat", "latency_ns", &figures)
        };
        assert_eq!(verdict(&noisy(0.0), &noisy(80.0), 5.0).0, ResultVerdict::Same);
        // With too few blocks the noise of a run is not known.
        let (found, comparison) =
            verdict(&run("lat", "latency_ns", &[100.0]), &run("lat", "latency_ns", &[108.0]), 5.0);
        assert_eq!((found, comparison.results[0].interval_percent), (ResultVerdict::Slower, None));
    }

    #[test]
    fn nothing_in_common_is_bad_input() {
        let lat = run("lat", "latency_ns", &[1.0]);
        let bw = run("bw", "messages_per_s", &[1.0]);
        let failure =
            Comparison::new(["a".into(), "b".into()], &lat, &bw, 5.0).map(drop).unwrap_err();
        assert!(failure.contains("no result in common"), "{failure}");
    }

    #[test]
    fn hostile_files_are_refused_or_compared_but_never_a_panic() {
        let sound = serde_json::json!({"schema": 1, "tool": "tagperf", "test": "lat", "device": "shm",
            "config": {"cpu": "x", "threads": [1]}, "results": [{"size": 8, "posted_depth": 4,
            "latency_ns": {"min": 1, "p50": 2.5, "p90": 3, "p99": 4, "p999": 5, "max": 6},
            "messages_per_s": 7, "pace": {"planned_per_s": 3}, "blocks": {"latency_ns":
            [2.0, 3.0, 1e14, 5e-5, 4, 4]}}]});
        let sound = sound.to_string().into_bytes();
        let mut generator = Random::new(1);
        let mut random = |below: usize| generator.index(below);
        let mut read = 0;
        let whole = SavedRun::parse(&sound).unwrap();
        for _ in 0..4_000 {
            let mut bytes = sound.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes[at] = b"0123456789-+.eE\"{}[]:,\\ "[random(24)],
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"0123456789-.e"[random(13)]),
                    _ => bytes[at] ^= 1 << random(8),
                }
            }
            if let Ok(run) = SavedRun::parse(&bytes) {
                read += 1;
                let names = ["a".to_owned(), "b".to_owned()];
                if let Ok(comparison) = Comparison::new(names, &whole, &run, 5.0) {
                    let _ = (comparison.text(Style::new(false)), comparison.judge());
                }
            }
        }
        assert!((200..3_800).contains(&read), "{read}");
    }

    #[test]
    fn results_that_are_put_together_are_said_to_be() {
        let one = run("lat", "latency_ns", &around(1000.0));
        let mut three = one.clone();
        three.entries.extend(one.entries.iter().chain(&one.entries).cloned().collect::<Vec<_>>());
        let pooled = |old: &SavedRun, new: &SavedRun| {
            let (_, comparison) = verdict(old, new, 5.0);
            let json = serde_json::to_value(&comparison.results[0]).unwrap();
            (comparison.text(Style::new(false)), json.get("pooled").cloned())
        };
        let (text, json) = pooled(&three, &one);
        assert!(text.contains("# pooled      up to 3 of old and 1 of new in a line"), "{text}");
        assert_eq!(json, Some(serde_json::json!([3, 1])));
        assert!(pooled(&one, &three).0.contains("up to 1 of old and 3 of new"));
        let (text, json) = pooled(&one, &one);
        assert!(!text.contains("# pooled") && json.is_none(), "{text}");
    }

    #[test]
    fn changes_are_short() {
        let shown = [0.04, -0.04, -0.05, 999_999.0, -4e22].map(change);
        assert_eq!(shown, ["+0.0", "+0.0", "-0.1", "+999999.0", "-4e22"]);
    }

    #[test]
    fn the_table_lines_up() {
        let old = run("lat", "latency_ns", &around(1000.0));
        let (_, comparison) = verdict(&old, &run("lat", "latency_ns", &around(1200.0)), 5.0);
        let text = comparison.text(Style::new(false));
        let rows: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            rows,
            [
                "result       old      new     time          interval  verdict",
                "lat 8 B  1.00 us  1.20 us  +20.0 %  +19.3 .. +20.7 %  SLOWER",
            ]
        );
        assert!(!text.contains('\u{1b}'));
        let bw = run("bw", "messages_per_s", &around(1e6));
        assert!(verdict(&bw, &bw, 5.0).1.text(Style::new(false)).contains("8.00 MB/s"));
    }
}
