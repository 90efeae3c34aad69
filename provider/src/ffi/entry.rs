//! What all functions that libfabric's callers enter have in common.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

pub(crate) use tagmatch_ofi_sys::calls::{
    Answer, copy_text, count, count_at_once, enter, enter_at_once, head, number, refuse, table,
};
pub(crate) use tagmatch_ofi_sys::sleeping::{Next, sleeping};

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
