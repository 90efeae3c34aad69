//! Results of a run, read from JSON, for comparisons and charts.
//!
//! The file was written by `--json` (one test, or the array of `tagperf` alone) or has the lines of
//! `--json-stream`. Several such documents one after the other are one run, whose blocks are
//! merged. The file is not trusted: every figure is checked, and an error says where it is.

use std::collections::BTreeMap;
use std::io::Read;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::show::{one_line, show_size};
use crate::window::default_window;
use crate::{PERCENTILES, SCHEMA};

/// All tests together take 100 kB; a stream with a day's progress still fits.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Bounds the work of a comparison.
const ENTRIES_MAX: usize = 10_000;
const BLOCKS_MAX: usize = 1024;

/// Fields of a row that are figures, not parameters.
const ROW_FIGURES: [&[&str]; 4] = [
    &["iters", "samples", "latency_ns", "bandwidth_bytes_per_s", "messages_per_s", "blocks"],
    &["histogram", "matching", "validated", "per_thread", "checked", "interrupted"],
    &["rank_means_ns", "recovery_ns", "distance_ns"],
    // The depths say which queue is deep. A drain's queue is in `drain`, and is a parameter.
    &["queue"],
];
/// Fields of a row that are objects of figures, with the parameters in them.
const WITHIN: [(&str, &[&str]); 2] = [("drain", &["queue", "order"]), ("pace", &["planned_per_s"])];
/// Fields of a configuration that are not parameters: how long, where and on what machine.
const CONFIG_FACTS: [&[&str]; 4] = [
    &["test", "size", "sizes", "threads", "iters", "duration_ms", "warmup"],
    &["other_side", "launcher", "large_messages"],
    &["cpu", "cores", "kernel", "clock_ns", "clock_source", "governor", "pin", "warnings"],
    &["distance_ns", "distance"],
];
/// Fields that every result's line of a stream has, and that are no further parameters.
const RECORD_FACTS: [&str; 7] = ["schema", "tool", "version", "record", "test", "device", "size"];

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// Latencies in ns, one for each of [`PERCENTILES`].
    pub(crate) percentiles_ns: Option<[f64; 6]>,
    pub(crate) samples: u64,
    pub(crate) bandwidth_bytes_per_s: Option<f64>,
    pub(crate) messages_per_s: Option<f64>,
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
    /// The configuration of the test that is being read.
    config: Map<String, Value>,
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
        for value in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
            run.add(&value.map_err(|error| format!("no JSON: {error}"))?)?;
        }
        if run.entries.is_empty() {
            return Err("no result in it".into());
        }
        Ok(run)
    }

    /// Adds a document, an array of them, or a line of a stream.
    pub fn add(&mut self, value: &Value) -> Result<(), String> {
        let documents = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        documents.iter().try_for_each(|document| match document {
            Value::Object(document) => self.document(document),
            other => Err(format!("{} where a test's document should be", short(other))),
        })
    }

    fn document(&mut self, document: &Map<String, Value>) -> Result<(), String> {
        if document.get("tool").and_then(Value::as_str) != Some("tagperf") {
            return Err("not written by tagperf: `tool` is missing or another".into());
        }
        if document.get("schema").and_then(Value::as_u64) != Some(SCHEMA.into()) {
            let found = document.get("schema").map_or("none".into(), short);
            return Err(format!("schema {found}, this version reads {SCHEMA}"));
        }
        let test = text(document, "test")?;
        match document.get("record").map(|record| record.as_str().unwrap_or("")) {
            None => {
                let (Some(Value::Object(config)), Some(Value::Array(rows))) =
                    (document.get("config"), document.get("results"))
                else {
                    return Err(format!("the document of `{test}` has no config or no results"));
                };
                self.configure(config);
                let device = text(document, "device")?;
                rows.iter().try_for_each(|row| match row {
                    Value::Object(row) => self.row(&test, &device, row),
                    other => Err(format!("{} where a result should be", short(other))),
                })
            }
            Some("start") => match document.get("config") {
                Some(Value::Object(config)) => {
                    self.configure(config);
                    Ok(())
                }
                _ => Err(format!("the start of `{test}` has no config")),
            },
            Some("result") => self.row(&test, &text(document, "device")?, document),
            // Progress, the end, and records of later versions.
            Some(_) => Ok(()),
        }
    }

    fn configure(&mut self, config: &Map<String, Value>) {
        let fact = |name: &str| config.get(name).and_then(Value::as_str).map(one_line);
        self.cpu = self.cpu.take().or_else(|| fact("cpu"));
        self.kernel = self.kernel.take().or_else(|| fact("kernel"));
        self.config.clone_from(config);
    }

    fn row(&mut self, test: &str, device: &str, row: &Map<String, Value>) -> Result<(), String> {
        let size = row.get("size").and_then(Value::as_u64);
        let size = size.ok_or_else(|| format!("a result of `{test}` has no size"))?;
        let key = self.key(test, device, size, row);
        let wrong = |what: &str| format!("{what} of {} is no figure", key.label());
        let figure = |from: &Map<String, Value>, name: &str| match from.get(name) {
            None => Ok(None),
            Some(value) => positive(value).map(Some).ok_or_else(|| wrong(name)),
        };
        let percentiles_ns = match row.get("latency_ns") {
            None => None,
            Some(Value::Object(latency)) => {
                let mut percentiles_ns = [0.0; 6];
                for (slot, rung) in percentiles_ns.iter_mut().zip(PERCENTILES) {
                    *slot = figure(latency, rung.json)?.ok_or_else(|| wrong(rung.json))?;
                }
                Some(percentiles_ns)
            }
            Some(_) => return Err(wrong("latency_ns")),
        };
        let messages_per_s = figure(row, "messages_per_s")?;
        let (metric, value) = match (percentiles_ns, messages_per_s) {
            (Some(percentiles_ns), _) => (Metric::LatencyNs, percentiles_ns[1]),
            (None, Some(rate)) => (Metric::MessagesPerS, rate),
            // A measurement that was stopped before it had a figure.
            (None, None) => return Ok(()),
        };
        let blocks = match row.get("blocks").and_then(|blocks| blocks.get(metric.name())) {
            None => Vec::new(),
            Some(Value::Array(blocks)) if blocks.len() <= BLOCKS_MAX => {
                let blocks = blocks.iter().map(|block| positive(block).filter(|b| *b > 0.0));
                blocks.collect::<Option<Vec<_>>>().ok_or_else(|| wrong("blocks"))?
            }
            Some(_) => return Err(wrong("blocks")),
        };
        let bandwidth_bytes_per_s = figure(row, "bandwidth_bytes_per_s")?;
        let samples = row.get("samples").and_then(Value::as_u64).unwrap_or(0);
        if self.entries.len() >= ENTRIES_MAX {
            return Err(format!("more than {ENTRIES_MAX} results"));
        }
        self.entries.push(SavedResult {
            key,
            metric,
            value,
            blocks,
            percentiles_ns,
            samples,
            bandwidth_bytes_per_s,
            messages_per_s,
            pooled: 1,
        });
        Ok(())
    }

    fn key(&self, test: &str, device: &str, size: u64, row: &Map<String, Value>) -> Key {
        let is_in = |lists: &[&[&str]], name: &str| lists.iter().any(|list| list.contains(&name));
        let of_config = self.config.iter().filter(|(name, _)| !is_in(&CONFIG_FACTS, name));
        let of_row = row.iter().filter(|(name, _)| {
            let is_object = WITHIN.iter().any(|(object, _)| object == name);
            !is_object && !is_in(&ROW_FIGURES, name) && !RECORD_FACTS.contains(&name.as_str())
        });
        let within = WITHIN.iter().flat_map(|(object, names)| {
            let object = row.get(*object).and_then(Value::as_object);
            let named = move |name: &&str| object.and_then(|object| object.get_key_value(*name));
            names.iter().filter_map(named)
        });
        let parameters = of_config
            .chain(of_row)
            .chain(within)
            .filter(|(name, value)| !is_default(name, value, size))
            .map(|(name, value)| (one_line(name), short(value)))
            .collect();
        Key { test: test.to_owned(), device: device.to_owned(), size, parameters }
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

fn is_default(name: &str, value: &Value, size: u64) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => {
            let default = match name {
                "threads" => 1,
                "window" => default_window(size),
                _ => 0,
            };
            number.as_u64().is_some_and(|number| number == 0 || number == default)
        }
        Value::String(text) => {
            text.is_empty()
                || matches!((name, &**text), ("hw_tags", "off") | ("completions", "requests"))
        }
        _ => false,
    }
}

fn positive(value: &Value) -> Option<f64> {
    value.as_f64().filter(|figure| figure.is_finite() && *figure >= 0.0)
}

fn text(document: &Map<String, Value>, name: &str) -> Result<String, String> {
    let text = document.get(name).and_then(Value::as_str);
    text.map(short_text).ok_or_else(|| format!("`{name}` is missing"))
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
        assert_eq!((&entry.blocks[..], entry.samples), (&[2.0, 3.0][..], 9));
        assert_eq!(entry.percentiles_ns.unwrap(), [1.0, 2.5, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn all_tests_and_a_stream_have_the_same_results() {
        let want = run(LAT).entries;
        assert_eq!(run(&format!("[{LAT}]")).entries, want);
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
            ("{}", "tool"),
            (&LAT.replace("\"schema\":1", "\"schema\":2"), "schema 2"),
            (&LAT.replace("\"config\"", "\"confog\""), "config"),
            (&LAT.replace("2.5", "-2.5"), "p50 of lat 8 B, posted_depth 16"),
            (&LAT.replace("2.5", "\"2.5\""), "p50"),
            (&LAT.replace("2.5", "1e999"), "no JSON"),
            (&LAT.replace("[2.0,3.0]", "[2.0,0]"), "blocks"),
            (&LAT.replace("[2.0,3.0]", "{}"), "blocks"),
            (&LAT.replace("\"size\":8,", ""), "size"),
            (&LAT.replace("\"test\":\"lat\"", "\"test\":5"), "`test`"),
            (&LAT.replace("[{\"size\"", "[5,{\"size\""), "5 where a result"),
        ] {
            let error = SavedRun::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        assert!(SavedRun::parse(&[0xff, 0xfe, b'{']).is_err());
    }
}
