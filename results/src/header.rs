//! What every document and every line of JSON begins with.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Version of the schema. It grows when a key changes its meaning or goes, not for a new key.
pub(crate) const SCHEMA: u32 = 1;
pub(crate) const TOOL: &str = "tagperf";

/// Who wrote it, and what it is about.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    pub(crate) schema: u32,
    pub(crate) tool: Cow<'static, str>,
    #[serde(default)]
    pub(crate) version: Cow<'static, str>,
    /// What a line of a stream tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<Cow<'static, str>>,
    /// The command; `drain` for `depth --drain`.
    pub(crate) test: Cow<'static, str>,
}

impl Header {
    /// The header of a document about `test`.
    pub fn new(test: impl Into<Cow<'static, str>>) -> Self {
        let version = env!("CARGO_PKG_VERSION").into();
        Self { schema: SCHEMA, tool: TOOL.into(), version, record: None, test: test.into() }
    }
}
