//! Tending the NIC's list: what the shadow decided is handed to the device, what the device reports to
//! the protocol.

use tagmatch_device::{Device, TagAdd, TagHandle, TagList, TagRefused};
use tagmatch_shadow::{Cancel, Op, Refusal};

use crate::core::Core;
use crate::engine::Engine;

impl<D: Device> Engine<D> {
    /// Does all that is due on the list. Before anything else happens: removals must reach the NIC
    /// before the count that their messages raise.
    #[cold]
    #[inline(never)]
    pub(crate) fn tend_list(&mut self) {
        self.core.nic_tended();
        while let Some(reclaim) = self.core.next_reclaim() {
            let buffer = self.list().and_then(|list| list.reclaim(TagHandle(reclaim.handle)));
            self.core.reclaimed(reclaim, buffer);
        }
        while let Some(op) = self.core.nic.as_mut().and_then(|nic| nic.shadow.next_op()) {
            let done = self.operate(&op);
            if let Some(nic) = &mut self.core.nic {
                match done {
                    Ok(handle) => nic.shadow.accepted(op, handle.map(|handle| handle.0)),
                    Err(refused) => nic.shadow.refused(op, refusal(refused)),
                }
            }
        }
    }

    fn list(&mut self) -> Option<&mut dyn TagList> {
        self.device.tags()
    }

    fn operate(&mut self, op: &Op) -> Result<Option<TagHandle>, TagRefused> {
        match *op {
            Op::Add { id, slot, count } => self.add(id, slot, count).map(Some),
            Op::Delete { handle, answer, count, .. } => {
                let list = self.list().ok_or(TagRefused::Broken)?;
                list.delete(TagHandle(handle), answer, count).map(|()| None)
            }
            Op::Sync { count } => self.list().ok_or(TagRefused::Broken)?.sync(count).map(|()| None),
        }
    }

    fn add(&mut self, id: u32, slot: u32, count: u16) -> Result<TagHandle, TagRefused> {
        let posting = self.core.nic_posting(id, slot).ok_or(TagRefused::NoSuchEntry)?;
        let (tag, mask) = (posting.pattern.tag().0, posting.pattern.mask().0);
        let Some(list) = self.device.tags() else { return Err(TagRefused::Broken) };
        let add = TagAdd { entry: slot, tag, mask, buffer: posting.buffer, count };
        list.add(add).map_err(|(buffer, refused)| {
            self.core.nic_gives_back(slot, buffer, 0);
            refused
        })
    }
}

fn refusal(refused: TagRefused) -> Refusal {
    match refused {
        TagRefused::ListFull => Refusal::ListFull,
        TagRefused::QueueFull => Refusal::QueueFull,
        TagRefused::Buffer => Refusal::Buffer,
        TagRefused::NoSuchEntry | TagRefused::Broken => Refusal::Broken,
    }
}

impl Core {
    /// Asks the shadow what a cancel means for a posted receive.
    pub(crate) fn cancel_in_shadow(&mut self, index: u32) -> Cancel {
        let Some(nic) = &mut self.nic else { return Cancel::Software };
        let answer = nic.shadow.cancel(index);
        self.nic_due();
        answer
    }
}
