//! Accesses to a peer's region without messages: [`regions`](super::regions) has the rules.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Acquire;

use tagmatch_device::{
    AccessKind, QuickAccess, ReadMode, RegionAccess, RegionPlace, RegionSpan, RemoteSpan, Room,
};
use tagmatch_os::process::{self, ReadPart};

use super::connection::Connection;
use super::peer_memory::PeerMemory;
use super::processes::ReadableProcess;
use super::region_words::{RecordWords, RegionRecord, WriteClaim, sealed};

/// Each access counts as so many bytes at least.
const ACCESS_COST: usize = 4 << 10;
/// Most bytes that are written while the word is set.
const PIECE_BYTES: usize = 128 << 10;
/// As [`PIECE_BYTES`], by a system call in the call that begins a put: each costs two of them.
const CALLED_PIECE_BYTES: usize = 512 << 10;
/// A shorter put into a region that is found by its key goes by messages, which cost less while
/// their owner polls: with both workers in one thread, 4 KiB took 0.7 microseconds by messages and
/// 1.9 by system calls, 64 KiB 4.1 and 6.2, and 1 MiB 65 and 81 (a virtual machine of 2
/// processors). From this length on the difference is worth less than an owner that needn't poll.
const NAMED_PUT_MIN: u64 = 16 << 10;
/// As [`NAMED_PUT_MIN`], of a get, which is one system call in place of two.
const NAMED_GET_MIN: u64 = 8 << 10;

/// The seal of a peer's records, which is 0 if the peer has none.
fn seal_of(connection: &Connection) -> u64 {
    connection.producer.ring().header().claims.0.regions.seal.load(Acquire)
}

/// The process of a peer whose memory this worker reads and writes by system calls.
fn readable(connection: &Connection) -> Option<&ReadableProcess> {
    connection.process().filter(|_| connection.read_mode == ReadMode::Direct)
}

/// Bytes that a region's key alone names, as a token names them that says where the region is.
/// `None`: the peer has no such region that others access by themselves, or messages are better.
fn find_named(
    connection: &Connection,
    of: RegionSpan,
    length: u64,
    kind: AccessKind,
) -> Option<RegionSpan> {
    if of.place != RegionPlace::BY_KEY {
        return Some(of);
    }
    let length_min = match kind {
        AccessKind::Read => NAMED_GET_MIN,
        AccessKind::Write => NAMED_PUT_MIN,
    };
    if length < length_min {
        return None;
    }
    let (record, base, words) = connection.memory.as_ref()?.named(of.key)?;
    Some(RegionSpan {
        key: sealed(words.key, seal_of(connection)),
        place: RegionPlace { record, address: words.address },
        offset: of.offset.checked_sub(base)?,
    })
}

/// The bytes of an access that begins, as a token names them. `None`: this worker can't do it.
pub(crate) fn find_for(
    connection: &Connection,
    of: RegionSpan,
    length: u64,
    kind: AccessKind,
) -> Option<RegionSpan> {
    let of = find_named(connection, of, length, kind)?;
    let end = of.place.address.checked_add(of.offset)?.checked_add(length);
    let is_possible = length > 0 && end.is_some() && !of.place.is_none();
    let is_reachable = readable(connection).is_some() && seal_of(connection) != 0;
    (is_possible && is_reachable).then_some(of)
}

/// Does an access in this call. `false`: nothing of it can be done, or something is wrong.
#[inline]
pub(crate) fn access_at_once(
    connection: &Connection,
    of: RegionSpan,
    length: u64,
    access: QuickAccess<'_>,
) -> bool {
    match MappedBytes::find(connection, of, length) {
        Some(mapped) => mapped.access(connection, &WantedBytes { of, length }, access),
        None => access_by_calls_at_once(connection, of, length, access),
    }
}

#[cold]
fn access_by_calls_at_once(
    connection: &Connection,
    of: RegionSpan,
    length: u64,
    access: QuickAccess<'_>,
) -> bool {
    let kind = match access {
        QuickAccess::Read(_) => AccessKind::Read,
        QuickAccess::Write(_) => AccessKind::Write,
        QuickAccess::Change(_) => return false,
    };
    let of = find_named(connection, of, length, kind).filter(|of| !of.place.is_none());
    let Some(of) = of else { return false };
    access_by_calls(connection, of, &WantedBytes { of, length }, access)
}

/// Accesses bytes by system calls.
fn access_by_calls(
    connection: &Connection,
    of: RegionSpan,
    wanted: &WantedBytes,
    access: QuickAccess<'_>,
) -> bool {
    let Some(process) = readable(connection) else { return false };
    let Some(address) = of.place.address.checked_add(of.offset) else { return false };
    let record = RecordSource {
        place: of.place.record,
        mapped: connection.memory.as_ref().and_then(|memory| memory.any_record(of.place.record)),
    };
    let are_allowed = |record: Option<RecordWords>, right| {
        record.is_some_and(|record| wanted.are_allowed(connection, &record, right))
    };
    match access {
        QuickAccess::Read(room) => {
            // SAFETY: the bytes that the kernel writes are initialised.
            let into = unsafe { room.into_uninit() };
            let record = record.read_after(process, ReadPart { address, into });
            are_allowed(record, RecordWords::READS)
        }
        QuickAccess::Write(bytes) => {
            let mut at = address;
            bytes.chunks(CALLED_PIECE_BYTES).all(|piece| {
                let _claim = begin_write(connection, true);
                let is_written = are_allowed(record.read(connection, process), RecordWords::WRITES)
                    && write_all(process, at, piece);
                at = at.saturating_add(piece.len() as u64);
                is_written
            })
        }
        QuickAccess::Change(_) => false,
    }
}

/// Where a record is that is read together with a look at its owner's process.
struct RecordSource<'a> {
    place: u64,
    mapped: Option<&'a RegionRecord>,
}

impl RecordSource<'_> {
    /// The record, if the process is certainly the peer's.
    fn read(&self, connection: &Connection, process: &ReadableProcess) -> Option<RecordWords> {
        match self.mapped {
            // The kernel is asked about the process last, since a write to its memory follows.
            Some(record) => {
                let words = record.read();
                connection.is_certainly_there().then_some(words)
            }
            None => read_then_record(process, None, self.place),
        }
    }

    /// Reads a part of the process' memory, and the record afterwards. `None`: not all was read, or
    /// not all was the peer's.
    fn read_after(&self, process: &ReadableProcess, part: ReadPart<'_>) -> Option<RecordWords> {
        let Some(record) = self.mapped else {
            return read_then_record(process, Some(part), self.place);
        };
        let length = part.into.len();
        let is_read = process.read(part.address, part.into).ok() == Some((length, true));
        is_read.then(|| record.read())
    }
}

/// An access under way.
pub(crate) struct PendingAccess {
    pub(crate) access: RegionAccess,
    /// Bytes that were read or written.
    done: usize,
}

impl PendingAccess {
    /// An access that begins. Its place is one that a token says.
    pub(crate) fn new(access: RegionAccess) -> Self {
        PendingAccess { access, done: 0 }
    }

    /// Moves as many bytes as the budget allows. `None`: there are more.
    pub(crate) fn step(&mut self, connection: &Connection, budget: &mut usize) -> Option<bool> {
        let length = self.access.buffer.len() - self.done;
        let length = match self.access.kind {
            AccessKind::Read => length.min(*budget),
            AccessKind::Write => length.min(*budget).min(PIECE_BYTES),
        };
        *budget = budget.saturating_sub(length.max(ACCESS_COST));
        let is_moved = self.move_next(connection, length).unwrap_or(false);
        self.done += length;
        let has_more = is_moved && self.done < self.access.buffer.len();
        (!has_more).then_some(is_moved)
    }

    /// Reads or writes the next bytes. No success: what was read may not be the region's; a part
    /// was written, or nothing.
    fn move_next(&mut self, connection: &Connection, length: usize) -> Option<bool> {
        let of = self.access.of;
        // What the region's record has to say for the whole access.
        let wanted = WantedBytes { of, length: self.access.buffer.len() as u64 };
        let next = RegionSpan { offset: of.offset + self.done as u64, ..of };
        let range = self.done..self.done + length;
        let access = match self.access.kind {
            AccessKind::Read => QuickAccess::Read(self.access.buffer.room()?.part(range)?),
            AccessKind::Write => QuickAccess::Write(self.access.buffer.get(range)?),
        };
        Some(match MappedBytes::find(connection, next, length as u64) {
            Some(mapped) => mapped.access(connection, &wanted, access),
            None => access_by_calls(connection, next, &wanted, access),
        })
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
