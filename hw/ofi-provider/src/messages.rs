//! The arguments of calls that send and receive.

use std::ffi::c_void;

use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::memory::Memory;

/// Untagged messages and tagged ones share one order between two endpoints. This bit of a tag tells
/// them apart, so callers have at most the 63 bits below.
pub const UNTAGGED: u64 = 1 << 63;

/// Which messages a receive takes.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// The tag, with [`UNTAGGED`] for untagged messages.
    pub tag: u64,
    /// The bits of the tag that count.
    pub mask: u64,
    /// The address of the source in the endpoint's vector, or `FI_ADDR_UNSPEC`.
    pub source: u64,
}

impl Pattern {
    /// The untagged messages of a source.
    #[inline]
    pub fn untagged(source: u64) -> Self {
        Pattern { tag: UNTAGGED, mask: u64::MAX, source }
    }

    /// Whether it takes untagged messages.
    pub fn is_untagged(&self) -> bool {
        self.tag & UNTAGGED != 0
    }
}

/// A message to send, as a caller gives it.
#[derive(Clone, Copy)]
pub struct Outgoing {
    /// The message's bytes.
    pub pieces: Pieces,
    /// The address in the endpoint's vector.
    pub destination: u64,
    /// The tag, with [`UNTAGGED`] for an untagged message.
    pub tag: u64,
    /// Immediate data, if there is any.
    pub data: Option<u64>,
    /// What the entry tells.
    pub context: *mut c_void,
    /// `FI_TAGGED` or `FI_MSG`.
    pub kind: u64,
    /// The flags of the call; `None`: those of the endpoint.
    pub flags: Option<u64>,
}

impl Outgoing {
    /// A message without immediate data, whose flags are those of the endpoint. It has no tag yet.
    #[inline(always)]
    pub(crate) fn new(pieces: Pieces, destination: u64, context: *mut c_void, kind: u64) -> Self {
        Outgoing { pieces, destination, tag: 0, data: None, context, kind, flags: None }
    }
}

/// A message to inject: there is no entry.
#[derive(Clone, Copy)]
pub struct Injected {
    /// The first byte.
    pub start: *const c_void,
    /// How many bytes there are.
    pub length: usize,
    /// As for [`Outgoing`].
    pub destination: u64,
    /// As for [`Outgoing`].
    pub tag: u64,
    /// As for [`Outgoing`].
    pub data: Option<u64>,
}

/// A receive, as a caller gives it.
#[derive(Clone, Copy)]
pub struct Incoming {
    /// Where the bytes go.
    pub pieces: Pieces,
    /// Which messages it takes.
    pub pattern: Pattern,
    /// What the entry tells.
    pub context: *mut c_void,
    /// `FI_TAGGED` or `FI_MSG`.
    pub kind: u64,
    /// The flags of the call; `None`: those of the endpoint.
    pub flags: Option<u64>,
}

/// The memory of a call: one piece, or several.
#[derive(Clone, Copy)]
pub enum Pieces {
    /// The first byte, and how many there are.
    One(*const c_void, usize),
    /// An array, and its length.
    Several(*const libc::iovec, usize),
}

impl Pieces {
    /// The only piece, or `None` if there are several, at most `MAX`.
    ///
    /// # Errors
    /// There are more, or a pointer is null although there is a length.
    ///
    /// # Safety
    /// The pieces are readable, and writable if `writable`, until the operation's entry has been
    /// read.
    #[inline(always)]
    pub unsafe fn only<const MAX: usize>(self, writable: bool) -> Result<Option<Memory>> {
        let (start, length) = match self {
            Pieces::One(start, length) => (start, length),
            Pieces::Several(_, 0) => (std::ptr::null(), 0),
            Pieces::Several(parts, _) if parts.is_null() => return Err(Errno::INVALID),
            // SAFETY: the caller gives one part.
            Pieces::Several(parts, 1) => unsafe {
                ((*parts).iov_base.cast_const(), (*parts).iov_len)
            },
            Pieces::Several(_, count) if count <= MAX => return Ok(None),
            Pieces::Several(..) => return Err(Errno::INVALID),
        };
        // SAFETY: as the caller promises.
        unsafe { Memory::new(start.cast(), length, writable) }.map(Some)
    }

    /// All pieces. Together they are no longer than a piece can be.
    ///
    /// # Errors
    /// As for [`Pieces::only`].
    ///
    /// # Safety
    /// As for [`Pieces::only`].
    pub unsafe fn all<const MAX: usize>(self, writable: bool) -> Result<Vec<Memory>> {
        // SAFETY: as the caller promises.
        unsafe {
            if let Some(only) = self.only::<MAX>(writable)? {
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
}
