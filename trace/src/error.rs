//! What can be wrong with a trace. Each message names the mistake, the field and what is
//! expected.

use std::fmt::{self, Display, Formatter};

use crate::format::HEADER;

/// A trace that cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file does not follow the format.
    #[error("{mistake}")]
    Malformed {
        /// Counted from 1, comments and blank lines included.
        line: u64,
        /// What is wrong on that line.
        mistake: Box<Mistake>,
    },
    /// The file's records don't follow the format.
    #[error("at byte {byte}: {mistake}")]
    Record {
        /// Where the record is in the file.
        byte: u64,
        /// What is wrong with the record.
        mistake: RecordMistake,
    },
    /// The file's records could not be read to their end.
    #[error("at byte {byte}: cannot read on: {source}")]
    Unread {
        /// How far it was read.
        byte: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file could not be read to its end.
    #[error("cannot read on: {source}")]
    Read {
        /// The line that was being read.
        line: u64,
        /// The system's error.
        source: std::io::Error,
    },
}

impl TraceError {
    pub(crate) fn at(line: u64, mistake: impl Into<Box<Mistake>>) -> Self {
        Self::Malformed { line, mistake: mistake.into() }
    }

    /// The line that is wrong, counted from 1. A file of records has none: the error's text says
    /// at which byte it is.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::Malformed { line, .. } | Self::Read { line, .. } => Some(*line),
            Self::Record { .. } | Self::Unread { .. } => None,
        }
    }
}

/// What is wrong with a record of `tagtrace 2`. A recorder writes no such record, so the file was
/// damaged after it was written, or is no trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordMistake {
    /// The header.
    #[error(
        "the header must be a line `tagtrace 2`, a line of UTF-8 text, and zeros; a block must follow"
    )]
    Header,
    /// A block that doesn't begin with its number, or not with the right one.
    #[error("a block must begin with its number here, and nowhere else")]
    Block,
    /// The kind of record.
    #[error("{0} is not a kind of record; it must be 1..18")]
    Kind(u8),
    /// Bits that have no meaning.
    #[error("{value:#018x} begins no record of kind {kind}; other bits must be 0")]
    Bits {
        /// The kind of record.
        kind: u8,
        /// Its first word.
        value: u64,
    },
    /// A record that goes beyond the end of its block.
    #[error("the record goes beyond the end of its block; it must end there")]
    CutShort,
    /// A shape that no record has defined.
    #[error("slot {0} is empty; a record before must put a shape into it")]
    NoShape(usize),
    /// A message whose shape is not that of a message.
    #[error("the message's slot has a wildcard; a message must have a source and a whole tag")]
    NoEnvelope,
    /// A repetition of something else than a probe that found nothing.
    #[error("a repetition must stand behind a probe that found nothing")]
    StrayRepeat,
    /// The reason of the last record.
    #[error("{0} is not a reason to stop; it must be 1 or 2")]
    Stop(u64),
    /// Bits of a tag that no source can have.
    #[error("{0:#018x} are not the bits of a source; they must be side by side")]
    SourceBits(u64),
    /// A number that is used twice at a time.
    #[error("number {number} is still a {what}; its end must come first")]
    Twice {
        /// What has the number.
        what: &'static str,
        /// The number.
        number: u32,
    },
    /// A number that names nothing of the kind that is needed here.
    #[error("number {number} is not a {what}; a record before must make it one")]
    Unknown {
        /// What the number should name.
        what: &'static str,
        /// The number.
        number: u32,
    },
    /// Something is behind the end.
    #[error("the trace has ended, but more follows: expected only zeros")]
    AfterEnd,
    /// The trace has too much for the matching lists.
    #[error("too many messages and receives: expected at most 2^30")]
    TooMany,
}

/// What is wrong on a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// The file is empty.
    #[error("the file is empty; line 1 must be `{HEADER}` or `tagtrace 2`")]
    Empty,
    /// Line 1 is not a header.
    #[error(
        "{0} is not the header; line 1 must be `{HEADER}`, with no blank or comment around it, or `tagtrace 2`"
    )]
    Header(String),
    /// Line 1 is the header of another version.
    #[error("{0} is a version that is not supported; line 1 must be `{HEADER}` or `tagtrace 2`")]
    Version(String),
    /// The line is too long.
    #[error("the line has no end within {max} bytes: expected one operation a line")]
    LineTooLong {
        /// The greatest length in bytes.
        max: u64,
    },
    /// The first field is not the name of an operation.
    #[error(
        "{0} is not an operation; field 1 must be msg, recv, cancel, probe, mprobe, mrecv or mcancel"
    )]
    Operation(String),
    /// Too few or too many fields.
    #[error("{found} after the operation: expected `{usage}`")]
    Fields {
        /// How many fields there are, in words.
        found: String,
        /// The operation as it should look.
        usage: &'static str,
    },
    /// A field that is not a number, or is out of range.
    #[error(
        "{found} is not a valid {name}; field {field} of `{usage}` must be {or_any}0..{max} in plain \
         decimal, no sign or leading zero"
    )]
    Number {
        /// The field's text.
        found: String,
        /// The field's name.
        name: &'static str,
        /// The field's number; the operation's name is field 1.
        field: usize,
        /// The operation as it should look.
        usage: &'static str,
        /// What the field may be instead of a number: "`*` or ", or nothing.
        or_any: &'static str,
        /// The largest number; the smallest is 0.
        max: u64,
    },
    /// A comment that is not UTF-8 text.
    #[error("the comment holds {0}: expected UTF-8 text to the line's end")]
    Comment(&'static str),
    /// An id that is defined twice.
    #[error("id {id} is already a {kind} of this trace; field 2 must be an id not used before")]
    Reused {
        /// The id.
        id: u64,
        /// What it was defined as first.
        kind: IdKind,
    },
    /// An id that no line above defines as what is needed here.
    #[error("id {id} is {found}; field 2 must be the id of {wanted} above")]
    Unknown {
        /// The id.
        id: u64,
        /// What the id is.
        found: String,
        /// What the id should be.
        wanted: &'static str,
    },
    /// The trace has too many ids for the matching lists.
    #[error("too many ids: expected at most 2^30")]
    TooManyIds,
}

impl Mistake {
    pub(crate) fn header(line: &[u8]) -> Self {
        let version = line.strip_prefix(b"tagtrace ").unwrap_or_default();
        if !version.is_empty() && version.iter().all(u8::is_ascii_digit) {
            Self::Version(quoted(line))
        } else {
            Self::Header(quoted(line))
        }
    }
}

/// What an id names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdKind {
    /// A message.
    Message,
    /// A receive.
    Receive,
    /// A matched probe.
    Mprobe,
}

impl Display for IdKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message => "msg",
            Self::Receive => "recv",
            Self::Mprobe => "mprobe",
        })
    }
}

/// A piece of the file as it may be shown on a terminal: short, and without control characters.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 32;
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let dots = if shown.len() < bytes.len() { "..." } else { "" };
    format!("`{}{dots}`", shown.escape_ascii())
}
