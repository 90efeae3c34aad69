//! Which threads sleep.

use crate::access::Access;
use crate::awaited::Awaited;
use crate::wait::{Limit, wait_within};
use crate::{Config, SharedWorker, WaitPolicy, Worker, WorkerOf};

/// Whether a thread that waits in vain arms the device, so as to sleep on it.
fn sleeps<A: Access>(worker: &WorkerOf<A>, awaited: Awaited<'_>) -> bool {
    const LOOKS: u32 = 1000;
    let mut looks = 0;
    let sleeps = wait_within(&worker.access, awaited, &Limit::NONE, |state| {
        looks += 1;
        let events = state.progress();
        let sleeps = state.is_armed();
        (events, (sleeps || looks == LOOKS).then_some(sleeps))
    });
    sleeps.unwrap()
}

fn config(sleep: bool) -> Config {
    Config::default().wait(WaitPolicy::SLEEP.sleep(sleep))
}

#[test]
fn no_thread_sleeps_against_its_settings() {
    assert!(sleeps(&Worker::new(config(true)).unwrap(), Awaited::Nothing));
    assert!(!sleeps(&Worker::new(config(false)).unwrap(), Awaited::Nothing));
    assert!(!sleeps(&SharedWorker::new(config(false)).unwrap(), Awaited::Ends));
}

/// Another thread may take what it waits for, and has no waker for it.
#[test]
fn no_thread_sleeps_that_nobody_would_wake() {
    assert!(!sleeps(&SharedWorker::new(config(true)).unwrap(), Awaited::Nothing));
}
