//! A ring compared with a plain queue, and a ring whose writer or reader writes random words.

mod hostile;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use tagmatch_os::memory::Mapping;

use super::consumer::Watch;
use super::geometry::checked_progress;
use super::slot::Meta;
use super::{Consumer, Geometry, Piggyback, Producer, PushError, Ring};

const MESSAGE_MAX: u32 = 1920;

/// A ring whose short lines are in use.
fn short_ring_of(bytes: u32) -> Ring {
    let geometry = Geometry::new(bytes).unwrap();
    let mapping = Mapping::private(geometry.pair_bytes()).unwrap();
    let [ring, _] = Ring::pair(mapping, geometry, geometry).unwrap();
    ring
}

/// A ring whose long lines are in use.
fn ring_of(bytes: u32) -> Ring {
    short_ring_of(bytes).other_lines()
}

fn ring() -> Ring {
    ring_of(4096)
}

/// The ends of a ring at a position, in two processes.
struct Ends {
    producer: Producer,
    consumer: Consumer,
    /// Of the process that writes, and of the one that reads.
    piggybacks: [Arc<Piggyback>; 2],
}

impl Ends {
    fn new(ring: &Ring, start: u32) -> Self {
        ring.header().consumed.0.store(start, Relaxed);
        let piggybacks = [(); 2].map(|()| Arc::new(Piggyback::starting_at(start)));
        let [writers, readers] = &piggybacks;
        let producer = Producer::starting_at(ring.clone(), writers.clone(), start);
        let consumer = Consumer::starting_at(ring.clone(), MESSAGE_MAX, readers.clone(), start);
        Ends { producer, consumer, piggybacks }
    }

    /// The reader sends a message to the writer.
    fn reply(&self) {
        let [writers, readers] = &self.piggybacks;
        readers.tell(writers);
    }
}

type Popped = Result<(Option<u32>, Vec<u8>), &'static str>;

fn pop(consumer: &mut Consumer) -> Option<Popped> {
    let mut meta = consumer.peek()?;
    if consumer.skip(meta) {
        meta = consumer.peek()?;
    }
    if consumer.is_publish_due() {
        consumer.publish();
    }
    let shape = match consumer.parse(meta) {
        Ok(shape) => shape,
        Err(what) => return Some(Err(what)),
    };
    let taken = consumer.take(shape, None);
    Some(Ok((taken.immediate, taken.bytes.to_vec(0))))
}

/// As [`pop`]; a message of the common kind is taken on the short way, as a device takes it.
fn pop_watched(consumer: &mut Consumer, watch: &mut Watch) -> Option<Popped> {
    assert_eq!(watch.is_there(), consumer.peek().is_some());
    if let Some(found) = watch.look()
        // SAFETY: the bytes are copied before the consumer's next call.
        && let Some(bytes) = unsafe { consumer.take_short(watch, found) }
    {
        return Some(Ok((None, bytes.to_vec())));
    }
    // SAFETY: the bytes are copied before the consumer's next call.
    if let Some(taken) = unsafe { consumer.take_common(watch) } {
        return Some(Ok((taken.immediate, taken.bytes.to_vec(0))));
    }
    let popped = pop(consumer);
    watch.follow(consumer);
    popped
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        header: usize,
        payload: usize,
        immediate: Option<u32>,
    },
    Pop,
    Publish,
    Reply,
    Rest,
    /// Laps end early, or not, from now on.
    EndEarly(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let payload = prop_oneof![4 => 0usize..80, 1 => 0usize..=1856, 1 => Just(1856)];
    let push = (0usize..=64, payload, any::<Option<u32>>())
        .prop_map(|(header, payload, immediate)| Step::Push { header, payload, immediate });
    prop::collection::vec(
        prop_oneof![
            4 => push,
            4 => Just(Step::Pop),
            1 => Just(Step::Publish),
            2 => Just(Step::Reply),
            1 => Just(Step::Rest),
            1 => any::<bool>().prop_map(Step::EndEarly),
        ],
        1..300,
    )
}

/// Any word. Those that say that the other lines follow would be rare.
fn words() -> impl Strategy<Value = u64> {
    let change = u64::from(Meta::CHANGE_LINES.0) << 32;
    prop_oneof![4 => any::<u64>(), 1 => any::<u32>().prop_map(move |low| change | u64::from(low))]
}

proptest! {
    #[test]
    fn behaves_like_a_queue(
        steps in steps(), start: u32, bytes in 12u32..=15, is_short: bool, between in 0u32..500,
    ) {
        // Starts as if the ring had been in use for long, so that the positions wrap.
        let ring = if is_short { short_ring_of(1 << bytes) } else { ring_of(1 << bytes) };
        let mut polls = 0u32;
        let mut ends = Ends::new(&ring, start);
        let mut watch = ends.consumer.watch();
        let mut oracle = VecDeque::new();
        let mut number = 0u8;
        for step in steps {
            match step {
                Step::Push { header, payload, immediate } => {
                    number = number.wrapping_add(1);
                    let byte = |at: usize| at.to_le_bytes()[0] ^ number;
                    let all: Vec<u8> = (0..header + payload).map(byte).collect();
                    let (first, second) = all.split_at(header);
                    polls += between;
                    match ends.producer.push(first, second, immediate, &polls) {
                        Ok(()) => oracle.push_back((immediate, all)),
                        Err(PushError::Full) => {
                            // A ring is never full after everything was taken and published.
                            let is_taken = oracle.is_empty() && ends.consumer.peek().is_none();
                            prop_assert!(!is_taken || ends.consumer.has_unpublished());
                        }
                        Err(PushError::Broken(what)) => panic!("{what}"),
                    }
                    let lines = ring.long_geometry().lines() + Geometry::SHORT.lines();
                    prop_assert!(oracle.len() < lines as usize);
                }
                Step::Pop => {
                    let popped = pop_watched(&mut ends.consumer, &mut watch);
                    prop_assert_eq!(popped, oracle.pop_front().map(Ok));
                }
                Step::Publish => {
                    ends.consumer.publish();
                }
                Step::Reply => ends.reply(),
                Step::Rest => {
                    ends.producer.rest().unwrap();
                }
                Step::EndEarly(ends_early) => {
                    let geometry = ends.producer.ring().geometry();
                    ends.producer.lap.set_ends_early(geometry, ends_early);
                }
            }
        }
        while let Some(expected) = oracle.pop_front() {
            prop_assert_eq!(pop(&mut ends.consumer), Some(Ok(expected)));
        }
        prop_assert_eq!(pop(&mut ends.consumer), None);
    }

    #[test]
    fn a_writer_of_nonsense_is_caught_or_harmless(
        words in prop::collection::vec((0u32..64, words(), any::<bool>()), 1..200),
        is_short: bool,
    ) {
        let long = ring();
        let rings = [long.clone(), long.other_lines()];
        let mut consumer = Ends::new(&rings[usize::from(is_short)], 0).consumer;
        let mut watch = consumer.watch();
        for (at, word, fits) in words {
            // Half of the words are where the reader looks next, and say that there is a message.
            let next = consumer.taken();
            let ring = &rings[usize::from(consumer.is_in_short_lines())];
            let lap = u64::from(Meta::of_lap(ring.geometry().is_in_odd_lap(next)).0) << 32;
            let (at, word) = if fits { (next, word & !(3 << 62) | lap) } else { (at, word) };
            let slot = ring.slot(at);
            slot.word.store(word, Relaxed);
            slot.body.0[at as usize % 7].store(word.rotate_left(7), Relaxed);
            match pop_watched(&mut consumer, &mut watch) {
                Some(Ok((_, bytes))) => prop_assert!(bytes.len() <= MESSAGE_MAX as usize),
                Some(Err(_)) => break,
                None => {}
            }
        }
    }

    #[test]
    fn a_reader_of_nonsense_is_caught_or_harmless(
        claim in prop::collection::vec((any::<u32>(), any::<bool>(), 0usize..1800), 1..60),
    ) {
        let ring = ring_of(1 << 14);
        let Ends { mut producer, piggybacks: [piggyback, _], .. } = Ends::new(&ring, 0);
        let mut claimed = 0u32;
        'rounds: for (step, is_published, length) in claim {
            // Most steps are so short that they may be believed, also into lines that were skipped.
            claimed = claimed.wrapping_add(if step % 8 == 0 { step } else { step % 300 });
            if is_published {
                ring.header().consumed.0.store(claimed, Relaxed);
            } else {
                piggyback.take(0, claimed);
            }
            for _ in 0..20 {
                match producer.push(&[1; 64], &vec![2; length], None, &0) {
                    Ok(()) => {}
                    Err(PushError::Full) => break,
                    Err(PushError::Broken(_)) => break 'rounds,
                }
            }
            let _ = producer.has_half_free();
        }
    }

    #[test]
    fn a_reader_never_goes_back_nor_ahead(before: u32, made in 0u32..=4096, claim: u32) {
        let produced = before.wrapping_add(made);
        for claim in [claim, before.wrapping_add(claim % 8192)] {
            let is_possible = claim.wrapping_sub(before) <= made;
            let peer_progress = checked_progress(before, claim, produced);
            prop_assert_eq!(peer_progress.ok(), is_possible.then_some(claim));
        }
        prop_assert!(checked_progress(before, produced, produced).is_ok());
    }
}

#[test]
fn a_line_left_from_the_last_lap_is_no_message() {
    let ring = ring();
    let mut ends = Ends::new(&ring, 0);
    // Every byte of a run could be that of a word that says: a message of this lap.
    for round in 0..400usize {
        let payload = [[0x80, 0xc0][round % 2]; 200];
        let length = if round % 100 < 50 { 0 } else { round * 37 % 200 };
        assert_eq!(ends.producer.push(&[1; 8], &payload[..length], None, &0), Ok(()));
        assert!(matches!(pop(&mut ends.consumer), Some(Ok(_))));
        assert_eq!(pop(&mut ends.consumer), None);
        ends.reply();
    }
}

#[test]
fn a_lap_is_a_page_while_the_reader_keeps_up_and_longer_when_it_does_not() {
    let ring = ring_of(1 << 16);
    let mut ends = Ends::new(&ring, 0);
    let line_of = |consumer: &Consumer| ring.geometry().line(consumer.taken());
    let exchange = |ends: &mut Ends, length: usize| {
        ends.producer.push(&[1; 8], &vec![2; length], None, &0).unwrap();
        pop(&mut ends.consumer).unwrap().unwrap();
        ends.reply();
    };
    for length in [8, 300, 1000] {
        for _ in 0..500 {
            exchange(&mut ends, length);
            assert!(line_of(&ends.consumer) < 64, "{length}");
        }
    }
    // No message is read until there is no room any more.
    let mut sent = 0;
    while ends.producer.push(&[1; 8], &[2; 300], None, &0).is_ok() {
        sent += 1;
    }
    assert!(sent > 1024 / 6 - 20, "{sent}");
    // The reader reads and publishes only when there is no room.
    let mut farthest = 0;
    for _ in 0..2000 {
        while ends.producer.push(&[1; 8], &[2; 300], None, &0).is_err() {
            while let Some(message) = pop(&mut ends.consumer) {
                message.unwrap();
                farthest = farthest.max(line_of(&ends.consumer));
            }
            ends.consumer.publish();
        }
    }
    assert!(farthest > 900, "{farthest}");
    // With a reader that keeps up, laps become short again.
    while pop(&mut ends.consumer).is_some() {}
    (0..50_000).for_each(|_| exchange(&mut ends, 300));
    for _ in 0..500 {
        exchange(&mut ends, 300);
        assert!(line_of(&ends.consumer) < 64);
    }
}

#[test]
fn messages_say_how_far_the_ring_of_the_other_direction_was_read() {
    let rings = [ring_of(1 << 16), ring_of(1 << 16)];
    let piggybacks: [Arc<Piggyback>; 2] = Default::default();
    // Each process writes to one ring and reads the other one.
    let mut processes = [0, 1].map(|own| {
        let producer = Producer::new(rings[own].clone(), piggybacks[own].clone());
        let consumer = Consumer::new(rings[1 - own].clone(), MESSAGE_MAX, piggybacks[own].clone());
        (producer, consumer)
    });
    for turn in 0..1000 {
        let from = turn % 2;
        processes[from].0.push(&[1; 8], &[2; 300], None, &0).unwrap();
        let consumer = &mut processes[1 - from].1;
        pop(consumer).unwrap().unwrap();
        assert!(rings[from].geometry().line(consumer.taken()) < 64, "{turn}");
    }
}

/// Internal messages leave the other half to the engine.
#[test]
fn half_of_a_ring_is_free_until_half_of_its_lines_wait() {
    let mut ends = Ends::new(&ring(), 0);
    for waiting in 0..40 {
        assert_eq!(ends.producer.has_half_free(), Ok(waiting < 32), "{waiting}");
        assert_eq!(ends.producer.push(&[1; 8], &[], None, &0), Ok(()));
    }
    while pop(&mut ends.consumer).is_some() {}
    ends.consumer.publish();
    assert_eq!(ends.producer.has_half_free(), Ok(true));
    // While the short lines are in use, the long ones are free.
    let mut short = Ends::new(&short_ring_of(4096), 0);
    for _ in 0..15 {
        assert_eq!(short.producer.push(&[1; 8], &[], None, &0), Ok(()));
        assert!(short.producer.ring().is_short());
        assert_eq!(short.producer.has_half_free(), Ok(true));
    }
}

#[test]
fn a_stream_of_one_direction_goes_on_without_a_reply() {
    for bytes in [1 << 12, 1 << 16] {
        let ring = ring_of(bytes);
        let mut ends = Ends::new(&ring, 0);
        for length in (0..3000).map(|round| round % 500) {
            assert_eq!(ends.producer.push(&[1; 8], &vec![2; length], None, &0), Ok(()));
            assert!(matches!(pop(&mut ends.consumer), Some(Ok(_))), "{length}");
        }
    }
}

#[test]
fn a_ring_holds_as_much_after_a_short_lap_as_before() {
    // The short laps end anywhere in a page.
    for (length, lines_of_one, exchanges) in
        (0..150).flat_map(|exchanges| [(8, 1, exchanges), (300, 5, exchanges)])
    {
        let ring = ring_of(1 << 16);
        let mut ends = Ends::new(&ring, 0);
        for _ in 0..exchanges {
            ends.producer.push(&[1; 8], &[2; 8], None, &0).unwrap();
            pop(&mut ends.consumer).unwrap().unwrap();
            ends.reply();
        }
        let mut sent = 0u32;
        while ends.producer.push(&sent.to_le_bytes(), &vec![3; length], None, &0).is_ok() {
            sent += 1;
        }
        let lines = ring.geometry().lines();
        assert!(sent * lines_of_one > lines - 140, "{sent} after {exchanges}");
        let before = ends.consumer.taken();
        for number in 0..sent {
            let (_, bytes) = pop(&mut ends.consumer).unwrap().unwrap();
            assert_eq!(bytes[..4], number.to_le_bytes());
        }
        // So far the messages are taken of a writer that is gone.
        assert!(ends.consumer.taken().wrapping_sub(before) < ends.consumer.capacity());
    }
}

#[test]
fn what_no_writer_skips_or_overruns_is_refused() {
    let ring = ring();
    let end = |line: u32, meta: Meta| {
        ring.slot(line).word.store(meta.word(Meta::of_lap(false), 0), Relaxed);
        pop(&mut Ends::new(&ring, line).consumer)
    };
    for meta in [Meta::SKIP, Meta::JUMP] {
        assert_eq!(end(0, meta), Some(Err("lines are skipped where a message has to be")));
    }
    let change = Meta::CHANGE_LINES.word(Meta::of_lap(false), 0);
    ring.other_lines().slot(0).word.store(change, Relaxed);
    let twice = end(0, Meta::CHANGE_LINES);
    assert_eq!(twice, Some(Err("lines are skipped where a message has to be")));
    for to in [0, 4, 5, 64, 1 << 31, u32::MAX] {
        ring.slot(5).word.store(Meta::JUMP.word(Meta::of_lap(false), 0), Relaxed);
        ring.slot(5).body.0[0].store(to.into(), Relaxed);
        let mut consumer = Ends::new(&ring, 5).consumer;
        assert!(!consumer.skip(Meta::JUMP) && consumer.taken() == 5, "{to}");
        assert_eq!(end(5, Meta::JUMP), Some(Err("lines are skipped where a message has to be")));
    }
    let long = |line, is_last| end(line, Meta::new(500, false, false, is_last));
    assert_eq!(long(57, true), Some(Err("a message goes beyond the end of the ring")));
    assert_eq!(long(56, false), Some(Err("the last message of a lap doesn't say so")));
    assert!(matches!(long(56, true), Some(Ok((None, bytes))) if bytes.len() == 500));
}

#[test]
fn an_idle_ring_has_short_lines_and_a_busy_one_long_lines() {
    let ends = || Ends::new(&short_ring_of(1 << 14), 0);
    let exchange = |ends: &mut Ends, length: usize, polls: u32| {
        ends.producer.push(&[1; 8], &vec![2; length], None, &polls).unwrap();
        pop(&mut ends.consumer).unwrap().unwrap();
        ends.reply();
        let is_short = ends.producer.ring().is_short();
        assert_eq!(ends.consumer.is_in_short_lines(), is_short);
        is_short
    };
    // Many polls are between two messages to one of many peers.
    let mut many = ends();
    assert!((0..1000).all(|round| exchange(&mut many, round as usize % 240, round * 600)));
    assert!((0..4).any(|round| !exchange(&mut many, 300, round * 600)), "longer messages");
    let mut few = ends();
    assert!((0..16).all(|round| exchange(&mut few, 8, round + 5000)));
    assert!((16..48).any(|round| !exchange(&mut few, 8, round + 5000)));
    let mut unread = ends();
    for number in 0..100u32 {
        let is_short = unread.producer.ring().is_short();
        assert!(is_short || number > 14, "{number}");
        unread.producer.push(&number.to_le_bytes(), &[], None, &0).unwrap();
    }
    assert!(!unread.producer.ring().is_short());
    assert!(unread.consumer.is_in_short_lines());
    for number in 0..100u32 {
        let (_, bytes) = pop(&mut unread.consumer).unwrap().unwrap();
        assert_eq!(bytes, number.to_le_bytes());
    }
}

#[test]
fn lines_are_changed_when_all_was_read_and_again_when_the_reader_has_followed() {
    let mut ends = Ends::new(&ring_of(1 << 14), 0);
    let rest = |ends: &mut Ends| ends.producer.rest().unwrap();
    assert!(rest(&mut ends), "no message since it was made");
    assert_eq!(pop(&mut ends.consumer), None);
    ends.consumer.publish();
    for _ in 0..20 {
        ends.producer.push(&[1; 8], &[2; 1000], None, &0).unwrap();
        assert!(!ends.producer.ring().is_short());
        assert!(!rest(&mut ends), "a message since the last look");
        assert!(!rest(&mut ends), "a message that is not read");
        pop(&mut ends.consumer).unwrap().unwrap();
        assert!(!rest(&mut ends), "the reader has not said so");
        ends.consumer.publish();
        assert!(rest(&mut ends) && !rest(&mut ends), "once");
        assert!(ends.producer.ring().is_short() && !ends.consumer.is_in_short_lines());
        // A short message has room.
        ends.producer.push(&[3; 8], &[], None, &0).unwrap();
        assert_eq!(ends.producer.push(&[1; 8], &[2; 1000], None, &0), Err(PushError::Full));
        assert_eq!(ends.producer.has_half_free(), Ok(true));
        assert_eq!(pop(&mut ends.consumer), Some(Ok((None, vec![3; 8]))));
        assert!(ends.consumer.is_in_short_lines());
        ends.consumer.publish();
    }
}

#[test]
fn a_message_is_alone_if_its_worker_has_polled_for_a_while() {
    let mut producer = Ends::new(&ring(), 0).producer;
    // The polls are counted modulo 2^32.
    let polls = [u32::MAX, 6, 7, 14, 22, 22, 23, 31];
    let alone = polls.map(|polls| producer.is_alone(polls));
    assert_eq!(alone, [true, false, false, false, true, false, false, true]);
}
