//! Receives that fail together with the sender of their message. The completion doesn't name the
//! message.

use super::{ANY, NEVER, Oracle, Taker};
use crate::violation::{Verdict, ensure};

impl Oracle {
    /// Whether a receive that failed with a peer had been matched with a message of this peer whose
    /// READ failed. If so, the message counts as taken.
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

    /// Whether a NIC may have matched a receive that failed with a peer with a message of this
    /// peer, while each other receive that failed with the peer still has a message of its own.
    pub(super) fn may_be_taken_with_its_sender(&mut self, receive: u32, from: u32) -> bool {
        let node = self.receives[receive as usize].node;
        if self.receives[receive as usize].wanted.source != ANY {
            return self.candidates(receive, from).next().is_some();
        }
        self.pair(node, from).failed_receives.push(receive);
        self.failed_receives_have_messages(node, from).is_ok()
    }

    /// Checks that each receive that failed with a peer can have had a different message of the
    /// peer: a matching of the two sets, found by augmenting paths (the sets are small).
    pub(super) fn failed_receives_have_messages(&self, at: u32, from: u32) -> Verdict {
        let pair = &self.sides[at as usize].pairs[from as usize];
        let mut taken_by: Vec<(u32, u32)> = Vec::new();
        for &failed in &pair.failed_receives {
            let found = self.assign_message(failed, from, &mut taken_by, &mut Vec::new());
            ensure!(
                found,
                Fault,
                "r{failed} failed with n{from}, but can have had no message of it"
            );
        }
        Ok(())
    }

    fn assign_message(
        &self,
        failed: u32,
        from: u32,
        taken_by: &mut Vec<(u32, u32)>,
        seen: &mut Vec<u32>,
    ) -> bool {
        for id in self.candidates(failed, from) {
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let before = taken_by.iter().position(|&(message, _)| message == id);
            match before {
                None => {
                    taken_by.push((id, failed));
                    return true;
                }
                Some(at) => {
                    let other = taken_by[at].1;
                    if self.assign_message(other, from, taken_by, seen) {
                        taken_by[at].1 = failed;
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Messages of the peer that have arrived, are not known to be taken, and may have been matched
    /// with the receive.
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
