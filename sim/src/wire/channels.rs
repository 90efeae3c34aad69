//! Messages in transit, and the credit that they use.

use tagmatch_fallback::CreditConfig;

use super::ledger::{self, Account};
use super::net::{Frame, LinkState, Net, UNTAGGED, number};
use super::wire_fault::WireFault;
use crate::violation::{Verdict, ensure};

impl Net {
    /// Whether the channel is full. Some sends are refused as if it were.
    pub(super) fn is_full(&mut self, to: u32, back: u32) -> bool {
        let waiting = self.nodes[to as usize].peers[back as usize].inbox.len();
        waiting >= self.config.capacity as usize
            || (!self.hurry && self.random.per_mille(self.config.refused_per_mille))
    }

    /// Sends a message. `tagged` is `None` for a message without a tag, and otherwise whether it is
    /// eager.
    pub(super) fn put(
        &mut self,
        from: u32,
        peer: u32,
        parts: [&[u8]; 2],
        immediate: Option<u32>,
        tagged: Option<bool>,
    ) {
        let delay = self.delay();
        let ready = self.clock + delay;
        let end = &mut self.nodes[from as usize].peers[peer as usize];
        let (to, back) = (end.node, end.back);
        let mut ordinal = UNTAGGED;
        if tagged.is_some() {
            ordinal = end.tagged_sent;
            end.tagged_sent += 1;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let eager = tagged == Some(true);
        if tagged.is_some() {
            let theirs = &mut self.nodes[to as usize].peers[back as usize];
            theirs.account.spend(eager, bytes.len());
        } else {
            self.nodes[from as usize].peers[peer as usize].account.granted_by(&bytes);
        }
        self.nodes[to as usize].peers[back as usize].put += 1;
        let frame = Frame { bytes, immediate, ready, ordinal, eager };
        match self.wire_fault {
            Some(wire_fault) if tagged.is_some() && self.random.per_mille(30) => {
                self.put_broken(to, back, frame, wire_fault);
            }
            _ => self.nodes[to as usize].peers[back as usize].inbox.push_back(frame),
        }
    }

    fn put_broken(&mut self, to: u32, back: u32, mut frame: Frame, wire_fault: WireFault) {
        let at = self.random.below_u32(number(frame.bytes.len()).saturating_sub(16)) as usize + 16;
        let inbox = &mut self.nodes[to as usize].peers[back as usize].inbox;
        match wire_fault {
            WireFault::Drop => return,
            WireFault::Duplicate => inbox.push_back(Frame { bytes: frame.bytes.clone(), ..frame }),
            WireFault::Reorder => {
                let before = inbox.back().is_some_and(|last| last.ordinal != UNTAGGED);
                inbox.insert(inbox.len() - usize::from(before), frame);
                return;
            }
            WireFault::Corrupt if frame.eager && frame.bytes.len() > 16 => frame.bytes[at] ^= 0x10,
            WireFault::Immediate if frame.eager => {
                frame.immediate = frame.immediate.map(|immediate| immediate ^ 1);
            }
            WireFault::Tag => frame.bytes[15] ^= 1,
            _ => {}
        }
        inbox.push_back(frame);
    }
}

/// Checks of credit.
impl Net {
    /// Checks that all grants of a worker are within its pool. `held_bytes` is what its unexpected
    /// messages occupy. `is_idle` says that no message waits, so all credit must have been granted
    /// again.
    pub(crate) fn audit(
        &self,
        at: u32,
        held_bytes: u64,
        is_idle: bool,
        config: &CreditConfig,
    ) -> Verdict {
        let peers = self.nodes[at as usize].peers.iter();
        let up = peers.filter(|end| end.link == LinkState::Up && end.ends.is_none());
        let accounts: Vec<Account> = up.map(|end| end.account).collect();
        for account in &accounts {
            ensure!(account.is_covered(), Memory, "n{at}: a peer spent beyond {account:?}");
            let is_back = !is_idle || account.has_come_back();
            ensure!(is_back, Memory, "n{at}: credit of a peer is lost: {account:?}");
        }
        ledger::within(at, &accounts, held_bytes, config)
    }
}
