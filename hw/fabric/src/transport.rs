//! The trait of a library that matches tags, and the state that the device keeps for the library.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use tagmatch_device::matching::{
    Envelope, MatchingEvent, OperationError, TagPattern, TagSend, Unfit,
};
use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{Buffer, DeviceError, IntegerMap, PeerId, RawMemory, Registered};

use crate::handshake::{Alarm, Meeting, MeetingHost, PeerState, Sent, come_up};
use crate::operations::{Operation, Operations};

/// A library that matches tags, as [`Matching`](crate::Matching) uses it.
///
/// No call blocks. What a call can't tell at once is told by an event, in [`FabricCore::events`] or
/// by [`TagTransport::next_end`].
pub trait TagTransport: MeetingHost + Sized {
    /// Settings of the device.
    type Config;
    /// The description of the library as it was found on this machine.
    type Info;
    /// An operation under way.
    type Operation: Operation;
    /// The tags that a receive or a probe matches, as the library carries them.
    type Pattern: Copy;
    /// A message that waits in the library.
    type Found;
    /// A message that was taken out of the library's list, and has to be received or discarded.
    type Taken: Copy;
    /// The name of the device, for debugging.
    const NAME: &'static str;

    /// Loads the library, and begins to listen for peers.
    ///
    /// # Errors
    /// Those of [`Matching::new`](crate::Matching::new).
    fn open(config: Self::Config) -> Result<Self, DeviceError>;

    /// Finds out what the library offers.
    fn probe(config: &Self::Config) -> Self::Info;

    /// What the device keeps.
    fn core(&self) -> &FabricCore<Self>;

    /// What the device keeps, to be changed.
    fn core_mut(&mut self) -> &mut FabricCore<Self>;

    /// The transports used to reach a peer.
    fn transports(&self, peer: PeerId) -> Vec<String>;

    /// Registers memory of the caller's own.
    ///
    /// # Errors
    /// The library can't register it.
    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        Ok(memory.registered(Box::new(())))
    }

    /// Whether a message can be carried.
    ///
    /// # Errors
    /// Why not.
    fn check_send(&self, message: &TagSend) -> Result<(), Unfit>;

    /// Sends a message that can be carried, to a peer that isn't ending.
    ///
    /// # Errors
    /// Those of [`MatchingDevice::send`](tagmatch_device::matching::MatchingDevice::send).
    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)>;

    /// Sends a copy of a message to a peer that isn't ending, if that can be done at once.
    ///
    /// # Errors
    /// The message can't be carried.
    fn inject(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<bool, Unfit>;

    /// What a pattern is on the wire.
    ///
    /// # Errors
    /// There is no such peer, or no bits for the tag.
    fn wire_pattern(&self, pattern: TagPattern) -> Result<Self::Pattern, Unfit>;

    /// The operation of a receive.
    fn receive_operation(
        &mut self,
        source: Option<PeerId>,
        wire: Self::Pattern,
        buffer: Buffer,
        token: u64,
    ) -> Self::Operation;

    /// Posts a receive.
    ///
    /// # Errors
    /// The library refuses. The operation is not under way then.
    fn post(&mut self, key: Key, wire: Self::Pattern) -> Result<(), Unfit>;

    /// Asks to cancel a receive; `true` if it is cancelled already. An operation that isn't under
    /// way any more is ignored.
    fn cancel(&mut self, key: Key) -> bool;

    /// Whether messages that wait can be found, and taken, at all and now: with `false` there is
    /// none that a look may find.
    ///
    /// # Errors
    /// The library can't do it.
    fn may_look(&mut self, _takes: bool) -> Result<bool, Unfit> {
        Ok(true)
    }

    /// The oldest message that matches. The library may take it if `may_take`.
    fn look(&mut self, wire: Self::Pattern, may_take: bool) -> Option<Self::Found>;

    /// The envelope of a message that was found; `None` if no peer has its source number.
    fn envelope(&self, found: &Self::Found) -> Option<Envelope>;

    /// Takes a message that was found just now, so that nothing else matches it.
    fn take(&mut self, wire: Self::Pattern, found: Self::Found) -> Option<Self::Taken>;

    /// Gives up a message that was found, and that isn't taken.
    fn leave(&mut self, _found: Self::Found) {}

    /// Receives a message that was taken.
    ///
    /// # Errors
    /// Gives the buffer back with the reason. The message stays taken.
    fn receive_taken(
        &mut self,
        taken: Self::Taken,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)>;

    /// Receives a message that was taken without keeping its bytes, so that its send ends.
    fn discard(&mut self, taken: Self::Taken);

    /// A message of a peer has come; `true` if the peer was not reported as up before.
    fn has_risen(&mut self, _peer: PeerId) -> bool {
        false
    }

    /// Makes progress; `true` if something was done.
    fn advance(&mut self) -> bool;

    /// The event for the next operation that has ended and has none in [`FabricCore::events`].
    #[inline]
    fn next_end(&mut self) -> Option<MatchingEvent> {
        None
    }

    /// Whether there may be something for [`TagTransport::next_end`] or [`TagTransport::tend`].
    #[inline]
    fn has_ends(&self) -> bool {
        false
    }

    /// Whether something waits that each poll has to look after.
    fn waits(&self) -> bool;

    /// Looks after what waits, and failures that the library reports. `is_due`: in one of several
    /// polls, for what takes long.
    fn tend(&mut self, is_due: bool);

    /// Called now and then by the thread that has the device.
    fn sweep(&mut self) {}

    /// The library's descriptor, if a thread can sleep on it.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Asks that the descriptor become readable at the next event; `false` if there may be an event
    /// already.
    fn arm(&mut self) -> bool;

    /// When something is due besides the handshake.
    fn next_due(&self) -> Option<Instant> {
        None
    }

    /// How long a thread may sleep, if the descriptor doesn't tell of everything.
    fn sleep_max(&self) -> Option<Duration>;

    /// Whether the descriptor tells of a message that no receive takes, or progress does that takes
    /// it in.
    fn reports_messages(&self) -> bool {
        true
    }

    /// Whether something of the device's own waits, for which receivers may wait.
    fn holds_packets(&self) -> bool {
        false
    }

    /// The errors in the books of the transport itself, one line each.
    fn audit(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether this process made the transport, rather than a parent that has forked.
    fn is_own_process(&self) -> bool;

    /// Whether no operation is left that the device has to wait for before it is closed.
    fn is_over(&self) -> bool;

    /// Closes the library. `is_over`: no operation is under way. Returns whether the library has
    /// let go of all memory.
    fn shut(&mut self, is_over: bool) -> bool;
}

/// What the device keeps for a transport.
pub struct FabricCore<T: TagTransport> {
    /// The sockets, connections and peers.
    pub meeting: Meeting<T::Link>,
    /// Operations under way.
    pub operations: Operations<T::Operation>,
    /// Posted receives by their tokens.
    pub tokens: IntegerMap<u64, Key>,
    /// Events that the next polls return.
    pub events: VecDeque<MatchingEvent>,
    /// Messages that matched probes took, until they are received or dropped.
    pub(crate) held: Slab<T::Taken>,
    pub(crate) polls: u32,
    /// A thread that sleeps waits for a message that no receive takes.
    pub(crate) awaits_messages: bool,
    pub(crate) alarm: Alarm,
}

impl<T: TagTransport> FabricCore<T> {
    /// A core without any operation. `below` is the library's descriptor, if a thread can sleep on
    /// it.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn new(
        meeting: Meeting<T::Link>,
        pool: <T::Operation as Operation>::Pool,
        below: Option<BorrowedFd<'_>>,
    ) -> Result<Self, DeviceError> {
        let alarm = Alarm::new(&meeting, below)?;
        Ok(FabricCore {
            meeting,
            operations: Operations::new(pool),
            tokens: IntegerMap::default(),
            events: VecDeque::new(),
            held: Slab::default(),
            polls: 0,
            awaits_messages: false,
            alarm,
        })
    }

    /// Enters a send to a peer.
    ///
    /// # Errors
    /// Gives the buffer back if there are too many operations.
    #[inline]
    pub fn enter_send(
        &mut self,
        peer: PeerId,
        operation: T::Operation,
    ) -> Result<Key, (Buffer, Unfit)> {
        let entered = self.operations.enter(operation);
        let key = entered.map_err(|buffer| (buffer, Unfit::Exhausted))?;
        if let Some(entry) = self.meeting.peers.find_mut(peer) {
            entry.live += 1;
            entry.sent = Sent::Unflushed;
        }
        Ok(key)
    }

    /// Counts an operation that depends on a peer from now on.
    #[inline]
    pub fn depends_on(&mut self, peer: Option<PeerId>) {
        if let Some(entry) = peer.and_then(|peer| self.meeting.peers.find_mut(peer)) {
            entry.live += 1;
        }
    }

    /// An operation doesn't depend on a peer any more.
    #[inline]
    pub fn let_go(&mut self, peer: Option<PeerId>) {
        if let Some(entry) = peer.and_then(|peer| self.meeting.peers.find_mut(peer)) {
            entry.live = entry.live.saturating_sub(1);
        }
    }

    /// Takes an operation off the table that the library does not have any more, and returns its
    /// token and its buffer.
    #[inline]
    pub fn retire(&mut self, key: Key) -> Option<(u64, Buffer)> {
        let operation = self.operations.remove(key)?;
        self.let_go(operation.peer());
        Some((operation.token(), operation.into_buffer()))
    }

    /// Forgets that a token names this receive.
    #[inline]
    pub fn forget_token(&mut self, token: u64, key: Key) {
        if self.tokens.get(&token) == Some(&key) {
            self.tokens.remove(&token);
        }
    }

    /// The event that a receive has ended, which the library doesn't have any more.
    #[inline]
    pub fn received(
        &mut self,
        key: Key,
        result: Result<Envelope, OperationError>,
    ) -> Option<MatchingEvent> {
        let (token, buffer) = self.retire(key)?;
        self.forget_token(token, key);
        Some(MatchingEvent::Received { token, buffer, result })
    }

    /// Reports that a receive has ended, which the library doesn't have any more.
    pub fn end_receive(&mut self, key: Key, result: Result<Envelope, OperationError>) {
        let event = self.received(key, result);
        self.events.extend(event);
    }

    /// Sends to a peer whose ends were not reported.
    pub fn sends_of(&self, peer: PeerId) -> usize {
        let live = self.meeting.peers.find(peer).map_or(0, |entry| entry.live);
        let is_its =
            |operation: &&T::Operation| operation.is_send() && operation.peer() == Some(peer);
        if live == 0 { 0 } else { self.operations.iter().filter(is_its).count() }
    }

    /// Whether a peer can be sent to.
    pub fn is_up(&self, peer: PeerId) -> bool {
        self.meeting.peers.find(peer).is_some_and(|entry| entry.state == PeerState::Up)
    }
}

/// Reports a peer as up before its first message is reported; `true` if that was news.
#[inline]
pub fn report_up<T: TagTransport>(transport: &mut T, peer: PeerId) -> bool {
    let is_unreported = transport.core().meeting.is_up_unreported(peer);
    if is_unreported {
        come_up(transport, peer);
    }
    transport.has_risen(peer) || is_unreported
}
