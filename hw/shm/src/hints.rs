//! Hints to the processor about cache lines. They change no memory, and never fault. A hint that
//! this processor's architecture lacks does nothing.
//!
//! **Cache lines move before they are needed.** The reader's cache has the lines of a run from the
//! last round of the ring. A sender that stores into them waits for one line after the other, some
//! 35 ns each between cores that share the last cache only. So it prefetches all lines of a run for
//! writing before it copies, and those of the next slot and run after it has sent.
//! A message that is not one of a batch is then demoted to the shared
//! cache, where its reader, which waits for it, finds it sooner than in the sender's own cache. In
//! a batch, the demotion of a run would cost the sender as much as the rest of the message. Half a
//! round trip of 1 KiB went from 800 to 470 ns, of 8 KiB from 1940 to 1600. Runs above 8 KiB are
//! left alone, since they gain nothing.
//!
//! Slots are always demoted, in batches as well: a line that its writer's cache still has when the
//! next lap comes has gone to the reader and back, which takes longer than out of the shared cache.
//! On a Xeon of 2023, half a round trip of 64 bytes went from 290 to 250 ns so, and 64 messages of
//! 8 bytes at a time from 55 to 46 ns each.

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Fetches the line of an address into this core's cache, for writing. Waits for nothing.
#[inline(always)]
pub(crate) fn prefetch_to_write(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it reads and writes no memory that a program can see, and an address that is
    // not mapped is ignored. Processors without PREFETCHW take it as no operation. (The intrinsic
    // function needs a target feature that this crate is not compiled for.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint: it reads and writes no memory that a program can see, and an address that is
    // not mapped is ignored.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}

/// Moves the line of an address from this core's cache to the cache that the cores share.
#[inline(always)]
pub(crate) fn demote(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it reads and writes no memory that a program can see, and an address that is
    // not mapped is ignored. The encoding of CLDEMOTE is one of those reserved for hints, which
    // older processors take as no operation.
    unsafe {
        std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
