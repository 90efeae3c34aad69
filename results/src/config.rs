//! The configuration of a test.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Environment;

/// The options of a test and where it ran, as JSON has them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Sizes that were to be measured.
    pub sizes: Vec<u64>,
    /// Measurements of a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iters: Option<u64>,
    /// The time of a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Measurements before a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<u64>,
    /// Messages before an answer, if the user said how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How the operations of a window end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<String>,
    /// Whether measured receives take any source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wildcard_recv: Option<bool>,
    /// The other side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_side: Option<String>,
    /// How large messages are transferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large_messages: Option<String>,
    /// The protocol of the launcher that started the ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher: Option<String>,
    /// Whether collective operations go by messages although ranks may share memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_messages: Option<bool>,
    /// The machine.
    #[serde(flatten)]
    pub environment: Environment,
    /// Numbers of threads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<u64>,
    /// Peers that are connected and stay silent.
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_peers: u64,
    /// Whether every message is sent from the same buffer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub single_buffer: bool,
    /// Whether the process sends to itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub oneself: bool,
    /// Where receives are matched, as the command line has it.
    pub hw_tags: String,
    /// Options of a later version.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Config {
    /// The options that tell results apart: not how long, where and on what machine. Those at their
    /// defaults are absent.
    pub(crate) fn parameters(&self) -> Self {
        Self {
            window: self.window,
            completions: self.completions.clone().filter(|way| way != "requests"),
            wildcard_recv: self.wildcard_recv,
            by_messages: self.by_messages,
            idle_peers: self.idle_peers,
            single_buffer: self.single_buffer,
            oneself: self.oneself,
            hw_tags: Some(self.hw_tags.clone()).filter(|which| which != "off").unwrap_or_default(),
            others: self.others.clone(),
            ..Self::default()
        }
    }
}
