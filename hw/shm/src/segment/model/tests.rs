//! The model checker's programs: members that publish and read, in all interleavings.

use std::sync::atomic::Ordering::Relaxed;

use loom::thread;
use tagmatch_os::memory::Mapping;

use super::super::{Published, Segment, Stamp};
use super::Memory;

fn check(program: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 10_000;
    model.check(program);
}

/// The views of all members of one segment.
fn segments(members: u32) -> Vec<Segment> {
    let memory = Memory::new(Mapping::private(4096).unwrap(), members).unwrap();
    (0..members).map(|own| Segment::over(memory.clone(), members, own)).collect()
}

fn publish(segment: &mut Segment, stamp: Stamp, long: bool, byte: u8) {
    while segment.lacks(stamp, long).is_some() {
        thread::yield_now();
    }
    segment.write(stamp, long, 0, &[byte]);
    segment.publish(stamp, long, byte.into());
}

fn read(segment: &mut Segment, from: u32, stamp: Stamp, long: bool) -> u8 {
    loop {
        match segment.look(from, stamp, 1) {
            Published::NotYet => thread::yield_now(),
            Published::Contents { about } => {
                let mut byte = [0];
                segment.contents(from, stamp, long).read(0, &mut byte);
                assert_eq!(u64::from(byte[0]), about);
                return byte[0];
            }
            Published::Other => panic!("a slot was used again too early"),
        }
    }
}

/// One member publishes more than its areas hold. No contents change before the other has read
/// them.
#[test]
fn contents_stay_until_they_are_read() {
    check(|| {
        let mut members = segments(2).into_iter();
        let mut writer = members.next().unwrap();
        let mut reader = members.next().unwrap();
        let thread = thread::spawn(move || {
            for round in 0..3 {
                let stamp = Stamp::new(1, round);
                assert_eq!(u32::from(read(&mut reader, 0, stamp, true)), round + 1);
                reader.finish(stamp);
            }
        });
        for round in 0..3 {
            publish(&mut writer, Stamp::new(1, round), true, round as u8 + 1);
        }
        thread.join().unwrap();
    });
}

/// Two members publish and read in each round, over several operations.
#[test]
fn members_that_swap_contents_see_those_of_the_round() {
    check(|| {
        let members = segments(2);
        let run = |mut segment: Segment, own: u32| {
            for operation in 1..=3u64 {
                let stamp = Stamp::new(operation, 0);
                publish(&mut segment, stamp, true, operation as u8 * 2 + own as u8);
                let other = read(&mut segment, 1 - own, stamp, true);
                assert_eq!(u32::from(other), operation as u32 * 2 + 1 - own);
                segment.finish(stamp.end());
            }
        };
        let mut members = members.into_iter();
        let first = members.next().unwrap();
        let second = members.next().unwrap();
        let thread = thread::spawn(move || run(second, 1));
        run(first, 0);
        thread.join().unwrap();
    });
}

/// A member that gave up has published nothing that a reader could still miss.
#[test]
fn the_end_of_an_operation_is_seen_after_its_contents() {
    check(|| {
        let mut members = segments(2).into_iter();
        let mut first = members.next().unwrap();
        let mut second = members.next().unwrap();
        let thread = thread::spawn(move || {
            let stamp = Stamp::new(1, 0);
            publish(&mut first, stamp, false, 7);
            first.finish(stamp.end());
        });
        let stamp = Stamp::new(1, 0);
        while !second.has_ended(0, stamp) {
            thread::yield_now();
        }
        assert_eq!(second.look(0, stamp, 1), Published::Contents { about: 7 });
        thread.join().unwrap();
    });
}

/// Zeros are written over the words of both members, as by another process, and the members restore
/// them. A restored word says no more than was done before.
#[test]
fn restored_words_are_seen_after_what_they_stand_for() {
    check(|| {
        let mut members = segments(2).into_iter();
        let mut writer = members.next().unwrap();
        let mut reader = members.next().unwrap();
        let thread = thread::spawn(move || {
            for round in 0..3 {
                let stamp = Stamp::new(1, round);
                assert_eq!(u32::from(read(&mut reader, 0, stamp, true)), round + 1);
                reader.finish(stamp);
                reader.memory.finished(1).store(0, Relaxed);
                reader.restate(Stamp::new(1, round + 1));
            }
        });
        for round in 0..3 {
            let stamp = Stamp::new(1, round);
            publish(&mut writer, stamp, true, round as u8 + 1);
            writer.memory.slot(0, stamp.slot()).stamp.store(0, Relaxed);
            writer.restate(stamp);
        }
        thread.join().unwrap();
    });
}
