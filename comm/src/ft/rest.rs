//! When a context id that was freed can be given out again.
//!
//! Messages may still arrive in an id that this process has freed: from members that have not freed
//! it yet, or sent earlier and late. They must not be received in the next communicator with this
//! id. So a freed id *rests*. There are two ways for it to become free.
//!
//! # Together, by later allocations
//! 1. When no operation of this process is under way in the id any more, the process *closes* the
//!    id: it sends a closing to each process that it has sent to in the id, and to no other one.
//! 2. Messages of one process don't overtake each other. So when a closing arrives, all messages of
//!    its sender in the id have arrived.
//! 3. The reductions of later allocations find out when all members have closed the id, and all
//!    closings have arrived (`alloc/settling.rs`). So a communicator without messages costs none,
//!    and needs no connection, when its id is used again.
//! 4. The messages that wait in the id are discarded, and the id is free.
//!
//! # By asking
//! An id that the members can't settle together is a *stray*: after failures, and where no
//! allocation has all members. So is an id of an intercommunicator, because the groups have ids of
//! their own.
//!
//! 1. This process asks each process that could send to it in the id whether that process is *done*
//!    with the id.
//! 2. A process is done with an id if it has no communicator and no operation under way in which it
//!    would send to the asking process in that id, and does not take part in the creation that the
//!    id was allocated for. If it rests in the id itself, the id is a stray there, too, from now
//!    on.
//! 3. Messages of one process don't overtake each other. So when its answer arrives, all its
//!    messages in the id have arrived. The same holds for a process that the transport reports as
//!    down.
//! 4. When all processes are done, the messages that wait in the id are discarded, and the id is
//!    free.
//!
//! Questions about several ids are sent together, in a *sweep*. It begins when an allocation finds
//! no free id at once and there are some strays, or finds none at all. In the second case all
//! resting ids become strays. A process that is not done is asked again in the next sweep. A
//! process that makes no progress doesn't answer, and delays only the ids that it was asked about.
//!
//! No receive is posted for messages in an id that rests, or in a communicator that was revoked.
//! They are discarded as they arrive, so that their credit goes back to the sender, which needs it
//! for others.
//!
//! # What follows
//! A process needs no memory in order to answer. A process that makes no progress delays only the
//! ids that it was asked about, and an allocation that finds no other id. The smallest free id is
//! no longer the last one freed: a program that duplicates and frees in a loop goes through a few
//! ids in turn.
//!
//! An allocation fails only if the state of all resting ids is known at all members. To know it,
//! the allocation waits for a sweep that begins when all members have begun the allocation. An id
//! that another process still uses counts as taken, and the error is then fragmentation. So "free
//! an id at all members, then allocate" always works, however few ids there are.
//!
//! If the creation of an intercommunicator fails, the leader may have told the other group an id,
//! and this process may not know which processes form that group (the leader has died, or the
//! parent was revoked). Such an id is never offered again: a member of the other group might send
//! in it at any time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use tagmatch::{TagLayout, TagMask};

use super::control::{ASK_MAX, Asked, Control};
use super::service_io::ServiceIo;
use crate::alloc::{Allocator, ClosedUse, FreedId, IdUse, RestState, Senders};
use crate::ids::IdLayout;
use crate::life::{Life, digest};
use crate::net::{Net, Pattern, ProcessId};

/// The number of ids that one look makes free.
const FREED_PER_LOOK: usize = 16;
/// The number of contexts in which one look discards messages, beside those of ids that become
/// free.
const DISCARDS_PER_LOOK: usize = 4;
/// The most messages of one context that one look discards.
const DISCARD_MAX: usize = 64;

/// An id that rests.
#[derive(Debug)]
struct RestingId {
    /// The latest sweep that had begun when the id was freed.
    freed_in: u64,
    senders: Vec<Senders>,
    /// The use, if its members settle it together.
    used: Option<Arc<IdUse>>,
    /// Whether this process has yet to close the use.
    is_open: bool,
    /// Once a sweep is about the id: the processes that may still send in it, each with the
    /// creation that gave it the communicator.
    asked: Option<BTreeMap<(ProcessId, u64), Sender>>,
    /// Whether an operation under way in this process still receives in the id.
    is_in_use: bool,
}

/// A process that may still send in an id.
#[derive(Debug, Default)]
struct Sender {
    /// The latest sweep in which the process was asked.
    asked: u64,
    /// The latest sweep in which the process has answered that it is not done.
    answered: u64,
}

/// A question that was not answered yet.
#[derive(Debug)]
struct Question {
    number: u64,
    sweep: u64,
    asked: Vec<Asked>,
}

impl RestingId {
    /// Whether it is not known which processes may send in the id: it is never offered again.
    fn is_lost(&self) -> bool {
        self.senders.is_empty()
    }

    /// A sweep is about the id from now on.
    fn ask(&mut self) {
        let all = self.senders.iter().flat_map(|Senders { creation, group }| {
            group.processes().iter().map(|process| ((*process, *creation), Sender::default()))
        });
        let all = all.collect();
        self.asked.get_or_insert(all);
    }
}

/// The resting ids of one process, and the questions about them.
#[derive(Debug)]
pub(super) struct RestingIds {
    allocator: Allocator,
    ids: IdLayout,
    tags: TagLayout,
    resting: BTreeMap<u32, RestingId>,
    sweep: u64,
    questions: HashMap<ProcessId, Question>,
    /// The number of questions so far.
    asked: u64,
    /// Set if a question may have to be sent, or a sender may be down.
    must_ask: bool,
    revoked: Vec<Weak<Life>>,
    /// Where the next look continues to discard.
    next: usize,
}

impl RestingIds {
    pub(super) fn new(allocator: Allocator, ids: IdLayout, tags: TagLayout) -> Self {
        RestingIds {
            allocator,
            ids,
            tags,
            resting: BTreeMap::new(),
            sweep: 0,
            questions: HashMap::new(),
            asked: 0,
            must_ask: false,
            revoked: Vec::new(),
            next: 0,
        }
    }

    /// A communicator was revoked: no receive takes the messages that wait in it.
    pub(super) fn revoke(&mut self, life: &Arc<Life>) {
        let life = Arc::downgrade(life);
        if !self.revoked.iter().any(|known| known.ptr_eq(&life)) {
            self.revoked.push(life);
        }
    }

    /// The transport has reported that a process is down.
    pub(super) fn lose(&mut self, process: ProcessId) {
        self.questions.remove(&process);
        self.must_ask = true;
    }

    /// Does all that can be done about resting ids now.
    pub(super) fn look<N: Net>(&mut self, io: &mut ServiceIo<'_, N>) {
        self.take_freed();
        let ids = self.ids;
        for (prefix, resting) in self.resting.iter_mut().filter(|(_, resting)| resting.is_in_use) {
            resting.is_in_use =
                io.registry.lives().any(|life| ids.prefix(life.receives_in()) == *prefix);
        }
        self.close(io);
        self.begin_sweep();
        if std::mem::take(&mut self.must_ask) {
            for (process, asked) in self.find_questions(io.net) {
                self.asked += 1;
                let number = self.asked;
                let sweep = self.sweep;
                io.net.watch(process);
                io.send(process, &Control::Ask { number, asked: asked.clone() });
                self.questions.insert(process, Question { number, sweep, asked });
            }
        }
        self.discard(io.net);
        self.settle();
    }

    /// Takes in the ids that were freed.
    fn take_freed(&mut self) {
        for FreedId { prefix, senders, used } in self.allocator.with_rest(RestState::take) {
            let freed_in = self.sweep;
            let asked = None;
            let is_open = used.is_some();
            let is_in_use = true;
            let resting = RestingId { freed_in, senders, used, is_open, asked, is_in_use };
            self.resting.insert(prefix, resting);
        }
    }

    /// Closes the ids in which no operation of this process is under way any more.
    fn close<N: Net>(&mut self, io: &mut ServiceIo<'_, N>) {
        let own = io.registry.own;
        let mut closings = BTreeMap::<ProcessId, Vec<u64>>::new();
        for (prefix, resting) in &mut self.resting {
            let is_due = resting.is_open && !resting.is_in_use;
            let Some(used) = resting.used.as_ref().filter(|_| is_due) else { continue };
            resting.is_open = false;
            let name = used.name();
            let group = used.group();
            let closed = || {
                let weights = [0, 1].map(|which| digest([name, which]));
                let is_first = group.process(0) == Some(own);
                let numbers = [used.sent_count(), used.closed_by()];
                ClosedUse::new(name, group, weights, is_first, numbers)
            };
            if self.allocator.with_rest(|rest| rest.close(*prefix, closed)) {
                used.sent_to().for_each(|to| closings.entry(to).or_default().push(name));
            }
        }
        for (process, uses) in closings {
            for uses in uses.chunks(ASK_MAX) {
                io.send(process, &Control::Closing { uses: uses.to_vec() });
            }
        }
    }

    /// Takes in a closing of another process.
    pub(super) fn hear_closing(&self, from: ProcessId, uses: &[u64]) {
        for name in uses {
            // A name is unknown where this process's part of the creation has failed.
            if let Some(used) = self.allocator.used(*name) {
                used.close_from(from);
                self.allocator.with_rest(|rest| rest.receive(*name, used.closed_by()));
            }
        }
    }

    /// Begins a sweep if there is a reason to.
    fn begin_sweep(&mut self) {
        let Some(sweep) = self.allocator.with_rest(RestState::begin_sweep) else { return };
        (self.sweep, self.must_ask) = (sweep, true);
        for (prefix, resting) in &mut self.resting {
            if self.allocator.with_rest(|rest| rest.is_stray(*prefix)) {
                resting.ask();
            }
        }
    }

    /// Collects the ids to ask each process about, and removes senders that are down.
    fn find_questions<N: Net>(&mut self, net: &mut N) -> BTreeMap<ProcessId, Vec<Asked>> {
        let sweep = self.sweep;
        let mut found = BTreeMap::<_, Vec<_>>::new();
        for (prefix, RestingId { asked: senders, .. }) in &mut self.resting {
            let Some(senders) = senders else { continue };
            senders.retain(|(process, creation), sender| {
                if net.is_down(*process) {
                    return false;
                }
                if sender.asked < sweep && !self.questions.contains_key(process) {
                    let asked = found.entry(*process).or_default();
                    if asked.len() < ASK_MAX {
                        asked.push(Asked { prefix: *prefix, creation: *creation });
                        sender.asked = sweep;
                    }
                }
                true
            });
        }
        found
    }

    /// Answers the question of another process: with which ids this process is done.
    pub(super) fn answer<N: Net>(
        &mut self,
        io: &mut ServiceIo<'_, N>,
        from: ProcessId,
        number: u64,
        asked: &[Asked],
    ) {
        self.take_freed();
        let sends_in = |life: Arc<Life>| {
            let rank = life.group.rank(from)?;
            Some(self.ids.prefix(life.context_of(rank)))
        };
        let used: BTreeSet<u32> = io.registry.lives().filter_map(sends_in).collect();
        let mut done = vec![0; asked.len().div_ceil(u64::BITS as usize)];
        self.allocator.with_rest(|rest| {
            for (at, Asked { prefix, creation }) in asked.iter().enumerate() {
                if !(used.contains(prefix) || rest.takes_part(*creation)) {
                    done[at / 64] |= 1 << (at % 64);
                    let resting = self.resting.get(prefix);
                    let is_of = |senders: &Senders| senders.creation == *creation;
                    if resting.is_some_and(|resting| resting.senders.iter().any(is_of)) {
                        rest.stray(*prefix);
                    }
                }
            }
        });
        io.send(from, &Control::Answer { number, done });
    }

    /// Takes in the answer of another process.
    pub(super) fn hear(&mut self, from: ProcessId, number: u64, done: &[u64]) {
        let is_answered = |question: &Question| {
            question.number == number
                && done.len() == question.asked.len().div_ceil(u64::BITS as usize)
        };
        if !self.questions.get(&from).is_some_and(is_answered) {
            return;
        }
        let Some(question) = self.questions.remove(&from) else { return };
        for (at, Asked { prefix, creation }) in question.asked.iter().enumerate() {
            let resting = self.resting.get_mut(prefix);
            let Some(senders) = resting.and_then(|resting| resting.asked.as_mut()) else {
                continue;
            };
            if done[at / 64] >> (at % 64) & 1 == 1 {
                senders.remove(&(from, *creation));
            } else if let Some(sender) = senders.get_mut(&(from, *creation)) {
                sender.answered = question.sweep;
            }
        }
        // After a full question there may be more ids to ask about.
        self.must_ask |= question.asked.len() == ASK_MAX || question.sweep < self.sweep;
    }

    /// Tells allocations that wait for it the latest sweep to which all answers have arrived.
    fn settle(&self) {
        if !self.allocator.with_rest(|rest| rest.is_awaited()) {
            return;
        }
        let known_in = |resting: &RestingId| {
            // If no sender is left, the id is about to be free, and not known to be used elsewhere.
            let senders = resting.asked.iter().flat_map(BTreeMap::values);
            let answered = senders.map(|sender| sender.answered).min();
            answered.unwrap_or(0).max(resting.freed_in)
        };
        let asked_about = self.resting.values().filter(|resting| !resting.is_lost());
        let settled = asked_about.map(known_in).min().unwrap_or(self.sweep);
        self.allocator.with_rest(|rest| rest.settle(settled.min(self.sweep)));
    }

    /// Matches the messages of all contexts with these bits, whatever the bits in `lowest` are.
    fn pattern(&self, context: u32, lowest: u32) -> Option<Pattern> {
        let pack = |context: u32| self.tags.pack(context.into(), 0, 0).ok();
        let others = self.tags.source_mask().0 | self.tags.tag_mask().0;
        let mask = TagMask(!(others | pack(lowest)?.0));
        Some(Pattern { tag: pack(context & !lowest)?, mask, from: None })
    }

    /// Matches the messages of all contexts that are derived from an id.
    fn id_pattern(&self, prefix: u32) -> Option<Pattern> {
        self.pattern(self.ids.id(prefix)?.bits(), self.ids.derived_bits())
    }

    /// Frees the ids that are settled, or with which all processes are done, and discards messages
    /// that no receive takes.
    fn discard<N: Net>(&mut self, net: &mut N) {
        // While an operation of this process is under way in the id, this process is a sender: it
        // has answered its own question.
        let is_done = |(prefix, resting): (&u32, &RestingId)| {
            let have_all_answered = resting.asked.as_ref().is_some_and(BTreeMap::is_empty);
            let is_done = have_all_answered && !resting.is_lost();
            let is_settled = || self.allocator.with_rest(|rest| rest.has_settled(*prefix));
            (is_done || is_settled()).then_some(*prefix)
        };
        let done: Vec<u32> = self.resting.iter().filter_map(is_done).take(FREED_PER_LOOK).collect();
        for prefix in done {
            if self.id_pattern(prefix).is_none_or(|pattern| discard_all(net, pattern)) {
                self.resting.remove(&prefix);
                self.allocator.end_rest(prefix);
            }
        }
        self.revoked.retain(|life| life.strong_count() > 0);
        let quiet = self.resting.iter().filter(|(_, resting)| !resting.is_in_use);
        let lives = self.revoked.iter().filter_map(Weak::upgrade);
        let count = quiet.clone().count() + self.revoked.len();
        if count == 0 {
            return;
        }
        let of_ids = quiet.filter_map(|(prefix, _)| self.id_pattern(*prefix));
        let of_lives = lives.filter_map(|life| {
            let id = life.receives_in();
            self.pattern(id.bits(), self.ids.collective(id).bits() & !id.bits())
        });
        let all = of_ids.chain(of_lives).cycle().skip(self.next % count);
        for pattern in all.take(count.min(DISCARDS_PER_LOOK)) {
            discard_all(net, pattern);
        }
        self.next = (self.next + DISCARDS_PER_LOOK) % count;
    }
}

/// Discards up to [`DISCARD_MAX`] messages; whether none is left.
fn discard_all<N: Net>(net: &mut N, pattern: Pattern) -> bool {
    (0..DISCARD_MAX).any(|_| net.matched_probe(pattern).is_none())
}

#[cfg(test)]
mod tests;
