//! One agreement in one process, as a pure state machine: messages and deaths in, messages out.
//!
//! While no process knows of a death, each member sends what it has gathered to the members at
//! distances of 1, 2, 4 and so on: each message once it has heard of as many members before it. A
//! member that has heard of all members has decided. That takes as many messages in a row as the
//! size has bits.
//!
//! Once a death is known, values go up a binary tree of ranks and are merged on the way. The
//! *leader* is the lowest rank that is not known to be dead. It decides once it has heard of every
//! living member, and the decision goes down the tree. In both cases a member that has the decision
//! may return at once, and answers others later (the early-returning agreement of Herault et al.,
//! SC'15, with its tree).
//!
//! The *ballot* makes the decision uniform. It is 0 while no death is known, and then one more than
//! the leader's rank.
//!
//! 1. A process that learns of the first death, or of the leader's, goes to the next ballot. It
//!    drops what it has gathered, and reports again: its decision, if it has one. From then on it
//!    accepts no decision of an older ballot.
//! 2. All decisions of ballot 0 are the same: the contributions of all members.
//! 3. A leader hears of all living members, at its own ballot, before it decides. If any of them
//!    has accepted a decision before, the leader has heard of it, and decides the same. If none
//!    has, none will.
//! 4. Any other death only moves the children of the dead member up to the nearest living ancestor.
//!    They report to it again. Merging a value twice does no harm. A value that the dead member was
//!    to pass on is not lost: a member reports for a part of the tree only when each rank in it was
//!    heard of or is known to be dead.
//!
//! All messages carry the deaths that the sender knows of. A message is taken in once the
//! receiver's own transport has reported these, too (`service`): so no process waits for a member
//! that another process knows to be dead, and none believes in a death because another one says so.
//!
//! If not all members know that there is an agreement, they are *asked*. A process that enters the
//! agreement asks its neighbours in the tree, and asks again when a death gives it other
//! neighbours. All living members are connected by these neighbours. An agreement of this kind has
//! no ballot 0. In both kinds, a process that goes to another ballot asks its neighbours afresh,
//! because they may not know of the death that is the reason. So it is enough that each process
//! learns of the deaths of those that send to it at ballot 0 ([`senders`]), and of those that it
//! has sent to.
//!
//! It is assumed that a process that is reported as down is down, and that all living processes
//! learn of it in the end. A process that decides, and dies before any other process has heard of
//! the decision, may have decided otherwise than the rest.

use std::ops::Range;

use super::ranks::Ranks;

/// The merged contributions of some members, or the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) flags: u64,
    /// The lowest number of an agreement whose end some contributor has not seen.
    pub(crate) low: u64,
    pub(crate) contributors: Ranks,
    /// Ranks whose failures all contributors have acknowledged.
    pub(crate) acknowledged: Ranks,
    /// Ranks that some contributor, or the leader, knew to be dead.
    pub(crate) dead: Ranks,
}

impl Value {
    fn nothing(size: u32) -> Self {
        Value {
            flags: u64::MAX,
            low: u64::MAX,
            contributors: Ranks::none(size),
            acknowledged: Ranks::all(size),
            dead: Ranks::none(size),
        }
    }

    fn merge(&mut self, other: &Value) {
        self.flags &= other.flags;
        self.low = self.low.min(other.low);
        self.contributors.add(&other.contributors);
        self.acknowledged.keep(&other.acknowledged);
        self.dead.add(&other.dead);
    }

    /// Members that have not contributed, and whose failure some contributor has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> Vec<u32> {
        let is_news =
            |rank: &u32| !self.contributors.contains(*rank) && !self.acknowledged.contains(*rank);
        (0..self.contributors.size()).filter(is_news).collect()
    }

    /// The ranks in a range that have contributed, and that no contributor knew to be dead.
    pub(crate) fn living(&self, ranks: Range<u32>) -> impl Iterator<Item = u32> {
        let is_dead = |rank: u32| self.dead.contains(rank) || !self.contributors.contains(rank);
        ranks.filter(move |rank| !is_dead(*rank))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgreeKind {
    /// The merged value of a part of the tree or, at ballot 0, of the members up to the sender.
    Gathered,
    /// A decision of an older ballot, on its way up to the leader.
    Reported,
    /// The decision of the ballot.
    Decided,
    /// Tells the receiver that there is this agreement.
    Asked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgreeMessage {
    pub(crate) kind: AgreeKind,
    pub(crate) ballot: u32,
    /// The ranks that the sender knows to be dead.
    pub(crate) dead: Ranks,
    pub(crate) value: Value,
}

impl AgreeMessage {
    /// Whether a rank is dead according to this message. A member that has not contributed to a
    /// decision is.
    pub(crate) fn says_dead(&self, rank: u32) -> bool {
        let is_decision = matches!(self.kind, AgreeKind::Decided | AgreeKind::Reported);
        self.dead.contains(rank)
            || self.value.dead.contains(rank)
            || is_decision && !self.value.contributors.contains(rank)
    }
}

/// An agreement as one process sees it.
#[derive(Clone, Debug)]
pub(crate) struct Agreement {
    own: u32,
    dead: Ranks,
    ballot: u32,
    vote: Option<Value>,
    /// The value gathered at this ballot.
    gathered: Value,
    /// A decision that another process accepted at an older ballot.
    reported: Option<Value>,
    /// The decision, and the latest ballot at which it was accepted.
    decision: Option<(u32, Value)>,
    /// The rank to which this process has reported at this ballot, and whether it reported a
    /// decision.
    sent: Option<(u32, bool)>,
    /// At ballot 0: the distance of the next member to send to.
    reach: u32,
    /// The members that were asked; `None` if all members begin the agreement by themselves, and
    /// no death is known.
    asked: Option<Ranks>,
    out: Vec<(u32, AgreeMessage)>,
}

impl Agreement {
    pub(crate) fn new(size: u32, own: u32) -> Self {
        Agreement {
            own,
            dead: Ranks::none(size),
            ballot: 0,
            vote: None,
            gathered: Value::nothing(size),
            reported: None,
            decision: None,
            sent: None,
            reach: 1,
            asked: None,
            out: Vec::new(),
        }
    }

    /// An agreement that other members enter only once they are asked.
    pub(crate) fn asking(mut self) -> Self {
        self.asked = Some(Ranks::none(self.dead.size()));
        self.advance();
        self
    }

    /// Takes the messages to send, each with the receiver's rank.
    pub(crate) fn take_messages(&mut self) -> Vec<(u32, AgreeMessage)> {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn decision(&self) -> Option<&Value> {
        self.decision.as_ref().map(|(_, value)| value)
    }

    /// Contributes the value of this process.
    pub(crate) fn vote(&mut self, flags: u64, low: u64, acknowledged: &[u32]) {
        let size = self.dead.size();
        self.vote = Some(Value {
            flags,
            low,
            contributors: Ranks::of(size, &[self.own]),
            acknowledged: Ranks::of(size, acknowledged),
            dead: Ranks::none(size),
        });
        self.advance();
    }

    /// A member is dead.
    pub(crate) fn die(&mut self, rank: u32) {
        if rank != self.own && self.dead.insert(rank) {
            self.advance();
        }
    }

    pub(crate) fn receive(&mut self, from: u32, message: &AgreeMessage) {
        let known = self.dead.clone();
        self.dead.add(&message.dead);
        self.dead.remove(self.own);
        if self.dead != known {
            self.advance();
        }
        if message.ballot != self.ballot {
            return;
        }
        let has_decided = self.decision.as_ref().is_some_and(|(at, _)| *at == self.ballot);
        match message.kind {
            AgreeKind::Decided if !has_decided => self.decide(message.value.clone()),
            AgreeKind::Decided => {}
            AgreeKind::Gathered if self.ballot == 0 && has_decided => {}
            AgreeKind::Gathered | AgreeKind::Reported | AgreeKind::Asked if has_decided => {
                self.send_decision(from)
            }
            AgreeKind::Asked => {}
            AgreeKind::Gathered => self.gathered.merge(&message.value),
            AgreeKind::Reported => drop(self.reported.get_or_insert_with(|| message.value.clone())),
        }
        self.advance();
    }

    /// Goes to another ballot, reports, or decides, as far as that can be done now.
    fn advance(&mut self) {
        let is_without_death = self.asked.is_none() && self.dead.is_empty();
        let leader = self.leader();
        let ballot = if is_without_death { 0 } else { leader + 1 };
        if ballot != self.ballot {
            self.asked = Some(Ranks::none(self.dead.size()));
            self.ballot = ballot;
            self.gathered = Value::nothing(self.dead.size());
            // `reported` stays: it is a decision, which a new ballot does not undo.
            self.sent = None;
        }
        self.ask();
        if self.decision.as_ref().is_some_and(|(at, _)| *at == self.ballot) {
            return;
        }
        if let Some(vote) = &self.vote {
            self.gathered.merge(vote);
        }
        if ballot == 0 {
            return self.spread();
        }
        let known = self.decision().or(self.reported.as_ref()).cloned();
        if known.is_none() && !self.has_all() {
            return;
        }
        let is_known = known.is_some();
        let mut value = known.unwrap_or_else(|| self.gathered.clone());
        if self.own == leader {
            if !is_known {
                value.dead.add(&self.dead);
            }
            self.decide(value);
            return;
        }
        let to = self.parent(self.own);
        if self.sent != Some((to, is_known)) {
            self.sent = Some((to, is_known));
            let kind = if is_known { AgreeKind::Reported } else { AgreeKind::Gathered };
            self.send(to, kind, value);
        }
    }

    /// Sends what was gathered, at ballot 0.
    fn spread(&mut self) {
        let size = self.dead.size();
        let back = |by: u32| (self.own + size - by) % size;
        let mut out = Vec::new();
        while self.reach < size
            && (0..self.reach).all(|by| self.gathered.contributors.contains(back(by)))
        {
            out.push((self.own + self.reach) % size);
            self.reach = self.reach.saturating_mul(2);
        }
        for to in out {
            self.send(to, AgreeKind::Gathered, self.gathered.clone());
        }
        if self.gathered.contributors.is_full() {
            self.decision = Some((0, self.gathered.clone()));
        }
    }

    /// Whether this process has heard of all living members that it has to report for.
    fn has_all(&self) -> bool {
        let is_leader = self.leads();
        (0..self.dead.size()).all(|rank| {
            self.dead.contains(rank)
                || self.gathered.contributors.contains(rank)
                || !is_leader && !is_beneath(rank, self.own)
        })
    }

    /// Asks the neighbours in the tree, each once.
    fn ask(&mut self) {
        let Some(mut asked) = self.asked.take() else { return };
        let above = (!self.leads()).then(|| self.parent(self.own));
        for rank in self.children().into_iter().chain(above) {
            if asked.insert(rank) {
                self.send(rank, AgreeKind::Asked, Value::nothing(self.dead.size()));
            }
        }
        self.asked = Some(asked);
    }

    fn decide(&mut self, value: Value) {
        self.decision = Some((self.ballot, value));
        for rank in self.children() {
            self.send_decision(rank);
        }
    }

    fn send_decision(&mut self, rank: u32) {
        if let Some((_, value)) = &self.decision {
            let value = value.clone();
            self.send(rank, AgreeKind::Decided, value);
        }
    }

    fn send(&mut self, to: u32, kind: AgreeKind, value: Value) {
        let message = AgreeMessage { kind, ballot: self.ballot, dead: self.dead.clone(), value };
        self.out.push((to, message));
    }

    /// The lowest living rank; this process itself if no lower one lives.
    fn leader(&self) -> u32 {
        (0..self.own).find(|rank| !self.dead.contains(*rank)).unwrap_or(self.own)
    }

    /// Whether this process leads its ballot.
    fn leads(&self) -> bool {
        self.ballot == self.own + 1
    }

    /// The nearest living ancestor; the leader if there is none.
    fn parent(&self, rank: u32) -> u32 {
        let mut ancestors = std::iter::successors(above(rank), |rank| above(*rank));
        ancestors.find(|rank| !self.dead.contains(*rank)).unwrap_or_else(|| self.leader())
    }

    fn children(&self) -> Vec<u32> {
        let mut found = Vec::new();
        // No ancestor of the leader lives, so its children are the top living ranks of the whole
        // tree.
        self.heads(if self.leads() { 0 } else { self.own }, &mut found);
        found
    }

    /// The top living ranks in the part of the tree below `top`, without this process.
    fn heads(&self, top: u32, found: &mut Vec<u32>) {
        if top == self.own || self.dead.contains(top) {
            let beneath = beneath(top).into_iter().filter(|rank| *rank < self.dead.size());
            beneath.for_each(|rank| self.heads(rank, found));
        } else {
            found.push(top);
        }
    }
}

/// The ranks that send to this one at ballot 0.
pub(crate) fn senders(own: u32, size: u32) -> impl Iterator<Item = u32> {
    let distances = (0..u32::BITS).map(|bit| 1 << bit).take_while(move |by| *by < size);
    distances.map(move |by| (own + size - by) % size)
}

fn above(rank: u32) -> Option<u32> {
    Some(rank.checked_sub(1)? / 2)
}

fn beneath(rank: u32) -> [u32; 2] {
    [2 * rank + 1, 2 * rank + 2]
}

/// Whether a rank is in the part of the tree whose top is `top`.
fn is_beneath(rank: u32, top: u32) -> bool {
    std::iter::successors(Some(rank), |rank| above(*rank)).any(|rank| rank == top)
}
