//! What one process hears and says of failures, for all its communicators.
//!
//! Its messages are in a context of their own, which no communicator has. They come unasked, so progress
//! looks for them every few turns, whether or not the program is in a call that has to do with failures: a
//! process that has ended its part of an agreement still answers others.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use tagmatch::{Buffer, Tag, TagLayout, TagMask};

use crate::alloc::Allocator;
use crate::group::Group;
use crate::ids::IdLayout;
use crate::mailbox::Mailboxes;
use crate::net::{Arrived, Mode, Net, Pattern, ProcessId};

use super::agree::{Agreement, Message, Value};
use super::life::{Key, Life};
use super::rest::Rest;
use super::union::Attempts;
use super::wire::{Control, Invitation, length_max};

/// Most messages about communicators that this process does not have yet. Others may have it already.
const EARLY_MAX: usize = 4096;
/// Most revoked communicators whose members are told again when one of them dies.
const RELAYS_MAX: usize = 1024;
/// Most agreements that are kept. Of communicators that live all are kept that others may ask for.
const KEPT_MAX: usize = 1024;
/// Turns of progress between two looks at what has come, while nothing is waited for: a look costs as much as
/// a fifth of a message, and mostly nothing has come.
const TURNS_PER_LOOK: u32 = 32;
/// Up to this many bytes a message is sent with nothing to wait for.
const INJECT_MAX: usize = 4096;

/// An agreement, and its place in the order in which they began.
pub(super) struct Held {
    group: Arc<Group>,
    pub(super) agreement: Agreement,
    /// Of one that makes an intercommunicator.
    invitation: Option<Invitation>,
    began: u64,
}

/// An allocation that this process takes part in.
struct UnderWay {
    key: Key,
    /// Who has left it, and how many rounds of it they had begun.
    left: Vec<(ProcessId, u32)>,
}

/// A revoked communicator.
struct Relay {
    key: Key,
    group: Group,
}

/// Failures as one process knows them.
pub(crate) struct Service<N: Net> {
    pub(super) own: ProcessId,
    tag: Option<Tag>,
    pattern: Pattern,
    /// In the order in which it became known.
    down: Vec<ProcessId>,
    is_down: HashSet<ProcessId>,
    pub(super) lives: BTreeMap<Key, Weak<Life>>,
    pub(super) agreements: BTreeMap<(Key, u32), Box<Held>>,
    pub(super) attempts: Attempts,
    begun: u64,
    relays: VecDeque<Relay>,
    allocations: Vec<UnderWay>,
    pub(super) rest: Rest,
    early: VecDeque<(ProcessId, Control)>,
    mailboxes: Arc<Mailboxes>,
    incoming: VecDeque<(ProcessId, N::Receive)>,
    /// Turns since the last look.
    turns: u32,
    /// What has come since the last turn.
    events: usize,
    /// Some machine waits for what comes.
    is_awaited: bool,
}

impl<N: Net> Service<N> {
    pub(crate) fn new(
        own: ProcessId,
        ids: IdLayout,
        tags: TagLayout,
        allocator: &Allocator,
        mailboxes: &Arc<Mailboxes>,
    ) -> Self {
        let context = u64::from(ids.control().bits());
        let pack = |source: u32| tags.pack(context, source.into(), 0).ok();
        let mask = TagMask(!tags.source_mask().0);
        Service {
            own,
            tag: pack(own.0),
            pattern: Pattern { tag: pack(0).unwrap_or(Tag(0)), mask, from: None },
            down: Vec::new(),
            is_down: HashSet::new(),
            lives: BTreeMap::new(),
            agreements: BTreeMap::new(),
            attempts: Attempts::default(),
            begun: 0,
            relays: VecDeque::new(),
            allocations: Vec::new(),
            rest: Rest::new(allocator.clone(), ids, tags),
            early: VecDeque::new(),
            mailboxes: Arc::clone(mailboxes),
            incoming: VecDeque::new(),
            turns: 0,
            events: 0,
            is_awaited: false,
        }
    }

    /// A turn of progress: takes in what has come, every so often. How much that was since the last turn.
    /// `is_last`: there may be no other turn for some time.
    pub(crate) fn progress(&mut self, net: &mut N, is_last: bool) -> usize {
        self.turns += 1;
        if self.turns >= TURNS_PER_LOOK || self.is_awaited || is_last {
            self.look(net);
        }
        std::mem::take(&mut self.events)
    }

    /// Something that comes is waited for: the next turn looks.
    pub(crate) fn expect(&mut self) {
        self.is_awaited = true;
    }

    /// Takes in what has come.
    #[inline(never)]
    pub(crate) fn look(&mut self, net: &mut N) {
        (self.turns, self.is_awaited) = (0, false);
        for process in net.take_down() {
            self.events += 1;
            self.learn(net, process);
            self.rest.lose(process);
        }
        while let Some((message, envelope)) = net.matched_probe(self.pattern) {
            self.events += 1;
            let fits = envelope.length <= length_max(net.processes());
            let length = usize::try_from(envelope.length).ok().filter(|_| fits);
            // Of someone who is not admitted, or longer than any: dropped, and so discarded.
            if let (Some(from), Some(length)) = (envelope.from, length) {
                let receive = net.receive_message(message, Buffer::zeroed(length));
                self.incoming.push_back((from, receive));
            }
        }
        // In each sender's order: a long message that is not here yet holds up those behind it.
        let mut held_up = Vec::new();
        for _ in 0..self.incoming.len() {
            let Some((from, mut receive)) = self.incoming.pop_front() else { break };
            let is_next = !held_up.contains(&from);
            match if is_next { net.test_receive(&mut receive) } else { None } {
                None => {
                    held_up.push(from);
                    self.incoming.push_back((from, receive));
                }
                Some(Ok(Arrived { buffer, .. })) => {
                    if let Some(control) = Control::parse(&buffer, from, net) {
                        self.deliver(net, from, control);
                    }
                }
                // Its sender is down.
                Some(Err(_)) => {}
            }
        }
        self.look_at_rest(net);
    }

    /// Sends the letters of this turn of progress.
    pub(crate) fn post(&self, net: &mut N) {
        for (to, letter) in self.mailboxes.take_outgoing() {
            let bytes = Control::Letter(letter).to_bytes(net);
            self.send(net, to, &bytes);
        }
    }

    /// A communicator of this process.
    pub(crate) fn register(&mut self, net: &mut N, life: &Arc<Life>) {
        self.lives.retain(|_, life| life.strong_count() > 0);
        self.lives.insert(life.key, Arc::downgrade(life));
        for rank in self.down.iter().filter_map(|process| life.group.rank(*process)) {
            life.fail(rank);
        }
        let is_it = |relay: &Relay| relay.key == life.key && relay.group == *life.group;
        if self.relays.iter().any(is_it) {
            life.revoke();
            self.rest.revoke(life);
        }
        self.deliver_early(
            net,
            |control| matches!(control, Control::Agree { key, .. } if *key == life.key),
        );
    }

    /// Takes in what came before this process knew what it is about.
    pub(super) fn deliver_early(&mut self, net: &mut N, is_known: impl Fn(&Control) -> bool) {
        let early = std::mem::take(&mut self.early);
        let (known, others): (VecDeque<_>, _) =
            early.into_iter().partition(|(_, control)| is_known(control));
        self.early = others;
        for (from, control) in known {
            self.deliver(net, from, control);
        }
    }

    pub(super) fn keep_early(&mut self, from: ProcessId, control: Control) {
        if self.early.len() == EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back((from, control));
    }

    /// A process is down.
    pub(crate) fn learn(&mut self, net: &mut N, process: ProcessId) {
        if process == self.own || !self.is_down.insert(process) {
            return;
        }
        self.down.push(process);
        for life in self.lives.values().filter_map(Weak::upgrade) {
            if let Some(rank) = life.group.rank(process) {
                life.fail(rank);
            }
        }
        for at in self.agreements.keys().copied().collect::<Vec<_>>() {
            if let Some(held) = self.agreements.get_mut(&at)
                && let Some(rank) = held.group.rank(process)
            {
                held.agreement.die(rank);
                self.flush(net, at);
            }
        }
        // The ring of those who live closes over the gap.
        for relay in self.relays.iter().filter(|relay| relay.group.rank(process).is_some()) {
            self.forward(net, relay, false);
        }
    }

    fn deliver(&mut self, net: &mut N, from: ProcessId, control: Control) {
        match control {
            Control::Revoke { key, group } => {
                self.revoke(net, key, group);
            }
            Control::Left { key, rounds } => self.hear_leave(net, from, key, rounds),
            Control::Letter(letter) => self.mailboxes.hear(from, letter),
            Control::Agree { key, number, ref message } => {
                let at = (key, number);
                if !self.agreements.contains_key(&at) {
                    let Some(life) = self.lives.get(&key).and_then(Weak::upgrade) else {
                        return self.keep_early(from, control);
                    };
                    if life.is_over(number) || life.group.rank(from).is_none() {
                        return;
                    }
                    self.hold(net, at, &life.group, None);
                }
                self.receive(net, from, at, message);
            }
            Control::Ask { number, ref asked } => self.answer_asked(net, from, number, asked),
            Control::Answer { number, ref done } => self.rest.hear(from, number, done),
            Control::Join { key, invitation, message } => {
                self.hear_join(net, from, key, invitation, message);
            }
        }
    }

    /// This process takes part in an allocation.
    pub(crate) fn enter(&mut self, key: Key) {
        self.allocations.push(UnderWay { key, left: Vec::new() });
    }

    /// It takes part no longer. `has_left`: it has told so to all that it concerns.
    pub(crate) fn exit(&mut self, net: &mut N, key: Key, has_left: bool) {
        let found = self.allocations.iter().position(|under_way| under_way.key == key);
        let Some(UnderWay { left, .. }) = found.map(|at| self.allocations.swap_remove(at)) else {
            return;
        };
        for (process, _) in left.into_iter().filter(|_| !has_left) {
            self.leave(net, process, key, 0);
        }
    }

    /// Tells another one that this process leaves an allocation, and after how many rounds.
    pub(crate) fn leave(&self, net: &mut N, to: ProcessId, key: Key, rounds: u32) {
        let bytes = Control::Left { key, rounds }.to_bytes(net);
        self.send(net, to, &bytes);
    }

    /// Who has left an allocation that this process takes part in.
    pub(crate) fn left(&self, key: Key) -> &[(ProcessId, u32)] {
        let found = self.allocations.iter().find(|under_way| under_way.key == key);
        found.map_or(&[], |under_way| &under_way.left)
    }

    fn hear_leave(&mut self, net: &mut N, from: ProcessId, key: Key, rounds: u32) {
        match self.allocations.iter_mut().find(|under_way| under_way.key == key) {
            Some(under_way) if under_way.left.iter().any(|(who, _)| *who == from) => {}
            Some(under_way) => under_way.left.push((from, rounds)),
            // It waits for an answer, which is none to be answered.
            None if rounds > 0 => self.leave(net, from, key, 0),
            None => {}
        }
    }

    /// Ends all that is under way on a communicator, here and at all members.
    pub(crate) fn revoke(&mut self, net: &mut N, key: Key, group: Group) {
        if self.relays.iter().any(|relay| relay.key == key && relay.group == group) {
            return;
        }
        for life in self.lives.values().filter_map(Weak::upgrade) {
            if key == life.key && *life.group == group {
                life.revoke();
                self.rest.revoke(&life);
            }
        }
        let relay = Relay { key, group };
        self.forward(net, &relay, true);
        if self.relays.len() == RELAYS_MAX {
            self.relays.pop_front();
        }
        self.relays.push_back(relay);
    }

    /// Tells a revoked communicator's members at distances of powers of two, and the nearest ones that live.
    fn forward(&self, net: &mut N, relay: &Relay, everywhere: bool) {
        let Relay { key, group } = relay;
        let (size, Some(own)) = (group.size(), group.rank(self.own)) else { return };
        let powers = (0..u32::BITS).map(|power| 1 << power).take_while(|by| *by < size);
        let mut to: Vec<u32> = powers
            .filter(|_| everywhere)
            .flat_map(|by| [(own + by) % size, (own + size - by) % size])
            .collect();
        let lives = |rank: &u32| {
            group.process(*rank).is_some_and(|process| !self.is_down.contains(&process))
        };
        to.extend((1..size).map(|by| (own + by) % size).find(lives));
        to.extend((1..size).map(|by| (own + size - by) % size).find(lives));
        to.sort_unstable();
        to.dedup();
        let bytes = Control::Revoke { key: *key, group: group.clone() }.to_bytes(net);
        for process in to.iter().filter(|rank| lives(rank)).filter_map(|rank| group.process(*rank))
        {
            self.send(net, process, &bytes);
        }
    }

    /// Begins this process's part of an agreement.
    pub(super) fn vote(
        &mut self,
        net: &mut N,
        life: &Arc<Life>,
        number: u32,
        low: u32,
        flags: u64,
    ) {
        self.hold(net, (life.key, number), &life.group, None);
        life.watch(net);
        if let Some(held) = self.agreements.get_mut(&(life.key, number)) {
            held.agreement.vote(flags, low, &life.acknowledged());
        }
        self.flush(net, (life.key, number));
    }

    /// What was agreed. All members that have not contributed are known to be down then.
    pub(super) fn decision(&mut self, net: &mut N, key: Key, number: u32) -> Option<Value> {
        let held = self.agreements.get(&(key, number))?;
        let value = held.agreement.decision()?.clone();
        let absent = (0..held.group.size()).filter(|rank| !value.contributors.contains(*rank));
        let absent: Vec<_> = absent.filter_map(|rank| held.group.process(rank)).collect();
        absent.into_iter().for_each(|process| self.learn(net, process));
        // All contributors have seen the end of these.
        let low = value.low.min(number);
        if let Some(life) = self.lives.get(&key).and_then(Weak::upgrade) {
            life.pass(low);
        }
        let over = (key, 0)..(key, low);
        while let Some(at) = self.agreements.range(over.clone()).next().map(|(at, _)| *at) {
            self.agreements.remove(&at);
        }
        Some(value)
    }

    /// Makes sure that the agreement is here.
    pub(super) fn hold(
        &mut self,
        net: &mut N,
        at: (Key, u32),
        group: &Arc<Group>,
        invitation: Option<Invitation>,
    ) {
        if self.agreements.contains_key(&at) {
            return;
        }
        let Some(own) = group.rank(self.own) else { return };
        if self.agreements.len() >= KEPT_MAX {
            self.drop_oldest();
        }
        let group = Arc::clone(group);
        let mut agreement = Agreement::new(group.size(), own);
        self.down
            .iter()
            .filter_map(|process| group.rank(*process))
            .for_each(|rank| agreement.die(rank));
        if invitation.is_some() {
            agreement = agreement.asking();
        }
        self.begun += 1;
        let held = Box::new(Held { group, agreement, invitation, began: self.begun });
        self.agreements.insert(at, held);
        self.flush(net, at);
    }

    /// Of communicators that are freed.
    fn drop_oldest(&mut self) {
        let is_freed = |key: &Key| self.lives.get(key).is_none_or(|life| life.strong_count() == 0);
        let over = self
            .agreements
            .iter()
            .filter(|((key, _), held)| is_freed(key) && held.agreement.decision().is_some());
        if let Some(at) = over.min_by_key(|(_, held)| held.began).map(|(at, _)| *at) {
            self.agreements.remove(&at);
        }
    }

    pub(super) fn receive(
        &mut self,
        net: &mut N,
        from: ProcessId,
        at: (Key, u32),
        message: &Message,
    ) {
        let Some(held) = self.agreements.get(&at) else { return };
        let group = &held.group;
        let Some(rank) = group.rank(from).filter(|_| message.dead.size() == group.size()) else {
            return;
        };
        let dead = message.dead.iter().filter_map(|rank| group.process(rank));
        let news: Vec<_> = dead.filter(|process| !self.is_down.contains(process)).collect();
        news.into_iter().for_each(|process| self.learn(net, process));
        if let Some(held) = self.agreements.get_mut(&at) {
            held.agreement.receive(rank, message);
        }
        self.flush(net, at);
    }

    pub(super) fn flush(&mut self, net: &mut N, at: (Key, u32)) {
        let Some(held) = self.agreements.get_mut(&at) else { return };
        if !held.agreement.has_messages() {
            return;
        }
        let messages = held.agreement.take_messages();
        let (group, invitation) = (Arc::clone(&held.group), held.invitation.clone());
        let (key, number) = at;
        for (rank, message) in messages {
            let control = match invitation.clone() {
                Some(invitation) => Control::Join { key, invitation, message },
                None => Control::Agree { key, number, message },
            };
            if let Some(process) = group.process(rank) {
                let bytes = control.to_bytes(net);
                self.send(net, process, &bytes);
            }
        }
    }

    /// To one that is down, nothing is sent, and nobody misses it.
    pub(super) fn send(&self, net: &mut N, to: ProcessId, bytes: &[u8]) {
        let Some(tag) = self.tag else { return };
        if bytes.len() <= INJECT_MAX {
            let _ = net.inject(to, tag, bytes);
        } else {
            // It goes on.
            drop(net.send(to, tag, Buffer::from(bytes.to_vec()), Mode::Standard));
        }
    }
}
