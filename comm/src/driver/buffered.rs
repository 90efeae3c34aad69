//! Buffered sends: the driver keeps a copy of each message until its send has ended.

use crate::error::Error;
use crate::ft::Service;
use crate::net::{Net, ProcessId};

/// Bytes of the attached buffer that a buffered send uses in addition to its message.
pub(crate) const BUFFER_OVERHEAD: usize = 64;

/// The buffer space that a program has attached, and the sends that use it.
pub(crate) struct BufferedSends<N: Net> {
    /// The attached space in bytes; `None`: the program has attached none.
    room: Option<usize>,
    used: usize,
    /// Each send with its receiver, and the bytes of the space that it uses.
    sends: Vec<(N::Send, ProcessId, usize)>,
}

impl<N: Net> Default for BufferedSends<N> {
    fn default() -> Self {
        BufferedSends { room: None, used: 0, sends: Vec::new() }
    }
}

impl<N: Net> BufferedSends<N> {
    /// Attaches space for buffered sends, in bytes.
    pub(crate) fn attach(&mut self, bytes: usize) -> Result<(), Error> {
        if self.room.is_some() {
            return Err(Error::BufferAttached);
        }
        self.room = Some(bytes);
        Ok(())
    }

    /// Detaches the space and returns its size in bytes. `None`: a send still uses it.
    pub(crate) fn detach(&mut self) -> Option<usize> {
        self.sends.is_empty().then(|| self.room.take().unwrap_or(0))
    }

    /// Reserves space for a message of this length. Returns the bytes that it takes.
    pub(crate) fn reserve(&mut self, length: usize) -> Result<usize, Error> {
        let needed = length.saturating_add(BUFFER_OVERHEAD);
        let left = self.room.unwrap_or(0).saturating_sub(self.used);
        if needed > left {
            return Err(Error::BufferFull { needed, left });
        }
        self.used += needed;
        Ok(needed)
    }

    /// Keeps a send until it has ended. Its `reserved` bytes are free again then.
    pub(crate) fn keep(&mut self, send: N::Send, to: ProcessId, reserved: usize) {
        self.sends.push((send, to, reserved));
    }

    /// The sends that are kept use the space that is reserved.
    pub(super) fn audit(&self) -> Option<String> {
        let used = self.used;
        let kept: usize = self.sends.iter().map(|(.., reserved)| reserved).sum();
        (kept != used).then(|| format!("buffered sends use {kept} bytes, {used} are reserved"))
    }

    /// Drops the sends that have ended, and frees their space. A send that has failed has no
    /// request to tell the program by, so the service for failures is told.
    pub(super) fn reap(&mut self, net: &mut N, ft: &mut Service<N>) {
        let used = &mut self.used;
        self.sends.retain_mut(|(send, to, reserved)| {
            let Some(ended) = net.test_send(send) else { return true };
            if let Err(failed) = ended {
                ft.note_unsent(net, *to, &failed.error);
            }
            *used -= *reserved;
            false
        });
    }
}
