//! The model checker's programs: two or three threads on rings and doorbells, in all interleavings.
//!
//! `ci/test loom` runs them. A thread that is never woken ends a run as a deadlock. Bytes that are
//! read while another thread may write them end a run as a race.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread;
use tagmatch_device::{CopiedReads, PeerId, ReadMode};
use tagmatch_os::memory::Mapping;

use crate::carrying::Carrying;
use crate::connection::Connection;
use crate::cooperative::{Claims, ReceiverSide, SenderPieces, SenderSide};
use crate::doorbell::{self, Doorbell, DoorbellBit};
use crate::generation;
use crate::inboxes::Inboxes;
use crate::ring::consumer::Watch;
use crate::ring::{Consumer, Geometry, Piggyback, Producer, PushError, Ring};
use crate::sharing::Sharing;
use crate::sync::{AtomicU64, set_barriers};

const MESSAGE_MAX: u32 = 1920;
const WRITER: PeerId = PeerId(1);

/// Checks every interleaving with at most `preemptions` switches away from a thread that could have
/// run on. Bugs of two or three threads show with two such switches; the third costs seconds.
pub(super) fn check(preemptions: usize, program: impl Fn() + Send + Sync + 'static) {
    check_with(true, preemptions, program);
}

/// Checks a program where a ring's reader can put a barrier on its writer, or can't.
pub(super) fn check_with(
    has_barriers: bool,
    preemptions: usize,
    program: impl Fn() + Send + Sync + 'static,
) {
    set_barriers(has_barriers);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(program);
}

fn page() -> Mapping {
    Mapping::private(4096).unwrap()
}

/// A ring whose short lines are in use.
fn short_ring() -> Ring {
    let geometry = Geometry::new(4096).unwrap();
    let [ring, _] = Ring::pair(page(), geometry, geometry).unwrap();
    ring
}

/// A ring whose long lines are in use.
fn ring() -> Ring {
    short_ring().other_lines()
}

fn doorbell() -> Arc<Doorbell> {
    Arc::new(Doorbell::new(page()).unwrap())
}

fn bit(number: u32) -> DoorbellBit {
    DoorbellBit::new(number).unwrap()
}

/// The sending half of a connection to a reader that has this doorbell.
fn connection(ring: &Ring, doorbell: &Arc<Doorbell>, bit: DoorbellBit) -> Connection {
    Connection {
        producer: Producer::new(ring.clone(), Arc::default()),
        message_max: MESSAGE_MAX,
        is_fenced: false,
        doorbell: doorbell.clone(),
        doorbell_bit: bit,
        inbox: bit,
        other_end: None,
        eventfd: None,
        counted_for: None,
        read_mode: ReadMode::Copied,
        memory: None,
        copied: CopiedReads::default(),
        inbound: ring.clone(),
        takes_offers: false,
        offers: 0,
        is_offering: false,
        carrying: Carrying::new(false, None, 0),
        sharing: Sharing::new(Some(true)),
    }
}

/// The receiving half of connections, as in a device.
struct Reader {
    inboxes: Inboxes,
    doorbell: Arc<Doorbell>,
}

impl Reader {
    fn new(doorbell: &Arc<Doorbell>) -> Self {
        let inboxes = Inboxes::new(doorbell.clone(), doorbell::BITS as u32, false);
        Reader { inboxes, doorbell: doorbell.clone() }
    }

    fn insert(&mut self, bit: DoorbellBit, ring: &Ring) {
        let consumer = Consumer::new(ring.clone(), MESSAGE_MAX, Arc::default());
        self.inboxes.insert(bit, consumer, PeerId(u32::try_from(bit.index()).unwrap()));
    }

    /// The next message, if there is one. That is what a poll does.
    fn poll(&mut self) -> Option<(PeerId, Vec<u8>)> {
        let found = self.inboxes.find()?;
        let (peer, shape) = self.inboxes.parse(found).unwrap().unwrap();
        let bytes = self.inboxes.take(found.bit, shape).unwrap().bytes.to_vec(0);
        Some((peer, bytes))
    }

    /// The next message. Sleeps until there is one.
    fn wait(&mut self) -> (PeerId, Vec<u8>) {
        loop {
            if let Some(message) = self.poll() {
                return message;
            }
            let announced = self.inboxes.announce_sleep();
            if self.inboxes.fall_asleep(&announced) {
                self.doorbell.wakes.wait();
                self.inboxes.wake_up();
            }
        }
    }
}

/// A ring, its reader, and the connection of its writer.
fn reader_and_writer(has_barriers: bool) -> (Ring, Reader, Connection) {
    let ring = ring();
    let doorbell = doorbell();
    let mut reader = Reader::new(&doorbell);
    reader.insert(bit(1), &ring);
    let mut connection = connection(&ring, &doorbell, bit(1));
    connection.is_fenced = !has_barriers;
    (ring, reader, connection)
}

/// Sends two messages, and receives them with `take`.
fn two_messages(take: impl Fn(&mut Consumer, &mut Watch) -> Option<(Option<u32>, Vec<u8>)>) {
    let ring = ring();
    let mut producer = Producer::new(ring.clone(), Arc::default());
    let writer = thread::spawn(move || {
        producer.push(&[1; 16], &[2; 64], Some(7), &0).unwrap();
        producer.push(&[3; 16], &[4; 200], None, &0).unwrap();
    });
    let mut consumer = Consumer::new(ring, MESSAGE_MAX, Arc::default());
    let mut watch = consumer.watch();
    let mut next = || loop {
        if let Some(message) = take(&mut consumer, &mut watch) {
            return message;
        }
        thread::yield_now();
    };
    assert_eq!(next(), (Some(7), [vec![1; 16], vec![2; 64]].concat()));
    assert_eq!(next(), (None, [vec![3; 16], vec![4; 200]].concat()));
    writer.join().unwrap();
}

#[test]
fn messages_arrive_whole_and_in_order() {
    check(3, || {
        two_messages(|consumer, _| {
            let shape = consumer.parse(consumer.peek()?).unwrap();
            let taken = consumer.take(shape, None);
            Some((taken.immediate, taken.bytes.to_vec(0)))
        });
    });
}

#[test]
fn messages_arrive_whole_by_the_short_way() {
    check(3, || {
        two_messages(|consumer, watch| {
            let found = watch.look()?;
            // SAFETY: the bytes are copied before anything else is done with the ring.
            if let Some(bytes) = unsafe { consumer.take_short(watch, found) } {
                return Some((None, bytes.to_vec()));
            }
            // SAFETY: the bytes are copied before anything else is done with the ring.
            let taken = unsafe { consumer.take_common(watch) }?;
            Some((taken.immediate, taken.bytes.to_vec(0)))
        });
    });
}

#[test]
fn a_place_is_written_again_only_after_it_was_read() {
    for length in [64, 450] {
        check(3, move || {
            let ring = ring();
            let mut producer = Producer::new(ring.clone(), Arc::default());
            let mut consumer = Consumer::new(ring, MESSAGE_MAX, Arc::default());
            let mut sent = 0u8;
            while producer.push(&[sent; 8], &vec![sent; length], None, &0).is_ok() {
                sent += 1;
            }
            // The first of them may lie in lines that no message was in.
            let writer = thread::spawn(move || {
                for _ in 0..2 {
                    while producer.push(&[sent; 8], &vec![sent; length], None, &0).is_err() {
                        thread::yield_now();
                    }
                }
            });
            for expected in 0..=sent {
                let meta = loop {
                    match consumer.peek() {
                        Some(meta) => break meta,
                        None => thread::yield_now(),
                    }
                };
                if consumer.is_publish_due() {
                    consumer.publish();
                }
                let shape = consumer.parse(meta).unwrap();
                assert_eq!(consumer.take(shape, None).bytes.to_vec(0), vec![expected; length + 8]);
                // The rest is read after the writer has ended, which needs no interleavings.
                if expected == 1 {
                    consumer.publish();
                }
            }
            writer.join().unwrap();
        });
    }
}

#[test]
fn bytes_that_a_run_has_left_are_no_message() {
    check(3, || {
        let ring = ring();
        let [writers, readers] = [(); 2].map(|()| Arc::new(Piggyback::default()));
        let mut producer = Producer::new(ring.clone(), writers.clone());
        let mut consumer = Consumer::new(ring, MESSAGE_MAX, readers.clone());
        let take = |consumer: &mut Consumer| {
            let shape = consumer.parse(consumer.peek()?).unwrap();
            Some(consumer.take(shape, None).bytes.to_vec(0))
        };
        // A whole lap of messages with runs. Each is acknowledged, so the lap ends with the page.
        for _ in 0..2 {
            producer.push(&[0; 8], &[1; 1800], None, &0).unwrap();
            assert!(take(&mut consumer).is_some());
            readers.tell(&writers);
        }
        let writer = thread::spawn(move || {
            producer.push(&[2; 8], &[], None, &0).unwrap();
            producer.push(&[3; 8], &[], None, &0).unwrap();
        });
        for expected in [2, 3] {
            let bytes = loop {
                match take(&mut consumer) {
                    Some(bytes) => break bytes,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(bytes, [expected; 8]);
        }
        writer.join().unwrap();
    });
}

#[test]
fn lines_are_changed_while_messages_are_read() {
    check(3, || {
        let ring = short_ring();
        let mut producer = Producer::new(ring.clone(), Arc::default());
        let mut consumer = Consumer::new(ring, MESSAGE_MAX, Arc::default());
        let take = |consumer: &mut Consumer| {
            let mut meta = consumer.peek()?;
            if consumer.skip(meta) {
                meta = consumer.peek()?;
            }
            let shape = consumer.parse(meta).unwrap();
            Some(consumer.take(shape, None).bytes.to_vec(0))
        };
        // To the long lines and back. What is left in both is no message.
        producer.push(&[0; 8], &[], None, &0).unwrap();
        producer.push(&[0; 8], &[0; 1000], None, &0).unwrap();
        while take(&mut consumer).is_some() {}
        consumer.publish();
        assert_eq!((producer.rest(), producer.rest()), (Ok(false), Ok(true)));
        let writer = thread::spawn(move || {
            producer.push(&[1; 8], &[], None, &0).unwrap();
            // The reader may be in the long lines still.
            while producer.push(&[2; 8], &[2; 1000], None, &0) == Err(PushError::Full) {
                thread::yield_now();
            }
        });
        for expected in [1, 2] {
            let bytes = loop {
                match take(&mut consumer) {
                    Some(bytes) => break bytes,
                    None => thread::yield_now(),
                }
                consumer.publish();
            };
            assert!(bytes.iter().all(|byte| *byte == expected));
        }
        writer.join().unwrap();
    });
}

/// What lies in the short lines from before the long ones were in use is no message.
#[test]
fn lines_are_clear_before_the_reader_goes_there() {
    for cycles in 1..3 {
        check(3, move || {
            let ring = short_ring();
            let mut producer = Producer::new(ring.clone(), Arc::default());
            let mut consumer = Consumer::new(ring, MESSAGE_MAX, Arc::default());
            let take = |consumer: &mut Consumer| {
                let mut meta = consumer.peek()?;
                while consumer.skip(meta) {
                    meta = consumer.peek()?;
                }
                let shape = consumer.parse(meta).unwrap();
                Some(consumer.take(shape, None).bytes.to_vec(0))
            };
            for cycle in 0..cycles {
                producer.push(&[0; 8], &[], None, &0).unwrap();
                producer.push(&[0; 8], &[0; 1000], None, &0).unwrap();
                while take(&mut consumer).is_some() {}
                consumer.publish();
                assert_eq!(producer.rest(), Ok(false));
                if cycle + 1 < cycles {
                    assert_eq!(producer.rest(), Ok(true));
                    assert!(take(&mut consumer).is_none());
                    consumer.publish();
                }
            }
            let writer = thread::spawn(move || {
                assert_eq!(producer.rest(), Ok(true));
                producer.push(&[1; 8], &[], None, &0).unwrap();
            });
            let bytes = loop {
                match take(&mut consumer) {
                    Some(bytes) => break bytes,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(bytes, [1; 8]);
            writer.join().unwrap();
        });
    }
}

#[test]
fn no_message_is_slept_through() {
    no_message_is_slept_through_if(true);
}

#[test]
fn no_message_is_slept_through_where_membarrier_is_forbidden() {
    no_message_is_slept_through_if(false);
}

fn no_message_is_slept_through_if(has_barriers: bool) {
    check_with(has_barriers, 3, move || {
        let (_, mut reader, mut connection) = reader_and_writer(has_barriers);
        let writer = thread::spawn(move || {
            connection.send(&[1; 16], &[], None, &0).unwrap();
            connection.send(&[2; 16], &[], None, &0).unwrap();
        });
        assert_eq!(reader.wait(), (WRITER, vec![1; 16]));
        assert_eq!(reader.wait(), (WRITER, vec![2; 16]));
        writer.join().unwrap();
    });
}

#[test]
fn one_bell_wakes_for_two_writers() {
    // Both bits in one word of the page, and in two words.
    for bits in [[1, 2], [1, 65]] {
        check(2, move || {
            let doorbell = doorbell();
            let mut reader = Reader::new(&doorbell);
            let writers = bits.map(|number| {
                let ring = ring();
                reader.insert(bit(number), &ring);
                let mut connection = connection(&ring, &doorbell, bit(number));
                thread::spawn(move || connection.send(&[1; 16], &[], None, &0).unwrap())
            });
            let mut from = [reader.wait().0.0, reader.wait().0.0];
            from.sort_unstable();
            assert_eq!(from, bits);
            for writer in writers {
                writer.join().unwrap();
            }
        });
    }
}

#[test]
fn what_is_written_while_a_ring_is_taken_in_is_found() {
    check(3, || {
        let ring = ring();
        let doorbell = doorbell();
        let mut connection = connection(&ring, &doorbell, bit(1));
        let writer = thread::spawn(move || connection.send(&[1; 16], &[], None, &0).unwrap());
        let mut reader = Reader::new(&doorbell);
        reader.insert(bit(1), &ring);
        assert_eq!(reader.wait(), (WRITER, vec![1; 16]));
        writer.join().unwrap();
    });
}

#[test]
fn what_is_written_while_a_ring_becomes_cold_is_found() {
    check(3, || {
        let ring = ring();
        let doorbell = doorbell();
        let mut reader = Reader::new(&doorbell);
        reader.insert(bit(1), &ring);
        let mut connection = connection(&ring, &doorbell, bit(1));
        connection.send(&[1; 16], &[], None, &0).unwrap();
        assert_eq!(reader.wait(), (WRITER, vec![1; 16]));
        let writer = thread::spawn(move || connection.send(&[2; 16], &[], None, &0).unwrap());
        reader.inboxes.retire(bit(1));
        assert_eq!(reader.wait(), (WRITER, vec![2; 16]));
        writer.join().unwrap();
    });
}

#[test]
fn a_writer_that_sleeps_until_there_is_room_is_woken() {
    check(3, || {
        let ring = ring();
        let readers_doorbell = doorbell();
        let writers_doorbell = doorbell();
        let mut reader = Reader::new(&readers_doorbell);
        reader.insert(bit(1), &ring);
        let mut there = connection(&ring, &readers_doorbell, bit(1));
        let mut sent = 0;
        while there.send(&[sent; 16], &[], None, &0).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 63);
        let back = connection(&ring, &writers_doorbell, bit(1));
        let writer = thread::spawn(move || {
            let mut own = Reader::new(&writers_doorbell);
            while there.producer.push(&[sent; 16], &[], None, &0) == Err(PushError::Full) {
                let announced = own.inboxes.announce_sleep();
                let has_room = there.producer.want_space(&announced).unwrap();
                if !has_room && own.inboxes.fall_asleep(&announced) {
                    own.doorbell.wakes.wait();
                }
                own.inboxes.wake_up();
            }
        });
        assert_eq!(reader.poll(), Some((WRITER, vec![0; 16])));
        reader.inboxes.publish_hot();
        for _ in reader.inboxes.wake.drain(..) {
            back.wake();
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_mapped_read_that_succeeds_has_no_byte_of_a_later_use() {
    check(3, || {
        let word = Arc::new(AtomicU64::new(0));
        let bytes = Arc::new([AtomicU64::new(1), AtomicU64::new(1)]);
        let owner = thread::spawn({
            let word = word.clone();
            let bytes = bytes.clone();
            move || {
                generation::end(&word);
                bytes.iter().for_each(|byte| byte.store(2, Relaxed));
            }
        });
        let seen = [1, 0].map(|at| bytes[at].load(Relaxed));
        assert!(!generation::is_current(&word, 0) || seen == [1, 1], "{seen:?}");
        owner.join().unwrap();
        assert!(!generation::is_current(&word, 0));
    });
}

#[test]
fn each_piece_of_a_message_has_one_owner_and_is_seen_whole() {
    check(3, || {
        let claims = Arc::new(Claims::default());
        let pieces: Arc<[UnsafeCell<u8>; 3]> = Arc::new([(); 3].map(|()| UnsafeCell::new(0)));
        // SAFETY: loom reports accesses at the same time.
        let copy = |cell: &UnsafeCell<u8>| cell.with_mut(|byte| unsafe { *byte += 1 });
        let mut receiver = ReceiverSide::begin(&claims, 1, 3, 0).unwrap();
        let senders_claims = claims.clone();
        let senders_pieces = pieces.clone();
        let sender = thread::spawn(move || {
            let mut side = SenderSide::new(1, 3);
            while let Some(piece) = side.claim(&senders_claims) {
                copy(&senders_pieces[piece as usize]);
                side.release(&senders_claims, true);
            }
        });
        while let Some(piece) = receiver.claim(&claims).unwrap() {
            copy(&pieces[piece as usize]);
        }
        while receiver.sender_pieces(&claims).unwrap() == SenderPieces::Claimed {
            thread::yield_now();
        }
        for piece in &*pieces {
            // SAFETY: as above.
            assert_eq!(piece.with(|byte| unsafe { *byte }), 1);
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_release_that_is_waited_for_is_not_slept_through() {
    for has_barriers in [true, false] {
        check_with(has_barriers, 3, move || {
            let (ring, mut reader, connection) = reader_and_writer(has_barriers);
            let claims = &ring.header().claims.0;
            let mut receiver = ReceiverSide::begin(claims, 1, 1, 0).unwrap();
            let mut side = SenderSide::new(1, 1);
            assert_eq!(side.claim(claims), Some(0));
            receiver.claim_rest(claims).unwrap();
            let sender = thread::spawn(move || {
                side.release(&connection.producer.ring().header().claims.0, true);
                connection.notify();
            });
            let is_there = || receiver.sender_pieces(claims).unwrap() == SenderPieces::Copied;
            while !is_there() {
                assert!(reader.poll().is_none());
                let announced = reader.inboxes.announce_sleep();
                if reader.inboxes.fall_asleep(&announced) {
                    if !is_there() {
                        reader.doorbell.wakes.wait();
                    }
                    reader.inboxes.wake_up();
                }
            }
            sender.join().unwrap();
        });
    }
}
