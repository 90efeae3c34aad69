//! Lines of PMI-1: `cmd=NAME key=value ...`, each ended by a newline.

use std::fmt::Write as _;
use std::io::{self, BufRead};

/// The longest line that is written, in bytes, with its newline: every implementation of PMI-1
/// reads this much (MPICH's `PMIU_MAXLINE`).
pub const WRITTEN_BYTES_MAX: usize = 1023;
/// The longest line that is read, in bytes, with its newline. It is more than is written: a
/// launcher may allow values that fill a longer line of its own.
pub const READ_BYTES_MAX: usize = 4096;

/// Why a line of PMI-1 can't be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The other side has closed the connection.
    #[error("the peer has closed the PMI connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the PMI connection is broken: {0}")]
    Broken(#[from] io::Error),
    /// The line is too long.
    #[error("a PMI line has more than {max} bytes")]
    TooLong {
        /// The longest line, in bytes.
        max: usize,
    },
    /// The line is not `cmd=NAME`, followed by `key=value` pairs, in printable ASCII characters.
    #[error("`{line}` is not a PMI-1 line")]
    Garbage {
        /// The beginning of the line, with control characters escaped.
        line: String,
    },
    /// A field of a spawn command is missing or invalid.
    #[error("`mcmd=spawn` has no valid `{field}`")]
    Field {
        /// The field's key.
        field: String,
    },
}

impl WireError {
    pub(crate) fn garbage(line: &[u8]) -> Self {
        let shown = &line[..line.len().min(60)];
        WireError::Garbage { line: shown.escape_ascii().to_string() }
    }
}

/// A parsed line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmiLine {
    command: String,
    fields: Vec<(String, String)>,
}

impl PmiLine {
    /// Parses a line without its newline.
    ///
    /// # Errors
    /// [`WireError::Garbage`]: this is not a line of PMI-1.
    pub fn parse(line: &[u8]) -> Result<Self, WireError> {
        let garbage = || WireError::garbage(line);
        let is_text = line.iter().all(|byte| (b' '..=b'~').contains(byte));
        let text = str::from_utf8(line).ok().filter(|_| is_text).ok_or_else(garbage)?;
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        let command =
            words.next().and_then(|word| word.strip_prefix("cmd=")).ok_or_else(garbage)?;
        let split = |word: &str| word.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        let fields: Option<Vec<_>> = words.map(split).collect();
        Ok(PmiLine { command: command.to_owned(), fields: fields.ok_or_else(garbage)? })
    }

    /// Reads and parses a line. Blocks.
    ///
    /// # Errors
    /// The connection has ended, or the input is not a line of PMI-1.
    pub fn read(from: &mut impl BufRead) -> Result<Self, WireError> {
        Self::parse(&read_line(from, READ_BYTES_MAX)?)
    }

    /// The value of `cmd`: the name of the request or answer.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The value of the first field with this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// The value of a field as a number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }
}

/// Reads a line, and returns it without its newline. Blocks. `max`: the most bytes, with the
/// newline.
pub(crate) fn read_line(from: &mut impl BufRead, max: usize) -> Result<Vec<u8>, WireError> {
    let mut line = Vec::new();
    loop {
        let there = match from.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            there => there?,
        };
        if there.is_empty() {
            // A connection that ends in the middle of a line counts as closed.
            return Err(WireError::Closed);
        }
        let end = there.iter().position(|&byte| byte == b'\n');
        let taken = end.unwrap_or(there.len());
        if line.len() + taken >= max {
            // A copy of what was read is too long, too.
            from.consume(taken);
            return Err(WireError::TooLong { max });
        }
        line.extend_from_slice(&there[..taken]);
        from.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(line);
        }
    }
}

/// Builds a line, with its newline.
///
/// # Errors
/// The line would be longer than [`WRITTEN_BYTES_MAX`], or a value has a space or another character
/// that can't be in a value.
pub fn line(command: &str, fields: &[(&str, &str)]) -> Result<String, WireError> {
    let mut line = format!("cmd={command}");
    for (key, value) in fields {
        // Writing to a string doesn't fail.
        let _ = write!(line, " {key}={value}");
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(WireError::Garbage { line: line.escape_default().take(60).collect() });
        }
    }
    line.push('\n');
    if line.len() > WRITTEN_BYTES_MAX {
        return Err(WireError::TooLong { max: WRITTEN_BYTES_MAX });
    }
    Ok(line)
}

/// Bytes as lower-case hexadecimal digits, two per byte.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Decodes pairs of hexadecimal digits; `None` if the text is anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;
    use crate::choppy::Choppy;

    fn read(bytes: &[u8]) -> Result<PmiLine, WireError> {
        PmiLine::read(&mut BufReader::new(Choppy::new(bytes)))
    }

    #[test]
    fn a_line_is_parsed_as_it_was_built() {
        let text = line("put", &[("key", "a"), ("value", "b=c"), ("empty", "")]).unwrap();
        assert_eq!(text, "cmd=put key=a value=b=c empty=\n");
        let line = read(text.as_bytes()).unwrap();
        assert_eq!(line.command(), "put");
        assert_eq!((line.field("value"), line.field("empty")), (Some("b=c"), Some("")));
        assert_eq!((line.field("none"), line.number::<u32>("key")), (None, None));
        let line = read(b"cmd=maxes  rc=-1 vallen_max=1024 \n").unwrap();
        assert_eq!((line.number("rc"), line.number("vallen_max")), (Some(-1), Some(1024)));
    }

    #[test]
    fn a_malformed_line_is_an_error() {
        for bytes in [&b"\n"[..], b"x\n", b"cmd\n", b"mcmd=spawn\n", b"cmd=a b\n", b"cmd=a\0\n"] {
            assert!(matches!(read(bytes), Err(WireError::Garbage { .. })), "{bytes:?}");
        }
        for bytes in [b"\xff\xfe\n", b"\x1b[\n", b"\xc3\xa9\n"] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(!error.contains(char::is_control), "{error}");
        }
        assert!(matches!(read(b""), Err(WireError::Closed)));
        assert!(matches!(read(b"cmd=a"), Err(WireError::Closed)));
        let long = [b"cmd=a b=".as_slice(), &[b'c'; READ_BYTES_MAX], b"\n"].concat();
        assert!(matches!(read(&long), Err(WireError::TooLong { .. })));
        assert!(line("a", &[("b", "c d")]).is_err());
        assert!(line("a", &[("b", "c\nd")]).is_err());
    }

    #[test]
    fn a_line_is_written_and_read_up_to_its_longest_length() {
        let value = |line_bytes: usize| "v".repeat(line_bytes - "cmd=a b=\n".len());
        let written = |bytes| line("a", &[("b", &value(bytes))]).map(|line| line.len());
        assert_eq!(written(WRITTEN_BYTES_MAX).ok(), Some(WRITTEN_BYTES_MAX));
        assert!(matches!(written(WRITTEN_BYTES_MAX + 1), Err(WireError::TooLong { .. })));
        let read = |bytes| read(format!("cmd=a b={}\n", value(bytes)).as_bytes());
        assert!(read(READ_BYTES_MAX).is_ok());
        assert!(matches!(read(READ_BYTES_MAX + 1), Err(WireError::TooLong { .. })));
    }

    #[test]
    fn hexadecimal_digits_decode_to_the_same_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&all)).unwrap(), all);
        assert_eq!(to_hex(&[0, 0xaf]), "00af");
        assert_eq!(from_hex("00AF").unwrap(), [0, 0xaf]);
        assert_eq!(from_hex("").unwrap(), []);
        for text in ["0", "0g", "+1", "00 1", "é"] {
            assert_eq!(from_hex(text), None, "{text}");
        }
    }
}
