//! Compares many lanes with one value at once: with the vector instructions that every processor of
//! the architecture has, or with plain loops.

/// The number of lanes that are compared at once.
pub(crate) const GROUP: usize = 8;

/// The number of bits per lane in the results of [`equal_words`] and [`equal_halves`]. Only the
/// lower bit is significant.
pub(crate) const LANE_BITS: u32 = 2;

pub(crate) use arch::{equal_bytes, equal_halves, equal_words, equal_words_under};

/// The comparisons with SSE2, which is part of x86-64. `unsafe` is needed only to call the
/// instructions and to load from arrays: every function computes on values alone.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "with plain loops a pair takes two thirds longer at four classes")]
mod arch {
    use super::GROUP;
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpeq_epi32, _mm_loadu_si128,
        _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32, _mm_set1_epi64x,
        _mm_setzero_si128, _mm_xor_si128,
    };

    /// The significant bit of every lane of a group.
    const LOWER_BITS: u64 = 0x5555;

    /// Compares bytes: bit `i` of the result is set if byte `i` equals `byte`.
    #[inline]
    pub(crate) fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u32 {
        // SAFETY: the instructions need SSE2, which every x86-64 has. The load
        // reads the 16 bytes of the array, and needs no alignment.
        unsafe {
            // One multiplication and one shuffle are faster than the three shuffles of
            // `_mm_set1_epi8`.
            let four = (u32::from(byte) * 0x0101_0101).cast_signed();
            let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi32(four))).cast_unsigned()
        }
    }

    /// The lanes whose words equal `word` in the bits of their masks.
    #[inline]
    pub(crate) fn equal_words(words: &[u64; GROUP], masks: &[u64; GROUP], word: u64) -> u64 {
        equal_under(words, |at| two(masks, at), word)
    }

    /// The lanes whose words equal `word` in the bits of one mask.
    #[inline]
    pub(crate) fn equal_words_under(words: &[u64; GROUP], mask: u64, word: u64) -> u64 {
        // SAFETY: the instructions need SSE2, which every x86-64 has.
        let mask = unsafe { _mm_set1_epi64x(mask.cast_signed()) };
        equal_under(words, |_| mask, word)
    }

    #[inline]
    fn equal_under(words: &[u64; GROUP], mask: impl Fn(usize) -> __m128i, word: u64) -> u64 {
        // SAFETY: the instructions need SSE2, which every x86-64 has.
        let halves = unsafe {
            let word = _mm_set1_epi64x(word.cast_signed());
            let pair = |at: usize| {
                let differ = _mm_and_si128(_mm_xor_si128(two(words, at), word), mask(at));
                _mm_cmpeq_epi32(differ, _mm_setzero_si128())
            };
            let low = _mm_packs_epi32(pair(0), pair(2));
            let high = _mm_packs_epi32(pair(4), pair(6));
            bits(_mm_packs_epi16(low, high))
        };
        halves & (halves >> 1) & LOWER_BITS
    }

    /// Loads two words, the first of them at `at`.
    #[inline]
    fn two(words: &[u64; GROUP], at: usize) -> __m128i {
        let two: &[u64] = &words[at..at + 2];
        // SAFETY: the instruction needs SSE2, which every x86-64 has. The load
        // reads the two words of the slice, and needs no alignment.
        unsafe { _mm_loadu_si128(two.as_ptr().cast()) }
    }

    /// The lanes whose halves equal `half`.
    #[inline]
    pub(crate) fn equal_halves(halves: &[u32; GROUP], half: u32) -> u64 {
        // SAFETY: the instructions need SSE2, which every x86-64 has. Each load
        // reads the four halves of its slice, and needs no alignment.
        unsafe {
            let half = _mm_set1_epi32(half.cast_signed());
            let four = |at: usize| {
                let four: &[u32] = &halves[at..at + 4];
                _mm_cmpeq_epi32(_mm_loadu_si128(four.as_ptr().cast()), half)
            };
            bits(_mm_packs_epi32(four(0), four(4))) & LOWER_BITS
        }
    }

    #[inline]
    fn bits(lanes: __m128i) -> u64 {
        // SAFETY: the instructions need SSE2, which every x86-64 has.
        u64::from(unsafe { _mm_movemask_epi8(lanes) }.cast_unsigned())
    }
}

/// The comparisons with NEON, which is part of AArch64. `unsafe` is needed only to call the
/// instructions and to load from arrays: every function computes on values alone.
#[cfg(target_arch = "aarch64")]
#[allow(
    unsafe_code,
    reason = "as on x86-64; its speed is unknown, since it ran under emulation only"
)]
mod arch {
    use super::GROUP;
    use std::arch::aarch64::{
        uint16x8_t, uint32x4_t, uint64x2_t, vaddv_u8, vaddvq_u16, vandq_u8, vandq_u16, vandq_u64,
        vceqq_u8, vceqq_u32, vceqzq_u64, vcombine_u16, vcombine_u32, vdupq_n_u8, vdupq_n_u32,
        vdupq_n_u64, veorq_u64, vget_high_u8, vget_low_u8, vld1q_u8, vld1q_u16, vld1q_u32,
        vld1q_u64, vmovn_u32, vmovn_u64,
    };

    /// The bit of each byte of eight in a result.
    const BYTE_BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    /// The significant bit of every lane of a group.
    const LANES: [u16; GROUP] = [1, 1 << 2, 1 << 4, 1 << 6, 1 << 8, 1 << 10, 1 << 12, 1 << 14];

    /// Compares bytes: bit `i` of the result is set if byte `i` equals `byte`.
    #[inline]
    pub(crate) fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u32 {
        // SAFETY: the instructions need NEON, which every AArch64 has. The loads
        // read the 16 bytes of their arrays, and need no alignment.
        unsafe {
            let equal = vceqq_u8(vld1q_u8(bytes.as_ptr()), vdupq_n_u8(byte));
            let bits = vandq_u8(equal, vld1q_u8(BYTE_BITS.as_ptr()));
            let [low, high] = [vget_low_u8(bits), vget_high_u8(bits)].map(|eight| vaddv_u8(eight));
            u32::from(low) | u32::from(high) << 8
        }
    }

    /// The lanes whose words equal `word` in the bits of their masks.
    #[inline]
    pub(crate) fn equal_words(words: &[u64; GROUP], masks: &[u64; GROUP], word: u64) -> u64 {
        equal_under(words, |at| two(masks, at), word)
    }

    /// The lanes whose words equal `word` in the bits of one mask.
    #[inline]
    pub(crate) fn equal_words_under(words: &[u64; GROUP], mask: u64, word: u64) -> u64 {
        // SAFETY: the instruction needs NEON, which every AArch64 has.
        let mask = unsafe { vdupq_n_u64(mask) };
        equal_under(words, |_| mask, word)
    }

    #[inline]
    fn equal_under(words: &[u64; GROUP], mask: impl Fn(usize) -> uint64x2_t, word: u64) -> u64 {
        // SAFETY: the instructions need NEON, which every AArch64 has.
        unsafe {
            let word = vdupq_n_u64(word);
            let pair = |at: usize| {
                let differ = vandq_u64(veorq_u64(two(words, at), word), mask(at));
                vmovn_u64(vceqzq_u64(differ))
            };
            lanes(vcombine_u32(pair(0), pair(2)), vcombine_u32(pair(4), pair(6)))
        }
    }

    /// Loads two words, the first of them at `at`.
    #[inline]
    fn two(words: &[u64; GROUP], at: usize) -> uint64x2_t {
        let two: &[u64] = &words[at..at + 2];
        // SAFETY: the instruction needs NEON, which every AArch64 has. The load
        // reads the two words of the slice, and needs no alignment.
        unsafe { vld1q_u64(two.as_ptr()) }
    }

    /// The lanes whose halves equal `half`.
    #[inline]
    pub(crate) fn equal_halves(halves: &[u32; GROUP], half: u32) -> u64 {
        // SAFETY: the instructions need NEON, which every AArch64 has. Each load
        // reads the four halves of its slice, and needs no alignment.
        unsafe {
            let half = vdupq_n_u32(half);
            let four = |at: usize| {
                let four: &[u32] = &halves[at..at + 4];
                vceqq_u32(vld1q_u32(four.as_ptr()), half)
            };
            lanes(four(0), four(4))
        }
    }

    /// The lanes of which all bits are set: those of a group, four at a time.
    #[inline]
    fn lanes(first: uint32x4_t, second: uint32x4_t) -> u64 {
        // SAFETY: the instructions need NEON, which every AArch64 has. The load
        // reads the eight numbers of its array.
        unsafe {
            let equal: uint16x8_t = vcombine_u16(vmovn_u32(first), vmovn_u32(second));
            u64::from(vaddvq_u16(vandq_u16(equal, vld1q_u16(LANES.as_ptr()))))
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use plain as arch;

/// The comparisons with plain loops. The vector instructions are tested against them.
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod plain {
    use super::{GROUP, LANE_BITS};

    /// Compares bytes: bit `i` of the result is set if byte `i` equals `byte`.
    #[inline]
    pub(crate) fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u32 {
        (0..16).fold(0, |bits, at| bits | u32::from(bytes[at] == byte) << at)
    }

    /// The lanes whose words equal `word` in the bits of their masks.
    #[inline]
    pub(crate) fn equal_words(words: &[u64; GROUP], masks: &[u64; GROUP], word: u64) -> u64 {
        let equal = |at: usize| u64::from((words[at] ^ word) & masks[at] == 0);
        (0..GROUP).fold(0, |bits, at| bits | equal(at) << (at * LANE_BITS as usize))
    }

    /// The lanes whose words equal `word` in the bits of one mask.
    #[inline]
    pub(crate) fn equal_words_under(words: &[u64; GROUP], mask: u64, word: u64) -> u64 {
        equal_words(words, &[mask; GROUP], word)
    }

    /// The lanes whose halves equal `half`.
    #[inline]
    pub(crate) fn equal_halves(halves: &[u32; GROUP], half: u32) -> u64 {
        let equal = |at: usize| u64::from(halves[at] == half);
        (0..GROUP).fold(0, |bits, at| bits | equal(at) << (at * LANE_BITS as usize))
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words that are partly equal, so that neither all nor none match.
    fn word() -> impl Strategy<Value = u64> {
        prop::sample::select(vec![0, 1, 1 << 31, 1 << 32, 1 << 63, u64::MAX, 0xffff_ffff])
    }

    proptest! {
        #[test]
        fn vectors_and_loops_agree(
            words in prop::array::uniform8(word()),
            masks in prop::array::uniform8(word()),
            wanted in word(),
            halves in prop::array::uniform8(0u32..3),
            half in 0u32..3,
            bytes: [u8; 16],
            at in 0usize..16,
        ) {
            prop_assert_eq!(
                equal_words(&words, &masks, wanted),
                plain::equal_words(&words, &masks, wanted)
            );
            prop_assert_eq!(
                equal_words_under(&words, masks[0], wanted),
                plain::equal_words_under(&words, masks[0], wanted)
            );
            prop_assert_eq!(equal_halves(&halves, half), plain::equal_halves(&halves, half));
            let equal = equal_bytes(&bytes, bytes[at]);
            prop_assert_eq!(equal, plain::equal_bytes(&bytes, bytes[at]));
            prop_assert_eq!(equal >> at & 1, 1);
        }
    }
}
