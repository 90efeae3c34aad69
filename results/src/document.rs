//! A test as JSON, schema 1: compact, keys in this order, keys without a value absent.

use serde::Serialize;

use crate::{Config, Header, Matching, NicCounted, Row};

/// The results of one test.
#[derive(Serialize)]
pub struct Document {
    #[serde(flatten)]
    header: Header,
    /// The device that carried messages.
    pub device: String,
    /// What was to be measured, and where.
    pub config: Config,
    /// The rows.
    pub results: Vec<Row>,
    /// How the receives of all sides were matched.
    pub matching: Matching,
    /// The matches that a NIC counted during the test: the NIC below rank 0, or below the side that
    /// measures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_matches: Option<NicCounted>,
    /// Whether every byte of every measured message was checked.
    pub validated: bool,
    /// Whether the test ended early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

impl Document {
    /// A test that begins.
    pub fn new(test: &'static str, device: String, config: Config, validated: bool) -> Self {
        Self {
            header: Header::new(test),
            device,
            config,
            results: Vec::new(),
            matching: Matching::default(),
            nic_matches: None,
            validated,
            interrupted: false,
        }
    }

    /// The test's name.
    pub fn test(&self) -> &str {
        &self.header.test
    }

    /// Adds a row, and how the receives of all sides were matched.
    pub fn add(&mut self, row: Row, matching: &Matching) {
        self.results.push(row);
        self.matching.add(matching);
    }
}

#[cfg(test)]
mod tests {
    use tagmatch::NotOffloaded;

    use super::*;

    fn matching() -> Matching {
        let not_offloaded = NotOffloaded { off: 19, ..NotOffloaded::default() };
        Matching { posted: 19, unexpected: 1, not_offloaded, ..Matching::default() }
    }

    #[test]
    fn a_document_is_one_line_with_its_keys_in_order() {
        let config = Config { sizes: vec![8], ..Config::default() };
        let mut document = Document::new("lat", "shm".into(), config, true);
        document.add(Row::sample(), &matching());
        assert_eq!(
            serde_json::to_string(&document).unwrap(),
            format!(
                "{}{}{}",
                "{\"schema\":1,\"tool\":\"tagperf\",\"version\":\"0.1.0\",\"test\":\"lat\",\
                 \"device\":\"shm\",\"config\":{\"sizes\":[8],\"cpu\":\"\",\"cores\":0,\"kernel\":\"\",\
                 \"clock_ns\":0.0,\"warnings\":[],\"hw_tags\":\"\"},\"results\":[{\"size\":8,\
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
        let mut document = Document::new(
            "lat",
            "shm".into(),
            Config { sizes: vec![8], ..Config::default() },
            true,
        );
        document.interrupted = true;
        let text = serde_json::to_string(&document).unwrap();
        assert!(text.ends_with(",\"validated\":true,\"interrupted\":true}"), "{text}");
    }

    #[test]
    fn the_counts_of_a_nic_stand_beside_those_of_the_processes() {
        let mut document = Document::new("lat", "ofi".into(), Config::default(), true);
        let nic = "cxi0".to_owned();
        document.nic_matches = Some(NicCounted { nic, posted: 7, unexpected: 2, in_software: 1 });
        let counted = "\"matching\":{\"hardware\":0,\"posted\":0,\"unexpected\":0,\
                       \"not_offloaded\":{}},\"nic_matches\":{\"nic\":\"cxi0\",\"posted\":7,\
                       \"unexpected\":2,\"in_software\":1},\"validated\":true}";
        for text in [
            serde_json::to_string(&document).unwrap(),
            serde_json::to_string(&crate::stream::end(&document)).unwrap(),
        ] {
            assert!(text.ends_with(counted), "{text}");
        }
    }

    #[test]
    fn what_a_test_has_no_value_for_is_absent() {
        let row = Row { latency_ns: None, blocks: None, samples: 0, ..Row::sample() };
        let text = serde_json::to_string(&row).unwrap();
        assert!(!text.contains("latency_ns") && !text.contains("null"), "{text}");
    }
}
