//! How workers meet that have other secrets, that have as many peers as they may have, or of which
//! one changes its mind.

mod scripted;

use std::time::{Duration, Instant};

use tagmatch_device::{Device, DeviceError, DownReason, PeerId};
use tagmatch_secret::Secret;
use tagmatch_testkit::device::{
    Owned, connect, message, next_down, next_message, poll, up, wait_for,
};
use tagmatch_verbs::{Verbs, VerbsConfig};

use scripted::{Card, config, install};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_millis(100);

fn settings() -> VerbsConfig {
    config("a").connect_timeout(CONNECT)
}

fn verbs(settings: VerbsConfig) -> Verbs {
    up(Verbs::new(settings).unwrap())
}

fn of_job(byte: u8) -> Verbs {
    verbs(settings().secret(Some(Secret::from_bytes(&[byte; 16]).unwrap())))
}

/// Polls a worker that nobody reaches, for longer than connecting may take.
fn stay_alone(worker: &mut Verbs) {
    let start = Instant::now();
    while start.elapsed() < 2 * CONNECT {
        assert!(poll(worker).is_none());
    }
}

fn end_of(devices: &mut [&mut Verbs], of: usize) -> DownReason {
    wait_for(devices, "an end", |index, event| match event {
        Owned::Down(_, reason) => {
            assert_eq!(index, of, "{reason:?}");
            Some(reason)
        }
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_worker_of_another_job_is_not_taken_and_hears_of_the_secret() {
    install(&[Card::infiniband("a", 1, 0)]);
    let others = [of_job(2), verbs(settings())];
    for mut other in others {
        let mut own = of_job(1);
        for calls in [true, false] {
            let pair = [&mut own, &mut other];
            let address = pair[usize::from(calls)].address();
            pair[usize::from(!calls)].connect(&address).unwrap();
            let reason = end_of(&mut [&mut own, &mut other], usize::from(!calls));
            let is_told =
                matches!(reason, DownReason::Misbehaved { what } if what.contains("secret"));
            assert!(is_told, "{reason:?}");
        }
        connect(&mut own, &mut of_job(1));
    }
}

#[test]
fn a_worker_with_as_many_peers_as_it_may_have_takes_others_when_one_has_left() {
    install(&[Card::infiniband("a", 1, 0)]);
    let mut center = verbs(settings().peers_max(1));
    let mut first = verbs(settings());
    let (_, to_first) = connect(&mut first, &mut center);
    let mut second = verbs(settings());
    second.connect(&center.address()).unwrap();
    let reason = end_of(&mut [&mut center, &mut second], 1);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::EUSERS });
    let refused = center.connect(&verbs(settings()).address());
    assert!(matches!(refused, Err(DeviceError::Exhausted { limit: 1, .. })), "{refused:?}");
    center.send(to_first, message(b"go on")).unwrap();
    assert_eq!(next_message(&mut [&mut first]), b"go on");
    drop(first);
    assert_eq!(next_down(&mut center), (to_first, DownReason::Left));
    connect(&mut verbs(settings()), &mut center);
}

#[test]
fn a_worker_that_nobody_answers_is_told_when_its_time_is_over() {
    install(&[Card::infiniband("a", 1, 0)]);
    let mut worker = verbs(settings());
    let peer = worker.connect(&verbs(settings()).address()).unwrap();
    let reason = DownReason::Unreachable { errno: libc::ETIMEDOUT };
    assert_eq!(next_down(&mut worker), (peer, reason));
}

/// The peer accepts a worker that has disconnected meanwhile. It tells its program nothing of that
/// connection, which never was; and when the program calls the worker later, how that ends.
#[test]
fn a_disconnect_before_the_answer_ends_the_attempt_on_both_sides() {
    install(&[Card::infiniband("a", 1, 0)]);
    let mut caller = verbs(settings());
    let mut peer = verbs(settings());
    let to_peer = caller.connect(&peer.address()).unwrap();
    assert!(poll(&mut caller).is_none());
    caller.disconnect(to_peer);
    assert_eq!(next_down(&mut caller), (to_peer, DownReason::Disconnected));
    stay_alone(&mut peer);
    stay_alone(&mut caller);
    let to_caller = peer.connect(&caller.address()).unwrap();
    let down = wait_for(&mut [&mut caller, &mut peer], "an end", |index, event| match event {
        Owned::Down(peer, reason) if index == 1 => Some((peer, reason)),
        other => panic!("{other:?}"),
    });
    assert_eq!(down, (to_caller, DownReason::Unreachable { errno: libc::ECONNRESET }));
    assert_ne!(to_caller, PeerId::ONESELF);
    connect(&mut verbs(settings()), &mut peer);
}
