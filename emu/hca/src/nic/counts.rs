//! What the device has done for a program, for its report.

use serde::Serialize;

/// What the device has done for one process.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Counts {
    /// Commands to the driver.
    pub commands: u64,
    /// Requests of send queues, operations on lists among them.
    pub requests: u64,
    /// Completions.
    pub completions: u64,
    /// Operations on lists of tags.
    pub list_operations: u64,
    /// Messages that the NIC has matched.
    pub matched: u64,
    /// Of these, rendezvous that the NIC has read and ended.
    pub rendezvous: u64,
    /// Bytes of matched messages.
    pub matched_bytes: u64,
    /// Messages with a tag that no entry matched.
    pub unexpected: u64,
    /// Bytes of these, headers included.
    pub unexpected_bytes: u64,
    /// Messages without a tag, ends of rendezvous among them.
    pub without_tag: u64,
    /// Matches whose data never came.
    pub flushed: u64,
    /// Completions with an error.
    pub errors: u64,
    /// Rules of the NIC that the program has broken.
    pub faults: u64,
}
