//! Whether the messages that a device has taken have left this process.

/// Whether messages to a peer have left this process: see
/// [`Device::flush`](crate::Device::flush) and
/// [`MatchingDevice::flush`](crate::matching::MatchingDevice::flush).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The messages are the peer's transport's: they reach the peer, if it lives, also if this
    /// process ends now. This is also the answer for a peer that no message was sent to.
    Done,
    /// Some messages would be lost if this process ended now.
    Pending {
        /// How many, as far as the device can tell; at least 1.
        messages: usize,
    },
    /// The peer is down, and it isn't known whether all messages have reached it.
    Lost {
        /// How many may not have reached it, as far as the device can tell; at least 1.
        messages: usize,
    },
}

impl Flush {
    /// How many messages have not left this process.
    #[must_use]
    pub fn pending(self) -> usize {
        if let Flush::Pending { messages } = self { messages } else { 0 }
    }

    /// How many messages may not have reached a peer that is down.
    #[must_use]
    pub fn lost(self) -> usize {
        if let Flush::Lost { messages } = self { messages } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_pending_or_lost_or_gone() {
        let counts = |flush: Flush| (flush.pending(), flush.lost());
        assert_eq!(counts(Flush::Done), (0, 0));
        assert_eq!(counts(Flush::Pending { messages: 3 }), (3, 0));
        assert_eq!(counts(Flush::Lost { messages: 5 }), (0, 5));
    }
}
