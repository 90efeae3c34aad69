//! Which messages have not left their sender, as far as the oracle knows.

use super::{NEVER, Oracle};

/// How many messages of one worker to another have not left their sender, when nothing moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotLeft {
    /// Messages that have not arrived, and those whose bytes nobody has read.
    pub(crate) known: usize,
    /// Messages whose bytes somebody may have read for a receive that was dropped or has failed.
    pub(crate) unclear: usize,
}

impl Oracle {
    /// `held`: the messages that matched probes of the receiver have taken and nobody has received.
    /// `None` if one of the two has ended, or has broken with the other.
    pub(crate) fn not_left(&self, from: u32, to: u32, held: &[u32]) -> Option<NotLeft> {
        let is_gone = |node: u32| self.sides.get(node as usize).is_some_and(|side| side.is_gone);
        let of = |at: u32, of: u32| self.sides.get(at as usize)?.pairs.get(of as usize);
        let has_ended = |at: u32, other: u32| {
            of(at, other).is_some_and(|pair| pair.is_broken || pair.down != NEVER)
        };
        if is_gone(from) || is_gone(to) || has_ended(from, to) || has_ended(to, from) {
            return None;
        }
        let mut found = NotLeft::default();
        let untaken = of(to, from).into_iter().flat_map(|pair| &pair.untaken).map(|&(_, id)| id);
        let held = held.iter().copied().filter(|id| self.messages[*id as usize].from == from);
        for id in untaken.chain(held) {
            let message = &self.messages[id as usize];
            let was_read = message.began != NEVER || message.failed != 0 || message.read_down;
            if message.arrived != NEVER && message.eager {
                continue;
            }
            if was_read || self.may_have_been_dropped(&self.sides[to as usize], id) {
                found.unclear += 1;
            } else {
                found.known += 1;
            }
        }
        Some(found)
    }
}
