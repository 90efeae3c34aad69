//! A slot of a ring, and the check of its first word.

use crate::sync::{AtomicU64, Body};

pub(crate) use crate::sync::INLINE_BYTES;

/// [`INLINE_BYTES`], for arithmetic on lengths.
pub(crate) const BODY_BYTES: u32 = 56;

/// Bytes of immediate data, at the end of the last slot.
pub(crate) const IMMEDIATE_BYTES: usize = 4;

/// Bytes of a copy of one or two slots' bodies, and of the bytes behind them that are copied along.
pub(crate) const COPY_BYTES: usize = 128;

/// A slot: the cache line in which a message begins, or the second one of a message of two.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// High half: [`Meta`], which says in which lap the message was written. Low half: how far the
    /// writer has read the ring of the other direction.
    ///
    /// The writer stores it last, with `Release`, and the reader loads it with `Acquire`: a reader
    /// that sees the message's word sees the body, the bytes behind it, and that there is nothing
    /// in the next slot which it could take for a message.
    pub(crate) word: AtomicU64,
    /// The first bytes of the message, then its immediate data if it has any. Accesses are
    /// `Relaxed`, since `word` orders them.
    pub(crate) body: Body,
}

const _: () = assert!(BODY_BYTES as usize == INLINE_BYTES && IMMEDIATE_BYTES == 4);
#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Slot>() == 64 && align_of::<Slot>() == 64);

impl Slot {
    /// Copies the body out, once, and zeros behind it. The writer can change it at any time, so
    /// everything is decided on this copy.
    #[inline(always)]
    pub(crate) fn copy_body(&self, copy: &mut [u8; COPY_BYTES]) {
        const { assert!(INLINE_BYTES == 56 && COPY_BYTES >= 64) };
        #[cfg(all(loom, test))]
        copy[..INLINE_BYTES].copy_from_slice(&self.body.read());
        // The loads are as wide as the stores of the copy. A wide load of bytes that were just
        // stored in narrow pieces would wait until these have reached the cache, 5 ns each time.
        // This is assembly, because the compiler must neither split nor repeat the loads.
        #[cfg(all(target_arch = "x86_64", not(all(loom, test))))]
        // SAFETY: reads the 56 bytes of `self.body` and nothing else; SSE2 is in every x86-64. The
        // stores fill the first 64 bytes of `copy`, which need no alignment.
        unsafe {
            use std::arch::x86_64::{__m128i, _mm_storeu_si128};
            let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
            std::arch::asm!(
                "movdqu {a}, [{body}]",
                "movdqu {b}, [{body} + 16]",
                "movdqu {c}, [{body} + 32]",
                "movq {d}, [{body} + 48]",
                body = in(reg) self.body.0.as_ptr(),
                a = out(xmm_reg) a,
                b = out(xmm_reg) b,
                c = out(xmm_reg) c,
                d = out(xmm_reg) d,
                options(nostack, preserves_flags, readonly)
            );
            let to = copy.as_mut_ptr().cast::<__m128i>();
            _mm_storeu_si128(to, a);
            _mm_storeu_si128(to.add(1), b);
            _mm_storeu_si128(to.add(2), c);
            _mm_storeu_si128(to.add(3), d);
        }
        #[cfg(not(any(target_arch = "x86_64", all(loom, test))))]
        for (to, from) in copy.chunks_exact_mut(8).zip(&self.body.0) {
            to.copy_from_slice(&from.load(std::sync::atomic::Ordering::Relaxed).to_ne_bytes());
        }
    }

    /// Copies the bodies of this slot and of a second one out, once, without a gap between them.
    #[inline(always)]
    pub(crate) fn copy_bodies(&self, second: &Slot, copy: &mut [u8; COPY_BYTES]) {
        const { assert!(2 * INLINE_BYTES <= COPY_BYTES) };
        // The second slot's first bytes are stored together with the first slot's last ones. So no
        // later load of sixteen bytes at a multiple of sixteen has to wait for two stores.
        #[cfg(all(target_arch = "x86_64", not(all(loom, test))))]
        // SAFETY: reads the 56 bytes of each body and nothing else; SSE2 is in every x86-64. The
        // stores fill the first 112 bytes of `copy`, which need no alignment.
        unsafe {
            use std::arch::x86_64::{__m128i, _mm_storeu_si128};
            let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
            let (e, f, g): (__m128i, __m128i, __m128i);
            std::arch::asm!(
                "movdqu {a}, [{first}]",
                "movdqu {b}, [{first} + 16]",
                "movdqu {c}, [{first} + 32]",
                "movq {d}, [{first} + 48]",
                "movhps {d}, [{second}]",
                "movdqu {e}, [{second} + 8]",
                "movdqu {f}, [{second} + 24]",
                "movdqu {g}, [{second} + 40]",
                first = in(reg) self.body.0.as_ptr(),
                second = in(reg) second.body.0.as_ptr(),
                a = out(xmm_reg) a,
                b = out(xmm_reg) b,
                c = out(xmm_reg) c,
                d = out(xmm_reg) d,
                e = out(xmm_reg) e,
                f = out(xmm_reg) f,
                g = out(xmm_reg) g,
                options(nostack, preserves_flags, readonly)
            );
            let to = copy.as_mut_ptr().cast::<__m128i>();
            for (at, part) in [a, b, c, d, e, f, g].into_iter().enumerate() {
                _mm_storeu_si128(to.add(at), part);
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(all(loom, test)))))]
        {
            self.copy_body(copy);
            let mut rest = [0; COPY_BYTES];
            second.copy_body(&mut rest);
            copy[INLINE_BYTES..2 * INLINE_BYTES].copy_from_slice(&rest[..INLINE_BYTES]);
        }
    }
}

/// The high half of a slot's word: length and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta(pub u32);

impl Meta {
    /// There is a message.
    const PRESENT: u32 = 1 << 31;
    /// It was written in a lap with an odd number.
    const ODD_LAP: u32 = 1 << 30;
    const IMMEDIATE: u32 = 1 << 29;
    const INTERNAL: u32 = 1 << 28;
    /// The next message begins at the first line.
    const LAST: u32 = 1 << 27;
    const LENGTH: u32 = (1 << 27) - 1;

    /// No message: the next one begins at the first line.
    pub(crate) const SKIP: Meta = Meta(Self::INTERNAL | Self::LAST);
    /// No message: the next one begins at the line, further on in this lap, whose number is at the
    /// beginning of the body.
    pub(crate) const JUMP: Meta = Meta(Self::INTERNAL);

    /// The flags of each message of a lap.
    #[inline(always)]
    pub(crate) fn of_lap(is_odd: bool) -> Self {
        Meta(if is_odd { Self::PRESENT | Self::ODD_LAP } else { Self::PRESENT })
    }

    /// No message: the next one begins at the first of the other lines, the short or the long ones.
    pub(crate) const CHANGE_LINES: Meta = Meta(Self::INTERNAL | Self::LAST | 1);

    /// The meta data of a message of `length` bytes, which must be below 2^27.
    #[inline]
    pub(crate) fn new(length: u32, immediate: bool, internal: bool, is_last: bool) -> Self {
        let flag = |flag: u32, is_set: bool| if is_set { flag } else { 0 };
        let flags = flag(Self::IMMEDIATE, immediate)
            | flag(Self::INTERNAL, internal)
            | flag(Self::LAST, is_last);
        Meta(length & Self::LENGTH | flags)
    }

    /// Length, and whether there is immediate data, of a message to the engine after which the lap
    /// goes on. `None` for all other messages, including malformed ones.
    #[inline(always)]
    pub(crate) fn common(self, message_bytes_max: u32) -> Option<(u32, bool)> {
        // Any other flag makes it too long.
        let length = self.0 & !Self::IMMEDIATE;
        (length <= message_bytes_max).then_some((length, self.0 & Self::IMMEDIATE != 0))
    }

    #[inline(always)]
    fn shape(self, length: u32) -> MessageShape {
        let immediate = self.0 & Self::IMMEDIATE != 0;
        let room = room(immediate);
        let slots = if is_in_two_slots(length, immediate) { 2 } else { 1 };
        MessageShape {
            length,
            slots,
            inline: if slots == 2 { length } else { length.min(room) },
            immediate,
            internal: self.0 & Self::INTERNAL != 0,
            is_last: self.0 & Self::LAST != 0,
        }
    }

    /// The word of a message's second slot: no message in the lap after this one.
    #[inline(always)]
    pub(crate) fn of_second_slot(lap: Meta) -> u64 {
        Meta(0).word(lap, 0)
    }

    /// The word of a slot. `lap`: the flags of the lap. `taken`: how far the writer has read the
    /// ring of the other direction.
    #[inline]
    pub(crate) fn word(self, lap: Meta, taken: u32) -> u64 {
        u64::from(taken) | u64::from(self.0 | lap.0) << 32
    }

    /// Splits the word of a slot: the meta data without the flags of the lap, and the position up
    /// to which the writer has read. `None`: there is no message of this lap.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves of the word")]
    pub(crate) fn of_word(word: u64, lap: Meta) -> Option<(Self, u32)> {
        let meta = (word >> 32) as u32 ^ lap.0;
        (meta < Self::ODD_LAP).then_some((Meta(meta), word as u32))
    }
}

/// Bytes of a message that fit into the last of its slots.
#[inline(always)]
pub(crate) fn room(immediate: bool) -> u32 {
    if immediate { BODY_BYTES - 4 } else { BODY_BYTES }
}

/// Whether a message that doesn't fit into one slot lies in two slots, and not in a slot and a run.
#[inline(always)]
pub(crate) fn is_in_two_slots(length: u32, immediate: bool) -> bool {
    length > BODY_BYTES && length <= BODY_BYTES + room(immediate)
}

/// The longest messages that a reader accepts.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Longest message of the engine.
    pub message_bytes_max: u32,
    /// Longest internal message: one that devices exchange among themselves.
    pub internal_bytes_max: u32,
}

/// The meta data of a message, after they were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageShape {
    /// Bytes of the message.
    pub length: u32,
    /// Slots that it takes. If there are two, all bytes lie in them.
    pub slots: u32,
    /// Bytes of it that lie in slots; the rest lies in the lines behind.
    pub inline: u32,
    /// Whether there is immediate data at the end of the last slot.
    pub immediate: bool,
    /// Whether this is an internal message, which the engine doesn't get.
    pub internal: bool,
    /// Whether the next message begins at the first line.
    pub is_last: bool,
}

impl MessageShape {
    /// Bytes of the message that are not in slots.
    #[inline]
    pub fn outside(self) -> u32 {
        self.length - self.inline
    }
}

/// Checks a slot's meta data. Everything is decided on this copy of them.
///
/// # Errors
/// The rule that the writer broke.
#[inline]
pub fn parse(meta: Meta, bounds: Bounds) -> Result<MessageShape, &'static str> {
    if meta.0 >= Meta::ODD_LAP {
        return Err("a message has the flags of a lap");
    }
    let shape = meta.shape(meta.0 & Meta::LENGTH);
    let length_max =
        if shape.internal { bounds.internal_bytes_max } else { bounds.message_bytes_max };
    if shape.length > length_max {
        return Err("a message is longer than allowed");
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { message_bytes_max: 16448, internal_bytes_max: 40000 };

    proptest! {
        #[test]
        fn whatever_is_accepted_is_within_bounds(word: u32) {
            if let Ok(shape) = parse(Meta(word), BOUNDS) {
                let max = if shape.internal { 40000 } else { 16448 };
                prop_assert!(shape.length <= max);
                let tail = if shape.immediate { IMMEDIATE_BYTES } else { 0 };
                prop_assert!(shape.inline as usize + tail <= shape.slots as usize * INLINE_BYTES);
                prop_assert!(shape.slots == 1 || shape.slots == 2 && shape.outside() == 0);
                prop_assert!(shape.inline <= shape.length);
                let MessageShape { length, immediate, internal, is_last, .. } = shape;
                let again = Meta::new(length, immediate, internal, is_last);
                prop_assert_eq!(again, Meta(word));
            }
        }

        #[test]
        fn the_common_kind_is_what_the_rules_accept(word: u32, flags in 0u32..16) {
            for word in [word, word & 0x7fff | flags << 27] {
                let shape = parse(Meta(word), BOUNDS).ok();
                let shape = shape.filter(|shape| !shape.internal && !shape.is_last);
                let expected = shape.map(|shape| (shape.length, shape.immediate));
                prop_assert_eq!(Meta(word).common(BOUNDS.message_bytes_max), expected);
            }
        }

        #[test]
        fn what_a_writer_writes_is_accepted(
            length in 0u32..=16448, immediate: bool, is_last: bool, taken: u32, is_odd: bool,
        ) {
            let meta = Meta::new(length, immediate, false, is_last);
            let [lap, other] = [is_odd, !is_odd].map(Meta::of_lap);
            prop_assert_eq!(Meta::of_word(meta.word(lap, taken), lap), Some((meta, taken)));
            prop_assert_eq!(Meta::of_word(meta.word(other, taken), lap), None);
            let shape = parse(meta, BOUNDS).unwrap();
            let MessageShape { immediate: has, is_last: last, .. } = shape;
            prop_assert_eq!((shape.length, has, last), (length, immediate, is_last));
            prop_assert_eq!(shape.inline + shape.outside(), length);
        }
    }

    #[test]
    fn too_long_messages_and_what_is_no_message_are_refused() {
        let parse = |meta| parse(meta, BOUNDS);
        assert!(parse(Meta::new(16449, false, false, false)).is_err());
        assert!(parse(Meta::new(16449, false, true, false)).is_ok());
        assert!(parse(Meta(Meta::PRESENT | 5)).is_err());
        assert_eq!([false, true].map(|is_odd| Meta::of_word(0, Meta::of_lap(is_odd))), [None; 2]);
    }
}
