//! Connections that are lost between processes that live.
//!
//! A process has *lost* another one if its transport reports that one as down. It can't tell a
//! death from a lost connection. After a death every transport reports the dead process in the end.
//! If both processes live, one of the two has to go: otherwise a third process may wait for ever
//! for a message that one of them can't send to the other. These rules decide which one goes:
//!
//! 1. A process that has lost another one of its job asks a third process whether the lost one
//!    lives. The third process says "no" if it has lost that one, too. If not, it calls the lost
//!    process. It says "yes" when the call is answered, and "no" when it loses the called process.
//!    Nobody is asked about a process that has left in order, until the asking process takes part
//!    in an agreement.
//! 2. After a "yes", the process asks all others that it has not lost. If more of them say "yes"
//!    than "no", the lost process lives, and the asking process *counts itself out*: it gives up
//!    all other processes, whose transports report that, and all its operations end with
//!    [`Error::CountedOut`](crate::Error::CountedOut).
//! 3. If two processes have lost each other, the lower one learns of that by a call on behalf of
//!    the higher one. It ends its own questions then, stays, and answers. The higher one answers no
//!    call on behalf of the lower one until it has decided to stay. So one of the two goes, and not
//!    both: a lower one that goes has answered no call of the higher one, so the higher one hears
//!    "no".
//! 4. A process that lacks what a connection needs, or has no way to another process
//!    (`Net::failure`), counts itself out at once.
//!
//! A process that falsely says that another one is dead changes nothing: no process believes in a
//! death before its own transport has reported it (`service`). After a death each survivor asks one
//! question. Every question ends: the asked process answers or is lost, and so does the called one.
//!
//! One of two processes goes if their connection alone is lost: every other process reaches both,
//! and says "yes" about each. Nobody goes after a death: the dead process answers no call, since
//! every call is made after a process has lost it. A false "yes" changes nothing unless more than
//! half of the asked processes give one.
//!
//! Limits: if several connections are lost at the same time, the processes that reach a lost one
//! may be no more than those that don't. Then nobody goes, as if there had been a death on each
//! side. A job of two has no third process. A process that is stopped delays the answers that it
//! owes. A hostile process that was asked can withhold its answer, or make a lower process stay by
//! a call that nobody asked for. One that leaves a single other process in order delays the
//! questions about it until that process takes part in an agreement.

use std::collections::{BTreeMap, BTreeSet};

use crate::net::ProcessId;

/// A message about a process that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The sender has lost this process. Does it live?
    Asked(ProcessId),
    /// This process has lost the receiver. Does the receiver live?
    Called(ProcessId),
    /// The answer to a call on behalf of this process: the sender lives.
    Answered(ProcessId),
    /// The answer to a question about a process.
    Said { about: ProcessId, lives: bool },
}

/// The questions of this process about one that it has lost.
#[derive(Debug, Default)]
struct Inquiry {
    /// By process that was asked: what it has said.
    said: BTreeMap<ProcessId, Option<bool>>,
    /// Whether all were asked.
    is_full: bool,
}

/// The questions and calls of one process that have not ended.
#[derive(Debug)]
pub(super) struct Doubts {
    own: ProcessId,
    /// Number of processes of the job. Only these are asked, and asked about.
    size: u32,
    lost: BTreeSet<ProcessId>,
    /// Lost processes that have left in order, and that nobody was asked about.
    left: Vec<ProcessId>,
    inquiries: BTreeMap<ProcessId, Inquiry>,
    /// Questions that this process has yet to answer: who asks, and about whom.
    asked: BTreeSet<(ProcessId, ProcessId)>,
    /// Calls that this process answers if it stays: who calls, and on whose behalf.
    called: BTreeSet<(ProcessId, ProcessId)>,
    out: Vec<(ProcessId, Doubt)>,
    goes_for: Option<ProcessId>,
}

impl Doubts {
    pub(super) fn new(own: ProcessId, size: u32) -> Self {
        Doubts {
            own,
            size,
            lost: BTreeSet::new(),
            left: Vec::new(),
            inquiries: BTreeMap::new(),
            asked: BTreeSet::new(),
            called: BTreeSet::new(),
            out: Vec::new(),
            goes_for: None,
        }
    }

    /// Takes the messages to send, each with its receiver.
    pub(super) fn take_messages(&mut self) -> Vec<(ProcessId, Doubt)> {
        std::mem::take(&mut self.out)
    }

    /// A process that lives and that this one has lost, if this one has to count itself out.
    pub(super) fn goes_for(&self) -> Option<ProcessId> {
        self.goes_for
    }

    /// The transport has reported that a process is down. `has_left`: the process has left in
    /// order. Nobody is asked about it before [`Doubts::ask_about_left`].
    pub(super) fn lose(&mut self, process: ProcessId, has_left: bool) {
        let is_over = self.goes_for.is_some();
        if is_over || process.0 >= self.size || process == self.own || !self.lost.insert(process) {
            return;
        }
        let about: Vec<_> = self.asked.iter().filter(|(_, about)| *about == process).collect();
        let no = Doubt::Said { about: process, lives: false };
        self.out.extend(about.into_iter().map(|(from, _)| (*from, no)));
        self.asked.retain(|(from, about)| *from != process && *about != process);
        self.called.retain(|(from, _)| *from != process);
        for about in self.inquiries.keys().copied().collect::<Vec<_>>() {
            if let Some(inquiry) = self.inquiries.get_mut(&about) {
                inquiry.said.remove(&process);
            }
            self.go_on(about);
        }
        if has_left {
            self.left.push(process);
        } else {
            self.inquire(process);
        }
    }

    /// Asks about the processes that have left in order, too: they may have left this one alone.
    pub(super) fn ask_about_left(&mut self) {
        for process in std::mem::take(&mut self.left) {
            self.inquire(process);
        }
    }

    fn inquire(&mut self, about: ProcessId) {
        self.inquiries.insert(about, Inquiry::default());
        self.go_on(about);
    }

    /// Takes in a message.
    pub(super) fn hear(&mut self, from: ProcessId, doubt: Doubt) {
        if self.goes_for.is_some() || from.0 >= self.size || self.lost.contains(&from) {
            return;
        }
        match doubt {
            Doubt::Asked(about) if about.0 >= self.size || about == self.own || about == from => {}
            Doubt::Asked(about) if self.lost.contains(&about) => {
                self.out.push((from, Doubt::Said { about, lives: false }));
            }
            Doubt::Asked(about) => {
                if self.asked.insert((from, about)) {
                    self.out.push((about, Doubt::Called(from)));
                }
            }
            Doubt::Called(caller) if self.own > caller && self.inquiries.contains_key(&caller) => {
                self.called.insert((from, caller));
            }
            Doubt::Called(caller) => {
                if self.own < caller {
                    self.inquiries.remove(&caller);
                }
                self.out.push((from, Doubt::Answered(caller)));
            }
            Doubt::Answered(caller) => {
                if self.asked.remove(&(caller, from)) {
                    self.out.push((caller, Doubt::Said { about: from, lives: true }));
                }
            }
            Doubt::Said { about, lives } => {
                let inquiry = self.inquiries.get_mut(&about);
                if let Some(said) = inquiry.and_then(|inquiry| inquiry.said.get_mut(&from)) {
                    said.get_or_insert(lives);
                    self.go_on(about);
                }
            }
        }
    }

    /// The processes that can be asked about another one, beginning behind this one.
    fn others(&self, about: ProcessId) -> impl Iterator<Item = ProcessId> {
        let own = u64::from(self.own.0);
        let size = u64::from(self.size);
        let behind = (1..size).filter_map(move |by| u32::try_from((own + by) % size).ok());
        let is_other = move |process: &ProcessId| *process != about && !self.lost.contains(process);
        behind.map(ProcessId).filter(is_other)
    }

    /// Asks, or decides, as far as that can be done now.
    fn go_on(&mut self, about: ProcessId) {
        let Some(mut inquiry) = self.inquiries.remove(&about) else { return };
        if inquiry.said.values().any(Option::is_none) {
            self.inquiries.insert(about, inquiry);
            return;
        }
        let count = |lives| inquiry.said.values().filter(|said| **said == Some(lives)).count();
        let yes = count(true);
        let no = count(false);
        let next: Vec<ProcessId> = match inquiry.said.len() {
            0 if !inquiry.is_full => self.others(about).take(1).collect(),
            _ if yes > 0 && !inquiry.is_full => {
                inquiry.is_full = true;
                self.others(about).filter(|other| !inquiry.said.contains_key(other)).collect()
            }
            _ => Vec::new(),
        };
        if !next.is_empty() {
            self.out.extend(next.iter().map(|other| (*other, Doubt::Asked(about))));
            inquiry.said.extend(next.into_iter().map(|other| (other, None)));
            self.inquiries.insert(about, inquiry);
        } else if yes > no {
            self.goes_for.get_or_insert(about);
        } else {
            // This process stays, and says so to those that have called it.
            let is_about = |(_, caller): &(ProcessId, ProcessId)| *caller == about;
            let (calls, others): (BTreeSet<_>, _) =
                self.called.iter().partition(|call| is_about(call));
            self.called = others;
            self.out.extend(calls.into_iter().map(|(to, caller)| (to, Doubt::Answered(caller))));
        }
    }
}

#[cfg(test)]
mod tests;
