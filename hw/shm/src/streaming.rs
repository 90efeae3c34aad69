//! Writing a run past this core's cache, and when that is faster.
//!
//! A store to a cache line that the reader's core has must first take the line away from that core.
//! On processors of AMD, that takes longer than all other work of a long message together: the
//! writer of 4 KiB waits 250 ns where both cores share a cache, and 1000 ns where they don't, and
//! its reader 90 ns. Streaming stores (MOVNTDQ) take no line away. They wait for the memory
//! instead, and so does the reader: 200 and 300 ns, wherever the cores are. Half a round trip, in
//! nanoseconds, two cores of an EPYC 9004:
//!
//! | bytes | shared cache: ordinary | streaming | apart: ordinary | streaming |
//! |---|---|---|---|---|
//! | 1 KiB | 235 | 430 | | |
//! | 2 KiB | 360 | 510 | 1400 | 650 |
//! | 4 KiB | 620 | 760 | 2650 | 820 |
//! | 8 KiB | 1150 | 1080 | 4200 | 1200 |
//! | 64 KiB, in runs of 8 KiB | 7500 | 5100 | 32 000 | 5150 |
//!
//! In laps of 2 MiB (`config`), the lines of a lap before are in the shared cache alone, and
//! ordinary stores take half of the time there: 8 KiB 720 ns, 64 KiB 3000. So the time of an
//! ordinary write decides for runs of a KiB or more: it tells how far away the reader and the lines
//! are, which changes while a virtual machine's processors are moved. On an Intel Xeon (Sapphire
//! Rapids), streaming gains a tenth at most, for 8 KiB alone, and loses more elsewhere: half a
//! round trip of 1 KiB took 580 ns, and 570 streamed, of 2 KiB 830 and 1080, of 4 KiB 1310 and
//! 1400, of 8 KiB 2330 and 2200; a message in windows of 64 took 237 and 235, 375 and 530, 400 and
//! 760, 845 and 1240. So the processor is asked once, and `ShmConfig::streams` overrides it.

use std::time::{Duration, Instant};

#[cfg(all(target_arch = "x86_64", not(all(loom, test))))]
use crate::hints::LINE_BYTES;

/// Shorter runs are never streamed.
const BYTES_MIN: usize = 1 << 10;
/// Runs between are streamed if an ordinary write takes longer for each KiB.
const ORDINARY_NS_PER_KIB_MAX: u32 = 130;
/// Of the runs whose length leaves the choice, one in so many is written in the ordinary way, and
/// timed; of a long one its beginning.
const TIMED_EVERY: u32 = 32;
const TIMED_BYTES: usize = 4 << 10;

/// Whether streaming is faster at all on this machine's processors: those of AMD, which alone have
/// SSE4a.
pub(crate) fn is_faster_here() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("sse4a");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// How a writer writes the runs of its ring.
pub(crate) struct Writing {
    /// Long runs are streamed.
    streams: bool,
    /// Longer runs are always streamed.
    timed_max: usize,
    /// The time of the last ordinary write that was timed.
    ordinary_ns_per_kib: u32,
    /// Runs are streamed if an ordinary write takes longer.
    ordinary_ns_per_kib_max: u32,
    /// Runs until the next one is timed.
    until_timed: u32,
}

/// How to write one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteWay {
    /// With ordinary stores.
    Ordinary,
    /// The beginning with ordinary stores, which are timed, and the rest in the way that is faster
    /// by that time.
    Timed,
    /// Past the cache.
    Streaming,
}

impl Writing {
    /// A writer that has written nothing. `streams`: streaming is faster on this machine.
    /// For runs that are longer than `timed_max`, the time of an ordinary write is not asked.
    pub(crate) fn new(streams: bool, timed_max: usize) -> Self {
        let ordinary_ns_per_kib_max = ORDINARY_NS_PER_KIB_MAX;
        Writing {
            streams,
            timed_max,
            ordinary_ns_per_kib: 0,
            ordinary_ns_per_kib_max,
            until_timed: 0,
        }
    }

    /// Writes all runs in one way, but short ones always with ordinary stores.
    pub(crate) fn pinned(streams: bool) -> Self {
        Self::new(streams, 0)
    }

    /// How to write the next run, which has so many bytes.
    #[inline]
    pub(crate) fn way(&mut self, length: usize) -> WriteWay {
        if !self.streams || length < BYTES_MIN {
            return WriteWay::Ordinary;
        }
        if length > self.timed_max {
            return WriteWay::Streaming;
        }
        if self.until_timed == 0 {
            self.until_timed = TIMED_EVERY;
            return WriteWay::Timed;
        }
        self.until_timed -= 1;
        if self.is_ordinary_slow() { WriteWay::Streaming } else { WriteWay::Ordinary }
    }

    fn is_ordinary_slow(&self) -> bool {
        self.ordinary_ns_per_kib > self.ordinary_ns_per_kib_max
    }

    /// An ordinary write of so many bytes took this long.
    fn took(&mut self, length: usize, time: Duration) {
        let per_kib = time.as_nanos() * 1024 / length.max(1) as u128;
        self.ordinary_ns_per_kib = u32::try_from(per_kib).unwrap_or(u32::MAX);
    }

    /// Writes a run in this way. What is behind the run in its last line is lost.
    ///
    /// # Safety
    /// `to` is the beginning of a cache line. The lines of a run of `from.len()` bytes are writable
    /// as a whole, and don't overlap `from`.
    pub(crate) unsafe fn write(&mut self, way: WriteWay, from: &[u8], to: *mut u8) {
        match way {
            // SAFETY: by the caller's promise.
            WriteWay::Ordinary => unsafe { write_ordinarily(from, to) },
            // SAFETY: by the caller's promise.
            WriteWay::Streaming => unsafe { stream(from, to) },
            WriteWay::Timed => {
                let (timed, rest) = from.split_at(from.len().min(TIMED_BYTES));
                let began = Instant::now();
                // SAFETY: by the caller's promise.
                unsafe { write_ordinarily(timed, to) };
                self.took(timed.len(), began.elapsed());
                if rest.is_empty() {
                    return;
                }
                let write = if self.is_ordinary_slow() { stream } else { write_ordinarily };
                // SAFETY: by the caller's promise; the rest begins at a line, since `TIMED_BYTES`
                // are whole lines.
                unsafe { write(rest, to.add(timed.len())) };
            }
        }
    }
}

/// Copies with ordinary stores.
///
/// # Safety
/// As for [`Writing::write`].
unsafe fn write_ordinarily(from: &[u8], to: *mut u8) {
    // SAFETY: by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

/// Copies past the cache, in whole lines: a line of which only a part is streamed has to be read
/// from memory first. The copy is complete before any later store of this thread.
///
/// # Safety
/// As for [`Writing::write`].
#[cfg(all(target_arch = "x86_64", not(all(loom, test))))]
unsafe fn stream(from: &[u8], to: *mut u8) {
    debug_assert!(to.addr().is_multiple_of(LINE_BYTES));
    let (lines, rest) = from.as_chunks::<LINE_BYTES>();
    let mut last = [0; LINE_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    let last = if rest.is_empty() { &[] } else { std::slice::from_ref(&last) };
    for (index, line) in lines.iter().chain(last).enumerate() {
        // SAFETY: the caller has promised that `to` is the beginning of a line, and that whole
        // lines of it are writable.
        unsafe { stream_line(line, to.add(index * LINE_BYTES)) };
    }
    // Streaming stores are not ordered with other stores.
    // SAFETY: SSE is part of the architecture.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// Copies one line past the cache.
///
/// # Safety
/// `to` is the beginning of a writable line.
#[cfg(all(target_arch = "x86_64", not(all(loom, test))))]
#[inline(always)]
unsafe fn stream_line(from: &[u8; LINE_BYTES], to: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    let from = from.as_ptr().cast::<__m128i>();
    let to = to.cast::<__m128i>();
    for index in 0..LINE_BYTES / size_of::<__m128i>() {
        // SAFETY: the loads are inside `from`, and need no alignment; the stores are inside `to`,
        // which is aligned. SSE2 is part of the architecture.
        unsafe { _mm_stream_si128(to.add(index), _mm_loadu_si128(from.add(index))) };
    }
}

/// As an ordinary copy: no other architecture's streaming stores were measured, and the model
/// checker has no cache.
///
/// # Safety
/// As for [`Writing::write`].
#[cfg(not(all(target_arch = "x86_64", not(all(loom, test)))))]
unsafe fn stream(from: &[u8], to: *mut u8) {
    // SAFETY: by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_streamed_copy_has_every_byte_and_keeps_what_is_behind_its_last_line() {
        #[repr(align(64))]
        struct Aligned([u8; 1024]);

        let from: Vec<u8> = (0..=255).cycle().take(1024).collect();
        for start in 0..20 {
            for length in (0..200).chain([800, 900]) {
                let mut to = Aligned([7; 1024]);
                let source = &from[start..start + length];
                // SAFETY: `to` has room for all lines, and is aligned.
                unsafe { stream(source, to.0.as_mut_ptr()) };
                assert_eq!(&to.0[..length], source);
                assert!(to.0[length.next_multiple_of(64)..].iter().all(|byte| *byte == 7));
            }
        }
    }

    #[test]
    fn a_run_whose_beginning_is_timed_has_every_byte_whichever_way_the_rest_takes() {
        #[repr(align(64))]
        struct Aligned([u8; 3 * TIMED_BYTES]);

        let from: Vec<u8> = (0..=250).cycle().take(3 * TIMED_BYTES).collect();
        let rests = [0, 1, 64, TIMED_BYTES + 100];
        for length in rests.map(|rest| TIMED_BYTES + rest).into_iter().chain([1500]) {
            for limit in [0, u32::MAX] {
                let mut to = Aligned([7; 3 * TIMED_BYTES]);
                let mut writing = Writing::new(true, usize::MAX);
                writing.ordinary_ns_per_kib_max = limit;
                assert_eq!(writing.way(length), WriteWay::Timed);
                // SAFETY: `to` has room for all lines, and is aligned.
                unsafe { writing.write(WriteWay::Timed, &from[..length], to.0.as_mut_ptr()) };
                assert_eq!(to.0[..length], from[..length]);
                assert!(to.0[length.next_multiple_of(64)..].iter().all(|byte| *byte == 7));
                let way = if limit == 0 { WriteWay::Streaming } else { WriteWay::Ordinary };
                assert_eq!(writing.way(length), way);
            }
        }
    }

    #[test]
    fn short_runs_are_written_in_the_ordinary_way_and_long_ones_are_streamed() {
        let mut writing = Writing::new(true, 4096);
        assert_eq!(writing.way(BYTES_MIN - 1), WriteWay::Ordinary);
        assert_eq!(writing.way(4097), WriteWay::Streaming);
        let mut plain = Writing::new(false, 4096);
        assert_eq!(plain.way(BYTES_MIN), WriteWay::Ordinary);
        assert_eq!(plain.way(1 << 20), WriteWay::Ordinary);
        for (streams, way) in [(true, WriteWay::Streaming), (false, WriteWay::Ordinary)] {
            let mut pinned = Writing::pinned(streams);
            let ways = [BYTES_MIN - 1, BYTES_MIN, 4096, 1 << 20].map(|length| pinned.way(length));
            assert_eq!(ways, [WriteWay::Ordinary, way, way, way]);
        }
    }

    #[test]
    fn the_time_of_an_ordinary_write_decides_for_runs_of_a_middle_length() {
        let mut writing = Writing::new(true, 4096);
        for (time, then) in
            [(50, WriteWay::Ordinary), (300, WriteWay::Streaming), (50, WriteWay::Ordinary)]
        {
            assert_eq!(writing.way(4096), WriteWay::Timed);
            writing.took(4096, Duration::from_nanos(4 * time));
            for _ in 0..TIMED_EVERY {
                assert_eq!(writing.way(4096), then);
            }
        }
    }
}
