//! When a context id that was freed can be given out again.
//!
//! Messages may still arrive in an id that this process has freed: from members that have not freed
//! it yet, or sent earlier and late. They must not be received in the next communicator with this
//! id. So a freed id *rests*:
//!
//! 1. This process asks each process that could send to it in the id whether that process is *done*
//!    with the id.
//! 2. A process is done with an id if it has no communicator and no operation under way in which it
//!    would send to the asking process in that id, and does not take part in the creation that the
//!    id was allocated for.
//! 3. Messages of one process don't overtake each other. So when its answer arrives, all its
//!    messages in the id have arrived. The same holds for a process that the transport reports as
//!    down.
//! 4. When all processes are done, the messages that wait in the id are discarded, and the id is
//!    free.
//!
//! Questions about several ids are sent together, in a *sweep*: when some ids have been freed since
//! the last sweep, or when an allocation finds no free id. A process that is not done is asked
//! again in the next sweep. A process that makes no progress doesn't answer, and delays only the
//! ids that it was asked about.
//!
//! No receive is posted for messages in an id that rests, or in a communicator that was revoked.
//! They are discarded as they arrive, so that their credit goes back to the sender, which needs it
//! for others.
//!
//! # What follows
//! A process needs no memory in order to answer. A process that makes no progress delays only the
//! ids that it was asked about, and an allocation that finds no other id. The smallest free id is
//! no longer the last one freed: a program that duplicates and frees in a loop goes through some 16
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
use super::control_context::ControlContext;
use super::life::Life;
use super::registry::Registry;
use crate::alloc::{Allocator, FreedId, RestState, Senders};
use crate::ids::IdLayout;
use crate::net::{Net, Pattern, ProcessId};

/// A sweep begins when this many ids were freed since the last one.
const SWEEP_AT: usize = 16;
/// The number of contexts in which one look discards messages, beside those of ids that become
/// free.
const DISCARDS_PER_LOOK: usize = 4;
/// The most messages of one context that one look discards.
const DISCARD_MAX: usize = 64;

/// An id that rests.
struct RestingId {
    /// The latest sweep that had begun when the id was freed.
    freed_in: u64,
    /// The processes that may still send in the id, each with the creation that gave it the
    /// communicator.
    senders: BTreeMap<(ProcessId, u64), Sender>,
    /// Whether an operation under way in this process still receives in the id.
    is_in_use: bool,
    /// It is not known which processes may send in the id: it is never offered again.
    is_lost: bool,
}

/// A process that may still send in an id.
#[derive(Default)]
struct Sender {
    /// The latest sweep in which the process was asked.
    asked: u64,
    /// The latest sweep in which the process has answered that it is not done.
    answered: u64,
}

/// A question that was not answered yet.
struct Question {
    number: u64,
    sweep: u64,
    asked: Vec<Asked>,
}

/// The resting ids of one process, and the questions about them.
pub(super) struct RestingIds {
    allocator: Allocator,
    ids: IdLayout,
    tags: TagLayout,
    resting: BTreeMap<u32, RestingId>,
    /// The number of ids freed since the last sweep.
    fresh: usize,
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
            fresh: 0,
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
    pub(super) fn look<N: Net>(
        &mut self,
        net: &mut N,
        context: &ControlContext<N>,
        registry: &Registry,
    ) {
        self.take_freed();
        let ids = self.ids;
        for (prefix, resting) in self.resting.iter_mut().filter(|(_, resting)| resting.is_in_use) {
            resting.is_in_use =
                registry.lives().any(|life| ids.prefix(life.receives_in()) == *prefix);
        }
        if std::mem::take(&mut self.must_ask) {
            for (process, asked) in self.find_questions(net) {
                self.asked += 1;
                let (number, sweep) = (self.asked, self.sweep);
                net.watch(process);
                context.send(net, process, &Control::Ask { number, asked: asked.clone() });
                self.questions.insert(process, Question { number, sweep, asked });
            }
        }
        self.discard(net);
        self.settle();
    }

    /// Takes in the ids that were freed, and begins a sweep if there is a reason to.
    fn take_freed(&mut self) {
        let (freed, is_wanted) = self.allocator.with_rest(|rest| (rest.take(), rest.is_wanted()));
        self.fresh += freed.len();
        for FreedId { prefix, senders } in freed {
            let is_lost = senders.is_empty();
            let all = senders.iter().flat_map(|Senders { creation, group }| {
                group.processes().iter().map(|process| ((*process, *creation), Sender::default()))
            });
            let (freed_in, senders) = (self.sweep, all.collect());
            let resting = RestingId { freed_in, senders, is_in_use: true, is_lost };
            self.resting.insert(prefix, resting);
        }
        if is_wanted || self.fresh >= SWEEP_AT {
            self.sweep = self.allocator.with_rest(RestState::begin_sweep);
            (self.fresh, self.must_ask) = (0, true);
        }
    }

    /// Collects the ids to ask each process about, and removes senders that are down.
    fn find_questions<N: Net>(&mut self, net: &mut N) -> BTreeMap<ProcessId, Vec<Asked>> {
        let (sweep, mut found) = (self.sweep, BTreeMap::<_, Vec<_>>::new());
        for (prefix, RestingId { senders, .. }) in &mut self.resting {
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
        &self,
        net: &mut N,
        context: &ControlContext<N>,
        registry: &Registry,
        from: ProcessId,
        (number, asked): (u64, &[Asked]),
    ) {
        let sends_in = |life: Arc<Life>| {
            let rank = life.group.rank(from)?;
            Some(self.ids.prefix(life.context_of(rank)))
        };
        let used: BTreeSet<u32> = registry.lives().filter_map(sends_in).collect();
        let mut done = vec![0; asked.len().div_ceil(u64::BITS as usize)];
        self.allocator.with_rest(|rest| {
            for (at, Asked { prefix, creation }) in asked.iter().enumerate() {
                if !(used.contains(prefix) || rest.takes_part(*creation)) {
                    done[at / 64] |= 1 << (at % 64);
                }
            }
        });
        context.send(net, from, &Control::Answer { number, done });
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
            let Some(RestingId { senders, .. }) = self.resting.get_mut(prefix) else { continue };
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
            let answered = resting.senders.values().map(|sender| sender.answered).min();
            answered.unwrap_or(0).max(resting.freed_in)
        };
        let asked_about = self.resting.values().filter(|resting| !resting.is_lost);
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

    /// Frees the ids with which all processes are done, and discards messages that no receive
    /// takes.
    fn discard<N: Net>(&mut self, net: &mut N) {
        // While an operation of this process is under way in the id, this process is a sender: it
        // has answered its own question.
        let is_done = |resting: &RestingId| resting.senders.is_empty() && !resting.is_lost;
        let done = self.resting.iter().filter(|(_, resting)| is_done(resting));
        for prefix in done.map(|(prefix, _)| *prefix).take(SWEEP_AT).collect::<Vec<_>>() {
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
