//! Completions, with the fields of an extended completion queue's entries.
//!
//! The numbers are those of `infiniband/verbs.h`, so that an emulator of verbs can pass them on
//! unchanged.

use std::hash::{Hash, Hasher};
use std::ops::BitOr;

use crate::Handle;

/// A queue pair, as the host numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePair(pub u32);

/// `enum ibv_wc_opcode`, as far as a tag-matching queue reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WcOpcode {
    /// `IBV_WC_TM_ADD`.
    TmAdd = 130,
    /// `IBV_WC_TM_DEL`.
    TmDel = 131,
    /// `IBV_WC_TM_SYNC`.
    TmSync = 132,
    /// `IBV_WC_TM_RECV`: a match, or an unexpected message. (`tag_matching.md` says `IBV_WC_RECV`
    /// for an unexpected message; mlx5 and the tests of rdma-core use this opcode.)
    TmRecv = 133,
    /// `IBV_WC_TM_NO_TAG`: a message without a tag, or a FIN.
    TmNoTag = 134,
}

/// `enum ibv_wc_status`, as far as the model reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WcStatus {
    /// `IBV_WC_SUCCESS`.
    Success = 0,
    /// `IBV_WC_WR_FLUSH_ERR`: the data of a match will never arrive, since its queue pair is in
    /// error.
    ///
    /// Hardware reports nothing for such an entry. The model gives one completion for each, so that
    /// its slot can be used again.
    FlushError = 5,
    /// `IBV_WC_GENERAL_ERR`: the entry was matched, but an unsignalled delete had already removed
    /// it from the driver's table, as in mlx5.
    GeneralError = 21,
    /// `IBV_WC_TM_ERR`: the delete came too late.
    TmError = 22,
    /// `IBV_WC_TM_RNDV_INCOMPLETE`: the rendezvous is longer than the buffer, which holds its
    /// headers.
    RendezvousIncomplete = 23,
}

/// `enum ibv_wc_flags`, as far as the model sets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WcFlags(pub u32);

impl WcFlags {
    /// No flag.
    pub const NONE: WcFlags = WcFlags(0);
    /// `IBV_WC_TM_SYNC_REQ`: a hint that the counts differ. It may be missing, and it may be set
    /// without need.
    pub const SYNC_REQUEST: WcFlags = WcFlags(16);
    /// `IBV_WC_TM_MATCH`: an entry was matched; tag and `app_ctx` are valid.
    pub const MATCH: WcFlags = WcFlags(32);
    /// `IBV_WC_TM_DATA_VALID`: the data is in the entry's buffer; the length is valid.
    pub const DATA_VALID: WcFlags = WcFlags(64);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: WcFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for WcFlags {
    type Output = WcFlags;

    fn bitor(self, other: WcFlags) -> WcFlags {
        WcFlags(self.0 | other.0)
    }
}

/// `struct ibv_wc_tm_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TmInfo {
    /// The message's tag.
    pub tag: u64,
    /// The message's `app_ctx` (`priv`).
    pub app_ctx: u32,
}

/// One entry of the completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number of the operation or of the ordinary buffer, or the `recv_wr_id` of the matched
    /// entry.
    pub wr_id: u64,
    /// What has completed.
    pub opcode: WcOpcode,
    /// Whether it succeeded.
    pub status: WcStatus,
    /// Which other fields are valid.
    pub flags: WcFlags,
    /// Valid with [`WcFlags::MATCH`], zero otherwise: the second completion of a match does not
    /// repeat it.
    pub tm_info: TmInfo,
    /// Bytes of payload, with [`WcFlags::DATA_VALID`]; bytes of the whole message in an ordinary
    /// buffer.
    pub length: u64,
    /// Immediate data, on the completion that carries the length.
    pub immediate: Option<u32>,
    /// The queue pair that the message arrived on; none for operations.
    pub queue_pair: Option<QueuePair>,
    /// The entry that was added, deleted or matched. Verbs has no such field: drivers find the
    /// entry in tables of their own.
    pub handle: Option<Handle>,
}

impl Completion {
    /// A success that is about no message.
    pub(crate) fn new(wr_id: u64, opcode: WcOpcode) -> Self {
        Completion {
            wr_id,
            opcode,
            status: WcStatus::Success,
            flags: WcFlags::NONE,
            tm_info: TmInfo::default(),
            length: 0,
            immediate: None,
            queue_pair: None,
            handle: None,
        }
    }

    /// Whether this is a message that matched no entry, and that the NIC has counted.
    pub fn is_unexpected(&self) -> bool {
        self.opcode == WcOpcode::TmRecv && self.handle.is_none()
    }

    /// Whether this is the last completion of a matched entry.
    pub fn ends_match(&self) -> bool {
        self.opcode == WcOpcode::TmRecv
            && self.handle.is_some()
            && (self.flags.contains(WcFlags::DATA_VALID) || self.status == WcStatus::FlushError)
    }

    /// See [`Nic::hash_state`](crate::Nic::hash_state).
    pub(crate) fn hash_state(&self, state: &mut impl Hasher) {
        (self.opcode as u32, self.status as u32, self.flags.0, self.length).hash(state);
        (self.tm_info.tag, self.tm_info.app_ctx, self.immediate, self.queue_pair).hash(state);
        let entry = self.handle.map(|handle| (handle.slot(), self.wr_id));
        entry.hash(state);
    }

    /// The completion for data that will never arrive.
    pub(crate) fn flushed(self) -> Completion {
        Completion {
            status: WcStatus::FlushError,
            flags: WcFlags::NONE,
            tm_info: TmInfo::default(),
            length: 0,
            immediate: None,
            ..self
        }
    }
}
