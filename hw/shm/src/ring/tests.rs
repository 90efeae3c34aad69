//! A ring compared with a plain queue, and a ring whose writer or reader writes random words.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use tagmatch_os::memory::Mapping;

use super::geometry::Progress;
use super::producer::check_progress;
use super::{Consumer, Geometry, Producer, PushError, Ring};

const MESSAGE_MAX: u32 = 2048;

fn ring() -> Arc<Ring> {
    let geometry = Geometry::new(8, 4096).unwrap();
    let mapping = Mapping::private(geometry.length_bytes()).unwrap();
    Arc::new(Ring::new(mapping, geometry).unwrap())
}

type Popped = Result<(Option<u32>, Vec<u8>), &'static str>;

fn pop(consumer: &mut Consumer) -> Option<Popped> {
    let meta = consumer.peek()?;
    if consumer.is_publish_due() {
        consumer.publish();
    }
    let shape = match consumer.parse(meta) {
        Ok(shape) => shape,
        Err(what) => return Some(Err(what)),
    };
    let taken = consumer.take(shape);
    Some(Ok((taken.immediate, taken.bytes.to_vec(0))))
}

#[derive(Clone, Debug)]
enum Step {
    Push { header: usize, payload: usize, immediate: Option<u32> },
    Pop,
    Publish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let payload = prop_oneof![0usize..80, 0usize..=1984, Just(1984)];
    let push = (0usize..=64, payload, any::<Option<u32>>())
        .prop_map(|(header, payload, immediate)| Step::Push { header, payload, immediate });
    prop::collection::vec(
        prop_oneof![4 => push, 4 => Just(Step::Pop), 1 => Just(Step::Publish)],
        1..300,
    )
}

proptest! {
    #[test]
    fn behaves_like_a_queue(steps in steps(), start: u32) {
        let ring = ring();
        // Starts as if the ring had been in use for long, so that the counters wrap.
        let start = Progress { messages: start, spill_bytes: start & !63 };
        ring.header().consumed.0.store(start.pack(), Relaxed);
        let mut producer = Producer::starting_at(ring.clone(), start);
        let mut consumer = Consumer::starting_at(ring, MESSAGE_MAX, start);
        let mut oracle = VecDeque::new();
        let mut number = 0u8;
        for step in steps {
            match step {
                Step::Push { header, payload, immediate } => {
                    number = number.wrapping_add(1);
                    let byte = |at: usize| at.to_le_bytes()[0] ^ number;
                    let all: Vec<u8> = (0..header + payload).map(byte).collect();
                    let (first, second) = all.split_at(header);
                    match producer.push(first, second, immediate, &0) {
                        Ok(()) => oracle.push_back((immediate, all)),
                        Err(PushError::Full) => {
                            // A ring is never full after everything was taken and published.
                            prop_assert!(!oracle.is_empty() || consumer.has_unpublished());
                        }
                        Err(PushError::Broken(what)) => panic!("{what}"),
                    }
                    prop_assert!(oracle.len() <= 8);
                }
                Step::Pop => prop_assert_eq!(pop(&mut consumer), oracle.pop_front().map(Ok)),
                Step::Publish => {
                    consumer.publish();
                }
            }
        }
        while let Some(expected) = oracle.pop_front() {
            prop_assert_eq!(pop(&mut consumer), Some(Ok(expected)));
        }
        prop_assert_eq!(pop(&mut consumer), None);
    }

    #[test]
    fn a_writer_of_nonsense_is_caught_or_harmless(
        words in prop::collection::vec((0u32..64, any::<u64>(), any::<bool>()), 1..200),
    ) {
        let ring = ring();
        let mut consumer = Consumer::new(ring.clone(), MESSAGE_MAX);
        for (at, word, fits) in words {
            let slot = ring.slot(at / 8);
            let next = u64::from(consumer.taken().wrapping_add(1));
            // Half of the words have the right sequence number, so that the reader parses them.
            let word = if fits { word & !u64::from(u32::MAX) | next } else { word };
            slot.word.store(word, Relaxed);
            slot.body.0[at as usize % 7].store(word.rotate_left(7), Relaxed);
            match pop(&mut consumer) {
                Some(Ok((_, bytes))) => prop_assert!(bytes.len() <= 2048),
                Some(Err(_)) => break,
                None => {}
            }
        }
    }

    #[test]
    fn a_reader_of_nonsense_is_caught_or_harmless(told: Vec<u64>) {
        let ring = ring();
        let mut producer = Producer::new(ring.clone());
        'rounds: for word in told {
            ring.header().consumed.0.store(word, Relaxed);
            for _ in 0..20 {
                match producer.push(&[1; 64], &[2; 1000], None, &0) {
                    Ok(()) => {}
                    Err(PushError::Full) => break,
                    Err(PushError::Broken(_)) => break 'rounds,
                }
            }
        }
    }

    #[test]
    fn progress_never_goes_back_nor_ahead(
        before: u64, made in (0u32..=8, 0u32..=4096), told: u64,
    ) {
        let before = Progress::unpack(before);
        let produced = Progress {
            messages: before.messages.wrapping_add(made.0),
            spill_bytes: before.spill_bytes.wrapping_add(made.1),
        };
        let told = Progress::unpack(told);
        let is_possible = told.since(before).messages <= made.0
            && told.since(before).spill_bytes <= made.1;
        prop_assert_eq!(check_progress(before, told, produced).is_ok(), is_possible);
        prop_assert!(check_progress(before, produced, produced).is_ok());
    }
}

#[test]
fn a_line_left_from_the_last_round_is_no_message() {
    let ring = ring();
    let mut producer = Producer::new(ring.clone());
    let mut consumer = Consumer::new(ring, MESSAGE_MAX);
    for round in 0..100u8 {
        assert_eq!(producer.push(&[round], &[], None, &0), Ok(()));
        assert_eq!(pop(&mut consumer), Some(Ok((None, vec![round]))));
        assert_eq!(pop(&mut consumer), None);
    }
}

#[test]
fn a_reader_cannot_claim_spill_that_was_not_written() {
    let before = Progress { messages: u32::MAX, spill_bytes: u32::MAX - 63 };
    let produced = Progress { messages: 3, spill_bytes: 128 };
    let told = |messages, spill_bytes| {
        check_progress(before, Progress { messages, spill_bytes }, produced).is_ok()
    };
    // Each of the two may be right where the other is wrong.
    assert!(told(3, 128) && told(0, 0) && told(u32::MAX, u32::MAX - 63));
    assert!(!told(3, 192) && !told(0, u32::MAX - 127));
    assert!(!told(4, 128) && !told(u32::MAX - 1, 128));
}

#[test]
fn a_message_is_alone_if_its_worker_has_polled_for_a_while() {
    let mut producer = Producer::new(ring());
    // The polls are counted modulo 2^32.
    let polls = [u32::MAX, 6, 7, 14, 22, 22, 23, 31];
    let alone = polls.map(|polls| producer.is_alone(polls));
    assert_eq!(alone, [true, false, false, false, true, false, false, true]);
}
