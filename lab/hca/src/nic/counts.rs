//! What the device has done for a program, for its report.

use serde::Serialize;

/// What the device has done for one process.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Commands to the driver.
    pub(crate) commands: u64,
    /// The most bytes that were locked at a time: queues and registered memory.
    pub(crate) locked_max: u64,
    /// Requests of send queues, operations on lists among them.
    pub(crate) requests: u64,
    /// Completions.
    pub(crate) completions: u64,
    /// Operations on lists of tags.
    pub(crate) list_operations: u64,
    /// Messages that the NIC has matched.
    pub(crate) matched: u64,
    /// Of these, rendezvous that the NIC has read and ended.
    pub(crate) rendezvous: u64,
    /// Bytes of matched messages.
    pub(crate) matched_bytes: u64,
    /// Messages with a tag that no entry matched.
    pub(crate) unexpected: u64,
    /// Bytes of these, headers included.
    pub(crate) unexpected_bytes: u64,
    /// Unexpected messages that an entry would have matched if it had not missed its phase.
    pub(crate) phase_missed: u64,
    /// Messages without a tag, ends of rendezvous among them.
    pub(crate) without_tag: u64,
    /// Matches whose data never came.
    pub(crate) flushed: u64,
    /// Completions with an error.
    pub(crate) errors: u64,
    /// Rules of the NIC that the program has broken.
    pub(crate) faults: u64,
    /// Faults on request that this process met, by their names: see `fault/forms.rs`.
    #[serde(flatten)]
    pub(crate) requested: FaultCounts,
}

/// How often each fault on request has met a process.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub(crate) struct FaultCounts {
    #[serde(rename = "fault_outage")]
    pub(crate) outage: u64,
    #[serde(rename = "fault_down")]
    pub(crate) down: u64,
    #[serde(rename = "fault_event")]
    pub(crate) event: u64,
    #[serde(rename = "fault_pkey")]
    pub(crate) pkey: u64,
    #[serde(rename = "fault_gid")]
    pub(crate) gid: u64,
    /// Registrations that have failed.
    #[serde(rename = "fault_registrations")]
    pub(crate) registrations: u64,
    /// Completions that have found their queue full.
    #[serde(rename = "fault_overrun")]
    pub(crate) overrun: u64,
    /// Queue pairs that have died inside a message.
    #[serde(rename = "fault_match")]
    pub(crate) matching: u64,
    /// Open devices that were lost.
    #[serde(rename = "fault_fatal")]
    pub(crate) fatal: u64,
}
