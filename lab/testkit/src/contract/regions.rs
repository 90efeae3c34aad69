//! Accesses to regions of a peer, of devices that do them by themselves.

use tagmatch_device::{
    AccessEnd, AccessKind, Buffer, Device, DownReason, ElementChanges, PeerId, PublishedRegion,
    QuickAccess, RegionAccess, RegionPlace, RegionSpan, Room,
};

use super::Fixture;
use crate::device::{Other, Owned, connect, message, pattern, poll, role, say, wait_for};

const KEY: u64 = 77;

/// Two connected devices, of which the second one has a region.
struct RegionPair<F: Fixture> {
    a: F::Device,
    b: F::Device,
    to_b: PeerId,
    to_a: PeerId,
    memory: Buffer,
    of: RegionSpan,
    /// Accesses that were done in one call.
    at_once: u32,
}

fn publish<D: Device>(device: &mut D, memory: &Buffer, reads: bool, writes: bool) -> RegionSpan {
    publish_as(
        device,
        &PublishedRegion { key: KEY, base: None, memory, reads, writes, changes: false },
    )
}

fn publish_as<D: Device>(device: &mut D, region: &PublishedRegion<'_>) -> RegionSpan {
    let place = device.publish(region);
    assert!(!place.is_none(), "the device accesses no regions");
    RegionSpan { key: region.key, place, offset: 0 }
}

impl<F: Fixture> RegionPair<F> {
    fn new(memory: Buffer, reads: bool, writes: bool) -> Self {
        Self::in_memory(|_| memory, reads, writes)
    }

    /// Memory that the second device chooses.
    fn in_memory(memory: impl FnOnce(&mut F::Device) -> Buffer, reads: bool, writes: bool) -> Self {
        let mut a = F::usual();
        let mut b = F::usual();
        let (to_b, to_a) = connect(&mut a, &mut b);
        let memory = memory(&mut b);
        let of = publish(&mut b, &memory, reads, writes);
        RegionPair { a, b, to_b, to_a, memory, of, at_once: 0 }
    }

    /// An access of the first device, in one call if it can: its buffer, and whether it was done.
    fn access(&mut self, kind: AccessKind, of: RegionSpan, mut buffer: Vec<u8>) -> (Vec<u8>, bool) {
        let access = match kind {
            AccessKind::Read => QuickAccess::Read(Room::from(&mut buffer[..])),
            AccessKind::Write => QuickAccess::Write(&buffer),
        };
        if self.a.access_at_once(self.to_b, of, access) {
            self.at_once += 1;
            return (buffer, true);
        }
        let access = RegionAccess { peer: self.to_b, of, kind, buffer: buffer.into() };
        if let Err(buffer) = self.a.access(access) {
            return (buffer.into_vec(), false);
        }
        let end = wait_for(&mut [&mut self.a, &mut self.b], "an access", |index, event| {
            match (index, event) {
                (0, Owned::AccessDone(end)) => Some(end),
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(end.peer, self.to_b);
        (end.buffer.into_vec(), end.is_done)
    }
}

/// An access moves the bytes of its span, whatever their number, and no others.
///
/// # Panics
/// If the device breaks this promise.
pub fn accesses_of_every_size_move_their_bytes<F: Fixture>() {
    let sizes = [1, 7, 8, 64, 4096, 65_537, (128 << 10) + 1, 1 << 20, (5 << 20) + 3];
    for size in sizes {
        for is_of_device in [false, true] {
            let memory = |device: &mut F::Device| {
                let of_device = is_of_device.then(|| device.allocate(size + 20));
                of_device.flatten().unwrap_or_else(|| Buffer::zeroed(size + 20))
            };
            let mut pair = RegionPair::<F>::in_memory(memory, true, true);
            let fill = pair.memory.to_vec();
            let of = RegionSpan { offset: 10, ..pair.of };
            let bytes = pattern(size, size);
            let (buffer, is_done) = pair.access(AccessKind::Write, of, bytes.clone());
            assert!(is_done && buffer == bytes, "the buffer of {size} bytes comes back");
            let (buffer, is_done) = pair.access(AccessKind::Read, of, vec![9; size]);
            assert!(is_done && buffer == bytes, "{size} bytes were read");
            let end = size + 10;
            assert!(pair.b.unpublish(KEY));
            assert!(pair.memory[10..end] == bytes, "{size} bytes were written");
            assert!(pair.memory[..10] == fill[..10] && pair.memory[end..] == fill[end..]);
            // What is long takes several calls, and what is short is in no memory of the device.
            let is_quick = F::MAPS_REGIONS && is_of_device && (65_537..1 << 20).contains(&size);
            assert!(pair.at_once == 2 || !is_quick, "{size} bytes of mapped memory");
        }
    }
}

/// An access that names another region or place, or bytes that aren't all in the region, or that
/// lacks the right, is not done, changes nothing, and disturbs nothing else.
///
/// # Panics
/// If the device breaks this promise.
pub fn an_access_that_its_region_does_not_allow_changes_nothing<F: Fixture>() {
    refuse_what_is_not_allowed(RegionPair::<F>::new(Buffer::zeroed(LENGTH), true, true));
    let of_device = |device: &mut F::Device| device.allocate(LENGTH).unwrap();
    refuse_what_is_not_allowed(RegionPair::<F>::in_memory(of_device, true, true));
}

const LENGTH: usize = 300_000;

fn refuse_what_is_not_allowed<F: Fixture>(mut pair: RegionPair<F>) {
    let of = pair.of;
    let RegionPlace { record, address } = of.place;
    let at = |offset| RegionSpan { offset, ..of };
    let with = |record, address| RegionSpan { place: RegionPlace { record, address }, ..of };
    let bad = [
        (RegionSpan { key: KEY ^ 1, ..of }, 8),
        (RegionSpan { key: 0, ..of }, 8),
        (with(0, address), 8),
        (with(record + 8, address), 8),
        (with(8, address), 8),
        (with(u64::MAX - 3, address), 8),
        (with(record, address + 1), 8),
        (with(record, 16), 8),
        (with(record, u64::MAX - 3), 8),
        (at(1), LENGTH),
        (at(0), LENGTH + 1),
        (at(LENGTH as u64), 1),
        (at(u64::MAX), 1),
        (at(u64::MAX - address), 8),
        (at(0u64.wrapping_sub(address)), 8),
    ];
    for (of, length) in bad {
        // A device that finds regions by their keys alone needs some place, and no certain one.
        let is_other_place = of.place != pair.of.place && !of.place.is_none();
        let is_inside = of == pair.of && length <= LENGTH;
        if pair.of.place == RegionPlace::BY_KEY && (is_other_place || is_inside) {
            continue;
        }
        for kind in [AccessKind::Read, AccessKind::Write] {
            let (buffer, is_done) = pair.access(kind, of, vec![1; length]);
            assert!(!is_done && buffer.len() == length, "{kind:?} {of:?}");
        }
    }
    assert!(pair.memory.iter().all(|byte| *byte == 0), "a refused access has changed the region");
    assert!(pair.b.unpublish(KEY));
    for (reads, writes) in [(true, false), (false, true)] {
        let of = publish(&mut pair.b, &pair.memory, reads, writes);
        assert_eq!(pair.access(AccessKind::Read, of, vec![1; 8]).1, reads);
        assert_eq!(pair.access(AccessKind::Write, of, vec![0; 8]).1, writes);
        assert!(pair.b.unpublish(KEY));
    }
    assert!(pair.memory.iter().all(|byte| *byte == 0));
    pair.b.send(pair.to_a, message(b"still here")).unwrap();
    wait_for(&mut [&mut pair.a, &mut pair.b], "a message", |_, event| {
        matches!(event, Owned::Message(..)).then_some(())
    });
}

/// A region with a base is found by its key, by the numbers that its base begins, until it is
/// closed. Its key may then name other memory.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_region_with_a_base_is_found_by_its_key_until_it_is_closed<F: Fixture>() {
    let mut pair = RegionPair::<F>::new(Buffer::zeroed(8), true, true);
    let of_base = |key, memory, base| PublishedRegion {
        key,
        base: Some(base),
        memory,
        reads: true,
        writes: true,
        changes: false,
    };
    let length = 100_000;
    let [first, second] = [(); 2].map(|()| Buffer::zeroed(length));
    let bytes = pattern(1, 70_000);
    for (memory, base) in [(&first, 1 << 40), (&second, 0)] {
        let place = pair.b.publish(&of_base(0, memory, base));
        assert_eq!(place, RegionPlace::BY_KEY);
        let at = |offset| RegionSpan { key: 0, place, offset };
        assert!(pair.access(AccessKind::Write, at(base + 10), bytes.clone()).1);
        let (found, is_done) = pair.access(AccessKind::Read, at(base + 10), vec![0; 70_000]);
        assert!(is_done && found == bytes);
        let outside = [base.wrapping_sub(1), base + length as u64 - 19_999, u64::MAX - 3];
        let bad = outside.map(at).into_iter().chain([RegionSpan { key: 1, ..at(base) }]);
        for of in bad {
            assert!(!pair.access(AccessKind::Write, of, vec![1; 20_000]).1, "{of:?}");
            assert!(!pair.access(AccessKind::Read, of, vec![1; 20_000]).1, "{of:?}");
        }
        assert!(pair.b.unpublish(0));
        assert!(!pair.access(AccessKind::Write, at(base + 10), vec![1; 20_000]).1);
        assert!(!pair.access(AccessKind::Read, at(base + 10), vec![1; 20_000]).1);
    }
    for memory in [first, second] {
        assert!(memory[10..70_010] == bytes && memory[..10] == [0; 10]);
        assert!(memory[70_010..].iter().all(|byte| *byte == 0));
    }
}

/// Elements of a region are changed, each of them whole, if the region grants that and they lie in
/// it at a multiple of their size; otherwise none of them is.
///
/// # Panics
/// If the device breaks this promise.
pub fn elements_are_changed_where_their_region_grants_it<F: Fixture>() {
    let of_device = |device: &mut F::Device| device.allocate(LENGTH).unwrap();
    let mut pair = RegionPair::<F>::in_memory(of_device, true, true);
    assert!(pair.b.unpublish(KEY));
    let published = |pair: &mut RegionPair<F>, changes: bool| {
        let memory = &pair.memory;
        let region = PublishedRegion {
            key: KEY,
            base: None,
            memory,
            reads: true,
            writes: !changes,
            changes,
        };
        RegionSpan { key: KEY, place: pair.b.publish(&region), offset: 0 }
    };
    let change = |pair: &mut RegionPair<F>, of: RegionSpan, size: usize, count: usize| {
        let mut olds = Vec::new();
        let change = &mut |_: usize, element: &mut [u8]| {
            olds.push(element.to_vec());
            element[0] = element[0].wrapping_add(1);
        };
        let changes = QuickAccess::Change(ElementChanges { size, count, change });
        let is_done = pair.a.access_at_once(pair.to_b, of, changes);
        assert_eq!(olds.len(), if is_done { count } else { 0 }, "elements of {size} bytes");
        is_done
    };
    pair.memory.as_mut_slice().unwrap().fill(0);
    let of = published(&mut pair, false);
    assert!(!change(&mut pair, of, 8, 1), "a region without the right is changed");
    assert!(pair.b.unpublish(KEY));
    let of = published(&mut pair, true);
    let at = |offset| RegionSpan { offset, ..of };
    for (of, size, count) in [
        (at(4), 8, 1),
        (at(1), 2, 1),
        (at(0), 16, 1),
        (at(0), 3, 1),
        (at(LENGTH as u64), 1, 1),
        (at(LENGTH as u64 - 8), 8, 2),
        (at(0), 8, usize::MAX),
        (RegionSpan { key: KEY ^ 1, ..of }, 8, 1),
    ] {
        assert!(!change(&mut pair, of, size, count), "{of:?} {size} {count}");
    }
    assert!(pair.memory.iter().all(|byte| *byte == 0), "a refused change has changed the region");
    for (start, size, count) in [(8, 8, 3), (32, 4, 1), (36, 2, 1), (39, 1, 1)] {
        assert!(change(&mut pair, at(start), size, count));
    }
    assert!(!pair.access(AccessKind::Write, of, vec![7; 8]).1, "changing isn't writing");
    assert!(pair.b.unpublish(KEY) && !change(&mut pair, of, 8, 1));
    let changed: Vec<_> = (0..LENGTH).filter(|at| pair.memory[*at] != 0).collect();
    assert_eq!(changed, [8, 16, 24, 32, 36, 39]);
}

/// No access is done once its region was unpublished, not even the rest of one that has begun.
///
/// # Panics
/// If the device breaks this promise.
pub fn no_access_is_done_once_its_region_is_unpublished<F: Fixture>() {
    const LENGTH: usize = 64 << 20;
    for kind in [AccessKind::Read, AccessKind::Write] {
        let mut pair = RegionPair::<F>::new(Buffer::zeroed(LENGTH), true, true);
        let access = |buffer| RegionAccess { peer: pair.to_b, of: pair.of, kind, buffer };
        for _ in 0..2 {
            pair.a.access(access(Buffer::from(vec![1; LENGTH]))).unwrap();
        }
        loop {
            assert!(poll(&mut pair.a).is_none(), "so many bytes in one poll");
            if kind == AccessKind::Read || pair.memory.contains(&1) {
                break;
            }
            assert!(poll(&mut pair.b).is_none());
        }
        assert!(pair.b.unpublish(KEY));
        let before = pair.memory.to_vec();
        for _ in 0..2 {
            let end =
                wait_for(&mut [&mut pair.a, &mut pair.b], "its end", |_, event| match event {
                    Owned::AccessDone(end) => Some(end),
                    other => panic!("{other:?}"),
                });
            assert!(!end.is_done && end.buffer.len() == LENGTH);
        }
        assert!(!pair.access(kind, pair.of, vec![2; 8]).1);
        assert!(pair.memory[..] == before, "memory of a region that was unpublished has changed");
    }
}

/// The buffers of accesses come back before their peer is reported as down. To a peer that is not
/// up, none begins.
///
/// # Panics
/// If the device breaks this promise.
pub fn buffers_of_accesses_come_back_before_the_end_of_their_peer<F: Fixture>() {
    let mut pair = RegionPair::<F>::new(Buffer::zeroed(32 << 20), true, true);
    let RegionPair { a, b, to_b, of, .. } = &mut pair;
    let access = |kind| {
        let buffer = Buffer::zeroed(32 << 20);
        RegionAccess { peer: *to_b, of: *of, kind, buffer }
    };
    for kind in [AccessKind::Read, AccessKind::Write, AccessKind::Read] {
        a.access(access(kind)).unwrap();
    }
    a.disconnect(*to_b);
    for _ in 0..3 {
        match wait_for(&mut [a], "a buffer", |_, event| Some(event)) {
            Owned::AccessDone(AccessEnd { buffer, is_done: false, .. }) => {
                assert_eq!(buffer.len(), 32 << 20);
            }
            other => panic!("{other:?}"),
        }
    }
    match wait_for(&mut [a], "its end", |_, event| Some(event)) {
        Owned::Down(peer, DownReason::Disconnected) => assert_eq!(peer, *to_b),
        other => panic!("{other:?}"),
    }
    assert!(a.access(access(AccessKind::Read)).is_err());
    let to_nobody = RegionAccess { peer: PeerId(9), ..access(AccessKind::Write) };
    assert!(a.access(to_nobody).is_err());
    assert!(b.unpublish(KEY));
}

/// The words of a span, as the bytes of a message.
fn bytes_of(of: RegionSpan) -> Vec<u8> {
    let words = [of.place.record, of.place.address, of.key];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The program of the other process: writes a region again and again.
fn write_for_ever<F: Fixture>() -> ! {
    let mut device = F::usual();
    say(device.address());
    let mut target = None;
    let mut writing = None;
    let mut stamp = 0u8;
    loop {
        match poll(&mut device) {
            Some(Owned::Message(peer, _, bytes)) => {
                let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
                let place = RegionPlace { record: word(0), address: word(8) };
                target = Some((peer, RegionSpan { key: word(16), place, offset: 0 }));
            }
            Some(Owned::AccessDone(AccessEnd { is_done, .. })) => {
                let written = writing.take();
                // It is stopped once the region was closed.
                target = target.filter(|_| is_done || target != written);
            }
            _ => {}
        }
        if let Some((peer, of)) = target.filter(|_| writing.is_none()) {
            stamp = stamp % 255 + 1;
            let buffer = Buffer::from(vec![stamp; WRITTEN]);
            let access = RegionAccess { peer, of, kind: AccessKind::Write, buffer };
            writing = device.access(access).is_ok().then_some((peer, of));
        }
    }
}

/// Bytes that the other process writes.
const WRITTEN: usize = 4 << 20;

/// A region that is closed while another process writes it stays as it is from then on; also if
/// that process is killed at that moment, or was before.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_region_that_is_closed_under_a_writer_is_left_alone<F: Fixture>() {
    if role().is_some() {
        write_for_ever::<F>();
    }
    let test = "a_region_that_is_closed_under_a_writer_is_left_alone";
    for kills in [false, true] {
        let mut other = Other::spawn(&format!("{}{test}", F::MODULE), "writer");
        let mut device = F::usual();
        let peer = device.connect(&other.hear_address()).unwrap();
        wait_for(&mut [&mut device], "the connection", |_, event| match event {
            Owned::Up(up, _) if up == peer => Some(()),
            other => panic!("{other:?}"),
        });
        for key in 1..=if kills { 1 } else { 20 } {
            let of_device = device.allocate(WRITTEN).filter(|_| key % 2 == 0);
            let mut memory = of_device.unwrap_or_else(|| Buffer::zeroed(WRITTEN));
            memory.as_mut_slice().unwrap().fill(0);
            let of = publish_as(
                &mut device,
                &PublishedRegion {
                    key,
                    base: None,
                    memory: &memory,
                    reads: false,
                    writes: true,
                    changes: false,
                },
            );
            device.send(peer, message(&bytes_of(of))).unwrap();
            while memory.iter().all(|byte| *byte == 0) {
                assert!(poll(&mut device).is_none());
            }
            if kills {
                other.kill();
            }
            // A writer that has no processor for long is given up: its region is lost.
            if !device.unpublish(key) {
                assert!(!kills, "a writer that was killed is waited for");
                continue;
            }
            let before = memory.to_vec();
            for _ in 0..1000 {
                poll(&mut device);
            }
            assert!(memory[..] == before, "memory of a region that was closed has changed");
        }
    }
}
