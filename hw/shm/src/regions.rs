//! Regions that peers access by themselves: a put or a get of theirs takes a system call or two of
//! their own, and nothing of the owner's processor.
//!
//! **How a peer finds a region.** Its token says where its record and its bytes are in the owner's
//! memory. Nothing of that is believed. A peer reads the record by process_vm_readv(2), together
//! with the [`nonce`](super::nonce) of the connection, which tells that the process is the owner's.
//! The key in a record is combined with a secret that the owner stores in the memory of the pair,
//! so no token makes a peer take for a record what somebody else has had the owner keep, such as
//! the bytes of a message. A record with another key, address or right, or one that the bytes don't
//! fit, and memory that can't be read end the access. The engine then does the operation by
//! messages, and the owner says what is wrong, if anything is.
//!
//! **Mapped memory.** Records lie in memory of the owner's device, which peers map, and regions do
//! that are buffers of it. An access to such a region is done in the call that begins it, without a
//! system call: bytes are copied, and elements are changed by atomic operations of the processor
//! ([`words`](tagmatch_device::words) says which). The rules are those of all others: a claim or a
//! look at the record behind the bytes.
//!
//! **A get** reads bytes and record in one call, in this order; of memory of the owner's device,
//! the bytes come from the mapping, and the record after them. If the record still had the key, the
//! owner had not closed the region when the bytes were read.
//!
//! **A put** says in a word that the owner sees that it writes, reads the record, writes a piece by
//! process_vm_writev(2), and says that this is over ([`region_words`](super::region_words) has the
//! argument). An owner that closes a region waits for the writes that have begun. That takes the
//! time of one piece, unless the peer is stopped in the middle: then, after [`WRITERS_MAX`], the
//! device says so, and the region's memory is never used for anything else. So only memory that a
//! buffer owns can be written directly: a caller's memory can't be kept from the caller. While such
//! a late writer is there, no further region can be written directly, so a peer makes its owner
//! lose no more than the regions that it had at that time. A process that has ended writes no more:
//! its pidfd, or its socket, says so only after all its threads have left the kernel.
//!
//! Which process a peer writes to is as certain as in `cooperative`: the process was the owner's
//! one system call before.

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use tagmatch_device::{
    AccessEnd, AccessKind, Buffer, Event, PeerId, PublishedRegion, QuickAccess, ReadMode,
    RegionAccess, RegionPlace, RegionSpan, RemoteSpan, Room,
};
use tagmatch_os::process::{self, ReadPart};

use super::arena::{self, Arena};
use super::connection::Connection;
use super::peer_memory::PeerMemory;
use super::peers::{PeerState, Peers};
use super::processes::ReadableProcess;
use super::records::{PublishedRecord, Records};
use super::region_words::{RecordWords, RegionRecord, WriteClaim, sealed};
use super::region_writers::{LateWriter, WriterBarrier};

/// Most bytes that one poll moves, so that a long access doesn't delay messages.
const BYTES_PER_POLL: usize = 1 << 20;
/// Each access counts as so many bytes at least.
const ACCESS_COST: usize = 4 << 10;
/// Most bytes that are written while the word is set.
const PIECE_BYTES: usize = 128 << 10;
/// How long a region that is closed waits for peers that write.
const WRITERS_MAX: Duration = Duration::from_millis(100);

/// The regions of this worker that peers access, and the accesses of this worker.
pub(crate) struct OpenRegions {
    is_on: bool,
    /// Never 0. The keys in records are combined with it.
    seal: u64,
    records: Records,
    published: BTreeMap<u64, PublishedRecord>,
    accesses: VecDeque<PendingAccess>,
    barrier: WriterBarrier,
    /// Peers that didn't clear their word in time. Each connection has at most one.
    late: Vec<LateWriter>,
}

impl OpenRegions {
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new(
        is_on: bool,
        arena: Option<Arena>,
        makes_barriers: bool,
    ) -> std::io::Result<Self> {
        Ok(OpenRegions {
            is_on,
            seal: u64::from_ne_bytes(tagmatch_os::random()?) | 1,
            records: Records::new(arena),
            published: BTreeMap::new(),
            accesses: VecDeque::new(),
            barrier: if makes_barriers { WriterBarrier::Made } else { WriterBarrier::NotNeeded },
            late: Vec::new(),
        })
    }

    /// A connection begins: its peer learns the seal.
    pub(crate) fn note_begin(&self, connection: &Connection) {
        connection.claims().regions.seal.store(self.seal, Release);
    }

    /// See [`Device::publish`](tagmatch_device::Device::publish).
    pub(crate) fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        let PublishedRegion { key, memory, reads, writes, changes } = *region;
        let is_of_device = arena::is_of_device(memory);
        let is_owned = memory.is_vec() || is_of_device;
        self.late.retain(LateWriter::may_write);
        let can_be_closed = self.late.is_empty() && self.barrier != WriterBarrier::Failed;
        let is_writable = memory.is_writable() && can_be_closed;
        let writes = writes && is_owned && is_writable;
        let changes = changes && is_of_device && is_writable;
        let rights = [
            (reads, RecordWords::READS),
            (writes, RecordWords::WRITES),
            (changes, RecordWords::CHANGES),
        ];
        let rights =
            rights.iter().filter(|(is_granted, _)| *is_granted).map(|(_, right)| right).sum();
        let key_in_record = sealed(key, self.seal);
        if !self.is_on || key_in_record == 0 || rights == 0 {
            return RegionPlace::default();
        }
        let address = memory.as_ptr().expose_provenance() as u64;
        let length = memory.len() as u64;
        let words = RecordWords { address, length, rights, key: key_in_record };
        let Some(record) = self.records.publish(words) else { return RegionPlace::default() };
        let place = RegionPlace { record: Records::address(&record), address };
        self.published.insert(key, record);
        place
    }

    /// See [`Device::unpublish`](tagmatch_device::Device::unpublish).
    pub(crate) fn unpublish(&mut self, key: u64, peers: &Peers) -> bool {
        let Some(record) = self.published.remove(&key) else { return true };
        self.records.erase(&record);
        let is_left_alone = !record.is_writable || self.wait_for_writers(peers);
        self.records.give_back(&record);
        is_left_alone
    }

    /// Closes all regions: the worker is dropped.
    pub(crate) fn unpublish_all(&mut self, peers: &Peers) {
        while let Some(key) = self.published.first_key_value().map(|(key, _)| *key) {
            self.unpublish(key, peers);
        }
    }

    /// Waits until no peer is in the middle of a write that it has begun before. `false`: some may
    /// still be.
    fn wait_for_writers(&mut self, peers: &Peers) -> bool {
        if !self.barrier.make() {
            return false;
        }
        let deadline = Instant::now() + WRITERS_MAX;
        for connection in peers.states().filter_map(|(_, state)| state.connection()) {
            if self.late.iter().any(|late| late.is_of(connection)) {
                continue;
            }
            let writing = &connection.claims().regions.writing;
            let Some(write) = writing.under_way() else { continue };
            while !writing.is_over(write) && !connection.has_ended() {
                if Instant::now() >= deadline {
                    self.late.push(LateWriter::new(connection, write));
                    break;
                }
                std::thread::yield_now();
            }
        }
        self.late.retain(LateWriter::may_write);
        self.late.is_empty()
    }

    /// A connection ends. Its peer may be in the middle of a write, and begins no other one: it
    /// finds neither nonce nor seal.
    pub(crate) fn note_end(&mut self, connection: &Connection) {
        connection.claims().regions.end();
        if self.published.values().any(|record| record.is_writable) {
            // If the barrier can't be made, no region that can be written is ever given back.
            self.barrier.make();
        }
        let is_known = self.late.iter().any(|late| late.is_of(connection));
        if let Some(write) = connection.claims().regions.writing.under_way()
            && !is_known
            && !connection.has_ended()
        {
            self.late.push(LateWriter::new(connection, write));
        }
    }

    /// See [`Device::access`](tagmatch_device::Device::access).
    pub(crate) fn start(&mut self, peers: &Peers, access: RegionAccess) -> Result<(), Buffer> {
        let RegionAccess { peer, of, kind, ref buffer } = access;
        let place = of.place;
        let end = place.address.checked_add(of.offset);
        let is_inside = end.and_then(|end| end.checked_add(buffer.len() as u64)).is_some();
        let is_reachable = match peers.state(peer) {
            Some(PeerState::Up(connection)) => {
                let is_readable = connection.read_mode == ReadMode::Direct;
                is_readable && connection.process().is_some() && seal_of(connection) != 0
            }
            _ => false,
        };
        let can_be_read_into = kind == AccessKind::Write || buffer.is_writable();
        let is_possible = self.is_on && !place.is_none() && is_inside && can_be_read_into;
        if !is_possible || !is_reachable || buffer.is_empty() {
            return Err(access.buffer);
        }
        self.accesses.push_back(PendingAccess { access, done: 0 });
        Ok(())
    }

    /// See [`Device::access_at_once`](tagmatch_device::Device::access_at_once).
    #[inline]
    pub(crate) fn do_at_once(
        &self,
        peers: &Peers,
        peer: PeerId,
        of: RegionSpan,
        access: QuickAccess<'_>,
    ) -> bool {
        let Some(PeerState::Up(connection)) = peers.state(peer) else { return false };
        let length = access.byte_len().filter(|length| *length <= BYTES_PER_POLL);
        let Some(length) = length.filter(|length| self.is_on && *length > 0) else { return false };
        let length = length as u64;
        MappedBytes::find(connection, of, length)
            .is_some_and(|mapped| mapped.access(connection, &WantedBytes { of, length }, access))
    }

    /// Whether a poll can bring an access forward.
    pub(crate) fn has_work(&self) -> bool {
        !self.accesses.is_empty()
    }

    /// Continues accesses, one after the other, as far as one poll may.
    pub(crate) fn push(&mut self, peers: &Peers, events: &mut VecDeque<Event<'static>>) {
        let mut budget = BYTES_PER_POLL;
        let mut waiting = 0;
        while budget > 0 && waiting < self.accesses.len() {
            let Some(mut pending) = self.accesses.pop_front() else { break };
            let peer = pending.access.peer;
            let Some(PeerState::Up(connection)) = peers.state(peer) else {
                // It ends with the connection.
                self.accesses.push_back(pending);
                waiting += 1;
                continue;
            };
            match pending.step(connection, &mut budget) {
                None => self.accesses.push_front(pending),
                Some(is_done) => {
                    let buffer = pending.access.buffer;
                    events.push_back(Event::AccessDone(AccessEnd { peer, buffer, is_done }));
                }
            }
        }
    }

    /// Ends the accesses to a peer that is down.
    pub(crate) fn end_all(&mut self, peer: PeerId, events: &mut VecDeque<Event<'static>>) {
        for pending in std::mem::take(&mut self.accesses) {
            if pending.access.peer == peer {
                let buffer = pending.access.buffer;
                events.push_back(Event::AccessDone(AccessEnd { peer, buffer, is_done: false }));
            } else {
                self.accesses.push_back(pending);
            }
        }
    }
}

/// The seal of a peer's records, which is 0 if the peer has none.
fn seal_of(connection: &Connection) -> u64 {
    connection.producer.ring().header().claims.0.regions.seal.load(Acquire)
}

/// An access under way.
struct PendingAccess {
    access: RegionAccess,
    /// Bytes that were read or written.
    done: usize,
}

impl PendingAccess {
    /// Moves as many bytes as the budget allows. `None`: there are more.
    fn step(&mut self, connection: &Connection, budget: &mut usize) -> Option<bool> {
        let length = self.access.buffer.len() - self.done;
        let length = match self.access.kind {
            AccessKind::Read => length.min(*budget),
            AccessKind::Write => length.min(*budget).min(PIECE_BYTES),
        };
        *budget = budget.saturating_sub(length.max(ACCESS_COST));
        let process = connection.process().filter(|_| connection.read_mode == ReadMode::Direct);
        let is_moved = process.is_some_and(|process| match self.access.kind {
            AccessKind::Read => self.read(connection, process, length),
            AccessKind::Write => self.write(connection, process, length),
        });
        self.done += length;
        let has_more = is_moved && self.done < self.access.buffer.len();
        (!has_more).then_some(is_moved)
    }

    /// The bytes that come next, as the token says.
    fn next(&self) -> RegionSpan {
        let of = self.access.of;
        RegionSpan { offset: of.offset + self.done as u64, ..of }
    }

    /// What the region's record has to say for the whole access.
    fn wanted(&self) -> WantedBytes {
        WantedBytes { of: self.access.of, length: self.access.buffer.len() as u64 }
    }

    /// Reads the next bytes. `false`: what was read may not be the region's.
    fn read(&mut self, connection: &Connection, process: &ReadableProcess, length: usize) -> bool {
        let next = self.next();
        let wanted = self.wanted();
        let mapped = MappedBytes::find(connection, next, length as u64);
        let room = self.access.buffer.room();
        let Some(room) = room.and_then(|room| room.part(self.done..self.done + length)) else {
            return false;
        };
        if let Some(mapped) = mapped {
            return mapped.access(connection, &wanted, QuickAccess::Read(room));
        }
        // SAFETY: the bytes that the kernel writes are initialised.
        let into = unsafe { room.into_uninit() };
        let part = ReadPart { address: next.place.address + next.offset, into };
        let record = read_then_record(process, Some(part), next.place.record);
        record.is_some_and(|record| wanted.are_allowed(connection, &record, RecordWords::READS))
    }

    /// Writes the next bytes. `false`: none or a part of them was written.
    fn write(&self, connection: &Connection, process: &ReadableProcess, length: usize) -> bool {
        let Some(bytes) = self.access.buffer.get(self.done..self.done + length) else {
            return false;
        };
        let next = self.next();
        let wanted = self.wanted();
        if let Some(mapped) = MappedBytes::find(connection, next, length as u64) {
            return mapped.access(connection, &wanted, QuickAccess::Write(bytes));
        }
        let _claim = begin_write(connection, true);
        let record = read_then_record(process, None, next.place.record);
        record.is_some_and(|record| wanted.are_allowed(connection, &record, RecordWords::WRITES))
            && write_all(process, next.place.address + next.offset, bytes)
    }
}

/// Says that this worker writes into a region, until the claim is dropped.
fn begin_write(connection: &Connection, fenced: bool) -> WriteClaim<'_> {
    connection.producer.ring().header().claims.0.regions.writing.begin(fenced)
}

/// Bytes of a region in memory of its owner's device, with the region's record.
struct MappedBytes<'a> {
    memory: &'a PeerMemory,
    at: usize,
    record: &'a RegionRecord,
}

impl<'a> MappedBytes<'a> {
    /// `None`: bytes or record are not there, as the token says.
    #[inline]
    fn find(connection: &'a Connection, of: RegionSpan, length: u64) -> Option<Self> {
        let memory = connection.memory.as_ref()?;
        let address = of.place.address.checked_add(of.offset)?;
        let at = memory.find(RemoteSpan { address, key: 0, length })?;
        Some(MappedBytes { memory, at, record: memory.record(of.place.record)? })
    }

    /// Accesses the bytes if the record allows it.
    #[inline]
    fn access(
        &self,
        connection: &Connection,
        wanted: &WantedBytes,
        access: QuickAccess<'_>,
    ) -> bool {
        let are_allowed = |right| wanted.are_allowed(connection, &self.record.read(), right);
        match access {
            QuickAccess::Read(room) => {
                // SAFETY: the bytes of a mapping are initialised.
                self.memory.copy(self.at, unsafe { room.into_uninit() });
                are_allowed(RecordWords::READS)
            }
            QuickAccess::Write(bytes) => {
                let mut at = self.at;
                bytes.chunks(PIECE_BYTES).all(|piece| {
                    let _claim = begin_write(connection, connection.is_fenced);
                    let is_written =
                        are_allowed(RecordWords::WRITES) && self.memory.write(at, piece);
                    at += piece.len();
                    is_written
                })
            }
            QuickAccess::Change(changes) => {
                let _claim = begin_write(connection, connection.is_fenced);
                are_allowed(RecordWords::CHANGES) && self.memory.change(self.at, changes)
            }
        }
    }
}

/// The bytes of an access.
struct WantedBytes {
    of: RegionSpan,
    length: u64,
}

impl WantedBytes {
    /// Whether a record in the memory of the owner allows the access.
    fn are_allowed(&self, connection: &Connection, record: &RecordWords, right: u64) -> bool {
        let RegionSpan { key, place, offset } = self.of;
        let seal = seal_of(connection);
        let end = offset.checked_add(self.length);
        seal != 0
            && record.key == sealed(key, seal)
            && record.address == place.address
            && record.rights & right != 0
            && end.is_some_and(|end| end <= record.length)
    }
}

/// Reads a part of a peer's memory, if there is one, and then a record. `None`: not all was read,
/// or not all was the peer's.
fn read_then_record(
    process: &ReadableProcess,
    part: Option<ReadPart<'_>>,
    place: u64,
) -> Option<RecordWords> {
    let mut record = [0; RecordWords::BYTES];
    let expected = part.as_ref().map_or(0, |part| part.into.len()) + record.len();
    let of_record = Room::from(&mut record[..]);
    // SAFETY: the bytes that the kernel writes are initialised.
    let into: &mut [MaybeUninit<u8>] = unsafe { of_record.into_uninit() };
    let parts = part.into_iter().chain([ReadPart { address: place, into }]);
    let is_read = process.read_parts(parts) == Some(expected);
    is_read.then(|| RecordWords::of_bytes(&record))
}

/// Writes bytes into the memory of a process.
fn write_all(process: &ReadableProcess, mut address: u64, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match process::write_memory(process.pid, address, bytes) {
            Ok(0) => return false,
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                address = address.saturating_add(count as u64);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tagmatch_device::{Device, ElementChanges};
    use tagmatch_testkit::device::{connect, poll, up};

    use super::*;
    use crate::{Shm, ShmConfig};

    fn region(key: u64, memory: &Buffer) -> PublishedRegion<'_> {
        PublishedRegion { key, memory, reads: true, writes: true, changes: true }
    }

    /// Whether the first device can write the region of the second one.
    fn can_write(devices: &mut [Shm; 2], peer: PeerId, key: u64, place: RegionPlace) -> bool {
        let [a, b] = devices;
        let of = RegionSpan { key, place, offset: 0 };
        let buffer = Buffer::from(vec![1; 8]);
        a.access(RegionAccess { peer, of, kind: AccessKind::Write, buffer }).unwrap();
        tagmatch_testkit::device::wait_for(&mut [a, b], "an access", |_, event| match event {
            tagmatch_testkit::device::Owned::AccessDone(end) => Some(end.is_done),
            other => panic!("{other:?}"),
        })
    }

    fn connection(device: &Shm, peer: PeerId) -> &Connection {
        let state = device.connections.peers.state(peer);
        state.and_then(PeerState::connection).unwrap()
    }

    /// Leaves the word of the peer's write set, as a peer does that is stopped there.
    fn stop_in_the_middle(device: &Shm, peer: PeerId) {
        let word = &connection(device, peer).producer.ring().header().claims.0.regions.writing;
        std::mem::forget(word.begin(true));
    }

    #[test]
    fn a_writer_that_stops_in_the_middle_is_waited_for_in_vain_once_and_can_write_no_more() {
        let mut devices = [(); 2].map(|()| up(Shm::new(ShmConfig::default()).unwrap()));
        let [a, b] = &mut devices;
        let (to_b, to_a) = connect(a, b);
        let memory = Buffer::zeroed(8);
        let places = [1, 2, 3].map(|key| devices[1].publish(&region(key, &memory)));
        stop_in_the_middle(&devices[0], to_b);
        let start = Instant::now();
        assert!(!devices[1].unpublish(1));
        assert!(start.elapsed() >= WRITERS_MAX, "not waited for");
        assert!(!devices[1].unpublish(2));
        let late = |devices: &[Shm; 2]| devices[1].connections.regions.late.len();
        assert_eq!(late(&devices), 1);
        let place = devices[1].publish(&region(4, &memory));
        assert!(!can_write(&mut devices, to_b, 4, place), "written while a writer is late");
        // That attempt has cleared the word, so a region is written from now on.
        let place = devices[1].publish(&region(6, &memory));
        assert!(can_write(&mut devices, to_b, 6, place) && devices[1].unpublish(6));
        assert!(devices[1].unpublish(4) && devices[1].unpublish(3) && late(&devices) == 0);
        assert!(!can_write(&mut devices, to_b, 3, places[2]));
        let place = devices[1].publish(&region(5, &memory));
        assert!(can_write(&mut devices, to_b, 5, place));
        // A connection that ends leaves its writer behind.
        stop_in_the_middle(&devices[0], to_b);
        devices[1].disconnect(to_a);
        while poll(&mut devices[1]).is_some() {}
        assert!(!devices[1].unpublish(5) && late(&devices) == 1);
    }

    #[test]
    fn an_element_is_changed_under_a_claim() {
        let mut devices = [(); 2].map(|()| up(Shm::new(ShmConfig::default()).unwrap()));
        let [a, b] = &mut devices;
        let (to_b, _) = connect(a, b);
        let memory = b.allocate(1 << 20).unwrap();
        let place = b.publish(&region(1, &memory));
        let word = &connection(a, to_b).producer.ring().header().claims.0.regions.writing;
        let mut numbers = Vec::new();
        let change = &mut |_: usize, _: &mut [u8]| numbers.push(word.under_way());
        let changes = ElementChanges { size: 8, count: 1, change };
        let of = RegionSpan { key: 1, place, offset: 0 };
        let regions = &a.connections.regions;
        assert!(regions.do_at_once(&a.connections.peers, to_b, of, QuickAccess::Change(changes)));
        assert_eq!((numbers, word.under_way()), (vec![Some(1)], None));
        assert!(b.unpublish(1));
    }

    #[test]
    fn bytes_that_look_like_a_record_let_nobody_write() {
        let mut devices = [(); 2].map(|()| up(Shm::new(ShmConfig::default()).unwrap()));
        let [a, b] = &mut devices;
        let (to_b, _) = connect(a, b);
        let memory = Buffer::zeroed(8);
        let address = memory.as_ptr().expose_provenance() as u64;
        let key = 5;
        let words = [address, 8, RecordWords::READS | RecordWords::WRITES, key];
        let place = RegionPlace { record: words.as_ptr().expose_provenance() as u64, address };
        assert!(!can_write(&mut devices, to_b, key, place));
        assert_eq!((&memory[..], words[3]), (&[0; 8][..], key));
    }

    #[test]
    fn memory_that_no_buffer_owns_is_read_and_never_written() {
        let mut devices = [(); 2].map(|()| up(Shm::new(ShmConfig::default()).unwrap()));
        let [a, b] = &mut devices;
        let (to_b, _) = connect(a, b);
        let mut bytes = [0; 8];
        let start = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the bytes live longer than the buffer, and nothing else uses them meanwhile.
        let lent = unsafe { Buffer::from_raw(start, 8, true) };
        let place = devices[1].publish(&region(1, &lent));
        assert!(!place.is_none() && !can_write(&mut devices, to_b, 1, place));
        let shared = Buffer::from(std::sync::Arc::<[u8]>::from(vec![0; 8]));
        let place = devices[1].publish(&region(2, &shared));
        assert!(!can_write(&mut devices, to_b, 2, place));
        let owned = Buffer::zeroed(8);
        let place = devices[1].publish(&region(3, &owned));
        assert!(can_write(&mut devices, to_b, 3, place));
        assert!([1, 2, 3].iter().all(|key| devices[1].unpublish(*key)));
        drop(lent);
        assert_eq!((bytes, &owned[..]), ([0; 8], &[1; 8][..]));
    }
}
