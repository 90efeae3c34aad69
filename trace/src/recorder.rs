//! Records what a worker matches, as `tagtrace 2`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tagmatch::TagMask;
use tagmatch::observe::{Envelope, ListObserver, Pattern};
use tagmatch_os::journal::{self, Journal};

use crate::records::{
    BLOCK_BYTES, FULL, HEADER, HEADER_BYTES, Kind, NO_SPACE, SLOTS, WORDS_MAX, flag,
};

/// Where launchers name the rank of a process.
const RANKS: [&str; 4] = ["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];
/// The most characters of the text about the process.
const ABOUT_MAX: usize = 1000;
// The file is what the reader expects.
const _: () = assert!(WORDS_MAX == journal::WORDS_MAX);
const _: () = assert!(HEADER_BYTES == journal::HEADER_BYTES && BLOCK_BYTES == journal::BLOCK_BYTES);

/// Numbers the recorders of this process, so that each has a file of its own.
static RECORDERS: AtomicU32 = AtomicU32::new(1);

/// Records each change of a worker's matching lists, in a file that `tagperf replay` reads.
///
/// Records are stored in mapped memory of the file, so everything recorded is in it whatever ends
/// the process, SIGKILL included. A message and its receive take 16 bytes there as long as the
/// program uses the same few tags, sources and lengths, and 80 at most. They take 20 to 40 ns;
/// about half of that is the worker's, which tells of its lists.
///
/// ```
/// use tagmatch::{Config, Match, Worker};
/// use tagmatch_trace::{Recorder, Trace};
///
/// let folder = std::env::temp_dir().join(format!("traces-{}", std::process::id()));
/// let (recorder, file) = Recorder::in_folder(&folder, Recorder::BYTES_MAX)?;
/// let worker = Worker::new(Config::default())?;
/// // Before the worker is used. All that follows is recorded, on whatever thread.
/// worker.observe(Box::new(recorder))?;
///
/// let receive = worker.recv(Match::tag(7), vec![0; 8]);
/// worker.send(worker.oneself(), 7, b"hello".to_vec()).wait()?;
/// receive.wait()?;
///
/// let trace = Trace::parse(std::io::BufReader::new(std::fs::File::open(&file)?))?;
/// assert_eq!(trace.ops.len(), 2);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    /// `None`: it has stopped, since there was no space.
    journal: Option<Journal>,
    /// What the slots hold.
    shapes: Box<[SlotContents; SLOTS]>,
    /// The last probe that found nothing.
    idle: Idle,
}

/// What a slot holds. A slot that is empty has no flag and no mask, which no shape has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct SlotContents {
    /// Flags and source, as they stand in a record.
    first: u64,
    tag: u64,
    length: u64,
    mask: u64,
}

/// A probe that found nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    record: u64,
    /// The journal's position behind it; other records follow it if that has changed.
    position: u64,
    repeated: u64,
}

impl Recorder {
    /// A bound on the bytes of a file that suits most programs: 12 to 60 million messages.
    pub const BYTES_MAX: u64 = 1 << 30;

    /// Makes a file, in place of any other one of this name. `about` says what the process is: one
    /// line, of which 1000 characters are kept. When the file would be longer than `bytes_max`,
    /// recording stops, and the trace says so.
    ///
    /// # Errors
    /// The file can't be made or mapped, or there is no space for it.
    pub fn create(file: &Path, about: &str, bytes_max: u64) -> io::Result<Self> {
        let about = about.replace(char::is_control, " ");
        let about: String = about.chars().take(ABOUT_MAX).collect();
        let header = format!("{HEADER}\n{about}\n");
        let journal = Journal::create(file, header.as_bytes(), Kind::Block as u64, bytes_max)?;
        let shapes = Box::new([SlotContents::default(); SLOTS]);
        Ok(Self { journal: Some(journal), shapes, idle: Idle::default() })
    }

    /// Makes a file in a folder, which is made if it isn't there. The file's name has the process's
    /// rank, if its launcher tells (`rank-3.trace`), else its host and number. A second worker of
    /// the process has `-2` behind that. Gives the file's path.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn in_folder(folder: &Path, bytes_max: u64) -> io::Result<(Self, PathBuf)> {
        std::fs::create_dir_all(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::other("it is no folder"),
            _ => error,
        })?;
        let rank = RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse::<u32>().ok());
        let process = std::process::id();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        let mut name = rank.map_or(format!("{host}-{process}"), |rank| format!("rank-{rank}"));
        let number = RECORDERS.fetch_add(1, Ordering::Relaxed);
        if number > 1 {
            name += &format!("-{number}");
        }
        let command: Vec<_> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let about = format!("{name} on {host}, process {process}: {}", command.join(" "));
        let file = folder.join(name + ".trace");
        Ok((Self::create(&file, &about, bytes_max)?, file))
    }

    #[inline]
    fn append<const WORDS: usize>(&mut self, record: [u64; WORDS]) {
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.append(record)
        {
            self.stop(&error);
        }
    }

    #[cold]
    #[inline(never)]
    fn stop(&mut self, error: &io::Error) {
        let is_full = error.kind() == io::ErrorKind::FileTooLarge;
        let why = if is_full { FULL } else { NO_SPACE };
        if let Some(journal) = self.journal.take() {
            journal.finish([Kind::Stopped as u64, why]);
        }
    }

    /// A record that has a number.
    #[inline]
    fn number(&mut self, kind: Kind, number: u32) {
        self.append([kind as u64 | u64::from(number) << 32]);
    }

    /// A record that has a number and a value.
    #[inline]
    fn value(&mut self, kind: Kind, number: u32, value: u64) {
        self.append([kind as u64 | u64::from(number) << 32, value]);
    }

    /// The slot of a shape, as it stands in a record.
    #[inline]
    fn slot(&mut self, shape: SlotContents) -> u64 {
        let SlotContents { first, tag, length, mask } = shape;
        let mixed = tag ^ mask.rotate_left(17) ^ first.rotate_left(7) ^ length.rotate_left(43);
        // The top 8 bits of a product depend on all bits of its factor.
        let slot = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let place = &mut self.shapes[usize::from(slot.to_le_bytes()[0])];
        if *place != shape {
            *place = shape;
            self.define(slot << 16, shape);
        }
        slot << 16
    }

    #[inline(never)]
    fn define(&mut self, slot: u64, shape: SlotContents) {
        let SlotContents { first, tag, length, mask } = shape;
        let first = Kind::Shape as u64 | slot | first;
        if first & flag::MASKED == 0 {
            self.append([first, tag, length]);
        } else {
            self.append([first, tag, length, mask]);
        }
    }

    /// The slot of a pattern and the length of a buffer.
    #[inline]
    fn pattern(&mut self, pattern: &Pattern, length: u64, is_sole: bool) -> u64 {
        let tag = pattern.tag().0;
        let mask = pattern.mask().0;
        let mut first = if mask == u64::MAX { 0 } else { flag::MASKED };
        if let Some(source) = pattern.source() {
            first |= u64::from(source.0) << 32 | flag::SOURCE;
            first |= if is_sole { flag::SOLE } else { 0 };
        }
        self.slot(SlotContents { first, tag, length, mask })
    }

    /// The slot of a message.
    #[inline]
    fn envelope(&mut self, status: &Envelope) -> u64 {
        let Envelope { source, tag, length, .. } = *status;
        let first = u64::from(source.0) << 32 | flag::SOURCE;
        self.slot(SlotContents { first, tag: tag.0, length, mask: u64::MAX })
    }

    fn probe(&mut self, kind: Kind, message: Option<u32>, pattern: &Pattern) {
        let record = kind as u64 | self.pattern(pattern, 0, false);
        if let Some(message) = message {
            return self.append([record | flag::FOUND | u64::from(message) << 32]);
        }
        let Idle { record: last, position, repeated } = self.idle;
        let repeats = self.position() == position && last == record;
        let repeated = if repeats { repeated + 1 } else { 0 };
        match (repeated, &mut self.journal) {
            (0, _) => self.append([record]),
            (1, _) => self.append([Kind::Repeated as u64, 1]),
            (more, Some(journal)) => journal.amend(more),
            (_, None) => return,
        }
        self.idle = Idle { record, position: self.position(), repeated };
    }

    fn position(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::position)
    }
}

impl ListObserver for Recorder {
    fn source_bits(&mut self, bits: TagMask) {
        self.value(Kind::SourceBits, 0, bits.0);
    }

    fn posted(&mut self, receive: u32, pattern: &Pattern, length: u64, is_sole: bool) {
        let slot = self.pattern(pattern, length, is_sole);
        self.append([Kind::Posted as u64 | slot | u64::from(receive) << 32]);
    }

    fn found(&mut self, message: u32, pattern: &Pattern, length: u64, is_sole: bool) {
        let slot = self.pattern(pattern, length, is_sole);
        self.append([Kind::Found as u64 | slot | u64::from(message) << 32]);
    }

    fn matched(&mut self, receive: u32, status: &Envelope, by_nic: bool) {
        let slot = self.envelope(status) | if by_nic { flag::NIC } else { 0 };
        self.append([Kind::Matched as u64 | slot | u64::from(receive) << 32]);
    }

    fn unexpected(&mut self, message: u32, status: &Envelope) {
        let slot = self.envelope(status);
        self.append([Kind::Unexpected as u64 | slot | u64::from(message) << 32]);
    }

    fn taken(&mut self, receive: u32, has_message: bool) {
        let by_nic = if has_message { flag::NIC } else { 0 };
        self.append([Kind::Taken as u64 | by_nic | u64::from(receive) << 32]);
    }

    fn length(&mut self, receive: u32, length: u64) {
        self.value(Kind::Landed, receive, length);
    }

    fn withdrawn(&mut self, receive: u32) {
        self.number(Kind::Withdrawn, receive);
    }

    fn cancelled_late(&mut self, receive: u32) {
        self.number(Kind::CancelledLate, receive);
    }

    fn probed(&mut self, message: Option<u32>, pattern: &Pattern) {
        self.probe(Kind::Probed, message, pattern);
    }

    fn held(&mut self, message: Option<u32>, pattern: &Pattern) {
        self.probe(Kind::Held, message, pattern);
    }

    fn received(&mut self, message: u32, length: u64) {
        self.value(Kind::Received, message, length);
    }

    fn discarded(&mut self, message: u32) {
        self.number(Kind::Discarded, message);
    }

    fn lost(&mut self, message: u32) {
        self.number(Kind::Lost, message);
    }
}
