//! Peers, envelopes and patterns in the terms of the public API.

use tagmatch_device::{Buffer, PeerId};
use tagmatch_fallback as fallback;
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

/// A peer, as one worker knows it. No two peers of a worker ever are the same, also if one was
/// forgotten ([`Config::departed_max`](crate::Config::departed_max)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    pub(crate) id: PeerId,
    pub(crate) worker: u32,
}

impl Peer {
    /// The peer's number on its worker, which no other peer of it ever has. The worker itself has
    /// 0. The numbers have gaps.
    pub fn number(self) -> u32 {
        self.id.0
    }

    /// An index for tables of peers: below twice the most peers that the worker has had at a time,
    /// with those that it remembers. A later peer may have the place of one that was forgotten, so
    /// a table keeps the peer beside what it says of it.
    #[inline]
    pub fn place(self) -> usize {
        self.id.index()
    }
}

/// Which messages a receive or a probe takes: by tag and mask, from one peer or from any.
///
/// A message with tag `t` matches iff `(t ^ tag) & mask == 0`, and its sender is the one that is
/// named, if one is.
///
/// ```
/// use tagmatch::{Match, Tag, TagMask};
/// let exact = Match::tag(7);
/// let low_byte = Match::masked(Tag(7), TagMask(0xff));
/// let all = Match::any();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pattern: Pattern,
    sender: MatchSender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchSender {
    Anyone,
    Named(Peer),
    /// Only this peer sends messages with these tags.
    Only(Peer),
}

impl Match {
    /// Messages with this tag.
    #[inline]
    pub fn tag(tag: impl Into<Tag>) -> Self {
        Self::masked(tag.into(), TagMask::EXACT)
    }

    /// Messages whose tag agrees in the bits of the mask.
    #[inline]
    pub fn masked(tag: Tag, mask: TagMask) -> Self {
        Match { pattern: Pattern::new(tag, mask), sender: MatchSender::Anyone }
    }

    /// All messages.
    pub fn any() -> Self {
        Self::masked(Tag(0), TagMask::ANY)
    }

    /// The messages of this match that `peer` sends. Software matches the receive, since a NIC
    /// compares tags only; see [`sent_only_by`](Self::sent_only_by).
    #[inline]
    #[must_use]
    pub fn from(self, peer: Peer) -> Self {
        let pattern = self.pattern.from_source(SourceId(peer.id.0));
        Match { pattern, sender: MatchSender::Named(peer) }
    }

    /// The messages of this match that `peer` sends, with the promise that **no other peer sends
    /// any**: the tag holds the sender, as in runtimes whose tags have a rank in them, and the mask
    /// compares these bits.
    ///
    /// Takes the same messages as [`from`](Self::from), and ends like it when the peer goes down.
    /// The difference is that a NIC which compares tags alone may match the receive
    /// ([`HwTags`](crate::HwTags)); a receive that names its peer by `from` stays in software. If
    /// the NIC has matched a message of another peer, the promise was broken: the receive fails
    /// with [`Error::WrongSender`](crate::Error::WrongSender) and the message is lost. Its sender
    /// is not disconnected. Where software matches, a message of another peer waits for another
    /// receive.
    ///
    /// ```
    /// use tagmatch::{Config, Match, TagLayout, TagMask, Worker};
    /// let worker = Worker::new(Config::default())?;
    /// let context = 1;
    /// let own_rank = 0;
    /// let tag = 7;
    /// let tag = TagLayout::MPI.pack(context, own_rank, tag)?;
    /// let which = Match::masked(tag, TagMask::EXACT).sent_only_by(worker.oneself());
    /// let receive = worker.recv(which, vec![0; 5]);
    /// worker.send(worker.oneself(), tag, b"hello".to_vec()).wait()?;
    /// assert_eq!(receive.wait()?.data(), b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn sent_only_by(self, peer: Peer) -> Self {
        Match { sender: MatchSender::Only(peer), ..self.from(peer) }
    }

    pub(crate) fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    #[inline]
    pub(crate) fn peer(&self) -> Option<Peer> {
        match self.sender {
            MatchSender::Anyone => None,
            MatchSender::Named(peer) | MatchSender::Only(peer) => Some(peer),
        }
    }

    /// Whether no other peer sends messages that it takes.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        matches!(self.sender, MatchSender::Only(_))
    }
}

/// A pattern of [`TagLayout::pattern`](crate::TagLayout::pattern) as a match. A source that the
/// pattern names beside its tag (`Pattern::from_source`) is the number of a peer
/// ([`Peer::number`]) of the worker that the match is used on.
///
/// ```
/// use tagmatch::{Config, TagLayout, Worker};
///
/// let worker = Worker::new(Config::default())?;
/// let layout = TagLayout::MPI;
/// let context = 3;
/// let rank = 0;
/// let tag = 7;
/// let receive = worker.recv(layout.pattern(context, None, Some(tag)).unwrap(), vec![0; 8]);
/// worker.inject(worker.oneself(), layout.pack(context, rank, tag).unwrap(), b"hello")?;
/// assert_eq!(receive.wait()?.data(), b"hello");
/// # Ok::<(), tagmatch::Error>(())
/// ```
impl From<Pattern> for Match {
    fn from(pattern: Pattern) -> Self {
        Match { pattern, sender: MatchSender::Anyone }
    }
}

/// The envelope of a message, complete on every path: whether it was expected, unexpected, probed,
/// received at once or much later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The peer that sent the message.
    pub source: Peer,
    /// Its tag.
    pub tag: Tag,
    /// Its full length in bytes, also when less fitted into the buffer.
    pub length: usize,
    /// Whether the buffer was too small: it holds the message's first bytes (over UCX, which
    /// doesn't keep them, zeros: [`Ability::FirstBytes`](crate::Ability)). A probe never says so.
    pub truncated: bool,
    /// Immediate data, if the sender gave any.
    pub immediate: Option<u32>,
}

impl Status {
    pub(crate) fn new(status: fallback::Status, worker: u32) -> Self {
        let fallback::Status { source, tag, length, truncated, immediate } = status;
        // Only a message that is read can be longer than memory, and then by its sender's word.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Status { source: Peer { id: source, worker }, tag, length, truncated, immediate }
    }
}

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// The buffer that the receive was given.
    pub buffer: Buffer,
    /// The message's envelope.
    pub status: Status,
}

impl Received {
    /// The bytes that were received: all of the message, or as many as fitted.
    pub fn data(&self) -> &[u8] {
        self.buffer.first_bytes(self.status.length)
    }
}

/// A completed send.
#[derive(Debug)]
pub struct Sent {
    /// The buffer that the send was given.
    pub buffer: Buffer,
}

tagmatch_device::settings! {
    /// How a message is sent: see [`crate::WorkerOf::send_with`].
    ///
    /// Fields may be added: begin with `SendOptions::default()`, and set fields by the methods
    /// named after them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendOptions {
        /// When the send is complete.
        pub mode: fallback::SendMode,
        /// 32 bits for the receiver's completion.
        pub immediate: Option<u32>,
        /// Comes back with the end of a queued send
        /// ([`send_queued_with`](crate::WorkerOf::send_queued_with)); any other send has no use
        /// for it.
        pub context: u64,
    }
}
