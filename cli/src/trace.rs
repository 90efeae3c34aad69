//! The trace format `tagtrace 1`: one process's matching history, one operation a line.
//!
//! Whatever can be wrong with a trace is found here, before anything is matched: syntax and
//! ranges in `line`, the one id space of messages, receives and matched probes in `ids`.
//! What comes out can be replayed without a further check: every reference is an index into
//! [`Trace::names`] and is known to name the right kind of thing.
//!
//! The file is read as bytes, a line at a time, so that a trace larger than memory for its text
//! still parses and a stray byte is an error with a line number, not a failure to decode.

mod error;
mod ids;
mod line;

use std::io::BufRead;

pub use error::{Mistake, TraceError};

/// The one header this version reads; it is all of line 1.
pub const HEADER: &str = "tagtrace 1";

/// Longest line that is read. An operation needs less than 100 bytes; the rest is for comments.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Where an id stands in [`Trace::names`]: dense, in order of definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index(pub u32);

impl Index {
    /// The position, for indexing a table that is as long as [`Trace::names`].
    #[must_use]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// What a message carries to be matched by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// Context id: which communicator.
    pub ctx: u16,
    /// Rank of the sender, below 2^24.
    pub src: u32,
    /// The user's tag, below 2^24.
    pub tag: u32,
}

/// What a receive or a probe asks for; `None` is the `*` of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// Context id; there is no wildcard for it.
    pub ctx: u16,
    /// The sender, or any.
    pub src: Option<u32>,
    /// The tag, or any.
    pub tag: Option<u32>,
}

/// One operation, its references resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A message arrives.
    Msg {
        /// Its id.
        id: Index,
        /// What it is matched by.
        envelope: Envelope,
        /// Bytes it carries.
        len: u64,
    },
    /// A receive is posted.
    Recv {
        /// Its id.
        id: Index,
        /// What it takes.
        pattern: Pattern,
        /// Bytes it has room for.
        len: u64,
    },
    /// A receive is cancelled, if it is still posted.
    Cancel {
        /// The receive.
        recv: Index,
    },
    /// A look at the unexpected messages.
    Probe {
        /// What is looked for.
        pattern: Pattern,
    },
    /// A look that takes what it finds out of the list.
    Mprobe {
        /// Its id, under which the message is held.
        id: Index,
        /// What is looked for.
        pattern: Pattern,
    },
    /// The held message is received.
    Mrecv {
        /// The matched probe that holds it.
        mprobe: Index,
        /// Bytes there is room for.
        len: u64,
    },
    /// The held message is dropped.
    Mcancel {
        /// The matched probe that holds it.
        mprobe: Index,
    },
}

/// A whole trace, known to be sound.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// The file's id for every [`Index`].
    pub names: Vec<u64>,
}

impl Trace {
    /// Reads a trace to its end.
    ///
    /// # Errors
    ///
    /// [`TraceError`] with the line and what is wrong on it; the first mistake ends the reading.
    pub fn parse(mut input: impl BufRead) -> Result<Self, TraceError> {
        let mut lines = Lines { input: &mut input, number: 0, buffer: Vec::with_capacity(256) };
        match lines.next()? {
            Some(first) if first == HEADER.as_bytes() => {}
            Some(first) => return Err(TraceError::at(1, Mistake::header(first))),
            None => return Err(TraceError::at(1, Mistake::Empty)),
        }
        let mut ids = ids::Ids::default();
        let mut ops = Vec::new();
        while let Some(text) = lines.next()? {
            let op = match line::parse(text) {
                Ok(None) => continue,
                Ok(Some(raw)) => ids.resolve(raw),
                Err(mistake) => Err(mistake),
            };
            ops.push(op.map_err(|mistake| TraceError::at(lines.number, mistake))?);
        }
        Ok(Self { ops, names: ids.into_names() })
    }

    /// The file's id of `index`.
    #[must_use]
    pub fn name(&self, index: Index) -> u64 {
        self.names[index.at()]
    }
}

/// Lines without their ends, counted.
struct Lines<'a, R> {
    input: &'a mut R,
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.buffer.clear();
        self.number += 1;
        let mut bounded = std::io::Read::take(&mut *self.input, LINE_BYTES_MAX);
        let read = bounded
            .read_until(b'\n', &mut self.buffer)
            .map_err(|source| TraceError::Read { line: self.number, source })?;
        if read == 0 {
            return Ok(None);
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            // A CR belongs to the line's end only right before an LF; alone it is a stray byte.
            if self.buffer.last() == Some(&b'\r') {
                self.buffer.pop();
            }
        } else if read as u64 == LINE_BYTES_MAX {
            return Err(TraceError::at(self.number, Mistake::LineTooLong { max: LINE_BYTES_MAX }));
        }
        Ok(Some(&self.buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(text: &str) -> Vec<Op> {
        Trace::parse(text.as_bytes()).unwrap().ops
    }

    #[test]
    fn an_operation_of_each_kind() {
        let text = "tagtrace 1\nmsg 7 1 2 3 4\nrecv 8 1 * 3 4\ncancel 8\nprobe 1 2 *\n\
                    mprobe 9 1 * *\nmrecv 9 5\nmprobe 10 0 0 0\nmcancel 10\n";
        let any = Pattern { ctx: 1, src: None, tag: None };
        let zero = Pattern { ctx: 0, src: Some(0), tag: Some(0) };
        let want = [
            Op::Msg { id: Index(0), envelope: Envelope { ctx: 1, src: 2, tag: 3 }, len: 4 },
            Op::Recv { id: Index(1), pattern: Pattern { tag: Some(3), ..any }, len: 4 },
            Op::Cancel { recv: Index(1) },
            Op::Probe { pattern: Pattern { src: Some(2), ..any } },
            Op::Mprobe { id: Index(2), pattern: any },
            Op::Mrecv { mprobe: Index(2), len: 5 },
            Op::Mprobe { id: Index(3), pattern: zero },
            Op::Mcancel { mprobe: Index(3) },
        ];
        assert_eq!(ops(text), want);
        assert_eq!(Trace::parse(text.as_bytes()).unwrap().names, [7, 8, 9, 10]);
    }

    #[test]
    fn blanks_comments_line_ends() {
        let plain = ops("tagtrace 1\nmsg 1 0 0 0 0\ncancel_not_here"
            .replace("cancel_not_here", "recv 2 0 0 0 0")
            .as_str());
        for same in [
            "tagtrace 1\r\nmsg 1 0 0 0 0\r\nrecv 2 0 0 0 0\r\n",
            "tagtrace 1\n\n \t\n# all of it\nmsg\t1 0  0\t \t0 0 \n\trecv 2 0 0 0 0\t# why\n",
            "tagtrace 1\r\n\r\nmsg 1 0 0 0 0#glued\nrecv 2 0 0 0 0 #\u{e9}\n#",
        ] {
            assert_eq!(ops(same), plain, "{same:?}");
        }
        assert_eq!(ops("tagtrace 1"), []);
        assert_eq!(ops("tagtrace 1\r\n"), []);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let endless = std::io::Read::chain(&b"tagtrace 1\n"[..], std::io::repeat(b' '));
        let error = Trace::parse(std::io::BufReader::new(endless)).unwrap_err();
        assert_eq!(error.line(), 2);
    }
}
