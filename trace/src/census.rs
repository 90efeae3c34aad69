//! Numbers that need no run: operations by kind, wildcards, distinct envelopes.

use std::collections::HashSet;

use serde::Serialize;
use tagmatch_soft::{Pattern, TagLayout, TagMask};

use crate::format::TraceOp;
use crate::trace::Trace;

/// How many operations of each kind there are, in the order of the format's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the names are those of the format")]
pub struct OperationCounts {
    pub msg: u64,
    pub recv: u64,
    pub cancel: u64,
    pub probe: u64,
    pub mprobe: u64,
    pub mrecv: u64,
    pub mcancel: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub lost: u64,
}

/// `tagtrace 1` knows no lost messages.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl OperationCounts {
    /// All operations.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }

    /// Each kind's name and count.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 8] {
        [
            ("msg", self.msg),
            ("recv", self.recv),
            ("cancel", self.cancel),
            ("probe", self.probe),
            ("mprobe", self.mprobe),
            ("mrecv", self.mrecv),
            ("mcancel", self.mcancel),
            ("lost", self.lost),
        ]
    }
}

/// How many receives and probes have which wildcards. In `tagtrace 1` each combination is
/// a mask class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PatternCounts {
    /// No wildcard.
    pub exact: u64,
    /// Any source.
    pub any_source: u64,
    /// Any tag.
    pub any_tag: u64,
    /// Any source and any tag.
    pub any_both: u64,
}

impl PatternCounts {
    fn add(&mut self, pattern: Pattern, fields: Fields) {
        let is_any = |field: TagMask| pattern.mask().0 & field.0 == 0;
        let (any_source, any_tag) = match fields {
            Fields::Mpi => {
                (is_any(TagLayout::MPI.source_mask()), is_any(TagLayout::MPI.tag_mask()))
            }
            Fields::Unknown { widest, names_sources } => {
                (names_sources && pattern.source().is_none(), pattern.mask() != widest)
            }
        };
        *match (any_source, any_tag) {
            (false, false) => &mut self.exact,
            (true, false) => &mut self.any_source,
            (false, true) => &mut self.any_tag,
            (true, true) => &mut self.any_both,
        } += 1;
    }

    /// Each combination in words, and its count.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 4] {
        [
            ("exact", self.exact),
            ("any source", self.any_source),
            ("any tag", self.any_tag),
            ("any of both", self.any_both),
        ]
    }

    /// All receives and probes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.exact + self.wildcards()
    }

    /// Receives and probes with a wildcard.
    #[must_use]
    pub fn wildcards(&self) -> u64 {
        self.any_source + self.any_tag + self.any_both
    }
}

/// Where a pattern has its source and its tag.
#[derive(Clone, Copy)]
enum Fields {
    /// In the tag, as `tagtrace 1` has them.
    Mpi,
    /// Nobody knows. A tag counts as open if its mask leaves more open than all masks of the trace
    /// together do: some libraries never compare some bits. A source counts as open if a pattern
    /// names none, and another one does.
    Unknown { widest: TagMask, names_sources: bool },
}

impl Fields {
    fn of(trace: &Trace) -> Self {
        if trace.recorded.is_none() {
            return Fields::Mpi;
        }
        let patterns = || trace.ops.iter().filter_map(pattern_of);
        let widest = TagMask(patterns().fold(0, |all, pattern| all | pattern.mask().0));
        let names_sources = patterns().any(|pattern| pattern.source().is_some());
        Fields::Unknown { widest, names_sources }
    }
}

fn pattern_of(op: &TraceOp) -> Option<Pattern> {
    match *op {
        TraceOp::Recv { pattern, .. }
        | TraceOp::Probe { pattern }
        | TraceOp::Mprobe { pattern, .. } => Some(pattern),
        _ => None,
    }
}

/// What can be counted in a trace without running it.
#[derive(Clone, Copy, Debug)]
pub struct Census {
    /// Operations by kind.
    pub operations: OperationCounts,
    /// Receives and probes by their wildcards.
    pub patterns: PatternCounts,
    /// How many mask classes occur: masks, each with a source and without.
    pub mask_classes: usize,
    /// Distinct (context id, source, tag) of messages.
    pub envelopes: usize,
}

impl Census {
    /// Counts the operations of a trace.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let mut operations = OperationCounts::default();
        let mut patterns = PatternCounts::default();
        let mut envelopes = HashSet::new();
        let mut classes = HashSet::new();
        let fields = Fields::of(trace);
        for op in &trace.ops {
            if let Some(pattern) = pattern_of(op) {
                patterns.add(pattern, fields);
                classes.insert((pattern.mask(), pattern.source().is_some()));
            }
            let count = match *op {
                TraceOp::Msg { tag, source, .. } => {
                    envelopes.insert((tag, source));
                    &mut operations.msg
                }
                TraceOp::Recv { .. } => &mut operations.recv,
                TraceOp::Probe { .. } => &mut operations.probe,
                TraceOp::Mprobe { .. } => &mut operations.mprobe,
                TraceOp::Cancel { .. } => &mut operations.cancel,
                TraceOp::Mrecv { .. } => &mut operations.mrecv,
                TraceOp::Mcancel { .. } => &mut operations.mcancel,
                TraceOp::Lost { .. } => &mut operations.lost,
            };
            *count += 1;
        }
        let mask_classes = classes.len();
        let envelopes = envelopes.len();
        Self { operations, patterns, mask_classes, envelopes }
    }
}
