//! The device's list: what the shadow has decided is handed to it.

use tagmatch_device::{TagAdd, TagHandle, TagList, TagRefused};
use tagmatch_shadow::{Op, Refusal};

use super::Offload;
use super::entries::Entries;
use crate::state::ProtocolState;

impl Offload {
    /// Does all that is due on the list. The caller calls this before it takes the next event: the
    /// delete of an entry must reach the NIC before the count of the message that took the entry's
    /// receive.
    #[cold]
    #[inline(never)]
    pub(crate) fn carry_out(&mut self, state: &mut ProtocolState, list: &mut dyn TagList) {
        self.is_due = false;
        while let Some(reclaim) = self.reclaims.pop_front() {
            let buffer = list.reclaim(TagHandle(reclaim.handle));
            self.reclaimed(state, reclaim, buffer);
        }
        while let Some(due) = self.shadow.next_op() {
            match operate(&mut self.entries, state, list, due.op()) {
                Ok(handle) => due.accepted(handle.map(|handle| handle.0)),
                Err(refused) => due.refused(refusal(refused)),
            }
        }
    }
}

/// Posts one operation; gives the handle of an entry that is added.
fn operate(
    entries: &mut Entries,
    state: &mut ProtocolState,
    list: &mut dyn TagList,
    op: Op,
) -> Result<Option<TagHandle>, TagRefused> {
    match op {
        Op::Add { id, slot, count } => {
            let lent = entries.lend(list, state, id, slot);
            let (pattern, buffer) = lent.ok_or(TagRefused::NoSuchEntry)?;
            let tag = pattern.tag().0;
            let mask = pattern.mask().0;
            let added = list.add(TagAdd { entry: slot, tag, mask, buffer, count });
            added.map(Some).map_err(|(buffer, refused)| {
                entries.give_back(state, slot, buffer, 0);
                refused
            })
        }
        Op::Delete { handle, answer, count, .. } => {
            list.delete(TagHandle(handle), answer, count).map(|()| None)
        }
        Op::Sync { count } => list.sync(count).map(|()| None),
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
