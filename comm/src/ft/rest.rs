//! When a context id that was freed can be given out again.
//!
//! Messages may still come in an id that this process has freed: of members that have not freed it yet, or that
//! are late. None must be taken for one of the next communicator with this id. So a freed id *rests*:
//!
//! 1. This process asks each process that could send to it in the id whether that process is *done* with it.
//! 2. A process is done with an id if it has no communicator, and nothing under way, in which it would send to the
//!    asker in that id, and takes part in no creation of the communicator that the id was allocated for.
//! 3. Messages of one process don't overtake each other. So when its answer is here, all that it has sent in the
//!    id is here. A process that the transport says is down has sent nothing that comes later, either.
//! 4. When all are done, what waits in the id is discarded, and the id is free.
//!
//! Ids are asked about together, in *sweeps*: when some have been freed since the last one, or when an allocation
//! finds no free id. A process that is not done is asked again in the next sweep. One that makes no progress
//! answers nothing, and delays only the ids that it was told of.
//!
//! What waits in an id that rests, or in a communicator that was revoked, is received by nobody. It is discarded
//! as it comes, so that its credit goes back to its sender, which others need.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use tagmatch::{TagLayout, TagMask};

use crate::alloc::{self, Allocator, Freed, Senders};
use crate::ids::{ContextId, IdLayout};
use crate::net::{Net, Pattern, ProcessId};

use super::life::Life;
use super::service::Service;
use super::wire::{ASK_MAX, Asked, Control};

/// A sweep begins when so many ids were freed since the last one.
const SWEEP_AT: usize = 16;
/// Ids of which one look discards messages, beside those that are about to be free.
const DISCARDS_PER_LOOK: usize = 4;
/// Messages of one id that one look discards.
const DISCARD_MAX: usize = 64;

/// An id that rests.
struct Resting {
    /// The latest sweep that had begun when it was freed.
    freed_in: u64,
    /// Who is not known to be done with it, each with the name of the allocation.
    senders: BTreeMap<(ProcessId, u64), Sender>,
    /// Something under way here still receives in it.
    is_in_use: bool,
    /// It is not known who may send in it: it rests for good.
    is_lost: bool,
}

/// A process that may send in an id.
#[derive(Default)]
struct Sender {
    /// The latest sweep in which it was asked.
    asked: u64,
    /// The latest sweep in which it has answered that it is not done.
    answered: u64,
}

/// A question that was not answered.
struct Question {
    number: u64,
    sweep: u64,
    asked: Vec<Asked>,
}

impl Question {
    /// Whether there may be more to ask, once it is answered.
    fn is_full(&self) -> bool {
        self.asked.len() == ASK_MAX
    }
}

/// The ids of one process that rest, and what it has asked others about them.
pub(super) struct Rest {
    allocator: Allocator,
    ids: IdLayout,
    tags: TagLayout,
    resting: BTreeMap<u32, Resting>,
    /// Freed since the last sweep.
    fresh: usize,
    sweep: u64,
    questions: HashMap<ProcessId, Question>,
    asked: u64,
    /// There may be a question that was not asked, or a sender that is down.
    must_ask: bool,
    revoked: Vec<Weak<Life>>,
    /// Where the next look goes on to discard.
    next: usize,
}

impl Rest {
    pub(super) fn new(allocator: Allocator, ids: IdLayout, tags: TagLayout) -> Self {
        Rest {
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

    /// A communicator was revoked: nobody receives what waits in it.
    pub(super) fn revoke(&mut self, life: &Arc<Life>) {
        let life = Arc::downgrade(life);
        if !self.revoked.iter().any(|known| known.ptr_eq(&life)) {
            self.revoked.push(life);
        }
    }

    /// The transport has said of a process that it is down.
    pub(super) fn lose(&mut self, process: ProcessId) {
        self.questions.remove(&process);
        self.must_ask = true;
    }

    /// Takes in what was freed, and whether there is to be a sweep.
    fn take_freed(&mut self) {
        let (freed, is_wanted) =
            self.allocator.resting(|resting| (resting.take(), resting.is_wanted()));
        self.fresh += freed.len();
        for Freed { prefix, senders } in freed {
            let is_lost = senders.is_empty();
            let all = senders.iter().flat_map(|Senders { birth, group }| {
                group.processes().iter().map(|process| ((*process, *birth), Sender::default()))
            });
            let (freed_in, senders) = (self.sweep, all.collect());
            let resting = Resting { freed_in, senders, is_in_use: true, is_lost };
            self.resting.insert(prefix, resting);
        }
        if is_wanted || self.fresh >= SWEEP_AT {
            self.sweep = self.allocator.resting(alloc::Resting::sweep);
            (self.fresh, self.must_ask) = (0, true);
        }
    }

    /// Finds what is to be asked, and forgets senders that are down.
    fn find_questions<N: Net>(&mut self, net: &mut N) -> BTreeMap<ProcessId, Vec<Asked>> {
        let (sweep, mut found) = (self.sweep, BTreeMap::<_, Vec<_>>::new());
        for (prefix, Resting { senders, .. }) in &mut self.resting {
            senders.retain(|(process, birth), sender| {
                if net.is_down(*process) {
                    return false;
                }
                if sender.asked < sweep && !self.questions.contains_key(process) {
                    let asked = found.entry(*process).or_default();
                    if asked.len() < ASK_MAX {
                        asked.push(Asked { prefix: *prefix, birth: *birth });
                        sender.asked = sweep;
                    }
                }
                true
            });
        }
        found
    }

    /// Another process has answered.
    pub(super) fn hear(&mut self, from: ProcessId, number: u64, done: &[u64]) {
        let is_it = |question: &Question| {
            question.number == number
                && done.len() == question.asked.len().div_ceil(u64::BITS as usize)
        };
        if !self.questions.get(&from).is_some_and(is_it) {
            return;
        }
        let Some(question) = self.questions.remove(&from) else { return };
        for (at, Asked { prefix, birth }) in question.asked.iter().enumerate() {
            let Some(Resting { senders, .. }) = self.resting.get_mut(prefix) else { continue };
            if done[at / 64] >> (at % 64) & 1 == 1 {
                senders.remove(&(from, *birth));
            } else if let Some(sender) = senders.get_mut(&(from, *birth)) {
                sender.answered = question.sweep;
            }
        }
        self.must_ask |= question.is_full() || question.sweep < self.sweep;
    }

    /// Tells allocations that wait for it of which sweeps all answers are here.
    fn settle(&self) {
        if !self.allocator.resting(|resting| resting.is_awaited()) {
            return;
        }
        let known_in = |resting: &Resting| {
            // One that is about to be free is not known to be used elsewhere.
            let answered = resting.senders.values().map(|sender| sender.answered).min();
            answered.unwrap_or(0).max(resting.freed_in)
        };
        let asked_about = self.resting.values().filter(|resting| !resting.is_lost);
        let settled = asked_about.map(known_in).min().unwrap_or(self.sweep);
        self.allocator.resting(|resting| resting.settle(settled.min(self.sweep)));
    }

    /// The messages of all contexts whose bits are these, but for some of the lowest.
    fn pattern(&self, context: u32, lowest: u32) -> Option<Pattern> {
        let pack = |context: u32| self.tags.pack(context.into(), 0, 0).ok();
        let others = self.tags.source_mask().0 | self.tags.tag_mask().0;
        let mask = TagMask(!(others | pack(lowest)?.0));
        Some(Pattern { tag: pack(context & !lowest)?, mask, from: None })
    }

    /// The messages of all contexts that are derived from an id.
    fn family(&self, prefix: u32) -> Option<Pattern> {
        self.pattern(self.ids.id(prefix)?.bits(), self.ids.derived_bits())
    }

    /// Discards what nobody receives, and frees ids with which everybody is done.
    fn discard<N: Net>(&mut self, net: &mut N) {
        let is_done = |resting: &Resting| {
            resting.senders.is_empty() && !(resting.is_in_use || resting.is_lost)
        };
        let done = self.resting.iter().filter(|(_, resting)| is_done(resting));
        for prefix in done.map(|(prefix, _)| *prefix).take(SWEEP_AT).collect::<Vec<_>>() {
            if self.family(prefix).is_none_or(|pattern| discard(net, pattern)) {
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
        let of_ids = quiet.filter_map(|(prefix, _)| self.family(*prefix));
        let of_lives = lives.filter_map(|life| {
            let id = life.receives_in();
            self.pattern(id.bits(), self.ids.collective(id).bits() & !id.bits())
        });
        let all = of_ids.chain(of_lives).cycle().skip(self.next % count);
        for pattern in all.take(count.min(DISCARDS_PER_LOOK)) {
            discard(net, pattern);
        }
        self.next = (self.next + DISCARDS_PER_LOOK) % count;
    }
}

/// Whether nothing is left.
fn discard<N: Net>(net: &mut N, pattern: Pattern) -> bool {
    (0..DISCARD_MAX).any(|_| net.matched_probe(pattern).is_none())
}

impl<N: Net> Service<N> {
    /// What is to be done about resting ids at a look.
    pub(super) fn look_at_rest(&mut self, net: &mut N) {
        self.rest.take_freed();
        for (prefix, resting) in &mut self.rest.resting {
            let is_it = |life: &Weak<Life>| {
                let life = life.upgrade();
                let ids = self.rest.ids;
                life.is_some_and(|life| ids.prefix(life.receives_in()) == *prefix)
            };
            resting.is_in_use = resting.is_in_use && self.lives.values().any(is_it);
        }
        if std::mem::take(&mut self.rest.must_ask) {
            for (process, asked) in self.rest.find_questions(net) {
                self.rest.asked += 1;
                let (number, sweep) = (self.rest.asked, self.rest.sweep);
                let ask = Control::Ask { number, asked };
                let bytes = ask.to_bytes(net);
                let Control::Ask { asked, .. } = ask else { continue };
                self.rest.questions.insert(process, Question { number, sweep, asked });
                net.watch(process);
                self.send(net, process, &bytes);
            }
        }
        self.rest.discard(net);
        self.rest.settle();
    }

    /// Another process asks with which ids this one is done.
    pub(super) fn answer_asked(&self, net: &mut N, from: ProcessId, number: u64, asked: &[Asked]) {
        let ids = self.rest.ids;
        let lives = self.lives.values().filter_map(Weak::upgrade);
        let sends_in = |life: Arc<Life>| life.sends_in(from).map(|id| ids.prefix(id));
        let used: BTreeSet<u32> = lives.filter_map(sends_in).collect();
        let mut done = vec![0; asked.len().div_ceil(u64::BITS as usize)];
        self.rest.allocator.resting(|resting| {
            for (at, Asked { prefix, birth }) in asked.iter().enumerate() {
                let may_get = resting.is_in(*birth);
                if !(used.contains(prefix) || may_get) {
                    done[at / 64] |= 1 << (at % 64);
                }
            }
        });
        let bytes = Control::Answer { number, done }.to_bytes(net);
        self.send(net, from, &bytes);
    }
}

impl Life {
    /// The id in which this process sends to another one; none if that is no member.
    fn sends_in(&self, to: ProcessId) -> Option<ContextId> {
        let rank = self.group.rank(to)?;
        Some(self.context_of(rank))
    }
}
