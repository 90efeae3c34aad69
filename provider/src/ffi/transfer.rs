//! What sends and receives, tagged and untagged, have in common.

use std::ffi::c_void;

use tagmatch::Buffer;
use tagmatch_ofi_sys as sys;

use super::entry::{enter_at_once, refuse};
use super::handle::with_endpoint;
use crate::errno::{Errno, Result};
use crate::info::{INJECT_MAX, PARTS_MAX};
use crate::memory::Memory;
use crate::state::{Endpoint, Pattern, Receive, Send, Sinks};

/// Flags that a call to send may have.
const SEND_FLAGS: u64 = sys::FI_MORE
    | sys::FI_COMPLETION
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE
    | sys::FI_MATCH_COMPLETE
    | sys::FI_REMOTE_CQ_DATA;

/// The memory of a call: one piece, or several.
#[derive(Clone, Copy)]
pub(crate) enum Pieces {
    One(*const c_void, usize),
    Several(*const libc::iovec, usize),
}

impl Pieces {
    /// The only piece, or `None` if there are several.
    ///
    /// # Safety
    /// The pieces are readable, and writable if `writable`, until the operation's entry has been
    /// read.
    #[inline]
    unsafe fn only(self, writable: bool) -> Result<Option<Memory>> {
        let (start, length) = match self {
            Pieces::One(start, length) => (start, length),
            Pieces::Several(_, 0) => (std::ptr::null(), 0),
            Pieces::Several(parts, _) if parts.is_null() => return Err(Errno::INVALID),
            // SAFETY: the caller gives one part.
            Pieces::Several(parts, 1) => unsafe {
                ((*parts).iov_base.cast_const(), (*parts).iov_len)
            },
            Pieces::Several(_, 2..=PARTS_MAX) => return Ok(None),
            Pieces::Several(..) => return Err(Errno::INVALID),
        };
        // SAFETY: as the caller promises.
        unsafe { Memory::new(start.cast(), length, writable) }.map(Some)
    }

    /// All pieces. Together they are no longer than a piece can be.
    ///
    /// # Safety
    /// As for [`Pieces::only`].
    unsafe fn all(self, writable: bool) -> Result<Vec<Memory>> {
        // SAFETY: as the caller promises.
        unsafe {
            if let Some(only) = self.only(writable)? {
                return Ok(vec![only]);
            }
            let Pieces::Several(parts, count) = self else { return Err(Errno::INVALID) };
            let parts = std::slice::from_raw_parts(parts, count);
            let part = |part: &libc::iovec| {
                Memory::new(part.iov_base.cast_const().cast(), part.iov_len, writable)
            };
            let all: Vec<Memory> = parts.iter().map(part).collect::<Result<_>>()?;
            let length = all.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.len()));
            match length {
                Some(length) if length <= isize::MAX as usize => Ok(all),
                _ => Err(Errno::INVALID),
            }
        }
    }

    /// The first byte's place, and a buffer of all pieces.
    ///
    /// # Safety
    /// As for [`Pieces::only`].
    unsafe fn buffer(self, writable: bool) -> Result<(usize, Buffer)> {
        // SAFETY: as the caller promises.
        unsafe {
            match self.only(writable)? {
                Some(memory) => Ok((memory.start(), memory.buffer())),
                None => {
                    let all = self.all(writable)?;
                    let start = all.first().map_or(0, Memory::start);
                    Ok((start, Buffer::from_slices(all.into_iter().map(Memory::buffer))))
                }
            }
        }
    }

    /// A copy of the bytes.
    ///
    /// # Safety
    /// As for [`Pieces::only`].
    unsafe fn copy(self) -> Result<Buffer> {
        // SAFETY: as the caller promises.
        unsafe {
            let all = self.all(false)?;
            if all.iter().map(Memory::len).sum::<usize>() > INJECT_MAX {
                return Err(Errno::TOO_LONG);
            }
            Ok(all.iter().map(|piece| piece.bytes()).collect::<Vec<_>>().concat().into())
        }
    }
}

/// A message to send, as a caller gives it.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing {
    pub(crate) pieces: Pieces,
    pub(crate) destination: u64,
    /// The worker's tag.
    pub(crate) tag: u64,
    /// Immediate data, if there is any.
    pub(crate) data: Option<u64>,
    pub(crate) context: *mut c_void,
    /// `FI_TAGGED` or `FI_MSG`.
    pub(crate) kind: u64,
    /// The flags of the call; `None`: those of the endpoint.
    pub(crate) flags: Option<u64>,
}

/// 32 bits of immediate data travel with a message (`cq_data_size`); a caller has no more.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the rest is cut off, as fi_msg(3) says")]
fn immediate(data: Option<u64>) -> Option<u32> {
    data.map(|data| data as u32)
}

/// Sends a message.
///
/// # Safety
/// `endpoint` is an endpoint, and the caller keeps the promises of fi_msg(3).
#[inline]
pub(crate) unsafe fn send(endpoint: *mut sys::fid_ep, message: Outgoing) -> isize {
    if message.flags.is_some_and(|flags| flags & !SEND_FLAGS != 0) {
        return refuse(Errno::BAD_FLAGS);
    }
    // SAFETY: the caller's promise.
    enter_at_once(|| unsafe {
        with_endpoint(endpoint, |endpoint, sinks| {
            if let Some(memory) = message.pieces.only(false)?
                && memory.len() <= INJECT_MAX
                && endpoint.send_short(sinks, &message.send(endpoint), memory.bytes())?
            {
                return Ok(());
            }
            message.post(endpoint, sinks)
        })
    })
}

impl Outgoing {
    #[inline(always)]
    fn send(&self, endpoint: &Endpoint) -> Send {
        Send {
            destination: self.destination,
            tag: self.tag,
            immediate: immediate(self.data),
            context: self.context as usize,
            kind: sys::FI_SEND | self.kind,
            flags: self.flags.unwrap_or(endpoint.opened.send_flags),
        }
    }

    /// Begins to send a message that can't leave at once.
    ///
    /// # Safety
    /// The caller keeps the promises of fi_msg(3).
    #[cold]
    #[inline(never)]
    unsafe fn post(&self, endpoint: &mut Endpoint, sinks: &mut Sinks<'_>) -> Result<()> {
        let send = self.send(endpoint);
        // SAFETY: the caller's promise.
        let buffer = unsafe {
            match send.flags & sys::FI_INJECT {
                0 => self.pieces.buffer(false)?.1,
                _ => self.pieces.copy()?,
            }
        };
        endpoint.send(sinks, &send, buffer)
    }
}

/// Sends a copy of a message; there is no entry.
///
/// # Safety
/// As for [`send`].
#[inline]
pub(crate) unsafe fn inject(
    endpoint: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    destination: u64,
    tag: u64,
    data: Option<u64>,
) -> isize {
    if length > INJECT_MAX {
        return refuse(Errno::TOO_LONG);
    }
    // SAFETY: the caller's promise. The bytes are copied before the call ends.
    enter_at_once(|| unsafe {
        let memory = Memory::new(start.cast(), length, false)?;
        with_endpoint(endpoint, |endpoint, sinks| {
            endpoint.inject(sinks, memory.bytes(), destination, tag, immediate(data))
        })
    })
}

/// A receive, as a caller gives it.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) pieces: Pieces,
    pub(crate) pattern: Pattern,
    pub(crate) context: *mut c_void,
    /// `FI_TAGGED` or `FI_MSG`.
    pub(crate) kind: u64,
    /// The flags of the call; `None`: those of the endpoint.
    pub(crate) flags: Option<u64>,
}

impl Incoming {
    fn receive(&self, start: usize, room: usize, tells: bool) -> Receive {
        let kind = sys::FI_RECV | self.kind;
        Receive { context: self.context as usize, kind, start, room, tells, multi: None }
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The caller keeps the promises of fi_msg(3).
    #[inline(always)]
    pub(crate) unsafe fn post(&self, endpoint: &mut Endpoint, sinks: &mut Sinks<'_>) -> Result<()> {
        let tells = endpoint.receive_tells(self.flags.unwrap_or(endpoint.opened.receive_flags));
        // SAFETY: the caller's promise.
        match unsafe { self.pieces.only(true)? } {
            Some(memory) => {
                let receive = self.receive(memory.start(), memory.len(), tells);
                endpoint.post(sinks, self.pattern, memory.buffer(), receive)
            }
            // SAFETY: the caller's promise.
            None => unsafe { self.post_several(endpoint, sinks, tells) },
        }
    }

    /// Posts a receive into several pieces.
    ///
    /// # Safety
    /// The caller keeps the promises of fi_msg(3).
    #[cold]
    #[inline(never)]
    unsafe fn post_several(
        &self,
        endpoint: &mut Endpoint,
        sinks: &mut Sinks<'_>,
        tells: bool,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        let (start, buffer) = unsafe { self.pieces.buffer(true)? };
        let receive = self.receive(start, buffer.total_len(), tells);
        endpoint.post(sinks, self.pattern, buffer, receive)
    }

    /// Posts a multi-receive buffer.
    ///
    /// # Safety
    /// The caller keeps the promises of fi_msg(3).
    pub(crate) unsafe fn post_multi(
        self,
        endpoint: &mut Endpoint,
        sinks: &mut Sinks<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        let memory = unsafe { self.pieces.only(true)?.ok_or(Errno::INVALID)? };
        let tells = endpoint.receive_tells(self.flags.unwrap_or(endpoint.opened.receive_flags));
        let receive = self.receive(memory.start(), memory.len(), tells);
        endpoint.post_multi(sinks, self.pattern.source, memory, receive)
    }

    /// Looks for a message that waits.
    pub(crate) fn peek(self, endpoint: &mut Endpoint, sinks: &mut Sinks<'_>) -> Result<()> {
        let receive = self.receive(0, 0, true);
        endpoint.peek(sinks, self.pattern, receive, self.flags.unwrap_or(0))
    }

    /// Receives, or drops, a message that was claimed with this context.
    ///
    /// # Safety
    /// The caller keeps the promises of fi_tagged(3).
    pub(crate) unsafe fn claim(self, endpoint: &mut Endpoint, sinks: &mut Sinks<'_>) -> Result<()> {
        let flags = self.flags.unwrap_or(0);
        let tells = endpoint.receive_tells(flags);
        let (start, buffer) = if flags & sys::FI_DISCARD != 0 {
            (0, Buffer::default())
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.pieces.buffer(true)? }
        };
        let receive = self.receive(start, buffer.total_len(), tells);
        endpoint.receive_claimed(sinks, buffer, receive, flags)
    }
}
