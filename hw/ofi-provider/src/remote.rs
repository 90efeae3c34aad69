//! The arguments of calls for one-sided operations.

use std::ffi::c_void;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::memory::Memory;

/// A context, or the description of a memory region: a word that is never followed.
pub(crate) type Word = *mut c_void;

/// Most pieces of memory of one operation.
pub const REMOTE_PARTS_MAX: usize = 4;

/// Flags that each call for a one-sided operation may have.
pub(crate) const CALL_FLAGS: u64 = sys::FI_MORE
    | sys::FI_COMPLETION
    | sys::FI_FENCE
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE;

/// Bytes of a peer.
#[derive(Clone, Copy, Debug)]
pub struct RemotePlace {
    /// The region's key.
    pub key: u64,
    /// Where in the region they begin, as the region's owner counts.
    pub address: u64,
    /// How many there are. Of the only place of a call this means nothing.
    pub length: usize,
}

/// Whose memory an operation uses, and what its entry tells.
#[derive(Clone, Debug)]
pub struct RemoteCall {
    /// The peer's address in the endpoint's vector.
    pub peer: u64,
    /// The first place.
    pub place: RemotePlace,
    /// The places of what is behind that, at most [`REMOTE_PARTS_MAX`] less one.
    pub more: Vec<RemotePlace>,
    /// What the entry tells.
    pub context: usize,
    /// The flags of the call; `None`: those of the endpoint.
    pub flags: Option<u64>,
    /// The call has no entry, and its memory may be used again at once.
    pub is_injected: bool,
}

impl RemoteCall {
    /// A call whose flags are those of the endpoint.
    pub(crate) fn new(peer: u64, address: u64, key: u64, context: *mut c_void) -> Self {
        let place = RemotePlace { key, address, length: 0 };
        let context = context as usize;
        RemoteCall { peer, place, more: Vec::new(), context, flags: None, is_injected: false }
    }

    /// A call with these flags on these places. Gives how long they are together.
    ///
    /// # Errors
    /// There is none, or there are too many, or they are longer than there can be.
    pub(crate) fn on_places(
        peer: u64,
        places: &[RemotePlace],
        context: *mut c_void,
        flags: u64,
    ) -> Result<(Self, usize)> {
        let [place, more @ ..] = places else { return Err(Errno::INVALID) };
        let total = places.iter().try_fold(0usize, |sum, place| sum.checked_add(place.length));
        let call = RemoteCall::new(peer, 0, 0, context);
        let call = RemoteCall { place: *place, more: more.to_vec(), flags: Some(flags), ..call };
        Ok((call, total.ok_or(Errno::INVALID)?))
    }

    /// A call without an entry, whose memory may be used again at once.
    pub(crate) fn injected(peer: u64, address: u64, key: u64) -> Self {
        let call = RemoteCall::new(peer, address, key, std::ptr::null_mut());
        RemoteCall { is_injected: true, ..call }
    }
}

/// What a one-sided operation does.
#[derive(Clone, Debug)]
pub enum RemoteUse {
    /// Reads bytes of the peer into this memory.
    Read(Vec<Memory>),
    /// Writes the bytes, and tells the peer the data if there are any.
    Write(Vec<Memory>, Option<u64>),
    /// Changes elements.
    Atomic(RemoteAtomic),
}

/// An atomic operation.
#[derive(Clone, Debug)]
pub struct RemoteAtomic {
    /// The operation and the type, which have each other in this form.
    pub op: sys::fi_op,
    /// The type of the elements.
    pub datatype: sys::fi_datatype,
    /// The operands of all elements.
    pub operands: Vec<Memory>,
    /// The values to compare with.
    pub compare: Vec<Memory>,
    /// Where the old values go, if they are wanted.
    pub old: Option<Vec<Memory>>,
}

/// The forms of atomic operations, which have functions of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicForm {
    /// `fi_atomic`
    Base,
    /// `fi_fetch_atomic`
    Fetch,
    /// `fi_compare_atomic`
    Compare,
}

/// What a provider can do with elements of a type.
#[derive(Clone, Copy, Debug)]
pub struct AtomicLimits {
    /// Bytes of an element.
    pub size: usize,
    /// Most elements of one operation.
    pub count: usize,
}

/// A memory region that peers may use.
#[derive(Clone, Copy, Debug)]
pub struct SharedRegion {
    /// The memory. It can be written if peers may write it.
    pub memory: Memory,
    /// The region's key.
    pub key: u64,
    /// What peers call the place of the first byte.
    pub base: u64,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE` or both.
    pub access: u64,
}

/// An array of C that names places of a peer.
///
/// # Errors
/// There is none, or it is too long.
///
/// # Safety
/// The array has so many entries, or is null.
pub(crate) unsafe fn places_of<T>(
    array: *const T,
    count: usize,
    place: impl Fn(&T) -> RemotePlace,
) -> Result<Vec<RemotePlace>> {
    if array.is_null() || count > REMOTE_PARTS_MAX {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(array, count) }.iter().map(place).collect())
}

/// The part of memory that begins after so many bytes, and has so many.
fn cut(pieces: &[Memory], after: usize, length: usize) -> Vec<Memory> {
    let mut skipped = after;
    let mut left = length;
    let mut part = Vec::new();
    for piece in pieces {
        let rest = piece.after(skipped).first(left);
        skipped = skipped.saturating_sub(piece.len());
        left -= rest.len();
        if rest.len() > 0 {
            part.push(rest);
        }
    }
    part
}

impl RemoteUse {
    /// The part of an operation that begins after so many bytes, and has so many. The data of a
    /// write go with its last part.
    #[must_use]
    pub fn part(&self, after: usize, length: usize, is_last: bool) -> Self {
        let cut = |pieces: &[Memory]| cut(pieces, after, length);
        match self {
            RemoteUse::Read(into) => RemoteUse::Read(cut(into)),
            RemoteUse::Write(from, data) => RemoteUse::Write(cut(from), data.filter(|_| is_last)),
            RemoteUse::Atomic(atomic) => RemoteUse::Atomic(RemoteAtomic {
                operands: cut(&atomic.operands),
                compare: cut(&atomic.compare),
                old: atomic.old.as_deref().map(cut),
                ..*atomic
            }),
        }
    }
}

/// How many bytes pieces have together.
///
/// # Errors
/// They are more than there can be.
pub(crate) fn total(pieces: &[Memory]) -> Result<usize> {
    let length = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.len()));
    length.filter(|length| *length <= isize::MAX as usize).ok_or(Errno::INVALID)
}
