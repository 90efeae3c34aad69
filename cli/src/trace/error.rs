//! What can be wrong with a trace, said so that it can be mended: what, where, what would be right.

use std::fmt::{self, Display, Formatter};

use super::HEADER;

/// A trace that cannot be replayed, and the line that is to blame.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file breaks the format.
    #[error("{mistake}")]
    Malformed {
        /// Counted from 1, comments and blank lines included.
        line: u64,
        /// What is wrong on it.
        mistake: Box<Mistake>,
    },
    /// The file could not be read on.
    #[error("cannot read on: {source}; a readable file would be right")]
    Read {
        /// The line that was being read.
        line: u64,
        /// Why.
        source: std::io::Error,
    },
}

impl TraceError {
    pub(super) fn at(line: u64, mistake: impl Into<Box<Mistake>>) -> Self {
        Self::Malformed { line, mistake: mistake.into() }
    }

    /// The line to blame, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        match self {
            Self::Malformed { line, .. } | Self::Read { line, .. } => *line,
        }
    }
}

/// What is wrong on a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Mistake {
    /// Nothing to read at all.
    #[error("the file is empty; line 1 must be `{HEADER}`")]
    Empty,
    /// Line 1 is something else.
    #[error("{0} is no header; line 1 must be `{HEADER}`, with no blank or comment around it")]
    Header(Quoted),
    /// Line 1 names another version.
    #[error("{0} is a version that this tagperf does not read; line 1 must be `{HEADER}`")]
    Version(Quoted),
    /// No newline for very long.
    #[error("the line has no end within {max} bytes; one operation a line would be right")]
    LineTooLong {
        /// The longest that is read.
        max: u64,
    },
    /// Not an operation's name.
    #[error(
        "{0} is no operation; field 1 must be msg, recv, cancel, probe, mprobe, mrecv or mcancel"
    )]
    Operation(Quoted),
    /// Too few or too many fields.
    #[error("{found} after the operation, `{usage}` would be right")]
    Fields {
        /// How many there are.
        found: FieldCount,
        /// The operation as it should look.
        usage: &'static str,
    },
    /// A field that is no number, or one out of range.
    #[error("{found} is no {name}; field {field} of `{usage}` must be {range}")]
    Number {
        /// What stands there.
        found: Quoted,
        /// The field's name.
        name: &'static str,
        /// Which field, the operation being 1.
        field: usize,
        /// The operation as it should look.
        usage: &'static str,
        /// What it may be.
        range: Range,
    },
    /// A comment holds something that is not text.
    #[error("the comment holds {0}; UTF-8 text to the line's end would be right")]
    Comment(&'static str),
    /// An id that was defined before.
    #[error("id {id} is already a {kind} of this trace; field 2 must be an id not used before")]
    Reused {
        /// The id.
        id: u64,
        /// What it was first.
        kind: Kind,
    },
    /// An id that nothing above defines, or that defines something else.
    #[error("id {id} is {found}; field 2 must be the id of {wanted} above")]
    Unknown {
        /// The id.
        id: u64,
        /// What it is instead.
        found: Instead,
        /// What it should have been.
        wanted: &'static str,
    },
    /// More ids than can be counted.
    #[error("the trace has more than 2^30 ids; one of at most as many would be right")]
    TooManyIds,
}

impl Mistake {
    pub(super) fn header(line: &[u8]) -> Self {
        let version = line.strip_prefix(b"tagtrace ").unwrap_or_default();
        if !version.is_empty() && version.iter().all(u8::is_ascii_digit) {
            Self::Version(Quoted::new(line))
        } else {
            Self::Header(Quoted::new(line))
        }
    }
}

/// What an id stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message.
    Message,
    /// A receive.
    Receive,
    /// A matched probe.
    Mprobe,
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message => "msg",
            Self::Receive => "recv",
            Self::Mprobe => "mprobe",
        })
    }
}

/// What stands where another kind of id was wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instead {
    /// Nothing above defines it.
    Nothing,
    /// It is another kind of thing.
    Other(Kind),
    /// An mrecv or mcancel has used it up.
    UsedUp,
}

impl Display for Instead {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("unknown"),
            Self::Other(kind) => write!(f, "a {kind}"),
            Self::UsedUp => f.write_str("used up by an mrecv or mcancel"),
        }
    }
}

/// How many fields follow an operation, in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldCount(pub usize);

impl Display for FieldCount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no field"),
            1 => f.write_str("1 field"),
            n => write!(f, "{n} fields"),
        }
    }
}

/// What a number may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The largest value; the smallest is 0.
    pub max: u64,
    /// Whether `*` will do as well.
    pub wildcard: bool,
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let wildcard = if self.wildcard { "`*` or " } else { "" };
        write!(f, "{wildcard}0..{} in plain decimal, no sign or leading zero", self.max)
    }
}

/// A piece of the file as it may be shown on a terminal: short, and nothing in it but text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quoted(String);

impl Quoted {
    pub(super) fn new(bytes: &[u8]) -> Self {
        const SHOWN_BYTES_MAX: usize = 32;
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
        let dots = if shown.len() < bytes.len() { "..." } else { "" };
        Self(format!("`{}{dots}`", shown.escape_ascii()))
    }
}

impl Display for Quoted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
