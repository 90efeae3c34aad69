//! The oracle: checks a history by what can be seen from outside.
//!
//! # What is seen
//! The oracle sees the order of calls, the message that each receive, probe and send names in its
//! result, and the moment at which a wire handed a message to its receiver. It doesn't see *when* a
//! match was decided: a NIC decides before software is told. So each decision has an interval, from
//! the later of post and arrival to the result (or to the begin of the READ, if that was seen). A
//! rule is broken only if no order within the intervals keeps it.
//!
//! # Rules
//! For one receiver, with the order of its posts and matched probes, and for each sender the order
//! of its sends to it:
//!
//! 1. *Posted order.* Receive `r2` got message `m`; `r1` was posted before `r2` and matches `m`.
//!    Then `r1` was decided before `r2`: it was matched to a message that had arrived by then, or
//!    its cancel had been asked for by then, or the source that it names was down by then. The
//!    oracle keeps this as a *deadline* of `r1`.
//! 2. *No overtaking.* Receive or probe `r` named message `m2`; `m1` was sent before by the same
//!    sender and matches. Then a receive or probe posted before `r` took `m1`. The oracle
//!    keeps this as a *bound* of `m1`: the latest moment at which its taker may have been posted.
//!    Exception: a rendezvous whose sender was down.
//! 3. *A probe sees a waiting message.* A message that a probe named is taken only by a receive or
//!    probe posted later. The oracle keeps this as a *floor* of the message.
//! 4. *Ends.* The message of a synchronous send that ended was taken by a receive or probe posted
//!    before. Each receive, message and send ends once, for a reason that the run explains.
//! 5. *Settled.* When nothing moves any more, no receive and message that match both wait, and a
//!    sender says of each message that has not left that it hasn't. At the end every message and
//!    receive is accounted for. Messages have all arrived that a killed worker had flushed, and
//!    those of a worker that left when it had nothing unsent.
//! 6. *Status.* Source, tag, full length, truncation, immediate data and bytes are right, and
//!    nothing is written behind the message.
//!
//! A receive that its owner dropped may have taken a message silently; a message that is missing
//! must then match a dropped receive, and each dropped receive explains at most one message. If a
//! receive failed together with a peer after a NIC had matched it with a message of this peer, a
//! missing message of the peer must match it. The same rule holds for a receive that failed because
//! a NIC had matched it with a message of another sender than it names.
//!
//! Where software alone decides, when a message arrives or a receive is posted, [`reference`] also
//! predicts the message that each receive must get.

mod decide;
mod ends;
mod failed_receives;
mod recheck;
pub(crate) mod reference;
mod settled;
mod unsent;
mod wanted;

use tagmatch_fallback::Status;

use crate::program::Mode;
use crate::violation::{Rule, Verdict, Violation, ensure};
use crate::wire::{Note, ReadOutcome};
use reference::Reference;
pub(crate) use wanted::{ANY, NONE, Wanted};

/// A moment after all others.
pub(crate) const NEVER: u64 = u64::MAX;
/// The number of different lengths that tell messages without immediate data of one pair apart.
const PLAIN: usize = 64;

/// The receive or probe that took a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    Nobody,
    /// A receive, by number.
    Receive(u32),
    /// A matched probe, by its moment.
    Probe(u64),
    /// A receive that failed with its sender.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) from: u32,
    pub(crate) to: u32,
    ordinal: u32,
    pub(crate) length: u32,
    pub(crate) tag: u64,
    /// Its sender had flushed it before it was killed.
    is_flushed: bool,
    pub(crate) immediate: bool,
    mode: Mode,
    arrived: u64,
    eager: bool,
    /// When the READ of the message began.
    began: u64,
    read_down: bool,
    /// The number of its READ's failure; 0 if the READ has not failed.
    failed: i32,
    pub(crate) taker: Taker,
    /// Rule 2: its taker was posted before this.
    bound: u64,
    /// Rule 3: its taker is posted after this.
    floor: u64,
}

/// A message whose send was accepted.
pub(crate) struct SentMessage {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) tag: u64,
    pub(crate) length: u32,
    pub(crate) immediate: bool,
    pub(crate) mode: Mode,
}

/// A probe that has returned. `takes`: it was a matched probe, which took the message.
pub(crate) struct OracleProbe {
    pub(crate) node: u32,
    pub(crate) wanted: Wanted,
    pub(crate) found: u32,
    pub(crate) takes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiveState {
    Waiting,
    Ended,
    Dropped,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    node: u32,
    wanted: Wanted,
    /// Whether a NIC may match the receive by its tag alone.
    is_sole: bool,
    post: u64,
    /// Rule 1: it was decided before this.
    deadline: u64,
    cancel: u64,
    state: ReceiveState,
    pub(crate) taken: u32,
}

/// A receive that is not known to have ended, with the facts that checks read.
#[derive(Clone, Copy, Debug)]
struct WaitingReceive {
    wanted: Wanted,
    receive: u32,
}

/// Messages of one sender to one receiver.
#[derive(Debug)]
struct SenderRecord {
    /// The messages in the order of their sends.
    sent: Vec<u32>,
    /// Tag and message of those that nothing is known to have taken, in the order of their sends.
    untaken: Vec<(u64, u32)>,
    /// The messages without immediate data, by their length modulo [`PLAIN`].
    plain: [u32; PLAIN],
    /// When the receiver was told that the sender is down.
    down: u64,
    /// The receiver disconnected from the sender while its NIC may have held messages, which are
    /// lost.
    is_cut: bool,
    /// One of the two has disconnected from the other.
    is_broken: bool,
    /// The receiver has dropped the waiting messages of the sender, which was down.
    is_forgotten: bool,
    /// Receives from any source that failed together with the sender, because a NIC had matched
    /// them.
    failed_receives: Vec<u32>,
}

impl Default for SenderRecord {
    fn default() -> Self {
        SenderRecord {
            sent: vec![],
            untaken: vec![],
            plain: [NONE; PLAIN],
            down: NEVER,
            is_cut: false,
            is_broken: false,
            is_forgotten: false,
            failed_receives: vec![],
        }
    }
}

/// A worker as a receiver.
#[derive(Debug, Default)]
struct ReceiverRecord {
    /// By sender.
    pairs: Vec<SenderRecord>,
    /// In the order of their posts.
    waiting: Vec<WaitingReceive>,
    dropped: Vec<u32>,
    is_gone: bool,
}

/// The facts that are known of a history.
#[derive(Debug)]
pub(crate) struct Oracle {
    messages: Vec<Message>,
    receives: Vec<Receive>,
    sides: Vec<ReceiverRecord>,
    /// The message of each failure of a READ. Failures count from 1.
    failures: Vec<u32>,
    reference: Option<Reference>,
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Oracle {
    /// `predicts`: software alone decides each match, so that the oracle predicts it.
    pub(crate) fn new(predicts: bool) -> Self {
        let reference = predicts.then(Reference::default);
        Oracle { messages: vec![], receives: vec![], sides: vec![], failures: vec![], reference }
    }

    /// The tag and the mask of a receive.
    pub(crate) fn wanted(&self, receive: u32) -> (u64, u64) {
        let Wanted { tag, mask, .. } = self.receives[receive as usize].wanted;
        (tag, mask)
    }

    pub(crate) fn message(&self, message: u32) -> &Message {
        &self.messages[message as usize]
    }

    /// The message with this number among those that `from` sent to `to`.
    fn sent_as(&self, to: u32, from: u32, ordinal: u32) -> Option<u32> {
        let pair = self.sides.get(to as usize)?.pairs.get(from as usize)?;
        pair.sent.get(ordinal as usize).copied()
    }

    fn pair(&mut self, to: u32, from: u32) -> &mut SenderRecord {
        let pairs = &mut self.side(to).pairs;
        if pairs.len() <= from as usize {
            pairs.resize_with(from as usize + 1, SenderRecord::default);
        }
        &mut pairs[from as usize]
    }

    fn side(&mut self, node: u32) -> &mut ReceiverRecord {
        if self.sides.len() <= node as usize {
            self.sides.resize_with(node as usize + 1, ReceiverRecord::default);
        }
        &mut self.sides[node as usize]
    }

    /// Messages of one sender that nothing is known to have taken.
    pub(crate) fn untaken(&mut self, to: u32, from: u32) -> usize {
        self.pair(to, from).untaken.len()
    }

    /// The number of the next message.
    pub(crate) fn next_message(&self) -> u32 {
        number(self.messages.len())
    }

    /// Whether a message of this length can be told from its sender's others without immediate
    /// data.
    pub(crate) fn may_be_plain(&mut self, to: u32, from: u32, length: u32) -> bool {
        self.pair(to, from).plain[length as usize % PLAIN] == NONE
    }

    /// A send was accepted.
    pub(crate) fn sent(&mut self, sent: SentMessage) {
        let SentMessage { from, to, tag, length, immediate, mode } = sent;
        let id = self.next_message();
        let pair = self.pair(to, from);
        let ordinal = number(pair.sent.len());
        pair.sent.push(id);
        pair.untaken.push((tag, id));
        if !immediate {
            pair.plain[length as usize % PLAIN] = id;
        }
        self.messages.push(Message {
            from,
            to,
            ordinal,
            length,
            tag,
            is_flushed: false,
            immediate,
            mode,
            arrived: NEVER,
            eager: false,
            began: NEVER,
            read_down: false,
            failed: 0,
            taker: Taker::Nobody,
            bound: NEVER,
            floor: 0,
        });
    }

    /// Takes an event of a wire.
    pub(crate) fn note(&mut self, note: &Note) {
        match *note {
            Note::Arrived { at, from, ordinal, eager, tick } => {
                let Some(id) = self.sent_as(at, from, ordinal) else { return };
                let message = &mut self.messages[id as usize];
                message.arrived = message.arrived.min(tick);
                message.eager = eager;
                let tag = message.tag;
                let from = message.from;
                if let Some(reference) = &mut self.reference {
                    reference.arrived(at, id, tag, from);
                }
            }
            Note::Began { at, from, ordinal } => {
                let Some(id) = self.sent_as(at, from, ordinal) else { return };
                let tag = self.messages[id as usize].tag;
                if let Some(reference) = &mut self.reference {
                    reference.began(at, id, tag, from);
                }
            }
            Note::ReadBegan { at, from, ordinal, tick } => {
                if let Some(id) = self.sent_as(at, from, ordinal) {
                    let message = &mut self.messages[id as usize];
                    message.began = message.began.min(tick);
                }
            }
            Note::ReadEnded { at, from, ordinal, outcome } => {
                let id = self.sent_as(at, from, ordinal);
                if let ReadOutcome::Failed(errno) = outcome {
                    self.failures.push(id.unwrap_or(NONE));
                    debug_assert_eq!(errno, i32::try_from(self.failures.len()).unwrap_or(0));
                    if let Some(id) = id {
                        self.messages[id as usize].failed = errno;
                    }
                }
                if let Some(message) = id.map(|id| &mut self.messages[id as usize]) {
                    // A READ that fails ends the queue pair of a NIC.
                    let fails =
                        matches!(outcome, ReadOutcome::Failed(_)) && self.reference.is_none();
                    message.read_down |= fails || outcome == ReadOutcome::PeerDown;
                    if outcome == ReadOutcome::Done {
                        // The NIC's READ had failed, and software then repeated it.
                        message.failed = 0;
                    }
                }
            }
            Note::Broke { .. } => {}
            Note::Down { at, from, tick } => {
                self.pair(at, from).down = tick;
                let Oracle { reference, messages, .. } = self;
                if let Some(reference) = reference {
                    reference.down(at, from, |id| messages[id as usize].eager);
                }
            }
        }
    }

    /// The message that a status names.
    pub(crate) fn identify(&self, at: u32, from: u32, status: &Status) -> Result<u32, Violation> {
        let plain = || {
            let pair = self.sides.get(at as usize)?.pairs.get(from as usize)?;
            let slot = usize::try_from(status.length).ok()? % PLAIN;
            Some(pair.plain[slot]).filter(|&id| id != NONE)
        };
        let id = status.immediate.or_else(plain).unwrap_or(NONE);
        let Some(message) = self.messages.get(id as usize) else {
            let what = format!("n{at}: a message that was never sent: {status:?}");
            return Err(Violation::new(Rule::Mismatch, what));
        };
        let is_of = message.from == from && message.to == at;
        ensure!(is_of, Mismatch, "n{at}: m{id} does not belong here: {status:?} from n{from}");
        self.is_described(id, status)?;
        Ok(id)
    }

    /// Checks that a status describes a message.
    pub(crate) fn is_told(&self, id: u32, from: u32, status: &Status) -> Verdict {
        let is_of = self.messages[id as usize].from == from;
        ensure!(is_of, Status, "m{id} was reported as a message of n{from}");
        self.is_described(id, status)
    }

    /// Checks that the completion of a send describes its message.
    pub(crate) fn is_sent(&self, id: u32, to: u32, status: &Status) -> Verdict {
        let is_to = self.messages[id as usize].to == to && !status.truncated;
        ensure!(is_to, Status, "m{id} was sent to n{to}: {status:?}");
        self.is_described(id, status)
    }

    fn is_described(&self, id: u32, status: &Status) -> Verdict {
        let message = &self.messages[id as usize];
        let immediate = message.immediate.then_some(id);
        let facts = (message.tag, u64::from(message.length), immediate);
        let reported = (status.tag.0, status.length, status.immediate);
        ensure!(facts == reported, Status, "m{id} is {message:?}, but was reported as {status:?}");
        Ok(())
    }

    /// Whether a held message may turn out to be lost.
    pub(crate) fn may_lose(&self, id: u32) -> bool {
        let message = &self.messages[id as usize];
        let pair = &self.sides[message.to as usize].pairs[message.from as usize];
        pair.down != NEVER && !message.eager
    }

    /// A worker that is about to be killed has flushed what it has sent to another.
    pub(crate) fn flushed(&mut self, from: u32, to: u32) {
        for id in self.pair(to, from).sent.clone() {
            self.messages[id as usize].is_flushed = true;
        }
    }

    /// The worker has ended. The oracle checks nothing of it any more.
    pub(crate) fn gone(&mut self, node: u32) {
        let side = self.side(node);
        side.is_gone = true;
        side.waiting.clear();
        if let Some(reference) = &mut self.reference {
            reference.gone(node);
        }
    }

    fn take_off(&mut self, id: u32) {
        let Message { to, from, immediate, length, .. } = self.messages[id as usize];
        let pair = self.pair(to, from);
        if let Ok(at) = pair.untaken.binary_search_by_key(&id, |&(_, id)| id) {
            pair.untaken.remove(at);
        }
        if !immediate {
            pair.plain[length as usize % PLAIN] = NONE;
        }
    }
}

impl Oracle {
    /// Whether the message may stay untaken: it was lost when one of the two workers disconnected,
    /// or its bytes were at a sender that is down.
    fn may_be_missing(&self, id: u32) -> bool {
        let Message { from, to, arrived, eager, is_flushed, .. } = self.messages[id as usize];
        let down = |at: u32, of: u32| {
            let side = self.sides.get(at as usize)?;
            side.pairs.get(of as usize).map(|pair| pair.down)
        };
        let down_at_receiver = down(to, from).unwrap_or(NEVER);
        let is_sender_gone = self.sides.get(from as usize).is_some_and(|side| side.is_gone)
            || down(from, to).is_some_and(|down| down != NEVER);
        let never_left = arrived == NEVER && is_sender_gone;
        let pair = &self.sides[to as usize].pairs[from as usize];
        if is_flushed && !pair.is_broken && arrived == NEVER {
            return false;
        }
        never_left
            || pair.is_cut
            || pair.is_forgotten
            || (down_at_receiver != NEVER && (arrived > down_at_receiver || !eager))
    }

    /// A worker has dropped the waiting messages of a peer. It may do so once the peer is down.
    pub(crate) fn forgotten(&mut self, at: u32, from: u32) -> Verdict {
        let pair = self.pair(at, from);
        ensure!(pair.down != NEVER, Lost, "n{at} drops messages of n{from}, which is up");
        pair.is_forgotten = true;
        if let Some(reference) = &mut self.reference {
            reference.down(at, from, |_| false);
        }
        Ok(())
    }

    /// A worker disconnected from a peer, by itself or because a READ failed.
    pub(crate) fn broke(&mut self, at: u32, with: u32) {
        let is_cut = self.reference.is_none();
        self.pair(at, with).is_cut = is_cut;
        self.pair(at, with).is_broken = true;
        self.pair(with, at).is_broken = true;
    }

    fn checks_done(&self) -> Verdict {
        match &self.reference {
            Some(reference) => reference.is_empty_of_receives(),
            None => Ok(()),
        }
    }
}
