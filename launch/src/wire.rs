//! Lines of PMI-1: `cmd=NAME key=value ...`, each ended by a newline.

use std::fmt::Write as _;
use std::io::{self, BufRead};

/// Bytes of a line that is written, its end included: what every implementation of PMI-1 reads (MPICH's
/// `PMIU_MAXLINE`).
pub const WRITTEN_BYTES_MAX: usize = 1023;
/// Bytes of a line that is read, its end included. A launcher may allow values that fill a line of its own.
pub const READ_BYTES_MAX: usize = 4096;

/// What can't be taken for, or made, a line of PMI-1.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other side has closed the connection.
    #[error("the other side of PMI has closed the connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the other side of PMI can't be reached any more: {0}")]
    Broken(#[from] io::Error),
    /// The line is longer than any of PMI-1.
    #[error("a line of PMI has more than {max} bytes")]
    TooLong {
        /// How many it may have.
        max: usize,
    },
    /// The line isn't made of printable ASCII characters, `cmd=NAME` first and `key=value` after it.
    #[error("`{line}` is no line of PMI-1")]
    Garbage {
        /// Its beginning, without control characters.
        line: String,
    },
    /// A command of several lines lacks one, or has it garbled.
    #[error("`mcmd=spawn` has no good `{field}`")]
    Field {
        /// Its key.
        field: String,
    },
}

impl WireError {
    pub(crate) fn garbage(line: &[u8]) -> Self {
        let shown = &line[..line.len().min(60)];
        WireError::Garbage { line: shown.escape_ascii().to_string() }
    }
}

/// One line, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    command: String,
    fields: Vec<(String, String)>,
}

impl Line {
    /// Takes a line, without its end, apart.
    ///
    /// # Errors
    /// It isn't one of PMI-1.
    pub fn parse(line: &[u8]) -> Result<Self, WireError> {
        let garbage = || WireError::garbage(line);
        let is_text = line.iter().all(|byte| (b' '..=b'~').contains(byte));
        let text = str::from_utf8(line).ok().filter(|_| is_text).ok_or_else(garbage)?;
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        let command =
            words.next().and_then(|word| word.strip_prefix("cmd=")).ok_or_else(garbage)?;
        let split = |word: &str| word.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        let fields: Option<Vec<_>> = words.map(split).collect();
        Ok(Line { command: command.to_owned(), fields: fields.ok_or_else(garbage)? })
    }

    /// Reads a line. Blocks.
    ///
    /// # Errors
    /// The connection has ended, or what came is no line.
    pub fn read(from: &mut impl BufRead) -> Result<Self, WireError> {
        Self::parse(&read_line(from, READ_BYTES_MAX)?)
    }

    /// What it asks for or answers to: the value of `cmd`.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The value of a field: of the first, if there are several of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// The value of a field that is a number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }
}

/// Reads up to the end of a line, which is not in it. Blocks. `max`: its bytes, its end included.
pub(crate) fn read_line(from: &mut impl BufRead, max: usize) -> Result<Vec<u8>, WireError> {
    let mut line = Vec::new();
    loop {
        let there = match from.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            there => there?,
        };
        if there.is_empty() {
            // An end in the midst of a line is an end.
            return Err(WireError::Closed);
        }
        let end = there.iter().position(|&byte| byte == b'\n');
        let taken = end.unwrap_or(there.len());
        if line.len() + taken >= max {
            return Err(WireError::TooLong { max });
        }
        line.extend_from_slice(&there[..taken]);
        from.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(line);
        }
    }
}

/// A line of these words, its end included.
///
/// # Errors
/// It would be longer than [`WRITTEN_BYTES_MAX`], or a word has a character that would end it.
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

/// Bytes as lower-case hexadecimal digits, two each.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The bytes of pairs of hexadecimal digits; `None` if the text is anything else.
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
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<Line, WireError> {
        Line::read(&mut bytes)
    }

    #[test]
    fn lines_there_and_back() {
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
    fn what_is_no_line_is_an_error() {
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
        assert!(line("a", &[("b", &"c".repeat(WRITTEN_BYTES_MAX))]).is_err());
    }

    #[test]
    fn digits_there_and_back() {
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
