//! A connection to a peer that is up.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tagmatch_device::Room;
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::tcp;

use super::accesses::Accesses;
use super::hosts::Host;
use super::puts::PutsOfPeer;
use super::reads::ReadsFromPeer;
use super::regions::PublishedRegions;
use super::send_half::SendHalf;

/// A connection whose both ends have proved themselves.
pub(crate) struct Connection {
    pub(crate) socket: PeerSocket,
    pub(crate) out: SendHalf,
    pub(crate) reads: ReadsFromPeer,
    pub(crate) accesses: Accesses,
    pub(crate) puts: PutsOfPeer,
    /// The part of a frame that has arrived.
    pub(crate) partial: Vec<u8>,
    /// Longest message that the peer receives, in bytes.
    pub(crate) message_max: usize,
    /// Whether the set of descriptors reports room in the socket.
    pub(crate) is_room_watched: bool,
    /// Nothing can be sent any more. What the peer has sent before is still received.
    pub(crate) is_broken: bool,
    /// Since when sent data may be unacknowledged, if it may be.
    pub(crate) busy_since: Option<Duration>,
    /// How many messages are known to be acknowledged.
    pub(crate) messages_acknowledged: u64,
    /// The machine whose quota has counted this connection; `None` if this worker has connected.
    pub(crate) counted_for: Option<Host>,
}

impl Connection {
    pub(crate) fn new(socket: PeerSocket, message_max: usize) -> Self {
        Connection {
            socket,
            out: SendHalf::default(),
            reads: ReadsFromPeer::default(),
            accesses: Accesses::default(),
            puts: PutsOfPeer::default(),
            partial: Vec::new(),
            message_max,
            is_room_watched: false,
            is_broken: false,
            busy_since: None,
            messages_acknowledged: 0,
            counted_for: None,
        }
    }

    #[inline]
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Bytes of the current frame that are still to come, of a read or of a put.
    #[inline]
    pub(crate) fn landing(&self) -> usize {
        self.reads.landing() + self.puts.landing()
    }

    /// Notes that so many of these bytes have come. `true`: an answer is to be sent.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn advance(&mut self, count: usize) -> Result<bool, &'static str> {
        if self.puts.landing() > 0 {
            return self.puts.advance(count, &mut self.out);
        }
        self.reads.advance(count);
        Ok(false)
    }

    /// Nothing can be sent any more. What the peer has sent before is still received, and then the
    /// end of the stream.
    #[cold]
    pub(crate) fn note_broken(&mut self) {
        self.is_broken = true;
        self.socket.shut_down();
    }

    /// The socket, and what is still to be sent over it.
    pub(crate) fn into_sending_half(self) -> (PeerSocket, SendHalf) {
        (self.socket, self.out)
    }

    /// The place in the stream up to which the other machine has acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        // The call fails for no connected socket.
        let pending = tcp::unacknowledged(self.socket()).unwrap_or(0);
        self.out.taken().saturating_sub(pending as u64)
    }

    /// How many messages are not known to be acknowledged. The others are not counted again.
    pub(crate) fn unacknowledged_messages(&mut self) -> usize {
        let left = self.out.unacknowledged(self.acknowledged(), self.messages_acknowledged);
        self.messages_acknowledged = self.out.messages() - left;
        usize::try_from(left).unwrap_or(usize::MAX)
    }
}

/// The place for the bytes of a read or a put that are still to come of the current frame. `None`:
/// they are dropped.
pub(crate) fn landing_room<'a>(
    reads: &'a mut ReadsFromPeer,
    puts: &mut PutsOfPeer,
    regions: &'a mut PublishedRegions,
) -> Option<Room<'a>> {
    if puts.landing() > 0 { puts.room(regions) } else { reads.room() }
}
