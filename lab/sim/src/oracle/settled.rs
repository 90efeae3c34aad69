//! Rule 5: what may wait when nothing moves any more, and what may be missing at the end.

use super::{NEVER, NONE, Oracle, ReceiveState, ReceiverRecord, WaitingReceive};
use crate::violation::{Verdict, ensure};

impl Oracle {
    /// Checks the state in which nothing moves any more and every result has been taken.
    pub(crate) fn check_settled(&self) -> Verdict {
        for (node, side) in self.sides.iter().enumerate().filter(|(_, side)| !side.is_gone) {
            for WaitingReceive { wanted, receive } in &side.waiting {
                let pair = side.pairs.get(wanted.source as usize);
                let is_up = pair.is_none_or(|pair| pair.down == NEVER);
                ensure!(is_up, Lost, "n{node}: r{receive} names n{}, which is down", wanted.source);
            }
            for (from, pair) in side.pairs.iter().enumerate() {
                for &(tag, id) in &pair.untaken {
                    let message = &self.messages[id as usize];
                    if message.arrived == NEVER || self.may_be_missing(id) {
                        continue;
                    }
                    let both = side
                        .waiting
                        .iter()
                        .find(|waiting| waiting.wanted.accepts(tag, super::number(from)))
                        .filter(|_| !self.may_have_been_dropped(side, id));
                    let receive = both.map_or(NONE, |waiting| waiting.receive);
                    ensure!(
                        both.is_none(),
                        Unmatched,
                        "n{node}: r{receive} and m{id} match, and both wait"
                    );
                }
            }
        }
        Ok(())
    }

    pub(super) fn may_have_been_dropped(&self, side: &ReceiverRecord, id: u32) -> bool {
        let message = &self.messages[id as usize];
        side.dropped.iter().any(|&receive| {
            self.receives[receive as usize].wanted.accepts(message.tag, message.from)
        })
    }

    /// Checks the end, when all that could be received was received: nothing may be missing.
    pub(crate) fn at_end(&self) -> Verdict {
        self.checks_done()?;
        for (node, side) in self.sides.iter().enumerate().filter(|(_, side)| !side.is_gone) {
            let left = side.waiting.first();
            ensure!(
                left.is_none(),
                Lost,
                "n{node}: r{} never ended",
                left.map_or(NONE, |waiting| waiting.receive)
            );
            let untaken = side.pairs.iter().flat_map(|pair| &pair.untaken);
            let missing: Vec<u32> =
                untaken.map(|&(_, id)| id).filter(|&id| !self.may_be_missing(id)).collect();
            self.are_dropped(side, &missing)?;
            for from in 0..side.pairs.len() {
                self.failed_receives_have_messages(super::number(node), super::number(from))?;
            }
        }
        Ok(())
    }

    /// Checks that each missing message can have gone to a different dropped receive: a matching of
    /// the two sets, found by augmenting paths (the sets are small).
    fn are_dropped(&self, side: &ReceiverRecord, missing: &[u32]) -> Verdict {
        let mut taken_by: Vec<Option<u32>> = vec![None; side.dropped.len()];
        for &id in missing {
            let mut seen = vec![false; side.dropped.len()];
            let found = self.assign(side, id, &mut taken_by, &mut seen);
            let message = &self.messages[id as usize];
            ensure!(found, Lost, "m{id} is missing: {message:?}");
        }
        Ok(())
    }

    fn assign(
        &self,
        side: &ReceiverRecord,
        id: u32,
        taken_by: &mut [Option<u32>],
        seen: &mut [bool],
    ) -> bool {
        let message = &self.messages[id as usize];
        for (index, &receive) in side.dropped.iter().enumerate() {
            let dropped = &self.receives[receive as usize];
            let fits = dropped.state == ReceiveState::Dropped
                && dropped.wanted.accepts(message.tag, message.from)
                && dropped.post < message.bound
                && dropped.post > message.floor;
            if !fits || std::mem::replace(&mut seen[index], true) {
                continue;
            }
            let before = taken_by[index];
            if before.is_none_or(|other| self.assign(side, other, taken_by, seen)) {
                taken_by[index] = Some(id);
                return true;
            }
        }
        false
    }
}
