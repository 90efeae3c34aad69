//! The size of a ring, and where its parts lie.

use std::ops::RangeInclusive;

use tagmatch_device::Outgoing;

use super::slot::Slot;

/// The size of a ring: the number of slots and the number of spill bytes. Both are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: u32,
    spill_bytes: u32,
}

/// How far a ring was written or read. Both numbers count up, modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages.
    pub messages: u32,
    /// Bytes of spill, including those skipped at the end of the spill.
    pub spill_bytes: u32,
}

impl Progress {
    /// Both numbers in one word, which is read and written at once.
    pub fn pack(self) -> u64 {
        u64::from(self.messages) | u64::from(self.spill_bytes) << 32
    }

    /// The inverse of [`Progress::pack`].
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves of the word")]
    pub fn unpack(word: u64) -> Self {
        Progress { messages: word as u32, spill_bytes: (word >> 32) as u32 }
    }

    /// The progress made since `earlier`.
    pub fn since(self, earlier: Progress) -> Progress {
        Progress {
            messages: self.messages.wrapping_sub(earlier.messages),
            spill_bytes: self.spill_bytes.wrapping_sub(earlier.spill_bytes),
        }
    }
}

impl Geometry {
    /// Numbers of slots that a ring can have.
    pub const SLOTS: RangeInclusive<u32> = 8..=1 << 16;
    /// Bytes of spill that a ring can have.
    pub const SPILL_BYTES: RangeInclusive<u32> = 4096..=1 << 28;

    /// Spilled runs begin at cache lines.
    const ALIGNMENT_BYTES: u32 = 64;
    /// The slots follow the header, on a page of their own.
    pub(crate) const SLOTS_OFFSET_BYTES: usize = 4096;

    /// A geometry; `None` unless both numbers are powers of two in their ranges.
    pub fn new(slots: u32, spill_bytes: u32) -> Option<Self> {
        let fits = slots.is_power_of_two()
            && spill_bytes.is_power_of_two()
            && Self::SLOTS.contains(&slots)
            && Self::SPILL_BYTES.contains(&spill_bytes);
        fits.then_some(Geometry { slots, spill_bytes })
    }

    /// Most messages that the ring holds.
    pub fn slots(self) -> u32 {
        self.slots
    }

    /// The bytes of spill.
    pub fn spill_bytes(self) -> u32 {
        self.spill_bytes
    }

    /// The longest message that can always be sent through an empty ring. A run may have to skip
    /// the end of the spill, so only half of the spill is certain to be usable.
    pub fn message_max(self) -> u32 {
        self.spill_bytes / 2
    }

    /// Whether a worker may announce this length as its longest message. A header has to fit.
    pub fn allows_messages_of(self, length: u32) -> bool {
        length as usize >= Outgoing::HEADER_MAX && length <= self.message_max()
    }

    /// The longest fragment of a copied read, without its header.
    pub(crate) fn fragment_max(self) -> u32 {
        (self.spill_bytes / 8).min(32 << 10)
    }

    /// Where the spill begins in the memory.
    pub(crate) fn spill_offset(self) -> usize {
        Self::SLOTS_OFFSET_BYTES + self.slots as usize * size_of::<Slot>()
    }

    /// How much memory the ring takes.
    pub(crate) fn length_bytes(self) -> usize {
        // Whole pages: both parts are at least a cache line times a power of two.
        (self.spill_offset() + self.spill_bytes as usize).next_multiple_of(4096)
    }

    /// The offset in the spill of a run of `length` bytes that is written at `position`, and the
    /// position after it. `length` is at most [`Geometry::message_max`].
    #[inline]
    pub fn place(self, position: u32, length: u32) -> (u32, u32) {
        let length = length.next_multiple_of(Self::ALIGNMENT_BYTES);
        let offset = position & (self.spill_bytes - 1);
        if length <= self.spill_bytes - offset {
            (offset, position.wrapping_add(length))
        } else {
            let skipped = self.spill_bytes - offset;
            (0, position.wrapping_add(skipped).wrapping_add(length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_out_of_range_or_not_a_power_of_two_are_refused() {
        assert!(Geometry::new(256, 1 << 18).is_some());
        assert!(Geometry::new(255, 1 << 18).is_none());
        assert!(Geometry::new(256, (1 << 18) + 64).is_none());
        assert!(Geometry::new(0, 1 << 18).is_none() && Geometry::new(4, 1 << 18).is_none());
        assert!(Geometry::new(256, 0).is_none() && Geometry::new(1 << 17, 4096).is_none());
        assert!(Geometry::new(256, 1 << 31).is_none());
    }

    proptest! {
        #[test]
        fn runs_lie_inside_and_never_take_more_than_the_ring(
            slots in 3u32..=16, bytes in 12u32..=28, position: u32, part in 0u32..=1000,
        ) {
            let geometry = Geometry::new(1 << slots, 1 << bytes).unwrap();
            let length = u32::try_from(u64::from(geometry.message_max()) * u64::from(part) / 1000)
                .unwrap();
            // Positions are multiples of a line, as `place` keeps them.
            let position = position & !63;
            let (offset, after) = geometry.place(position, length);
            prop_assert!(offset + length <= geometry.spill_bytes());
            prop_assert_eq!(offset % 64, 0);
            prop_assert_eq!(after % 64, 0);
            prop_assert!(after.wrapping_sub(position) <= geometry.spill_bytes());
            prop_assert!(after.wrapping_sub(position) >= length);
        }

        #[test]
        fn progress_packs(messages: u32, spill_bytes: u32) {
            let progress = Progress { messages, spill_bytes };
            prop_assert_eq!(Progress::unpack(progress.pack()), progress);
        }
    }
}
