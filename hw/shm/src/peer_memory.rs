//! The memory of a peer's device, mapped for reading, and for writing if the peer has regions that
//! others access by themselves.
//!
//! The peer can write all of it at any time, so nothing but the contents of received messages and
//! regions depends on it. The mapping is safe to read even if the peer is hostile or dead: the peer
//! can't shrink the memfd, and only the peer's own mapping of it can have pages withheld
//! (userfaultfd(2)). So such a read never waits for a peer, and a write doesn't either.
//!
//! **Memory of the device is mapped by peers.** A large buffer from `Worker::buffer` lies in a
//! memfd, whose descriptor each peer gets with the hello and maps for reading. A rendezvous out of
//! it is one `memcpy`, in half the time of `process_vm_readv`, and a rendezvous request looks as
//! ever: the reader sees by the address whether the span lies in the mapping. What must be known
//! afterwards is whether the owner had let go of the buffer. It does so after the reader's FIN, or
//! once the connection has ended. So each connection has a word in the memfd, its generation, which
//! the owner increments before it lets go (`hw/shm/src/generation.rs`, checked by loom). A
//! generation for each exposure would tell no more, and the 12 bits that a key has for it would
//! wrap. Nothing is asked about the owner's process: a dead owner writes no more, and the mapping
//! keeps the bytes.

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use tagmatch_device::words::{self, change_elements_at};
use tagmatch_device::{ElementChanges, RemoteSpan};
use tagmatch_os::memory::PeerMapping;

use super::arena::{HEADER_BYTES, NAMES_AT};
use super::doorbell::DoorbellBit;
use super::generation;
use super::packet::OfferedMemory;
use super::region_names::{self, NamedRecord};
use super::region_words::{RecordWords, RegionRecord};
use super::sync::AtomicU64;

/// The memory of a peer's device.
pub(crate) struct PeerMemory {
    mapping: PeerMapping,
    /// Address, length and generation of the memory, from the hello of the peer.
    offered: OfferedMemory,
    bit: DoorbellBit,
}

impl PeerMemory {
    /// Takes the memory that a hello offers; `None` if its length is another one.
    pub(crate) fn new(
        mapping: PeerMapping,
        offered: OfferedMemory,
        bit: DoorbellBit,
    ) -> Option<Self> {
        let fits = mapping.length() as u64 == offered.length && mapping.length() > HEADER_BYTES;
        fits.then_some(PeerMemory { mapping, offered, bit })
    }

    /// Where a span lies in this memory; `None` unless all of it does.
    pub(crate) fn find(&self, span: RemoteSpan) -> Option<usize> {
        self.find_from(HEADER_BYTES, span)
    }

    /// As [`PeerMemory::find`], from a byte of this memory on.
    fn find_from(&self, first: usize, span: RemoteSpan) -> Option<usize> {
        let at = usize::try_from(span.address.checked_sub(self.offered.address)?).ok()?;
        let end = at.checked_add(usize::try_from(span.length).ok()?)?;
        (at >= first && end <= self.mapping.length()).then_some(at)
    }

    /// Copies the bytes from `at` on.
    ///
    /// # Panics
    /// If they are not inside the memory.
    pub(crate) fn copy(&self, at: usize, into: &mut [MaybeUninit<u8>]) {
        assert!(at.checked_add(into.len()).is_some_and(|end| end <= self.mapping.length()));
        // SAFETY: inside the mapping, by the check above. `into` is memory of this process that
        // nothing else refers to. If the peer writes at the same time, the copy has some of the
        // bytes that the peer wrote.
        unsafe {
            let from = self.mapping.start().add(at);
            ptr::copy_nonoverlapping(from, into.as_mut_ptr().cast(), into.len());
        }
    }

    /// Writes bytes from `at` on. `false`: the peer doesn't allow that. The peer has said that it
    /// keeps the memory for that meanwhile.
    ///
    /// # Panics
    /// If they are not inside the memory.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> bool {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.mapping.length()));
        let Some(start) = self.mapping.start_mut() else { return false };
        // SAFETY: inside the mapping, by the check above. Nothing of this process refers to the
        // peer's memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(at), bytes.len()) };
        true
    }

    /// Changes the elements from `at` on. `false`: nothing was changed, since the peer doesn't
    /// allow that, or the processor can't.
    ///
    /// # Panics
    /// If they are not inside the memory.
    pub(crate) fn change(&self, at: usize, changes: ElementChanges<'_>) -> bool {
        let length = changes.size.checked_mul(changes.count);
        let end = length.and_then(|length| at.checked_add(length));
        assert!(end.is_some_and(|end| end <= self.mapping.length()));
        let Some(start) = self.mapping.start_mut() else { return false };
        if !words::are_of_processor(changes.size, at as u64) {
            return false;
        }
        // SAFETY: inside the mapping, by the check above; aligned, since the mapping is aligned to
        // a page. Other processes change the elements in the same way.
        unsafe { change_elements_at(start.add(at), changes) };
        true
    }

    /// The record of a region at an address of the peer, if it lies in this memory.
    pub(crate) fn record(&self, address: u64) -> Option<&RegionRecord> {
        self.record_from(HEADER_BYTES, address)
    }

    /// As [`PeerMemory::record`]; it may be in the table of regions with names.
    pub(crate) fn any_record(&self, address: u64) -> Option<&RegionRecord> {
        self.record_from(NAMES_AT, address)
    }

    fn record_from(&self, first: usize, address: u64) -> Option<&RegionRecord> {
        let length = RecordWords::BYTES as u64;
        let at = self.find_from(first, RemoteSpan { address, key: 0, length })?;
        if !at.is_multiple_of(align_of::<RegionRecord>()) {
            return None;
        }
        // SAFETY: inside the mapping and aligned. Any bytes are a record, whose words are atomics
        // that are loaded here, which memory that can't be written allows, too.
        Some(unsafe { &*self.mapping.start().add(at).cast::<RegionRecord>() })
    }

    /// The record of a region that the peer has given this key, with its place in the peer's memory
    /// and the number that peers have for the region's first byte.
    pub(crate) fn named(&self, key: u64) -> Option<(u64, u64, RecordWords)> {
        region_names::lines_of(key).find_map(|line| {
            let at = NAMES_AT + line * size_of::<NamedRecord>();
            // SAFETY: the table is in the header, which the mapping is longer than. It is aligned
            // as in `Arena::named`. Any bytes are a line, whose words are atomics that are loaded
            // here, which memory that can't be written allows, too.
            let named = unsafe { &*self.mapping.start().add(at).cast::<NamedRecord>() };
            let (base, words) = named.find(key)?;
            let place = self.offered.address.checked_add((at + NamedRecord::RECORD_AT) as u64)?;
            Some((place, base, words))
        })
    }

    /// Whether the peer still had all its buffers when the bytes that were copied before were read.
    pub(crate) fn is_current(&self) -> bool {
        let words = self.mapping.start().cast::<AtomicU64>();
        // SAFETY: the index is below `doorbell::BITS`, so the word is in the header, which the
        // mapping is longer than. The mapping is aligned to a page. Atomics of 64 bits may be
        // loaded from memory that can't be written.
        let word =
            unsafe { NonNull::new_unchecked(words.cast_mut()).add(self.bit.index()).as_ref() };
        generation::is_current(word, self.offered.generation)
    }
}
