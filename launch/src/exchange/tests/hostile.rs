//! Records of a board, pieces and bundles, as a hostile process or one that is killed leaves them.

use std::cell::{Cell, RefCell};
use std::io;

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest, Room, try_all};

use crate::exchange::board::{Board, read_record, write_record};
use crate::exchange::bundle::{decode, encode};

/// The longest record that the reader takes, in bytes.
const RECORD_MAX: usize = 100;
/// Where the first record begins.
const RECORD_AT: usize = 4096 + crate::error::BYTES_MAX;
const SIZE: usize = 6;

/// A board of plain bytes, whose writer is killed after so many writes.
struct PlainBoard {
    bytes: RefCell<Vec<u8>>,
    writes_left: Cell<usize>,
}

impl PlainBoard {
    /// A board with room for two records.
    fn new(writes: usize) -> Self {
        let bytes = RefCell::new(vec![0; 3 * RECORD_AT]);
        PlainBoard { bytes, writes_left: Cell::new(writes) }
    }
}

impl Board for PlainBoard {
    fn make(_: u32) -> io::Result<(Self, String)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open(_: &str, _: u32) -> Option<Self> {
        None
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let left = self.writes_left.get().checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
        self.writes_left.set(left);
        let at = usize::try_from(at).unwrap();
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// As `pread64(2)` until all bytes are there.
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let all = self.bytes.borrow();
        let at = usize::try_from(at).unwrap();
        let found = all.get(at..at + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(found);
        Ok(())
    }
}

/// A board that ends behind the record of a process.
struct RecordRoom;

impl Room for RecordRoom {
    type Situation = ();
    type Sender = ();

    fn enter((): ()) -> Self {
        RecordRoom
    }

    fn takes((): (), (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let all = [&vec![0; RECORD_AT][..], bytes].concat();
        let board = PlainBoard { bytes: RefCell::new(all), writes_left: Cell::new(0) };
        let record = read_record(&board, 0, RECORD_MAX);
        assert!(record.as_ref().is_none_or(|record| record.len() <= RECORD_MAX), "{record:?}");
        record.is_some()
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

#[test]
fn no_record_of_a_board_does_harm() {
    let record = |behind: usize| {
        let bytes = [&(RECORD_MAX as u64 + 1).to_le_bytes()[..], &vec![7; behind]].concat();
        let lengths = Meaning::Within(1..=RECORD_MAX as u64 + 1);
        let count = RECORD_MAX..=usize::MAX;
        let rest = Rest { unit: 1, count, legality: Legality::Legal };
        Message::new("record", bytes).le(8, "length", lengths).rest(rest)
    };
    let records = [record(RECORD_MAX), record(RECORD_MAX + 50)];
    try_all::<RecordRoom>(&[()], &[()], &records);
}

#[test]
fn a_process_that_is_killed_between_two_writes_has_written_no_record_or_the_whole() {
    for length in [0, 1, RECORD_MAX] {
        let text = vec![7; length];
        let whole = (0..=2).filter(|writes| {
            let board = PlainBoard::new(*writes);
            let is_written = write_record(&board, 0, &text).is_ok();
            let read = read_record(&board, 0, RECORD_MAX);
            assert!(read.is_none() || read.as_ref() == Some(&text), "{writes} writes: {read:?}");
            assert!(!is_written || read.is_some(), "{writes} writes are all");
            read.is_some()
        });
        assert!(whole.count() > 0, "{length} bytes are never there");
    }
}

/// A bundle of one process, in a job of [`SIZE`].
struct BundleRoom;

impl Room for BundleRoom {
    type Situation = ();
    type Sender = ();

    fn enter((): ()) -> Self {
        BundleRoom
    }

    fn takes((): (), (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Some(entries) = decode(bytes, SIZE) else { return false };
        let ranks: Vec<usize> = entries.iter().map(|(rank, _)| *rank as usize).collect();
        assert!(ranks.is_sorted_by(|one, other| one < other), "{ranks:?}");
        assert!(ranks.iter().all(|rank| *rank < SIZE), "{ranks:?}");
        assert_eq!(decode(&encode(entries.iter().cloned()), SIZE), Some(entries));
        true
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

#[test]
fn no_bundle_is_taken_for_another() {
    const LENGTH: usize = 5;
    let bytes = encode([(2, vec![0x61; LENGTH])].into_iter());
    assert_eq!(bytes.len(), 5 + LENGTH);
    let bundle = Message::new("bundle", bytes).le(1, "count", Meaning::Fixed);
    let bundle = bundle.le(1, "ranks skipped", Meaning::Within(0..=SIZE as u64 - 1));
    let bundle = bundle.le(1, "length", Meaning::Fixed).le(1, "in common", Meaning::Fixed);
    let bundle = bundle.le(1, "of its own", Meaning::Fixed);
    let bundle = bundle.bytes_of(LENGTH, "bytes", &Meaning::Free);
    try_all::<BundleRoom>(&[()], &[()], &[bundle]);
}
