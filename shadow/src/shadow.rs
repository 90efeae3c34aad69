//! The shadow: its state, and the calls of the engine.

use std::collections::VecDeque;

use tagmatch_soft::{Pattern, Tag};

use crate::config::{ShadowConfig, Why};
use crate::counters::Counters;
use crate::entry::{Entry, Place, Receive, Removal};
use crate::error::ShadowError;
use crate::op::LOOKS_MAX;
use crate::order::{Age, Blocker, Order};
use crate::policy::Policy;
use crate::queue::Queue;
use crate::table::{State, Step};
use crate::waiting::{Hold, Waiting};

/// What a NIC holds of the posted-receive list. See the crate's page for the rules.
///
/// A receive is known by the caller's number for it, an entry of the NIC's list by the shadow's *slot*.
/// After each call [`next_op`](Self::next_op) may have operations for the NIC.
///
/// **Whenever a receive that messages wait for ([`Take::Wait`]) leaves the list by another way than
/// [`Deleted::ForMessage`](crate::Deleted::ForMessage), those messages search on**: that is at
/// [`matched`](Self::matched), at [`lost`](Self::lost) that names it, and at [`Take::Reclaim`].
#[derive(Clone, Debug)]
pub struct Shadow {
    pub(crate) policy: Policy,
    pub(crate) order: Order,
    pub(crate) waiting: Waiting,
    pub(crate) queue: Queue,
    /// By id.
    pub(crate) receives: Vec<Option<Receive>>,
    pub(crate) next_age: Age,
    /// By slot.
    pub(crate) entries: Vec<Entry>,
    pub(crate) free: Vec<u32>,
    /// Entries whose delete is still to be handed to the NIC.
    pub(crate) removals: VecDeque<u32>,
    /// The entries that were added with the current count, and maybe others.
    pub(crate) recent: Vec<u32>,
    /// Messages that the NIC's list has reported as unexpected.
    pub(crate) arrived: u64,
    /// Unexpected messages for which software has searched the posted receives.
    pub(crate) searched: u64,
    /// The last value of `searched` that the NIC was told.
    pub(crate) told: u64,
    /// The value of `searched` that operations carry until all removals were handed to the NIC.
    pub(crate) frozen: Option<u64>,
    pub(crate) sync_every: u64,
    /// Candidates that may still be looked at for this event.
    pub(crate) looks: u32,
    /// The NIC refused an operation: no other one is handed to it until the next event.
    pub(crate) stalled: bool,
    /// The NIC says that its list is full, even if slots are free here.
    pub(crate) full: bool,
    pub(crate) counters: Counters,
}

/// What happens to an unexpected message for which software has found a posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The message takes the receive. The NIC never held it. The receive is forgotten.
    Software(Why),
    /// The message takes the receive. The NIC can't have matched the entry of this handle; the caller
    /// reclaims its buffer from the device. The receive is forgotten.
    Reclaim {
        /// The shadow's name for the entry.
        slot: u32,
        /// The device's name for the entry.
        handle: u32,
        /// Why the NIC did not match the message.
        why: Why,
    },
    /// The message waits until the receive has left the list, and so do all later messages of its sender:
    /// the NIC is asked whether it has matched the receive with another message. A message that the NIC's
    /// list reported as unexpected may have to wait, too: for a receive whose delete is under way for
    /// another reason.
    Wait,
}

/// The answer to a call of [`Shadow::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The receive was in software. It is cancelled and forgotten.
    Software,
    /// The NIC was asked: the receive ends as cancelled, or by a match.
    Asked,
    /// The receive has a message, or will get one.
    TooLate,
}

impl Shadow {
    /// An empty list.
    #[must_use]
    pub fn new(config: &ShadowConfig) -> Self {
        let slots = if config.operations < 2 { 0 } else { config.slots };
        let entry = Entry { state: State::Free, id: 0, handle: 0, count: 0, removal: None };
        let first = u64::from(config.first_count);
        Shadow {
            policy: Policy::new(config),
            order: Order::new(),
            waiting: Waiting::default(),
            queue: Queue::new(config.operations),
            receives: Vec::new(),
            next_age: 0,
            entries: vec![entry; slots as usize],
            free: (0..slots).rev().collect(),
            removals: VecDeque::new(),
            recent: Vec::new(),
            arrived: first,
            searched: first,
            told: first,
            frozen: None,
            sync_every: u64::from(config.sync_every.max(1)),
            looks: LOOKS_MAX,
            stalled: false,
            full: false,
            counters: Counters { broken: slots == 0, ..Counters::default() },
        }
    }

    /// A receive was posted, the youngest of all. `length` is in bytes; `usable`: its buffer can be given
    /// to a NIC. Ids are indexes of a table: memory goes up to the largest. An id is free again when its
    /// receive is forgotten, and at [`landed`](Self::landed) if the NIC matched it.
    ///
    /// A NIC compares tags alone, so a receive whose pattern names a source stays in software. A caller who
    /// knows that its tag has one sender posts it without the source here, and looks at the sender when the
    /// match is [reported](Self::matched). Order is kept by tags in either case.
    pub fn post(&mut self, id: u32, pattern: &Pattern, length: u64, usable: bool) {
        self.event();
        self.forget(id);
        let why = match self.policy.refuses(pattern, length, usable) {
            None if self.counters.broken => Some(Why::Off),
            why => why,
        };
        let age = self.next_age;
        self.next_age += 1;
        let place = match why {
            Some(why) => Place::Software(why),
            None => {
                self.waiting.ready(age, id);
                Place::Waiting(None)
            }
        };
        let index = id as usize;
        if index >= self.receives.len() {
            self.receives.resize_with(index + 1, || None);
        }
        self.receives[index] = Some(Receive { age, pattern: *pattern, place, blocks: false });
        self.block(id);
        self.counters.receives += 1;
    }

    /// Software found the receive to be the first match of a message, which came up through the list
    /// or not. A receive that isn't known counts as one in software.
    pub fn take(&mut self, id: u32, through_list: bool) -> Take {
        self.event();
        match self.place(id) {
            Some(Place::Entry(slot)) => self.take_entry(id, slot, through_list),
            _ => {
                let why = self.why(id).unwrap_or(Why::Off);
                self.forget(id);
                self.counters.in_software(why);
                Take::Software(why)
            }
        }
    }

    fn take_entry(&mut self, id: u32, slot: u32, through_list: bool) -> Take {
        let Entry { state, handle, removal, .. } = self.entries[slot as usize];
        let is_sent = removal.is_some() && !state.may_be_deleted();
        let next = state.next(Step::Take);
        if is_sent && removal > Some(Removal::Again) {
            // The delete may be done, and younger receives may have got older messages since: who
            // asked first has it.
            self.counters.waited += 1;
            return Take::Wait;
        }
        let Some(next) = next.filter(|_| through_list) else {
            // An active entry would have matched a message of the list: the NIC has broken its rules.
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
        self.counters.in_software(Why::Phase);
        Take::Reclaim { slot, handle, why: Why::Phase }
    }

    /// A message came up through the list. Comes before anything else is done for it, and
    /// [`searched`](Self::searched) follows. May be left out by a caller who searches at once.
    pub fn came_up(&mut self) {
        self.arrived += 1;
    }

    /// A message that came up through the list is done with: delivered, or stored.
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

    /// The user wants the receive back.
    pub fn cancel(&mut self, id: u32) -> Cancel {
        self.event();
        match self.place(id) {
            None => Cancel::TooLate,
            Some(Place::Entry(slot)) => {
                if self.entries[slot as usize].removal == Some(Removal::Message) {
                    return Cancel::TooLate;
                }
                self.ask(slot, Removal::Cancel);
                Cancel::Asked
            }
            Some(_) => {
                self.forget(id);
                Cancel::Software
            }
        }
    }

    /// A receive in software ended otherwise. One in the NIC must be [cancelled](Self::cancel); nothing
    /// happens to it here.
    pub fn end(&mut self, id: u32) {
        self.event();
        if !matches!(self.place(id), Some(Place::Entry(_))) {
            self.forget(id);
        }
    }

    /// From now on messages may come up elsewhere than through the list.
    pub fn other_device(&mut self) {
        self.policy.other_device();
    }

    /// Learns from a message which sources come up through the list.
    pub fn source_seen(&mut self, tag: Tag, through_list: bool) {
        if let Some(source) = self.policy.seen(tag, through_list) {
            self.release(Hold::Source(source));
        }
    }

    /// Why the receive is in software; `None` if it isn't.
    #[must_use]
    pub fn why(&self, id: u32) -> Option<Why> {
        match self.place(id)? {
            Place::Software(why) => Some(why),
            Place::Waiting(Some(Hold::Receive(_))) => Some(Why::Order),
            Place::Waiting(Some(Hold::Source(_))) => Some(Why::Source),
            Place::Waiting(None) if self.counters.broken => Some(Why::Off),
            Place::Waiting(None) if !self.has_room() => Some(Why::ListFull),
            Place::Waiting(None) => Some(Why::Phase),
            Place::Entry(_) => None,
        }
    }

    /// The device's name for the entry in a slot; `None` if the slot is free.
    #[must_use]
    pub fn handle(&self, slot: u32) -> Option<u32> {
        let entry = self.entries.get(slot as usize)?;
        (entry.state != State::Free).then_some(entry.handle)
    }

    /// The state of a slot; `None` beyond the last.
    #[must_use]
    pub fn state(&self, slot: u32) -> Option<State> {
        Some(self.entries.get(slot as usize)?.state)
    }

    /// Slots in this state.
    #[must_use]
    pub fn slots_in(&self, state: State) -> usize {
        self.entries.iter().filter(|entry| entry.state == state).count()
    }

    /// Counts and gauges.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            waiting: self.waiting.len(),
            slots: self.entries.len() - self.free.len(),
            ..self.counters
        }
    }
}

/// What the rules are made of.
impl Shadow {
    /// Something happened: what the NIC refused may be tried again.
    pub(crate) fn event(&mut self) {
        self.looks = LOOKS_MAX;
        self.stalled = false;
    }

    pub(crate) fn receive(&mut self, id: u32) -> Option<&mut Receive> {
        self.receives.get_mut(id as usize)?.as_mut()
    }

    fn place(&self, id: u32) -> Option<Place> {
        Some(self.receives.get(id as usize)?.as_ref()?.place)
    }

    /// The state after a step, which the table allows.
    pub(crate) fn next(&self, slot: u32, step: Step) -> Result<State, ShadowError> {
        let slots = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let entry = self.entries.get(slot as usize);
        let state = entry.ok_or(ShadowError::NoSuchEntry { slot, slots })?.state;
        state.next(step).ok_or(ShadowError::Impossible { slot, state, step })
    }

    /// Changes an entry's state, and with it what is kept for the entry.
    pub(crate) fn move_to(&mut self, slot: u32, next: State) {
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

    /// Wants an entry deleted. A stronger reason replaces a weaker one.
    pub(crate) fn ask(&mut self, slot: u32, removal: Removal) {
        let entry = &mut self.entries[slot as usize];
        let id = entry.id;
        let before = entry.removal;
        entry.removal = before.max(Some(removal));
        if before.is_none() {
            self.removals.push_back(slot);
        }
        self.block(id);
    }

    /// The receive is in the way of younger ones.
    pub(crate) fn block(&mut self, id: u32) {
        let Some(receive) = self.receive(id).filter(|receive| !receive.blocks) else { return };
        receive.blocks = true;
        let blocker = Blocker { id, age: receive.age, pattern: receive.pattern };
        self.order.insert(blocker);
    }

    /// The receive is in nobody's way.
    pub(crate) fn unblock(&mut self, id: u32) {
        if let Some(receive) = self.receive(id).filter(|receive| receive.blocks) {
            receive.blocks = false;
            let (age, pattern) = (receive.age, receive.pattern);
            self.order.remove(age, &pattern);
        }
        self.release(Hold::Receive(id));
    }

    /// The receive leaves the list.
    pub(crate) fn forget(&mut self, id: u32) {
        self.unblock(id);
        let Some(receive) = self.receives.get_mut(id as usize).and_then(Option::take) else {
            return;
        };
        if let Place::Waiting(hold) = receive.place {
            self.waiting.remove(hold, receive.age);
        }
        self.counters.receives -= 1;
    }

    fn release(&mut self, hold: Hold) {
        let receives = &mut self.receives;
        self.waiting.release(hold, |id| {
            if let Some(Some(receive)) = receives.get_mut(id as usize)
                && let Place::Waiting(hold) = &mut receive.place
            {
                *hold = None;
            }
        });
    }

    /// Whether the NIC can take an entry more, and its delete.
    pub(crate) fn has_room(&self) -> bool {
        !self.full && !self.free.is_empty() && self.queue.room() >= 2
    }
}
