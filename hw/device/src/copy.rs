//! Copies of a few bytes, for devices.

use std::ptr;

/// Copies bytes; up to 32 without a call.
///
/// # Safety
/// `to` is writable for as many bytes, and apart from `from`.
#[inline(always)]
pub unsafe fn copy_small(from: &[u8], to: *mut u8) {
    let length = from.len();
    let from = from.as_ptr();
    // Two moves of the same size that may overlap cover every length between one size and twice it.
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
    if length > 32 {
        // SAFETY: as the caller promised.
        return unsafe { ptr::copy_nonoverlapping(from, to, length) };
    }
    if length >= 8 {
        if length <= 16 { ends!(8) } else { ends!(16) }
    } else if length >= 2 {
        if length >= 4 { ends!(4) } else { ends!(2) }
    } else if length == 1 {
        // SAFETY: one byte at each.
        unsafe { to.write(from.read()) }
    }
}
