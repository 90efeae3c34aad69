//! A specification of MPI's matching: every order in which operations in progress can have taken
//! effect.
//!
//! A message takes effect at one moment between its sending and the end of its receive: it is given
//! to the first posted receive that matches it, or it waits. No receive gets a message before an
//! older message of the same sender that the receive matches as well. Messages have no order if no
//! receive matches both. A cancel takes effect between its call and its end, a post at its call.
//!
//! The [`Spec`] keeps every state of two plain lists that can be reached like this. Each result of
//! the code under test removes the states that don't agree with it. If no state is left, the result
//! is a violation. (This is linearizability, checked on the fly.)

use std::hash::{Hash, Hasher};

/// The most receives, and the most messages of one sender, in a scope.
pub(super) const MANY: u8 = 4;
/// Senders of a scope.
pub(super) const SENDERS: u8 = 2;

/// The pattern of a receive. Senders and tags are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReceiveKind {
    Exact { sender: u8, tag: u8 },
    AnySource { tag: u8 },
    AnyTag { sender: u8 },
}

impl ReceiveKind {
    fn matches(self, message: ScopeMessage) -> bool {
        match self {
            ReceiveKind::Exact { sender, tag } => sender == message.sender() && tag == message.tag,
            ReceiveKind::AnySource { tag } => tag == message.tag,
            ReceiveKind::AnyTag { sender } => sender == message.sender(),
        }
    }
}

/// A message. Each sender has a range of [`MANY`] numbers for its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ScopeMessage {
    pub(super) number: u8,
    pub(super) tag: u8,
}

impl ScopeMessage {
    /// The message that a sender sends after `sent` others.
    pub(super) fn new(sender: u8, sent: u8, tag: u8) -> Self {
        ScopeMessage { number: sender * MANY + sent, tag }
    }

    pub(super) fn sender(self) -> u8 {
        self.number / MANY
    }
}

/// How a receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ReceiveEnd {
    Got(u8),
    Cancelled,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ReceiveProgress {
    #[default]
    Unposted,
    Pending,
    Ended(ReceiveEnd),
    /// The end was reported.
    Gone,
}

/// One state of the plain lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Lists {
    receives: [ReceiveProgress; MANY as usize],
    /// Messages that wait, oldest first.
    waiting: [Option<ScopeMessage>; MANY as usize],
    /// Messages that were sent and have not taken effect, by sender, oldest first.
    in_transit: [[Option<ScopeMessage>; MANY as usize]; SENDERS as usize],
    /// A bit for each receive whose cancel has not taken effect.
    cancels: u8,
}

fn push(queue: &mut [Option<ScopeMessage>; MANY as usize], message: ScopeMessage) {
    if let Some(place) = queue.iter_mut().find(|place| place.is_none()) {
        *place = Some(message);
    }
}

fn remove(queue: &mut [Option<ScopeMessage>; MANY as usize], at: usize) -> Option<ScopeMessage> {
    let message = queue[at].take();
    queue[at..].rotate_left(1);
    message
}

impl Lists {
    /// One of a sender's messages takes effect; `None` if it can't before an older one.
    fn land(mut self, sender: usize, at: usize, kinds: &[ReceiveKind]) -> Option<Lists> {
        let message = remove(&mut self.in_transit[sender], at)?;
        let takes = |(receive, kind): (&ReceiveProgress, &ReceiveKind)| {
            *receive == ReceiveProgress::Pending && kind.matches(message)
        };
        match self.receives.iter().zip(kinds).position(takes) {
            Some(index) if self.overtakes(message, kinds[index]) => return None,
            Some(index) => {
                self.receives[index] = ReceiveProgress::Ended(ReceiveEnd::Got(message.number))
            }
            None => self.wait(message),
        }
        Some(self)
    }

    /// Whether a message would be received before an older one of its sender that matches as well.
    fn overtakes(&self, message: ScopeMessage, kind: ReceiveKind) -> bool {
        let of_sender = self.in_transit[usize::from(message.sender())].iter().flatten();
        of_sender.clone().any(|other| other.number < message.number && kind.matches(*other))
    }

    /// Puts a message behind all waiting messages, except younger ones of its sender.
    fn wait(&mut self, message: ScopeMessage) {
        let is_younger = |other: &ScopeMessage| {
            other.sender() == message.sender() && other.number > message.number
        };
        let at = self.waiting.iter().position(|place| place.as_ref().is_none_or(is_younger));
        if let Some(at) = at {
            self.waiting[at..].rotate_right(1);
            self.waiting[at] = Some(message);
        }
    }

    /// The cancel of a receive takes effect.
    fn cancel(mut self, index: usize) -> Option<Lists> {
        if self.cancels & 1 << index == 0 {
            return None;
        }
        self.cancels &= !(1 << index);
        if self.receives[index] == ReceiveProgress::Pending {
            self.receives[index] = ReceiveProgress::Ended(ReceiveEnd::Cancelled);
        }
        Some(self)
    }

    /// A receive is posted; `None` if it would be given a message before an older one.
    fn post(mut self, index: usize, kind: ReceiveKind) -> Option<Lists> {
        let takes =
            |place: &Option<ScopeMessage>| place.is_some_and(|message| kind.matches(message));
        let found =
            self.waiting.iter().position(takes).and_then(|at| remove(&mut self.waiting, at));
        if found.is_some_and(|message| self.overtakes(message, kind)) {
            return None;
        }
        self.receives[index] = found.map_or(ReceiveProgress::Pending, |message| {
            ReceiveProgress::Ended(ReceiveEnd::Got(message.number))
        });
        Some(self)
    }

    /// Whether everything has taken effect and was reported, with these numbers left on the lists.
    fn is_settled(&self, pending: usize, waiting: usize) -> bool {
        let count = |of| self.receives.iter().filter(|receive| **receive == of).count();
        self.in_transit.iter().all(|queue| queue[0].is_none())
            && self.cancels == 0
            && self.receives.iter().all(|receive| !matches!(receive, ReceiveProgress::Ended(_)))
            && count(ReceiveProgress::Pending) == pending
            && self.waiting.iter().flatten().count() == waiting
    }
}

/// All states that the lists may be in.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    kinds: Vec<ReceiveKind>,
    states: Vec<Lists>,
}

impl Spec {
    pub(super) fn new() -> Self {
        Spec { kinds: Vec::new(), states: vec![Lists::default()] }
    }

    /// A receive is posted.
    pub(super) fn post(&mut self, kind: ReceiveKind) {
        self.spread();
        let index = self.kinds.len();
        self.kinds.push(kind);
        self.states = self.states.iter().filter_map(|lists| lists.post(index, kind)).collect();
        self.each(|_| ());
    }

    /// The pattern of a receive.
    pub(super) fn kind(&self, index: usize) -> Option<ReceiveKind> {
        self.kinds.get(index).copied()
    }

    /// A message is sent.
    pub(super) fn send(&mut self, message: ScopeMessage) {
        self.each(|lists| push(&mut lists.in_transit[usize::from(message.sender())], message));
    }

    /// A receive is to be cancelled.
    pub(super) fn cancel(&mut self, index: usize) {
        self.each(|lists| lists.cancels |= 1 << index);
    }

    /// A receive was reported to have ended. Returns whether it can have ended like this.
    pub(super) fn ended(&mut self, index: usize, end: ReceiveEnd) -> bool {
        self.spread();
        self.states.retain(|lists| lists.receives[index] == ReceiveProgress::Ended(end));
        self.each(|lists| {
            lists.receives[index] = ReceiveProgress::Gone;
            lists.cancels &= !(1 << index);
        });
        !self.states.is_empty()
    }

    /// Whether these numbers of pending receives and waiting messages may remain when nothing moves
    /// any more.
    pub(super) fn may_be_settled(&self, pending: usize, waiting: usize) -> bool {
        let mut all = self.clone();
        all.spread();
        all.states.iter().any(|lists| lists.is_settled(pending, waiting))
    }

    pub(super) fn hash_state(&self, state: &mut impl Hasher) {
        // Patterns of receives that have ended don't matter.
        for (index, kind) in self.kinds.iter().enumerate() {
            let is_gone =
                self.states.iter().all(|lists| lists.receives[index] == ReceiveProgress::Gone);
            (!is_gone).then_some(kind).hash(state);
        }
        self.states.hash(state);
    }

    fn each(&mut self, change: impl FnMut(&mut Lists)) {
        self.states.iter_mut().for_each(change);
        self.states.sort_unstable();
        self.states.dedup();
    }

    /// Adds all states that follow when operations in progress take effect.
    fn spread(&mut self) {
        let mut next = 0;
        while let Some(&lists) = self.states.get(next) {
            next += 1;
            let in_transit =
                (0..usize::from(SENDERS)).flat_map(|s| (0..MANY as usize).map(move |at| (s, at)));
            let landed = in_transit.filter_map(|(sender, at)| lists.land(sender, at, &self.kinds));
            let cancelled = (0..self.kinds.len()).filter_map(|index| lists.cancel(index));
            let new: Vec<Lists> = landed.chain(cancelled).collect();
            for lists in new {
                if !self.states.contains(&lists) {
                    self.states.push(lists);
                }
            }
        }
        self.states.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u8 = 0;
    const B: u8 = 1;

    fn any() -> ReceiveKind {
        ReceiveKind::AnySource { tag: 0 }
    }

    fn sent(sender: u8, nth: u8) -> ScopeMessage {
        ScopeMessage::new(sender, nth, 0)
    }

    #[test]
    fn messages_of_one_sender_never_overtake() {
        let mut spec = Spec::new();
        (0..2).for_each(|_| spec.post(any()));
        (0..2).for_each(|nth| spec.send(sent(A, nth)));
        assert!(!spec.clone().ended(0, ReceiveEnd::Got(sent(A, 1).number)));
        assert!(!spec.clone().ended(1, ReceiveEnd::Got(sent(A, 0).number)));
        assert!(spec.ended(1, ReceiveEnd::Got(sent(A, 1).number)), "the first has ended, too");
        assert!(!spec.clone().ended(0, ReceiveEnd::Cancelled));
        assert!(spec.ended(0, ReceiveEnd::Got(sent(A, 0).number)) && spec.may_be_settled(0, 0));
    }

    #[test]
    fn messages_of_two_senders_come_in_any_order_but_one() {
        let mut spec = Spec::new();
        (0..2).for_each(|_| spec.post(any()));
        spec.send(sent(A, 0));
        spec.send(sent(B, 0));
        assert!(spec.ended(0, ReceiveEnd::Got(sent(B, 0).number)));
        assert!(!spec.may_be_settled(1, 1), "a pair that matches can't be left");
        assert!(spec.ended(1, ReceiveEnd::Got(sent(A, 0).number)));
    }

    #[test]
    fn a_message_passes_an_older_one_of_its_sender_where_no_receive_can_tell() {
        let mut spec = Spec::new();
        let kinds = [0, 1].map(|tag| ReceiveKind::Exact { sender: A, tag });
        spec.post(kinds[1]);
        spec.send(ScopeMessage::new(A, 0, 0));
        spec.send(ScopeMessage::new(A, 1, 1));
        assert!(spec.ended(0, ReceiveEnd::Got(1)));
        // The older message still waits, and the receive of any tag gets it.
        spec.post(ReceiveKind::AnyTag { sender: A });
        assert!(
            !spec.may_be_settled(1, 1)
                && spec.ended(1, ReceiveEnd::Got(0))
                && spec.may_be_settled(0, 0)
        );
    }

    #[test]
    fn a_receive_is_passed_over_only_if_its_cancel_can_have_come_first() {
        let mut spec = Spec::new();
        (0..2).for_each(|_| spec.post(any()));
        spec.send(sent(A, 0));
        let mut late = spec.clone();
        assert!(!late.ended(1, ReceiveEnd::Got(0)));
        spec.cancel(0);
        assert!(spec.ended(1, ReceiveEnd::Got(0)) && spec.ended(0, ReceiveEnd::Cancelled));
        assert!(
            spec.may_be_settled(0, 0) && !spec.may_be_settled(0, 1) && !spec.may_be_settled(1, 0)
        );
    }
}
