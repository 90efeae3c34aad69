//! Flow control: a message is sent only when a buffer of the receiver's shared queue stands for it.
//!
//! The receiver announces up to which message (counted from the connection's start) the peer may send.
//! An idle peer stands at one message. With use its window doubles; what it holds beyond one message
//! it gives back when it falls idle.
//!
//! An announcement takes a buffer of the *sender's* queue. So that one stands ready for it, both know
//! when it may come: once the message number `threshold` has arrived, half-way through what the last
//! announcement gave. Whoever sends that message has put a buffer aside, and since the threshold lies
//! beyond what the announcement before had given, there is never more than one under way.

/// The most that a window, or one announcement, can be.
pub(super) const WINDOW_MAX: u32 = 1 << 16;

/// The message with which the next announcement becomes due.
fn threshold(limit: u64, previous: u64) -> u64 {
    limit - (limit - previous) / 2
}

/// What a peer may send to us.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    received: u64,
    announced: u64,
    /// What was announced before.
    previous: u64,
    window: u32,
}

/// The peer sent more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun;

impl Grant {
    pub(super) fn new() -> Self {
        Grant { received: 0, announced: 1, previous: 0, window: 1 }
    }

    /// Buffers that stand for messages to come.
    pub(super) fn outstanding(&self) -> usize {
        usize::try_from(self.announced - self.received).unwrap_or(usize::MAX)
    }

    /// A message came.
    pub(super) fn take(&mut self) -> Result<(), Overrun> {
        if self.received == self.announced {
            return Err(Overrun);
        }
        self.received += 1;
        Ok(())
    }

    /// Announces more if it is time: how many messages, at most `available` unless the peer could send
    /// none at all. The caller has as many buffers ready.
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

    /// The message that was just taken gave back all but one: how many that were.
    pub(super) fn release(&mut self) -> usize {
        let back = self.outstanding().saturating_sub(1);
        self.announced -= back as u64;
        self.previous = self.received;
        self.window = 1;
        back
    }
}

/// What we may send to a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    sent: u64,
    limit: u64,
    /// What the limit was before.
    previous: u64,
    /// Whether a buffer was put aside for an announcement that is due.
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

    /// Whether a buffer must be put aside before the next message is sent.
    #[inline]
    pub(super) fn needs_reserve(&self) -> bool {
        !self.has_reserved && self.sent + 1 >= threshold(self.limit, self.previous)
    }

    /// A message is sent.
    #[inline]
    pub(super) fn spend(&mut self) {
        self.sent += 1;
    }

    /// The peer has announced more. An error if it wasn't due, or can't be.
    pub(super) fn extend(&mut self, more: u32) -> Result<(), Overrun> {
        if !self.has_reserved || more == 0 || more > WINDOW_MAX {
            return Err(Overrun);
        }
        self.has_reserved = false;
        self.previous = self.limit;
        self.limit += u64::from(more);
        Ok(())
    }

    /// Whether a message may give back all but one: there is more than that, and no announcement can
    /// be under way, nor become due by this message.
    pub(super) fn can_release(&self) -> bool {
        self.sent + 2 <= self.limit && self.sent + 1 < threshold(self.limit, self.previous)
    }

    /// A message is sent that gives back all but one.
    pub(super) fn release(&mut self) {
        self.sent += 1;
        self.previous = self.sent;
        self.limit = self.sent + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends, and what is under way between them.
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

        fn hear(&mut self) {
            assert!(self.announcements.len() <= 1, "two announcements under way");
            if let Some(more) = self.announcements.pop() {
                assert_eq!(self.allowance.extend(more), Ok(()), "one that was not reserved for");
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
                    7..9 => ends.hear(),
                    _ => ends.release(),
                }
            }
            assert!(sent > 300, "{sent}");
            for _ in 0..200 {
                ends.receive(0);
                ends.hear();
            }
            assert!(ends.send(), "stopped for good");
        }
    }

    #[test]
    fn a_window_grows_with_use_and_falls_back() {
        let mut ends = Ends::new();
        for _ in 0..100 {
            ends.send();
            ends.receive(1000);
            ends.hear();
        }
        assert!(ends.grant.outstanding() > 30, "{:?}", ends.grant);
        while !ends.allowance.can_release() {
            ends.send();
            ends.receive(1000);
            ends.hear();
        }
        ends.release();
        ends.receive(0);
        assert_eq!(ends.grant.outstanding(), 1);
        assert!(ends.send() && !ends.allowance.is_open());
    }

    #[test]
    fn who_breaks_the_rules_is_found_out() {
        let mut grant = Grant::new();
        assert_eq!((grant.take(), grant.take()), (Ok(()), Err(Overrun)));
        // An idle peer that gives back has nothing to give.
        assert_eq!(grant.release(), 0);
        let mut allowance = Allowance::new();
        assert_eq!(allowance.extend(1), Err(Overrun));
        allowance.has_reserved = true;
        assert_eq!(allowance.extend(0), Err(Overrun));
        assert_eq!(allowance.extend(WINDOW_MAX + 1), Err(Overrun));
        assert_eq!(allowance.extend(5), Ok(()));
    }
}
