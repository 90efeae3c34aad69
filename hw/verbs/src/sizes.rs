//! The lengths of a device's queues.

use tagmatch_device::DeviceError;
use tagmatch_rdma_core_sys as sys;

use super::config::VerbsConfig;
use super::memory::CHUNK;
use super::{datagrams, list};

/// Receive buffers beyond those that credits need: for leave signals. At least 33, since a
/// tag-matching queue of a ConnectX doesn't receive with fewer (UCX, and rdma-core's own test, post
/// as many).
pub(super) const SPARE: usize = 33;
/// Most rendezvous requests under way over all peers, where a NIC matches tags.
pub(super) const FINS_MAX: u32 = 960;
/// Bytes in the longest FIN.
pub(super) const FIN_BYTES: usize = 64;
/// Receive buffers that an idle peer may need: for a message, an announcement and its ready signal.
pub(super) const PER_PEER: u32 = 3;
/// Most work requests under way over all peers. The completion queue has room for as many.
const SENDS_MAX: u32 = 2048;

/// The lengths of a device's queues.
pub(super) struct Sizes {
    pub(super) peers_max: u32,
    pub(super) receives: u32,
    pub(super) sends: u32,
    pub(super) completions: u32,
}

impl Sizes {
    /// The lengths that the settings ask for, within the device's limits.
    pub(super) fn fit(
        config: &VerbsConfig,
        attr: &sys::ibv_device_attr,
        list: Option<&sys::ibv_tm_cap>,
    ) -> Result<Self, DeviceError> {
        let count = |limit: i32| u32::try_from(limit).unwrap_or(0);
        let spare = u32::try_from(SPARE).unwrap_or(u32::MAX);
        let queue = count(attr.max_srq_wr);
        let other_completions =
            datagrams::COMPLETIONS + FINS_MAX + list.map_or(0, list::completions);
        let completions = count(attr.max_cqe).saturating_sub(other_completions);
        let sends = SENDS_MAX.min(completions / 2);
        let receives_max = queue.min(completions - sends) / CHUNK * CHUNK;
        let shared = config.receive_buffers.saturating_add(spare);
        let peers_max = config
            .peers_max
            .min(receives_max.saturating_sub(shared) / PER_PEER)
            .min(count(attr.max_qp).saturating_sub(1));
        if peers_max == 0 || sends == 0 {
            return Err(DeviceError::BadSetting {
                setting: "receive_buffers",
                value: config.receive_buffers.into(),
                range: "fewer than the device's queues can hold (max_srq_wr and max_cqe)",
            });
        }
        let receives = (peers_max * PER_PEER + shared).next_multiple_of(CHUNK);
        Ok(Sizes { peers_max, receives, sends, completions: receives + sends + other_completions })
    }
}
