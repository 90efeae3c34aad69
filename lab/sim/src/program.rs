//! Programs: the steps of the callers of all workers.
//!
//! A step never refers to the result of another step: it says "cancel the third posted receive". So
//! a program without some of its steps is still a program. That is how a failing program is shrunk.

use std::fmt;

use tagmatch_fallback::SendMode;
use tagmatch_soft::{TagLayout, TagMask};
use tagmatch_testkit::random::Random;

use crate::profile::{Profile, Setup};

/// The pattern of a receive or a probe, before peers have numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The tag's bits.
    pub tag: u64,
    /// The mask.
    pub mask: u64,
    /// The worker that is named as the source beside the tag. A receive whose tag names the source,
    /// too, is declared as sent only by that worker, so that a NIC may match it.
    pub source: Option<u8>,
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With a request.
    Send(SendMode),
    /// As a copy, without a request.
    Inject,
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub struct SendCall {
    pub from: u8,
    pub to: u8,
    pub tag: u64,
    pub length: u32,
    pub mode: Mode,
    pub immediate: bool,
}

/// One step. A worker is named by its place, which different workers may have one after the other.
/// `which` is an index modulo the number of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum Op {
    /// Send a message; its payload is a function of its number.
    Send(SendCall),
    /// Post a receive with a buffer of this many bytes.
    Receive { at: u8, ask: Ask, room: u32 },
    /// Probe.
    Probe { at: u8, ask: Ask },
    /// Do a matched probe.
    MatchedProbe { at: u8, ask: Ask },
    /// Receive a message that a matched probe took.
    ReceiveMessage { at: u8, which: u8, room: u32 },
    /// Drop a message that a matched probe took.
    Discard { at: u8, which: u8 },
    /// Cancel a request.
    Cancel { at: u8, which: u8 },
    /// Drop a request.
    Detach { at: u8, which: u8 },
    /// Take at most this many events. `until`: stop when this request has ended.
    Work { at: u8, events: u8, until: Option<u8> },
    /// The next READ of this worker fails.
    FailRead { at: u8 },
    /// The worker takes no events for this many steps.
    Stall { at: u8, steps: u8 },
    /// The worker ends, in order or as if its process were killed.
    Kill { at: u8, orderly: bool },
    /// Another worker takes the place if it is empty.
    Revive { at: u8 },
    /// The worker disconnects another.
    Disconnect { at: u8, with: u8 },
    /// All workers run until nothing happens by itself any more; then everything is checked.
    Settle,
}

impl Op {
    /// The worker that acts, if one does.
    #[must_use]
    pub fn actor(&self) -> Option<u8> {
        match *self {
            Op::Send(SendCall { from: at, .. })
            | Op::Receive { at, .. }
            | Op::Probe { at, .. }
            | Op::MatchedProbe { at, .. }
            | Op::ReceiveMessage { at, .. }
            | Op::Discard { at, .. }
            | Op::Cancel { at, .. }
            | Op::Detach { at, .. }
            | Op::Work { at, .. }
            | Op::FailRead { at }
            | Op::Stall { at, .. }
            | Op::Kill { at, .. }
            | Op::Revive { at }
            | Op::Disconnect { at, .. } => Some(at),
            Op::Settle => None,
        }
    }

    /// Whether the step concerns this worker.
    #[must_use]
    pub fn concerns(&self, worker: u8) -> bool {
        let other = match *self {
            Op::Send(SendCall { to, .. }) => Some(to),
            Op::Disconnect { with, .. } => Some(with),
            Op::Receive { ask, .. } | Op::Probe { ask, .. } | Op::MatchedProbe { ask, .. } => {
                ask.source
            }
            _ => None,
        };
        self.actor() == Some(worker) || other == Some(worker)
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tag {:#x} mask ", self.tag)?;
        match TagMask(self.mask) {
            TagMask::EXACT => f.write_str("exact")?,
            TagMask::ANY => f.write_str("any")?,
            TagMask(mask) => write!(f, "{mask:#x}")?,
        }
        self.source.map_or(Ok(()), |source| write!(f, " from w{source}"))
    }
}

/// Draws programs.
#[derive(Debug)]
pub(crate) struct Generator<'a> {
    setup: &'a Setup,
    profile: &'a Profile,
    random: Random,
    /// Running sums of the weights.
    sums: [u32; 15],
}

impl<'a> Generator<'a> {
    pub(crate) fn new(profile: &'a Profile, setup: &'a Setup, seed: u64) -> Self {
        let w = &profile.weights;
        let mut sums = [
            w.send,
            w.receive,
            w.work,
            w.probe,
            w.matched_probe,
            w.receive_message,
            w.discard,
            w.cancel,
            w.detach,
            w.fail_read,
            w.stall,
            w.kill,
            w.revive,
            w.disconnect,
            w.settle,
        ];
        let mut sum = 0;
        for weight in &mut sums {
            sum += *weight;
            *weight = sum;
        }
        Generator { setup, profile, random: Random::stream(seed, 2), sums }
    }

    pub(crate) fn program(&mut self, steps: u32) -> Vec<Op> {
        (0..steps).map(|_| self.op()).collect()
    }

    fn op(&mut self) -> Op {
        let at = self.worker();
        let which = self.small();
        let drawn = self.random.below_u32(self.sums[self.sums.len() - 1]);
        match self.sums.iter().take_while(|&&sum| sum <= drawn).count() {
            0 => self.send(at),
            1 => Op::Receive { at, ask: self.ask(), room: self.length() },
            2 => {
                let events = self.random.pick(&[1, 1, 2, 4, 8, 64]);
                let until = self.random.per_mille(150).then_some(which);
                Op::Work { at, events, until }
            }
            3 => Op::Probe { at, ask: self.ask() },
            4 => Op::MatchedProbe { at, ask: self.ask() },
            5 => Op::ReceiveMessage { at, which, room: self.length() },
            6 => Op::Discard { at, which },
            7 => Op::Cancel { at, which },
            8 => Op::Detach { at, which },
            9 => Op::FailRead { at },
            10 => Op::Stall { at, steps: self.small() },
            11 => Op::Kill { at, orderly: self.random.per_mille(400) },
            12 => Op::Revive { at },
            13 => Op::Disconnect { at, with: self.worker() },
            _ => Op::Settle,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 200 workers")]
    fn worker(&mut self) -> u8 {
        self.random.below_u32(self.setup.workers) as u8
    }

    #[expect(clippy::cast_possible_truncation, reason = "below 256")]
    fn small(&mut self) -> u8 {
        self.random.below_u32(256) as u8
    }

    fn send(&mut self, from: u8) -> Op {
        // A few messages go to the worker itself, the others to all peers alike.
        let to = if self.random.per_mille(60) { from } else { self.worker() };
        let lies = self.profile.lies_per_mille > 0;
        let lies = lies && self.random.per_mille(self.profile.lies_per_mille);
        let source = if lies { self.worker() } else { from };
        let tag = self.tag(source);
        let length = self.length();
        let mode = self.random.pick(&[
            Mode::Inject,
            Mode::Send(SendMode::Standard),
            Mode::Send(SendMode::Standard),
            Mode::Send(SendMode::Standard),
            Mode::Send(SendMode::Synchronous),
            Mode::Send(SendMode::Delivered),
        ]);
        let immediate = self.random.per_mille(700);
        Op::Send(SendCall { from, to, tag, length, mode, immediate })
    }

    fn tag(&mut self, source: u8) -> u64 {
        // As in `TagLayout::MPI`, whose fields these fit.
        let context = u64::from(self.random.below_u32(2));
        let tag = u64::from(self.random.below_u32(self.setup.tags));
        (context << 48) | (u64::from(source) << 24) | tag
    }

    fn ask(&mut self) -> Ask {
        let source = self.worker();
        let tag = self.tag(source);
        let layout = TagLayout::MPI;
        let any_source = !layout.source_mask().0;
        let any_tag = !layout.tag_mask().0;
        let named = self.random.per_mille(120).then_some(source);
        let pinned = self.profile.pinned_per_mille;
        let mask = if pinned > 0 && self.random.per_mille(pinned) {
            self.random.pick(&[TagMask::EXACT.0, any_tag])
        } else if self.random.per_mille(self.profile.exotic_per_mille) {
            self.random.pick(&self.setup.masks)
        } else {
            self.random.pick(&[
                TagMask::EXACT.0,
                TagMask::EXACT.0,
                any_source,
                any_source,
                any_tag,
                any_source & any_tag,
                TagMask::ANY.0,
            ])
        };
        Ask { tag, mask, source: named }
    }

    fn length(&mut self) -> u32 {
        let eager_max = u32::try_from(self.setup.engine.eager_max).unwrap_or(u32::MAX);
        let length_max = self.setup.length_max;
        if self.random.per_mille(self.profile.long_per_mille) {
            return self.random.between((eager_max.min(length_max), length_max));
        }
        match self.random.below_u32(8) {
            0 => 0,
            1..=4 => self.random.below_u32(49),
            5 => eager_max / 2 + self.random.below_u32(3),
            6 => (eager_max - 1) + self.random.below_u32(3),
            _ => self.random.below_u32(eager_max + 1),
        }
        .min(length_max)
    }
}
