//! The calls that both engines have: the one that matches itself ([`Engine`](crate::Engine)), and
//! the one over a device that matches ([`Delegated`](crate::Delegated)).

use tagmatch_device::{
    Address, Buffer, BufferParts, DeviceError, LearnedChoice, PeerId, RawMemory, ReadMode,
    Registered,
};
use tagmatch_soft::Pattern;

use crate::counters::Counters;
use crate::decisions::DecisionWatcher;
use crate::error::{Fault, PeerFault};
use crate::flush::FlushEngine;
use crate::observer::ListObserver;
use crate::requests::ends::EndList;
use crate::requests::request::{
    MessageId, Posted, RequestId, Send, SendMode, Started, Status, WaitedEnd,
};
use crate::requests::table::Requests;
use crate::rma_engine::RmaEngine;
use crate::snapshot::Snapshot;

/// Matching and protocol on one device.
///
/// Not thread-safe by itself. No call blocks. Results come from [`MatchEngine::progress`] and
/// [`Requests::take`]. Calls on the short way of a message are not part of a trait object.
pub trait MatchEngine: FlushEngine + RmaEngine {
    /// The address at which peers reach the device.
    fn address(&self) -> Address;

    /// Connects lazily; see [`Device::connect`](tagmatch_device::Device::connect).
    ///
    /// # Errors
    /// The address is not one of this kind of device.
    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError>;

    /// The address of a peer.
    fn peer_address(&self, peer: PeerId) -> Option<Address>;

    /// Why a peer is down, if it is.
    fn peer_fault(&self, peer: PeerId) -> Option<PeerFault>;

    /// Why no further message of the peer that a pattern names will come, if none will.
    fn source_fault(&self, pattern: &Pattern) -> Option<Fault>;

    /// How messages are read from a peer.
    fn read_mode(&self, peer: PeerId) -> ReadMode {
        let _ = peer;
        ReadMode::ByDevice
    }

    /// The choices that the device has learned for the messages to and from a peer.
    fn learned(&self, peer: PeerId) -> Vec<LearnedChoice> {
        let _ = peer;
        Vec::new()
    }

    /// The transports used to reach a peer, if the device chooses them by itself and tells.
    fn transports(&self, peer: PeerId) -> Vec<String> {
        let _ = peer;
        Vec::new()
    }

    /// A buffer of `length` bytes in the memory that the device prefers; ordinary memory if there
    /// is none.
    fn allocate(&mut self, length: usize) -> Buffer {
        Buffer::zeroed(length)
    }

    /// Registers memory with the device; see
    /// [`Device::register`](tagmatch_device::Device::register).
    ///
    /// # Errors
    /// The memory can't be registered.
    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError>;

    /// Breaks with a peer: everything that depends on it ends with an error.
    fn disconnect(&mut self, peer: PeerId);

    /// Breaks with all peers and ends everything that is under way: nothing is left on any list,
    /// and every buffer is back in its request. What a device doesn't give back is lost.
    fn close(&mut self);

    /// For tests: the errors in the engine's books, one line each. None in an engine
    /// without a bug. `is_closed`: after [`close`](Self::close), when nothing is under way any
    /// more. Linear in everything.
    fn audit(&self, is_closed: bool) -> Vec<String> {
        let _ = is_closed;
        Vec::new()
    }

    /// Whether other workers would miss something if this engine were closed now: messages that
    /// wait for credit or room, buffers that a peer has yet to read, answers that wait for room.
    /// Looks at all peers and operations.
    ///
    /// Messages that the device has taken count as sent: it delivers them, also if it is closed.
    /// Messages to oneself, and acknowledgements that are to come, don't count.
    fn has_unsent(&mut self) -> bool;

    /// Has `observer` told of each change of the matching lists from now on. It is told first of
    /// what is on them. Messages and posted receives then leave the short way, which costs an
    /// engine without a NIC's list some 20 ns a message. `false`: the device matches by itself, so
    /// the lists can't be observed.
    fn observe(&mut self, observer: Box<dyn ListObserver>) -> bool {
        drop(observer);
        false
    }

    /// Has `watcher` told of each decision from now on.
    fn watch_decisions(&mut self, watcher: DecisionWatcher);

    /// What the engine waits for, at most `most` of each kind. Linear in everything, and sorts the
    /// posted list.
    fn snapshot(&self, most: usize) -> Snapshot;

    /// The counters of this engine.
    fn counters(&self) -> Counters;

    /// The peers to which sends wait for credit now, each with the number of sends that have left
    /// its backlog so far: as long as it is the same, the same send waits. Linear in the peers.
    fn credit_waits(&self) -> Vec<(PeerId, u64)> {
        Vec::new()
    }

    /// The requests of this engine.
    fn requests(&self) -> &Requests;

    /// The requests of this engine, to have results taken.
    fn requests_mut(&mut self) -> &mut Requests;

    /// The short way of a message: eager, in credit, nothing before it, room on the way. `false`:
    /// nothing was done.
    #[inline(always)]
    fn inject_at_once(&mut self, message: Send<&[u8]>) -> bool
    where
        Self: Sized,
    {
        let _ = message;
        false
    }

    /// Sends what can't go by [`MatchEngine::inject_at_once`]: behind what waits for the peer, and
    /// at once if nothing does and there is room.
    fn send_queued(&mut self, message: Send<Buffer>, mode: SendMode) -> Started
    where
        Self: Sized;

    /// The long way of [`MatchEngine::inject`], for a message that can't go out at once.
    ///
    /// # Errors
    /// The same errors as [`MatchEngine::inject`].
    fn inject_queued(&mut self, message: Send<&[u8]>, copies_max: u64) -> Result<bool, Fault>
    where
        Self: Sized;

    /// As [`MatchEngine::send_queued`], of a copy of the payload. `false`: nothing was done, since
    /// the copies that wait would take more than `copies_max` bytes.
    ///
    /// # Errors
    /// The send was refused.
    fn inject_copy(&mut self, message: Send<&[u8]>, copies_max: u64) -> Result<bool, Fault>
    where
        Self: Sized,
    {
        let length = message.payload.len();
        if !self.requests().allow_copy(length, copies_max) {
            return Ok(false);
        }
        let copy = message.of(Buffer::from(message.payload.to_vec()));
        match self.send_queued(copy, SendMode::Standard) {
            Started::Sent(_) => {}
            Started::Refused(refused) => return Err(refused.fault),
            Started::Pending(request) => self.requests_mut().detach_copy(request, length),
        }
        Ok(true)
    }

    /// Sends a message. Messages to one peer are matched in the order of these calls.
    /// `None`: the send is complete, and the buffer still where it was. Otherwise the buffer has
    /// gone into the request, or into the refusal.
    #[inline(always)]
    fn send_from(&mut self, message: Send<&mut Buffer>, mode: SendMode) -> Option<Posted>
    where
        Self: Sized,
    {
        // A buffer of several slices looks empty.
        if mode == SendMode::Standard
            && !message.payload.is_empty()
            && self.inject_at_once(message.of(&**message.payload))
        {
            return None;
        }
        let buffer = std::mem::take(message.payload);
        let taken = message.of(buffer);
        match self.send_queued(taken, mode) {
            Started::Sent(sent) => {
                *message.payload = sent;
                None
            }
            Started::Pending(request) => Some(Ok(request)),
            Started::Refused(refused) => Some(Err(refused)),
        }
    }

    /// As [`MatchEngine::send_from`], with the buffer's ownership in the result.
    fn send(&mut self, mut message: Send<Buffer>, mode: SendMode) -> Started
    where
        Self: Sized,
    {
        let Send { peer, tag, immediate, ref mut payload } = message;
        let posted = self.send_from(Send { peer, tag, immediate, payload }, mode);
        posted.map_or(Started::Sent(message.payload), Started::from)
    }

    /// Sends a copy of the payload, whose owner may use it again at once. `Ok(false)`: it was not
    /// taken, since the copies that wait, of messages to whatever peer, would take more than
    /// `copies_max` bytes with it. One copy may always wait.
    ///
    /// # Errors
    /// The peer is down, or the device can't carry the message.
    #[inline(always)]
    fn inject(&mut self, message: Send<&[u8]>, copies_max: u64) -> Result<bool, Fault>
    where
        Self: Sized,
    {
        if self.inject_at_once(message) {
            return Ok(true);
        }
        self.inject_queued(message, copies_max)
    }

    /// Receives a message into `buffer`: the oldest waiting one that matches, else the first that
    /// comes. The buffer's length is the most that is received.
    #[inline(always)]
    fn receive(&mut self, pattern: &Pattern, buffer: Buffer) -> Posted
    where
        Self: Sized,
    {
        self.receive_with(pattern, buffer, false, None)
    }

    /// As [`MatchEngine::receive`]. `is_sole`: the caller promises that of all peers only the
    /// source that the pattern names sends messages whose tags the pattern accepts. So a NIC's
    /// list, which compares tags alone, may have the receive. If it gives the receive a message of
    /// another peer, that is found before the receive completes: it fails with
    /// [`Fault::WrongSender`], the message is lost, and a sender that waits for its delivery is
    /// told so.
    ///
    /// With a `context`, its end comes in the completion queue: see [`Requests::queue`].
    #[inline(always)]
    fn receive_with(
        &mut self,
        pattern: &Pattern,
        buffer: Buffer,
        is_sole: bool,
        context: Option<u64>,
    ) -> Posted
    where
        Self: Sized,
    {
        self.receive_parts(pattern, buffer.into_parts(), is_sole, context)
    }

    /// As [`MatchEngine::receive_with`], for callers that have the buffer in registers.
    fn receive_parts(
        &mut self,
        pattern: &Pattern,
        buffer: BufferParts,
        is_sole: bool,
        context: Option<u64>,
    ) -> Posted
    where
        Self: Sized;

    /// The envelope of the oldest waiting message that matches. Makes no progress by itself.
    ///
    /// # Errors
    /// The pattern names what the device doesn't carry: no message will ever match it.
    fn probe(&mut self, pattern: &Pattern) -> Result<Option<Status>, Fault>;

    /// Takes that message: nobody else finds it any more. It must be received or discarded.
    ///
    /// # Errors
    /// As for [`MatchEngine::probe`].
    fn matched_probe(&mut self, pattern: &Pattern) -> Result<Option<(MessageId, Status)>, Fault>;

    /// Receives a message that [`MatchEngine::matched_probe`] took.
    fn receive_message(&mut self, message: MessageId, buffer: Buffer) -> Posted;

    /// Drops a message that [`MatchEngine::matched_probe`] took; its sender completes. `false` if
    /// there is no such message.
    fn discard_message(&mut self, message: MessageId) -> bool;

    /// Takes the events that are there, at most 64 per call; returns how many.
    fn progress(&mut self) -> usize;

    /// Takes events until a request is over or there are none left, at most 64; gives how many
    /// events that were, and whether the request is over.
    fn progress_until(&mut self, request: RequestId) -> (usize, bool)
    where
        Self: Sized;

    /// As [`MatchEngine::progress_until`], and tells whether the request is over, and how.
    #[inline(always)]
    fn progress_to_end(&mut self, request: RequestId) -> WaitedEnd
    where
        Self: Sized,
    {
        self.progress_until(request);
        self.requests().waited_end(request)
    }

    /// As [`MatchEngine::progress`], then [`Requests::take_ends`]. A message of a queued receive
    /// may end up in the list straight away, if no earlier end waits.
    fn take_ends(&mut self, ends: &mut impl EndList) -> usize
    where
        Self: Sized;

    /// Asks to cancel a receive. Its completion tells the outcome: [`Fault::Cancelled`], or the
    /// message that was faster. Sends can't be cancelled (as in MPI-4, where that is deprecated).
    fn cancel(&mut self, request: RequestId);

    /// Lets go of a request: a posted receive is cancelled, anything else goes on to its end by
    /// itself and its buffer is freed there.
    fn detach(&mut self, request: RequestId) {
        if self.requests_mut().detach(request) {
            self.cancel(request);
        }
    }

    /// Makes the device's descriptor readable at the next event. `false`: there is something to do
    /// already, call [`MatchEngine::progress`] first.
    fn arm(&mut self) -> bool;

    /// Whether a thread that sleeps waits for a message that no receive takes. A device that
    /// matches by itself may have to be asked for it again and again.
    fn await_messages(&mut self, is_awaited: bool) {
        let _ = is_awaited;
    }

    /// Whether there is something to do that an armed descriptor does not tell of, since a call
    /// began it that made no progress.
    fn has_work(&self) -> bool;

    /// Ends what [`MatchEngine::arm`] began.
    fn disarm(&mut self);
}
