//! The receiving side of an endpoint: what cxi's NIC and its driver do with receives and messages.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tagmatch_ofi_provider::{Entry, Failure};
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};
use tagmatch_os::{notice, process};

use super::lists::{Lists, Receive, Wanted};
use super::mode::{Event, State};
use crate::chance::Chance;
use crate::effects::{Completion, Effects, failure};
use crate::settings::{Mode, Settings};
use crate::telemetry::{List, Telemetry};
use crate::wire::{Name, Packet, Put};

const RECEIVE: u64 = sys::FI_RECV | sys::FI_TAGGED;

/// `FI_PEEK`, under way.
struct Search {
    at: u64,
    wanted: Wanted,
    context: usize,
    claims: bool,
}

/// A matched message whose bytes are read out of its sender's memory.
struct Get {
    at: u64,
    receive: Receive,
    put: Put,
}

/// A search that was answered, and has claimed a message: the caller writes the name into the
/// context's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    pub(crate) context: usize,
    pub(crate) name: u64,
}

/// The receiving side. It counts the rounds of progress: searches, cancellations, reads and changes
/// of the state end some rounds after they began.
pub(crate) struct Matcher {
    settings: Arc<Settings>,
    mode: Mode,
    state: State,
    /// The round in which the state changes.
    changes_at: u64,
    round: u64,
    receives_max: usize,
    lists: Lists,
    searches: VecDeque<Search>,
    gets: Vec<Get>,
    claimed: HashMap<u64, Put>,
    next_claim: u64,
    /// Messages that arrived while the state was changing, in their order.
    aside: VecDeque<Put>,
    /// The senders that were told to pause.
    paused: BTreeSet<Name>,
    telemetry: Telemetry,
    chance: Chance,
}

impl Matcher {
    pub(crate) fn new(
        settings: Arc<Settings>,
        mode: Mode,
        receives_max: usize,
        telemetry: Telemetry,
        chance: Chance,
    ) -> Self {
        Matcher {
            settings,
            mode,
            state: State::first(mode),
            changes_at: 0,
            round: 0,
            receives_max,
            lists: Lists::new(),
            searches: VecDeque::new(),
            gets: Vec::new(),
            claimed: HashMap::new(),
            next_claim: 1,
            aside: VecDeque::new(),
            paused: BTreeSet::new(),
            telemetry,
            chance,
        }
    }

    /// Whether there is something that goes on with the next round.
    pub(crate) fn is_busy(&self) -> bool {
        !self.state.is_enabled()
            || !self.searches.is_empty()
            || !self.gets.is_empty()
            || self.lists.is_cancelling()
    }

    /// Whether a receive or a search can begin now.
    fn check_enabled(&mut self) -> Result<()> {
        let is_claiming = self.searches.iter().any(|search| search.claims);
        if !self.state.is_enabled() || is_claiming || self.chance.says_again() {
            return Err(Errno::AGAIN);
        }
        Ok(())
    }

    /// `fi_trecv`.
    pub(crate) fn post(
        &mut self,
        receive: Receive,
        wanted: Wanted,
        effects: &mut Effects,
    ) -> Result<()> {
        self.check_enabled()?;
        if self.lists.posted() + self.gets.len() >= self.receives_max {
            return Err(Errno::AGAIN);
        }
        if let Some(put) = self.lists.take(wanted) {
            self.deliver(receive, put, effects);
            return Ok(());
        }
        let is_full = self.is_full();
        if !self.lists.post(receive, wanted) {
            return Err(Errno::NO_MEMORY);
        }
        if is_full {
            self.exhausted(effects);
        }
        Ok(())
    }

    /// `FI_PEEK`: answered in a later round.
    pub(crate) fn search(&mut self, wanted: Wanted, context: usize, claims: bool) -> Result<()> {
        self.check_enabled()?;
        let at = self.round + self.chance.rounds(self.settings.peek_rounds);
        self.searches.push_back(Search { at, wanted, context, claims });
        Ok(())
    }

    /// `FI_CLAIM`: receives the message with this name.
    pub(crate) fn receive_claimed(
        &mut self,
        receive: Receive,
        name: u64,
        effects: &mut Effects,
    ) -> Result<()> {
        if !self.state.is_enabled() {
            return Err(Errno::AGAIN);
        }
        let put = self.claimed.remove(&name).ok_or(Errno::INVALID)?;
        self.deliver(receive, put, effects);
        Ok(())
    }

    /// `fi_cancel`.
    pub(crate) fn cancel(&mut self, context: usize) -> Result<()> {
        let at = self.round + self.chance.rounds(self.settings.cancel_rounds);
        if self.lists.cancel(context, at) { Ok(()) } else { Err(Errno::NO_ENTRY) }
    }

    /// A message arrives.
    pub(crate) fn arrive(&mut self, put: Put, effects: &mut Effects) {
        if self.state.is_enabled() {
            self.take_up(put, effects);
            return;
        }
        if self.paused.insert(put.source) {
            effects.packets.push((put.source, Packet::Pause));
        }
        self.aside.push_back(put);
    }

    /// Matches a message. False: there was no list entry for it, and it is the first aside.
    fn take_up(&mut self, put: Put, effects: &mut Effects) -> bool {
        let is_in_nic = self.state == State::Hardware;
        if let Some(receive) = self.lists.take_receive(&put) {
            let list = if is_in_nic { List::Priority } else { List::Request };
            self.telemetry.count(list, &mut self.chance);
            self.deliver(receive, put, effects);
            return true;
        }
        let others = self.settings.taken_per_mille;
        if self.is_full() || (is_in_nic && self.chance.per_mille(others)) {
            self.aside.push_front(put);
            self.exhausted(effects);
            return false;
        }
        let list = if is_in_nic { List::Overflow } else { List::Request };
        self.telemetry.count(list, &mut self.chance);
        self.lists.push(put, is_in_nic);
        true
    }

    fn is_full(&self) -> bool {
        self.state == State::Hardware && self.lists.entries() >= self.settings.entries_max
    }

    /// The NIC has no list entry.
    fn exhausted(&mut self, effects: &mut Effects) {
        self.change(Event::Exhausted);
        // The driver can't search in this state, and says that there is no message.
        let (claims, others) = self.searches.drain(..).partition(|search| search.claims);
        self.searches = others;
        for search in claims {
            effects.completions.push(nothing_found(search.context));
        }
    }

    fn change(&mut self, event: Event) {
        self.state = self.state.after(event, self.mode);
        self.changes_at = self.round + self.chance.rounds(self.settings.onload_rounds) + 1;
    }

    /// The next round: what is due ends.
    pub(crate) fn next_round(&mut self, effects: &mut Effects) -> Vec<Claimed> {
        self.round += 1;
        if !self.state.is_enabled() && self.round >= self.changes_at {
            self.elapsed(effects);
        }
        let claimed = if self.state.is_enabled() { self.answer(effects) } else { Vec::new() };
        for receive in self.lists.take_cancelled(self.round) {
            let failure = failure(Errno::CANCELED);
            effects.completions.push(Completion::of(receive.context, RECEIVE, Some(failure)));
        }
        let round = self.round;
        let (due, later) = self.gets.drain(..).partition(|get| get.at <= round);
        self.gets = later;
        for get in due {
            read(get, effects);
        }
        self.telemetry.publish();
        claimed
    }

    fn elapsed(&mut self, effects: &mut Effects) {
        self.lists.onload();
        if self.mode == Mode::Hardware && self.lists.posted() >= self.settings.entries_max {
            // FC_SW_ONLOAD_MSG_FATAL in prov/cxi/src/cxip_msg_hpc.c.
            if self.settings.aborts {
                notice::tell("cxi: LE resources not recovered during flow control");
                std::process::abort();
            }
            return;
        }
        self.change(Event::Elapsed);
        if !self.state.is_enabled() {
            return;
        }
        while let Some(put) = self.aside.pop_front() {
            if !self.take_up(put, effects) {
                return;
            }
        }
        let resumed = std::mem::take(&mut self.paused);
        effects.packets.extend(resumed.into_iter().map(|source| (source, Packet::Resume)));
    }

    /// Answers the searches that are due.
    fn answer(&mut self, effects: &mut Effects) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        let round = self.round;
        let (due, later) = self.searches.drain(..).partition(|search| search.at <= round);
        self.searches = later;
        for Search { wanted, context, claims, .. } in due {
            let Some(put) = self.lists.find(wanted) else {
                effects.completions.push(nothing_found(context));
                continue;
            };
            effects.completions.push(envelope(put, context));
            if let Some(put) = claims.then(|| self.lists.take(wanted)).flatten() {
                let name = self.next_claim;
                self.next_claim += 1;
                self.claimed.insert(name, put);
                claimed.push(Claimed { context, name });
            }
        }
        claimed
    }

    /// A receive takes a message.
    fn deliver(&mut self, receive: Receive, put: Put, effects: &mut Effects) {
        if put.address != 0 {
            let at = self.round + self.chance.rounds(self.settings.get_rounds);
            self.gets.push(Get { at, receive, put });
            return;
        }
        // SAFETY: the memory is lent to this receive, whose completion comes later.
        let room = unsafe { receive.memory.first_mut(put.payload.len()) };
        room.copy_from_slice(&put.payload[..room.len()]);
        finish(&receive, &put, None, effects);
    }
}

fn nothing_found(context: usize) -> Completion {
    Completion::of(context, RECEIVE, Some(failure(Errno::NO_MESSAGE)))
}

/// The completion of a receive that this message has met.
fn envelope(put: &Put, context: usize) -> Completion {
    let flags = if put.data.is_some() { sys::FI_REMOTE_CQ_DATA } else { 0 };
    let mut completion = Completion::of(context, RECEIVE | flags, None);
    completion.entry.length = put.length;
    completion.entry.data = put.data.unwrap_or(0);
    completion.entry.tag = put.tag;
    completion.source = Some(put.source);
    completion
}

/// Reads the bytes out of the sender's memory.
fn read(get: Get, effects: &mut Effects) {
    // SAFETY: the memory is lent to this receive, whose completion comes later.
    let room = unsafe { get.receive.memory.first_mut(get.put.length) };
    let count = process::read_memory(get.put.source.process(), get.put.address, room);
    let failure = match count {
        Ok(count) if count == room.len() => None,
        // The sender's process has ended.
        _ => Some(failure(Errno::IO)),
    };
    finish(&get.receive, &get.put, failure, effects);
}

/// A receive has its message's bytes, or `failure`.
fn finish(receive: &Receive, put: &Put, failure: Option<Failure>, effects: &mut Effects) {
    let overflow = put.length.saturating_sub(receive.memory.len());
    let mut truncated = self::failure(Errno::TRUNCATED);
    truncated.overflow = overflow;
    let failure = failure.or((overflow > 0).then_some(truncated));
    if receive.tells || failure.is_some() {
        let Completion { entry, source } = envelope(put, receive.context);
        let length = put.length - overflow;
        let start = receive.memory.start();
        let entry = Entry { length, start, failure, ..entry };
        effects.completions.push(Completion { entry, source });
    }
    if put.id != 0 {
        effects.packets.push((put.source, Packet::Matched { id: put.id }));
    }
}
