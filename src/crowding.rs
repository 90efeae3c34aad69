//! Whether other threads want the processors on which the blocking calls of a worker poll.
//!
//! A call that polls while the thread that it waits for is queued behind it, on the same processor,
//! waits until the scheduler takes the processor away: milliseconds for each message. A yield
//! tells: the kernel counts it as a switch if another thread ran meanwhile (`ru_nivcsw` of
//! getrusage(2)). No time is measured, so nothing here depends on the processor.
//!
//! A switch doesn't tell whose thread ran. If it was one of this job, a poll is in vain; if it was
//! a stranger's, messages still come within a few polls, and a yield for each of them would give
//! the stranger a time slice each. So waits go on to poll a little as long as most of these polls
//! find what they wait for.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(any(not(test), loom))]
use tagmatch_os::process::switches;

#[cfg(all(test, not(loom)))]
use self::tests::switches;
use crate::sync::thread::yield_now;
use crate::wait_policy::WaitPolicy;

/// Waits that hardly poll after a switch was seen, before waits poll as their policy says again.
const WAITS_MIN: u32 = 16;
/// The same where polling was tried again in vain, at most. Each time it doubles.
const WAITS_MAX: u32 = 4096;
/// Polls before the first yield that tests for other threads.
const POLLS_BEFORE_PROBE: u32 = 1024;
/// Polls between further ones. A probe takes a microsecond.
const POLLS_PER_PROBE: u32 = 4096;
/// Polls before the yields while others want the processor, as long as that pays.
const POLLS_CROWDED: u32 = 256;
/// The score of these polls, at most. A wait that they end adds one, each other wait takes two.
const POINTS_MAX: u32 = 8;
/// With a lower score, only one wait in [`WAITS_PER_TRIAL`] polls.
const POINTS_MIN: u32 = 4;
const WAITS_PER_TRIAL: u32 = 16;
/// Yields before the sleep while others want the processor.
const YIELDS_CROWDED: u32 = 64;

/// What the waits of a worker have learned. Several threads may update it at a time; a lost update
/// delays what is learned.
#[derive(Debug)]
pub struct Crowding {
    /// So many waits from now on hardly poll.
    left: AtomicU32,
    /// How many waits hardly poll after the next switch.
    span: AtomicU32,
    /// Waits since polling was tried again.
    calm: AtomicU32,
    /// The score of the few polls while others want the processor: at most [`POINTS_MAX`].
    points: AtomicU32,
}

impl Crowding {
    pub(crate) const fn new() -> Self {
        Crowding {
            left: AtomicU32::new(0),
            span: AtomicU32::new(WAITS_MIN),
            calm: AtomicU32::new(u32::MAX),
            points: AtomicU32::new(POINTS_MAX),
        }
    }

    /// Whether other threads wanted the processor a short while ago.
    pub fn is_crowded(&self) -> bool {
        self.left.load(Relaxed) > 0
    }

    /// A yield let another thread run.
    pub fn note_switch(&self) {
        let mut span = self.span.load(Relaxed);
        if !self.is_crowded() {
            let was_early = self.calm.swap(0, Relaxed) < span;
            span = if was_early { (2 * span).min(WAITS_MAX) } else { WAITS_MIN };
            self.span.store(span, Relaxed);
        }
        self.left.store(span, Relaxed);
    }

    /// Polls of a wait while others want the processor.
    fn polls_crowded(&self) -> u32 {
        let is_trial = self.left.load(Relaxed).is_multiple_of(WAITS_PER_TRIAL);
        let pays = self.points.load(Relaxed) >= POINTS_MIN;
        if pays || is_trial { POLLS_CROWDED } else { 0 }
    }

    /// Whether the few polls of a wait have ended it.
    fn note_polls(&self, have_ended_it: bool) {
        let points = self.points.load(Relaxed);
        let points =
            if have_ended_it { (points + 1).min(POINTS_MAX) } else { points.saturating_sub(2) };
        self.points.store(points, Relaxed);
    }

    /// A wait has yielded, and no other thread ran.
    fn note_calm(&self) {
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
        } else {
            self.calm.store(self.calm.load(Relaxed).saturating_add(1), Relaxed);
        }
    }
}

impl Default for Crowding {
    fn default() -> Self {
        Crowding::new()
    }
}

/// The polls and yields of one wait.
#[derive(Debug)]
pub struct WaitPlan<'a> {
    crowding: &'a Crowding,
    adapts: bool,
    /// Polls before the yields.
    pub spin: u32,
    /// Yields before the sleep.
    pub yields: u32,
    /// The count of polls at which to test for other threads.
    next_probe: u32,
    /// Whether it polls a little although others want the processor.
    is_trial: bool,
    /// This thread's switches before its first yield.
    switches: Option<u64>,
}

impl<'a> WaitPlan<'a> {
    /// Begins a wait.
    pub fn new(policy: &WaitPolicy, crowding: &'a Crowding) -> Self {
        let WaitPolicy { spin, yields, adapts, .. } = *policy;
        // A wait that polls less than that loses less than a test costs.
        let adapts = adapts && spin > POLLS_BEFORE_PROBE;
        let next_probe = if adapts { POLLS_BEFORE_PROBE } else { u32::MAX };
        let switches = None;
        let is_trial = false;
        let mut plan = WaitPlan { crowding, adapts, spin, yields, next_probe, is_trial, switches };
        if adapts && crowding.is_crowded() {
            plan.give_way();
        }
        plan
    }

    fn give_way(&mut self) {
        self.spin = self.crowding.polls_crowded();
        self.is_trial = self.spin > 0;
        self.next_probe = u32::MAX;
        self.yields = self.yields.min(YIELDS_CROWDED);
    }

    /// Yields if it is time to test for other threads; `true` if one ran. From then on the wait
    /// hardly polls.
    #[inline]
    pub fn gives_way_after(&mut self, polls: u32) -> bool {
        polls >= self.next_probe && self.gives_way()
    }

    #[cold]
    fn gives_way(&mut self) -> bool {
        self.next_probe = self.next_probe.saturating_add(POLLS_PER_PROBE);
        let before = switches();
        yield_now();
        let is_crowded = switches() != before;
        if is_crowded {
            self.crowding.note_switch();
            self.give_way();
        }
        is_crowded
    }

    /// Lets another thread run.
    pub fn yield_now(&mut self) {
        self.yield_by(yield_now);
    }

    /// As [`yield_now`](Self::yield_now), by this function.
    pub fn yield_by(&mut self, yield_now: fn()) {
        if self.adapts && self.switches.is_none() {
            self.switches = Some(switches());
        }
        yield_now();
    }
}

impl Drop for WaitPlan<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            self.crowding.note_polls(self.switches.is_none());
        }
        match self.switches {
            Some(before) if switches() != before => self.crowding.note_switch(),
            Some(_) => self.crowding.note_calm(),
            None if self.is_trial => self.crowding.note_calm(),
            None => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Stands for the kernel's count in tests of this file: other programs move that.
        static SWITCHES: Cell<Option<u64>> = const { Cell::new(None) };
    }

    pub(super) fn switches() -> u64 {
        SWITCHES.get().unwrap_or_else(tagmatch_os::process::switches)
    }

    fn waits_until_calm(crowding: &Crowding) -> u32 {
        let mut waits = 0;
        while crowding.is_crowded() {
            crowding.note_calm();
            waits += 1;
        }
        waits
    }

    #[test]
    fn polling_is_tried_again_ever_later_while_it_is_in_vain_and_soon_after_a_calm_time() {
        let crowding = Crowding::new();
        assert!(!crowding.is_crowded());
        crowding.note_switch();
        assert_eq!(waits_until_calm(&crowding), WAITS_MIN);
        for doubled in [2, 4, 8] {
            crowding.note_calm();
            crowding.note_switch();
            assert_eq!(waits_until_calm(&crowding), doubled * WAITS_MIN);
        }
        (0..8 * WAITS_MIN).for_each(|_| crowding.note_calm());
        crowding.note_switch();
        assert_eq!(waits_until_calm(&crowding), WAITS_MIN);
        for _ in 0..40 {
            crowding.note_switch();
            waits_until_calm(&crowding);
        }
        crowding.note_switch();
        assert_eq!(waits_until_calm(&crowding), WAITS_MAX);
    }

    #[test]
    fn while_others_want_the_processor_each_switch_begins_the_time_anew() {
        let crowding = Crowding::new();
        crowding.note_switch();
        (1..WAITS_MIN).for_each(|_| crowding.note_calm());
        crowding.note_switch();
        assert_eq!(waits_until_calm(&crowding), WAITS_MIN);
    }

    #[test]
    fn a_wait_of_a_crowded_worker_hardly_polls_unless_its_policy_is_fixed() {
        let crowding = Crowding::new();
        let policy = WaitPolicy::SLEEP.spin(20_000).yields(2_000);
        let waits = |policy: &WaitPolicy| {
            let plan = WaitPlan::new(policy, &crowding);
            (plan.spin, plan.yields)
        };
        assert_eq!(waits(&policy), (20_000, 2_000));
        crowding.note_switch();
        assert_eq!(waits(&policy), (POLLS_CROWDED, YIELDS_CROWDED));
        assert_eq!(waits(&policy.adapts(false)), (20_000, 2_000));
        assert_eq!(waits(&policy.yields(3)), (POLLS_CROWDED, 3));
    }

    #[test]
    fn a_switch_during_the_yields_of_a_wait_is_noted_and_so_is_its_absence() {
        SWITCHES.set(Some(0));
        let crowding = Crowding::new();
        let policy = WaitPolicy::SLEEP.spin(20_000).yields(2_000);
        WaitPlan::new(&policy, &crowding).yield_by(|| {});
        assert!(!crowding.is_crowded());
        let mut plan = WaitPlan::new(&policy, &crowding);
        plan.yield_by(|| SWITCHES.set(Some(1)));
        plan.yield_by(|| {});
        drop(plan);
        assert_eq!(waits_until_calm(&crowding), WAITS_MIN);
    }

    /// Waits until none is crowded; each ends by its polls if it has some. How many had none.
    fn waits_without_polls(crowding: &Crowding) -> u32 {
        let policy = WaitPolicy::SLEEP.spin(20_000).yields(2_000);
        let mut without = 0;
        while crowding.is_crowded() {
            let mut plan = WaitPlan::new(&policy, crowding);
            if plan.spin == 0 {
                without += 1;
                plan.yield_by(|| {});
            }
        }
        without
    }

    #[test]
    fn a_few_polls_go_on_while_they_end_waits_and_are_tried_again_after_they_did_not() {
        SWITCHES.set(Some(0));
        let crowding = Crowding::new();
        crowding.note_switch();
        assert_eq!(waits_without_polls(&crowding), 0, "a stranger runs, and messages come");
        let policy = WaitPolicy::SLEEP.spin(20_000).yields(2_000);
        crowding.note_switch();
        for _ in 0..3 {
            WaitPlan::new(&policy, &crowding).yield_by(|| {});
        }
        crowding.left.store(8 * WAITS_PER_TRIAL, Relaxed);
        let without = waits_without_polls(&crowding);
        assert!((WAITS_PER_TRIAL - 1..4 * WAITS_PER_TRIAL).contains(&without), "{without}");
    }
}
