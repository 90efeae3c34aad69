//! Messages between two processes that have no communicator in common: how groups meet at ports.
//!
//! A process opens *mailboxes*. It uses no number twice, so a late message is never taken for a
//! message to a later mailbox. A *port* queues calls of any process; a *line* queues the messages
//! of one other process. The messages (*letters*) are sent like those about failures
//! (`ft/service.rs`): every process that makes progress answers them.
//!
//! 1. A caller opens a line, and calls a port. An open port queues the call.
//! 2. A process that accepts takes the oldest call, opens a line to the caller, and sends the first
//!    message. So the caller learns the number of the other line. Messages that the caller sends
//!    before that are kept until then.
//! 3. A message to a mailbox that is not open is answered with *over*. A port that closes sends
//!    *over* to each caller in its queue; a line that closes sends it to its other end. So no
//!    process waits for one that has given up, and a call that was given up leaves the queue.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::net::{ProcessId, Sleeper};

/// Most calls in a port's queue. A further call is answered with *over*.
const CALLS_MAX: usize = 4096;
/// Most messages in a line's queue: more than a process sends before it waits for answers.
const SAID_MAX: usize = 4;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    /// Number of the receiver's mailbox.
    pub(crate) to: u64,
    /// Number of the sender's mailbox.
    pub(crate) from: u64,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Call,
    Said(Vec<u8>),
    Over,
}

/// The mailboxes of one process.
#[derive(Default)]
pub(crate) struct Mailboxes {
    state: Mutex<MailboxState>,
    /// Whether there are letters to send. Each turn of progress reads it.
    has_outgoing: AtomicBool,
    /// Wakes the threads of the process that sleep.
    sleeper: Option<Arc<dyn Sleeper>>,
}

#[derive(Debug, Default)]
struct MailboxState {
    /// Number of mailboxes that were opened.
    opened: u64,
    open: HashMap<u64, Mailbox>,
    /// Letters that have yet to be sent.
    outgoing: Vec<(ProcessId, Letter)>,
}

#[derive(Debug)]
enum Mailbox {
    Port {
        calls: VecDeque<(ProcessId, u64)>,
        /// The processes whose calls have left the queue, since they have given up: at most as many
        /// as this process knows. The accepting side looks at their settings.
        withdrawn: BTreeSet<ProcessId>,
    },
    Line(MailboxLine),
}

#[derive(Debug)]
struct MailboxLine {
    with: ProcessId,
    other: Other,
    said: VecDeque<Vec<u8>>,
    is_over: bool,
}

/// The other end of a line.
#[derive(Debug)]
enum Other {
    /// A port that has not answered the call yet, and the messages to send once it has.
    Port(u64, Vec<Vec<u8>>),
    Line(u64),
}

impl Other {
    fn number(&self) -> u64 {
        let (Other::Port(number, _) | Other::Line(number)) = self;
        *number
    }
}

impl Mailboxes {
    pub(crate) fn new(sleeper: Option<Arc<dyn Sleeper>>) -> Self {
        Mailboxes { sleeper, ..Mailboxes::default() }
    }

    fn with<R>(&self, change: impl FnOnce(&mut MailboxState) -> R) -> R {
        // Only a failed allocation can panic while the lock is held.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        self.has_outgoing.store(!state.outgoing.is_empty(), Ordering::Release);
        result
    }

    fn open(self: &Arc<Self>, mailbox: Mailbox) -> Opened {
        let number = self.with(|MailboxState { opened, open, .. }| {
            let number = *opened;
            *opened += 1;
            open.insert(number, mailbox);
            number
        });
        Opened { number, mailboxes: Arc::clone(self) }
    }

    fn open_line(self: &Arc<Self>, with: ProcessId, other: Other) -> Opened {
        let line = MailboxLine { with, other, said: VecDeque::new(), is_over: false };
        self.open(Mailbox::Line(line))
    }

    pub(crate) fn open_port(self: &Arc<Self>) -> Opened {
        self.open(Mailbox::Port { calls: VecDeque::new(), withdrawn: BTreeSet::new() })
    }

    /// Opens a line to a port. The first message calls the port.
    pub(crate) fn call(self: &Arc<Self>, process: ProcessId, port: u64) -> Opened {
        self.open_line(process, Other::Port(port, Vec::new()))
    }

    /// Takes in a letter of another process.
    pub(crate) fn hear(&self, from: ProcessId, letter: Letter) {
        self.with(|state| state.hear(from, letter));
    }

    /// The error that mailboxes are open, once nothing holds one any more.
    pub(crate) fn audit(&self) -> Option<String> {
        let open = self.with(|state| state.open.len());
        (open > 0).then(|| format!("{open} mailboxes are open"))
    }

    /// Letters that have yet to be sent, in their order.
    pub(crate) fn take_outgoing(&self) -> Vec<(ProcessId, Letter)> {
        if !self.has_outgoing.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.with(|state| std::mem::take(&mut state.outgoing))
    }
}

impl MailboxState {
    fn hear(&mut self, from: ProcessId, Letter { to, from: back, body }: Letter) {
        let MailboxState { open, outgoing, .. } = self;
        match (open.get_mut(&to), body) {
            (Some(Mailbox::Port { calls, .. }), Body::Call) if calls.len() < CALLS_MAX => {
                calls.push_back((from, back));
            }
            (Some(Mailbox::Port { calls, withdrawn }), Body::Over) => {
                let before = calls.len();
                calls.retain(|call| *call != (from, back));
                if calls.len() < before {
                    withdrawn.insert(from);
                }
            }
            (Some(Mailbox::Line(line)), Body::Said(bytes)) if line.takes(from, back) => {
                line.said.push_back(bytes);
                if let Other::Port(_, kept) = &mut line.other {
                    let letter =
                        |bytes| (from, Letter { to: back, from: to, body: Body::Said(bytes) });
                    outgoing.extend(kept.drain(..).map(letter));
                    line.other = Other::Line(back);
                }
            }
            (Some(Mailbox::Line(line)), Body::Over)
                if line.with == from && line.other.number() == back =>
            {
                line.is_over = true;
            }
            (_, Body::Over) => {}
            (_, Body::Call | Body::Said(_)) => {
                outgoing.push((from, Letter { to: back, from: to, body: Body::Over }));
            }
        }
    }
}

impl MailboxLine {
    /// Whether it queues messages of this mailbox of this process.
    fn takes(&self, from: ProcessId, number: u64) -> bool {
        let is_other = match self.other {
            Other::Port(..) => true,
            Other::Line(other) => other == number,
        };
        self.with == from && is_other && self.said.len() < SAID_MAX
    }

    /// Whether the other process may know this mailbox.
    fn was_used(&self) -> bool {
        !matches!(&self.other, Other::Port(_, kept) if kept.is_empty())
    }
}

/// An open mailbox. It is closed when this is dropped.
pub(crate) struct Opened {
    number: u64,
    mailboxes: Arc<Mailboxes>,
}

impl Opened {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Of a port: takes the oldest call, and opens a line to the caller. Returns the caller, too.
    pub(crate) fn answer(&self) -> Option<(ProcessId, Opened)> {
        let (process, line) =
            self.mailboxes.with(|state| match state.open.get_mut(&self.number) {
                Some(Mailbox::Port { calls, .. }) => calls.pop_front(),
                _ => None,
            })?;
        Some((process, self.mailboxes.open_line(process, Other::Line(line))))
    }

    /// Of a port: takes the processes that have called and then given up.
    pub(crate) fn take_withdrawn(&self) -> BTreeSet<ProcessId> {
        self.mailboxes.with(|state| match state.open.get_mut(&self.number) {
            Some(Mailbox::Port { withdrawn, .. }) => std::mem::take(withdrawn),
            _ => BTreeSet::new(),
        })
    }

    /// Of a line: sends a message, or calls and keeps it until the call is answered.
    pub(crate) fn say(&self, bytes: &[u8]) {
        self.mailboxes.with(|MailboxState { open, outgoing, .. }| {
            let Some(Mailbox::Line(line)) = open.get_mut(&self.number) else { return };
            match &mut line.other {
                Other::Port(port, kept) => {
                    if kept.is_empty() {
                        let call = Letter { to: *port, from: self.number, body: Body::Call };
                        outgoing.push((line.with, call));
                    }
                    kept.push(bytes.to_vec());
                }
                Other::Line(to) => {
                    let body = Body::Said(bytes.to_vec());
                    outgoing.push((line.with, Letter { to: *to, from: self.number, body }));
                }
            }
        });
    }

    /// Of a line: whether the other process has sent a message. Until then no message to it has
    /// left.
    pub(crate) fn is_answered(&self) -> bool {
        self.mailboxes.with(|state| {
            let mailbox = state.open.get(&self.number);
            matches!(mailbox, Some(Mailbox::Line(MailboxLine { other: Other::Line(_), .. })))
        })
    }

    /// Of a line: the next message of the other process; an error if there will be none.
    pub(crate) fn listen(&self) -> Option<Result<Vec<u8>, Closed>> {
        self.mailboxes.with(|state| match state.open.get_mut(&self.number) {
            Some(Mailbox::Line(line)) => {
                let next = line.said.pop_front().map(Ok);
                next.or(line.is_over.then_some(Err(Closed)))
            }
            _ => Some(Err(Closed)),
        })
    }
}

/// The other process has closed its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl Drop for Opened {
    fn drop(&mut self) {
        let Opened { number, mailboxes } = self;
        let over = |to| Letter { to, from: *number, body: Body::Over };
        let is_said = mailboxes.with(|MailboxState { open, outgoing, .. }| {
            match open.remove(number) {
                Some(Mailbox::Port { calls, .. }) => {
                    outgoing.extend(calls.into_iter().map(|(process, line)| (process, over(line))));
                }
                Some(Mailbox::Line(line)) if !line.is_over && line.was_used() => {
                    outgoing.push((line.with, over(line.other.number())));
                }
                _ => {}
            }
            !outgoing.is_empty()
        });
        if !is_said {
            return;
        }
        // The thread that is woken sends them.
        if let Some(sleeper) = &mailboxes.sleeper {
            sleeper.ring();
        }
    }
}

impl fmt::Debug for Mailboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|state| fmt::Debug::fmt(state, f))
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Opened").field(&self.number).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    /// Counts the rings.
    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Sleeper for Bell {
        fn sleep(&self, _: Duration) {}

        fn ring(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    const A: ProcessId = ProcessId(0);
    const B: ProcessId = ProcessId(1);

    /// Carries the letters of each side to the other, until there are none.
    fn deliver(a: &Mailboxes, b: &Mailboxes) -> usize {
        let mut count = 0;
        loop {
            let to_b = a.take_outgoing();
            let to_a = b.take_outgoing();
            if to_b.is_empty() && to_a.is_empty() {
                return count;
            }
            count += to_a.len() + to_b.len();
            for (to, letter) in to_b {
                assert_eq!(to, B);
                b.hear(A, letter);
            }
            for (to, letter) in to_a {
                assert_eq!(to, A);
                a.hear(B, letter);
            }
        }
    }

    fn both() -> [Arc<Mailboxes>; 2] {
        [(); 2].map(|()| Arc::new(Mailboxes::new(None)))
    }

    fn call(b: &Arc<Mailboxes>, port: u64) -> Opened {
        let line = b.call(A, port);
        line.say(b"caller");
        line
    }

    #[test]
    fn both_ends_of_a_line_receive_messages_and_its_end() {
        let [a, b] = both();
        let port = a.open_port();
        let caller = call(&b, port.number());
        deliver(&a, &b);
        let (process, line) = port.answer().unwrap();
        assert_eq!((process, line.listen()), (B, None));
        assert!(port.answer().is_none());
        line.say(b"port");
        deliver(&a, &b);
        assert_eq!(caller.listen(), Some(Ok(b"port".to_vec())));
        assert_eq!(line.listen(), Some(Ok(b"caller".to_vec())));
        line.say(b"last");
        drop((line, port));
        deliver(&a, &b);
        assert_eq!(caller.listen(), Some(Ok(b"last".to_vec())));
        assert_eq!(caller.listen(), Some(Err(Closed)));
        drop(caller);
        // A line that sends no message has not called.
        drop(b.call(A, 0));
        assert_eq!(deliver(&a, &b), 0);
        assert!(a.with(|a| a.open.is_empty()) && b.with(|b| b.open.is_empty()));
    }

    #[test]
    fn a_call_to_a_closed_port_is_over_whenever_the_port_closed() {
        let [a, b] = both();
        let port = a.open_port();
        let queued = call(&b, port.number());
        deliver(&a, &b);
        let number = port.number();
        drop(port);
        let later = a.open_port();
        let late = call(&b, number);
        deliver(&a, &b);
        assert_eq!([queued.listen(), late.listen()], [Some(Err(Closed)), Some(Err(Closed))]);
        assert!(later.number() != number && later.answer().is_none());
    }

    #[test]
    fn a_call_that_was_given_up_is_not_accepted() {
        let [a, b] = both();
        let port = a.open_port();
        let early = call(&b, port.number());
        let late = call(&b, port.number());
        deliver(&a, &b);
        drop(early);
        deliver(&a, &b);
        assert_eq!((port.take_withdrawn(), port.take_withdrawn()), ([B].into(), [].into()));
        let (_, line) = port.answer().unwrap();
        assert!(port.answer().is_none());
        // A call that is given up while it is being accepted.
        drop(late);
        line.say(b"port");
        deliver(&a, &b);
        assert_eq!(line.listen(), Some(Err(Closed)));
    }

    #[test]
    fn a_line_takes_few_messages_and_only_of_its_other_end() {
        let [a, b] = both();
        let port = a.open_port();
        let caller = call(&b, port.number());
        deliver(&a, &b);
        let (_, line) = port.answer().unwrap();
        let letter = |to: &Opened, from, body| Letter { to: to.number(), from, body };
        a.hear(ProcessId(2), letter(&line, caller.number(), Body::Said(vec![1])));
        a.hear(ProcessId(2), letter(&line, caller.number(), Body::Over));
        a.hear(B, letter(&line, caller.number() + 1, Body::Said(vec![2])));
        a.hear(B, letter(&line, caller.number() + 1, Body::Over));
        a.hear(B, letter(&line, 7, Body::Call));
        assert_eq!((line.listen(), a.take_outgoing().len()), (None, 3));
        for _ in 0..2 * SAID_MAX {
            a.hear(B, letter(&line, caller.number(), Body::Said(vec![3])));
        }
        assert_eq!(std::iter::from_fn(|| line.listen()).count(), SAID_MAX);
        for number in 0..2 * CALLS_MAX as u64 {
            a.hear(B, letter(&port, number, Body::Call));
        }
        assert_eq!(std::iter::from_fn(|| port.answer()).count(), CALLS_MAX);
        assert_eq!(a.take_outgoing().len(), SAID_MAX + CALLS_MAX + CALLS_MAX);
    }

    #[test]
    fn a_mailbox_that_closes_wakes_a_thread_if_there_is_a_letter_to_send() {
        let bell = Arc::new(Bell::default());
        let rings = || bell.0.swap(0, Ordering::SeqCst);
        let a = Arc::new(Mailboxes::new(Some(bell.clone())));
        let b = Arc::new(Mailboxes::new(None));
        let ports = [(); 2].map(|()| a.open_port());
        let callers = ports.each_ref().map(|port| call(&b, port.number()));
        deliver(&a, &b);
        drop(a.open_port());
        assert_eq!(rings(), 0, "nobody has called");
        let [accepts, closes] = ports;
        let (_, line) = accepts.answer().unwrap();
        line.say(b"port");
        deliver(&a, &b);
        drop(closes);
        assert_eq!(rings(), 1, "a call waits in the port");
        deliver(&a, &b);
        drop(line);
        assert_eq!(rings(), 1, "the other end of the line is open");
        deliver(&a, &b);
        drop(callers);
        assert_eq!(deliver(&a, &b), 0);
    }
}
