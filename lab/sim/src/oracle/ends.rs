//! Rule 4: receives that end without a message, and the ends of sends.

use tagmatch_fallback::SendMode;

use super::{ANY, NEVER, NONE, Oracle, Receive, ReceiveState, Taker};
use crate::program::Mode;
use crate::violation::{Verdict, ensure};

impl Oracle {
    /// A receive was refused: it was never posted.
    pub(crate) fn refused(&mut self, receive: u32) -> Verdict {
        let Receive { node, .. } = self.receives[receive as usize];
        if let Some(reference) = &mut self.reference {
            reference.ended(receive, NONE)?;
            reference.withdraw(node, receive);
        }
        self.end_receive(receive);
        Ok(())
    }

    /// A cancel is about to be asked for.
    pub(crate) fn cancelling(&mut self, receive: u32, now: u64) {
        let line = &mut self.receives[receive as usize];
        line.cancel = line.cancel.min(now);
        if let Some(reference) = &mut self.reference {
            reference.withdraw(line.node, receive);
        }
    }

    /// A receive ended as cancelled.
    pub(crate) fn cancelled(&mut self, receive: u32) -> Verdict {
        let Receive { cancel, deadline, node, .. } = self.receives[receive as usize];
        ensure!(cancel != NEVER, Fault, "r{receive} ended as cancelled, but was not cancelled");
        self.not_posted_after(receive, cancel, deadline)?;
        self.ended_without(receive, node)
    }

    /// A receive ended because the worker was closed.
    pub(crate) fn closed(&mut self, receive: u32) -> Verdict {
        let Receive { node, deadline, .. } = self.receives[receive as usize];
        self.not_posted_after(receive, 0, deadline)?;
        self.ended_without(receive, node)
    }

    fn not_posted_after(&self, receive: u32, gone: u64, deadline: u64) -> Verdict {
        ensure!(
            gone < deadline,
            PostedOrder,
            "r{receive} was posted until {gone} or later, but at {deadline} a later receive or probe \
             had found a message that r{receive} matches"
        );
        Ok(())
    }

    fn ended_without(&mut self, receive: u32, node: u32) -> Verdict {
        ensure!(
            self.receives[receive as usize].state != ReceiveState::Ended,
            Twice,
            "r{receive} ended twice"
        );
        if let Some(reference) = &mut self.reference {
            reference.ended(receive, NONE)?;
            reference.withdraw(node, receive);
        }
        self.end_receive(receive);
        Ok(())
    }

    /// A receive ended because a peer is down.
    pub(crate) fn receive_down(&mut self, receive: u32, from: u32, is_down: bool) -> Verdict {
        let Receive { wanted, deadline, cancel, node, .. } = self.receives[receive as usize];
        let down = self.pair(node, from).down;
        ensure!(
            is_down || down != NEVER,
            Fault,
            "r{receive} ended with n{from}, which is not down"
        );
        ensure!(
            [ANY, from].contains(&wanted.source),
            Fault,
            "r{receive} ended with n{from}, which it does not name"
        );
        let was_matched = if self.reference.is_some() {
            self.taken_with_its_sender(receive, from)
        } else {
            self.may_be_taken_with_its_sender(receive, from)
        };
        if wanted.source == ANY {
            ensure!(was_matched, Fault, "r{receive} names no source, but ended with n{from}");
        } else if !was_matched {
            // A receive that was also cancelled may have left the list because of the cancel.
            let gone = if down == NEVER { 0 } else { down.min(cancel) };
            self.not_posted_after(receive, gone, deadline)?;
        }
        self.end_receive(receive);
        if self.reference.is_none() && was_matched {
            self.receives[receive as usize].state = ReceiveState::Dropped;
            self.side(node).dropped.push(receive);
        }
        Ok(())
    }

    /// A receive with a named source failed because a NIC, which compares tags only, had matched it
    /// with a message of another sender. That message is lost.
    pub(crate) fn wrong_sender(&mut self, receive: u32, named: u32, from: u32) -> Verdict {
        let Receive { wanted, is_sole, node, .. } = self.receives[receive as usize];
        let may_be = is_sole && wanted.source == named && named != from;
        ensure!(
            may_be && self.reference.is_none(),
            Fault,
            "r{receive} failed with a message of n{from}, which no NIC can have matched with it"
        );
        self.end_receive(receive);
        let line = &mut self.receives[receive as usize];
        (line.wanted.source, line.state) = (from, ReceiveState::Dropped);
        self.side(node).dropped.push(receive);
        self.pair(node, from).failed_receives.push(receive);
        self.failed_receives_have_messages(node, from)
    }

    /// The sender of a message was told that it was matched and lost, so no receive has it.
    pub(crate) fn not_taken(&mut self, message: u32) -> Verdict {
        let it = &self.messages[message as usize];
        ensure!(it.arrived != NEVER, TooEarly, "m{message} was lost before it arrived");
        ensure!(it.taker == Taker::Nobody, Twice, "m{message} has a receive, and was lost");
        Ok(())
    }

    /// A receive ended because its READ failed: the failure's number names the message.
    pub(crate) fn read_failed(&mut self, receive: u32, errno: i32, now: u64) -> Verdict {
        let index = usize::try_from(errno).unwrap_or(0).wrapping_sub(1);
        let message = self.failures.get(index).copied().unwrap_or(NONE);
        ensure!(
            message != NONE,
            Fault,
            "r{receive} ended with failure {errno}, which never occurred"
        );
        self.received(&[(receive, message)], now)
    }

    /// The message of a matched probe was received, and its READ failed.
    pub(crate) fn message_failed(&self, message: u32, errno: i32) -> Verdict {
        let failed = self.messages[message as usize].failed;
        ensure!(
            failed == errno && errno > 0,
            Fault,
            "m{message} ended with failure {errno}, but its READ had failure {failed}"
        );
        Ok(())
    }

    /// A request was dropped while it was not known to be over.
    pub(crate) fn dropped(&mut self, receive: u32) {
        let Receive { node, .. } = self.receives[receive as usize];
        self.end_receive(receive);
        let line = &mut self.receives[receive as usize];
        line.state = ReceiveState::Dropped;
        if line.is_sole && self.reference.is_none() {
            // A NIC may have matched it with a message of any sender.
            line.wanted.source = ANY;
        }
        self.side(node).dropped.push(receive);
        if let Some(reference) = &mut self.reference {
            reference.withdraw(node, receive);
        }
    }

    /// A send ended with success.
    pub(crate) fn send_done(&mut self, message: u32, now: u64) -> Verdict {
        let it = &mut self.messages[message as usize];
        let waits = matches!(it.mode, Mode::Send(SendMode::Synchronous | SendMode::Delivered));
        if !waits {
            return Ok(());
        }
        ensure!(it.failed == 0, TooEarly, "the send of m{message} succeeded, but its READ failed");
        match it.taker {
            Taker::Nobody => it.bound = it.bound.min(now),
            Taker::Receive(_) | Taker::Probe(_) | Taker::Unknown => {}
        }
        ensure!(it.arrived < now, TooEarly, "the send of m{message} ended before it arrived");
        Ok(())
    }
}
