//! The settings of an engine.

use tagmatch_soft::TagMask;

use crate::credit::CreditConfig;
#[cfg(doc)]
use crate::wire::AppCtx;

/// Settings of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The largest payload, in bytes, that is sent at once; larger ones are read by the receiver.
    /// The receiver's announced bound holds as well.
    pub eager_max: usize,
    /// Sends that may wait for their FIN at once, at most [`AppCtx::OPERATIONS_MAX`]; further ones
    /// queue.
    pub operations_max: u32,
    /// Bounds of unexpected memory.
    pub credit: CreditConfig,
    /// Bytes from which a receive is worth the NIC's list, where there is one.
    pub nic_threshold: u64,
    /// The bits of a tag that name its source; none if tags don't.
    pub source_bits: TagMask,
    /// Seed of the hashes. It must come from outside and be secret: a peer that knew it could
    /// choose tags that make matching slow.
    pub seed: u64,
}
