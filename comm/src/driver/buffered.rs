//! Buffered sends: the driver keeps a copy of each message until it has left.

use crate::error::Error;
use crate::net::Net;

/// Bytes of the attached room that a buffered send takes in addition to its message.
pub(crate) const BUFFER_OVERHEAD: usize = 64;

/// The room that a program has attached, and the sends that are in it.
pub(crate) struct BufferedSends<N: Net> {
    /// Bytes; `None`: nothing is attached.
    room: Option<usize>,
    used: usize,
    /// Each with the bytes that it takes of the room.
    sends: Vec<(N::Send, usize)>,
}

impl<N: Net> Default for BufferedSends<N> {
    fn default() -> Self {
        BufferedSends { room: None, used: 0, sends: Vec::new() }
    }
}

impl<N: Net> BufferedSends<N> {
    /// Gives room, in bytes.
    pub(crate) fn attach(&mut self, bytes: usize) -> Result<(), Error> {
        if self.room.is_some() {
            return Err(Error::BufferAttached);
        }
        self.room = Some(bytes);
        Ok(())
    }

    /// Takes the room back, once no send is in it.
    pub(crate) fn detach(&mut self) -> Option<usize> {
        self.sends.is_empty().then(|| self.room.take().unwrap_or(0))
    }

    /// Takes room for a message of this length: how many bytes that are.
    pub(crate) fn reserve(&mut self, length: usize) -> Result<usize, Error> {
        let needed = length.saturating_add(BUFFER_OVERHEAD);
        let left = self.room.unwrap_or(0).saturating_sub(self.used);
        if needed > left {
            return Err(Error::BufferFull { needed, left });
        }
        self.used += needed;
        Ok(needed)
    }

    /// Keeps a send until its end, which gives back the bytes that it has reserved.
    pub(crate) fn keep(&mut self, send: N::Send, reserved: usize) {
        self.sends.push((send, reserved));
    }

    /// Gives back the room of sends that have ended.
    pub(super) fn reap(&mut self, net: &mut N) {
        let used = &mut self.used;
        self.sends.retain_mut(|(send, reserved)| {
            let ended = net.test_send(send).is_some();
            *used -= if ended { *reserved } else { 0 };
            !ended
        });
    }
}
