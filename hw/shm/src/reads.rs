//! Reads of peers' memory: from a mapping, directly by the kernel, or copied through the rings.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use tagmatch_device::{
    Buffer, Bytes, Event, Exposures, PeerId, ReadError, ReadMessage, ReadMode, ReadRequest,
};
use tagmatch_os::process::READ_PARTS_MAX;

use super::arena::Arena;
use super::config::{SenderWrites, ShmConfig};
use super::connection::Connection;
use super::copying::Copying;
use super::direct_reads::{DirectRead, ReadProgress};
use super::peers::{PeerState, Peers};
use super::ring::PushError;

/// Most bytes that one poll reads, so that a huge read doesn't delay messages. At 10 GB/s they take
/// a tenth of a millisecond.
const BYTES_PER_POLL: usize = 1 << 20;

/// After so many polls that have looked for messages instead, short reads are done.
const POLLS_GATHERING: u32 = 8;

/// The reads of this worker and of its peers.
pub(crate) struct Reads {
    /// The buffers that peers may read.
    pub(crate) exposures: Exposures,
    /// The memory of this worker's device, in which peers read buffers by themselves.
    arena: Option<Arena>,
    direct: VecDeque<DirectRead>,
    /// Polls since a direct read was done, in which messages were looked for instead.
    polls_gathering: u32,
    /// Peers to which messages of copied reads are to be sent.
    copying: Vec<PeerId>,
    /// The messages of which peers have offered this worker a part. A peer has one at a time.
    offered: VecDeque<(PeerId, Copying)>,
    sender_copies: bool,
    sender_writes: SenderWrites,
}

impl Reads {
    /// No reads yet.
    pub(crate) fn new(config: &ShmConfig, arena: Option<Arena>) -> Self {
        Reads {
            exposures: Exposures::default(),
            arena,
            direct: VecDeque::new(),
            polls_gathering: 0,
            copying: Vec::new(),
            offered: VecDeque::new(),
            sender_copies: config.sender_copies,
            sender_writes: config.sender_writes,
        }
    }

    /// See [`Device::read`](tagmatch_device::Device::read).
    pub(crate) fn start(
        &mut self,
        peers: &mut Peers,
        request: ReadRequest,
    ) -> Result<(), (Buffer, ReadError)> {
        let ReadRequest { peer, remote, into, token } = request;
        let length = usize::try_from(remote.length).ok();
        let Some(length) = length.filter(|length| *length <= into.len()) else {
            return Err((into, ReadError::BadSpan));
        };
        if remote.address.checked_add(remote.length).is_none() {
            return Err((into, ReadError::BadSpan));
        }
        if !into.is_writable() {
            return Err((into, ReadError::Failed { errno: libc::EINVAL }));
        }
        let connection = match peers.state_mut(peer) {
            Some(PeerState::Up(connection)) => connection,
            Some(PeerState::Connecting(_)) => {
                return Err((into, ReadError::Failed { errno: libc::ENOTCONN }));
            }
            Some(PeerState::Draining(..) | PeerState::Down) | None => {
                return Err((into, ReadError::PeerDown));
            }
        };
        let mapped_at = connection.memory.as_ref().and_then(|memory| memory.find(remote));
        if mapped_at.is_some() || connection.read_mode == ReadMode::Direct {
            let mut read = DirectRead::new(peer, remote, mapped_at, (into, length), token);
            read.look_at(connection, self.sender_writes);
            self.direct.push_back(read);
        } else {
            connection.copied.start(remote, into, token);
            self.note_copying(peer);
        }
        Ok(())
    }

    /// Whether a poll can bring a read forward.
    pub(crate) fn has_work(&self) -> bool {
        self.can_copy() || !self.copying.is_empty()
    }

    /// Whether a poll can copy bytes to or from a peer's memory.
    pub(crate) fn can_copy(&self) -> bool {
        !self.offered.is_empty() || self.direct.iter().any(|read| !read.waits())
    }

    /// Whether a poll has to look whether a sender has released a piece.
    pub(crate) fn is_waiting(&self) -> bool {
        self.direct.iter().any(DirectRead::waits)
    }

    /// Whether a sender has released a piece that was waited for.
    pub(crate) fn is_answered(&self, peers: &Peers) -> bool {
        self.direct.iter().any(|read| {
            let connection = peers.state(read.peer).and_then(PeerState::connection);
            connection.is_some_and(|connection| read.is_answered(connection))
        })
    }

    /// Whether short reads are all that is to be done, and a message that waits may bring another
    /// one: they are done together.
    pub(crate) fn gathers(&mut self) -> bool {
        let is_gathering = self.polls_gathering < POLLS_GATHERING
            && (1..READ_PARTS_MAX).contains(&self.direct.len())
            && self.direct.iter().all(DirectRead::is_short)
            && self.offered.is_empty()
            && self.copying.is_empty();
        self.polls_gathering += u32::from(is_gathering);
        is_gathering
    }

    /// The peers to which messages of copied reads are to be sent.
    pub(crate) fn copying(&self) -> &[PeerId] {
        &self.copying
    }

    fn note_copying(&mut self, peer: PeerId) {
        if !self.copying.contains(&peer) {
            self.copying.push(peer);
        }
    }

    /// Continues direct reads, one after the other, as far as one poll may. Stops at a peer that
    /// broke a rule, and returns that peer and the rule; the caller ends its connection.
    pub(crate) fn push_direct(
        &mut self,
        peers: &mut Peers,
        events: &mut VecDeque<Event<'static>>,
    ) -> Option<(PeerId, &'static str)> {
        self.polls_gathering = 0;
        if self.push_short(peers, events) {
            return None;
        }
        let mut budget = BYTES_PER_POLL;
        for _ in 0..self.direct.len() {
            let Some(mut read) = self.direct.pop_front() else { break };
            let progress = match peers.state_mut(read.peer) {
                Some(PeerState::Up(_)) if read.peer == PeerId::ONESELF => {
                    Ok(ReadProgress::Ended(self.read_own(&mut read)))
                }
                Some(PeerState::Up(connection)) => {
                    let progress = read.step(connection, self.sender_writes, &mut budget);
                    if let (Ok(ReadProgress::Ended(_)), false) = (&progress, read.is_mapped()) {
                        connection.sharing.ended(read.length(), Instant::now);
                    }
                    progress
                }
                // This worker has disconnected, and the sender may be writing.
                Some(PeerState::Down) => Ok(ReadProgress::Waiting),
                _ => Ok(ReadProgress::Ended(Err(ReadError::PeerDown))),
            };
            match progress {
                Ok(ReadProgress::Ended(result)) => {
                    let DirectRead { token, into, .. } = read;
                    events.push_back(Event::ReadDone { token, into, result });
                    // A poll reports one event. The next read is for the next poll.
                    return None;
                }
                Ok(ReadProgress::Going | ReadProgress::Waiting) => self.direct.push_back(read),
                Err(what) => {
                    let peer = read.peer;
                    self.direct.push_back(read);
                    return Some((peer, what));
                }
            }
            if budget == 0 {
                break;
            }
        }
        None
    }

    /// Does the first reads in one call, if they are short and from one peer. Returns whether they
    /// have ended.
    fn push_short(&mut self, peers: &mut Peers, events: &mut VecDeque<Event<'static>>) -> bool {
        let Some(peer) = self.direct.front().map(|read| read.peer) else { return false };
        let Some(PeerState::Up(connection)) = peers.state_mut(peer) else { return false };
        let Some(process) = connection.process() else { return false };
        let is_one = |read: &&DirectRead| read.peer == peer && read.is_short();
        let count = self.direct.iter().take(READ_PARTS_MAX).take_while(is_one).count();
        if count < 2 {
            return false;
        }
        let length: usize = self.direct.iter().take(count).map(DirectRead::length).sum();
        let parts = self.direct.iter_mut().take(count).filter_map(DirectRead::part);
        if process.read_parts(parts) != Some(length) {
            return false;
        }
        for read in self.direct.drain(..count) {
            connection.sharing.ended(read.length(), Instant::now);
            let DirectRead { token, into, .. } = read;
            events.push_back(Event::ReadDone { token, into, result: Ok(()) });
        }
        true
    }

    /// Reads a buffer of this worker itself, which is in the table of exposed buffers.
    fn read_own(&self, read: &mut DirectRead) -> Result<(), ReadError> {
        let readable = self.exposures.readable_by(read.peer);
        let Some(bytes) = readable.bytes(read.remote()) else { return Err(ReadError::BadSpan) };
        let into = read.into.room().ok_or(ReadError::Failed { errno: libc::EINVAL })?;
        into.fill(bytes);
        Ok(())
    }

    /// Copies one piece for a peer that reads and has offered it.
    pub(crate) fn push_offered(&mut self, peers: &mut Peers) {
        if let Some((peer, mut copying)) = self.offered.pop_front()
            && let Some(connection) = peers.connection_mut(peer)
            && copying.step(connection, self.exposures.readable_by(peer))
        {
            self.offered.push_back((peer, copying));
        }
    }

    /// Sends messages of copied reads, one step for each peer, from the peer at `at` in the list
    /// on. Stops at a peer that broke a rule, and returns that peer and the rule; the caller ends
    /// its connection and calls again.
    pub(crate) fn push_copied(
        &mut self,
        peers: &mut Peers,
        at: &mut usize,
    ) -> Option<(PeerId, &'static str)> {
        while let Some(peer) = self.copying.get(*at).copied() {
            let Some(connection) = peers.connection_mut(peer) else {
                self.copying.swap_remove(*at);
                continue;
            };
            let readable = self.exposures.readable_by(peer);
            let exposed = |span| readable.bytes(span);
            let result = connection.copied.push(&mut connection.producer, exposed);
            connection.notify();
            if let Err(PushError::Broken(what)) = result {
                return Some((peer, what));
            }
            if connection.copied.has_to_send() {
                *at += 1;
            } else {
                self.copying.swap_remove(*at);
            }
        }
        None
    }

    /// Takes a message of copied reads from a peer.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn receive(
        &mut self,
        peer: PeerId,
        connection: &mut Connection,
        bytes: &Bytes<'_>,
        events: &mut VecDeque<Event<'static>>,
    ) -> Result<(), &'static str> {
        let readable = self.exposures.readable_by(peer);
        if let ReadMessage::Offer { number, span } = ReadMessage::parse(bytes)? {
            readable.check(span)?;
            let target = bytes.array(ReadMessage::HEADER_BYTES).map_or(0, u64::from_le_bytes);
            self.offered.retain(|(other, _)| *other != peer);
            let copying = Copying::new(number, span, target).filter(|_| self.sender_copies);
            self.offered.extend(copying.map(|copying| (peer, copying)));
            return Ok(());
        }
        let ended = connection.copied.receive(bytes, |span| readable.check(span))?;
        if let Some((token, into, result)) = ended {
            events.push_back(Event::ReadDone { token, into, result });
        }
        if connection.copied.has_to_send() {
            self.note_copying(peer);
        }
        Ok(())
    }

    /// Tells the peer that buffers which it may be reading are let go from now on.
    pub(crate) fn end_generation(&self, connection: &Connection) {
        if let Some(arena) = &self.arena {
            arena.end_generation(connection.inbox);
        }
    }

    /// Claims what is left of the reads from a peer. Returns whether the peer may still be writing
    /// into one of their buffers.
    pub(crate) fn take_back(&mut self, peer: PeerId, connection: &Connection) -> bool {
        let reads = self.direct.iter_mut().filter(|read| read.peer == peer);
        reads.fold(false, |may_write, read| read.take_back(connection) | may_write)
    }

    /// Drops the reads from a peer, which may still be writing into one of their buffers.
    pub(crate) fn abandon(&mut self, peer: PeerId, connection: &Connection) {
        for read in std::mem::take(&mut self.direct) {
            if read.peer == peer {
                read.abandon(connection);
            } else {
                self.direct.push_back(read);
            }
        }
    }

    /// For tests: the errors in the lists of peers. `known`: the peers with a connection.
    pub(crate) fn audit(&self, known: &HashSet<PeerId>) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut offering = HashSet::new();
        for (peer, _) in &self.offered {
            if !offering.insert(*peer) {
                wrong.push(format!("two offers of {peer:?} are kept"));
            }
        }
        let mut copying = HashSet::new();
        for peer in &self.copying {
            if !copying.insert(*peer) {
                wrong.push(format!("{peer:?} is listed twice for copied reads"));
            }
        }
        let reading = self.direct.iter().map(|read| read.peer);
        let listed: HashSet<PeerId> = offering.into_iter().chain(copying).chain(reading).collect();
        for peer in listed.difference(known) {
            wrong.push(format!("reads of {peer:?} are listed, which has no connection"));
        }
        wrong
    }

    /// Ends all reads from a peer that is down, and the peer's reads from this worker.
    pub(crate) fn end_all(
        &mut self,
        peer: PeerId,
        connection: &mut Connection,
        events: &mut VecDeque<Event<'static>>,
    ) {
        self.end_generation(connection);
        let mut end = |token, into| {
            events.push_back(Event::ReadDone { token, into, result: Err(ReadError::PeerDown) });
        };
        for read in std::mem::take(&mut self.direct) {
            if read.peer == peer {
                end(read.token, read.into);
            } else {
                self.direct.push_back(read);
            }
        }
        self.copying.retain(|other| *other != peer);
        self.offered.retain(|(other, _)| *other != peer);
        for (token, into) in connection.copied.take_reads() {
            end(token, into);
        }
    }
}
