//! Numbers that stand in the trace itself: operations by kind, wildcards, distinct envelopes.

use std::collections::HashSet;

use serde::Serialize;

use crate::trace::{Op, Pattern, Trace};

/// Operations by kind, in the order of the format's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Operations {
    pub(super) msg: u64,
    pub(super) recv: u64,
    pub(super) cancel: u64,
    pub(super) probe: u64,
    pub(super) mprobe: u64,
    pub(super) mrecv: u64,
    pub(super) mcancel: u64,
}

impl Operations {
    pub(super) fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }

    pub(super) fn by_name(&self) -> [(&'static str, u64); 7] {
        [
            ("msg", self.msg),
            ("recv", self.recv),
            ("cancel", self.cancel),
            ("probe", self.probe),
            ("mprobe", self.mprobe),
            ("mrecv", self.mrecv),
            ("mcancel", self.mcancel),
        ]
    }
}

/// Receives and probes by what they leave open: a mask class each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Classes {
    pub(super) exact: u64,
    pub(super) any_source: u64,
    pub(super) any_tag: u64,
    pub(super) any_both: u64,
}

impl Classes {
    fn add(&mut self, pattern: Pattern) {
        *match (pattern.src, pattern.tag) {
            (Some(_), Some(_)) => &mut self.exact,
            (None, Some(_)) => &mut self.any_source,
            (Some(_), None) => &mut self.any_tag,
            (None, None) => &mut self.any_both,
        } += 1;
    }

    pub(super) fn by_name(&self) -> [(&'static str, u64); 4] {
        [
            ("exact", self.exact),
            ("any source", self.any_source),
            ("any tag", self.any_tag),
            ("any of both", self.any_both),
        ]
    }

    pub(super) fn total(&self) -> u64 {
        self.exact + self.wildcards()
    }

    pub(super) fn wildcards(&self) -> u64 {
        self.any_source + self.any_tag + self.any_both
    }

    pub(super) fn in_use(&self) -> usize {
        self.by_name().iter().filter(|(_, count)| *count > 0).count()
    }
}

/// What is counted in a trace without running it.
pub(super) struct Census {
    pub(super) operations: Operations,
    pub(super) classes: Classes,
    /// Distinct (context, source, tag) of messages.
    pub(super) envelopes: usize,
}

impl Census {
    pub(super) fn new(trace: &Trace) -> Self {
        let (mut operations, mut classes) = (Operations::default(), Classes::default());
        let mut envelopes = HashSet::new();
        for op in &trace.ops {
            let kind = match *op {
                Op::Msg { envelope, .. } => {
                    envelopes.insert(envelope);
                    &mut operations.msg
                }
                Op::Recv { pattern, .. } => {
                    classes.add(pattern);
                    &mut operations.recv
                }
                Op::Probe { pattern } => {
                    classes.add(pattern);
                    &mut operations.probe
                }
                Op::Mprobe { pattern, .. } => {
                    classes.add(pattern);
                    &mut operations.mprobe
                }
                Op::Cancel { .. } => &mut operations.cancel,
                Op::Mrecv { .. } => &mut operations.mrecv,
                Op::Mcancel { .. } => &mut operations.mcancel,
            };
            *kind += 1;
        }
        Self { operations, classes, envelopes: envelopes.len() }
    }
}
