//! One agreement in one process: messages and deaths in, messages out.
//!
//! As long as nobody knows of a death, each member tells what it has gathered to those at distances of 1, 2,
//! 4 and so on, each once it has heard of as many before it; whoever has heard of all has decided. That takes
//! as many messages in a row as the size has bits.
//!
//! Else values go up a binary tree of ranks and are merged on the way; the *leader*, the lowest rank that is
//! not known to be dead, decides once it has heard of every member that lives; the decision goes down. In
//! either case who has it may return at once, and answers others later (the early-returning agreement of
//! Herault et al., SC'15, with its tree).
//!
//! What makes it uniform is the *ballot*: 0 while no death is known, and then one more than the leader's rank.
//!
//! 1. A process that learns of the first death, or of its leader's, goes to the next ballot: it drops what it
//!    has gathered, and reports again, now with the decision if it has one. From then on it takes no decision
//!    of an older ballot, as if it had never come.
//! 2. All decisions of ballot 0 are the same: what all members have contributed.
//! 3. A leader hears of all who live, at its own ballot, before it decides. So if any of them had taken a
//!    decision before, it has heard of that, and decides the same; and if none had, none will.
//! 4. Another death only moves the dead one's children up to the nearest ancestor that lives. They
//!    report to it again; values are merged so that to do it twice is harmless. What the dead one was to
//!    pass on is not lost: nobody reports for a rank before that rank is heard of or known to be dead.
//!
//! All messages carry who is known to be dead, so that nobody waits for what another process knows.
//!
//! Where not all know that there is an agreement, they are *asked*: whoever enters it asks its neighbours
//! in the tree, and does so again when a death gives it others. All who live are joined by such neighbours.
//! Such an agreement has no ballot 0.
//!
//! This assumes that who is said to be down is down, and that all who live learn of it in the end. A process
//! that decides, and dies before any other one has heard of that, may have decided otherwise than the rest.

use super::ranks::Ranks;

/// What members have contributed, merged; or what was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) flags: u64,
    /// The least number of an agreement that a contributor has not seen ended.
    pub(crate) low: u32,
    pub(crate) contributors: Ranks,
    /// Ranks whose failures all contributors have acknowledged.
    pub(crate) acknowledged: Ranks,
    /// Ranks that some contributor knew to be dead.
    pub(crate) dead: Ranks,
}

impl Value {
    fn nothing(size: u32) -> Self {
        Value {
            flags: u64::MAX,
            low: u32::MAX,
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

    /// Non-contributors whose failure some contributor has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> Vec<u32> {
        let is_news =
            |rank: &u32| !self.contributors.contains(*rank) && !self.acknowledged.contains(*rank);
        (0..self.contributors.size()).filter(is_news).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was gathered in a part of the tree.
    Gathered,
    /// A decision of an older ballot, or one that such a decision was reported in.
    Reported,
    /// The ballot's decision.
    Decided,
    /// Nothing, but that there is this agreement.
    Asked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) ballot: u32,
    /// Who the sender knows to be dead.
    pub(crate) dead: Ranks,
    pub(crate) value: Value,
}

/// An agreement as one process sees it.
#[derive(Clone, Debug)]
pub(crate) struct Agreement {
    own: u32,
    dead: Ranks,
    ballot: u32,
    vote: Option<Value>,
    /// At this ballot.
    gathered: Value,
    /// A decision that another process took at an older ballot.
    reported: Option<Value>,
    /// And the ballot at which it was taken last.
    decision: Option<(u32, Value)>,
    /// To whom this process has reported at this ballot, and whether a decision.
    sent: Option<(u32, bool)>,
    /// At ballot 0: how far away the next one is that this process tells.
    reach: u32,
    /// Who was told that there is this agreement; `None`: all begin it by themselves.
    asked: Option<Ranks>,
    out: Vec<(u32, Message)>,
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

    /// One that others take part in only once they are asked.
    pub(crate) fn asking(mut self) -> Self {
        self.asked = Some(Ranks::none(self.dead.size()));
        self.advance();
        self
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.out.is_empty()
    }

    /// What is to be sent, and to whom.
    pub(crate) fn take_messages(&mut self) -> Vec<(u32, Message)> {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn decision(&self) -> Option<&Value> {
        self.decision.as_ref().map(|(_, value)| value)
    }

    /// This process's part.
    pub(crate) fn vote(&mut self, flags: u64, low: u32, acknowledged: &[u32]) {
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

    pub(crate) fn receive(&mut self, from: u32, message: &Message) {
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
            Kind::Decided if !has_decided => self.decide(message.value.clone()),
            Kind::Decided => {}
            Kind::Gathered if self.ballot == 0 && has_decided => {}
            Kind::Gathered | Kind::Reported | Kind::Asked if has_decided => self.tell(from),
            Kind::Asked => {}
            Kind::Gathered => self.gathered.merge(&message.value),
            Kind::Reported => drop(self.reported.get_or_insert_with(|| message.value.clone())),
        }
        self.advance();
    }

    /// Does what can be done now.
    fn advance(&mut self) {
        let is_undisturbed = self.asked.is_none() && self.dead.is_empty();
        let leader = self.leader();
        let ballot = if is_undisturbed { 0 } else { leader + 1 };
        if ballot != self.ballot {
            self.ballot = ballot;
            self.gathered = Value::nothing(self.dead.size());
            // What was reported is a decision, which another ballot does not undo.
            self.sent = None;
        }
        if self.decision.as_ref().is_some_and(|(at, _)| *at == self.ballot) {
            return;
        }
        self.ask();
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
            let kind = if is_known { Kind::Reported } else { Kind::Gathered };
            self.send(to, kind, value);
        }
    }

    /// Tells others what was gathered, at ballot 0.
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
            self.send(to, Kind::Gathered, self.gathered.clone());
        }
        if self.gathered.contributors.is_full() {
            self.decision = Some((0, self.gathered.clone()));
        }
    }

    /// Whether all were heard of whom this process is to report for.
    fn has_all(&self) -> bool {
        let is_leader = self.leads();
        (0..self.dead.size()).all(|rank| {
            self.dead.contains(rank)
                || self.gathered.contributors.contains(rank)
                || !is_leader && !is_beneath(rank, self.own)
        })
    }

    /// Tells neighbours in the tree, each once.
    fn ask(&mut self) {
        let Some(mut asked) = self.asked.take() else { return };
        let above = (!self.leads()).then(|| self.parent(self.own));
        for rank in self.children().into_iter().chain(above) {
            if asked.insert(rank) {
                self.send(rank, Kind::Asked, Value::nothing(self.dead.size()));
            }
        }
        self.asked = Some(asked);
    }

    fn decide(&mut self, value: Value) {
        self.decision = Some((self.ballot, value));
        for rank in self.children() {
            self.tell(rank);
        }
    }

    fn tell(&mut self, rank: u32) {
        if let Some((_, value)) = &self.decision {
            let value = value.clone();
            self.send(rank, Kind::Decided, value);
        }
    }

    fn send(&mut self, to: u32, kind: Kind, value: Value) {
        let message = Message { kind, ballot: self.ballot, dead: self.dead.clone(), value };
        self.out.push((to, message));
    }

    /// The lowest rank that lives: this one at last.
    fn leader(&self) -> u32 {
        (0..self.own).find(|rank| !self.dead.contains(*rank)).unwrap_or(self.own)
    }

    /// Whether this process is its ballot's leader.
    fn leads(&self) -> bool {
        self.ballot == self.own + 1
    }

    /// The nearest ancestor that lives; without any, the leader.
    fn parent(&self, rank: u32) -> u32 {
        let mut ancestors = std::iter::successors(above(rank), |rank| above(*rank));
        ancestors.find(|rank| !self.dead.contains(*rank)).unwrap_or_else(|| self.leader())
    }

    fn children(&self) -> Vec<u32> {
        let mut found = Vec::new();
        // Of the leader they are the heads of all parts of the tree: nobody above it lives.
        self.heads(if self.leads() { 0 } else { self.own }, &mut found);
        found
    }

    /// Those who live at the top of this part of the tree, without this process.
    fn heads(&self, top: u32, found: &mut Vec<u32>) {
        if top == self.own || self.dead.contains(top) {
            let beneath = beneath(top).into_iter().filter(|rank| *rank < self.dead.size());
            beneath.for_each(|rank| self.heads(rank, found));
        } else {
            found.push(top);
        }
    }
}

fn above(rank: u32) -> Option<u32> {
    Some(rank.checked_sub(1)? / 2)
}

fn beneath(rank: u32) -> [u32; 2] {
    [2 * rank + 1, 2 * rank + 2]
}

/// Whether a rank is in the part of the tree beneath another, or is it.
fn is_beneath(rank: u32, top: u32) -> bool {
    std::iter::successors(Some(rank), |rank| above(*rank)).any(|rank| rank == top)
}
