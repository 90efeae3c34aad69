//! The list of [`Model`] as the engine sees it: operations in, events out, and the buffers of
//! entries.

use tagmatch_device::tm::TMH_BYTES;
use tagmatch_device::{
    Buffer, Device, PeerId, TagAdd, TagCaps, TagEvent, TagHandle, TagList, TagRefused,
};

use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::device::Model;
use crate::operation::{Operation, OperationKind, PostError};
use crate::pending::EntryBuffer;
use crate::slots::Handle;

/// The shortest buffer that an entry may have: the longest rendezvous request.
const BUFFER_MIN: usize = 64;

impl<D: Device> Model<D> {
    /// Posts an operation, and returns the handle of the entry that it adds or deletes.
    fn post(
        &mut self,
        signalled: bool,
        count: u16,
        kind: OperationKind,
    ) -> Result<Option<Handle>, TagRefused> {
        let unexpected_count = Some(count);
        // Events are identified by handle, so the operation needs no number.
        let operation = Operation { wr_id: 0, signalled, unexpected_count, kind };
        self.nic.post(operation).map_err(|error| match error {
            PostError::QueueFull => TagRefused::QueueFull,
            PostError::ListFull => TagRefused::ListFull,
            PostError::Invalid => TagRefused::NoSuchEntry,
        })
    }

    /// The event of the next completion, which is about an entry or about the list.
    pub(crate) fn tag_event(&mut self, completion: &Completion) -> TagEvent {
        let Some(handle) = completion.handle else {
            self.nic.poll();
            return TagEvent::Synced;
        };
        let whole = WcFlags::MATCH | WcFlags::DATA_VALID;
        let is_second = std::mem::take(&mut self.is_halfway);
        // A match with its data in one completion is two events. The second ends the entry, so the
        // completion stays until the second event is taken.
        if completion.flags.contains(whole) && !is_second {
            self.is_halfway = true;
        } else {
            self.nic.poll();
        }
        self.event_of(completion, handle, is_second)
    }

    /// The event of a completion about an entry. A match with its data in one completion has two.
    fn event_of(&mut self, completion: &Completion, handle: Handle, is_second: bool) -> TagEvent {
        let held = &mut self.entries[handle.slot()];
        let entry = held.entry;
        match completion.opcode {
            WcOpcode::TmAdd => return TagEvent::Added { entry },
            WcOpcode::TmDel if completion.status == WcStatus::Success => {
                return TagEvent::Deleted { entry, buffer: held.buffer.take() };
            }
            WcOpcode::TmDel => return TagEvent::DeleteLost { entry },
            _ => {}
        }
        if completion.flags.contains(WcFlags::MATCH) && !is_second {
            let peer = PeerId(completion.queue_pair.map_or(0, |queue_pair| queue_pair.0));
            let info = completion.tm_info;
            return TagEvent::Matched { entry, peer, tag: info.tag, app_ctx: info.app_ctx };
        }
        // There is no buffer if it was reclaimed; the NIC has recorded that fault.
        let buffer = held.buffer.take().unwrap_or_default();
        match completion.status {
            WcStatus::Success => {
                let length = u32::try_from(completion.length).unwrap_or(u32::MAX);
                let immediate = completion.immediate;
                TagEvent::Landed { entry, length, immediate, buffer }
            }
            WcStatus::RendezvousIncomplete => TagEvent::Incomplete { entry, buffer },
            _ => TagEvent::Failed { entry, buffer },
        }
    }
}

impl<D: Device> TagList for Model<D> {
    fn caps(&self) -> TagCaps {
        self.caps
    }

    fn add(&mut self, add: TagAdd) -> Result<TagHandle, (Buffer, TagRefused)> {
        let TagAdd { entry, tag, mask, buffer, count } = add;
        let length = buffer.len() as u64;
        // The longest eager payload that a peer may send must fit as well.
        let payload_max = self.message_max.saturating_sub(TMH_BYTES);
        let is_long_enough = buffer.len() >= payload_max.max(BUFFER_MIN);
        if !buffer.is_writable() || !is_long_enough || length > self.caps.read_max {
            return Err((buffer, TagRefused::Buffer));
        }
        let recv_wr_id = entry.into();
        let kind = OperationKind::Add { recv_wr_id, tag, mask, elements: 1, length };
        match self.post(true, count, kind) {
            Ok(Some(handle)) => {
                let handle_of = Some(handle);
                let buffer = Some(buffer);
                let held = EntryBuffer { handle: handle_of, entry, buffer, reads_from: None };
                self.entries[handle.slot()] = held;
                Ok(TagHandle(handle.0))
            }
            Ok(None) => Err((buffer, TagRefused::Broken)),
            Err(refused) => Err((buffer, refused)),
        }
    }

    fn delete(&mut self, handle: TagHandle, answer: bool, count: u16) -> Result<(), TagRefused> {
        let kind = OperationKind::Delete { handle: Handle(handle.0) };
        self.post(answer, count, kind).map(drop)
    }

    fn sync(&mut self, count: u16) -> Result<(), TagRefused> {
        self.post(true, count, OperationKind::Sync).map(drop)
    }

    fn reclaim(&mut self, handle: TagHandle) -> Option<Buffer> {
        let handle = Handle(handle.0);
        if self.nic.is_matched(handle) {
            return None;
        }
        let held = self.entries.get_mut(handle.slot())?;
        held.buffer.take_if(|_| held.handle == Some(handle))
    }
}
