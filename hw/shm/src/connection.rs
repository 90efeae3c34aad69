//! An established connection to a peer.

use std::sync::Arc;

use tagmatch_device::{CopiedReads, LearnedChoice, LearnedDirection, ReadMode};
use tagmatch_os::sleep::EventFd;
use tagmatch_os::wake_socket::{WakeKey, WakeSocket};

use super::carrying::Carrying;
use super::cooperative::Claims;
use super::doorbell::{Doorbell, DoorbellBit};
use super::learned::LearnedState;
use super::lifelines::lifeline::Lifeline;
use super::nonce::OwnNonce;
use super::peer_memory::PeerMemory;
use super::processes::{CallingProcess, ReadableProcess};
use super::ring::{LONG_MESSAGE_BYTES, Producer, PushError, Ring};
use super::sharing::Sharing;

/// An established connection. Its receiving end is in [`Inboxes`](super::inboxes::Inboxes).
pub(crate) struct Connection {
    /// The sending end of the ring that the peer reads.
    pub(crate) producer: Producer,
    /// Longest message that the peer receives, in bytes.
    pub(crate) message_max: u32,
    /// Whether each send needs a fence, because the peer can't put a barrier on this process.
    pub(crate) is_fenced: bool,
    /// The peer's doorbell, and the bit in it for this connection.
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) doorbell_bit: DoorbellBit,
    /// The bit of this worker's doorbell that the peer sets.
    pub(crate) inbox: DoorbellBit,
    /// `None` for the connection to oneself.
    pub(crate) other_end: Option<OtherEnd>,
    /// Wakes the worker itself. `None` for all other peers.
    pub(crate) eventfd: Option<Arc<EventFd>>,
    /// The process whose quota has counted this connection; `None` if this worker has connected.
    pub(crate) counted_for: Option<CallingProcess>,
    pub(crate) read_mode: ReadMode,
    /// The memory of the peer's device, from which buffers are read whatever `read_mode` is.
    pub(crate) memory: Option<PeerMemory>,
    /// The reads through the rings, in both directions.
    pub(crate) copied: CopiedReads,
    /// The ring that this worker reads from the peer.
    pub(crate) inbound: Ring,
    /// Whether the peer copies a part of the long messages that it sends.
    pub(crate) takes_offers: bool,
    /// Offers that the peer was made. The last one has this number.
    pub(crate) offers: u16,
    /// Whether the last offer is under way.
    pub(crate) is_offering: bool,
    /// Which messages to the peer go out in fragments.
    pub(crate) carrying: Carrying,
    /// Which reads from the peer are offered.
    pub(crate) sharing: Sharing,
}

/// The parts of a connection that one to oneself lacks. When this is dropped, the connection ends.
pub(crate) struct OtherEnd {
    pub(crate) lifeline: Arc<Lifeline>,
    pub(crate) waker: PeerWaker,
    /// By it the peer knows that it still may read this worker's buffers.
    pub(crate) own_nonce: OwnNonce,
    /// `None` if the peer is in another pid namespace, or where the kernel has no pidfd.
    pub(crate) process: Option<ReadableProcess>,
}

impl Drop for OtherEnd {
    fn drop(&mut self) {
        self.lifeline.close();
    }
}

/// Wakes a peer that sleeps.
pub(crate) struct PeerWaker {
    /// This worker's own socket, out of which packets are sent.
    pub(crate) from: Arc<WakeSocket>,
    pub(crate) name: String,
    pub(crate) key: WakeKey,
}

impl Connection {
    /// The words by which pieces of messages from the peer are claimed.
    pub(crate) fn claims(&self) -> &Claims {
        &self.inbound.header().claims.0
    }

    /// The choices that were learned for the messages to and from the peer.
    pub(crate) fn learned(&self) -> Vec<LearnedChoice> {
        let laps = self.producer.learned_laps().into_iter().flat_map(|states| {
            let long = LONG_MESSAGE_BYTES as usize;
            let ways = ["short laps of the ring", "whole laps"];
            let row = |state: LearnedState, lengths| {
                state.describe(LearnedChoice::new(LearnedDirection::Sent, lengths, ways))
            };
            let [of_short, of_long] = states;
            [row(of_short, 0..=long - 1), row(of_long, long..=long.max(self.message_max as usize))]
        });
        let sent = laps.chain(self.carrying.learned());
        sent.chain(self.sharing.learned()).collect()
    }

    /// Whether the peer's process has ended, or its worker has hung up.
    pub(crate) fn has_ended(&self) -> bool {
        self.other_end.as_ref().is_none_or(|other| other.lifeline.has_ended())
    }

    /// The process of the peer, if its memory can be read.
    pub(crate) fn process(&self) -> Option<&ReadableProcess> {
        self.other_end.as_ref()?.process.as_ref()
    }

    /// Whether the number of the peer's process certainly means the peer now, and the peer's worker
    /// has its buffers.
    pub(crate) fn is_certainly_there(&self) -> bool {
        let is_there = |OtherEnd { lifeline, process, .. }: &OtherEnd| {
            // A thread may notice the end late, so the peer is asked.
            !lifeline.has_ended()
                && (lifeline.is_here() || process.is_some_and(|at| at.has_nonce()))
        };
        self.other_end.as_ref().is_some_and(is_there)
    }

    /// Writes a message of the engine and rings the peer's doorbell if the peer wants that. The
    /// caller has checked the length. `polls` counts the polls of this worker.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        header: &[u8],
        payload: &[u8],
        immediate: Option<u32>,
        polls: &u32,
    ) -> Result<(), PushError> {
        match self.producer.push(header, payload, immediate, polls) {
            Ok(()) => self.notify(),
            Err(error) => {
                self.wake_to_follow();
                return Err(error);
            }
        }
        Ok(())
    }

    /// After a message was refused: wakes a peer that has to follow this worker's writer to other
    /// lines before there is room. Nobody was woken for that until now.
    #[cold]
    pub(crate) fn wake_to_follow(&self) {
        if !self.producer.can_change_lines() {
            self.ring_doorbell();
        }
    }

    /// After a message was written: rings the peer's doorbell if the peer wants that.
    #[inline(always)]
    pub(crate) fn notify(&self) {
        if self.producer.is_doorbell_wanted(self.is_fenced) {
            self.ring_doorbell();
        }
    }

    /// Lets the ring that this worker writes take less memory if it is idle.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn rest(&mut self) -> Result<(), PushError> {
        // A worker that sends to itself has no peer to spare memory for.
        if self.other_end.is_some() && self.producer.rest()? {
            self.doorbell.ring_quietly(self.doorbell_bit);
        }
        Ok(())
    }

    #[cold]
    fn ring_doorbell(&self) {
        if self.doorbell.ring(self.doorbell_bit) {
            self.send_wake();
        }
    }

    /// Wakes the peer if it sleeps, because its ring has room again.
    pub(crate) fn wake(&self) {
        if self.doorbell.take_sleeper() {
            self.send_wake();
        }
    }

    fn send_wake(&self) {
        #[cfg(all(loom, test))]
        self.doorbell.wakes.send();
        if let Some(OtherEnd { waker, .. }) = &self.other_end {
            waker.from.wake(waker.name.as_bytes(), waker.key);
        }
        if let Some(eventfd) = &self.eventfd {
            eventfd.signal();
        }
    }
}
