//! Receives that fail together with the sender of their message: which message that was, nobody says.

use super::{ANY, NEVER, Oracle, Taker};
use crate::violation::{Verdict, ensure};

impl Oracle {
    /// Whether a receive that failed with a peer had been matched to a message of that one, whose READ was
    /// given back; that message is taken then.
    pub(super) fn taken_with_its_sender(&mut self, receive: u32, from: u32) -> bool {
        let wanted = self.receives[receive as usize].wanted;
        let Oracle { messages, reference, .. } = self;
        let Some(reference) = reference else { return false };
        let id = reference.takes(receive);
        let fits = messages.get(id as usize).is_some_and(|message| {
            message.read_down && message.from == from && wanted.accepts(message.tag, from)
        });
        if fits {
            self.messages[id as usize].taker = Taker::Unknown;
            self.take_off(id);
        }
        fits
    }

    /// Whether a NIC may have matched a receive that failed with a peer to a message of that one, so that
    /// each other receive that failed with it still has a message as well.
    pub(super) fn may_be_taken_with_its_sender(&mut self, receive: u32, from: u32) -> bool {
        let node = self.receives[receive as usize].node;
        if self.receives[receive as usize].wanted.source != ANY {
            return self.candidates(receive, from).next().is_some();
        }
        self.pair(node, from).victims.push(receive);
        self.victims_have_messages(node, from).is_ok()
    }

    /// All receives that failed with a peer can have had a message of it, each another: a matching of the
    /// two sets, by augmenting paths (they are small).
    pub(super) fn victims_have_messages(&self, at: u32, from: u32) -> Verdict {
        let pair = &self.sides[at as usize].pairs[from as usize];
        let mut taken_by: Vec<(u32, u32)> = Vec::new();
        for &victim in &pair.victims {
            let found = self.assign_message(victim, from, &mut taken_by, &mut Vec::new());
            ensure!(found, Fault, "r{victim} ended with n{from}, of which it had no message");
        }
        Ok(())
    }

    fn assign_message(
        &self,
        victim: u32,
        from: u32,
        taken_by: &mut Vec<(u32, u32)>,
        seen: &mut Vec<u32>,
    ) -> bool {
        for id in self.candidates(victim, from) {
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let before = taken_by.iter().position(|&(message, _)| message == id);
            match before {
                None => {
                    taken_by.push((id, victim));
                    return true;
                }
                Some(at) => {
                    let other = taken_by[at].1;
                    if self.assign_message(other, from, taken_by, seen) {
                        taken_by[at].1 = victim;
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Messages of the peer that had arrived, that nobody is known to have, and that may have been matched
    /// to the receive.
    fn candidates(&self, receive: u32, from: u32) -> impl Iterator<Item = u32> + '_ {
        let it = self.receives[receive as usize];
        let pair = self.sides[it.node as usize].pairs.get(from as usize);
        let untaken = pair.into_iter().flat_map(|pair| &pair.untaken);
        untaken.map(|&(_, id)| id).filter(move |&id| {
            let message = &self.messages[id as usize];
            message.arrived != NEVER
                && message.arrived < it.deadline
                && it.post < message.bound
                && it.post > message.floor
                && it.wanted.accepts(message.tag, from)
        })
    }
}
