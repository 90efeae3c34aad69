//! The shadow's state, and the calls of the software that matches messages.

mod digest;
pub(crate) mod events;
pub(crate) mod operations;

use std::collections::VecDeque;

use tagmatch_soft::{Pattern, Tag};

use crate::config::{ShadowConfig, Why};
use crate::counters::Counters;
use crate::entry::{Entry, MatchPlace, Receive, Removal};
use crate::error::ShadowError;
use crate::op::LOOKS_MAX;
use crate::order::{Age, Blockers, PostedPattern};
use crate::policy::Policy;
use crate::queue::UnansweredOperations;
use crate::table::{State, Step};
use crate::waiting::{HeldBack, WaitingReceives};

/// A record of the posted receives that a NIC holds. See the crate's documentation for the rules.
///
/// A receive is named by the caller's id, and an entry of the NIC's list by the shadow's *slot*.
/// After each call [`next_op`](Self::next_op) may have operations for the NIC.
///
/// **The caller must search again for messages that wait for a receive ([`Take::Wait`]) when the
/// receive leaves the posted receives** by [`matched`](Self::matched), by a [`lost`](Self::lost)
/// that names it, or by [`Take::Reclaim`]. At [`Deleted::ForMessage`](crate::Deleted::ForMessage)
/// the first of them takes it.
#[derive(Clone, Debug)]
pub struct Shadow {
    policy: Policy,
    blockers: Blockers,
    waiting: WaitingReceives,
    queue: UnansweredOperations,
    /// Indexed by id.
    receives: Vec<Option<Receive>>,
    next_age: Age,
    /// Indexed by slot.
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Slots of the entries whose delete is still to be handed to the NIC.
    removals: VecDeque<u32>,
    /// Slots of the entries added with the current count. May contain others.
    recent: Vec<u32>,
    /// Messages that the NIC's list has reported as unexpected.
    arrived: u64,
    /// Unexpected messages for which software has searched the posted receives.
    searched: u64,
    /// The last count that the NIC was told.
    sent_count: u64,
    /// The count that operations carry until all deletes were handed to the NIC.
    frozen: Option<u64>,
    sync_every: u64,
    /// The number of waiting receives that may still be examined for this event.
    looks: u32,
    /// The NIC refused an operation. It gets no other one until the next event.
    stalled: bool,
    /// The NIC said that its list is full. There may still be free slots here.
    full: bool,
    counters: Counters,
}

/// What happens to an unexpected message for which software has found a posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The message takes the receive, which was in software. The shadow has forgotten the receive.
    Software(Why),
    /// The message takes the receive. The NIC can't have matched its entry, and the caller reclaims
    /// the buffer from the device. The shadow has forgotten the receive.
    Reclaim {
        /// The shadow's number for the entry.
        slot: u32,
        /// The device's handle of the entry.
        handle: u32,
        /// Why the NIC did not match the message.
        why: Why,
    },
    /// The message and all later messages of its sender wait until the receive has left the posted
    /// receives. The NIC is asked whether it has matched the receive with another message. An
    /// unexpected message of the list waits as well if the receive is being deleted for another
    /// reason.
    Wait,
}

/// The answer to a call of [`Shadow::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    /// The receive was in software. It is cancelled and forgotten.
    Software,
    /// The NIC was asked. The receive ends as cancelled, or with a match.
    Asked,
    /// The receive has a message, or is about to get one.
    TooLate,
}

impl Shadow {
    /// A shadow of an empty list.
    #[must_use]
    pub fn new(config: &ShadowConfig) -> Self {
        let slots = if config.operations < 2 { 0 } else { config.slots };
        let entry = Entry { state: State::Free, id: 0, handle: 0, count: 0, removal: None };
        let first = u64::from(config.first_count);
        Shadow {
            policy: Policy::new(config),
            blockers: Blockers::default(),
            waiting: WaitingReceives::default(),
            queue: UnansweredOperations::new(config.operations),
            receives: Vec::new(),
            next_age: 0,
            entries: vec![entry; slots as usize],
            free: (0..slots).rev().collect(),
            removals: VecDeque::new(),
            recent: Vec::new(),
            arrived: first,
            searched: first,
            sent_count: first,
            frozen: None,
            sync_every: u64::from(config.sync_every.max(1)),
            looks: LOOKS_MAX,
            stalled: false,
            full: false,
            counters: Counters { broken: slots == 0, ..Counters::default() },
        }
    }

    /// A receive was posted; it is the youngest of all. `length` is in bytes. `usable` says whether
    /// the NIC can use its buffer. Ids are indexes of a table, so memory grows with the largest id.
    /// An id is free again when the shadow has forgotten its receive, or at
    /// [`landed`](Self::landed) if the NIC matched it.
    ///
    /// A NIC compares tags only, so a receive whose pattern names a source stays in software. A
    /// caller that knows that the tag has one sender posts the receive without the source here, and
    /// checks the sender when the match is [reported](Self::matched). The order of receives depends
    /// on tags only.
    pub fn post(&mut self, id: u32, pattern: &Pattern, length: u64, usable: bool) {
        let why = match self.policy.refuses(pattern, length, usable) {
            None if self.counters.broken => Some(Why::Off),
            why => why,
        };
        self.post_as(id, pattern, why);
    }

    /// As [`post`](Self::post), of a receive that can never be added to the list, for this reason.
    pub fn post_in_software(&mut self, id: u32, pattern: &Pattern, why: Why) {
        self.post_as(id, pattern, Some(why));
    }

    fn post_as(&mut self, id: u32, pattern: &Pattern, why: Option<Why>) {
        self.event();
        self.forget(id);
        let age = self.next_age;
        self.next_age += 1;
        let place = match why {
            Some(why) => MatchPlace::Software(why),
            None => {
                self.waiting.ready(age, id);
                MatchPlace::Waiting(None)
            }
        };
        let index = id as usize;
        if index >= self.receives.len() {
            self.receives.resize_with(index + 1, || None);
        }
        let posted = PostedPattern { id, age, pattern: *pattern };
        self.receives[index] = Some(Receive { posted, place, blocks: false });
        self.block(id);
        self.counters.receives += 1;
    }

    /// Software found that the receive is the first match of a message. `through_list` says whether
    /// the NIC's list reported the message as unexpected. An unknown receive counts as one in
    /// software.
    pub fn take(&mut self, id: u32, through_list: bool) -> Take {
        self.event();
        match self.place(id) {
            Some(MatchPlace::Entry(slot)) => self.take_entry(id, slot, through_list),
            _ => {
                let why = self.why(id).unwrap_or(Why::Off);
                self.forget(id);
                self.counters.software[why as usize] += 1;
                Take::Software(why)
            }
        }
    }

    fn take_entry(&mut self, id: u32, slot: u32, through_list: bool) -> Take {
        self.counters.past_list += u64::from(!through_list);
        let Entry { state, handle, removal, .. } = self.entries[slot as usize];
        let is_sent = removal.is_some() && !state.may_be_deleted();
        let next = state.next(Step::Take);
        if is_sent && removal > Some(Removal::Again) {
            // The NIC may have executed the delete, and may then have matched younger receives with
            // older messages. So the receive stays with the request that came first.
            self.counters.waited += 1;
            return Take::Wait;
        }
        let Some(next) = next.filter(|_| through_list) else {
            // An active entry would have matched a message of the list. If this message arrived
            // through the list, the NIC broke its contract.
            self.counters.broken |= through_list;
            self.counters.waited += 1;
            self.ask(slot, Removal::Message);
            return Take::Wait;
        };
        self.move_to(slot, next);
        self.entries[slot as usize].removal = None;
        if matches!(next, State::AddingDropping | State::Dropping) {
            if removal.is_none() {
                self.removals.push_back(slot);
            }
            self.frozen.get_or_insert(self.searched);
        }
        self.forget(id);
        self.counters.withdrawn += 1;
        self.counters.software[Why::Phase as usize] += 1;
        Take::Reclaim { slot, handle, why: Why::Phase }
    }

    /// The NIC's list reported a message as unexpected. Must be called before any other call for
    /// the message; [`searched`](Self::searched) follows later. A caller that searches at once may
    /// leave this call out.
    pub fn unexpected_reported(&mut self) {
        self.arrived += 1;
    }

    /// Software has delivered or stored an unexpected message of the list.
    pub fn searched(&mut self) {
        self.event();
        self.searched += 1;
        self.arrived = self.arrived.max(self.searched);
        for slot in std::mem::take(&mut self.recent) {
            let Entry { state, id, .. } = self.entries[slot as usize];
            if state == State::Adding {
                self.block(id);
            }
        }
    }

    /// The user cancels the receive.
    pub fn cancel(&mut self, id: u32) -> CancelAnswer {
        self.event();
        match self.place(id) {
            None => CancelAnswer::TooLate,
            Some(MatchPlace::Entry(slot)) => {
                if self.entries[slot as usize].removal == Some(Removal::Message) {
                    return CancelAnswer::TooLate;
                }
                self.ask(slot, Removal::Cancel);
                CancelAnswer::Asked
            }
            Some(_) => {
                self.forget(id);
                CancelAnswer::Software
            }
        }
    }

    /// A receive in software ended in another way. For a receive in the NIC's list this does
    /// nothing: it must be [cancelled](Self::cancel).
    pub fn end(&mut self, id: u32) {
        self.event();
        if !self.has_entry(id) {
            self.forget(id);
        }
    }

    /// From now on messages may arrive on other ways than through the list.
    pub fn other_device(&mut self) {
        self.policy.other_device();
    }

    /// Learns from a message how the messages of its source arrive.
    pub fn source_seen(&mut self, tag: Tag, through_list: bool) {
        if let Some(source) = self.policy.seen(tag, through_list) {
            self.release(HeldBack::Source(source));
        }
    }

    /// Whether the NIC's list has the receive, as far as is known.
    #[must_use]
    pub fn has_entry(&self, id: u32) -> bool {
        matches!(self.place(id), Some(MatchPlace::Entry(_)))
    }

    /// Why the receive is in software; `None` if it isn't.
    #[must_use]
    pub fn why(&self, id: u32) -> Option<Why> {
        match self.place(id)? {
            MatchPlace::Software(why) => Some(why),
            MatchPlace::Waiting(Some(HeldBack::Receive(_))) => Some(Why::Order),
            MatchPlace::Waiting(Some(HeldBack::Source(_))) => Some(Why::Source),
            MatchPlace::Waiting(None) if self.counters.broken => Some(Why::Off),
            MatchPlace::Waiting(None) if !self.has_room() => Some(Why::ListFull),
            MatchPlace::Waiting(None) => Some(Why::Phase),
            MatchPlace::Entry(_) => None,
        }
    }

    /// The device's handle of the entry in a slot; `None` if the slot is free.
    #[must_use]
    pub fn handle(&self, slot: u32) -> Option<u32> {
        let entry = self.entries.get(slot as usize)?;
        (entry.state != State::Free).then_some(entry.handle)
    }

    /// The state of a slot; `None` beyond the last slot.
    #[must_use]
    pub fn state(&self, slot: u32) -> Option<State> {
        Some(self.entries.get(slot as usize)?.state)
    }

    /// The number of slots in this state.
    #[must_use]
    pub fn slots_in(&self, state: State) -> usize {
        self.entries.iter().filter(|entry| entry.state == state).count()
    }

    /// Counters and gauges.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            waiting: self.waiting.len(),
            slots: self.entries.len() - self.free.len(),
            ..self.counters
        }
    }
}

/// Steps that calls, events and operations share.
impl Shadow {
    /// Something happened, so an operation that the NIC refused may be tried again.
    fn event(&mut self) {
        self.looks = LOOKS_MAX;
        self.stalled = false;
    }

    fn receive(&mut self, id: u32) -> Option<&mut Receive> {
        self.receives.get_mut(id as usize)?.as_mut()
    }

    fn place(&self, id: u32) -> Option<MatchPlace> {
        Some(self.receives.get(id as usize)?.as_ref()?.place)
    }

    /// The state after a step, if the table allows the step.
    fn next(&self, slot: u32, step: Step) -> Result<State, ShadowError> {
        let slots = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let entry = self.entries.get(slot as usize);
        let state = entry.ok_or(ShadowError::NoSuchEntry { slot, slots })?.state;
        state.next(step).ok_or(ShadowError::Impossible { slot, state, step })
    }

    /// Changes an entry's state, and with it the operation kept back for its delete and the free
    /// slots.
    fn move_to(&mut self, slot: u32, next: State) {
        let entry = &mut self.entries[slot as usize];
        let before = std::mem::replace(&mut entry.state, next);
        match (before.may_be_deleted(), next.may_be_deleted()) {
            (false, true) => self.queue.reserve(),
            (true, false) => self.queue.release(),
            _ => {}
        }
        if next == State::Free {
            entry.removal = None;
            self.free.push(slot);
            self.full = false;
        }
    }

    /// Asks for the delete of an entry. A stronger reason replaces a weaker one.
    fn ask(&mut self, slot: u32, removal: Removal) {
        let entry = &mut self.entries[slot as usize];
        let id = entry.id;
        let before = entry.removal;
        entry.removal = before.max(Some(removal));
        if before.is_none() {
            self.removals.push_back(slot);
        }
        self.block(id);
    }

    /// The receive blocks younger ones from now on.
    fn block(&mut self, id: u32) {
        let Some(receive) = self.receive(id).filter(|receive| !receive.blocks) else { return };
        receive.blocks = true;
        let posted = receive.posted;
        self.blockers.insert(posted);
    }

    /// The receive blocks no younger ones from now on.
    fn unblock(&mut self, id: u32) {
        if let Some(receive) = self.receive(id).filter(|receive| receive.blocks) {
            receive.blocks = false;
            let posted = receive.posted;
            self.blockers.remove(&posted);
        }
        self.release(HeldBack::Receive(id));
    }

    /// Removes the receive from the posted receives.
    fn forget(&mut self, id: u32) {
        self.unblock(id);
        let Some(receive) = self.receives.get_mut(id as usize).and_then(Option::take) else {
            return;
        };
        if let MatchPlace::Waiting(hold) = receive.place {
            self.waiting.remove(hold, receive.posted.age);
        }
        self.counters.receives -= 1;
    }

    fn release(&mut self, hold: HeldBack) {
        let receives = &mut self.receives;
        self.waiting.release(hold, |id| {
            if let Some(Some(receive)) = receives.get_mut(id as usize)
                && let MatchPlace::Waiting(hold) = &mut receive.place
            {
                *hold = None;
            }
        });
    }

    /// Whether the NIC can take one more entry and its delete.
    fn has_room(&self) -> bool {
        !self.full && !self.free.is_empty() && self.queue.room() >= 2
    }
}
