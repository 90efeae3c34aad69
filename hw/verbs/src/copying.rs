//! Reads by messages through the devices' own buffers, for memory that can't be registered on
//! either side: a process may lock few megabytes (`ulimit -l`), and the device's own buffers are
//! among them.
//!
//! The messages are those of [`CopiedReads`], marked so that the engine doesn't see them. Each
//! takes a credit as a message of the engine does.

use std::io;

use tagmatch_device::tm::TMH_BYTES;
use tagmatch_device::{Buffer, Bytes, CopyPath, Event, Outgoing, PeerId, Refused, RemoteSpan};

use super::Verbs;
use super::failure;
use super::link::{Link, Outbox};
use super::memory::Receives;
use super::wire::{COPY_HEADER_BYTES, copy_header};

/// Why a message of a copied read isn't sent.
enum NotSent {
    /// There is no credit, or a queue is full. A completion or an announcement makes room.
    Full,
    /// There is no memory for a buffer, or no room in the completion queue that all peers share.
    Later,
    /// The queue pair has failed.
    Failed(io::Error),
}

struct LinkPath<'a> {
    link: &'a mut Link,
    receives: &'a mut Receives,
    outbox: &'a mut Outbox,
    sent: usize,
}

impl CopyPath for LinkPath<'_> {
    type Error = NotSent;

    fn has_half_free(&mut self) -> Result<bool, NotSent> {
        Ok(self.link.has_half_free())
    }

    fn part_max(&self) -> usize {
        self.link.message_max.saturating_sub(COPY_HEADER_BYTES)
    }

    fn send(&mut self, header: &[u8], part: &[u8]) -> Result<(), NotSent> {
        let message = Outgoing { header: &copy_header(header), payload: part, immediate: None };
        match self.link.send(message, self.receives, self.outbox) {
            Ok(Ok(())) => {
                self.sent += 1;
                Ok(())
            }
            Ok(Err(error)) => Err(NotSent::Failed(error)),
            Err(Refused::Full) if self.link.allowance.is_open() && self.link.room() > 0 => {
                Err(NotSent::Later)
            }
            Err(_) => Err(NotSent::Full),
        }
    }
}

impl Verbs {
    /// Starts a read by messages. The caller has checked that the bytes fit into the buffer.
    pub(super) fn copy_read(&mut self, peer: PeerId, remote: RemoteSpan, into: Buffer, token: u64) {
        self.unregistered += 1;
        if let Some(link) = self.peers.up(peer) {
            link.copied.start(remote, into, token);
            self.push_copied(peer);
        }
    }

    /// Takes a message of copied reads, which is in this buffer.
    pub(super) fn take_copy(&mut self, peer: PeerId, at: u32, length: usize) {
        let Some(link) = self.peers.up(peer) else { return };
        // SAFETY: the device has completed the buffer. The caller gives it back to the queue after
        // this call, which keeps no reference to it.
        let bytes = unsafe { self.receives.bytes(at, length) };
        // The span of a request is looked up when its bytes are sent.
        let message = Bytes::from_slice(bytes.get(TMH_BYTES..).unwrap_or_default());
        match link.copied.receive(&message, |_| Ok(())) {
            Ok(ended) => {
                let ended =
                    ended.map(|(token, into, result)| Event::ReadDone { token, into, result });
                self.events.extend(ended);
                self.push_copied(peer);
            }
            Err(what) => self.end_for_violation(peer, what),
        }
    }

    /// Sends messages of copied reads to a peer, as far as there is room.
    pub(super) fn push_copied(&mut self, peer: PeerId) {
        let Some(link) = self.peers.up(peer) else { return };
        if !link.copied.has_to_send() {
            return;
        }
        let mut copied = std::mem::take(&mut link.copied);
        let exposures = &self.exposures;
        let receives = &mut self.receives;
        let outbox = &mut self.outbox;
        let mut path = LinkPath { link, receives, outbox, sent: 0 };
        let mut pushed = Ok(());
        let mut sent_before = None;
        while pushed.is_ok() && copied.has_to_send() && sent_before != Some(path.sent) {
            sent_before = Some(path.sent);
            pushed = copied.push(&mut path, |span| exposures.bytes(peer, span));
        }
        link.copied = copied;
        match pushed {
            Ok(()) | Err(NotSent::Full) => {}
            Err(NotSent::Later) => {
                if !self.waiting_to_copy.contains(&peer) {
                    self.waiting_to_copy.push(peer);
                }
            }
            Err(NotSent::Failed(error)) => {
                self.lose_peer(peer, failure::of_call("ibv_post_send", &error));
            }
        }
    }
}
