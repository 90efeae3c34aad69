//! The measurement as JSON, schema 1: compact, keys in this order, absent what a test has not.

use serde::{Deserialize, Serialize};
use tagmatch::Counters;

use crate::blocks;
use crate::histogram::Histogram;
use crate::measure::More;
use crate::samples::Latency;

/// Version of the schema. It grows when a key changes its meaning or goes; not for a new key.
pub(crate) const SCHEMA: u32 = 1;

/// One test.
#[derive(Serialize)]
pub(crate) struct Document<C: Serialize> {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    test: &'static str,
    device: String,
    config: C,
    results: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matching: Option<Matching>,
    validated: bool,
    /// Whether the user ended it before its time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

impl<C: Serialize> Document<C> {
    pub(crate) fn new(test: &'static str, device: String, config: C, validated: bool) -> Self {
        Self {
            schema: SCHEMA,
            tool: "tagperf",
            version: env!("CARGO_PKG_VERSION"),
            test,
            device,
            config,
            results: Vec::new(),
            matching: Some(Matching::default()),
            validated,
            interrupted: false,
        }
    }

    /// The same where nobody counts how receives were matched.
    pub(crate) fn without_matching(self) -> Self {
        Self { matching: None, ..self }
    }

    /// It ended before its time.
    pub(crate) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted
    }

    pub(crate) fn test(&self) -> &'static str {
        self.test
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    pub(crate) fn config(&self) -> &C {
        &self.config
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.results
    }

    /// How many results there are so far.
    pub(crate) fn results(&self) -> usize {
        self.results.len()
    }

    pub(crate) fn matching(&self) -> Option<&Matching> {
        self.matching.as_ref()
    }

    pub(crate) fn validated(&self) -> bool {
        self.validated
    }

    /// Adds what was measured at one size and depth, and how both sides' receives were matched.
    pub(crate) fn add(&mut self, row: Row, matching: &Matching) {
        self.results.push(row);
        if let Some(all) = &mut self.matching {
            all.add(matching);
        }
    }
}

/// What was measured at one size and depth.
#[derive(Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) size: u64,
    pub(crate) posted_depth: u64,
    pub(crate) unexpected_depth: u64,
    pub(crate) wildcard_percent: u8,
    /// Round trips (lat) or messages (bw, rate).
    pub(crate) iters: u64,
    /// How many latencies were taken; none where messages are sent in windows.
    pub(crate) samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ns: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bandwidth_bytes_per_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages_per_s: Option<u64>,
    /// What only some tests have.
    #[serde(flatten)]
    pub(crate) more: More,
    /// The figure by stretches of time: what a later comparison judges noise by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocks: Option<blocks::Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) histogram: Option<Histogram>,
}

/// Where receives were matched. `hardware + posted + unexpected + by_device` are all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Matching {
    pub(crate) hardware: u64,
    pub(crate) posted: u64,
    pub(crate) unexpected: u64,
    /// By a device that doesn't tell where; absent where there is none.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(crate) by_device: u64,
    pub(crate) not_offloaded: NotOffloaded,
    /// Events of a NIC's list that its rules don't allow; absent where there was none.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(crate) list_faults: u64,
}

/// Those of `posted` that no NIC matched, by reason; reasons that did not occur are absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NotOffloaded {
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) too_small: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) list_full: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) order: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) source: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) memory: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) phase: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) off: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
impl NotOffloaded {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        let Self { too_small, list_full, order, source, memory, phase, off } = self;
        too_small + list_full + order + source + memory + phase + off
    }
}

impl From<Counters> for Matching {
    fn from(counters: Counters) -> Self {
        let Counters { hardware, posted, unexpected, by_device, list_faults, .. } = counters;
        let why = counters.not_offloaded;
        let not_offloaded = NotOffloaded {
            too_small: why.too_small,
            list_full: why.list_full,
            order: why.order,
            source: why.source,
            memory: why.memory,
            phase: why.phase,
            off: why.off,
        };
        Self { hardware, posted, unexpected, by_device, not_offloaded, list_faults }
    }
}

impl Matching {
    /// Takes in another side's, or another size's.
    pub(crate) fn add(&mut self, more: &Self) {
        self.merge(more, u64::saturating_add);
    }

    /// What came since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        self.merge(before, u64::saturating_sub);
        self
    }

    fn merge(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let Self { hardware, posted, unexpected, by_device, not_offloaded, list_faults } = self;
        let NotOffloaded { too_small, list_full, order, source, memory, phase, off } =
            not_offloaded;
        let reasons = &other.not_offloaded;
        for (to, from) in [
            (hardware, other.hardware),
            (posted, other.posted),
            (unexpected, other.unexpected),
            (by_device, other.by_device),
            (too_small, reasons.too_small),
            (list_full, reasons.list_full),
            (order, reasons.order),
            (source, reasons.source),
            (memory, reasons.memory),
            (phase, reasons.phase),
            (off, reasons.off),
            (list_faults, other.list_faults),
        ] {
            *to = with(*to, from);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Config {
        sizes: [u64; 1],
    }

    pub(crate) fn row() -> Row {
        Row {
            size: 8,
            posted_depth: 0,
            unexpected_depth: 0,
            wildcard_percent: 0,
            iters: 10,
            samples: 10,
            latency_ns: Some(Latency {
                min: 1.5,
                p50: 2.0,
                p90: 3.0,
                p99: 4.0,
                p999: 5.0,
                max: 6.0,
                mean: 2.5,
            }),
            bandwidth_bytes_per_s: Some(7),
            messages_per_s: Some(8),
            more: More::default(),
            blocks: Some(blocks::Figures { latency_ns: vec![2.25, 3.0], messages_per_s: vec![] }),
            histogram: None,
        }
    }

    fn matching() -> Matching {
        let not_offloaded = NotOffloaded { off: 19, ..NotOffloaded::default() };
        Matching { posted: 19, unexpected: 1, not_offloaded, ..Matching::default() }
    }

    #[test]
    fn a_document_is_one_line_with_its_keys_in_order() {
        let config = Config { sizes: [8] };
        let mut document = Document::new("lat", "shm".into(), config, true);
        document.add(row(), &matching());
        assert_eq!(
            serde_json::to_string(&document).unwrap(),
            format!(
                "{}{}{}",
                "{\"schema\":1,\"tool\":\"tagperf\",\"version\":\"0.1.0\",\"test\":\"lat\",\
                 \"device\":\"shm\",\"config\":{\"sizes\":[8]},\"results\":[{\"size\":8,\
                 \"posted_depth\":0,\"unexpected_depth\":0,\"wildcard_percent\":0,\"iters\":10,\
                 \"samples\":10,\"latency_ns\":",
                "{\"min\":1.5,\"p50\":2.0,\"p90\":3.0,\"p99\":4.0,\"p999\":5.0,\"max\":6.0,\
                 \"mean\":2.5},\"bandwidth_bytes_per_s\":7,\"messages_per_s\":8,\
                 \"blocks\":{\"latency_ns\":[2.25,3.0]}}],",
                "\"matching\":{\"hardware\":0,\"posted\":19,\"unexpected\":1,\
                 \"not_offloaded\":{\"off\":19}},\"validated\":true}"
            )
        );
    }

    #[test]
    fn an_end_before_its_time_is_said_last() {
        let mut document = Document::new("lat", "shm".into(), Config { sizes: [8] }, true);
        document.interrupt();
        let text = serde_json::to_string(&document).unwrap();
        assert!(text.ends_with(",\"validated\":true,\"interrupted\":true}"), "{text}");
    }

    #[test]
    fn what_a_test_has_no_value_for_is_absent() {
        let row = Row { latency_ns: None, blocks: None, samples: 0, ..row() };
        let text = serde_json::to_string(&row).unwrap();
        assert!(!text.contains("latency_ns") && !text.contains("null"), "{text}");
    }

    #[test]
    fn sums_and_differences() {
        let mut sum = matching();
        sum.add(&matching());
        assert_eq!((sum.posted, sum.unexpected, sum.not_offloaded.off), (38, 2, 38));
        assert_eq!(sum.since(&matching()), matching());
        let faulty = Matching { list_faults: 2, ..matching() };
        assert!(!serde_json::to_string(&sum).unwrap().contains("list_faults"));
        assert!(serde_json::to_string(&faulty).unwrap().ends_with(",\"list_faults\":2}"));
        assert_eq!(faulty.since(&matching()).list_faults, 2);
        assert_eq!(
            serde_json::from_str::<Matching>(&serde_json::to_string(&sum).unwrap()).unwrap(),
            sum
        );
    }
}
