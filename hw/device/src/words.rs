//! Elements of memory that several processes change at once, by atomic operations of the processor.
//!
//! An element is changed by the processor if it has 1, 2, 4 or 8 bytes and lies at a multiple of
//! its size, whatever its type and the operation are. All processes see this alike, because memory
//! that several of them map begins at a page in each.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::region_access::ElementChanges;

/// Whether elements of this size are changed by the processor if the first one lies at this address
/// of its owner's process.
pub fn are_of_processor(size: usize, address: u64) -> bool {
    matches!(size, 1 | 2 | 4 | 8) && address.is_multiple_of(size as u64)
}

/// Changes the elements that these bytes begin with. `false`: nothing was changed, since they are
/// too few bytes, or no elements that the processor changes.
pub fn change_elements(bytes: &mut [u8], changes: ElementChanges<'_>) -> bool {
    let length = changes.size.checked_mul(changes.count);
    let address = bytes.as_ptr().expose_provenance() as u64;
    if length.is_none_or(|length| length > bytes.len()) || !are_of_processor(changes.size, address)
    {
        return false;
    }
    // SAFETY: the elements lie in `bytes`, which nothing else of this process refers to, and are
    // aligned.
    unsafe { change_elements_at(bytes.as_mut_ptr(), changes) };
    true
}

/// Changes the elements that begin at `first`.
///
/// # Safety
/// The elements are [`are_of_processor`], and their memory can be read and written. Whatever else
/// accesses it at the same time is another process, or atomic.
pub unsafe fn change_elements_at(first: *mut u8, changes: ElementChanges<'_>) {
    let ElementChanges { size, count, change } = changes;
    for index in 0..count {
        // SAFETY: inside the elements, by the caller's promise.
        let at = unsafe { first.add(index * size) };
        macro_rules! change_word {
            ($atomic:ty, $word:ty) => {{
                // SAFETY: aligned memory that can be written, by the caller's promise.
                let word = unsafe { <$atomic>::from_ptr(at.cast::<$word>()) };
                let mut old = word.load(SeqCst);
                loop {
                    let mut bytes = old.to_ne_bytes();
                    change(index, &mut bytes);
                    let new = <$word>::from_ne_bytes(bytes);
                    if new == old {
                        break;
                    }
                    match word.compare_exchange_weak(old, new, SeqCst, SeqCst) {
                        Ok(_) => break,
                        Err(other) => old = other,
                    }
                }
            }};
        }
        match size {
            1 => change_word!(AtomicU8, u8),
            2 => change_word!(AtomicU16, u16),
            4 => change_word!(AtomicU32, u32),
            _ => change_word!(AtomicU64, u64),
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;

    #[test]
    fn elements_of_each_size_are_changed_and_nothing_beside_them() {
        for size in [1, 2, 4, 8] {
            let mut words = [u64::MAX; 4];
            let bytes = crate::as_bytes_mut(&mut words);
            let mut change = |index: usize, element: &mut [u8]| {
                assert!(element.iter().all(|byte| *byte == 255) && element.len() == size);
                element.fill(index as u8);
            };
            let changes = ElementChanges { size, count: 3, change: &mut change };
            assert!(change_elements(&mut bytes[8..], changes));
            let expected: Vec<u8> =
                (0..32)
                    .map(|at| {
                        if (8..8 + 3 * size).contains(&at) { ((at - 8) / size) as u8 } else { 255 }
                    })
                    .collect();
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn elements_that_no_processor_changes_are_left_alone() {
        let mut words = [0u64; 4];
        let bytes = crate::as_bytes_mut(&mut words);
        let mut tried = |start: usize, size: usize, count: usize| {
            let mut change = |_: usize, element: &mut [u8]| element.fill(1);
            let changes = ElementChanges { size, count, change: &mut change };
            change_elements(&mut bytes[start..], changes)
        };
        for (start, size, count) in [
            (1, 8, 1),
            (4, 8, 1),
            (2, 4, 1),
            (1, 2, 1),
            (0, 16, 1),
            (0, 3, 1),
            (8, 8, 4),
            (0, 8, usize::MAX),
        ] {
            assert!(!tried(start, size, count), "{start} {size} {count}");
        }
        assert!(
            tried(4, 4, 1)
                && words == [1 << 32 | 0x0101_0101 << 32 | words[0] & 0xffff_ffff, 0, 0, 0]
        );
    }

    #[test]
    fn an_element_that_another_thread_changes_meanwhile_is_changed_anew() {
        let word = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut change = |_: usize, element: &mut [u8]| {
                            let value = u64::from_ne_bytes(element.try_into().unwrap());
                            element.copy_from_slice(&(value + 1).to_ne_bytes());
                        };
                        let changes = ElementChanges { size: 8, count: 1, change: &mut change };
                        // SAFETY: the word outlives the threads, which access it by atomics alone.
                        unsafe { change_elements_at(word.as_ptr().cast(), changes) };
                    }
                });
            }
        });
        assert_eq!(word.into_inner(), 20_000);
    }
}
