//! Copying few bytes, for devices.

use std::ptr;

/// Copies more than few bytes. `cold`, so that a copy of few bytes keeps what it has in registers.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[cold]
#[inline(never)]
unsafe fn copy_more(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: by the caller's promise.
    unsafe { ptr::copy_nonoverlapping(from, to, length) };
}

/// Copies `from` to `to`, without a function call if there are at most 64 bytes.
///
/// # Safety
/// `to` is writable for `from.len()` bytes, which don't overlap `from`.
#[inline(always)]
pub unsafe fn copy_small(from: &[u8], to: *mut u8) {
    let length = from.len();
    let from = from.as_ptr();
    // Two moves of `size` bytes, one from each end, cover every length from `size` to twice `size`.
    // They may overlap.
    macro_rules! ends {
        ($size:expr) => {{
            // SAFETY: $size <= length, and both ends are inside `length` bytes.
            unsafe {
                let first = from.cast::<[u8; $size]>().read();
                let last = from.add(length - $size).cast::<[u8; $size]>().read();
                to.cast::<[u8; $size]>().write(first);
                to.add(length - $size).cast::<[u8; $size]>().write(last);
            }
        }};
    }
    if length > 64 {
        // SAFETY: by the caller's promise.
        return unsafe { copy_more(from, to, length) };
    }
    if length >= 8 {
        if length <= 16 {
            ends!(8)
        } else if length <= 32 {
            ends!(16)
        } else {
            ends!(32)
        }
    } else if length >= 2 {
        if length >= 4 { ends!(4) } else { ends!(2) }
    } else if length == 1 {
        // SAFETY: there is one byte at each of them.
        unsafe { to.write(from.read()) }
    }
}
