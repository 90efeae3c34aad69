//! The record of a replay: a line for each result, in order. `tagperf replay --matches` writes it.

use std::io::{self, Write};

use crate::format::Id;
use crate::matcher::Leftover;
use crate::reader::Trace;
use crate::result::OpResult;

/// Writes the line of one result.
///
/// # Errors
///
/// If `out` cannot be written to.
pub fn write_result(trace: &Trace, result: OpResult, out: &mut impl Write) -> io::Result<()> {
    let name = |id: Id| trace.name(id);
    let suffix = |truncated| if truncated { " truncated" } else { "" };
    match result {
        OpResult::Match { recv, msg, truncated, .. } => {
            writeln!(out, "match {} {}{}", name(recv), name(msg), suffix(truncated))
        }
        OpResult::Cancelled { recv } => writeln!(out, "cancelled {}", name(recv)),
        OpResult::Late { recv } => writeln!(out, "late {}", name(recv)),
        OpResult::Probe { msg: Some(msg) } => writeln!(out, "probe {}", name(msg)),
        OpResult::Probe { msg: None } => writeln!(out, "probe none"),
        OpResult::Mprobe { id, msg } => held(out, "mprobe", name(id), msg.map(name), ""),
        OpResult::Mrecv { id, msg, truncated } => {
            held(out, "mrecv", name(id), msg.map(name), suffix(truncated))
        }
        OpResult::Mcancelled { id, msg } => held(out, "mcancelled", name(id), msg.map(name), ""),
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

/// The line of an operation on a matched probe.
fn held(
    out: &mut impl Write,
    operation: &str,
    id: u64,
    msg: Option<u64>,
    suffix: &str,
) -> io::Result<()> {
    match msg {
        Some(msg) => writeln!(out, "{operation} {id} {msg}{suffix}"),
        None => writeln!(out, "{operation} {id} none"),
    }
}
