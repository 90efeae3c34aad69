//! Copies the bytes of a message to the buffer that the NIC chose.

use tagmatch_device::tm::TMH_BYTES;
use tagmatch_device::{Bytes, PeerId, Room};

use crate::arrive::{Arrival, Verdict};
use crate::completion::QueuePair;
use crate::fault::Fault;
use crate::nic::Nic;
use crate::pending::EntryBuffer;
use crate::slots::Handle;
use crate::transfers::HEADERS_BYTES;

/// The parts of the model that an incoming message changes.
pub(crate) struct MessageLanding<'a> {
    pub(crate) nic: &'a mut Nic,
    pub(crate) entries: &'a mut [EntryBuffer],
    pub(crate) buffers: &'a mut [Vec<u8>],
}

impl MessageLanding<'_> {
    /// Gives a message to the NIC, which must be ready, and copies its bytes.
    pub(crate) fn take(
        &mut self,
        peer: PeerId,
        immediate: Option<u32>,
        bytes: &Bytes<'_>,
        message_max: usize,
    ) {
        let queue_pair = QueuePair(peer.0);
        if bytes.len() > message_max {
            return self.nic.fail(queue_pair, "a message longer than Limits::message_max");
        }
        let mut head = [0; HEADERS_BYTES];
        bytes.copy_to(0, &mut head);
        let length = bytes.len() as u64;
        match self.nic.arrive(&Arrival { queue_pair, length, head, immediate }) {
            Verdict::Ordinary { wr_id } => self.copy_ordinary(wr_id, bytes),
            Verdict::Payload { handle, .. } => {
                let length = bytes.len() - TMH_BYTES;
                self.copy_matched(handle, length, |room| {
                    bytes.copy_to_room(TMH_BYTES, room);
                });
            }
            Verdict::Headers { handle, .. } => {
                self.copy_matched(handle, HEADERS_BYTES, |room| {
                    room.fill(&head);
                });
            }
            Verdict::Rendezvous | Verdict::Dropped => {}
            Verdict::NotReady => {
                debug_assert!(false, "the caller has checked that the NIC is ready")
            }
        }
    }

    fn copy_ordinary(&mut self, wr_id: u64, bytes: &Bytes<'_>) {
        let at = usize::try_from(wr_id).ok();
        let Some(buffer) = at.and_then(|at| self.buffers.get_mut(at)) else { return };
        if buffer.len() < bytes.len() {
            buffer.resize(bytes.len(), 0);
        }
        bytes.copy_to(0, &mut buffer[..bytes.len()]);
    }

    /// Lets `copy` write the first `length` bytes of a matched entry's buffer.
    fn copy_matched(&mut self, handle: Handle, length: usize, copy: impl FnOnce(Room<'_>)) {
        let held = &mut self.entries[handle.slot()];
        let buffer = held.buffer.as_mut().filter(|_| held.handle == Some(handle));
        match buffer.and_then(|buffer| buffer.room()?.part(0..length)) {
            Some(room) => copy(room),
            None => self.nic.record(Fault::BufferGone(handle)),
        }
    }
}
