//! The layout of tags: the kind and the number of a message, beside the bits that a device uses.

use tagmatch::{Tag, TagLayout, TagMask};

use crate::spec::{DeviceArg, HwTagsArg, WorkerNeeds};

/// The kind of a message is above these bits, its number in them.
const KIND_SHIFT: u32 = 56;

/// The layout for a NIC's list, which compares tags alone: the source is in the tag. There is one
/// peer, number 0. The kind is above the source's bits, the number below them; both leave these
/// bits alone.
const LAYOUT: TagLayout = layout(8, 6, 50);
/// The layout over UCX, which numbers senders in the tag: 2047 peers, and numbers as large as any
/// test has.
const UCX: TagLayout = layout(3, 11, 50);
/// The layout over UCX with immediate data, which takes 33 bits: 255 peers, and fillers to the
/// deepest depth.
const UCX_IMMEDIATE: TagLayout = layout(3, 8, 20);

/// The layout over libfabric, which numbers senders in the tag, or has 47 bits for what else there
/// is (`cxi`).
const OFI: TagLayout = layout(3, 16, 41);

const fn layout(context: u32, source: u32, tag: u32) -> TagLayout {
    match TagLayout::new(context, source, tag) {
        Ok(layout) => layout,
        Err(_) => panic!("64 bits"),
    }
}

/// How tags are made for a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct TagScheme {
    pub(super) layout: TagLayout,
    /// Whether kinds stand elsewhere than above [`KIND_SHIFT`].
    moves_kinds: bool,
    /// Whether receives name their source in the tag, and not beside it.
    pub(super) source_in_tag: bool,
}

impl TagScheme {
    pub(super) fn of(device: &DeviceArg, needs: WorkerNeeds, hw_tags: HwTagsArg) -> Self {
        match device {
            DeviceArg::Ucx { .. } => {
                let layout = if needs.immediate { UCX_IMMEDIATE } else { UCX };
                TagScheme { layout, moves_kinds: true, source_in_tag: false }
            }
            DeviceArg::Ofi { .. } => {
                TagScheme { layout: OFI, moves_kinds: true, source_in_tag: false }
            }
            _ => {
                let source_in_tag = hw_tags != HwTagsArg::Off;
                TagScheme { layout: LAYOUT, moves_kinds: false, source_in_tag }
            }
        }
    }

    #[inline]
    pub(super) fn tag(&self, tag: u64) -> Tag {
        if self.moves_kinds { self.moved(tag) } else { Tag(tag) }
    }

    fn moved(&self, tag: u64) -> Tag {
        let kind = tag >> KIND_SHIFT;
        let number = tag & ((1 << KIND_SHIFT) - 1);
        debug_assert_eq!(number & !self.layout.tag_mask().0, 0, "a number that doesn't fit");
        Tag(kind << self.layout.context_mask().0.trailing_zeros() | number)
    }

    /// The mask of a receive from any source.
    #[inline]
    pub(super) fn any_source(&self) -> TagMask {
        if self.source_in_tag { TagMask(!self.layout.source_mask().0) } else { TagMask::EXACT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_stay_apart_and_leave_the_source_alone() {
        let device = |text: &str| text.parse::<DeviceArg>().unwrap();
        for (name, immediate) in
            [("shm", false), ("ucx", false), ("ucx", true), ("ofi", false), ("ofi", true)]
        {
            let needs = WorkerNeeds { immediate, ..WorkerNeeds::default() };
            let tags = TagScheme::of(&device(name), needs, HwTagsArg::Off);
            let mut all_tags = std::collections::BTreeSet::new();
            for kind in 1..8 {
                for number in [0, 1, 63, (1 << 20) - 1] {
                    let tag = tags.tag(kind << KIND_SHIFT | number);
                    assert_eq!(tag.0 & tags.layout.source_mask().0, 0, "{name}");
                    assert!(all_tags.insert(tag.0), "{name}: {kind} {number}");
                }
            }
            if name == "ucx" {
                let layout = tags.layout;
                let used = layout.context_bits() + layout.source_bits() + layout.tag_bits();
                assert!(used <= if immediate { 31 } else { 64 });
            }
        }
        // A drain's largest number.
        let tags = TagScheme::of(&device("ucx"), WorkerNeeds::default(), HwTagsArg::Auto);
        assert_eq!(tags.tag((1 << 50) - 1).0, (1 << 50) - 1);
        assert!(!tags.source_in_tag && tags.any_source() == TagMask::EXACT);
        let nic = TagScheme::of(&device("shm"), WorkerNeeds::default(), HwTagsArg::Auto);
        assert!(nic.source_in_tag && nic.any_source() != TagMask::EXACT);
    }
}
