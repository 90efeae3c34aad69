//! Credits bound the memory that unexpected messages take.
//!
//! Every eager message costs one message and the bytes of its block in the store; every rendezvous
//! request costs one message. A sender spends from its allowance; the receiver returns what it
//! spent once the landing place is free again. All grants come out of one pool, which bounds the
//! total.
//!
//! For each peer the receiver keeps, per unit (messages, bytes):
//!
//! `limit = outstanding + held + back`
//!
//! *outstanding*: granted and not yet spent; *held*: spent, the message is still here; *back*: free
//! again, not yet granted anew. A grant starts small ([`CreditConfig::first`]) and doubles with use
//! while the pool has room; when the pool runs short, what comes back stays there.
//!
//! # Decisions
//! **Credits count blocks.** A message costs the memory that it takes in the store (a power of two,
//! at least 16 bytes), so the bound on granted credits is a bound on memory. Every peer keeps 16
//! messages beyond the pool, as rendezvous requests, so a full pool never stops a peer for good. A
//! grant grows with use, and shrinks when the pool runs short.
//!
//! **Messages of dead peers keep at most half of a pool that is short.** A message that was
//! complete before its sender died is received like any other, so it keeps its credit. But it may
//! never be received, and a process whose workers connect, send and die would use up the pool of
//! all others. So when dead peers hold more than half of the pool and less than an eighth is left
//! to grant, the waiting messages of the peer that died first are dropped, then those of the next
//! one. All waiting messages of a peer are dropped, or none: what is received of a dead peer is
//! always a first part of what it sent, as if it had died sooner. A receive that names the peer
//! gets its error; an any-source receive stays posted, as at every death. Dropping nothing would
//! let the dead starve the living. Dropping at the death, or after a time, would lose messages of
//! programs that send and exit, though there is room. A message that a matched probe has taken
//! stays. Dropped messages are counted (`lost_messages`). In the simulator, the profile `graves`
//! checks that only messages of dead peers are dropped.

mod audit;

/// A number of messages and of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Messages.
    pub messages: u64,
    /// Bytes, in blocks of the store.
    pub bytes: u64,
}

impl Amount {
    /// The cost of an eager message with this payload.
    #[inline]
    pub fn eager(payload_length: usize) -> Self {
        Amount { messages: 1, bytes: crate::store::cost_bytes(payload_length) }
    }

    /// The cost of an eager message, for a length as headers have it.
    pub(crate) fn of_eager(length: u64) -> Self {
        Self::eager(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// The cost of a rendezvous request.
    pub const RENDEZVOUS: Amount = Amount { messages: 1, bytes: 0 };

    #[inline]
    fn covers(self, other: Amount) -> bool {
        self.messages >= other.messages && self.bytes >= other.bytes
    }

    #[inline]
    pub(crate) fn plus(self, other: Amount) -> Amount {
        Amount {
            messages: self.messages.saturating_add(other.messages),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    #[inline]
    fn minus(self, other: Amount) -> Amount {
        Amount {
            messages: self.messages.saturating_sub(other.messages),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Applies `f` to messages and to bytes.
    fn each(self, other: Amount, f: impl Fn(u64, u64) -> u64) -> Amount {
        Amount { messages: f(self.messages, other.messages), bytes: f(self.bytes, other.bytes) }
    }
}

/// Bounds of unexpected memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditConfig {
    /// The credit that may be granted to all peers together.
    ///
    /// Messages that were complete before their sender went down can still be received, and keep
    /// their credit. If they keep more than half of the pool, and less than an eighth of it is left
    /// to grant, the messages of the peers that went down first are dropped, for each such peer all
    /// waiting messages.
    pub pool: Amount,
    /// The credit that a peer is granted when it connects, as far as the pool still has it.
    pub first: Amount,
    /// The most that one peer is granted.
    pub peer_max: Amount,
}

/// Messages that every peer may always send beyond the pool, as rendezvous requests. So a full pool
/// stops no peer for good.
pub const FLOOR_MESSAGES: u64 = 16;

/// Where the credit of a worker's pool is.
///
/// When no message waits, `held` is zero and `free` and `granted` together are the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditNow {
    /// Credit in the pool, granted to no peer.
    pub free: Amount,
    /// Credit granted out of the pool to peers that are not down.
    pub granted: Amount,
    /// The cost of messages that were not received yet, including messages of peers that are down.
    pub held: Amount,
}

/// The credit that a worker and one of its peers have for messages to each other.
///
/// When no message is under way between them, each has what the other has granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCredit {
    /// Granted to the peer, and not spent by a message that has come.
    pub granted: Amount,
    /// What the worker may spend on messages to the peer.
    pub allowance: Amount,
}

/// The credit that is left to grant.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    config: CreditConfig,
    free: Amount,
    /// The credit that messages of peers that are down keep.
    kept: Amount,
}

impl Pool {
    pub(crate) fn new(config: CreditConfig) -> Self {
        Pool { config, free: config.pool, kept: Amount::default() }
    }

    fn take(&mut self, wanted: Amount) -> Amount {
        let share = wanted.each(self.free, u64::min);
        self.free = self.free.minus(share);
        share
    }

    /// Whether the pool runs short while messages of peers that are down keep more than half of it.
    #[inline]
    pub(crate) fn is_kept_by_the_dead(&self) -> bool {
        let Pool { config: CreditConfig { pool, .. }, free, kept } = self;
        let is_kept = |free: u64, kept: u64, total: u64| free <= total / 8 && kept > total / 2;
        is_kept(free.messages, kept.messages, pool.messages)
            || is_kept(free.bytes, kept.bytes, pool.bytes)
    }

    /// Where the credit is. `grants` are all grants that exist, each with whether its peer is down.
    pub(crate) fn now<'a>(
        &self,
        grants: impl Iterator<Item = (&'a CreditGrant, bool)>,
    ) -> CreditNow {
        let mut now = CreditNow { free: self.free, ..CreditNow::default() };
        for (grant, is_down) in grants {
            now.held = now.held.plus(grant.held);
            if !is_down {
                now.granted = now.granted.plus(grant.from_pool);
            }
        }
        now
    }

    /// Whether no credit of the pool is granted or held.
    #[cfg(test)]
    fn is_whole(&self) -> bool {
        self.free == self.config.pool && self.kept == Amount::default()
    }
}

/// The credit that one peer was granted.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct CreditGrant {
    /// The part of the limit that came from the pool.
    from_pool: Amount,
    limit: Amount,
    /// Below this the peer may be due more; see `set_limit`.
    low: Amount,
    /// The outstanding credit without what is above `low`.
    reserve: Amount,
    /// The messages of the outstanding credit beyond `low`. A message that these and `above_bytes`
    /// cover changes nothing else here. Zero if messages or bytes are low.
    above_messages: u64,
    held: Amount,
    closed: bool,
    /// The bytes that belong to `above_messages`. The two are not neighbours: the compiler would
    /// make vectors of them for each message.
    above_bytes: u64,
}

impl CreditGrant {
    /// Opens a grant; the amount is to be told to the peer.
    pub(crate) fn open(pool: &mut Pool) -> (Self, Amount) {
        let from_pool = pool.take(pool.config.first);
        let limit = from_pool.plus(Amount { messages: FLOOR_MESSAGES, bytes: 0 });
        let mut grant = CreditGrant { from_pool, ..CreditGrant::default() };
        grant.set_limit(limit);
        grant.set_outstanding(limit);
        (grant, limit)
    }

    /// The cost of the peer's messages that were not received yet.
    pub(crate) fn held(&self) -> Amount {
        self.held
    }

    /// Takes the credit of a message that has come. `false`: the peer had no credit for it.
    #[inline]
    pub(crate) fn arrived(&mut self, cost: Amount) -> bool {
        let allowed = self.covers(cost);
        if allowed {
            self.set_outstanding(self.outstanding().minus(cost));
            self.held = self.held.plus(cost);
        }
        allowed
    }

    /// The credit that was granted and is not spent yet.
    #[inline]
    pub(crate) fn outstanding(&self) -> Amount {
        self.reserve.plus(self.above())
    }

    #[inline(always)]
    fn above(&self) -> Amount {
        Amount { messages: self.above_messages, bytes: self.above_bytes }
    }

    fn set_outstanding(&mut self, outstanding: Amount) {
        let low = self.low;
        let is_high = outstanding.covers(low);
        let above = if is_high { outstanding.minus(low) } else { Amount::default() };
        self.above_messages = above.messages;
        self.above_bytes = above.bytes;
        self.reserve = outstanding.minus(above);
    }

    /// Accounts for a message that has come within the credit and is gone again at once:
    /// [`CreditGrant::arrived`] and [`CreditGrant::freed`] of an open grant in one step.
    #[inline]
    pub(crate) fn passed(&mut self, cost: Amount) {
        debug_assert!(self.covers(cost) && !self.closed);
        self.set_outstanding(self.outstanding().minus(cost));
    }

    /// As [`CreditGrant::passed`], if [`CreditGrant::stays_high`].
    #[inline(always)]
    pub(crate) fn passed_high(&mut self, cost: Amount) {
        debug_assert!(self.stays_high(cost) && !self.closed);
        self.above_messages = self.above_messages.wrapping_sub(cost.messages);
        self.above_bytes = self.above_bytes.wrapping_sub(cost.bytes);
    }

    /// The credit of messages that are gone, which the peer was not granted again yet: what is
    /// neither outstanding nor held. Of an open grant.
    fn back(&self) -> Amount {
        self.limit.minus(self.outstanding()).minus(self.held)
    }

    /// Whether the peer has credit for a message, and will not be due more after it.
    #[inline(always)]
    pub(crate) fn stays_high(&self, cost: Amount) -> bool {
        self.above().covers(cost)
    }

    /// Whether the peer has credit for a message.
    #[inline]
    pub(crate) fn covers(&self, cost: Amount) -> bool {
        self.outstanding().covers(cost)
    }

    /// Whether so little is outstanding that the peer may be due more.
    #[inline]
    pub(crate) fn is_low(&self) -> bool {
        !self.outstanding().covers(self.low)
    }

    /// Up to half of the limit counts as low. If the limit is zero, nothing does.
    fn set_limit(&mut self, limit: Amount) {
        let low = |limit: u64| if limit == 0 { 0 } else { limit / 2 + 1 };
        let outstanding = self.outstanding();
        self.limit = limit;
        self.low = Amount { messages: low(limit.messages), bytes: low(limit.bytes) };
        self.set_outstanding(outstanding);
    }

    /// Accounts for a message that is gone.
    #[inline]
    pub(crate) fn freed(&mut self, cost: Amount, pool: &mut Pool) {
        self.held = self.held.minus(cost);
        if self.closed {
            let before = self.from_pool;
            self.give_back(cost, pool);
            pool.kept = pool.kept.minus(before.minus(self.from_pool));
        }
    }

    /// The credit to grant to the peer now, if it is worth a message.
    #[inline]
    pub(crate) fn due(&mut self, pool: &mut Pool) -> Option<Amount> {
        if self.is_low() { self.top_up(pool) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn top_up(&mut self, pool: &mut Pool) -> Option<Amount> {
        self.adapt(pool);
        let out = self.outstanding();
        let back = self.back();
        let worth = |back: u64, out: u64| back > 0 && back >= out;
        let is_worth = worth(back.messages, out.messages) || worth(back.bytes, out.bytes);
        is_worth.then(|| {
            self.set_outstanding(out.plus(back));
            back
        })
    }

    /// Grows the grant of a peer that uses it, shrinks it when the pool runs short.
    fn adapt(&mut self, pool: &mut Pool) {
        let Pool { config, free, .. } = pool;
        // Growth, by unit: double while most of the pool is free, or while the peer's messages
        // really wait here and the pool isn't short.
        let growth = |limit: u64, held: u64, first: u64, max: u64, free: u64, total: u64| {
            let roomy = free > total / 2 || (held > limit / 4 && free > total / 8);
            if roomy { limit.max(first).min(max.saturating_sub(limit)) } else { 0 }
        };
        let wanted = Amount {
            messages: growth(
                self.limit.messages,
                self.held.messages,
                config.first.messages,
                config.peer_max.messages,
                free.messages,
                config.pool.messages,
            ),
            bytes: growth(
                self.limit.bytes,
                self.held.bytes,
                config.first.bytes,
                config.peer_max.bytes,
                free.bytes,
                config.pool.bytes,
            ),
        };
        // Shrinking, by unit: a pool that runs short keeps the credit that came back beyond the
        // first grant.
        let short = free.each(config.pool, |free, total| u64::from(free <= total / 8));
        let beyond = self.from_pool.minus(config.first);
        let keep = self.back().each(beyond, u64::min).each(short, |keep, short| keep * short);
        self.give_back(keep, pool);
        let grown = pool.take(wanted);
        self.from_pool = self.from_pool.plus(grown);
        self.set_limit(self.limit.minus(keep).plus(grown));
    }

    /// Returns the credit of a peer that is down to the pool, except the part that its waiting
    /// messages hold.
    pub(crate) fn close(&mut self, pool: &mut Pool) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.low = Amount::default();
        let idle = self.limit.minus(self.held);
        self.set_outstanding(Amount::default());
        self.give_back(idle, pool);
        pool.kept = pool.kept.plus(self.from_pool);
    }

    /// Whether messages of the peer wait here, which hold a part of the grant.
    pub(crate) fn is_held(&self) -> bool {
        self.held != Amount::default()
    }

    fn give_back(&mut self, amount: Amount, pool: &mut Pool) {
        let amount = amount.each(self.from_pool, u64::min);
        self.from_pool = self.from_pool.minus(amount);
        pool.free = pool.free.plus(amount);
        if self.closed && self.held == Amount::default() {
            pool.free = pool.free.plus(std::mem::take(&mut self.from_pool));
        }
    }
}

/// The credit that this worker may still spend on messages to a peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendCredit(Amount);

impl SendCredit {
    #[inline]
    pub(crate) fn covers(&self, cost: Amount) -> bool {
        self.0.covers(cost)
    }

    /// Takes the credit of a message, which it covers.
    #[inline]
    pub(crate) fn spend(&mut self, cost: Amount) {
        debug_assert!(self.covers(cost));
        self.0.messages = self.0.messages.wrapping_sub(cost.messages);
        self.0.bytes = self.0.bytes.wrapping_sub(cost.bytes);
    }

    /// The credit that is left.
    pub(crate) fn left(&self) -> Amount {
        self.0
    }

    pub(crate) fn add(&mut self, credit: Amount) {
        self.0 = self.0.plus(credit);
    }
}

#[cfg(test)]
mod tests;
