//! One-sided operations on regions of peers.

use std::fmt;

use tagmatch_device::{Buffer, PeerId, QuickAccess, RegionSpan};
use tagmatch_fallback::{
    AtomicOp, AtomicType, ElementUse, Fault, FetchInto, Posted, RemoteAction, RemoteOperation,
};

use crate::access::{Access, State};
use crate::end::QueuedRequest;
use crate::envelope::{Peer, Received, Sent};
use crate::error::{Error, Failed};
use crate::region::Token;
use crate::request::Request;
use crate::worker::WorkerOf;

/// A region of a peer, for one-sided operations: made by [`WorkerOf::attach`].
///
/// **End.** An operation has ended when it is done in the peer's memory, and visible to the peer's
/// processors (libfabric calls that *delivery complete*). Its request then ends, and gives the
/// buffer back.
///
/// **Order**, among the operations of one worker to one peer:
///
/// | first | then | order |
/// |---|---|---|
/// | atomic operation | atomic operation on the same element | in the order in which they began |
/// | put or atomic operation | get or atomic operation on the same bytes | the second sees the first |
/// | put | put on the same bytes | in the order in which they began |
/// | get | put or atomic operation on the same bytes | none: the get may see the second, unless a [`fence`](WorkerOf::fence) stands between, or the get has ended |
/// | anything | [`fence`](WorkerOf::fence), then anything | the second takes effect after the first |
/// | put that has *ended* | message | the message arrives after the bytes |
///
/// No order exists between operations to different peers, nor between an operation that is under
/// way and a message.
///
/// **Atomic** are the operations on an element towards all other atomic operations on it, whoever
/// begins them. Puts and gets are not atomic towards them, nor towards each other: where a put, a
/// get and an atomic operation on an element may meet, put and get it by atomic operations, too
/// ([`AtomicOp::Write`], [`fetch_elements`](Self::fetch_elements)). The operations and types are
/// those of libfabric ([`AtomicOp`], [`AtomicType`]); elements need no alignment.
///
/// **Errors** come to the initiator alone: a wrong token, a right that the region doesn't grant,
/// bytes outside, a region that was closed ([`RemoteFault`](crate::RemoteFault) in
/// [`Fault::Remote`]), or a peer that is down. Nothing of a put that doesn't lie in the region
/// is written. An operation of length 0 is checked like any other.
///
/// **Ways.** An operation is a message to the peer, whose progress carries it out, or this worker
/// does it by itself:
///
/// | operation | way |
/// |---|---|
/// | put with a notice, operation of length 0 | a message |
/// | over shared memory, while no other operation of this worker to the peer is under way: put, get, or atomic operation on elements of 1, 2, 4 or 8 bytes that lie at multiples of their size, in memory of [`WorkerOf::buffer`] | by itself, in the call, by the processor: peers map this memory |
/// | over shared memory, while no operation of this worker to the peer is under way by a message: put or get in other memory | by itself, in a system call or two, if the kernel lets processes read each other's memory |
/// | put or get of 32 KiB and more over TCP, while no other operation of this worker to the peer is under way by a message | streamed between the buffer and the region, without a copy in between; the peer's progress receives or sends |
/// | all others | a message |
///
/// [`WorkerOf::buffer`] gives memory that peers map where it is longer than a message (16 KiB, if
/// [`ShmConfig::message_max`](crate::shm::ShmConfig::message_max) says nothing else). The order
/// above holds whatever the ways are, and elements are atomic whichever way each of them is
/// changed: the owner uses the processor's operations for the same elements. What is done by itself
/// over shared memory needs no progress of the peer.
/// [`ShmConfig::direct_regions`](crate::shm::ShmConfig::direct_regions) makes all operations over
/// shared memory messages; [`Counters::direct_remote`](crate::Counters::direct_remote) counts those
/// that were none. The repository's `examples/hash_table.rs` is a table that several nodes change
/// at once.
///
/// ```
/// use tagmatch::{AtomicOp, AtomicType, Config, Rights, Worker};
///
/// let worker = Worker::new(Config::default())?;
/// let region = worker.expose_region(vec![0; 64], Rights::ALL)?;
/// let remote = worker.attach(worker.oneself(), &region.token())?;
/// remote.put(8, b"one-sided".to_vec()).wait()?;
/// assert_eq!(remote.get(8, vec![0; 9]).wait()?.data(), b"one-sided");
/// let one = 1u64.to_ne_bytes().to_vec();
/// let old = remote.fetch(0, AtomicOp::Sum, AtomicType::U64, one).wait()?;
/// assert_eq!(old.data(), [0; 8]);
/// assert_eq!(region.close()[0..8], 1u64.to_ne_bytes());
/// # Ok::<(), tagmatch::Error>(())
/// ```
pub struct Remote<A: Access> {
    access: A,
    peer: PeerId,
    token: Token,
}

impl<A: Access> Clone for Remote<A> {
    fn clone(&self) -> Self {
        Remote { access: self.access.clone(), ..*self }
    }
}

impl<A: Access> fmt::Debug for Remote<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("peer", &self.peer).field("token", &self.token).finish()
    }
}

impl<A: Access> WorkerOf<A> {
    /// A peer's region, for one-sided operations. Nothing is sent: a token that its peer doesn't
    /// know fails each operation.
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn attach(&self, peer: Peer, token: &Token) -> Result<Remote<A>, Error> {
        let peer = self.own(peer)?;
        Ok(Remote { access: self.access.clone(), peer, token: *token })
    }

    /// A peer's region that the peer has exposed under this key ([`raw::expose`](crate::raw)).
    /// `is_counted`: the peer counts what others do there, so nothing but messages is tried.
    #[doc(hidden)]
    pub fn attach_key(&self, peer: Peer, key: u64, is_counted: bool) -> Result<Remote<A>, Error> {
        self.attach(peer, &Token::of_key(key, is_counted))
    }
}

impl<A: Access> Remote<A> {
    /// The region's token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Writes the buffer's bytes into the region, from `at` on.
    pub fn put(&self, at: u64, buffer: impl Into<Buffer>) -> Request<Sent, A> {
        self.begin_sent(at, RemoteAction::Put { from: buffer.into(), notice: None })
    }

    /// As [`put`](Self::put), of a copy of the bytes, which may be used again at once.
    pub fn put_inline(&self, at: u64, bytes: &[u8]) -> Request<Sent, A> {
        if self.is_done_at_once(at, QuickAccess::Write(bytes)) {
            return Request::sent(Buffer::default());
        }
        let from = bytes.to_vec().into();
        self.begin(at, RemoteAction::Put { from, notice: None })
    }

    /// Writes the bytes into the region, from `at` on, and blocks until they are there.
    ///
    /// # Errors
    /// As the result of [`put`](Self::put).
    pub fn put_blocking(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.put_inline(at, bytes).wait().map(drop).map_err(|failed| failed.error)
    }

    /// As [`put`](Self::put), and tells the region's owner once the bytes are there, who takes the
    /// notice by [`take_notice`](WorkerOf::take_notice). Notices of one worker come in the order of
    /// their puts. An owner keeps 1024 of each peer; puts with further ones end when it takes some.
    pub fn put_with(&self, at: u64, buffer: impl Into<Buffer>, notice: u64) -> Request<Sent, A> {
        self.begin(at, RemoteAction::Put { from: buffer.into(), notice: Some(notice) })
    }

    /// Reads as many bytes of the region as the buffer has, from `at` on.
    pub fn get(&self, at: u64, buffer: impl Into<Buffer>) -> Request<Received, A> {
        self.begin(at, RemoteAction::Get { into: buffer.into() })
    }

    /// Reads as many bytes of the region as there is room for, from `at` on, and blocks until they
    /// are there.
    ///
    /// # Errors
    /// As the result of [`get`](Self::get); there is no memory for a buffer.
    pub fn get_blocking(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        if self.is_done_at_once(at, QuickAccess::Read(into.into())) {
            return Ok(());
        }
        let length = into.len();
        let buffer = Buffer::try_zeroed(length).ok_or(Error::NoMemory { length })?;
        let received = self.get(at, buffer).wait().map_err(|failed| failed.error)?;
        into.copy_from_slice(received.data());
        Ok(())
    }

    /// Changes elements of the region, from `at` on. `operands` has the operands of all of them, in
    /// the processor's byte order; for an operation that compares, first all values to compare
    /// with, then all operands.
    pub fn atomic(
        &self,
        at: u64,
        op: AtomicOp,
        of: AtomicType,
        operands: impl Into<Buffer>,
    ) -> Request<Sent, A> {
        match elements(op, of, operands.into(), false) {
            Ok(action) => self.begin_sent(at, action),
            Err(buffer) => Request::refused(Error::Operation(Fault::BadOperands), buffer),
        }
    }

    /// As [`atomic`](Self::atomic), and gives the old values back, in a buffer of their own.
    pub fn fetch(
        &self,
        at: u64,
        op: AtomicOp,
        of: AtomicType,
        operands: impl Into<Buffer>,
    ) -> Request<Received, A> {
        match elements(op, of, operands.into(), true) {
            Ok(action) => self.begin(at, action),
            Err(buffer) => Request::refused(Error::Operation(Fault::BadOperands), buffer),
        }
    }

    /// Replaces each element that equals the one in `compare` by the one in `new`, and gives the
    /// old values back ([`AtomicOp::CompareSwap`]; [`fetch`](Self::fetch) takes the other
    /// operations that compare). Both have the same number of elements, in the processor's byte
    /// order.
    pub fn compare_swap(
        &self,
        at: u64,
        of: AtomicType,
        compare: &[u8],
        new: &[u8],
    ) -> Request<Received, A> {
        let operands = [compare, new].concat();
        if compare.len() != new.len() {
            let error = Error::Operation(Fault::BadOperands);
            return Request::refused(error, operands.into());
        }
        self.fetch(at, AtomicOp::CompareSwap, of, operands)
    }

    /// Changes one number of the region by an operation with one operand, blocks until that is
    /// done, and gives the old value: a counter or a ticket, for example.
    ///
    /// # Errors
    /// As the result of [`fetch`](Self::fetch).
    pub fn fetch_u64(&self, at: u64, op: AtomicOp, operand: u64) -> Result<u64, Error> {
        self.fetch_word(at, op, &operand.to_ne_bytes())
    }

    /// Replaces one number of the region by `new` if it is `expected`, blocks until that is done,
    /// and gives the old value.
    ///
    /// # Errors
    /// As the result of [`compare_swap`](Self::compare_swap).
    pub fn compare_swap_u64(&self, at: u64, expected: u64, new: u64) -> Result<u64, Error> {
        let operands = [expected, new].map(u64::to_ne_bytes);
        self.fetch_word(at, AtomicOp::CompareSwap, operands.as_flattened())
    }

    fn fetch_word(&self, at: u64, op: AtomicOp, operands: &[u8]) -> Result<u64, Error> {
        const OF: AtomicType = AtomicType::U64;
        let mut old = [0; size_of::<u64>()];
        let fetch = |element| {
            let of = self.span(at);
            let fetch = FetchInto { element, operands, old: &mut old };
            self.access.with(|state| state.engine.as_dyn_mut().fetch_at_once(self.peer, of, fetch))
        };
        if !ElementUse::new(op, OF).is_some_and(fetch) {
            let received = self.fetch(at, op, OF, operands.to_vec()).wait();
            old.copy_from_slice(received.map_err(|failed| failed.error)?.data());
        }
        Ok(u64::from_ne_bytes(old))
    }

    /// Reads so many elements of the region, each of them whole, from `at` on.
    pub fn fetch_elements(&self, at: u64, of: AtomicType, count: usize) -> Request<Received, A> {
        let element = ElementUse::new(AtomicOp::Read, of);
        let old = count.checked_mul(of.size()).and_then(Buffer::try_zeroed);
        let Some((element, old)) = element.zip(old) else {
            let length = count.saturating_mul(of.size());
            return Request::refused(Error::NoMemory { length }, Buffer::default());
        };
        let operands = Buffer::default();
        self.begin(at, RemoteAction::Atomic { element, operands, count, old: Some(old) })
    }

    /// As [`put`](Self::put), or with a notice as [`put_with`](Self::put_with); the end comes in
    /// the completion queue.
    ///
    /// # Errors
    /// The operation was refused, and there will be no end. [`Failed`] has the reason and the
    /// buffer.
    pub fn put_queued(
        &self,
        at: u64,
        buffer: impl Into<Buffer>,
        notice: Option<u64>,
        context: u64,
    ) -> Result<QueuedRequest, Failed> {
        self.queue(at, RemoteAction::Put { from: buffer.into(), notice }, context)
    }

    /// As [`get`](Self::get); the end comes in the completion queue.
    ///
    /// # Errors
    /// As for [`put_queued`](Self::put_queued).
    pub fn get_queued(
        &self,
        at: u64,
        buffer: impl Into<Buffer>,
        context: u64,
    ) -> Result<QueuedRequest, Failed> {
        self.queue(at, RemoteAction::Get { into: buffer.into() }, context)
    }

    /// As [`atomic`](Self::atomic), or as [`fetch`](Self::fetch) if there is a buffer for the old
    /// values; the end comes in the completion queue, with that buffer.
    ///
    /// # Errors
    /// As for [`put_queued`](Self::put_queued).
    pub fn atomic_queued(
        &self,
        at: u64,
        atomic: AtomicAction,
        context: u64,
    ) -> Result<QueuedRequest, Failed> {
        let AtomicAction { op, of, operands, old } = atomic;
        // An operation without operands is on as many elements as there is room for.
        let bytes = match (op.operands(), &old) {
            (0, Some(old)) => old.total_len(),
            (0, None) => 0,
            (each, _) => operands.total_len() / each,
        };
        let Some(element) = ElementUse::new(op, of) else {
            let error = Error::Operation(Fault::BadOperands);
            return Err(Failed { error, buffer: old.unwrap_or(operands) });
        };
        let count = bytes / of.size();
        self.queue(at, RemoteAction::Atomic { element, operands, count, old }, context)
    }

    fn span(&self, at: u64) -> RegionSpan {
        let Token { key, place, .. } = self.token;
        RegionSpan { key: key.0, place, offset: at }
    }

    fn is_done_at_once(&self, at: u64, access: QuickAccess<'_>) -> bool {
        let of = self.span(at);
        self.access.with(|state| state.engine.as_dyn_mut().access_at_once(self.peer, of, access))
    }

    fn operation(&self, at: u64, action: RemoteAction) -> RemoteOperation {
        let Token { key, place, .. } = self.token;
        RemoteOperation { peer: self.peer, key, place, offset: at, action }
    }

    /// An operation that needs no request if it can be done at once.
    fn begin_sent(&self, at: u64, action: RemoteAction) -> Request<Sent, A> {
        let mut operation = self.operation(at, action);
        let do_at_once = |state: &mut State| state.engine.as_dyn_mut().do_at_once(&mut operation);
        if self.access.with(do_at_once) {
            return Request::sent(operation.action.into_buffer());
        }
        self.begin(at, operation.action)
    }

    fn posted(&self, at: u64, action: RemoteAction, context: Option<u64>) -> Posted {
        let operation = self.operation(at, action);
        self.access.with(|state| {
            let posted = state.engine.as_dyn_mut().begin_remote(operation);
            match context {
                Some(context) => state.queue(posted, context),
                None => posted,
            }
        })
    }

    fn begin<T: crate::request::Output>(&self, at: u64, action: RemoteAction) -> Request<T, A> {
        Request::begun(&self.access, self.posted(at, action, None))
    }

    fn queue(&self, at: u64, action: RemoteAction, context: u64) -> Result<QueuedRequest, Failed> {
        QueuedRequest::begun(&self.access, self.posted(at, action, Some(context)))
    }
}

/// An atomic operation, for [`Remote::atomic_queued`].
#[derive(Debug)]
pub struct AtomicAction {
    /// What is done with each element.
    pub op: AtomicOp,
    /// The elements' type.
    pub of: AtomicType,
    /// The operands, as for [`Remote::atomic`].
    pub operands: Buffer,
    /// Where the old values go, if they are wanted.
    pub old: Option<Buffer>,
}

/// The operation on as many elements as there are operands for.
///
/// # Errors
/// The operands: the type doesn't have the operation, or these are not operands of whole elements.
fn elements(
    op: AtomicOp,
    of: AtomicType,
    operands: Buffer,
    fetches: bool,
) -> Result<RemoteAction, Buffer> {
    let each = op.operands() * of.size();
    let length = operands.total_len();
    let element = ElementUse::new(op, of).filter(|_| each > 0 && length.is_multiple_of(each));
    let Some(element) = element else { return Err(operands) };
    let count = length / each;
    let old = if fetches { Buffer::try_zeroed(count * of.size()).map(Some) } else { Some(None) };
    let Some(old) = old else { return Err(operands) };
    Ok(RemoteAction::Atomic { element, operands, count, old })
}
