//! The memory of a segment for the model checker, and its programs: members that publish and read,
//! in all interleavings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread;
use tagmatch_os::memory::Mapping;

use super::memory::{AREAS, Place, SLOTS, Slot};
use super::{Published, Segment, Stamp};
use crate::streaming::Writing;
use crate::sync::AtomicU64;

/// Contents in the model are one byte.
struct Member {
    slots: [(Slot, UnsafeCell<u8>); SLOTS],
    areas: [UnsafeCell<u8>; AREAS],
    finished: AtomicU64,
}

/// Stands for mapped memory.
#[derive(Clone)]
pub(super) struct Memory {
    members: Arc<Vec<Member>>,
    token: Arc<[AtomicU64; 2]>,
}

// SAFETY: loom runs one thread at a time, and panics if two threads use a byte at once.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(_: Mapping, members: u32) -> io::Result<Self> {
        let slot = || Slot { stamp: AtomicU64::new(0), about: AtomicU64::new(0) };
        let member = |_| Member {
            slots: std::array::from_fn(|_| (slot(), UnsafeCell::new(0))),
            areas: std::array::from_fn(|_| UnsafeCell::new(0)),
            finished: AtomicU64::new(0),
        };
        let token = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        Ok(Memory { members: Arc::new((0..members).map(member).collect()), token })
    }

    pub(super) fn members(&self) -> u32 {
        self.members.len() as u32
    }

    pub(super) fn token(&self) -> [&AtomicU64; 2] {
        self.token.each_ref()
    }

    pub(super) fn slot(&self, member: u32, slot: usize) -> &Slot {
        &self.members[member as usize].slots[slot].0
    }

    pub(super) fn finished(&self, member: u32) -> &AtomicU64 {
        &self.members[member as usize].finished
    }

    pub(super) fn prefetch(&self, _: u32, _: usize) {}

    fn byte(&self, place: Place) -> &UnsafeCell<u8> {
        match place {
            Place::Slot(member, slot) => &self.members[member as usize].slots[slot].1,
            Place::Area(member, area) => &self.members[member as usize].areas[area],
        }
    }

    pub(super) fn write(&self, place: Place, _: usize, contents: &[u8], _: &mut Writing) {
        // SAFETY: loom panics if another thread uses the byte.
        self.byte(place).with_mut(|byte| unsafe { *byte = contents[0] });
    }

    pub(super) fn read(&self, place: Place, _: usize, into: &mut [u8]) {
        // SAFETY: loom panics if another thread writes the byte.
        self.byte(place).with(|byte| unsafe { into[0] = *byte });
    }
}

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
        match segment.look(from, stamp) {
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
        let second = members.next().unwrap();
        let thread = thread::spawn(move || {
            let stamp = Stamp::new(1, 0);
            publish(&mut first, stamp, false, 7);
            first.finish(stamp.end());
        });
        let stamp = Stamp::new(1, 0);
        while !second.has_ended(0, stamp) {
            thread::yield_now();
        }
        assert_eq!(second.look(0, stamp), Published::Contents { about: 7 });
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
