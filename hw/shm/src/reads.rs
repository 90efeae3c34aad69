//! Reads of peers' memory: from a mapping, directly by the kernel, or copied through the rings.
//!
//! **A read is verified afterwards.** `process_vm_readv` takes a pid, which may have come to mean
//! another process, and an address, which may hold something else once its worker has closed. So
//! after each read one poll(2) looks at the pidfd and the socket: the process must still live, and
//! its worker, which hangs up before it lets go of buffers, must not have hung up.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use tagmatch_device::{
    Buffer, Bytes, Event, Exposures, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan,
};
use tagmatch_os::process;

use super::arena::Arena;
use super::connection::Connection;
use super::peers::{PeerState, Peers};
use super::ring::PushError;

/// Most bytes that one poll reads, so that a huge read doesn't delay messages. At 10 GB/s they take
/// a tenth of a millisecond.
const BYTES_PER_POLL: usize = 1 << 20;

/// A read under way that this worker does alone: from a mapping, or by the kernel.
struct DirectRead {
    peer: PeerId,
    remote: RemoteSpan,
    /// Where the bytes lie in the mapped memory of the peer's device, if they do.
    mapped_at: Option<usize>,
    into: Buffer,
    length: usize,
    done: usize,
    token: u64,
}

/// The reads of this worker and of its peers.
#[derive(Default)]
pub(crate) struct Reads {
    /// The buffers that peers may read.
    pub(crate) exposures: Exposures,
    /// The memory of this worker's device, in which peers read buffers by themselves.
    pub(crate) arena: Option<Arena>,
    direct: VecDeque<DirectRead>,
    /// Peers to which messages of copied reads are to be sent.
    copying: Vec<PeerId>,
}

impl Reads {
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
            let read = DirectRead { peer, remote, mapped_at, into, length, done: 0, token };
            self.direct.push_back(read);
        } else {
            connection.copied.start(remote, into, token);
            self.note_copying(peer);
        }
        Ok(())
    }

    /// Whether a poll can bring a read forward.
    pub(crate) fn has_work(&self) -> bool {
        self.has_direct() || !self.copying.is_empty()
    }

    pub(crate) fn has_direct(&self) -> bool {
        !self.direct.is_empty()
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

    /// Continues direct reads, one after the other, as far as one poll may.
    pub(crate) fn push_direct(&mut self, peers: &Peers, events: &mut VecDeque<Event<'static>>) {
        let mut budget = BYTES_PER_POLL;
        while budget > 0
            && let Some(mut read) = self.direct.pop_front()
        {
            match self.push_direct_read(peers, &mut read, &mut budget) {
                Ok(false) => self.direct.push_back(read),
                ended => {
                    let (DirectRead { token, into, .. }, result) = (read, ended.map(drop));
                    events.push_back(Event::ReadDone { token, into, result });
                    // A poll reports one event. The next read is for the next poll.
                    return;
                }
            }
        }
    }

    /// Continues one read. Returns whether all its bytes are there.
    fn push_direct_read(
        &self,
        peers: &Peers,
        read: &mut DirectRead,
        budget: &mut usize,
    ) -> Result<bool, ReadError> {
        let Some(PeerState::Up(connection)) = peers.state(read.peer) else {
            return Err(ReadError::PeerDown);
        };
        let Some(into) = read.into.room() else {
            return Err(ReadError::Failed { errno: libc::EINVAL });
        };
        if let (Some(at), Some(memory)) = (read.mapped_at, &connection.memory) {
            // SAFETY: the bytes of a mapping are initialised.
            let into = unsafe { into.into_uninit() };
            let end = read.done + (read.length - read.done).min(*budget);
            memory.copy(at + read.done, &mut into[read.done..end]);
            *budget -= end - read.done;
            read.done = end;
            let is_done = end == read.length;
            // The peer's process may have ended meanwhile: that does not matter as long as the peer
            // has not let go of the buffer.
            if is_done && !memory.is_current() {
                return Err(ReadError::PeerDown);
            }
            return Ok(is_done);
        }
        let Some(process) = &connection.process else {
            // The peer is this worker itself: the buffer is in the table of exposed buffers.
            let Some(bytes) = self.exposures.readable_by(read.peer).bytes(read.remote) else {
                return Err(ReadError::BadSpan);
            };
            into.fill(bytes);
            return Ok(true);
        };
        // SAFETY: the kernel writes initialised bytes.
        let into = unsafe { into.into_uninit() };
        let end = read.done + (read.length - read.done).min(*budget);
        while read.done < end {
            let address = read.remote.address + read.done as u64;
            match process::read_memory_to(process.pid, address, &mut into[read.done..end]) {
                // No bytes and no error: the memory ends here.
                Ok(0) => return Err(ReadError::BadSpan),
                Ok(count) => {
                    read.done += count;
                    *budget = budget.saturating_sub(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if process.has_ended() => return Err(ReadError::PeerDown),
                Err(error) => {
                    return Err(match error.raw_os_error() {
                        Some(libc::EFAULT) => ReadError::BadSpan,
                        Some(libc::ESRCH) => ReadError::PeerDown,
                        errno => ReadError::Failed { errno: errno.unwrap_or(0) },
                    });
                }
            }
        }
        if read.done < read.length {
            return Ok(false);
        }
        // If the process and the socket are still there after the read, the process number has
        // meant this process all the time, and its worker still had the buffer: a worker shuts its
        // sockets down before it drops its buffers.
        let is_gone = connection.socket.as_ref().is_none_or(|socket| {
            process::has_ended_or_hung_up(process.pidfd.as_fd(), socket.as_fd())
        });
        if is_gone { Err(ReadError::PeerDown) } else { Ok(true) }
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
            let result = connection.copied.push(&mut connection.producer, readable);
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
        if let Some((token, into, result)) = connection.copied.receive(bytes, readable)? {
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
        for (token, into) in connection.copied.take_reads() {
            end(token, into);
        }
    }
}
