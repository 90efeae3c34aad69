//! Credits as the wires see them: granted by receivers and spent by senders.
//!
//! Computed from the bytes that pass, so independent of the accounts of both sides.

use tagmatch_device::Bytes;
use tagmatch_fallback::wire::{Control, WireMessage};
use tagmatch_fallback::{Amount, CreditConfig, FLOOR_MESSAGES};

use crate::violation::{Verdict, ensure};

/// The credit of one worker at another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    first: Option<Amount>,
    granted: Amount,
    spent: Amount,
}

fn plus(a: Amount, b: Amount) -> Amount {
    Amount { messages: a.messages + b.messages, bytes: a.bytes + b.bytes }
}

impl Account {
    /// Accounts for a message with a tag.
    pub(super) fn spend(&mut self, cost: Amount) {
        self.spent = plus(self.spent, cost);
    }

    /// Accounts for a message of the receiver without a tag, which may be a grant.
    pub(super) fn granted_by(&mut self, bytes: &[u8]) {
        let message = WireMessage::parse(&Bytes::from_slice(bytes));
        if let Ok(WireMessage::Control(Control::Credit { messages, bytes })) = message {
            let credit = Amount { messages: messages.into(), bytes };
            self.first.get_or_insert(credit);
            self.granted = plus(self.granted, credit);
        }
    }

    /// The credit that is granted and not spent.
    pub(super) fn outstanding(&self) -> Amount {
        Amount {
            messages: self.granted.messages.saturating_sub(self.spent.messages),
            bytes: self.granted.bytes.saturating_sub(self.spent.bytes),
        }
    }

    /// Checks that the sender has spent no more than it was granted.
    pub(super) fn is_covered(&self) -> bool {
        self.granted.messages >= self.spent.messages && self.granted.bytes >= self.spent.bytes
    }

    /// Checks that a sender without waiting messages has at least half of its first grant again: a
    /// receiver that holds back more has lost credit.
    pub(super) fn has_come_back(&self) -> bool {
        let first = self.first.unwrap_or_default();
        let out = self.outstanding();
        2 * out.messages >= first.messages && 2 * out.bytes >= first.bytes
    }
}

/// Checks that the credit that one receiver has granted to peers that are up, and holds, is within
/// its pool.
pub(super) fn within(
    at: u32,
    accounts: &[Account],
    held_bytes: u64,
    config: &CreditConfig,
) -> Verdict {
    let sum = accounts.iter().fold(Amount::default(), |sum, a| plus(sum, a.outstanding()));
    let messages = config.pool.messages + FLOOR_MESSAGES * accounts.len() as u64;
    let is_within = sum.messages <= messages && sum.bytes + held_bytes <= config.pool.bytes;
    ensure!(is_within, Memory, "n{at} has granted {sum:?} and holds {held_bytes} bytes");
    Ok(())
}
