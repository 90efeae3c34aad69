//! Safety timers: they end a sleep that nothing else has ended.
//!
//! No code relies on a safety timer: whatever there is to do wakes the thread that sleeps. A
//! hostile peer may clear the bits by which a thread would be woken; then a safety timer bounds the
//! delay. It also turns a wake-up that the code itself has lost into a delay, which no test sees.
//! So tests run without them: in a build with debug assertions, `TAGMATCH_TEST_SAFETY_TIMERS=off`
//! turns all of them off. `.cargo/config.toml` and `ci/program` set it. A build without debug
//! assertions doesn't read the variable.
//!
//! A thread sleeps for `SILENCE` then. If it was not woken, and finds work or a result
//! afterwards, a wake-up was lost: the process says who slept and what waited, and aborts. If it
//! finds nothing, it says what it waits for, and sleeps on; so a test that hangs tells where.

use std::time::Duration;
#[cfg(debug_assertions)]
use std::time::Instant;

/// How long a thread sleeps without safety timers before it looks whether a wake-up was lost. Less
/// than the patience of tests.
#[cfg(debug_assertions)]
const SILENCE: Duration = Duration::from_secs(8);
/// A sleep with a limit of its own, at least this long, is also looked at when the limit is over.
#[cfg(debug_assertions)]
const SILENCE_MIN: Duration = Duration::from_secs(3);
/// In place of a safety timer inside a device: as long as settings allow.
#[cfg(debug_assertions)]
const NEVER: Duration = Duration::from_secs(3600);

#[cfg(debug_assertions)]
fn are_off() -> bool {
    use std::sync::LazyLock;
    // Models of loom have no time.
    static ARE_OFF: LazyLock<bool> = LazyLock::new(|| {
        let named = std::env::var_os("TAGMATCH_TEST_SAFETY_TIMERS");
        !cfg!(loom) && named.is_some_and(|value| value == "off")
    });
    *ARE_OFF
}

/// The period of a safety timer: `shipped`, or an hour in tests. For timers whose end tells nobody
/// that nothing else has woken the thread.
#[inline(always)]
#[must_use]
pub fn period(shipped: Duration) -> Duration {
    #[cfg(debug_assertions)]
    if are_off() {
        return NEVER;
    }
    shipped
}

/// The longest sleep of a thread: `shipped`, or some seconds in tests. The thread looks for work
/// afterwards, and tells [`LongSleep`] whether there was some.
#[inline(always)]
#[must_use]
pub fn sleep_max(shipped: Duration) -> Duration {
    #[cfg(debug_assertions)]
    if are_off() {
        return SILENCE;
    }
    shipped
}

/// A sleep of a thread, and what it found afterwards. Empty without debug assertions.
#[derive(Debug)]
pub struct LongSleep {
    #[cfg(debug_assertions)]
    over_at: Option<Instant>,
}

impl LongSleep {
    /// The thread sleeps for at most this time from now on.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "tests alone look"))]
    pub fn begin(max: Duration) -> Self {
        LongSleep {
            #[cfg(debug_assertions)]
            over_at: (are_off() && max >= SILENCE_MIN)
                .then(|| Instant::now().checked_add(max))
                .flatten(),
        }
    }

    /// The thread is awake: something has woken it, or its time is over, or a signal has come.
    #[inline(always)]
    #[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "tests alone look"))]
    pub fn woken(&mut self, is_woken: bool) {
        #[cfg(debug_assertions)]
        {
            let is_over = |over_at: &Instant| !is_woken && Instant::now() >= *over_at;
            self.over_at = self.over_at.filter(is_over);
        }
    }

    /// Whether the whole time has passed, and nothing has woken the thread. `false` without debug
    /// assertions.
    #[inline(always)]
    #[must_use]
    pub fn is_over(&self) -> bool {
        #[cfg(debug_assertions)]
        return self.over_at.is_some();
        #[cfg(not(debug_assertions))]
        false
    }

    /// The thread has looked, and `has_found` work or a result. If nothing had woken it, a wake-up
    /// was lost, and the process aborts. `describe` says who slept, and what for.
    #[inline(always)]
    #[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "tests alone look"))]
    pub fn looked(self, has_found: bool, describe: impl FnOnce() -> String) {
        #[cfg(debug_assertions)]
        if self.is_over() {
            report(has_found, &describe());
        }
    }
}

/// Lets other threads run, in one of `one_in` calls, on average: without safety timers, a thread
/// pauses now and then between two steps between which a wake-up might be lost. Otherwise does
/// nothing.
#[inline(always)]
#[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "tests alone pause"))]
pub fn shake(one_in: u32) {
    #[cfg(debug_assertions)]
    if are_off() {
        pause_at_random(one_in);
    }
}

#[cfg(debug_assertions)]
fn pause_at_random(one_in: u32) {
    use std::cell::Cell;
    use std::hash::{BuildHasher, RandomState};
    use std::thread;

    thread_local! {
        /// Knuth's linear congruential generator of 64 bits. Its upper bits are used.
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    let next = |state: &Cell<u64>| {
        let next = state.get().wrapping_mul(6_364_136_223_846_793_005);
        state.set(next.wrapping_add(1_442_695_040_888_963_407));
        (state.get() >> 33) as u32
    };
    let number = STATE.try_with(next).unwrap_or(1);
    if number.is_multiple_of(one_in) {
        const PAUSE: Duration = Duration::from_micros(20);
        if (number / one_in).is_multiple_of(4) {
            thread::sleep(PAUSE);
        } else {
            thread::yield_now();
        }
    }
}

/// Says that a wake-up was lost, and aborts; or else, once for each thread, what it waits for.
#[cfg(debug_assertions)]
fn report(has_found: bool, sleeper: &str) {
    use std::cell::Cell;
    use std::{process, thread};

    thread_local! {
        static HAS_REPORTED: Cell<bool> = const { Cell::new(false) };
    }
    let thread = thread::current();
    let name = thread.name().unwrap_or("without a name");
    let who = format!("process {}, thread {name}: {sleeper}", process::id());
    if has_found {
        super::notice::tell(&format!(
            "tagmatch: a wake-up was lost. {who} slept until its time was over, and then found \
             something to do that had not woken it."
        ));
        process::abort();
    }
    if !HAS_REPORTED.try_with(|has_reported| has_reported.replace(true)).unwrap_or(true) {
        super::notice::tell(&format!("tagmatch: long asleep, with nothing to do. {who}"));
    }
}
