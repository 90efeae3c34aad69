//! Flow control by credits: a message is sent only if the receiver has a buffer in its shared queue
//! for it.
//!
//! The receiver announces a limit: the number of the last message, counted from the connection's
//! start, that the peer may send. An idle peer may send one message. While it is busy, its window
//! doubles with each announcement. When it falls idle again, it gives back all credits but one.
//!
//! An announcement itself takes a receive buffer of the *message sender*. Both sides know when an
//! announcement may come, so that the buffer is there: after message number `threshold`, half-way
//! through the credits of the previous announcement. The side that sends this message reserves a
//! buffer first. The threshold lies beyond the limit of the announcement before, so at most one
//! announcement is under way.

/// The most messages that a window, or one announcement, can allow.
pub(super) const WINDOW_MAX: u32 = 1 << 16;

/// The number of the message after which the next announcement is due.
fn threshold(limit: u64, previous: u64) -> u64 {
    limit - (limit - previous) / 2
}

/// The receiver's side: the messages that a peer may send to us.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    received: u64,
    announced: u64,
    /// The limit that was announced before.
    previous: u64,
    window: u32,
}

/// The peer broke the rules: it sent more messages than it may, or announced something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun;

impl Grant {
    pub(super) fn new() -> Self {
        Grant { received: 0, announced: 1, previous: 0, window: 1 }
    }

    /// Messages that the peer may still send; each needs a posted receive buffer.
    pub(super) fn outstanding(&self) -> usize {
        usize::try_from(self.announced - self.received).unwrap_or(usize::MAX)
    }

    /// Counts a message that arrived.
    pub(super) fn take(&mut self) -> Result<(), Overrun> {
        if self.received == self.announced {
            return Err(Overrun);
        }
        self.received += 1;
        Ok(())
    }

    /// Announces more messages if that is due, and returns how many. At most `available`, but at
    /// least one if the peer could send none at all. The caller must have as many buffers ready.
    pub(super) fn extend(&mut self, available: usize, window_max: u32) -> Option<u32> {
        if self.received < threshold(self.announced, self.previous) {
            return None;
        }
        let outstanding = u32::try_from(self.announced - self.received).ok()?;
        let window = self.window.saturating_mul(2).min(window_max).max(1);
        let wanted = window.saturating_sub(outstanding);
        let available = u32::try_from(available).unwrap_or(u32::MAX);
        let more = wanted.min(available).max(u32::from(outstanding == 0));
        if more == 0 {
            return None;
        }
        self.previous = self.announced;
        self.announced += u64::from(more);
        self.window = outstanding + more;
        Some(more)
    }

    /// The message that was just taken gave back all credits but one. Returns how many were given
    /// back.
    pub(super) fn release(&mut self) -> usize {
        let back = self.outstanding().saturating_sub(1);
        self.announced -= back as u64;
        self.previous = self.received;
        self.window = 1;
        back
    }
}

/// The sender's side: the messages that we may send to a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    sent: u64,
    limit: u64,
    /// The limit before the last announcement.
    previous: u64,
    /// Whether a buffer is reserved for an announcement that may come.
    pub(super) has_reserved: bool,
}

impl Allowance {
    pub(super) fn new() -> Self {
        Allowance { sent: 0, limit: 1, previous: 0, has_reserved: false }
    }

    /// Whether another message may be sent.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.sent < self.limit
    }

    /// Whether a buffer must be reserved before the next message is sent.
    #[inline]
    pub(super) fn needs_reserve(&self) -> bool {
        !self.has_reserved && self.sent + 1 >= threshold(self.limit, self.previous)
    }

    /// Counts a message that is sent.
    #[inline]
    pub(super) fn spend(&mut self) {
        self.sent += 1;
    }

    /// Takes an announcement of more messages.
    ///
    /// # Errors
    /// [`Overrun`] if no announcement was due, or if the number is impossible.
    pub(super) fn extend(&mut self, more: u32) -> Result<(), Overrun> {
        if !self.has_reserved || more == 0 || more > WINDOW_MAX {
            return Err(Overrun);
        }
        self.has_reserved = false;
        self.previous = self.limit;
        self.limit += u64::from(more);
        Ok(())
    }

    /// Whether the next message may give back all credits but one: more than one is left, no
    /// announcement can be under way, and this message doesn't make one due.
    pub(super) fn can_release(&self) -> bool {
        self.sent + 2 <= self.limit && self.sent + 1 < threshold(self.limit, self.previous)
    }

    /// Counts a message that gives back all credits but one.
    pub(super) fn release(&mut self) {
        self.sent += 1;
        self.previous = self.sent;
        self.limit = self.sent + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides of one direction, and the messages and announcements under way.
    struct Ends {
        allowance: Allowance,
        grant: Grant,
        messages: std::collections::VecDeque<bool>,
        announcements: Vec<u32>,
    }

    impl Ends {
        fn new() -> Self {
            Ends {
                allowance: Allowance::new(),
                grant: Grant::new(),
                messages: [].into(),
                announcements: vec![],
            }
        }

        fn send(&mut self) -> bool {
            if !self.allowance.is_open() {
                return false;
            }
            if self.allowance.needs_reserve() {
                self.allowance.has_reserved = true;
            }
            self.allowance.spend();
            self.messages.push_back(false);
            true
        }

        fn release(&mut self) {
            if self.allowance.can_release() {
                self.allowance.release();
                self.messages.push_back(true);
            }
        }

        fn receive(&mut self, available: usize) {
            let Some(is_release) = self.messages.pop_front() else { return };
            assert_eq!(self.grant.take(), Ok(()), "a sender that keeps to its allowance overran");
            if is_release {
                self.grant.release();
                assert_eq!(self.grant.outstanding(), 1);
            }
            self.announcements.extend(self.grant.extend(available, 64));
        }

        fn receive_announcement(&mut self) {
            assert!(self.announcements.len() <= 1, "two announcements under way");
            if let Some(more) = self.announcements.pop() {
                assert_eq!(
                    self.allowance.extend(more),
                    Ok(()),
                    "an announcement without a reserved buffer"
                );
            }
        }
    }

    #[test]
    fn random_orders_never_overrun_and_never_stop() {
        let mut random = 12345u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..200 {
            let mut ends = Ends::new();
            let mut sent = 0;
            for _ in 0..2000 {
                match next(10) {
                    0..4 => sent += u32::from(ends.send()),
                    4..7 => ends.receive(usize::try_from(next(80)).unwrap()),
                    7..9 => ends.receive_announcement(),
                    _ => ends.release(),
                }
            }
            assert!(sent > 300, "{sent}");
            for _ in 0..200 {
                ends.receive(0);
                ends.receive_announcement();
            }
            assert!(ends.send(), "no credit is left, and none will come");
        }
    }

    #[test]
    fn a_window_grows_with_use_and_falls_back() {
        let mut ends = Ends::new();
        for _ in 0..100 {
            ends.send();
            ends.receive(1000);
            ends.receive_announcement();
        }
        assert!(ends.grant.outstanding() > 30, "{:?}", ends.grant);
        while !ends.allowance.can_release() {
            ends.send();
            ends.receive(1000);
            ends.receive_announcement();
        }
        ends.release();
        ends.receive(0);
        assert_eq!(ends.grant.outstanding(), 1);
        assert!(ends.send() && !ends.allowance.is_open());
    }

    #[test]
    fn a_peer_that_breaks_the_rules_is_detected() {
        let mut grant = Grant::new();
        assert_eq!((grant.take(), grant.take()), (Ok(()), Err(Overrun)));
        // A peer that holds one credit has none to give back.
        assert_eq!(grant.release(), 0);
        let mut allowance = Allowance::new();
        assert_eq!(allowance.extend(1), Err(Overrun));
        allowance.has_reserved = true;
        assert_eq!(allowance.extend(0), Err(Overrun));
        assert_eq!(allowance.extend(WINDOW_MAX + 1), Err(Overrun));
        assert_eq!(allowance.extend(5), Ok(()));
    }
}
