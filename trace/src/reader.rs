//! Reads a trace: line by line, until its end or its first mistake. A file of records goes to
//! `records`.
//!
//! Everything that can be wrong with a trace is found here, before anything is matched: `line`
//! finds wrong syntax and numbers out of range, `ids` finds ids that are unknown or used twice. So
//! a replay needs no further check: each reference is an [`Id`] that names a thing of the right
//! kind.
//!
//! The file is read as bytes, a line at a time: its text may be larger than memory, and a stray
//! byte is an error with a line number.

use std::io::BufRead;

use tagmatch_soft::TagLayout;

use crate::error::{Mistake, TraceError};
use crate::format::HEADER;
use crate::ids::Ids;
use crate::line;
use crate::records;
use crate::trace::Trace;

/// The longest line in bytes. An operation needs less than 100; comments may be longer.
const LINE_BYTES_MAX: u64 = 16 << 20;

impl Trace {
    /// Reads a trace to its end.
    ///
    /// # Errors
    ///
    /// [`TraceError`] with the first line that is wrong, and what is wrong on it.
    pub fn parse(mut input: impl BufRead) -> Result<Self, TraceError> {
        let mut lines = Lines { input: &mut input, number: 0, buffer: Vec::with_capacity(256) };
        match lines.next()? {
            Some(first) if first == HEADER.as_bytes() => {}
            Some(first) if first == records::HEADER.as_bytes() => return records::read(input),
            Some(first) => return Err(TraceError::at(1, Mistake::header(first))),
            None => return Err(TraceError::at(1, Mistake::Empty)),
        }
        let mut ids = Ids::default();
        let mut ops = Vec::new();
        while let Some(text) = lines.next()? {
            let op = line::parse(text, &mut ids);
            ops.extend(op.map_err(|mistake| TraceError::at(lines.number, mistake))?);
        }
        Ok(Self {
            ops,
            names: ids.names,
            lens: ids.lens,
            recorded: None,
            about: String::new(),
            repeated_probes: 0,
            layout: TagLayout::MPI,
            stop: None,
        })
    }
}

/// The lines of a file, without their ends.
struct Lines<'a, R> {
    input: &'a mut R,
    /// Of the last line that was read, counted from 1.
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
            // A CR is a part of the line's end only directly before an LF. Elsewhere it is a stray
            // byte.
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
    use crate::format::{Id, TraceOp};
    use tagmatch_soft::TagLayout;

    fn ops(text: &str) -> Vec<TraceOp> {
        Trace::parse(text.as_bytes()).unwrap().ops
    }

    #[test]
    fn an_operation_of_each_kind() {
        let text = "tagtrace 1\nmsg 7 1 2 3 4\nrecv 8 1 * 3 4\ncancel 8\nprobe 1 2 *\n\
                    mprobe 9 1 * *\nmrecv 9 5\nmprobe 10 0 0 0\nmcancel 10\n";
        let pattern = |ctx, src, tag| TagLayout::MPI.pattern(ctx, src, tag).unwrap();
        let want = [
            TraceOp::Msg {
                id: Id(0),
                tag: TagLayout::MPI.pack(1, 2, 3).unwrap(),
                source: line::SOURCE,
            },
            TraceOp::Recv { id: Id(1), pattern: pattern(1, None, Some(3)), is_sole: false },
            TraceOp::Cancel { recv: Id(1) },
            TraceOp::Probe { pattern: pattern(1, Some(2), None) },
            TraceOp::Mprobe { id: Id(2), pattern: pattern(1, None, None) },
            TraceOp::Mrecv { mprobe: Id(2), len: 5 },
            TraceOp::Mprobe { id: Id(3), pattern: pattern(0, Some(0), Some(0)) },
            TraceOp::Mcancel { mprobe: Id(3) },
        ];
        let trace = Trace::parse(text.as_bytes()).unwrap();
        assert_eq!(trace.ops, want);
        assert_eq!((trace.names, trace.lens), (vec![7, 8, 9, 10], vec![4, 4, 0, 0]));
    }

    #[test]
    fn blanks_comments_line_ends() {
        let plain = ops("tagtrace 1\nmsg 1 0 0 0 0\nrecv 2 0 0 0 0");
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
        assert_eq!(error.line(), Some(2));
    }
}
