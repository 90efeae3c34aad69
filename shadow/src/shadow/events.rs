//! Events of the NIC's list.

use crate::config::Why;
use crate::entry::{Entry, MatchPlace, Removal};
use crate::error::ShadowError;
use crate::queue::SentOperation;
use crate::shadow::Shadow;
use crate::table::{State, Step};

/// What follows from a delete that removed its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The receive is cancelled. The shadow has forgotten it.
    Cancelled {
        /// The receive's id.
        id: u32,
    },
    /// The first of the messages that wait for the receive takes it. The shadow has forgotten the
    /// receive, and the other waiting messages must be searched for again.
    ForMessage {
        /// The receive's id.
        id: u32,
    },
    /// The receive is in software again, and may be added to the list again.
    Again {
        /// The receive's id.
        id: u32,
    },
    /// A message took the receive before the NIC answered the delete.
    Ignored,
}

/// What follows from a delete that the NIC executed after the entry had matched.
///
/// The NIC reports the match as well, before or after this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The receive, if its match was not reported yet. It leaves the posted receives now, and
    /// messages that wait for it must be searched for again.
    pub id: Option<u32>,
    /// Why the entry was being deleted.
    pub was: Option<Removal>,
}

impl Shadow {
    /// The NIC has added an entry to its list.
    ///
    /// # Errors
    /// The NIC broke its contract.
    pub fn added(&mut self, slot: u32) -> Result<(), ShadowError> {
        self.event();
        // The NIC's count includes unexpected messages for which software has not searched yet. So
        // this compares with `arrived`, not with `searched`.
        let now = self.arrived;
        let in_phase = self.entries.get(slot as usize).is_some_and(|entry| entry.count == now);
        let step = if in_phase { Step::AddedInPhase } else { Step::AddedLate };
        self.answer(slot, step, SentOperation::Add(slot))?;
        let Entry { state, id, removal, .. } = self.entries[slot as usize];
        match state {
            State::Active if removal.is_none() => self.unblock(id),
            State::Inactive => self.missed_phase(slot),
            _ => {}
        }
        Ok(())
    }

    /// Deletes an entry that missed its phase, and the entries added after it with the same count,
    /// which missed it as well. The youngest is deleted first, because a delete may activate the
    /// entries that are left.
    fn missed_phase(&mut self, slot: u32) {
        if self.counters.broken {
            return;
        }
        let count = self.entries[slot as usize].count;
        let is_younger = |slot: &u32| {
            let entry = &self.entries[*slot as usize];
            entry.count == count && entry.state == State::Adding
        };
        let mut slots: Vec<u32> = self.queue.adding().filter(is_younger).collect();
        slots.push(slot);
        for slot in slots {
            if self.entries[slot as usize].removal.is_none() {
                self.counters.again += 1;
                self.ask(slot, Removal::Again);
            }
        }
    }

    /// The NIC has answered a sync.
    ///
    /// # Errors
    /// The NIC broke its contract.
    pub fn synced(&mut self) -> Result<(), ShadowError> {
        self.event();
        if self.queue.due() != Some(SentOperation::Sync) {
            self.counters.broken = true;
            return Err(ShadowError::Unsynced);
        }
        self.queue.answered();
        Ok(())
    }

    /// The NIC matched an entry with a message. Returns the receive, which has left the posted
    /// receives. If [`lost`](Self::lost) returned it already, this returns the same id again.
    ///
    /// # Errors
    /// The NIC broke its contract.
    pub fn matched(&mut self, slot: u32) -> Result<u32, ShadowError> {
        self.event();
        let next = self.checked(slot, Step::Match)?;
        let Entry { state: before, id, removal, .. } = self.entries[slot as usize];
        if removal.is_some() && before.may_be_deleted() {
            // The delete wasn't sent yet, and the entry it was for is gone.
            self.removals.retain(|other| *other != slot);
            self.entries[slot as usize].removal = None;
            self.thaw();
        }
        self.move_to(slot, next);
        if before != State::Lost {
            self.forget(id);
        }
        self.counters.hardware += 1;
        Ok(id)
    }

    /// The data of a matched message is in place, or will never be, or software has to fetch it.
    /// Returns the receive.
    ///
    /// # Errors
    /// The NIC broke its contract.
    pub fn landed(&mut self, slot: u32) -> Result<u32, ShadowError> {
        self.event();
        let next = self.checked(slot, Step::Landed)?;
        self.move_to(slot, next);
        Ok(self.entries[slot as usize].id)
    }

    /// The NIC executed a delete and removed the entry.
    ///
    /// # Errors
    /// The NIC broke its contract.
    pub fn deleted(&mut self, slot: u32) -> Result<Deleted, ShadowError> {
        self.event();
        let Some(&Entry { id, removal, .. }) = self.entries.get(slot as usize) else {
            return self.checked(slot, Step::Deleted).map(|_| Deleted::Ignored);
        };
        self.answer(slot, Step::Deleted, SentOperation::Delete(slot))?;
        match removal {
            None => Ok(Deleted::Ignored),
            Some(Removal::Again) => {
                self.wait_again(id);
                Ok(Deleted::Again { id })
            }
            Some(Removal::Cancel) => {
                self.forget(id);
                Ok(Deleted::Cancelled { id })
            }
            Some(Removal::Message) => {
                self.forget(id);
                self.counters.software[Why::Source as usize] += 1;
                Ok(Deleted::ForMessage { id })
            }
        }
    }

    /// Puts the receive back into software, as if it had just been posted. It keeps its age.
    fn wait_again(&mut self, id: u32) {
        let Some(receive) = self.receive(id) else { return };
        let age = receive.posted.age;
        receive.place = MatchPlace::Waiting(None);
        self.waiting.ready(age, id);
        self.block(id);
    }

    /// The NIC executed a delete after the entry had matched. The match is reported separately.
    ///
    /// # Errors
    /// The NIC broke its contract.
    pub fn lost(&mut self, slot: u32) -> Result<Lost, ShadowError> {
        self.event();
        let entry = self.entries.get(slot as usize).copied();
        let was = entry.and_then(|entry| entry.removal);
        self.answer(slot, Step::DeleteLost, SentOperation::Delete(slot))?;
        self.counters.lost += 1;
        let Entry { state, id, .. } = self.entries[slot as usize];
        self.entries[slot as usize].removal = None;
        if state != State::Lost {
            return Ok(Lost { id: None, was });
        }
        self.forget(id);
        Ok(Lost { id: Some(id), was })
    }

    /// The state after an event. An event that the table doesn't allow breaks the list.
    fn checked(&mut self, slot: u32, step: Step) -> Result<State, ShadowError> {
        let next = self.next(slot, step);
        self.counters.broken |= next.is_err();
        next
    }

    /// Records the answer to the oldest operation without one.
    fn answer(&mut self, slot: u32, step: Step, sent: SentOperation) -> Result<(), ShadowError> {
        let next = self.checked(slot, step)?;
        if self.queue.due() != Some(sent) {
            self.counters.broken = true;
            let state = self.entries[slot as usize].state;
            return Err(ShadowError::OutOfTurn { slot, state, step });
        }
        self.queue.answered();
        self.move_to(slot, next);
        Ok(())
    }
}
