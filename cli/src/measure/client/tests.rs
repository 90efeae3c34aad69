//! Cases run from both sides, and mistakes that each side can make.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread::JoinHandle;

use super::super::peer;
use super::*;
use crate::link::Unlinked;
use crate::payload::Corrupt;
use crate::spec::{Completions, HwTagsArg, Order, Queue};

const LIMITS: Limits = Limits {
    iters: 100,
    time: Duration::from_secs(20),
    warmup_iters: 10,
    warmup_time: Duration::from_secs(20),
};

fn case(traffic: Traffic) -> Case {
    let case = Case {
        traffic,
        size: 1000,
        window: 8,
        batch: 32,
        posted_depth: 5,
        unexpected_depth: 7,
        wildcard_percent: 40,
        ..Case::sample()
    };
    case.check().unwrap();
    case
}

fn queued(case: Case) -> Case {
    Case { completions: Completions::Queue, ..case }
}

fn drain(queue: Queue) -> Case {
    case(Traffic::Drain { queue, order: Order::Random, seed: 3 })
}

const PLANNED: Traffic = Traffic::Planned { interval_ps: 10_000_000 };

/// The other side: it receives one case and calls `play` with it.
fn other<A: RunThreads>(
    play: impl FnOnce(&Control, &Case, UnlinkedOf<A>) -> Answer + Send + 'static,
) -> (Control, JoinHandle<()>) {
    let control =
        |stream: UnixStream| Control::new(stream.try_clone().unwrap(), stream, || ()).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let other = std::thread::spawn(move || {
        let mut control = control(theirs);
        let Ok(Ask::Case(case)) = control.receive(READY_TIME) else { panic!("no case") };
        let [_, theirs] = case.matchers();
        let unlinked = UnlinkedOf::<A>::new(&case.device, case.needs(), theirs).unwrap();
        control
            .send(&Answer::Ready { address: unlinked.address(), device: case.device.clone() })
            .unwrap();
        let answer = play(&control, &case, unlinked);
        // The client may have found a mistake and gone.
        let _ = control.send(&answer);
    });
    (control(ours), other)
}

fn by_the_book<A: RunThreads>(control: &Control, case: &Case, unlinked: UnlinkedOf<A>) -> Answer {
    let matching = peer::run(control, case, unlinked, None).unwrap();
    Answer::Done { matching }
}

#[test]
fn legs_from_both_ends() {
    let threads = |traffic| Case { threads: Some(3), ..case(traffic) };
    let single = |case| Case { single_buffer: true, ..case };
    let both = Traffic::Both;
    // The last batch of a drain is whole as well.
    for (case, iters, receives, samples) in [
        (case(Traffic::PingPong), 100, 200, 100),
        (case(Traffic::Stream), 100, 100, 0),
        (case(both), 100, 200, 0),
        (case(PLANNED), 100, 100, 100),
        (drain(Queue::Posted), 128, 128, 0),
        (drain(Queue::Unexpected), 128, 128, 0),
        (threads(Traffic::PingPong), 300, 600, 300),
        (threads(Traffic::Stream), 300, 300, 0),
        (threads(both), 300, 600, 0),
        (Case { threads: Some(1), ..case(Traffic::PingPong) }, 100, 200, 100),
        (single(case(Traffic::PingPong)), 100, 200, 100),
        (single(case(Traffic::Stream)), 100, 100, 0),
        (single(Case { size: 0, ..case(Traffic::Stream) }), 100, 100, 0),
        (single(case(both)), 100, 200, 0),
        (single(threads(both)), 300, 600, 0),
        // Larger than what is sent at once, windows that don't divide the batch.
        (single(Case { size: 20_000, window: 7, ..case(both) }), 100, 200, 0),
        (Case { size: 20_000, window: 7, ..case(both) }, 100, 200, 0),
        (Case { size: 20_000, window: 7, ..case(Traffic::Stream) }, 100, 100, 0),
        (single(Case { size: 20_000, ..case(Traffic::PingPong) }), 100, 200, 100),
        (Case { size: 20_000, ..drain(Queue::Unexpected) }, 128, 128, 0),
        (Case { size: 20_000, ..case(PLANNED) }, 100, 100, 100),
        (Case { idle_peers: 3, ..case(Traffic::PingPong) }, 100, 200, 100),
        (queued(case(Traffic::Stream)), 100, 100, 0),
        (queued(case(both)), 100, 200, 0),
        (queued(Case { threads: Some(1), ..case(both) }), 100, 200, 0),
        (queued(single(case(Traffic::Stream))), 100, 100, 0),
        (queued(single(case(both))), 100, 200, 0),
        (queued(Case { size: 20_000, window: 7, ..case(Traffic::Stream) }), 100, 100, 0),
        (queued(Case { size: 20_000, window: 7, ..case(both) }), 100, 200, 0),
        (queued(single(Case { size: 20_000, window: 1, ..case(both) })), 100, 200, 0),
        (queued(Case { wildcard_recv: true, ..case(both) }), 100, 200, 0),
    ] {
        let (mut control, other) = match case.threads {
            None => other::<Local>(by_the_book),
            Some(_) => other::<Shared>(by_the_book),
        };
        let measured =
            run(&mut control, &DeviceArg::Shm, &mut case.clone(), LIMITS, || true).unwrap();
        other.join().unwrap();
        let Matching { hardware, posted, unexpected, not_offloaded, .. } = measured.matching;
        assert_eq!(hardware + posted + unexpected, receives, "{case:?}");
        assert_eq!(not_offloaded.off, posted, "{case:?}");
        assert_eq!((measured.iters, measured.samples.count()), (iters, samples), "{case:?}");
        assert_eq!(measured.checked.is_some(), case.single_buffer);
        let each: Vec<_> = measured.threads.iter().map(|thread| thread.iters).collect();
        assert_eq!(each, if case.thread_count() == 3 { vec![100; 3] } else { vec![] });
        match case.traffic {
            Traffic::Drain { queue: Queue::Posted, .. } => assert_eq!(posted, receives),
            Traffic::Drain { .. } => assert_eq!(unexpected, receives),
            _ => assert!(measured.rounds.is_none()),
        }
        assert_eq!(measured.pace.is_some(), case.traffic == PLANNED);
    }
}

#[test]
fn a_nic_matches_where_messages_come_to() {
    let nic =
        |traffic, slots| Case { size: 4096, hw_tags: HwTagsArg::Model { slots }, ..case(traffic) };
    let posted = |order| Traffic::Drain { queue: Queue::Posted, order, seed: 3 };
    for (case, receives) in [
        (nic(Traffic::PingPong, 127), 200),
        (nic(Traffic::Stream, 127), 100),
        (nic(Traffic::Both, 3), 200),
        (nic(PLANNED, 127), 100),
        (nic(posted(Order::Random), 127), 128),
        (nic(posted(Order::Adversarial), 5), 128),
        (Case { size: 20_000, ..nic(Traffic::Both, 1) }, 200),
        (Case { wildcard_recv: true, ..nic(Traffic::PingPong, 127) }, 200),
        (Case { idle_peers: 2, ..nic(Traffic::Stream, 127) }, 100),
        (Case { single_buffer: true, ..nic(Traffic::Stream, 127) }, 100),
        (queued(nic(Traffic::Stream, 127)), 100),
        (queued(Case { size: 20_000, ..nic(Traffic::Both, 3) }), 200),
    ] {
        let (mut control, other) = other::<Local>(by_the_book);
        let measured =
            run(&mut control, &DeviceArg::Shm, &mut case.clone(), LIMITS, || true).unwrap();
        other.join().unwrap();
        let Matching { hardware, posted, unexpected, not_offloaded, list_faults, .. } =
            measured.matching;
        assert_eq!(hardware + posted + unexpected, receives, "{case:?}");
        assert!(hardware > 0, "{case:?}: {:?}", measured.matching);
        assert_eq!((not_offloaded.total(), not_offloaded.off), (posted, 0), "{case:?}");
        assert_eq!(list_faults, 0);
    }
    // Three threads a side.
    let case = Case { threads: Some(3), ..nic(Traffic::Both, 127) };
    let (mut control, other) = other::<Shared>(by_the_book);
    let matching =
        run(&mut control, &DeviceArg::Shm, &mut case.clone(), LIMITS, || true).unwrap().matching;
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
        let can_queue = threads.is_none() && traffic == Traffic::Stream;
        let ways = [Completions::Requests, Completions::Queue];
        let ways = ways.into_iter().take(if can_queue { 2 } else { 1 });
        for (single_buffer, completions) in ways.flat_map(|way| [(false, way), (true, way)]) {
            let case = Case { threads, single_buffer, completions, idle_peers: 1, ..case(traffic) };
            let measured = run_alone(&case, LIMITS, || true).unwrap();
            let Matching { posted, unexpected, .. } = measured.matching;
            assert_eq!((measured.iters, posted + unexpected), (iters, iters), "{case:?}");
            assert_eq!((measured.samples.count(), measured.ways), (samples, 1), "{case:?}");
        }
    }
}

#[test]
fn a_plan_begins_when_both_sides_are_ready() {
    // More ns than 32 bits hold, as with a million receives to post first.
    let slow = |control: &Control, case: &Case, unlinked: Unlinked| {
        std::thread::sleep(Duration::from_nanos(u64::from(u32::MAX) + 1));
        by_the_book(control, case, unlinked)
    };
    let (mut control, other) = other::<Local>(slow);
    let limits = Limits { iters: 5, warmup_iters: 0, ..LIMITS };
    let measured = run(&mut control, &DeviceArg::Shm, &mut case(PLANNED), limits, || true).unwrap();
    other.join().unwrap();
    assert_eq!((measured.iters, measured.samples.count()), (5, 5));
}

/// Interrupted when `time` has passed: in the midst of it, or in the set-up if that took longer.
fn interrupted_after(time: Duration, case: &Case, limits: Limits) -> Result<Measured, Failure> {
    let (mut control, other) =
        other::<Local>(|control, case, unlinked| match peer::run(control, case, unlinked, None) {
            Ok(matching) => Answer::Done { matching },
            Err(error) => Answer::Failed { why: error.to_string() },
        });
    let start = Instant::now();
    let measured =
        run(&mut control, &DeviceArg::Shm, &mut case.clone(), limits, || start.elapsed() < time);
    drop(control);
    other.join().unwrap();
    measured
}

#[test]
fn an_end_before_its_time_keeps_what_was_measured() {
    let queued = queued(case(Traffic::Both));
    for case in
        [case(Traffic::PingPong), case(Traffic::Both), queued, drain(Queue::Posted), case(PLANNED)]
    {
        for warm_up in [true, false] {
            let time = Duration::from_secs(3600);
            let most = 1 << 40;
            let limits = if warm_up {
                Limits { warmup_iters: most, warmup_time: time, ..LIMITS }
            } else {
                Limits { iters: most, time, warmup_iters: 0, ..LIMITS }
            };
            let measured = (0..).map(|tries| Duration::from_millis(50 << tries)).find_map(|time| {
                match interrupted_after(time, &case, limits) {
                    Err(Failure::Interrupted) => None,
                    measured => Some(measured.unwrap()),
                }
            });
            let measured = measured.unwrap();
            assert!(measured.interrupted, "{case:?}");
            assert_eq!(measured.iters == 0, warm_up, "{case:?}");
            if case.traffic != PLANNED {
                assert!(measured.iters.is_multiple_of(32), "{case:?}");
            }
        }
    }
}

#[test]
fn set_up_is_interrupted_wherever_it_is() {
    let many = Case { posted_depth: 1 << 20, unexpected_depth: 1 << 20, ..case(Traffic::PingPong) };
    let idle = Case { idle_peers: 1024, ..case(Traffic::PingPong) };
    for case in [many, idle, Case { unexpected_depth: 0, ..case(Traffic::PingPong) }] {
        // The other side is never ready.
        let (over, waits) = channel::<()>();
        let (mut control, other) = other::<Local>(move |control, case, unlinked| {
            let link = unlinked.connect(&case.address, control.attention()).unwrap();
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
        let ended = run(&mut control, &DeviceArg::Shm, &mut case.clone(), LIMITS, go_on);
        assert!(matches!(ended, Err(Failure::Interrupted)), "{case:?}");
        drop(over);
        other.join().unwrap();
        let mut looks = 0;
        let alone = run_alone(&case, LIMITS, || {
            looks += 1;
            looks < 2
        });
        assert!(matches!(alone, Err(Failure::Interrupted)), "{case:?}");
    }
}

/// The other side believes that nothing is checked, and sends zeros.
fn lazy<A: RunThreads>(control: &Control, case: &Case, unlinked: UnlinkedOf<A>) -> Answer {
    // The client leaves in the middle of the measurement, which must not matter here.
    let ended = peer::run(control, &Case { validate: false, ..case.clone() }, unlinked, None);
    assert!(ended.is_err());
    Answer::Failed { why: "left alone".into() }
}

/// The side that begins: `case` is sent to the other side, `ours` is measured here.
fn measure_with<A: RunThreads>(
    control: &mut Control,
    mut case: Case,
    ours: impl FnOnce(Case) -> Case,
) -> MeasureError {
    let [matcher, _] = case.matchers();
    let unlinked = UnlinkedOf::<A>::new(&case.device, case.needs(), matcher).unwrap();
    case.address = unlinked.address();
    control.send(&Ask::Case(case.clone())).unwrap();
    let Ok(Answer::Ready { address, .. }) = control.receive(READY_TIME) else { panic!() };
    let link = unlinked.connect(&address, control.attention()).unwrap();
    measure(control, &ours(case), link, LIMITS, &mut || true).map(drop).unwrap_err()
}

#[test]
fn wrong_bytes_are_found_on_this_side() {
    let single = |traffic| Case { single_buffer: true, ..case(traffic) };
    for case in [
        case(Traffic::PingPong),
        case(Traffic::Both),
        drain(Queue::Posted),
        drain(Queue::Unexpected),
        single(Traffic::PingPong),
        single(Traffic::Both),
        queued(case(Traffic::Both)),
        queued(single(Traffic::Both)),
    ] {
        let (mut control, other) = other::<Local>(lazy);
        let error = measure_with::<Local>(&mut control, case.clone(), |case| case);
        assert!(matches!(&error, MeasureError::Corrupt(Corrupt { .. })), "{case:?}: {error}");
        drop(control);
        other.join().unwrap();
    }
    let (mut control, other) = other::<Shared>(lazy);
    let case = Case { threads: Some(2), ..case(Traffic::PingPong) };
    let error = measure_with::<Shared>(&mut control, case, |case| case);
    assert!(matches!(&error, MeasureError::Corrupt(_)), "{error}");
    drop(control);
    other.join().unwrap();
}

#[test]
fn wrong_bytes_are_found_on_the_other_side() {
    fn strict<A: RunThreads>(control: &Control, case: &Case, unlinked: UnlinkedOf<A>) -> Answer {
        let error = peer::run(control, case, unlinked, None).unwrap_err();
        assert!(matches!(&error, MeasureError::Corrupt(_)), "{error}");
        Answer::Failed { why: error.to_string() }
    }
    let lazy = |case| Case { validate: false, ..case };
    let single = Case { single_buffer: true, ..case(Traffic::Stream) };
    let queued = queued(case(Traffic::Stream));
    for case in [case(Traffic::Stream), case(PLANNED), case(Traffic::PingPong), single, queued] {
        let (mut control, other) = other::<Local>(strict);
        let error = measure_with::<Local>(&mut control, case.clone(), lazy);
        let failure = explain(&mut control, error);
        assert!(failure.to_string().contains("verification failed: message 0"), "{failure}");
        other.join().unwrap();
    }
    let (mut control, other) = other::<Shared>(strict);
    let case = Case { threads: Some(2), ..case(Traffic::Stream) };
    let error = measure_with::<Shared>(&mut control, case, lazy);
    let failure = explain(&mut control, error);
    assert!(failure.to_string().contains("verification failed: message 0"), "{failure}");
    other.join().unwrap();
}

#[test]
fn a_message_of_another_length_is_found() {
    let shorter = |control: &Control, case: &Case, unlinked: Unlinked| {
        let case = Case { size: case.size - 1, validate: false, ..case.clone() };
        assert!(peer::run(control, &case, unlinked, None).is_err());
        Answer::Failed { why: "left alone".into() }
    };
    for case in [case(Traffic::PingPong), drain(Queue::Unexpected)] {
        let (mut control, other) = other::<Local>(shorter);
        let error = measure_with::<Local>(&mut control, case, |case| case);
        let found = matches!(&error, MeasureError::Length { found: 999, wanted: 1000 });
        assert!(found, "{error}");
        drop(control);
        other.join().unwrap();
    }
    let strict = |control: &Control, case: &Case, unlinked: Unlinked| {
        let case = Case { size: case.size - 1, validate: false, ..case.clone() };
        let error = peer::run(control, &case, unlinked, None).unwrap_err();
        let found = matches!(&error, MeasureError::Length { found: 1000, wanted: 999 });
        assert!(found, "{case:?}: {error}");
        Answer::Failed { why: error.to_string() }
    };
    for case in [case(Traffic::Stream), queued(case(Traffic::Stream))] {
        let (mut control, other) = other::<Local>(strict);
        let error = measure_with::<Local>(&mut control, case, |case| case);
        let failure = explain(&mut control, error);
        assert!(failure.to_string().contains("expected 999"), "{failure}");
        other.join().unwrap();
    }
}
