//! The record of a replay: what matched what, a line each, in order.

use std::io::{self, Write};

use tagmatch::Counters;

use super::engine::{Event, Script, pass};
use super::matcher::{Indexed, Left};
use super::stack;
use crate::spec::HwTagsArg;
use crate::trace::{Index, Trace};

/// Writes what `--matches` promises for `trace`.
///
/// # Errors
///
/// What `out` says.
pub fn write_matches(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    let script = Script::new(trace);
    let pass = pass(&script, Indexed::new(), u64::MAX, |_, event| match event {
        Some(event) => write_event(trace, event, &mut out),
        None => Ok(()),
    })?;
    write_left(trace, &pass.lists.left(), &mut out)?;
    out.flush()
}

/// Writes the same as it comes of the whole stack, with a model NIC of `slots` entries in the
/// receiving worker; gives that worker's counters. A seed decides the NIC's delays and how far it lags.
///
/// # Errors
///
/// What `out` says, and whatever went wrong in the stack.
pub fn write_matches_by_nic(
    trace: &Trace,
    slots: u32,
    seed: Option<u64>,
    mut out: impl Write,
) -> io::Result<Counters> {
    let nic = HwTagsArg::Model { slots }.config(seed);
    let outcome = stack::run(trace, &Script::new(trace), nic, seed).map_err(io::Error::other)?;
    for event in outcome.events.iter().flatten() {
        write_event(trace, *event, &mut out)?;
    }
    write_left(trace, &outcome.left, &mut out)?;
    out.flush()?;
    Ok(outcome.counters)
}

/// The line of one event.
pub(super) fn write_event(trace: &Trace, event: Event, out: &mut impl Write) -> io::Result<()> {
    let name = |index: Index| trace.name(index);
    let cut = |truncated| if truncated { " truncated" } else { "" };
    match event {
        Event::Match { recv, msg, truncated, .. } => {
            writeln!(out, "match {} {}{}", name(recv), name(msg), cut(truncated))
        }
        Event::Cancelled { recv } => writeln!(out, "cancelled {}", name(recv)),
        Event::Late { recv } => writeln!(out, "late {}", name(recv)),
        Event::Probe { msg: Some(msg) } => writeln!(out, "probe {}", name(msg)),
        Event::Probe { msg: None } => writeln!(out, "probe none"),
        Event::Mprobe { id, msg } => held(out, "mprobe", name(id), msg.map(name), ""),
        Event::Mrecv { id, msg, truncated } => {
            held(out, "mrecv", name(id), msg.map(name), cut(truncated))
        }
        Event::Mcancelled { id, msg } => held(out, "mcancelled", name(id), msg.map(name), ""),
    }
}

/// What is left at the end; a message that a matched probe holds is in neither list.
pub(super) fn write_left(trace: &Trace, left: &Left, out: &mut impl Write) -> io::Result<()> {
    let (posted, unexpected) = left;
    for recv in posted {
        writeln!(out, "posted {}", trace.name(*recv))?;
    }
    for msg in unexpected {
        writeln!(out, "unexpected {}", trace.name(*msg))?;
    }
    Ok(())
}

fn held(out: &mut impl Write, what: &str, id: u64, msg: Option<u64>, cut: &str) -> io::Result<()> {
    match msg {
        Some(msg) => writeln!(out, "{what} {id} {msg}{cut}"),
        None => writeln!(out, "{what} {id} none"),
    }
}
