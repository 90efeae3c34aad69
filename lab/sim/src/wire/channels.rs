//! Messages in transit, and the credit that they use.

use tagmatch_device::Bytes;
use tagmatch_device::tm::{Opcode, TMH_BYTES};
use tagmatch_fallback::wire::Fragment;
use tagmatch_fallback::{Amount, CreditConfig};

use super::ledger::{self, Account};
use super::net::{Frame, LinkState, Net, UNTAGGED, number};
use super::wire_fault::WireFault;
use crate::violation::{Verdict, ensure};

/// What a header says of its message.
#[derive(Clone, Copy)]
enum Kind {
    /// A message with a tag.
    Tagged { is_eager: bool },
    /// A part of an eager message.
    Fragment(Fragment),
    /// A message without a tag.
    Untagged,
}

impl Kind {
    fn of(header: &[u8]) -> Self {
        match header.first().and_then(|&byte| Opcode::try_from(byte).ok()) {
            Some(Opcode::Eager) => Kind::Tagged { is_eager: true },
            Some(Opcode::Rendezvous) => Kind::Tagged { is_eager: false },
            _ => Fragment::parse(&Bytes::from_slice(header)).map_or(Kind::Untagged, Kind::Fragment),
        }
    }
}

impl Net {
    /// Whether the channel is full. Some sends are refused as if it were.
    pub(super) fn is_full(&mut self, to: u32, back: u32) -> bool {
        let waiting = self.nodes[to as usize].peers[back as usize].inbox.len();
        waiting >= self.config.capacity as usize
            || (!self.hurry && self.random.per_mille(self.config.refused_per_mille))
    }

    /// Sends a message of the device. A message in fragments has its number on the last one, with
    /// which it arrives.
    pub(super) fn put(&mut self, from: u32, peer: u32, parts: [&[u8]; 2], immediate: Option<u32>) {
        let delay = self.delay();
        let ready = self.clock + delay;
        let end = &mut self.nodes[from as usize].peers[peer as usize];
        let to = end.node;
        let back = end.back;
        let kind = Kind::of(parts[0]);
        if let Kind::Fragment(fragment) = kind {
            if let Fragment::First { length, .. } = fragment {
                end.unsent = length;
            }
            end.unsent -= parts[1].len() as u64;
        }
        let is_whole = match kind {
            Kind::Tagged { .. } => true,
            Kind::Fragment(_) => end.unsent == 0,
            Kind::Untagged => false,
        };
        let is_first = matches!(kind, Kind::Fragment(Fragment::First { .. }));
        let begins = (is_first && !is_whole).then_some(end.tagged_sent);
        let mut ordinal = UNTAGGED;
        if is_whole {
            ordinal = end.tagged_sent;
            end.tagged_sent += 1;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let account = &mut self.nodes[to as usize].peers[back as usize].account;
        match kind {
            Kind::Tagged { is_eager: true } => {
                account.spend(Amount::eager(bytes.len().saturating_sub(TMH_BYTES)));
            }
            Kind::Tagged { is_eager: false } => account.spend(Amount::RENDEZVOUS),
            Kind::Fragment(Fragment::First { length, .. }) => {
                account.spend(Amount::eager(usize::try_from(length).unwrap_or(usize::MAX)));
            }
            Kind::Fragment(Fragment::Next { .. }) => {}
            Kind::Untagged => {
                self.nodes[from as usize].peers[peer as usize].account.granted_by(&bytes);
            }
        }
        self.nodes[to as usize].peers[back as usize].put += 1;
        let is_tagged = matches!(kind, Kind::Tagged { .. });
        let eager = !matches!(kind, Kind::Tagged { is_eager: false });
        let frame = Frame { bytes, immediate, ready, ordinal, begins, eager };
        match self.wire_fault {
            Some(wire_fault) if is_tagged && self.random.per_mille(30) => {
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
