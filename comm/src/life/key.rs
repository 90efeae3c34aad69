//! Names of communicators that are never used twice.

use crate::context_id::ContextId;
use crate::group::Group;

/// Tells a communicator from all others that its processes have had or will have.
///
/// A context id is used again, so it is not enough. The epoch is computed from the origin of the
/// communicator: its parent's epoch, the number of the call, its members' ranks in the parent. So
/// all members compute the same epoch without a message, even members in other jobs, which number
/// processes differently. No process has two communicators with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) context: u32,
    pub(crate) epoch: u64,
}

impl Key {
    pub(crate) fn new(id: ContextId, epoch: u64) -> Self {
        Key { context: id.bits(), epoch }
    }
}

/// The epoch of a communicator. `parts` are values that no other communicator has in common with
/// it. `whole` is a group that all its members know: their ranks in it are part of the epoch.
pub(crate) fn epoch(parts: &[u64], group: &Group, whole: &Group) -> u64 {
    let all = group.size();
    let parts = parts.iter().copied().chain([all.into()]);
    if group == whole {
        // The most frequent case. Every member has its own rank in the whole group, which adds
        // nothing.
        return digest(parts);
    }
    let ranks: Vec<u32> = (0..all).collect();
    let ranks = group.translate(&ranks, whole);
    digest(parts.chain(ranks.into_iter().map(|rank| rank.map_or(u64::MAX, u64::from))))
}

/// A hash of a sequence of values.
pub(crate) fn digest(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, |digest, part| mix(digest ^ mix(part)))
}

/// SplitMix64's output function: each bit of the value changes about half of the bits of the
/// result.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
