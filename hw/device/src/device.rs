//! The trait that every device implements.
//!
//! A device moves bytes and nothing else. Its contract with the engine above:
//!
//! 1. Messages from one peer arrive whole, once, and in the order in which they were sent.
//! 2. [`Device::poll`] never blocks, costs nothing per idle peer, and gives one event at a time. What
//!    an event borrows is given back to the peer by the next call of `poll`.
//! 3. A [`Buffer`] that was handed in belongs to the device until the event (or the call) that
//!    returns it. That is what makes a read in flight safe whatever happens to the request above.
//! 4. A peer that goes down is reported once, after every message of it that arrived whole and after
//!    every read from it has been given back; nothing comes from it afterwards.
//! 5. Nothing that a peer does makes a call panic, block, or touch memory that isn't this device's. One
//!    exception: a direct read over shared memory waits for pages that the peer withholds
//!    (`ReadPolicy::Copied` of `tagmatch-shm` reads without that).

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use crate::{Address, Buffer, Bytes, TagEvent, TagList};

/// A peer as this device numbers it: dense from 0, never reused while the device lives.
///
/// Number 0 is the worker itself: a device carries messages to oneself like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// The worker itself.
    pub const ONESELF: PeerId = PeerId(0);

    /// The number as an index into a table of peers.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.0)
    }
}

/// What a device can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in the largest message that this device *receives*, header included. Announced to
    /// peers, who learn it from [`Event::PeerUp`]; it never changes.
    pub message_max: usize,
}

/// A message to be sent: header and payload arrive as one run of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The protocol's header, at most [`Outgoing::HEADER_MAX`] bytes.
    pub header: &'a [u8],
    /// What follows it.
    pub payload: &'a [u8],
    /// 32 bits that travel beside the message, as RDMA immediate data does.
    pub immediate: Option<u32>,
}

impl Outgoing<'_> {
    /// The longest header: TMH, RVH and 32 bytes of the protocol's own.
    pub const HEADER_MAX: usize = 64;
}

/// A message that came in. Its bytes are the sender's header and payload in one run.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Who sent it.
    pub peer: PeerId,
    /// Immediate data, if the sender gave any.
    pub immediate: Option<u32>,
    /// Whether it came up through the device's [`TagList`], which found no entry for it and has counted
    /// it. Messages without a tag are not counted.
    pub through_list: bool,
    /// Header and payload.
    pub bytes: Bytes<'a>,
}

/// Why [`Device::send`] did not take a message. The message is unsent, in whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The way to the peer is full. Try again after a later [`Device::poll`].
    Full,
    /// The peer is not connected yet; [`Event::PeerUp`] will say when it is.
    NotUp,
    /// The peer is down and stays so.
    Down,
    /// Larger than the peer's announced `message_max`, or a header above [`Outgoing::HEADER_MAX`].
    TooLong,
}

/// Memory that a peer may read, as it travels in a rendezvous request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    /// Address of the first byte, in the owner's terms.
    pub address: u64,
    /// Key that the owner's device gave out with it.
    pub key: u32,
    /// Length in bytes.
    pub length: u64,
}

/// Names one exposed buffer of this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExposureId(pub u32);

/// A buffer that peers may read until it is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// For [`Device::withdraw`].
    pub id: ExposureId,
    /// What the peer needs in order to read it.
    pub span: RemoteSpan,
}

/// A read of a peer's exposed memory into a buffer of ours.
#[derive(Debug)]
pub struct ReadRequest {
    /// Whose memory.
    pub peer: PeerId,
    /// What to read; `remote.length` bytes, at most `into.len()`, land at the buffer's start.
    pub remote: RemoteSpan,
    /// Where it lands. The device owns it until [`Event::ReadDone`].
    pub into: Buffer,
    /// Comes back in [`Event::ReadDone`]. The top bit is the device's own: clear here.
    pub token: u64,
}

/// Why a read did not bring its bytes. The contents of the buffer are unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The peer is down, or went down while the read was under way.
    PeerDown,
    /// The operating system or the peer refused; the error number.
    Failed {
        /// `errno` of the failure, 0 where there is none.
        errno: i32,
    },
    /// The span isn't one that the peer exposes, or not all of it.
    BadSpan,
}

/// Why a peer went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// Its process ended, or the connection did, without a word.
    Gone,
    /// It said that it leaves: its worker was dropped, or broke with this one.
    Left,
    /// It could not be reached; the error number of the attempt (`ECONNREFUSED`: nobody is there).
    Unreachable {
        /// `errno` of the last attempt, 0 where there is none.
        errno: i32,
    },
    /// It broke the rules of the device: what it wrote can't be a message.
    Misbehaved {
        /// The rule that was broken.
        what: &'static str,
    },
    /// [`Device::disconnect`] was called.
    Disconnected,
}

/// How reads from a peer are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Straight from the peer's memory, one copy, the peer's processor takes no part.
    Direct,
    /// Through shared memory, two copies; the peer must make progress.
    Copied,
    /// As the device sees fit, which moves messages as a whole and doesn't tell how (UCX).
    ByDevice,
    /// Not known yet: the peer isn't connected.
    Unknown,
}

/// What [`Device::poll`] has to tell.
#[derive(Debug)]
pub enum Event<'a> {
    /// A message came in.
    Message(Incoming<'a>),
    /// A read has ended; the buffer comes back.
    ReadDone {
        /// Of the [`ReadRequest`].
        token: u64,
        /// Of the [`ReadRequest`].
        into: Buffer,
        /// Whether all its bytes are there.
        result: Result<(), ReadError>,
    },
    /// Something happened to the entries of the [`TagList`], or one of its operations is done.
    Tag(TagEvent),
    /// A peer can be sent to from now on. Comes before the peer's first message.
    PeerUp {
        /// Which.
        peer: PeerId,
        /// What the peer can receive.
        limits: Limits,
    },
    /// A peer is gone for good. Every read from it has been given back before.
    PeerDown {
        /// Which.
        peer: PeerId,
        /// Why.
        reason: DownReason,
    },
}

/// Errors of a device as such, not of one peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A system call failed.
    #[error("{call}: {source}{hint}")]
    System {
        /// The system call.
        call: &'static str,
        /// What it said.
        source: io::Error,
        /// What to do about it, or empty.
        hint: &'static str,
    },
    /// The address isn't one of this kind of device.
    #[error("address is not usable here: {why}")]
    BadAddress {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A setting is out of its range.
    #[error("{setting} = {value} is out of range: {range}")]
    BadSetting {
        /// Name of the setting.
        setting: &'static str,
        /// What was asked for.
        value: u64,
        /// What would be right.
        range: &'static str,
    },
    /// This machine, or this kind of device, can't do it.
    #[error("{what} is not to be had: {why}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// Why, and what could be asked for instead.
        why: &'static str,
    },
    /// The buffer can't be exposed or read into.
    #[error("buffer refused: {why}")]
    BadBuffer {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The device has as many peers, exposures or reads as it can hold.
    #[error("no room for another {what}: the limit is {limit}")]
    Exhausted {
        /// Of what.
        what: &'static str,
        /// How many there can be.
        limit: usize,
    },
}

/// A device that a thread can sleep on. Apart from [`Device`], since a simulated device has no descriptor.
pub trait EventDescriptor {
    /// A descriptor that is readable when the armed device has something to do. poll(2) and epoll(7) may watch
    /// it.
    fn event_descriptor(&self) -> BorrowedFd<'_>;
}

impl DeviceError {
    /// Names the system call that failed, and what to do about it.
    pub fn system(call: &'static str, hint: &'static str) -> impl Fn(io::Error) -> DeviceError {
        move |source| DeviceError::System { call, source, hint }
    }
}

/// A device: ordered messages to peers, reads of their exposed memory, events.
///
/// Not thread-safe by itself; one caller at a time.
pub trait Device {
    /// What this device can receive.
    fn limits(&self) -> Limits;

    /// Where peers reach this device.
    fn address(&self) -> Address;

    /// Starts to connect to the peer at `address` and gives its number at once. The same address
    /// always gives the same number, also when the peer connected to us first; our own address gives
    /// [`PeerId::ONESELF`]. Success or failure is reported by an event.
    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError>;

    /// The address of a peer.
    fn peer_address(&self, peer: PeerId) -> Option<Address>;

    /// How reads from this peer are done.
    fn read_mode(&self, peer: PeerId) -> ReadMode;

    /// Sends one message, or refuses it whole. The bytes have been copied on return.
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused>;

    /// A buffer of `length` bytes in whatever memory this device reads and writes at least cost, ordinary
    /// memory if there is none better. It may hold what an earlier buffer of this device held.
    fn allocate(&mut self, length: usize) -> Buffer {
        Buffer::zeroed(length)
    }

    /// Lets peers read `buffer` until [`Device::withdraw`].
    ///
    /// # Errors
    /// Gives the buffer back with the reason.
    fn expose(&mut self, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)>;

    /// Takes an exposed buffer back; `None` if there is no such exposure.
    ///
    /// The caller knows from its protocol that no peer reads it any more.
    fn withdraw(&mut self, id: ExposureId) -> Option<Buffer>;

    /// Starts a read; [`Event::ReadDone`] ends it, for every read that was accepted.
    ///
    /// # Errors
    /// Gives the buffer back with the reason.
    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)>;

    /// The next event, or `None` when there is nothing to do now.
    fn poll(&mut self) -> Option<Event<'_>>;

    /// The list of posted receives, if this device has one.
    fn tags(&mut self) -> Option<&mut dyn TagList> {
        None
    }

    /// Breaks with a peer, which is told ([`DownReason::Left`]) where there is a way left to tell it;
    /// [`Event::PeerDown`] follows.
    fn disconnect(&mut self, peer: PeerId);

    /// Takes no further connections: who tries to connect learns that nobody is there. For good.
    fn close(&mut self);

    /// Asks that [`EventDescriptor::event_descriptor`] become readable at the next event. Returns `false` if
    /// there is something to do already: then poll first and arm again. `waiting_to_send` names the
    /// peers whose way was full: room for them is an event as well.
    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool;

    /// Whether there is something to do that was begun after [`Device::arm`], so that its descriptor may
    /// not tell of it: whoever has begun it polls, and arms again for those who sleep.
    fn has_work(&self) -> bool {
        false
    }

    /// Ends what [`Device::arm`] began and empties the descriptor; without it, senders pay for
    /// waking a worker that is awake.
    fn disarm(&mut self);
}
