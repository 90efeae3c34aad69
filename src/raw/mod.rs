//! The unsafe layer, for runtimes that manage memory themselves.
//!
//! Everything else in this crate is safe because operations own their buffers. A runtime whose
//! users hand it pointers (as MPI's do) makes buffers out of them here and keeps the promise
//! itself.
//!
//! ```
//! use std::mem::MaybeUninit;
//! use std::ptr::NonNull;
//! use tagmatch::{Config, Match, Worker, raw};
//!
//! let worker = Worker::new(Config::default())?;
//! let mut memory: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(1000);
//! let start = NonNull::from(&mut *memory).cast();
//! // SAFETY: `memory` is used again only when the receive has ended.
//! let buffer = unsafe { raw::buffer(start, memory.len()) };
//! let receive = worker.recv(Match::tag(1), buffer);
//! worker.inject(worker.oneself(), 1, b"ping")?;
//! let received = receive.wait()?;
//! assert_eq!(received.data(), b"ping");
//! // The other 996 bytes are as they were: never written.
//! drop(memory);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(unsafe_code, reason = "the one unsafe module of this crate")]

mod scope;

use std::ptr::NonNull;

use tagmatch_device::{Buffer, DeviceError, RawMemory};
use tagmatch_fallback::{NamedRegion, RegionKey, Rights};

use crate::access::Access;
use crate::error::Error;
use crate::region::Region;
use crate::worker::WorkerOf;

pub use scope::{Scope, ScopedRequest};
pub use tagmatch_device::Registered;

/// Memory at a pointer, for receiving or sending. Nothing is copied: a message is written to the
/// memory itself, and a send reads it there. Allocates nothing.
///
/// # Safety
/// From this call until the operation is over, for the `length` bytes at `start`:
/// 1. The bytes stay allocated: they are not freed, unmapped, or mapped anew.
/// 2. Nothing else reads or writes the bytes. An operation on another part of the same allocation
///    is allowed.
/// 3. Any thread may read and write the bytes, since any thread may make progress.
///
/// The operation is over when its result has been taken: the request's, or the end in the
/// completion queue, with success or with an error. If the request was dropped or leaked without
/// that, the operation is over when the worker is dropped and every other request of it is gone;
/// over UCX and libfabric, which can fail to end an operation, only when the process ends. A buffer
/// that was handed to no operation is no longer used when it is dropped.
///
/// For a send, all bytes are initialised. For a receive they needn't be, unless
/// `shm::SenderWrites::AllBuffers` lets senders write there: a sender that lies about what it has
/// written leaves bytes as they were. A message writes its own bytes and leaves the rest as it was.
/// So after a receive:
/// - [`Received::data`](crate::Received::data) is always right: it has exactly the bytes that the
///   message has written.
/// - The whole buffer (as a slice, by `into_vec` or `clone`) may be read only if all its bytes were
///   initialised before, or the message has filled it.
/// - After a receive that failed or was cancelled, only bytes may be read that were initialised
///   before. A failed receive may have written some of them.
///
/// `start` points to anything if `length` is 0. `length` is at most `isize::MAX`, and the last byte
/// is no further than the end of the address space.
pub unsafe fn buffer(start: NonNull<u8>, length: usize) -> Buffer {
    // SAFETY: the caller's promise is the one that is asked for.
    unsafe { Buffer::from_raw(start, length, true) }
}

/// Memory at a pointer, for sending only.
///
/// # Safety
/// As for [`buffer`], except that others may read the bytes. All bytes are initialised.
pub unsafe fn read_only(start: NonNull<u8>, length: usize) -> Buffer {
    // SAFETY: the caller's promise is the one that is asked for.
    unsafe { Buffer::from_raw(start, length, false) }
}

/// Registers memory at a pointer with the worker's device, once for all operations on its parts: a
/// large message to or from a part then needs no registration of its own, which costs system calls.
/// For memory that is used for many large messages. Blocks while the kernel locks the pages.
///
/// [`Registered::buffer`] and [`Registered::read_only`] make buffers of parts; several of them may
/// be under way at once. The memory is unregistered when the last clone of the handle and the last
/// buffer are gone, on whatever thread, also after the worker. It stays locked until then, and
/// counts against the limit on locked memory.
///
/// | device | what is registered |
/// |---|---|
/// | shared memory, TCP, libfabric | nothing: no operation needs it |
/// | verbs | the whole memory, for the NIC to write, and for peers to read. **A peer that was sent a large message from a part can read all of the memory until it is unregistered** |
/// | UCX | the whole memory, by `ucp_mem_map`; each operation names the handle, which not all of UCX's protocols use. Unregistered at the worker's next progress, or after the worker at once |
/// | the model of a NIC | what the device below it registers |
///
/// A buffer may also be passed to another worker, to which it is like that of [`buffer`].
///
/// ```
/// use std::ptr::NonNull;
/// use tagmatch::{Config, Match, Worker, raw};
///
/// const PART: usize = 1 << 20;
/// let worker = Worker::new(Config::default())?;
/// let mut memory = vec![7u8; 2 * PART];
/// let start = NonNull::from(&mut *memory).cast();
/// // SAFETY: `memory` is freed after `registered` and its buffers.
/// let registered = unsafe { raw::register(&worker, start, memory.len()) }?;
/// // SAFETY: the parts don't overlap, and `memory` is not used while they are under way.
/// let (inbox, message) = unsafe { (registered.buffer(0..PART), registered.read_only(PART..2 * PART)) };
/// let receive = worker.recv(Match::tag(1), inbox.expect("inside"));
/// let send = worker.send(worker.oneself(), 1, message.expect("inside"));
/// assert_eq!(receive.wait()?.data(), [7; PART]);
/// send.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The device can't register the memory: the limit on locked memory is too low, or not all of the
/// memory exists and is writable. Or `length` is 0, or more than the address space has.
///
/// # Safety
/// From this call until the handle, its clones and their buffers are gone, the `length` bytes at
/// `start` stay allocated, and any thread may use them. They need not be initialised. Other uses of
/// the memory are up to the promises that are made for each part.
pub unsafe fn register<A: Access>(
    worker: &WorkerOf<A>,
    start: NonNull<u8>,
    length: usize,
) -> Result<Registered, Error> {
    // SAFETY: the caller's promise is the one that is asked for.
    let memory = unsafe { RawMemory::new(start, length) };
    let why = "there are no bytes, or they reach beyond the end of the address space";
    let memory = memory.ok_or(DeviceError::BadBuffer { why })?;
    Ok(worker.access.with(|state| state.engine.as_dyn_mut().register(memory))?)
}

/// How peers name a region at a pointer, and what they may do to it.
#[derive(Clone, Copy, Debug)]
pub struct RegionName {
    /// The region's key. Any peer that names it may use the region.
    pub key: u64,
    /// What peers call the place of the first byte: 0, or the memory's address.
    pub base: u64,
    /// What peers may do. An atomic operation needs the right to read if it gives old values back,
    /// and the right to write if it may change them.
    pub rights: Rights,
    /// Whether the owner counts what peers do. Then they do all of it by messages.
    #[doc(hidden)]
    pub is_counted: bool,
}

/// Exposes memory at a pointer to one-sided operations of peers, under a key that the caller has
/// chosen, for interfaces whose regions have such keys (libfabric).
///
/// # Errors
/// The worker has a region with this key, the device has no one-sided operations, or the memory is
/// longer than `isize::MAX`: a worker carries operations out by its own processor, so a region
/// can't be all that there is, with pages that don't exist.
///
/// # Safety
/// From this call until [`close`] returns `Ok` or the region is dropped, for the `length` bytes at
/// `start`:
/// 1. The bytes are initialised and stay allocated, and can be written if the rights are to write.
/// 2. Nothing else uses bytes while an operation of a peer changes them, or changes bytes while one
///    reads them. Operations are carried out while this worker makes progress, and over shared
///    memory at any time: peers read and write the memory by the kernel.
/// 3. Any thread may read and write the bytes, since any thread may make progress.
pub unsafe fn expose<A: Access>(
    worker: &WorkerOf<A>,
    start: NonNull<u8>,
    length: usize,
    name: RegionName,
) -> Result<Region<A>, Error> {
    let RegionName { key, base, rights, is_counted } = name;
    let end = (start.as_ptr() as usize).checked_add(length);
    if end.is_none() || length > isize::MAX as usize {
        return Err(DeviceError::BadBuffer { why: "a region is longer than memory can be" }.into());
    }
    // SAFETY: the caller's promise, until the region is closed and the worker drops the buffer.
    let memory = unsafe { Buffer::from_raw(start, length, rights.contains(Rights::WRITE)) };
    let region = NamedRegion { key: RegionKey(key), base, rights, is_counted };
    let exposed =
        worker.access.with(|state| state.engine.as_dyn_mut().expose_named(memory, region));
    match exposed {
        Ok(()) => Ok(Region::named(&worker.access, region, length)),
        Err((_, fault)) => Err(Error::Operation(fault)),
    }
}

/// Closes a region of [`expose`]: from now on no operation of a peer begins there. Waits for peers
/// that are in the middle of a put over shared memory, mostly for some microseconds. Dropping the
/// region does the same, and waits without a limit.
///
/// # Errors
/// Gives the region back after a tenth of a second: a peer that is stopped in the middle (by a
/// debugger, for one) may still write into the memory. A later call looks again. The end of the
/// peer's process ends its write, too.
pub fn close<A: Access>(mut region: Region<A>) -> Result<(), Region<A>> {
    if region.try_close() { Ok(()) } else { Err(region) }
}

/// Room for one more entry of a list.
pub(crate) struct PlaceAtEnd<'a, T>(&'a mut Vec<T>);

/// Makes room for one more entry. Unlike [`Vec::push`], this is done before the entry is made, so
/// that it is written where it is to be: a copy of an end takes longer than to make it.
#[inline(always)]
pub(crate) fn place_at_end<T>(list: &mut Vec<T>) -> PlaceAtEnd<'_, T> {
    if list.len() == list.capacity() {
        make_room(list);
    }
    PlaceAtEnd(list)
}

impl<T> PlaceAtEnd<'_, T> {
    /// Adds the entry.
    #[inline(always)]
    pub(crate) fn put(self, entry: T) {
        let PlaceAtEnd(list) = self;
        let length = list.len();
        // SAFETY: `place_at_end` has made room for one more entry, and has kept the list borrowed
        // since then; only initialised entries count.
        unsafe {
            list.as_mut_ptr().add(length).write(entry);
            list.set_len(length + 1);
        }
    }
}

#[cold]
#[inline(never)]
fn make_room<T>(list: &mut Vec<T>) {
    list.reserve(1);
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
