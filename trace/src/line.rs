//! Parses one line: removes the comment, splits the fields, reads the numbers, looks up the ids.

use tagmatch_soft::{Pattern, SourceId, Tag, TagLayout};

use crate::error::{IdKind, Mistake, quoted};
use crate::format::TraceOp;
use crate::ids::Ids;

/// Fields as wide as those of [`TagLayout::MPI`].
const CTX_MAX: u64 = u16::MAX as u64;
const LABEL_MAX: u64 = (1 << 24) - 1;
/// The source is a part of the tag, so all messages have the same one beside it. It isn't 0, which
/// would be the process itself.
pub(crate) const SOURCE: SourceId = SourceId(1);
/// Fields of the longest operation, its name included.
const FIELDS_MAX: usize = 6;

/// Parses a line without its end. `None` if it is blank or a comment.
pub(super) fn parse(line: &[u8], ids: &mut Ids) -> Result<Option<TraceOp>, Box<Mistake>> {
    let mut fields = [&line[..0]; FIELDS_MAX];
    let mut count = 0;
    let mut at = 0;
    // One pass over the bytes, since a trace may have millions of lines.
    while let Some(&byte) = line.get(at) {
        if is_blank(byte) {
            at += 1;
            continue;
        }
        if byte == b'#' {
            check_comment(&line[at..])?;
            break;
        }
        let field = &line[at..];
        let len = field.iter().position(|&byte| is_blank(byte) || byte == b'#');
        let field = &field[..len.unwrap_or(field.len())];
        if let Some(slot) = fields.get_mut(count) {
            *slot = field;
        }
        count += 1;
        at += field.len();
    }
    if count == 0 {
        return Ok(None);
    }
    operation(Fields { fields, count, usage: "" }, ids).map(Some)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn operation(fields: Fields<'_>, ids: &mut Ids) -> Result<TraceOp, Box<Mistake>> {
    // An id is defined after all numbers of the line are known to be sound.
    Ok(match fields.fields[0] {
        b"msg" => {
            let f = fields.shaped(6, "msg ID CTX SRC TAG LEN")?;
            let tag = f.tag(2)?;
            let id = f.id(1)?;
            let len = f.len(5)?;
            TraceOp::Msg { id: ids.define(id, IdKind::Message, len)?, tag, source: SOURCE }
        }
        b"recv" => {
            let f = fields.shaped(6, "recv ID CTX SRC|* TAG|* LEN")?;
            let id = f.id(1)?;
            let pattern = f.pattern(2)?;
            let len = f.len(5)?;
            TraceOp::Recv { id: ids.define(id, IdKind::Receive, len)?, pattern, is_sole: false }
        }
        b"cancel" => {
            let f = fields.shaped(2, "cancel RECV_ID")?;
            TraceOp::Cancel { recv: ids.refer(f.id(1)?, IdKind::Receive)? }
        }
        b"probe" => {
            let f = fields.shaped(4, "probe CTX SRC|* TAG|*")?;
            TraceOp::Probe { pattern: f.pattern(1)? }
        }
        b"mprobe" => {
            let f = fields.shaped(5, "mprobe ID CTX SRC|* TAG|*")?;
            let id = f.id(1)?;
            let pattern = f.pattern(2)?;
            TraceOp::Mprobe { id: ids.define(id, IdKind::Mprobe, 0)?, pattern }
        }
        b"mrecv" => {
            let f = fields.shaped(3, "mrecv MPROBE_ID LEN")?;
            let id = f.id(1)?;
            let len = f.len(2)?;
            TraceOp::Mrecv { mprobe: ids.refer(id, IdKind::Mprobe)?, len }
        }
        b"mcancel" => {
            let f = fields.shaped(2, "mcancel MPROBE_ID")?;
            TraceOp::Mcancel { mprobe: ids.refer(f.id(1)?, IdKind::Mprobe)? }
        }
        other => return Err(Box::new(Mistake::Operation(quoted(other)))),
    })
}

/// A comment is UTF-8 text. A CR in it is refused because a file whose lines end in a CR alone
/// would be one long comment, and a NUL because the file is then not a text file.
fn check_comment(comment: &[u8]) -> Result<(), Box<Mistake>> {
    let holds = if comment.contains(&b'\r') {
        "a CR that no LF follows"
    } else if comment.contains(&0) {
        "a NUL"
    } else if std::str::from_utf8(comment).is_err() {
        "bytes that are not UTF-8"
    } else {
        return Ok(());
    };
    Err(Box::new(Mistake::Comment(holds)))
}

/// The fields of a line. `usage` shows how the operation should look, for errors.
#[derive(Clone, Copy)]
struct Fields<'a> {
    fields: [&'a [u8]; FIELDS_MAX],
    count: usize,
    usage: &'static str,
}

impl Fields<'_> {
    /// Checks that there are as many fields as `usage` has words.
    fn shaped(self, words: usize, usage: &'static str) -> Result<Self, Box<Mistake>> {
        debug_assert_eq!(words, usage.split(' ').count());
        if self.count == words {
            Ok(Self { usage, ..self })
        } else {
            let found = match self.count - 1 {
                0 => "no field".to_owned(),
                1 => "1 field".to_owned(),
                n => format!("{n} fields"),
            };
            Err(Box::new(Mistake::Fields { found, usage }))
        }
    }

    fn id(&self, at: usize) -> Result<u64, Box<Mistake>> {
        self.number(at, "id", u64::MAX, "")
    }

    fn len(&self, at: usize) -> Result<u64, Box<Mistake>> {
        self.number(at, "length", u64::MAX, "")
    }

    fn ctx(&self, at: usize) -> Result<u64, Box<Mistake>> {
        self.number(at, "context id", CTX_MAX, "")
    }

    /// Context id, source and tag of a message, from field `at` on.
    fn tag(&self, at: usize) -> Result<Tag, Box<Mistake>> {
        let ctx = self.ctx(at)?;
        let src = self.number(at + 1, "source", LABEL_MAX, "")?;
        let tag = self.number(at + 2, "tag", LABEL_MAX, "")?;
        Ok(TagLayout::MPI.pack(ctx, src, tag).expect("all were checked against their width"))
    }

    /// Context id, source and tag from field `at` on. Source and tag may be wildcards.
    fn pattern(&self, at: usize) -> Result<Pattern, Box<Mistake>> {
        let or_any = |at: usize, name| match self.fields[at] {
            b"*" => Ok(None),
            _ => self.number(at, name, LABEL_MAX, "`*` or ").map(Some),
        };
        let ctx = self.ctx(at)?;
        let src = or_any(at + 1, "source")?;
        let tag = or_any(at + 2, "tag")?;
        Ok(TagLayout::MPI.pattern(ctx, src, tag).expect("all were checked against their width"))
    }

    fn number(
        &self,
        at: usize,
        name: &'static str,
        max: u64,
        or_any: &'static str,
    ) -> Result<u64, Box<Mistake>> {
        decimal(self.fields[at]).filter(|value| *value <= max).ok_or_else(|| {
            let found = quoted(self.fields[at]);
            let usage = self.usage;
            Box::new(Mistake::Number { found, name, field: at + 1, usage, or_any, max })
        })
    }
}

/// Plain decimal: only digits, no leading zero, at most 2^64-1.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"10"), Some(10));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for wrong in ["", "00", "01", "+1", "-1", "1.", "0x1", "1_0", "18446744073709551616", "*"] {
            assert_eq!(decimal(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(decimal("\u{661}".as_bytes()), None);
    }

    #[test]
    fn an_error_says_what_is_wrong_where_and_what_would_be_right() {
        let message =
            |line: &str| parse(line.as_bytes(), &mut Ids::default()).unwrap_err().to_string();
        assert_eq!(
            message("msg 1 65536 0 0 0"),
            "`65536` is not a valid context id; field 3 of `msg ID CTX SRC TAG LEN` must be 0..65535 in \
             plain decimal, no sign or leading zero"
        );
        assert_eq!(
            message("probe 0 01 *"),
            "`01` is not a valid source; field 3 of `probe CTX SRC|* TAG|*` must be `*` or 0..16777215 in \
             plain decimal, no sign or leading zero"
        );
        assert_eq!(message("cancel"), "no field after the operation: expected `cancel RECV_ID`");
        assert_eq!(
            message("cancel 1 2 3 4 5 6 7"),
            "7 fields after the operation: expected `cancel RECV_ID`"
        );
        assert_eq!(
            message("\u{7}send 1"),
            "`\\x07send` is not an operation; field 1 must be msg, recv, cancel, probe, mprobe, mrecv \
             or mcancel"
        );
    }
}
