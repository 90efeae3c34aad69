//! Records what a worker matches, as `tagtrace 2`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tagmatch::observe::{Envelope, ListObserver};
use tagmatch::soft::Pattern;
use tagmatch_os::journal::{self, Journal, Record};

use crate::records::{BLOCK_BYTES, FULL, HEADER, HEADER_BYTES, Kind, NO_SPACE, flag};

/// Where launchers name the rank of a process.
const RANKS: [&str; 4] = ["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];
/// The most characters of the text about the process.
const ABOUT_MAX: usize = 1000;
// The file is what the reader expects.
const _: () = assert!(HEADER_BYTES == journal::HEADER_BYTES && BLOCK_BYTES == journal::BLOCK_BYTES);

/// Numbers the recorders of this process, so that each has a file of its own.
static RECORDERS: AtomicU32 = AtomicU32::new(1);

/// Records each change of a worker's matching lists, in a file that `tagperf replay` reads.
///
/// Records are stored in mapped memory of the file, so everything recorded is in it whatever ends the
/// process, SIGKILL included. A message takes two records of 24 bytes, and some 10 ns each.
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
    /// The mask of the last [`Kind::Mask`].
    mask: u64,
}

impl Recorder {
    /// A bound on the bytes of a file that suits most programs: 20 million messages.
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
        let journal = Some(journal);
        Ok(Self { journal, mask: 0 })
    }

    /// Makes a file in a folder, which is made if it isn't there. The file's name has the process's
    /// rank, if its launcher tells (`rank-3.trace`), else its host and number. A second worker of
    /// the process has `-2` behind that. Gives the file's path.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn in_folder(folder: &Path, bytes_max: u64) -> io::Result<(Self, PathBuf)> {
        std::fs::create_dir_all(folder)?;
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
    fn append(&mut self, record: Record) {
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
            journal.finish([Kind::Stopped as u64, why, 0]);
        }
    }

    /// A record that has a number and perhaps a value.
    #[inline]
    fn number(&mut self, kind: Kind, number: u32, value: u64) {
        self.append([kind as u64 | u64::from(number) << 32, value, 0]);
    }

    /// A record with a tag, a source and a length.
    #[inline]
    fn envelope(&mut self, first: u64, number: u32, tag: u64, source: u32, length: u64) {
        let first = first | u64::from(number) << 32;
        if length >> 32 != 0 {
            self.append([Kind::Length as u64, length, 0]);
            self.append([first | flag::LONG, tag, source.into()]);
        } else {
            self.append([first, tag, length << 32 | u64::from(source)]);
        }
    }

    /// A record with a pattern.
    #[inline]
    fn pattern(&mut self, kind: u64, number: u32, pattern: &Pattern, length: u64) {
        let mut first = kind;
        let mask = pattern.mask().0;
        if mask == u64::MAX {
            first |= flag::EXACT;
        } else if mask != self.mask {
            self.mask = mask;
            self.append([Kind::Mask as u64, mask, 0]);
        }
        let source = pattern.source().map_or(0, |source| {
            first |= flag::SOURCE;
            source.0
        });
        self.envelope(first, number, pattern.tag().0, source, length);
    }

    fn probe(&mut self, kind: Kind, message: Option<u32>, pattern: &Pattern) {
        let found = if message.is_some() { flag::FOUND } else { 0 };
        self.pattern(kind as u64 | found, message.unwrap_or(0), pattern, 0);
    }
}

impl ListObserver for Recorder {
    fn posted(&mut self, receive: u32, pattern: &Pattern, length: u64, is_sole: bool) {
        let sole = if is_sole { flag::SOLE } else { 0 };
        self.pattern(Kind::Posted as u64 | sole, receive, pattern, length);
    }

    fn found(&mut self, message: u32, pattern: &Pattern, length: u64, is_sole: bool) {
        let sole = if is_sole { flag::SOLE } else { 0 };
        self.pattern(Kind::Found as u64 | sole, message, pattern, length);
    }

    fn matched(&mut self, receive: u32, status: &Envelope) {
        let Envelope { source, tag, length, .. } = *status;
        self.envelope(Kind::Matched as u64, receive, tag.0, source.0, length);
    }

    fn unexpected(&mut self, message: u32, status: &Envelope) {
        let Envelope { source, tag, length, .. } = *status;
        self.envelope(Kind::Unexpected as u64, message, tag.0, source.0, length);
    }

    fn taken(&mut self, receive: u32) {
        self.number(Kind::Taken, receive, 0);
    }

    fn length(&mut self, receive: u32, length: u64) {
        self.number(Kind::Landed, receive, length);
    }

    fn withdrawn(&mut self, receive: u32) {
        self.number(Kind::Withdrawn, receive, 0);
    }

    fn cancelled_late(&mut self, receive: u32) {
        self.number(Kind::CancelledLate, receive, 0);
    }

    fn probed(&mut self, message: Option<u32>, pattern: &Pattern) {
        self.probe(Kind::Probed, message, pattern);
    }

    fn held(&mut self, message: Option<u32>, pattern: &Pattern) {
        self.probe(Kind::Held, message, pattern);
    }

    fn received(&mut self, message: u32, length: u64) {
        self.number(Kind::Received, message, length);
    }

    fn discarded(&mut self, message: u32) {
        self.number(Kind::Discarded, message, 0);
    }

    fn lost(&mut self, message: u32) {
        self.number(Kind::Lost, message, 0);
    }
}
