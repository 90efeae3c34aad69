//! A trace run through a matcher, operation by operation, each seeing all effects of those before.
//!
//! The same loop serves the record of what matched what, the statistics, and the timing: steps are
//! run a chunk at a time under the clock, and what they came to is looked at between chunks.

use std::time::{Duration, Instant};

use tagmatch::soft::{Pattern, Tag, TagLayout};

use super::matcher::Matcher;
use crate::trace::{self, Index, Op, Trace};

/// An operation with its tag packed, as a worker would have it at hand.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Msg { id: Index, tag: Tag },
    Recv { id: Index, pattern: Pattern },
    Cancel { recv: Index },
    Probe { pattern: Pattern },
    Mprobe { id: Index, pattern: Pattern },
    Mrecv { mprobe: Index, len: u64 },
    Mcancel { mprobe: Index },
}

/// A trace made ready to run: steps, and the length behind every id.
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
    pub(super) lens: Vec<u64>,
}

impl Script {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut lens = vec![0; trace.names.len()];
        let steps = trace.ops.iter().map(|op| match *op {
            Op::Msg { id, envelope, len } => {
                lens[id.at()] = len;
                Step::Msg { id, tag: pack(envelope) }
            }
            Op::Recv { id, pattern, len } => {
                lens[id.at()] = len;
                Step::Recv { id, pattern: pack_pattern(pattern) }
            }
            Op::Cancel { recv } => Step::Cancel { recv },
            Op::Probe { pattern } => Step::Probe { pattern: pack_pattern(pattern) },
            Op::Mprobe { id, pattern } => Step::Mprobe { id, pattern: pack_pattern(pattern) },
            Op::Mrecv { mprobe, len } => Step::Mrecv { mprobe, len },
            Op::Mcancel { mprobe } => Step::Mcancel { mprobe },
        });
        Self { steps: steps.collect(), lens }
    }
}

fn pack(envelope: trace::Envelope) -> Tag {
    let trace::Envelope { ctx, src, tag } = envelope;
    TagLayout::MPI
        .pack(ctx.into(), src.into(), tag.into())
        .expect("a trace's fields are as wide as MPI's layout")
}

fn pack_pattern(pattern: trace::Pattern) -> Pattern {
    let trace::Pattern { ctx, src, tag } = pattern;
    TagLayout::MPI
        .pattern(ctx.into(), src.map(u64::from), tag.map(u64::from))
        .expect("a trace's fields are as wide as MPI's layout")
}

/// What an operation came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A message met a posted receive (`unexpected` false), or a receive a waiting message.
    Match {
        recv: Index,
        msg: Index,
        truncated: bool,
        unexpected: bool,
    },
    Cancelled {
        recv: Index,
    },
    Late {
        recv: Index,
    },
    Probe {
        msg: Option<Index>,
    },
    Mprobe {
        id: Index,
        msg: Option<Index>,
    },
    Mrecv {
        id: Index,
        msg: Option<Index>,
        truncated: bool,
    },
    Mcancelled {
        id: Index,
        msg: Option<Index>,
    },
}

/// Steps between two looks at the clock: so many that the clock's cost is lost in theirs, so few
/// that what they come to stays in the nearest cache.
const CHUNK: usize = 512;

/// What a pass over a script took.
pub(super) struct Pass<M> {
    /// The lists as they are at its end.
    pub(super) lists: M,
    /// Time in the bare loop.
    pub(super) took: Duration,
    /// Steps run: all, unless it was too much work.
    pub(super) steps: usize,
}

impl<M> Pass<M> {
    pub(super) fn ns_per_step(&self) -> f64 {
        self.took.as_secs_f64() * 1e9 / self.steps.max(1) as f64
    }
}

/// Runs `script` through `lists` until they have done `work_max`, which a time would make another each
/// run; shows `see` each step and its event.
pub(super) fn pass<M: Matcher, E>(
    script: &Script,
    lists: M,
    work_max: u64,
    mut see: impl FnMut(&Step, Option<Event>) -> Result<(), E>,
) -> Result<Pass<M>, E> {
    let ids = script.lens.len();
    let mut run = Run { script, lists, handles: vec![None; ids], held: vec![None; ids] };
    let mut events = Vec::with_capacity(CHUNK);
    let (mut took, mut steps) = (Duration::ZERO, 0);
    for chunk in script.steps.chunks(CHUNK) {
        events.clear();
        let start = Instant::now();
        for step in chunk {
            if run.lists.work() >= work_max {
                break;
            }
            events.push(run.step(step));
        }
        took += start.elapsed();
        steps += events.len();
        for (step, event) in chunk.iter().zip(&events) {
            see(step, *event)?;
        }
        if events.len() < chunk.len() {
            break;
        }
    }
    Ok(Pass { lists: run.lists, took, steps })
}

/// A run in progress: the matcher, and what its owner remembers of each id.
struct Run<'a, M: Matcher> {
    script: &'a Script,
    lists: M,
    handles: Vec<Option<M::Handle>>,
    held: Vec<Option<Index>>,
}

impl<M: Matcher> Run<'_, M> {
    #[inline]
    fn step(&mut self, step: &Step) -> Option<Event> {
        Some(match *step {
            Step::Msg { id: msg, tag } => match self.lists.take_posted(tag) {
                Some(recv) => self.matched(recv, msg, false),
                None => {
                    self.lists.push(tag, msg);
                    return None;
                }
            },
            Step::Recv { id: recv, ref pattern } => match self.lists.take_unexpected(pattern) {
                Some(msg) => self.matched(recv, msg, true),
                None => {
                    self.handles[recv.at()] = Some(self.lists.post(pattern, recv));
                    return None;
                }
            },
            // A receive that was never posted has no handle, one that has left has a stale one.
            Step::Cancel { recv } => match self.handles[recv.at()] {
                Some(handle) if self.lists.cancel(handle) => Event::Cancelled { recv },
                _ => Event::Late { recv },
            },
            Step::Probe { ref pattern } => {
                Event::Probe { msg: self.lists.find_unexpected(pattern) }
            }
            Step::Mprobe { id, ref pattern } => {
                let msg = self.lists.take_unexpected(pattern);
                self.held[id.at()] = msg;
                Event::Mprobe { id, msg }
            }
            Step::Mrecv { mprobe: id, len } => {
                let msg = self.held[id.at()];
                let truncated = msg.is_some_and(|msg| self.script.lens[msg.at()] > len);
                Event::Mrecv { id, msg, truncated }
            }
            Step::Mcancel { mprobe: id } => Event::Mcancelled { id, msg: self.held[id.at()] },
        })
    }

    fn matched(&self, recv: Index, msg: Index, unexpected: bool) -> Event {
        let truncated = self.script.lens[msg.at()] > self.script.lens[recv.at()];
        Event::Match { recv, msg, truncated, unexpected }
    }
}
