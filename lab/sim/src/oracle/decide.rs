//! Rules 1 to 3: the receive or probe that may get a message.

use super::{
    Message, NEVER, NONE, Oracle, OracleProbe, Receive, ReceiveState, Taker, WaitingReceive,
    Wanted, number,
};
use crate::violation::{Verdict, ensure};

/// A decision that was reported.
#[derive(Clone, Copy, Debug)]
struct OracleDecision {
    wanted: Wanted,
    /// The moment of the post or of the probe.
    post: u64,
    /// The latest moment at which the decision can have been made.
    by: u64,
    message: u32,
}

impl Oracle {
    /// A receive is about to be posted.
    pub(crate) fn posting(&mut self, node: u32, wanted: Wanted, is_sole: bool, now: u64) -> u32 {
        let receive = number(self.receives.len());
        self.receives.push(Receive {
            node,
            wanted,
            is_sole,
            post: now,
            deadline: NEVER,
            cancel: NEVER,
            state: ReceiveState::Waiting,
            taken: NONE,
        });
        self.side(node).waiting.push(WaitingReceive { wanted, receive });
        if let Some(reference) = &mut self.reference {
            reference.post(node, wanted, receive);
        }
        receive
    }

    /// Receives ended with these messages, all reported at `now`. First the consequences of each
    /// are marked, then each is checked against the marks, because receives that ended together
    /// have no order.
    pub(crate) fn received(&mut self, ended: &[(u32, u32)], now: u64) -> Verdict {
        for &(receive, message) in ended {
            let Receive { wanted, post, node, state, .. } = self.receives[receive as usize];
            ensure!(
                state != ReceiveState::Ended,
                Twice,
                "r{receive} ended twice, now with m{message}"
            );
            let Message { tag, from, to, .. } = self.messages[message as usize];
            let fits = node == to && wanted.accepts(tag, from);
            ensure!(fits, Mismatch, "r{receive} got m{message}, which it does not match");
            let by = now.min(self.messages[message as usize].began);
            self.mark(&OracleDecision { wanted, post, by, message });
        }
        for &(receive, message) in ended {
            let Receive { post, deadline, .. } = self.receives[receive as usize];
            let earliest = post.max(self.messages[message as usize].arrived);
            ensure!(
                earliest < deadline,
                PostedOrder,
                "r{receive} got m{message} at {earliest} or later, but at {deadline} a later receive or \
                 probe had found a message that r{receive} matches"
            );
            self.taken(message, Taker::Receive(receive), post)?;
            if let Some(reference) = &self.reference {
                reference.ended(receive, message)?;
            }
            self.receives[receive as usize].taken = message;
            self.end_receive(receive);
        }
        Ok(())
    }

    /// A probe returned.
    pub(crate) fn probed(&mut self, probe: OracleProbe, now: u64) -> Verdict {
        let OracleProbe { node, wanted, found, takes } = probe;
        if let Some(reference) = &mut self.reference {
            let expected =
                if takes { reference.take(node, &wanted) } else { reference.probe(node, &wanted) };
            ensure!(
                expected == found,
                Reference,
                "n{node}: a probe found {found}, but plain lists have {expected} ({NONE}: none)"
            );
        }
        if found == NONE {
            return Ok(());
        }
        let Message { tag, from, taker, .. } = self.messages[found as usize];
        ensure!(wanted.accepts(tag, from), Mismatch, "n{node}: a probe found m{found} wrongly");
        ensure!(taker == Taker::Nobody, Twice, "n{node}: a probe found m{found}, taken before");
        self.mark(&OracleDecision { wanted, post: now, by: now, message: found });
        if takes {
            return self.taken(found, Taker::Probe(now), now);
        }
        self.messages[found as usize].floor = now;
        Ok(())
    }

    /// Marks the decisions that must have been made before this one.
    fn mark(&mut self, decision: &OracleDecision) {
        let OracleDecision { wanted, post, by, message } = *decision;
        let Message { tag, from, to, .. } = self.messages[message as usize];
        let Oracle { sides, messages, receives, .. } = self;
        let side = &sides[to as usize];
        // Rule 2.
        for &(_, earlier) in side.pairs[from as usize]
            .untaken
            .iter()
            .take_while(|&&(_, id)| id < message)
            .filter(|&&(tag, _)| (tag ^ wanted.tag) & wanted.mask == 0)
        {
            let bound = &mut messages[earlier as usize].bound;
            *bound = post.min(*bound);
        }
        // Rule 1.
        for waiting in side.waiting.iter().filter(|waiting| waiting.wanted.accepts(tag, from)) {
            let earlier = &mut receives[waiting.receive as usize];
            if earlier.post < post {
                earlier.deadline = by.min(earlier.deadline);
            }
        }
    }

    /// A receive or probe that was posted at `post` has taken a message.
    fn taken(&mut self, id: u32, taker: Taker, post: u64) -> Verdict {
        let Message { taker: before, bound, floor, .. } = self.messages[id as usize];
        ensure!(before == Taker::Nobody, Twice, "m{id} went to {taker:?} and to {before:?}");
        ensure!(
            post < bound,
            Overtaken,
            "m{id} went to {taker:?}, posted at {post}, but its taker must have been posted before \
             {bound}: a later message of its sender was found then, or its send had ended"
        );
        ensure!(
            post > floor,
            PostedOrder,
            "m{id} went to {taker:?}, posted at {post}, but a probe found it waiting at {floor}"
        );
        self.messages[id as usize].taker = taker;
        self.take_off(id);
        Ok(())
    }

    pub(super) fn end_receive(&mut self, receive: u32) {
        let Receive { node, state, .. } = self.receives[receive as usize];
        let side = &mut self.sides[node as usize];
        if state == ReceiveState::Waiting
            && let Ok(at) = side.waiting.binary_search_by_key(&receive, |waiting| waiting.receive)
        {
            side.waiting.remove(at);
        }
        self.receives[receive as usize].state = ReceiveState::Ended;
    }
}
