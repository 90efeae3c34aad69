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
//! **A get** reads bytes, nonce and record in one call, the record behind the bytes; a record that
//! is mapped is read after the call. Of memory of the owner's device, the bytes come from the
//! mapping, and the record after them. If the record still had the key, the owner had not closed
//! the region when the bytes were read.
//!
//! **A put** says in a word that the owner sees that it writes, reads the record, writes a piece by
//! process_vm_writev(2), and says that this is over ([`region_words`](super::region_words) has the
//! argument). An owner that closes a region waits for the writes that have begun. That takes the
//! time of one piece, unless the peer is stopped in the middle: then, after [`WRITERS_MAX`], the
//! device says so, and the region's memory is never used for anything else. A caller's memory can't
//! be kept from the caller, so it is written directly only if the caller keeps it until the device
//! says that nobody writes: a region with a base ([`region_names`](super::region_names)). While a
//! late writer is there, no further region can be written directly, so a peer makes its owner lose
//! no more than the regions that it had at that time. A process that has ended writes no more: its
//! pidfd, or its socket, says so only after all its threads have left the kernel.
//!
//! An access of up to [`BYTES_PER_POLL`] is done in the call that begins it, if no other one to the
//! peer is under way: by system calls as well.
//!
//! Which process a peer writes to is as certain as in `cooperative`: the process was the owner's
//! one system call before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use tagmatch_device::{
    AccessEnd, AccessKind, Buffer, Event, PeerId, PublishedRegion, QuickAccess, RegionAccess,
    RegionPlace, RegionSpan,
};

use super::arena::{self, Arena};
use super::connection::Connection;
use super::peers::{PeerState, Peers};
use super::records::{PublishedRecord, Records};
use super::region_accesses::{PendingAccess, access_at_once, find_for};
use super::region_words::{RecordWords, sealed};
use super::region_writers::{LateWriter, WriterBarrier};

/// Most bytes that one poll moves, so that a long access doesn't delay messages.
const BYTES_PER_POLL: usize = 1 << 20;
/// How long a region that is closed waits for peers that write.
const WRITERS_MAX: Duration = Duration::from_millis(100);

/// The regions of this worker that peers access, and the accesses of this worker.
pub(crate) struct OpenRegions {
    is_on: bool,
    /// Never 0. The keys in records are combined with it.
    seal: u64,
    records: Records,
    /// Regions with names so far: each record of theirs has another serial number.
    named: u64,
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
            named: 0,
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
        let PublishedRegion { key, base, memory, reads, writes, changes } = *region;
        let is_of_device = arena::is_of_device(memory);
        let is_kept = memory.is_vec() || is_of_device || base.is_some();
        self.late.retain(LateWriter::may_write);
        let can_be_closed = self.late.is_empty() && self.barrier != WriterBarrier::Failed;
        let is_writable = memory.is_writable() && can_be_closed;
        let writes = writes && is_kept && is_writable;
        let changes = changes && is_of_device && is_writable;
        let rights = [
            (reads, RecordWords::READS),
            (writes, RecordWords::WRITES),
            (changes, RecordWords::CHANGES),
        ];
        let rights =
            rights.iter().filter(|(is_granted, _)| *is_granted).map(|(_, right)| right).sum();
        let name_in_record = if base.is_some() { self.named + 1 } else { key };
        let key_in_record = sealed(name_in_record, self.seal);
        if !self.is_on || key_in_record == 0 || rights == 0 {
            return RegionPlace::default();
        }
        let address = memory.as_ptr().expose_provenance() as u64;
        let length = memory.len() as u64;
        let words = RecordWords { address, length, rights, key: key_in_record };
        let record = match base {
            Some(base) => self.records.publish_named(key, base, words),
            None => self.records.publish(words),
        };
        let Some(record) = record else { return RegionPlace::default() };
        self.named += u64::from(record.is_named());
        let place = RegionPlace { record: Records::address(&record), address };
        let place = if record.is_named() { RegionPlace::BY_KEY } else { place };
        self.published.insert(key, record);
        place
    }

    /// See [`Device::unpublish`](tagmatch_device::Device::unpublish).
    pub(crate) fn unpublish(&mut self, key: u64, peers: &Peers) -> bool {
        let Some(record) = self.published.remove(&key) else { return true };
        self.records.erase(&record);
        // Peers fence when they write to a region with a name: the kernel reads its record.
        let is_left_alone = !record.is_writable
            || (record.is_named() || self.barrier.make()) && self.wait_for_writers(peers);
        if record.is_named() && !is_left_alone {
            self.published.insert(key, record);
        } else {
            self.records.give_back(&record);
        }
        is_left_alone
    }

    /// Closes all regions: the worker is dropped.
    pub(crate) fn unpublish_all(&mut self, peers: &Peers) {
        let keys: Vec<u64> = self.published.keys().copied().collect();
        for key in keys {
            self.unpublish(key, peers);
        }
    }

    /// Waits until no peer is in the middle of a write that it has begun before. `false`: some may
    /// still be.
    fn wait_for_writers(&mut self, peers: &Peers) -> bool {
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
        let can_be_read_into = kind == AccessKind::Write || buffer.is_writable();
        let found = match peers.state(peer) {
            Some(PeerState::Up(connection)) if self.is_on && can_be_read_into => {
                find_for(connection, of, buffer.len() as u64, kind)
            }
            _ => None,
        };
        let Some(of) = found else { return Err(access.buffer) };
        self.accesses.push_back(PendingAccess::new(RegionAccess { of, ..access }));
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
        access_at_once(connection, of, length as u64, access)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use tagmatch_device::{Device, ElementChanges};
    use tagmatch_testkit::device::{connect, poll, up};

    use super::*;
    use crate::{Shm, ShmConfig};

    fn region(key: u64, memory: &Buffer) -> PublishedRegion<'_> {
        PublishedRegion { key, base: None, memory, reads: true, writes: true, changes: true }
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
    fn a_region_with_a_base_is_given_back_only_when_nobody_writes_any_more() {
        let mut devices = [(); 2].map(|()| up(Shm::new(ShmConfig::default()).unwrap()));
        let [a, b] = &mut devices;
        let (to_b, _) = connect(a, b);
        let memory = Buffer::zeroed(20_000);
        let place = b.publish(&PublishedRegion { base: Some(9), ..region(1, &memory) });
        let word = &connection(a, to_b).producer.ring().header().claims.0.regions.writing;
        let claim = word.begin(true);
        assert!(!b.unpublish(1) && !b.unpublish(1));
        let of = RegionSpan { key: 1, place, offset: 9 };
        let regions = &a.connections.regions;
        let write = QuickAccess::Write(&[1; 20_000]);
        assert!(!regions.do_at_once(&a.connections.peers, to_b, of, write), "written once closed");
        drop(claim);
        assert!(b.unpublish(1) && memory.iter().all(|byte| *byte == 0));
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
