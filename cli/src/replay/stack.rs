//! A trace run through all of tagmatch: one worker sends its messages over shared memory, the other,
//! whose receives a NIC may match, receives, probes and cancels.
//!
//! Both run on this thread, so that a seed alone decides how far the NIC is behind:
//! 1. Before `cancel`, `probe`, `mprobe`, `mrecv` and `mcancel`, whose outcome depends on when they
//!    are called, all that earlier operations have begun is taken in, and so is a cancel's outcome.
//! 2. Before `msg` and `recv`, the seed says how much of it is left outstanding; without a seed,
//!    nothing is. Which receive gets which message does not depend on it: that follows from the orders
//!    in which both were given.
//! 3. What an operation came to is told by the later one of a match's two. It may be known much
//!    later; so all of it is collected by operation.

use tagmatch::{
    Config, Counters, Error, Failed, HwTags, Match, Message, Peer, Received, Request, SendOptions,
    Sent, Status, Tag, Worker,
};

use super::dice::Dice;
use super::engine::{Event, Script, Step};
use super::lengths::Lengths;
use super::matcher::Left;
use super::requests::Requests;
use crate::failure::Failure;
use crate::payload::{Direction, Stamp};
use crate::trace::{Index, Trace};

/// Rounds of progress without coming to rest after which something is broken. The model's delays are
/// of some hundred polls.
const ROUNDS_MAX: u32 = 1 << 20;

/// What a trace came to.
pub(super) struct Outcome {
    /// By operation.
    pub(super) events: Vec<Option<Event>>,
    pub(super) left: Left,
    /// Of the worker that received.
    pub(super) counters: Counters,
}

/// Runs a trace with a NIC in the receiving worker.
///
/// # Errors
/// A worker could not be made; a request failed; a message came with other bytes, or another envelope
/// than it was sent with; or the NIC broke its rules.
pub(super) fn run(
    trace: &Trace,
    script: &Script,
    nic: HwTags,
    seed: Option<u64>,
) -> Result<Outcome, Failure> {
    let mut stack = Stack::new(trace, script, nic)?;
    let mut pace = seed.map(Pace::new);
    for (at, step) in script.steps.iter().enumerate() {
        let may_wait = matches!(step, Step::Msg { .. } | Step::Recv { .. });
        match &mut pace {
            Some(pace) if may_wait => pace.before(&mut stack)?,
            _ => stack.settle()?,
        }
        stack.step(at, step)?;
    }
    stack.end()
}

/// How much is left outstanding.
struct Pace {
    dice: Dice,
    /// Operations between two rests, about.
    stride: u32,
}

impl Pace {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed ^ 0x7061_6365);
        let stride = 1 << dice.below(9);
        Self { dice, stride }
    }

    fn before(&mut self, stack: &mut Stack<'_>) -> Result<(), Failure> {
        if self.dice.below(self.stride) == 0 {
            return stack.settle();
        }
        for _ in 0..self.dice.below(4) {
            let worker = if self.dice.below(2) == 0 { &stack.receiver } else { &stack.sender };
            worker.progress();
        }
        Ok(())
    }
}

/// A run in progress.
struct Stack<'a> {
    trace: &'a Trace,
    script: &'a Script,
    lengths: Lengths,
    sender: Worker,
    receiver: Worker,
    /// The receiver, as the sender knows it.
    to: Peer,
    sends: Requests<Sent>,
    receives: Requests<Received>,
    held: Vec<Option<Message>>,
    /// By id: the operation that began its message or receive, or received for its matched probe.
    begun_at: Vec<usize>,
    events: Vec<Option<Event>>,
    /// Receives that a cancel has just ended.
    cancelled: Vec<Index>,
    /// What a payload should be.
    wanted: Vec<u8>,
}

impl<'a> Stack<'a> {
    fn new(trace: &'a Trace, script: &'a Script, hw_tags: HwTags) -> Result<Self, Failure> {
        let ids = script.lens.len();
        // Nothing of an application's is ever held up by want of memory here.
        let defaults = Config::default();
        let messages = (2 * ids as u64).max(defaults.unexpected_messages);
        let bytes = (messages * 2).saturating_mul(defaults.eager_max as u64);
        let config = Config {
            unexpected_messages: messages,
            unexpected_bytes: bytes.max(defaults.unexpected_bytes),
            unexpected_peer_percent: 100,
            hw_tags,
            ..defaults
        };
        let sender = Worker::new(Config::default()).map_err(broken)?;
        let receiver = Worker::new(config).map_err(broken)?;
        let to = sender.connect(&receiver.address()).map_err(broken)?;
        let mut stack = Self {
            trace,
            script,
            lengths: Lengths::new(script),
            sender,
            receiver,
            to,
            sends: Requests::new(ids),
            receives: Requests::new(ids),
            held: std::iter::repeat_with(|| None).take(ids).collect(),
            begun_at: vec![0; ids],
            events: vec![None; script.steps.len()],
            cancelled: Vec::new(),
            wanted: Vec::new(),
        };
        stack.greet()?;
        Ok(stack)
    }

    /// Has the workers meet, so that from now on what is sent has come at the next look.
    fn greet(&mut self) -> Result<(), Failure> {
        self.sender.inject(self.to, 0, &[]).map_err(broken)?;
        while self.receiver.mprobe(Match::any()).is_none() {
            self.sender.progress();
            if let Some(fault) = self.sender.peer_fault(self.to) {
                return Err(broken(fault));
            }
        }
        self.settle()
    }

    fn step(&mut self, at: usize, step: &Step) -> Result<(), Failure> {
        match *step {
            Step::Msg { id, tag } => {
                self.begun_at[id.at()] = at;
                let mut payload = vec![0; self.length(id)];
                stamp(id).fill(&mut payload);
                let options = SendOptions { immediate: Some(id.0), ..SendOptions::default() };
                self.sends.add(id, self.sender.send_with(self.to, tag, payload, options));
            }
            Step::Recv { id, ref pattern } => {
                self.begun_at[id.at()] = at;
                let which = Match::masked(pattern.tag(), pattern.mask());
                self.receives.add(id, self.receiver.recv(which, vec![0; self.length(id)]));
            }
            Step::Cancel { recv } => {
                if let Some(request) = self.receives.get_mut(recv) {
                    request.cancel();
                    self.settle()?;
                }
                let cancelled = self.cancelled.pop() == Some(recv);
                let event =
                    if cancelled { Event::Cancelled { recv } } else { Event::Late { recv } };
                self.events[at] = Some(event);
            }
            Step::Probe { ref pattern } => {
                let which = Match::masked(pattern.tag(), pattern.mask());
                let found = self.receiver.probe(which);
                let msg = found.map(|status| self.message(&status)).transpose()?;
                self.events[at] = Some(Event::Probe { msg });
            }
            Step::Mprobe { id, ref pattern } => {
                let which = Match::masked(pattern.tag(), pattern.mask());
                let found = self.receiver.mprobe(which);
                let msg = found.as_ref().map(|found| self.message(&found.status())).transpose()?;
                self.held[id.at()] = found;
                self.events[at] = Some(Event::Mprobe { id, msg });
            }
            Step::Mrecv { mprobe: id, len } => {
                self.begun_at[id.at()] = at;
                match self.held[id.at()].take() {
                    Some(message) => {
                        let buffer = vec![0; self.lengths.bytes(len)];
                        self.receives.add(id, message.recv(buffer));
                    }
                    None => {
                        self.events[at] = Some(Event::Mrecv { id, msg: None, truncated: false });
                    }
                }
            }
            Step::Mcancel { mprobe: id } => {
                let dropped = self.held[id.at()].take();
                let status = dropped.as_ref().map(Message::status);
                let msg = status.map(|status| self.message(&status)).transpose()?;
                self.events[at] = Some(Event::Mcancelled { id, msg });
            }
        }
        Ok(())
    }

    /// Takes in all that was begun, to its end.
    fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..ROUNDS_MAX {
            let events = self.receiver.progress() + self.sender.progress();
            if events == 0 && self.receiver.arm() && self.sender.arm() {
                self.receiver.disarm();
                self.sender.disarm();
                return self.collect();
            }
        }
        Err(Failure::Measurement("the replay does not come to rest".into()))
    }

    /// Notes which requests have ended, and how.
    fn collect(&mut self) -> Result<(), Failure> {
        while let Some((id, result)) = self.sends.next_ended() {
            result.map_err(|failed| self.failed("message", id, &failed))?;
        }
        while let Some((id, result)) = self.receives.next_ended() {
            match result {
                Ok(received) => self.received(id, &received)?,
                Err(Failed { error: Error::Cancelled, .. }) => self.cancelled.push(id),
                Err(failed) => return Err(self.failed("receive", id, &failed)),
            }
        }
        Ok(())
    }

    fn received(&mut self, id: Index, received: &Received) -> Result<(), Failure> {
        let status = received.status;
        let msg = self.message(&status)?;
        self.wanted.clear();
        self.wanted.resize(self.length(msg), 0);
        stamp(msg).fill(&mut self.wanted);
        let fits = self.wanted.len().min(received.buffer.len());
        let is_cut = fits < self.wanted.len();
        if status.truncated != is_cut || received.data() != &self.wanted[..fits] {
            return Err(self.wrong(msg, "came with other bytes than it was sent with"));
        }
        let truncated = status.truncated;
        let at = self.begun_at[id.at()];
        let (at, event) = if let Step::Mrecv { .. } = self.script.steps[at] {
            (at, Event::Mrecv { id, msg: Some(msg), truncated })
        } else {
            let came_at = self.begun_at[msg.at()];
            let unexpected = came_at < at;
            (at.max(came_at), Event::Match { recv: id, msg, truncated, unexpected })
        };
        if self.events[at].replace(event).is_some() {
            return Err(self.wrong(msg, "was matched twice"));
        }
        Ok(())
    }

    /// Which message has this envelope.
    fn message(&self, status: &Status) -> Result<Index, Failure> {
        let msg = status.immediate.map(Index).filter(|msg| msg.at() < self.begun_at.len());
        let Some(msg) = msg else {
            return Err(Failure::Measurement("a message came that nobody sent".into()));
        };
        let is_as_sent = |tag: Tag| status.tag == tag && status.length == self.length(msg) as u64;
        match self.script.steps[self.begun_at[msg.at()]] {
            Step::Msg { id, tag } if id == msg && is_as_sent(tag) => Ok(msg),
            _ => Err(self.wrong(msg, "came with another envelope than it was sent with")),
        }
    }

    /// What is left, and whether all is well.
    fn end(mut self) -> Result<Outcome, Failure> {
        self.settle()?;
        let counters = self.receiver.counters();
        let mut unexpected = Vec::new();
        while let Some(message) = self.receiver.mprobe(Match::any()) {
            unexpected.push(self.message(&message.status())?);
        }
        let posted = self.receives.left();
        for recv in &posted {
            self.receives.get_mut(*recv).into_iter().for_each(Request::cancel);
        }
        self.held.clear();
        self.settle()?;
        if let Some(id) = self.receives.left().first() {
            return Err(self.wrong(*id, "is a receive that never ended"));
        }
        if let Some(id) = self.sends.left().first() {
            return Err(self.wrong(*id, "is a message whose send never ended"));
        }
        if self.cancelled.len() != posted.len() {
            return Err(Failure::Measurement("a message came after the end of the trace".into()));
        }
        let faults = self.receiver.counters().list_faults;
        if faults > 0 {
            let said = format!("{faults} events of the NIC's list that its rules don't allow");
            return Err(Failure::Measurement(said));
        }
        Ok(Outcome { events: self.events, left: (posted, unexpected), counters })
    }

    /// Bytes of a message or of a receive's buffer.
    fn length(&self, id: Index) -> usize {
        self.lengths.bytes(self.script.lens[id.at()])
    }

    fn failed(&self, what: &str, id: Index, failed: &Failed) -> Failure {
        Failure::Measurement(format!("{what} {} failed: {failed}", self.trace.name(id)))
    }

    fn wrong(&self, id: Index, what: &str) -> Failure {
        Failure::Measurement(format!("{} {what}", self.trace.name(id)))
    }
}

/// Says which message a payload belongs to.
fn stamp(msg: Index) -> Stamp {
    Stamp { iteration: msg.0.into(), direction: Direction::Ping, lane: 0 }
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Measurement(format!("the workers of the replay: {error}"))
}
