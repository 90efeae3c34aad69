//! Receive queues, as programs lay them out.

use super::array::{Array, BASE};
use super::programs::segment;
use crate::memory::Memory;
use crate::nic::receive::Receive;
use crate::nic::receive_queue::{Rq, Srq, SrqCursor, SrqPlace};

/// Each receive has 32 bytes.
const SHIFT: u32 = 5;
const SIZE: u32 = 4;

fn put(memory: &Array, at: u64, bytes: &[u8]) {
    memory.write(&[(at, bytes)]).unwrap();
}

/// The number of a receive, and the addresses of its segments.
fn seen(taken: Option<Receive>) -> Option<(u16, Vec<u64>)> {
    taken
        .map(|receive| (receive.index, receive.segments.iter().map(|segment| segment.at).collect()))
}

#[test]
fn a_queue_of_one_pair_goes_round_and_counts_modulo_two_to_the_sixteenth() {
    let memory = Array::new(u64::MAX);
    for place in 0..u64::from(SIZE) {
        let two = [segment(place, 8, 1), segment(place + 100, 8, 1)].concat();
        put(&memory, BASE + place * 32, &two);
    }
    let mut queue = Rq::new(BASE, SIZE, SHIFT);
    assert_eq!((queue.size(), queue.available(), queue.flush()), (SIZE, 0, None));
    assert!(queue.take(&memory).unwrap().is_none());
    // The record of a program that goes on behind 2^16 receives, two at a time.
    for number in (0..0x1_0010_u32).step_by(2) {
        queue.hear(number + 2);
        assert_eq!(queue.available(), 2);
        let place = u64::from(number % SIZE);
        let index = (number % 0x1_0000) as u16;
        assert_eq!(seen(queue.take(&memory).unwrap()), Some((index, vec![place, place + 100])));
        assert_eq!((queue.available(), queue.flush(), queue.flush()), (1, Some(index + 1), None));
    }
    queue.hear(0);
    assert_eq!(queue.available(), SIZE, "no more than there are places");
    queue.reset();
    assert_eq!(queue.available(), 0);
    queue.hear(1);
    assert_eq!(seen(queue.take(&memory).unwrap()).unwrap().0, 0);
}

fn shared(limit: u32, segments_max: u32) -> Srq {
    let place = SrqPlace { at: BASE, record: BASE + 4096, size: SIZE, shift: SHIFT + 1 };
    Srq {
        place,
        pd: 1,
        context: 3,
        user_handle: 0,
        user_index: 0,
        segments_max,
        max_wr: SIZE - 1,
        limit,
        tags: None,
        pages: 1,
        async_events: 0,
        is_broken: false,
        cursor: SrqCursor::default(),
    }
}

/// Each receive has a header, which names the next one, and room for three segments.
fn link(memory: &Array, place: u16, next: u16) {
    let segments = [0, 100, 200].map(|more| segment(u64::from(place) + more, 8, 1)).concat();
    let header = [&[0, 0][..], &next.to_be_bytes(), &[0; 12]].concat();
    put(memory, BASE + u64::from(place) * 64, &[header, segments].concat());
}

#[test]
fn a_shared_queue_follows_its_links_and_a_wrong_link_stays_inside() {
    let memory = Array::new(u64::MAX);
    for (place, next) in [(0, 2), (2, 1), (1, 0xfff3), (3, 0)] {
        link(&memory, place, next);
    }
    let mut queue = shared(0, 2);
    assert!(queue.take(&memory).unwrap().is_none());
    queue.hear(0x1_0002);
    assert_eq!(queue.available(), 2);
    queue.hear(6);
    for (place, left) in [(0, 4), (2, 4), (1, 3), (3, 2), (0, 1), (2, 0)] {
        let (index, segments) = seen(queue.take(&memory).unwrap()).unwrap();
        assert_eq!((index, segments), (place, vec![place.into(), u64::from(place) + 100]));
        assert_eq!(queue.available(), left);
    }
    assert!(queue.take(&memory).unwrap().is_none());
    assert!(!queue.is_below_limit(), "there is no limit");
}

#[test]
fn few_receives_are_told_once_when_there_are_fewer_than_the_limit() {
    let memory = Array::new(u64::MAX);
    let mut queue = shared(2, 1);
    queue.hear(3);
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(queue.is_below_limit());
        queue.take(&memory).unwrap().unwrap();
    }
    assert_eq!(answers, [false, false, true]);
    assert!(!queue.is_below_limit(), "it was told");
}
