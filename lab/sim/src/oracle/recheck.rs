//! A second check of rules 1 and 2 over a whole history, pair by pair: slower, and written
//! independently.

use super::{Message, Oracle, Receive, ReceiveState, Taker};
use crate::violation::{Verdict, ensure};

impl Oracle {
    /// Checks every two receives of a worker that ended with messages.
    pub(crate) fn recheck(&self) -> Verdict {
        let ended: Vec<(usize, &Receive)> = self
            .receives
            .iter()
            .enumerate()
            .filter(|(_, receive)| {
                receive.state == ReceiveState::Ended
                    && (receive.taken as usize) < self.messages.len()
            })
            .collect();
        for (place, &(second, later)) in ended.iter().enumerate() {
            let message = &self.messages[later.taken as usize];
            for &(first, earlier) in &ended[..place] {
                if earlier.node == later.node {
                    self.in_order((first, earlier), (second, later), message)?;
                }
            }
        }
        Ok(())
    }

    fn in_order(
        &self,
        (first, earlier): (usize, &Receive),
        (second, later): (usize, &Receive),
        message: &Message,
    ) -> Verdict {
        let other = &self.messages[earlier.taken as usize];
        if earlier.wanted.accepts(message.tag, message.from) {
            // The earlier receive matches the later one's message, so it must have been decided
            // before.
            let is_passed = other.from == message.from && other.ordinal > message.ordinal;
            ensure!(
                !is_passed,
                Overtaken,
                "r{first} got m{}, r{second} the older m{}",
                earlier.taken,
                later.taken
            );
            let earliest = earlier.post.max(other.arrived);
            ensure!(
                earliest < message.began,
                PostedOrder,
                "r{first} got m{} at {earliest} or later; r{second}, posted later, had begun to read m{}",
                earlier.taken,
                later.taken
            );
        }
        if self.reference.is_some() && earlier.wanted.accepts(message.tag, message.from) {
            let decided = |receive: &Receive, message: &Message| receive.post.max(message.arrived);
            ensure!(
                decided(earlier, other) < decided(later, message),
                PostedOrder,
                "r{first} matches m{}, which the later r{second} got",
                later.taken
            );
        }
        let is_taken = matches!(message.taker, Taker::Receive(taker) if taker as usize == second);
        ensure!(is_taken, Twice, "m{} was taken by {:?} and r{second}", later.taken, message.taker);
        Ok(())
    }
}
