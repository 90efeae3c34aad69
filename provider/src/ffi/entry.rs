//! What all functions that libfabric's callers enter have in common.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use tagmatch_ofi_sys as sys;

use crate::errno::{Errno, Result};

/// The type of a function's answer: a count, or a negative error number.
pub(crate) trait Answer: Sized {
    /// The answer for a result.
    fn of(result: Result<usize>) -> Self;
}

impl Answer for i32 {
    #[inline]
    fn of(result: Result<usize>) -> Self {
        result.map_or_else(|errno| -errno.0, |count| i32::try_from(count).unwrap_or(i32::MAX))
    }
}

impl Answer for isize {
    #[inline]
    fn of(result: Result<usize>) -> Self {
        result.map_or_else(|errno| -(errno.0 as isize), usize::cast_signed)
    }
}

/// Runs the body of a function. A panic is a defect of this library; the caller gets an error
/// number, since unwinding into C is undefined.
#[inline]
pub(crate) fn count<A: Answer>(body: impl FnOnce() -> Result<usize>) -> A {
    A::of(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::OTHER)))
}

/// As [`count`], for a function that has no error numbers.
pub(crate) fn number(body: impl FnOnce() -> Result<u64>) -> u64 {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Ok(0)).unwrap_or(0)
}

/// As [`count`], for a function that gives 0.
#[inline]
pub(crate) fn enter<A: Answer>(body: impl FnOnce() -> Result<()>) -> A {
    count(|| body().map(|()| 0))
}

/// The answer of a function that refuses its arguments.
#[inline]
pub(crate) fn refuse<A: Answer>(errno: Errno) -> A {
    A::of(Err(errno))
}

/// How many closed objects are remembered.
const CLOSED_MAX: usize = 256;

/// The closed objects. A call on a closed object, which is a mistake of the caller, finds an object
/// without content, and not memory that is used for something else.
static CLOSED: Mutex<VecDeque<Box<dyn Any + Send>>> = Mutex::new(VecDeque::new());

/// Keeps the memory of a closed object until [`CLOSED_MAX`] others were closed.
///
/// # Safety
/// `object` is a pointer that `Box::into_raw` gave, and was not retired before.
pub(crate) unsafe fn retire<T: Any + Send>(object: *mut T) {
    // SAFETY: the caller's promise.
    let object = unsafe { Box::from_raw(object) };
    let oldest = {
        let mut closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
        closed.push_back(object);
        if closed.len() > CLOSED_MAX { closed.pop_front() } else { None }
    };
    drop(oldest);
}

/// The head of an object.
pub(crate) fn head(
    class: usize,
    context: *mut std::ffi::c_void,
    ops: &'static sys::fi_ops,
) -> sys::fid {
    sys::fid { fclass: class, context, ops: table(ops) }
}

/// A table as libfabric's structures refer to it. Nobody writes to tables.
pub(crate) fn table<T>(table: &'static T) -> *mut T {
    std::ptr::from_ref(table).cast_mut()
}

/// Copies a text with its terminating zero into a caller's memory of `length` bytes, as much as has
/// room.
///
/// # Safety
/// `to` points to `length` writable bytes.
pub(crate) unsafe fn copy_text(text: &[u8], to: *mut std::ffi::c_char, length: usize) {
    let Some(room) = length.checked_sub(1) else { return };
    let count = text.len().min(room);
    // SAFETY: `count` is less than `length`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), count);
        *to.add(count) = 0;
    }
}
