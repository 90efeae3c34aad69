//! Legs from both ends, and whatever an end may get wrong.

use super::super::peer;
use super::*;
use crate::link::Unlinked;
use crate::payload::Corrupt;
use crate::spec::{HwTagsArg, Order, Queue};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread::JoinHandle;

const LIMITS: Limits = Limits {
    iters: 100,
    time: Duration::from_secs(20),
    warmup_iters: 10,
    warmup_time: Duration::from_secs(20),
};

fn leg(traffic: Traffic) -> Leg {
    let leg = Leg {
        traffic,
        size: 1000,
        window: 8,
        batch: 32,
        posted_depth: 5,
        unexpected_depth: 7,
        wildcard_percent: 40,
        ..Leg::sample()
    };
    leg.check().unwrap();
    leg
}

fn drain(queue: Queue) -> Leg {
    leg(Traffic::Drain { queue, order: Order::Random, seed: 3 })
}

const PACED: Traffic = Traffic::Paced { interval_ps: 10_000_000 };

/// A side that is asked for one leg, which `play` then plays.
fn other<A: Handle>(
    play: impl FnOnce(&Control, &Leg, UnlinkedOf<A>) -> Answer + Send + 'static,
) -> (Control, JoinHandle<()>) {
    let control =
        |stream: UnixStream| Control::new(stream.try_clone().unwrap(), stream, || ()).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let other = std::thread::spawn(move || {
        let mut control = control(theirs);
        let Ok(Ask::Leg(leg)) = control.receive(READY_TIME) else { panic!("no leg") };
        let [_, theirs] = leg.matchers();
        let unlinked = UnlinkedOf::<A>::new(&leg.device, leg.needs(), theirs).unwrap();
        control
            .send(&Answer::Ready { address: unlinked.address(), device: leg.device.clone() })
            .unwrap();
        let answer = play(&control, &leg, unlinked);
        // Whoever has found something wrong may have gone already.
        let _ = control.send(&answer);
    });
    (control(ours), other)
}

fn by_the_book<A: Handle>(control: &Control, leg: &Leg, unlinked: UnlinkedOf<A>) -> Answer {
    let matching = peer::run(control, leg, unlinked, None).unwrap();
    Answer::Done { matching }
}

#[test]
fn legs_from_both_ends() {
    let threads = |traffic| Leg { threads: Some(3), ..leg(traffic) };
    let single = |leg| Leg { single_buffer: true, ..leg };
    let both = Traffic::Both;
    // The last batch of a drain is whole as well.
    for (leg, iters, receives, samples) in [
        (leg(Traffic::PingPong), 100, 200, 100),
        (leg(Traffic::Stream), 100, 100, 0),
        (leg(both), 100, 200, 0),
        (leg(PACED), 100, 100, 100),
        (drain(Queue::Posted), 128, 128, 0),
        (drain(Queue::Unexpected), 128, 128, 0),
        (threads(Traffic::PingPong), 300, 600, 300),
        (threads(Traffic::Stream), 300, 300, 0),
        (threads(both), 300, 600, 0),
        (Leg { threads: Some(1), ..leg(Traffic::PingPong) }, 100, 200, 100),
        (single(leg(Traffic::PingPong)), 100, 200, 100),
        (single(leg(Traffic::Stream)), 100, 100, 0),
        (single(Leg { size: 0, ..leg(Traffic::Stream) }), 100, 100, 0),
        (single(leg(both)), 100, 200, 0),
        (single(threads(both)), 300, 600, 0),
        // Larger than what is sent at once, windows that don't divide the batch.
        (single(Leg { size: 20_000, window: 7, ..leg(both) }), 100, 200, 0),
        (Leg { size: 20_000, window: 7, ..leg(both) }, 100, 200, 0),
        (Leg { size: 20_000, window: 7, ..leg(Traffic::Stream) }, 100, 100, 0),
        (single(Leg { size: 20_000, ..leg(Traffic::PingPong) }), 100, 200, 100),
        (Leg { size: 20_000, ..drain(Queue::Unexpected) }, 128, 128, 0),
        (Leg { size: 20_000, ..leg(PACED) }, 100, 100, 100),
        (Leg { idle_peers: 3, ..leg(Traffic::PingPong) }, 100, 200, 100),
    ] {
        let (mut control, other) = match leg.threads {
            None => other::<Local>(by_the_book),
            Some(_) => other::<Shared>(by_the_book),
        };
        let measured =
            run(&mut control, &DeviceArg::Shm, &mut leg.clone(), LIMITS, || true).unwrap();
        other.join().unwrap();
        let Matching { hardware, posted, unexpected, not_offloaded, .. } = measured.matching;
        assert_eq!(hardware + posted + unexpected, receives, "{leg:?}");
        assert_eq!(not_offloaded.off, posted, "{leg:?}");
        assert_eq!((measured.iters, measured.samples.count()), (iters, samples), "{leg:?}");
        assert_eq!(measured.checked.is_some(), leg.single_buffer);
        let each: Vec<_> = measured.threads.iter().map(|thread| thread.iters).collect();
        assert_eq!(each, if leg.lanes() == 3 { vec![100; 3] } else { vec![] });
        match leg.traffic {
            Traffic::Drain { queue: Queue::Posted, .. } => assert_eq!(posted, receives),
            Traffic::Drain { .. } => assert_eq!(unexpected, receives),
            _ => assert!(measured.rounds.is_none()),
        }
        assert_eq!(measured.pace.is_some(), leg.traffic == PACED);
    }
}

#[test]
fn a_nic_matches_where_messages_come_to() {
    let nic =
        |traffic, slots| Leg { size: 4096, hw_tags: HwTagsArg::Model { slots }, ..leg(traffic) };
    let posted = |order| Traffic::Drain { queue: Queue::Posted, order, seed: 3 };
    for (leg, receives) in [
        (nic(Traffic::PingPong, 127), 200),
        (nic(Traffic::Stream, 127), 100),
        (nic(Traffic::Both, 3), 200),
        (nic(PACED, 127), 100),
        (nic(posted(Order::Random), 127), 128),
        (nic(posted(Order::Adversarial), 5), 128),
        (Leg { size: 20_000, ..nic(Traffic::Both, 1) }, 200),
        (Leg { wildcard_recv: true, ..nic(Traffic::PingPong, 127) }, 200),
        (Leg { idle_peers: 2, ..nic(Traffic::Stream, 127) }, 100),
        (Leg { single_buffer: true, ..nic(Traffic::Stream, 127) }, 100),
    ] {
        let (mut control, other) = other::<Local>(by_the_book);
        let measured =
            run(&mut control, &DeviceArg::Shm, &mut leg.clone(), LIMITS, || true).unwrap();
        other.join().unwrap();
        let Matching { hardware, posted, unexpected, by_device: _, not_offloaded, list_faults } =
            measured.matching;
        assert_eq!(hardware + posted + unexpected, receives, "{leg:?}");
        assert!(hardware > 0, "{leg:?}: {:?}", measured.matching);
        assert_eq!((not_offloaded.total(), not_offloaded.off), (posted, 0), "{leg:?}");
        assert_eq!(list_faults, 0);
    }
    // Three threads a side.
    let leg = Leg { threads: Some(3), ..nic(Traffic::Both, 127) };
    let (mut control, other) = other::<Shared>(by_the_book);
    let matching =
        run(&mut control, &DeviceArg::Shm, &mut leg.clone(), LIMITS, || true).unwrap().matching;
    other.join().unwrap();
    assert_eq!(matching.hardware + matching.posted + matching.unexpected, 600);
    assert_eq!(matching.not_offloaded.total(), matching.posted);
}

#[test]
fn legs_alone() {
    for (threads, traffic, iters, samples) in [
        (None, Traffic::PingPong, 100, 100),
        (None, Traffic::Stream, 100, 0),
        (Some(2), Traffic::PingPong, 200, 200),
        (Some(3), Traffic::Stream, 300, 0),
    ] {
        for single_buffer in [false, true] {
            let leg = Leg { threads, single_buffer, idle_peers: 1, ..leg(traffic) };
            let measured = run_alone(&leg, LIMITS, || true).unwrap();
            let Matching { posted, unexpected, .. } = measured.matching;
            assert_eq!((measured.iters, posted + unexpected), (iters, iters), "{leg:?}");
            assert_eq!((measured.samples.count(), measured.ways), (samples, 1), "{leg:?}");
        }
    }
}

#[test]
fn a_plan_begins_when_both_sides_are_ready() {
    // More ns than 32 bits hold, as with a million receives to post first.
    let slow = |control: &Control, leg: &Leg, unlinked: Unlinked| {
        std::thread::sleep(Duration::from_nanos(u64::from(u32::MAX) + 1));
        by_the_book(control, leg, unlinked)
    };
    let (mut control, other) = other::<Local>(slow);
    let limits = Limits { iters: 5, warmup_iters: 0, ..LIMITS };
    let measured = run(&mut control, &DeviceArg::Shm, &mut leg(PACED), limits, || true).unwrap();
    other.join().unwrap();
    assert_eq!((measured.iters, measured.samples.count()), (5, 5));
}

/// Interrupted when `time` has passed: in the midst of it, or in the set-up if that took longer.
fn interrupted_after(time: Duration, leg: &Leg, limits: Limits) -> Result<Measured, Failure> {
    let (mut control, other) =
        other::<Local>(|control, leg, unlinked| match peer::run(control, leg, unlinked, None) {
            Ok(matching) => Answer::Done { matching },
            Err(error) => Answer::Failed { why: error.to_string() },
        });
    let start = Instant::now();
    let measured =
        run(&mut control, &DeviceArg::Shm, &mut leg.clone(), limits, || start.elapsed() < time);
    drop(control);
    other.join().unwrap();
    measured
}

#[test]
fn an_end_before_its_time_keeps_what_was_measured() {
    for leg in [leg(Traffic::PingPong), leg(Traffic::Both), drain(Queue::Posted), leg(PACED)] {
        for warm_up in [true, false] {
            let (time, most) = (Duration::from_secs(3600), 1 << 40);
            let limits = match warm_up {
                true => Limits { warmup_iters: most, warmup_time: time, ..LIMITS },
                false => Limits { iters: most, time, warmup_iters: 0, ..LIMITS },
            };
            let measured = (0..).map(|tries| Duration::from_millis(50 << tries)).find_map(|time| {
                match interrupted_after(time, &leg, limits) {
                    Err(Failure::Interrupted) => None,
                    measured => Some(measured.unwrap()),
                }
            });
            let measured = measured.unwrap();
            assert!(measured.interrupted, "{leg:?}");
            assert_eq!(measured.iters == 0, warm_up, "{leg:?}");
            if leg.traffic != PACED {
                assert!(measured.iters.is_multiple_of(32), "{leg:?}");
            }
        }
    }
}

#[test]
fn set_up_is_interrupted_wherever_it_is() {
    let many = Leg { posted_depth: 1 << 20, unexpected_depth: 1 << 20, ..leg(Traffic::PingPong) };
    let idle = Leg { idle_peers: 1024, ..leg(Traffic::PingPong) };
    for leg in [many, idle, Leg { unexpected_depth: 0, ..leg(Traffic::PingPong) }] {
        // The other side is never ready.
        let (over, waits) = channel::<()>();
        let (mut control, other) = other::<Local>(move |control, leg, unlinked| {
            let link = unlinked.connect(&leg.address, control.attention()).unwrap();
            while waits.try_recv() == Err(TryRecvError::Empty) {
                link.progress();
            }
            Answer::Failed { why: "left alone".into() }
        });
        let mut looks = 0;
        let go_on = || {
            looks += 1;
            looks < 100
        };
        let ended = run(&mut control, &DeviceArg::Shm, &mut leg.clone(), LIMITS, go_on);
        assert!(matches!(ended, Err(Failure::Interrupted)), "{leg:?}");
        drop(over);
        other.join().unwrap();
        let mut looks = 0;
        let alone = run_alone(&leg, LIMITS, || {
            looks += 1;
            looks < 2
        });
        assert!(matches!(alone, Err(Failure::Interrupted)), "{leg:?}");
    }
}

/// The other side believes that nothing is checked, and sends zeros.
fn lazy<A: Handle>(control: &Control, leg: &Leg, unlinked: UnlinkedOf<A>) -> Answer {
    // It is left alone in the midst of it; that must not matter here.
    let ended = peer::run(control, &Leg { validate: false, ..leg.clone() }, unlinked, None);
    assert!(ended.is_err());
    Answer::Failed { why: "left alone".into() }
}

/// The side that begins: `leg` is what the other one is told, `ours` what is measured here.
fn measure_with<A: Handle>(
    control: &mut Control,
    mut leg: Leg,
    ours: impl FnOnce(Leg) -> Leg,
) -> MeasureError {
    let [matcher, _] = leg.matchers();
    let unlinked = UnlinkedOf::<A>::new(&leg.device, leg.needs(), matcher).unwrap();
    leg.address = unlinked.address();
    control.send(&Ask::Leg(leg.clone())).unwrap();
    let Ok(Answer::Ready { address, .. }) = control.receive(READY_TIME) else { panic!() };
    let measured = measure(control, &ours(leg), unlinked, &address, LIMITS, &mut || true).map(drop);
    measured.unwrap_err()
}

#[test]
fn wrong_bytes_are_found_on_this_side() {
    let single = |traffic| Leg { single_buffer: true, ..leg(traffic) };
    for leg in [
        leg(Traffic::PingPong),
        leg(Traffic::Both),
        drain(Queue::Posted),
        drain(Queue::Unexpected),
        single(Traffic::PingPong),
        single(Traffic::Both),
    ] {
        let (mut control, other) = other::<Local>(lazy);
        let error = measure_with::<Local>(&mut control, leg.clone(), |leg| leg);
        assert!(matches!(&error, MeasureError::Corrupt(Corrupt { .. })), "{leg:?}: {error}");
        drop(control);
        other.join().unwrap();
    }
    let (mut control, other) = other::<Shared>(lazy);
    let leg = Leg { threads: Some(2), ..leg(Traffic::PingPong) };
    let error = measure_with::<Shared>(&mut control, leg, |leg| leg);
    assert!(matches!(&error, MeasureError::Corrupt(_)), "{error}");
    drop(control);
    other.join().unwrap();
}

#[test]
fn wrong_bytes_are_found_on_the_other_side() {
    fn strict<A: Handle>(control: &Control, leg: &Leg, unlinked: UnlinkedOf<A>) -> Answer {
        let error = peer::run(control, leg, unlinked, None).unwrap_err();
        assert!(matches!(&error, MeasureError::Corrupt(_)), "{error}");
        Answer::Failed { why: error.to_string() }
    }
    let lazy = |leg| Leg { validate: false, ..leg };
    let single = Leg { single_buffer: true, ..leg(Traffic::Stream) };
    for leg in [leg(Traffic::Stream), leg(PACED), leg(Traffic::PingPong), single] {
        let (mut control, other) = other::<Local>(strict);
        let error = measure_with::<Local>(&mut control, leg.clone(), lazy);
        let failure = explain(&mut control, error);
        assert!(failure.to_string().contains("verification failed: message 0"), "{failure}");
        other.join().unwrap();
    }
    let (mut control, other) = other::<Shared>(strict);
    let leg = Leg { threads: Some(2), ..leg(Traffic::Stream) };
    let error = measure_with::<Shared>(&mut control, leg, lazy);
    let failure = explain(&mut control, error);
    assert!(failure.to_string().contains("verification failed: message 0"), "{failure}");
    other.join().unwrap();
}

#[test]
fn a_message_of_another_length_is_found() {
    let shorter = |control: &Control, leg: &Leg, unlinked: Unlinked| {
        let leg = Leg { size: leg.size - 1, validate: false, ..leg.clone() };
        assert!(peer::run(control, &leg, unlinked, None).is_err());
        Answer::Failed { why: "left alone".into() }
    };
    for leg in [leg(Traffic::PingPong), drain(Queue::Unexpected)] {
        let (mut control, other) = other::<Local>(shorter);
        let error = measure_with::<Local>(&mut control, leg, |leg| leg);
        let found = matches!(&error, MeasureError::Length { found: 999, wanted: 1000 });
        assert!(found, "{error}");
        drop(control);
        other.join().unwrap();
    }
}
