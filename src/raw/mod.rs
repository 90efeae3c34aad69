//! The unsafe layer, for runtimes that manage memory themselves.
//!
//! Everything else in this crate is safe because operations own their buffers. A runtime whose
//! users hand it pointers (as MPI's do) makes buffers out of them here and keeps the promise
//! itself.

#![allow(unsafe_code, reason = "the one unsafe module of this crate")]

mod scope;

use std::ptr::NonNull;

use tagmatch_device::Buffer;

pub use scope::{Scope, ScopedRequest};

/// Memory at a pointer, for receiving or sending.
///
/// # Safety
/// Until the operation that it is handed to has given the buffer back or, if its request was
/// dropped or leaked, until the worker is dropped and every other request of it is gone: `length`
/// bytes at `start` stay allocated and initialised, and nobody else reads or writes them.
pub unsafe fn buffer(start: NonNull<u8>, length: usize) -> Buffer {
    // SAFETY: the caller's promise is the one that is asked for.
    unsafe { Buffer::from_raw(start, length, true) }
}

/// Memory at a pointer, for sending only.
///
/// # Safety
/// As for [`buffer`], except that others may read the bytes.
pub unsafe fn read_only(start: NonNull<u8>, length: usize) -> Buffer {
    // SAFETY: the caller's promise is the one that is asked for.
    unsafe { Buffer::from_raw(start, length, false) }
}

/// A borrowed slice as a buffer.
///
/// # Safety
/// The operation that it is handed to ends before 'a does.
pub(crate) unsafe fn borrowed(slice: &mut [u8]) -> Buffer {
    // SAFETY: borrowed exclusively, and the caller ends the operation before the borrow.
    unsafe { buffer(NonNull::from(&mut *slice).cast(), slice.len()) }
}

/// A slice that is borrowed for reading as a buffer.
///
/// # Safety
/// The operation that it is handed to ends before the borrow does.
pub(crate) unsafe fn borrowed_shared(slice: &[u8]) -> Buffer {
    // SAFETY: borrowed, and the caller ends the operation before the borrow.
    unsafe { read_only(NonNull::from(slice).cast(), slice.len()) }
}
