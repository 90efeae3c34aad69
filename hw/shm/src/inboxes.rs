//! The receiving ends of all connections, and which of them to look at.
//!
//! A few rings are *hot*: each poll looks at them. The other rings are *cold*: their senders are
//! asked to ring the doorbell, and a poll looks at them after that. A ring becomes hot when its
//! doorbell bit is set and there is room among the hot ones. It becomes cold when it stays empty
//! while others are busy. Now and then one cold ring, in turn, is looked at without its bit, so a
//! peer that clears the bits of others can delay their messages, but can't stop them.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tagmatch_device::{OrBug, PeerId};
use tagmatch_os::process;

use super::doorbell::{Doorbell, DoorbellBit, PendingRings, SleepAnnounced};
use super::ring::Consumer;
use super::ring::consumer::{TakenMessage, Watch};
use super::ring::slot::{MessageShape, Meta};
use super::sync::fence;

/// Most rings that each poll looks at.
const HOT_MAX: usize = 8;
/// After so many messages from hot rings, cold rings and the next hot ring get their turn.
const BURST: u32 = 32;
/// A ring that was empty for so many ticks becomes cold if another ring is busy.
const COLD_TICKS: u32 = 64;
/// Once in so many ticks, one cold ring is looked at without its doorbell bit.
const SWEEP_TICKS: u32 = 16;

/// The receiving end of one connection.
pub(crate) struct Inbox {
    pub(crate) consumer: Consumer,
    pub(crate) peer: PeerId,
    is_hot: bool,
}

struct Hot {
    watch: Watch,
    bit: DoorbellBit,
    idle_ticks: u32,
    /// Whether a message was found since the last tick.
    was_busy: bool,
}

/// A ring in which there is a message.
#[derive(Clone, Copy)]
pub(crate) struct FoundSlot {
    pub(crate) bit: DoorbellBit,
    pub(crate) meta: Meta,
}

/// The result of a look for a message of the shortest kind.
pub(crate) enum ShortLook<'a> {
    Taken(PeerId, &'a [u8]),
    /// There is a message of another kind.
    Other,
    Nothing,
}

/// The receiving ends of all connections, by their doorbell bits.
pub(crate) struct Inboxes {
    inboxes: Vec<Option<Inbox>>,
    free: Vec<DoorbellBit>,
    /// How many bits there are, free or not.
    bits: usize,
    hot: Vec<Hot>,
    /// The hot ring to look at first.
    first: usize,
    /// Since the last tick, a ring was busy for which there was no room among the hot ones.
    is_crowded: bool,
    /// Messages found in hot rings since the other rings had their turn.
    burst: u32,
    pending: PendingRings,
    doorbell: Arc<Doorbell>,
    ticks: u32,
    next_swept: usize,
    /// Peers to wake, because their rings have room again.
    pub(crate) wake: Vec<PeerId>,
    /// Whether writers rely on membarrier(2) calls of this process.
    makes_barriers: bool,
}

/// The sender and the shape of a message that was found, or the rule that the sender broke.
pub(crate) type Parsed = Result<(PeerId, MessageShape), (PeerId, &'static str)>;

impl Inboxes {
    pub(crate) fn new(doorbell: Arc<Doorbell>, capacity: u32, makes_barriers: bool) -> Self {
        let free: Vec<_> = (0..capacity).rev().filter_map(DoorbellBit::new).collect();
        Inboxes {
            inboxes: Vec::new(),
            bits: free.len(),
            free,
            hot: Vec::with_capacity(HOT_MAX),
            first: 0,
            is_crowded: false,
            burst: 0,
            pending: PendingRings::new(),
            doorbell,
            ticks: 0,
            next_swept: 0,
            wake: Vec::new(),
            makes_barriers,
        }
    }

    /// Reserves a doorbell bit for a new connection, if one is free.
    pub(crate) fn reserve(&mut self) -> Option<DoorbellBit> {
        self.free.pop()
    }

    /// How many connections there is room for.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// How many connections there are and are being made, the worker's own to itself included.
    pub(crate) fn taken_count(&self) -> usize {
        self.bits - self.free.len()
    }

    /// How many rings are read.
    pub(crate) fn read_count(&self) -> usize {
        self.inboxes.iter().flatten().count()
    }

    /// How many bits are reserved for rings that are not read yet.
    pub(crate) fn reserved_count(&self) -> usize {
        self.bits.saturating_sub(self.free.len() + self.read_count())
    }

    /// Frees a reserved bit.
    pub(crate) fn release(&mut self, bit: DoorbellBit) {
        self.free.push(bit);
    }

    /// Begins to read a new ring, whose writer rings the doorbell for each message. It may have
    /// done so already, and its bit may have been taken, so the next poll looks at the ring.
    pub(crate) fn insert(&mut self, bit: DoorbellBit, consumer: Consumer, peer: PeerId) {
        if self.inboxes.len() <= bit.index() {
            self.inboxes.resize_with(bit.index() + 1, || None);
        }
        self.inboxes[bit.index()] = Some(Inbox { consumer, peer, is_hot: false });
        self.pending.insert(bit);
    }

    /// Stops reading a ring and frees its bit.
    pub(crate) fn remove(&mut self, bit: DoorbellBit) {
        self.cool(bit);
        self.pending.remove(bit);
        if let Some(inbox) = self.inboxes.get_mut(bit.index())
            && inbox.take().is_some()
        {
            self.free.push(bit);
        }
    }

    #[inline]
    pub(crate) fn inbox(&self, bit: DoorbellBit) -> Option<&Inbox> {
        self.inboxes.get(bit.index())?.as_ref()
    }

    /// Makes the next polls look at a ring.
    pub(crate) fn look_at(&mut self, bit: DoorbellBit) {
        self.pending.insert(bit);
    }

    /// Whether there is no message and no doorbell bit: what most polls find.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        let is_calm = self.pending.is_empty() & !self.doorbell.is_rung();
        is_calm && !self.has_message()
    }

    /// Whether there is a message in a ring that each poll looks at.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        self.hot.iter().any(|hot| hot.watch.is_there())
    }

    /// Takes the next message if it is of the shortest kind ([`Consumer::take_short`]), and in the
    /// hot ring that had the last message. [`Inboxes::take_common`] and [`Inboxes::find`] find all
    /// others.
    ///
    /// # Safety
    /// The message's bytes are not read after the next call of a method of `self`.
    #[inline(always)]
    pub(crate) unsafe fn take_short<'a>(&mut self) -> ShortLook<'a> {
        let Some(hot) = self.hot.get_mut(self.first) else { return ShortLook::Nothing };
        if self.burst >= BURST {
            return ShortLook::Nothing;
        }
        let Some(found) = hot.watch.look() else { return ShortLook::Nothing };
        let Some(Some(inbox)) = self.inboxes.get_mut(hot.bit.index()) else {
            return ShortLook::Nothing;
        };
        // SAFETY: only methods of `self` publish, or remove a ring.
        match unsafe { inbox.consumer.take_short(&mut hot.watch, found) } {
            Some(bytes) => {
                self.burst += 1;
                hot.was_busy = true;
                ShortLook::Taken(inbox.peer, bytes)
            }
            None => ShortLook::Other,
        }
    }

    /// Takes the next message if it is of the common kind: for the engine, and in the hot ring that
    /// had the last message. [`Inboxes::find`] finds all others.
    ///
    /// # Safety
    /// The message's bytes are not read after the next call of a method of `self`.
    #[inline(always)]
    pub(crate) unsafe fn take_common<'a>(&mut self) -> Option<(PeerId, TakenMessage<'a>)> {
        let hot = self.hot.get_mut(self.first)?;
        let inbox = self.inboxes.get_mut(hot.bit.index())?.as_mut()?;
        // SAFETY: only methods of `self` publish, or remove a ring.
        let taken = unsafe { inbox.consumer.take_common(&mut hot.watch) }?;
        self.burst += 1;
        hot.was_busy = true;
        Some((inbox.peer, taken))
    }

    /// Looks for a message.
    #[inline]
    pub(crate) fn find(&mut self) -> Option<FoundSlot> {
        self.burst += 1;
        if self.burst > BURST {
            self.burst = 0;
            self.first += 1;
            if let Some(found) = self.find_cold() {
                return Some(found);
            }
        }
        let count = self.hot.len();
        let mut at = self.first;
        for _ in 0..count {
            if at >= count {
                at = 0;
            }
            let hot = &mut self.hot[at];
            if hot.watch.is_there() {
                let bit = hot.bit;
                hot.was_busy = true;
                self.first = at;
                return self.peek(bit);
            }
            at += 1;
        }
        self.find_cold()
    }

    /// Looks for a message in the rings whose doorbell bits were set.
    #[cold]
    fn find_cold(&mut self) -> Option<FoundSlot> {
        if self.doorbell.is_rung() {
            self.doorbell.collect(&mut self.pending);
        }
        while let Some(bit) = self.pending.next() {
            // The bit was cleared before this look, so a message stored after the look sets it
            // again.
            let Some(found) = self.peek(bit) else {
                self.pending.remove(bit);
                self.publish(bit);
                continue;
            };
            self.heat(bit);
            return Some(found);
        }
        None
    }

    /// The next message of a ring, if it is there.
    fn peek(&mut self, bit: DoorbellBit) -> Option<FoundSlot> {
        let consumer = &mut self.inboxes.get_mut(bit.index())?.as_mut()?.consumer;
        let mut meta = consumer.peek()?;
        if consumer.skip(meta) {
            if let Some(hot) = self.hot.iter_mut().find(|hot| hot.bit == bit) {
                hot.watch.follow(consumer);
            }
            meta = consumer.peek()?;
        }
        Some(FoundSlot { bit, meta })
    }

    /// Makes a ring hot, if there is room.
    fn heat(&mut self, bit: DoorbellBit) {
        if self.hot.len() >= HOT_MAX {
            self.is_crowded = true;
            return;
        }
        let Some(Some(inbox)) = self.inboxes.get_mut(bit.index()) else { return };
        self.pending.remove(bit);
        if !inbox.is_hot {
            inbox.is_hot = true;
            // If the writer sees this late, it rings the doorbell once more than needed.
            inbox.consumer.want_doorbell(false);
            self.hot.push(Hot {
                watch: inbox.consumer.watch(),
                bit,
                idle_ticks: 0,
                was_busy: true,
            });
        }
    }

    /// Makes a ring cold. The caller has made the barrier, or is about to remove the ring.
    fn cool(&mut self, bit: DoorbellBit) {
        self.hot.retain(|hot| hot.bit != bit);
        if let Some(Some(inbox)) = self.inboxes.get_mut(bit.index()) {
            inbox.is_hot = false;
        }
    }

    /// Checks the message that was found. `None` would be a bug of this device.
    ///
    /// # Errors
    /// The peer, and the rule that it broke.
    #[inline]
    pub(crate) fn parse(&mut self, found: FoundSlot) -> Option<Parsed> {
        let inbox = self.inboxes.get_mut(found.bit.index()).and_then(Option::as_mut);
        let Ok(inbox) = inbox.or_bug("a message is found in a ring that exists") else {
            self.cool(found.bit);
            return None;
        };
        let peer = inbox.peer;
        // The messages of earlier polls are not borrowed any more, so their room can be given back.
        if inbox.consumer.is_publish_due() && inbox.consumer.publish() {
            self.wake.push(peer);
        }
        let parsed = inbox.consumer.parse(found.meta);
        Some(parsed.map(|shape| (peer, shape)).map_err(|what| (peer, what)))
    }

    /// Takes the message that was found and parsed.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        bit: DoorbellBit,
        shape: MessageShape,
    ) -> Option<TakenMessage<'_>> {
        let inbox = self.inboxes.get_mut(bit.index())?.as_mut()?;
        let hot = inbox.is_hot.then(|| self.hot.iter_mut().find(|hot| hot.bit == bit)).flatten();
        Some(inbox.consumer.take(shape, hot.map(|hot| &mut hot.watch)))
    }

    fn publish(&mut self, bit: DoorbellBit) {
        if let Some(Some(inbox)) = self.inboxes.get_mut(bit.index())
            && inbox.consumer.publish()
        {
            self.wake.push(inbox.peer);
        }
    }

    /// Tells the writers of all hot rings what was taken.
    #[cold]
    pub(crate) fn publish_hot(&mut self) {
        for at in 0..self.hot.len() {
            self.publish(self.hot[at].bit);
        }
    }

    /// Done now and then: an idle ring becomes cold, and one cold ring is looked at without its
    /// bit.
    #[cold]
    pub(crate) fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        let mut is_other_busy = std::mem::take(&mut self.is_crowded);
        let mut idlest: Option<(u32, DoorbellBit)> = None;
        for hot in &mut self.hot {
            hot.idle_ticks = if hot.was_busy { 0 } else { hot.idle_ticks + 1 };
            is_other_busy |= hot.was_busy;
            hot.was_busy = false;
            if hot.idle_ticks >= COLD_TICKS && idlest.is_none_or(|(most, _)| hot.idle_ticks > most)
            {
                idlest = Some((hot.idle_ticks, hot.bit));
            }
        }
        self.publish_hot();
        if let Some((_, bit)) = idlest
            && is_other_busy
        {
            self.retire(bit);
        }
        if self.ticks.is_multiple_of(SWEEP_TICKS) {
            self.sweep_one();
        }
    }

    /// Makes an idle ring cold.
    pub(super) fn retire(&mut self, bit: DoorbellBit) {
        if let Some(inbox) = self.inbox(bit) {
            inbox.consumer.want_doorbell(true);
        }
        self.barrier();
        self.cool(bit);
        // A look after the barrier finds what was written before the writer saw that the doorbell
        // is wanted.
        self.pending.insert(bit);
    }

    fn sweep_one(&mut self) {
        let Some(at) = (self.next_swept < self.inboxes.len()).then_some(self.next_swept) else {
            self.next_swept = 0;
            return;
        };
        self.next_swept += 1;
        if let Some(inbox) = &self.inboxes[at]
            && !inbox.is_hot
            && inbox.consumer.peek().is_some()
            && let Some(bit) = DoorbellBit::new(u32::try_from(at).unwrap_or(u32::MAX))
        {
            self.pending.insert(bit);
        }
    }

    /// Makes the next polls look at every ring, with or without its doorbell bit.
    pub(crate) fn sweep_all(&mut self) {
        self.next_swept = 0;
        for _ in 0..self.inboxes.len() {
            self.sweep_one();
        }
    }

    /// Announces that this worker sleeps. [`Inboxes::fall_asleep`] or [`Inboxes::wake_up`] must
    /// follow.
    pub(crate) fn announce_sleep(&self) -> SleepAnnounced {
        self.doorbell.announce_sleep()
    }

    /// Makes every ring cold, after the sleep was announced. Returns whether there is nothing to
    /// do. If there is something, the announcement is withdrawn.
    pub(crate) fn fall_asleep(&mut self, _: &SleepAnnounced) -> bool {
        self.publish_hot();
        if !self.pending.is_empty() {
            self.wake_up();
            return false;
        }
        if !self.hot.is_empty() {
            for hot in &self.hot {
                if let Some(inbox) = self.inbox(hot.bit) {
                    inbox.consumer.want_doorbell(true);
                }
            }
            self.barrier();
        }
        while let Some(hot) = self.hot.pop() {
            if let Some(Some(inbox)) = self.inboxes.get_mut(hot.bit.index()) {
                inbox.is_hot = false;
                if inbox.consumer.peek().is_some() {
                    self.pending.insert(hot.bit);
                }
            }
        }
        let is_quiet = self.pending.is_empty() && !self.doorbell.is_rung_before_sleep();
        if !is_quiet {
            self.wake_up();
        }
        is_quiet
    }

    /// Withdraws the announcement of [`Inboxes::announce_sleep`].
    pub(crate) fn wake_up(&mut self) {
        self.doorbell.end_sleep();
    }

    /// Puts a barrier on this thread, and on every writer that relies on barriers of this process.
    fn barrier(&self) {
        fence(SeqCst);
        if self.makes_barriers {
            // The call worked at the start. If it fails now, the sweep of cold rings finds the
            // message.
            let _ = process::barrier_everywhere();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::doorbell;
    use super::super::ring::{Geometry, Producer, PushError, Ring};
    use super::*;
    use tagmatch_os::memory::Mapping;

    fn number(at: usize) -> u32 {
        u32::try_from(at).unwrap()
    }

    /// Takes the next message; gives the number of its ring.
    fn take(inboxes: &mut Inboxes) -> Option<PeerId> {
        let found = inboxes.find()?;
        let (peer, shape) = inboxes.parse(found).unwrap().unwrap();
        inboxes.take(found.bit, shape).map(|_| peer)
    }

    #[test]
    fn a_ring_that_others_keep_cold_gives_all_its_room_back_when_it_is_empty() {
        let doorbell =
            Arc::new(Doorbell::new(Mapping::private(doorbell::LENGTH_BYTES).unwrap()).unwrap());
        let mut inboxes = Inboxes::new(doorbell.clone(), number(doorbell::BITS), false);
        let geometry = Geometry::new(4096).unwrap();
        let mut writers: Vec<Producer> = (0..=HOT_MAX)
            .map(|at| {
                let mapping = Mapping::private(geometry.pair_bytes()).unwrap();
                let [ring, _] = Ring::pair(mapping, geometry, geometry).unwrap();
                let ring = ring.other_lines();
                let bit = DoorbellBit::new(number(at)).unwrap();
                inboxes.insert(
                    bit,
                    Consumer::new(ring.clone(), 1920, Arc::default()),
                    PeerId(number(at)),
                );
                Producer::new(ring, Arc::default())
            })
            .collect();
        let mut last = writers.pop().unwrap();
        for writer in &mut writers {
            writer.push(&[1; 8], &[], None, &0).unwrap();
        }
        while take(&mut inboxes).is_some() {}
        assert_eq!(inboxes.hot.len(), HOT_MAX);
        // Two of them fill the ring.
        let push = |writer: &mut Producer| writer.push(&[1; 56], &[2; 1864], None, &0);
        assert_eq!((push(&mut last), push(&mut last)), (Ok(()), Ok(())));
        assert_eq!(push(&mut last), Err(PushError::Full));
        doorbell.ring(DoorbellBit::new(number(HOT_MAX)).unwrap());
        let senders: Vec<PeerId> = std::iter::from_fn(|| take(&mut inboxes)).collect();
        assert_eq!(senders, [PeerId(number(HOT_MAX)); 2]);
        assert_eq!(push(&mut last), Ok(()));
    }
}
