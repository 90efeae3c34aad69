//! Results of a run, read from JSON, for comparisons and charts.
//!
//! The file was written by `--json` (one test, or the array of `tagperf` alone) or has the lines of
//! `--json-stream`. Several such documents one after the other are one run, whose blocks are
//! merged. The file is not trusted: every figure is checked, and an error says where it is.

use std::collections::BTreeMap;
use std::io::Read;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::header::{SCHEMA, TOOL};
use crate::samples::PERCENTILES;
use crate::show::{one_line, show_size};
use crate::{Config, Document, Drained, Header, Latency, PlannedRate, Row, default_window};

/// All tests together take 100 kB; a stream with a day's progress still fits.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Bounds the work of a comparison.
const ENTRIES_MAX: usize = 10_000;
const BLOCKS_MAX: usize = 1024;

/// A document, or a line of a stream, as it is read.
#[derive(Deserialize)]
struct SavedDocument {
    #[serde(flatten)]
    header: Header,
    device: Option<String>,
    config: Option<Value>,
    results: Option<Value>,
    #[serde(rename = "matching")]
    _matching: Option<IgnoredAny>,
    #[serde(rename = "validated")]
    _validated: Option<IgnoredAny>,
    /// The fields of a row, in the line of a result.
    #[serde(flatten)]
    row: Map<String, Value>,
}

/// The parameters of a result; only results with equal keys are compared. Parameters that are 0,
/// off, or the default are absent, so a file from before a parameter existed still compares.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Key {
    pub(crate) test: String,
    #[serde(skip)]
    pub(crate) device: String,
    pub(crate) size: u64,
    pub(crate) parameters: BTreeMap<String, String>,
}

impl Key {
    /// In words: `lat 8 B, posted_depth 4096`.
    pub(crate) fn label(&self) -> String {
        let parameters = self.parameters.iter().map(|(name, value)| match value.as_str() {
            "true" => format!(", {name}"),
            _ => format!(", {name} {value}"),
        });
        format!("{} {}{}", self.test, show_size(self.size), parameters.collect::<String>())
    }
}

/// The figure that a test is judged by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Metric {
    /// The median latency one way; less is better.
    LatencyNs,
    /// More is better.
    MessagesPerS,
}

impl Metric {
    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LatencyNs => "latency_ns",
            Self::MessagesPerS => "messages_per_s",
        }
    }
}

/// One result.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SavedResult {
    pub(crate) key: Key,
    pub(crate) metric: Metric,
    pub(crate) value: f64,
    /// Figures of stretches of the measurement; see [`Blocks`](crate::Blocks).
    pub(crate) blocks: Vec<f64>,
    /// All that was measured but the blocks.
    pub(crate) row: Row,
    /// How many results were merged into this one.
    pub(crate) pooled: usize,
}

/// The results of a run, in their order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SavedRun {
    pub(crate) entries: Vec<SavedResult>,
    /// The machine, as the first test names it.
    pub(crate) cpu: Option<String>,
    pub(crate) kernel: Option<String>,
}

impl SavedRun {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Why `file` can't be read, or has no results that can be used.
    pub fn read(file: impl Read) -> Result<Self, String> {
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("more than {}", show_size(FILE_BYTES_MAX)));
        }
        Self::parse(&bytes).map_err(one_line)
    }

    /// Reads documents, one after the other.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut run = Self::default();
        // The configuration of the test whose lines are being read.
        let mut config = Config::default();
        for value in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
            let documents = match value.map_err(|error| format!("no JSON: {error}"))? {
                Value::Array(documents) => documents,
                document => vec![document],
            };
            documents.into_iter().try_for_each(|document| run.add_saved(document, &mut config))?;
        }
        if run.entries.is_empty() {
            return Err("no result in it".into());
        }
        Ok(run)
    }

    /// Adds a document, or a line of a stream.
    fn add_saved(&mut self, document: Value, config: &mut Config) -> Result<(), String> {
        if !document.is_object() {
            return Err(format!("{} where a test's document should be", short(&document)));
        }
        let document: SavedDocument = typed("document", document)?;
        let Header { schema, tool, test, record, .. } = document.header;
        if tool != TOOL {
            return Err("not written by tagperf: `tool` is another".into());
        }
        if schema != SCHEMA {
            return Err(format!("schema {schema}, this version reads {SCHEMA}"));
        }
        let test = short_text(&test);
        let rows = match record.as_deref() {
            None => typed("results", document.results.unwrap_or_default())?,
            Some("start") => Vec::new(),
            Some("result") => vec![Value::Object(document.row)],
            // Progress, the end, and records of later versions.
            Some(_) => return Ok(()),
        };
        if record.as_deref() != Some("result") {
            let found = document.config.ok_or_else(|| format!("`{test}` has no config"))?;
            *config = typed(&format!("config of `{test}`"), found)?;
            self.note_machine(config);
        }
        let device = document.device.ok_or_else(|| format!("`{test}` has no device"))?;
        rows.into_iter().try_for_each(|row| {
            let row = typed(&format!("result of `{test}`"), row)?;
            self.add_row(&test, &short_text(&device), &row, config)
        })
    }

    /// Adds the results of a test.
    ///
    /// # Errors
    ///
    /// A figure is absurd, or there are too many of them.
    pub fn add(&mut self, document: &Document) -> Result<(), String> {
        self.note_machine(&document.config);
        let add = |row| self.add_row(document.test(), &document.device, row, &document.config);
        document.results.iter().try_for_each(add)
    }

    fn note_machine(&mut self, config: &Config) {
        let fact = |fact: &str| Some(one_line(fact)).filter(|fact| !fact.is_empty());
        self.cpu = self.cpu.take().or_else(|| fact(&config.environment.cpu));
        self.kernel = self.kernel.take().or_else(|| fact(&config.environment.kernel));
    }

    fn add_row(
        &mut self,
        test: &str,
        device: &str,
        row: &Row,
        config: &Config,
    ) -> Result<(), String> {
        let parameters = parameters(row, config)?;
        let key = Key { test: test.into(), device: device.into(), size: row.size, parameters };
        let mut row = row.clone();
        let blocks = row.blocks.take().unwrap_or_default();
        let (metric, value, blocks) = match (row.latency_ns, row.messages_per_s) {
            (Some(latency), _) => (Metric::LatencyNs, latency.p50, blocks.latency_ns),
            (None, Some(rate)) => (Metric::MessagesPerS, rate as f64, blocks.messages_per_s),
            // A measurement that was stopped before it had a figure.
            (None, None) => return Ok(()),
        };
        let named =
            PERCENTILES.iter().zip(row.latency_ns.into_iter().flat_map(Latency::percentiles));
        let negative = named.filter(|(_, ns)| *ns < 0.0).map(|(rung, _)| rung.json).next();
        let are_right = blocks.len() <= BLOCKS_MAX && blocks.iter().all(|block| *block > 0.0);
        if let Some(what) = negative.or((!are_right).then_some("blocks")) {
            return Err(format!("{what} of {} is no figure", key.label()));
        }
        if self.entries.len() >= ENTRIES_MAX {
            return Err(format!("more than {ENTRIES_MAX} results"));
        }
        self.entries.push(SavedResult { key, metric, value, blocks, row, pooled: 1 });
        Ok(())
    }

    /// The results with equal keys merged, in the order of their first.
    pub(crate) fn pooled(&self) -> Vec<SavedResult> {
        let mut at = BTreeMap::new();
        let mut pooled: Vec<(SavedResult, Vec<f64>)> = Vec::new();
        for entry in &self.entries {
            let at = *at.entry(&entry.key).or_insert(pooled.len());
            match pooled.get_mut(at) {
                Some((first, values)) => {
                    values.push(entry.value);
                    first.blocks.extend(&entry.blocks);
                    first.blocks.truncate(BLOCKS_MAX);
                }
                None => pooled.push((entry.clone(), vec![entry.value])),
            }
        }
        let median = |(mut entry, mut values): (SavedResult, Vec<f64>)| {
            values.sort_by(f64::total_cmp);
            entry.value = values[values.len() / 2];
            entry.pooled = values.len();
            entry
        };
        pooled.into_iter().map(median).collect()
    }
}

/// The parameters of a result by their names in JSON. Those of the row override those of the
/// configuration; some stand within its figures.
fn parameters(row: &Row, config: &Config) -> Result<BTreeMap<String, String>, String> {
    let window = config.window.filter(|window| *window != default_window(row.size));
    let drain = row.drain.as_ref().map(Drained::parameters);
    let mut all = BTreeMap::new();
    for part in [
        serde_json::to_value(Config { window, ..config.parameters() }),
        serde_json::to_value(row.parameters()),
        serde_json::to_value(drain),
        serde_json::to_value(row.pace.map(PlannedRate::parameters)),
    ] {
        let part = part.map_err(|error| error.to_string())?;
        let fields = part.as_object().into_iter().flatten();
        let fields = fields.filter(|(_, value)| is_told(value));
        all.extend(fields.map(|(name, value)| (one_line(name), short(value))));
    }
    Ok(all)
}

/// Whether a value isn't 0, off, or none.
fn is_told(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Bool(is_on) => *is_on,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn typed<T: DeserializeOwned>(what: &str, value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("{what}: {error}"))
}

/// A value for an error text or a key, of bounded length.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => short_text(text),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        other => other.to_string(),
    }
}

fn short_text(text: &str) -> String {
    one_line(text.chars().take(60).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAT: &str = r#"{"schema":1,"tool":"tagperf","version":"0.1.0","test":"lat",
        "device":"shm","config":{"sizes":[8],"iters":9,"wildcard_recv":false,"cpu":"Some"},
        "results":[{"size":8,"posted_depth":16,"wildcard_percent":0,"iters":9,"samples":9,
        "latency_ns":{"min":1,"p50":2.5,"p90":3,"p99":4,"p999":5,"max":6,"mean":3},
        "messages_per_s":7,"blocks":{"latency_ns":[2.0,3.0]}}],"matching":{},"validated":true}"#;

    fn run(text: &str) -> SavedRun {
        SavedRun::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_document_is_read() {
        let run = run(LAT);
        assert_eq!((run.cpu.as_deref(), run.entries.len()), (Some("Some"), 1));
        let entry = &run.entries[0];
        assert_eq!(entry.key.label(), "lat 8 B, posted_depth 16");
        assert_eq!((entry.metric, entry.value), (Metric::LatencyNs, 2.5));
        assert_eq!((&entry.blocks[..], entry.row.samples), (&[2.0, 3.0][..], 9));
        assert_eq!(entry.row.latency_ns.unwrap().percentiles(), [1.0, 2.5, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn all_tests_and_a_stream_have_the_same_results() {
        let want = run(LAT).entries;
        assert_eq!(run(&format!("[{LAT}]")).entries, want);
        let of_nic = LAT.replace(r#""matching":"#, r#""nic_matches":{"nic":"cxi0"},"matching":"#);
        assert_eq!(run(&of_nic).entries, want);
        let head = r#""schema":1,"tool":"tagperf","version":"9","test":"lat""#;
        let row = LAT.split("\"results\":[{").nth(1).unwrap().split("}],").next().unwrap();
        let stream = format!(
            "{{{head},\"record\":\"start\",\"device\":\"shm\",\"config\":{{\"iters\":3}}}}\n\
             {{{head},\"record\":\"progress\",\"step\":1}}\n\
             {{{head},\"record\":\"result\",\"device\":\"shm\",{row}}}\n\
             {{{head},\"record\":\"end\"}}\n"
        );
        assert_eq!(run(&stream).entries, want);
    }

    #[test]
    fn several_runs_are_pooled() {
        let other = LAT.replace("2.5", "3.5").replace("[2.0,3.0]", "[4.0]");
        let third = LAT.replace("2.5", "9.5");
        let pooled = run(&[LAT, &third, &other].concat()).pooled();
        assert_eq!((pooled.len(), pooled[0].pooled), (1, 3));
        assert_eq!((pooled[0].value, &pooled[0].blocks[..]), (3.5, &[2.0, 3.0, 2.0, 3.0, 4.0][..]));
    }

    #[test]
    fn pooled_runs_have_no_more_blocks_than_one_may_have() {
        let blocks = |count| LAT.replace("[2.0,3.0]", &format!("{:?}", vec![2.0; count]));
        let pooled = run(&[blocks(BLOCKS_MAX), blocks(1), blocks(BLOCKS_MAX)].concat()).pooled();
        assert_eq!((pooled[0].pooled, pooled[0].blocks.len()), (3, BLOCKS_MAX));
    }

    #[test]
    fn parameters_tell_results_apart_and_defaults_do_not() {
        let key = |from: &str, to: &str| run(&LAT.replace(from, to)).entries[0].key.clone();
        let same = key("x", "x");
        let config = "\"wildcard_recv\":false";
        assert_eq!(key(config, "\"new_one\":0"), same);
        assert_eq!(key("\"wildcard_percent\":0", "\"threads\":1"), same);
        assert_ne!(key("\"wildcard_percent\":0", "\"threads\":2"), same);
        assert_ne!(key(config, "\"wildcard_recv\":true"), same);
        assert_ne!(key(config, "\"window\":4"), same);
        assert_eq!(key(config, "\"hw_tags\":\"off\""), same);
        assert_ne!(key(config, "\"hw_tags\":\"model:127\""), same);
        let nic = |slots| key(config, &format!("\"hw_tags\":\"model:{slots}\""));
        assert_ne!(nic(1), nic(127));
        let by = |way| key("\"wildcard_percent\":0", &format!("\"completions\":\"{way}\""));
        assert_eq!(by("requests"), same);
        assert_ne!(by("queue"), same);
        // The row says the window, whether it was asked for or not.
        let percent = "\"wildcard_percent\":0";
        assert_ne!(key(percent, "\"window\":4"), same);
        assert_eq!(key(percent, "\"window\":4"), key(config, "\"window\":4"));
        assert_eq!(key(percent, "\"window\":64"), same);
        assert_eq!(key(config, "\"window\":64"), same);
        assert_eq!(key(percent, "\"queue\":\"unexpected\""), same);
        assert_ne!(key("\"wildcard_percent\":0", "\"wildcard_percent\":50"), same);
        assert_ne!(key("\"device\":\"shm\"", "\"device\":\"verbs\""), same);
    }

    #[test]
    fn what_was_measured_may_stand_within_figures() {
        let more = "\"threads\":4,\"per_thread\":[{}],\"drain\":{\"queue\":\"posted\",\"order\":\
                    \"random\",\"seed\":7,\"rounds\":8},\"pace\":{\"planned_per_s\":5.5,\"held\":true}";
        let text = LAT.replace("\"iters\":9,\"samples\"", &format!("{more},\"samples\""));
        let text = text.replace("\"sizes\":[8]", "\"sizes\":[8],\"threads\":[1,4]");
        let parameters = &run(&text).entries[0].key.parameters;
        let parameters: Vec<_> = parameters.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let want =
            ["order=random", "planned_per_s=5.5", "posted_depth=16", "queue=posted", "threads=4"];
        assert_eq!(parameters, want);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let deep = "[".repeat(100_000);
        for (text, why) in [
            ("", "no result"),
            ("[]", "no result"),
            ("{", "no JSON"),
            ("\u{feff}{}", "no JSON"),
            (&deep, "no JSON"),
            ("7", "7 where"),
            ("[[]]", "an array where"),
            ("{}", "missing field `schema`"),
            (&LAT.replace("tagperf", "other"), "`tool` is another"),
            (&LAT.replace("\"schema\":1", "\"schema\":2"), "schema 2"),
            (&LAT.replace("\"config\"", "\"confog\""), "config"),
            (&LAT.replace("2.5", "-2.5"), "p50 of lat 8 B, posted_depth 16"),
            (&LAT.replace("2.5", "\"2.5\""), "result of `lat`: invalid type: string \"2.5\""),
            (&LAT.replace("2.5", "1e999"), "no JSON"),
            (&LAT.replace("[2.0,3.0]", "[2.0,0]"), "blocks"),
            (&LAT.replace("[2.0,3.0]", "{}"), "expected a sequence"),
            (&LAT.replace("\"size\":8,", ""), "size"),
            (&LAT.replace("\"test\":\"lat\"", "\"test\":5"), "integer `5`"),
            (&LAT.replace("[{\"size\"", "[5,{\"size\""), "integer `5`, expected struct Row"),
        ] {
            let error = SavedRun::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        assert!(SavedRun::parse(&[0xff, 0xfe, b'{']).is_err());
    }
}
