//! The trait of devices that match tags by themselves.
//!
//! A [`Device`](crate::Device) moves bytes, and the engine above it matches. A [`MatchingDevice`] is a whole
//! tag-matching transport below (UCX): it holds posted receives and unexpected messages, and moves data as it
//! sees fit, in hardware or not. Its contract with the room above:
//!
//! 1. Matching is that of `tagmatch-soft`: a receive takes a message iff `(tag ^ message.tag) & mask == 0` and
//!    the message's sender is the one that is named, if one is; first posted, first matched; first arrived,
//!    first found; messages of one peer never overtake each other in matching.
//! 2. Every operation that was taken (`Ok`) ends once, through [`MatchingDevice::poll`], with its token and its
//!    buffer; until then the buffer is the device's, whatever becomes of the request above.
//! 3. Facts of a completion ([`Envelope`]) are whole on every path.
//! 4. What can't be carried is refused at the call ([`Unfit`]), never bent: immediate data, or a tag or a source
//!    that the device's layout has no bits for.
//! 5. A peer that goes down is reported once, after everything that depends on it has ended.
//! 6. Nothing that a peer does makes a call panic, block, or touch memory that isn't this device's.

use crate::device::{DeviceError, DownReason, PeerId};
use crate::{Address, Buffer};

/// When a send that the device takes is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompleteWhen {
    /// Its buffer may be used again.
    #[default]
    Reusable,
    /// The message was matched.
    Matched,
    /// Its bytes are in the receiver's buffer.
    Delivered,
}

/// A message to be sent.
#[derive(Debug)]
pub struct TagSend {
    /// To whom.
    pub peer: PeerId,
    /// The tag that receives see.
    pub tag: u64,
    /// 32 bits for the receiver's completion.
    pub immediate: Option<u32>,
    /// The payload.
    pub buffer: Buffer,
    /// When it is complete.
    pub complete_when: CompleteWhen,
    /// Comes back in [`MatchingEvent::Sent`].
    pub token: u64,
}

/// Which messages a receive or a probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagPattern {
    /// Compared where `mask` has ones.
    pub tag: u64,
    /// Bits of the tag that count.
    pub mask: u64,
    /// The sender, or anyone.
    pub source: Option<PeerId>,
}

/// Facts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Who sent it.
    pub source: PeerId,
    /// Its tag, as it was sent.
    pub tag: u64,
    /// Its full length in bytes, also where less fitted into the buffer.
    pub length: u64,
    /// Immediate data, if the sender gave any.
    pub immediate: Option<u32>,
}

/// Names a message that a matched probe took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldId(pub u64);

/// Why an operation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The peer is down and stays so.
    Down,
    /// There is no such peer.
    NoSuchPeer,
    /// There is no such held message.
    NoSuchMessage,
    /// The buffer of a receive can only be read.
    ReadOnly,
    /// The device can't carry it: what, and what to do about it, in one sentence.
    NotCarried(&'static str),
    /// The device has no memory, or no room, for another operation.
    Exhausted,
}

/// How an operation that was taken failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationError {
    /// The receive was cancelled before it matched; its buffer is untouched.
    Cancelled,
    /// The peer that it depends on is down.
    PeerDown(PeerId),
    /// The device failed to move the bytes; its own number for why (for UCX `ucs_status_t`).
    Failed {
        /// The device's own number.
        status: i32,
    },
}

/// What [`MatchingDevice::poll`] has to tell.
#[derive(Debug)]
pub enum MatchingEvent {
    /// A send has ended.
    Sent {
        /// Of the [`TagSend`].
        token: u64,
        /// Of the [`TagSend`].
        buffer: Buffer,
        /// How.
        result: Result<(), OperationError>,
    },
    /// A receive has ended. The message was longer than the buffer iff `length > buffer.len()`.
    Received {
        /// Of the receive.
        token: u64,
        /// Of the receive.
        buffer: Buffer,
        /// The facts of the message.
        result: Result<Envelope, OperationError>,
    },
    /// A peer can be sent to from now on. Comes before the peer's first message is received or found.
    PeerUp {
        /// Which.
        peer: PeerId,
    },
    /// A peer is gone for good.
    PeerDown {
        /// Which.
        peer: PeerId,
        /// Why.
        reason: DownReason,
    },
}

/// A transport that matches by itself. See the module's page for the contract.
///
/// Not thread-safe by itself; one caller at a time. No call blocks.
pub trait MatchingDevice {
    /// Where peers reach this device.
    fn address(&self) -> Address;

    /// Starts to connect to the peer at `address` and gives its number at once; see
    /// [`Device::connect`](crate::Device::connect), whose rules hold here.
    ///
    /// # Errors
    /// The bytes can't be an address of this kind of device.
    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError>;

    /// The address of a peer.
    fn peer_address(&self, peer: PeerId) -> Option<Address>;

    /// Sends a message. `Ok(Some(buffer))`: it is complete already, and no event will tell of it. Sends to
    /// a peer that isn't up yet wait in the device, in order.
    ///
    /// # Errors
    /// Gives the buffer back with the reason.
    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)>;

    /// Sends a copy of `payload`: nothing will tell of its end.
    ///
    /// # Errors
    /// It was not taken.
    fn inject(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<(), Unfit>;

    /// Posts a receive, or takes the oldest message that waits for it. Its end is told by an event, at
    /// whatever time it comes.
    ///
    /// # Errors
    /// Gives the buffer back with the reason.
    fn receive(
        &mut self,
        pattern: TagPattern,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)>;

    /// Asks to cancel the receive with this token; its end tells the outcome. A token that names no receive
    /// is ignored. `true` if the receive's end is [`OperationError::Cancelled`].
    fn cancel(&mut self, token: u64) -> bool;

    /// The envelope of the oldest waiting message that matches. Makes no progress.
    ///
    /// # Errors
    /// The pattern names what this device can't tell apart.
    fn probe(&mut self, pattern: TagPattern) -> Result<Option<Envelope>, Unfit>;

    /// Takes that message: nobody else finds it any more. It must be received or discarded.
    ///
    /// # Errors
    /// As for [`MatchingDevice::probe`].
    fn matched_probe(&mut self, pattern: TagPattern) -> Result<Option<(HeldId, Envelope)>, Unfit>;

    /// Receives a message that [`MatchingDevice::matched_probe`] took.
    ///
    /// # Errors
    /// Gives the buffer back with the reason; the message is still held unless there is none.
    fn receive_held(
        &mut self,
        message: HeldId,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)>;

    /// Drops a message that [`MatchingDevice::matched_probe`] took; its sender completes. `false` if there is
    /// no such message.
    fn discard_held(&mut self, message: HeldId) -> bool;

    /// Makes progress; the next event, or `None` when there is nothing to do now.
    fn poll(&mut self) -> Option<MatchingEvent>;

    /// Breaks with a peer: what depends on it ends with [`OperationError::PeerDown`], then
    /// [`MatchingEvent::PeerDown`] follows.
    fn disconnect(&mut self, peer: PeerId);

    /// Takes no further connections, breaks with all peers, cancels all receives. Their ends follow. For good.
    fn close(&mut self);

    /// Asks that [`EventDescriptor::event_descriptor`](crate::EventDescriptor::event_descriptor) become readable at the next event. `false` if there is
    /// something to do already: then poll first and arm again.
    fn arm(&mut self) -> bool;

    /// Ends what [`MatchingDevice::arm`] began.
    fn disarm(&mut self);

    /// Whether there is something to do that was begun after [`MatchingDevice::arm`], so that its descriptor
    /// may not tell of it.
    fn has_work(&self) -> bool;

    /// Whether a message to another worker that was accepted would be lost if the device were closed now: its
    /// send, or inject, hasn't ended, or its bytes haven't left. May begin what lets them leave.
    fn has_unsent(&mut self) -> bool {
        false
    }

    /// Messages waiting that no receive took, where the device knows.
    fn unexpected_now(&self) -> Option<u64> {
        None
    }
}
