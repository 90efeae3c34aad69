//! The record of a replay: a line for each result, in order. `tagperf replay --matches` writes it.

use std::io::{self, Write};

use crate::format::Id;
use crate::matcher::Leftover;
use crate::result::OpResult;
use crate::trace::Trace;

/// Writes the line of one result.
///
/// # Errors
///
/// If `out` cannot be written to.
pub fn write_result(trace: &Trace, result: OpResult, out: &mut impl Write) -> io::Result<()> {
    let name = |id: Id| trace.name(id);
    let or_none = |msg: Option<Id>| msg.map_or("none".to_owned(), |msg| name(msg).to_string());
    let suffix = |truncated| if truncated { " truncated" } else { "" };
    match result {
        OpResult::Match { recv, msg, truncated, .. } => {
            writeln!(out, "match {} {}{}", name(recv), name(msg), suffix(truncated))
        }
        OpResult::Cancelled { recv } => writeln!(out, "cancelled {}", name(recv)),
        OpResult::Late { recv } => writeln!(out, "late {}", name(recv)),
        OpResult::Probe { msg } => writeln!(out, "probe {}", or_none(msg)),
        OpResult::Mprobe { id, msg } => writeln!(out, "mprobe {} {}", name(id), or_none(msg)),
        OpResult::Mrecv { id, msg, truncated } => {
            writeln!(out, "mrecv {} {}{}", name(id), or_none(msg), suffix(truncated))
        }
        OpResult::Mcancelled { id, msg } => {
            writeln!(out, "mcancelled {} {}", name(id), or_none(msg))
        }
        OpResult::Lost { msg } => writeln!(out, "lost {}", or_none(msg)),
    }
}

/// Writes the lines of what is in the lists at the end. A message that a matched probe still holds
/// is in neither list and has no line.
///
/// # Errors
///
/// If `out` cannot be written to.
pub fn write_leftover(trace: &Trace, left: &Leftover, out: &mut impl Write) -> io::Result<()> {
    let (posted, unexpected) = left;
    for recv in posted {
        writeln!(out, "posted {}", trace.name(*recv))?;
    }
    for msg in unexpected {
        writeln!(out, "unexpected {}", trace.name(*msg))?;
    }
    Ok(())
}
