//! libfabric's calls for a provider's objects: as safe as they can be made.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;

use tagmatch_ofi_sys as sys;

use super::carrier::{TagBits, Wire};
use super::objects::{Endpoint, NAME_MAX, call};

/// Completions that are read at a time.
const BATCH: usize = 16;

/// Memory of an operation that libfabric uses until the operation ends. It never moves.
#[repr(C)]
pub struct OperationContext {
    /// First, so that its address is the context's.
    memory: UnsafeCell<sys::fi_context2>,
    /// The buffer of a call that takes a list of buffers, which some providers read later.
    buffers: UnsafeCell<libc::iovec>,
    /// The slot of the operation.
    pub(super) index: u32,
}

impl OperationContext {
    pub(super) fn new(index: u32) -> Self {
        let buffers = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        OperationContext {
            memory: UnsafeCell::new(sys::fi_context2::zeroed()),
            buffers: UnsafeCell::new(buffers),
            index,
        }
    }

    /// How libfabric names it.
    pub(super) fn place(&self) -> *mut c_void {
        self.memory.get().cast()
    }
}

/// Which endpoint something goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lane {
    /// That for messages.
    #[default]
    Messages,
    /// That for this device's own packets, where they have one.
    Packets,
}

/// Where something goes, or comes from.
#[derive(Clone, Copy)]
pub(super) struct LaneAddress {
    pub(super) address: sys::fi_addr_t,
    pub(super) lane: Lane,
}

impl LaneAddress {
    /// An address among messages.
    pub(super) fn messages(address: sys::fi_addr_t) -> Self {
        LaneAddress { address, lane: Lane::Messages }
    }

    /// An address among this device's own packets.
    pub(super) fn packets(address: sys::fi_addr_t) -> Self {
        LaneAddress { address, lane: Lane::Packets }
    }
}

/// The memory of an operation. What is sent from is not written to.
#[derive(Clone, Copy)]
pub(super) struct MemorySpan {
    pub(super) start: *mut u8,
    pub(super) length: usize,
}

/// What is sent.
#[derive(Clone, Copy)]
pub(super) struct TaggedMessage {
    pub(super) to: LaneAddress,
    pub(super) bytes: MemorySpan,
    pub(super) wire: Wire,
}

/// Result of a call that begins an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// libfabric has it.
    Yes,
    /// It has no room now.
    Again,
    /// It refuses, with this error number.
    Failed(i32),
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    /// The slot of the operation.
    pub(super) index: u32,
    /// 0, or the error number.
    pub(super) errno: i32,
    /// Bytes of the message, or of its part that had room.
    pub(super) length: usize,
    /// Bytes beyond the room, if the provider tells.
    pub(super) beyond: usize,
    pub(super) tag: u64,
    pub(super) data: u64,
}

/// The completions of one read of the queue.
pub(super) struct CompletionBatch {
    entries: [MaybeUninit<sys::fi_cq_tagged_entry>; BATCH],
    /// The entries that the provider has written, from the first on.
    count: usize,
    failed: Option<Completion>,
}

impl CompletionBatch {
    /// Nothing has ended.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.failed.is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Completion> {
        let ended = self.entries[..self.count].iter().map(|entry| {
            // SAFETY: the provider has written so many entries, each with the context of an
            // operation of this device.
            let (entry, index) = unsafe {
                let entry = entry.assume_init_ref();
                (entry, index_of(entry.op_context))
            };
            let length = entry.len;
            let tag = entry.tag;
            let data = entry.data;
            Completion { index, errno: 0, length, beyond: 0, tag, data }
        });
        ended.chain(self.failed)
    }
}

impl Endpoint {
    /// The names of the endpoints in the provider's form: one or two.
    pub(super) fn names(&self) -> [&[u8]; 2] {
        [&self.names[0], &self.names[1]]
    }

    /// Whether there is an endpoint for this device's own packets.
    pub(super) fn has_side(&self) -> bool {
        !self.eps[1].is_null()
    }

    /// The lanes that have an endpoint of their own.
    pub(super) fn lanes(&self) -> &'static [Lane] {
        if self.has_side() { &[Lane::Messages, Lane::Packets] } else { &[Lane::Messages] }
    }

    #[inline]
    fn of_lane(&self, lane: Lane) -> *mut sys::fid_ep {
        if lane == Lane::Packets && self.has_side() { self.eps[1] } else { self.eps[0] }
    }

    /// Whether bytes can be the name of an endpoint of the same provider: as long as ours, or a
    /// text that ends where they do.
    pub(super) fn is_name(&self, name: &[u8]) -> bool {
        match name.split_last() {
            Some((last, text)) if self.is_text => *last == 0 && !text.contains(&0),
            Some(_) => name.len() == self.names[0].len(),
            None => false,
        }
    }

    /// The address by which this provider reaches the endpoint with this name, which
    /// [`Endpoint::is_name`] has approved.
    pub(super) fn insert(&self, name: &[u8]) -> Option<sys::fi_addr_t> {
        let mut padded = name.to_vec();
        padded.resize(NAME_MAX.max(name.len()), 0);
        let mut address = sys::FI_ADDR_NOTAVAIL;
        // SAFETY: an open address vector, and one name, which is at least as long as the provider's
        // names are, or a text that ends with zero.
        let count = unsafe {
            let name = padded.as_ptr().cast();
            let null = ptr::null_mut();
            call!((*self.av).ops, insert(self.av, name, 1, &raw mut address, 0, null))
        };
        (count == 1 && address != sys::FI_ADDR_NOTAVAIL).then_some(address)
    }

    /// Readable when there is something to do, after [`Endpoint::arm`].
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the queue's descriptor, which lives as long as the queue.
        self.wakeup.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Asks that the descriptor become readable at the next completion; `false` if there may be one
    /// already.
    pub(super) fn arm(&self) -> bool {
        // SAFETY: open objects; a list of one.
        unsafe {
            let mut list = [&raw mut (*self.cq).fid];
            call!((*self.fabric).ops, trywait(self.fabric, list.as_mut_ptr(), 1)) == 0
        }
    }

    /// Begins a send. The bytes and the context stay until it has ended.
    ///
    /// # Safety
    /// The bytes can be read, and stay as they are, until the operation has ended or the endpoint
    /// is gone; the context stays as long, and no other operation has it.
    #[inline]
    pub(super) unsafe fn send(&self, message: TaggedMessage, context: &OperationContext) -> Begun {
        let TaggedMessage { to: LaneAddress { address, lane }, bytes, wire: Wire { tag, data } } =
            message;
        let context = context.place();
        let ep = self.of_lane(lane);
        let start = bytes.start.cast_const().cast();
        let none = ptr::null_mut();
        // SAFETY: an open endpoint, and by the caller.
        begun(unsafe {
            call!(
                &raw const self.tagged,
                senddata(ep, start, bytes.length, none, data, address, tag, context)
            )
        })
    }

    /// The same, complete once the message was matched, or once it is in its receiver's buffer.
    /// Only where the provider was asked for these levels and has them.
    ///
    /// # Safety
    /// Those of [`Endpoint::send`].
    pub(super) unsafe fn send_until(
        &self,
        level: u64,
        sent: TaggedMessage,
        context: &OperationContext,
    ) -> Begun {
        let iov = libc::iovec { iov_base: sent.bytes.start.cast(), iov_len: sent.bytes.length };
        let Wire { tag, data } = sent.wire;
        let mut message = sys::fi_msg_tagged::zeroed();
        (message.addr, message.tag, message.data) = (sent.to.address, tag, data);
        message.context = context.place();
        // SAFETY: an open endpoint, and by the caller. The context is no other operation's, so
        // nobody reads its list of buffers.
        begun(unsafe {
            *context.buffers.get() = iov;
            (message.msg_iov, message.iov_count) = (context.buffers.get(), 1);
            let flags = sys::FI_COMPLETION | sys::FI_REMOTE_CQ_DATA | level;
            call!(&raw const self.tagged, sendmsg(self.eps[0], &raw const message, flags))
        })
    }

    /// Sends a copy of the bytes, of which there are no more than the provider's `inject_size`. No
    /// completion follows.
    #[inline]
    pub(super) fn inject(&self, to: LaneAddress, bytes: &[u8], Wire { tag, data }: Wire) -> Begun {
        let LaneAddress { address, lane } = to;
        let start = bytes.as_ptr().cast();
        let ep = self.of_lane(lane);
        // SAFETY: an open endpoint; the bytes live through the call, which copies them.
        begun(unsafe {
            call!(&raw const self.tagged, injectdata(ep, start, bytes.len(), data, address, tag))
        })
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The memory can be written until the operation has ended or the endpoint is gone, and nobody
    /// reads it meanwhile; the context stays as long, and no other operation has it.
    #[inline]
    pub(super) unsafe fn receive(
        &self,
        from: LaneAddress,
        memory: MemorySpan,
        TagBits { tag, ignored }: TagBits,
        context: &OperationContext,
    ) -> Begun {
        let LaneAddress { address, lane } = from;
        let context = context.place();
        let ep = self.of_lane(lane);
        let start = memory.start.cast();
        let none = ptr::null_mut();
        // SAFETY: an open endpoint, and by the caller.
        begun(unsafe {
            call!(
                &raw const self.tagged,
                recv(ep, start, memory.length, none, address, tag, ignored, context)
            )
        })
    }

    /// Looks for a message, and takes it if `claims`. A completion with the context tells what was
    /// found; without a message it has the error `FI_ENOMSG`.
    ///
    /// # Safety
    /// The context stays until the operation has ended, and if it has claimed a message, until that
    /// was received. No other operation has it.
    pub(super) unsafe fn look(
        &self,
        from: sys::fi_addr_t,
        TagBits { tag, ignored }: TagBits,
        claims: bool,
        context: &OperationContext,
    ) -> Begun {
        let mut message = sys::fi_msg_tagged::zeroed();
        (message.addr, message.tag, message.ignore) = (from, tag, ignored);
        message.context = context.place();
        let flags = sys::FI_PEEK | if claims { sys::FI_CLAIM } else { 0 };
        // SAFETY: an open endpoint; no buffers; and by the caller.
        begun(unsafe {
            call!(&raw const self.tagged, recvmsg(self.eps[0], &raw const message, flags))
        })
    }

    /// Receives the message that [`Endpoint::look`] has claimed with this context; `tag` is the
    /// message's own.
    ///
    /// # Safety
    /// Those of [`Endpoint::receive`].
    pub(super) unsafe fn receive_claimed(
        &self,
        from: sys::fi_addr_t,
        memory: MemorySpan,
        tag: u64,
        context: &OperationContext,
    ) -> Begun {
        let iov = libc::iovec { iov_base: memory.start.cast(), iov_len: memory.length };
        let mut message = sys::fi_msg_tagged::zeroed();
        (message.addr, message.tag) = (from, tag);
        message.context = context.place();
        // SAFETY: an open endpoint, and by the caller. Nobody reads the context's list of buffers.
        begun(unsafe {
            *context.buffers.get() = iov;
            (message.msg_iov, message.iov_count) = (context.buffers.get(), 1);
            call!(&raw const self.tagged, recvmsg(self.eps[0], &raw const message, sys::FI_CLAIM))
        })
    }

    /// Asks that an operation be cancelled. A completion tells whether it was; the call's own
    /// answer means something else in each provider.
    pub(super) fn cancel(&self, lane: Lane, context: &OperationContext) {
        let ep = self.of_lane(lane);
        // SAFETY: an open endpoint, and the context of an operation that libfabric has, or had.
        unsafe {
            let fid = &raw mut (*ep).fid;
            let _ = call!((*ep).ops, cancel(fid, context.place()));
        }
    }

    /// Makes progress, and reads what has ended.
    #[inline]
    pub(super) fn read(&self) -> CompletionBatch {
        let mut batch =
            CompletionBatch { entries: [MaybeUninit::uninit(); BATCH], count: 0, failed: None };
        let entries = batch.entries.as_mut_ptr().cast();
        // SAFETY: an open queue of this format, and room for so many entries.
        let count = unsafe { (self.read)(self.cq, entries, BATCH) };
        match usize::try_from(count) {
            Ok(count) => batch.count = count.min(BATCH),
            Err(_) if count == -(sys::FI_EAVAIL as isize) => batch.failed = self.read_error(),
            // Nothing has ended, or the queue itself has failed: the handshake's connections tell
            // of peers.
            Err(_) => {}
        }
        batch
    }

    #[cold]
    fn read_error(&self) -> Option<Completion> {
        // The longer one of later versions; a provider writes what the version has that was asked
        // for. No memory is offered for more about the error.
        let mut entry = sys::fi_cq_err_entry_2 {
            common: sys::fi_cq_err_entry::zeroed(),
            src_addr: sys::FI_ADDR_NOTAVAIL,
        };
        // SAFETY: an open queue, and a zeroed entry.
        let count = unsafe { call!((*self.cq).ops, readerr(self.cq, (&raw mut entry).cast(), 0)) };
        let entry = entry.common;
        if count != 1 || entry.op_context.is_null() {
            return None;
        }
        // SAFETY: the context of an operation of this device.
        let index = unsafe { index_of(entry.op_context) };
        // Some providers give the negative number.
        let errno = if entry.err == 0 { sys::FI_EOTHER } else { entry.err.saturating_abs() };
        let length = entry.len;
        let beyond = entry.olen;
        Some(Completion { index, errno, length, beyond, tag: entry.tag, data: entry.data })
    }
}

/// # Safety
/// The context of an operation of this device.
#[inline]
unsafe fn index_of(context: *mut c_void) -> u32 {
    // SAFETY: by the caller; the context's memory is the first field.
    unsafe { (*context.cast::<OperationContext>()).index }
}

pub(super) fn begun(answer: isize) -> Begun {
    match i32::try_from(answer) {
        Ok(0) => Begun::Yes,
        Ok(again) if again == -sys::FI_EAGAIN => Begun::Again,
        Ok(errno) => Begun::Failed(errno.saturating_neg()),
        Err(_) => Begun::Failed(sys::FI_EOTHER),
    }
}
