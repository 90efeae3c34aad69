//! Reads `tagtrace 2`. As with text, everything that can be wrong is found here.

use std::collections::HashMap;
use std::io::BufRead;

use tagmatch_soft::{Pattern, SourceId, Tag, TagLayout, TagMask};

use super::blocks::Blocks;
use super::{FULL, Kind, NO_SPACE, SLOTS, flag};
use crate::error::{RecordMistake, TraceError};
use crate::format::{Id, TraceOp};
use crate::ids::Ids;
use crate::trace::{Stop, Trace};

/// Reads the rest of a trace whose first line was [`HEADER`](super::HEADER).
pub(crate) fn read(input: impl BufRead) -> Result<Trace, TraceError> {
    let (mut blocks, about) = Blocks::new(input)?;
    let mut history = History::new();
    while let Some(block) = blocks.next()? {
        block.each_record(|words| history.take(words))?;
    }
    let History { ops, recorded, ids, stop, repeated_probes, layout, .. } = history;
    let names = (1..=ids.lens.len() as u64).collect();
    let lens = ids.lens;
    let recorded = Some(recorded);
    Ok(Trace { ops, names, lens, recorded, about, repeated_probes, layout, stop })
}

/// Tags that have their source in these bits. Which of the bits above and below are the context and
/// which the tag doesn't matter to a NIC.
fn layout(source_bits: u64) -> Option<TagLayout> {
    if source_bits == 0 {
        return TagLayout::new(64, 0, 0).ok();
    }
    let above = source_bits.leading_zeros();
    let below = source_bits.trailing_zeros();
    let layout = TagLayout::new(above, 64 - above - below, below).ok()?;
    (layout.source_mask().0 == source_bits).then_some(layout)
}

#[expect(clippy::cast_possible_truncation, reason = "the other half stands for something else")]
fn low(word: u64) -> u32 {
    word as u32
}

/// What became of the posted receive that had a number last.
#[derive(Clone, Copy)]
enum ReceiveOutcome {
    Posted(Id),
    /// The operation at this place is to be that of its message.
    Taken(Id, usize),
    Matched {
        recv: Id,
        msg: Id,
    },
    Withdrawn,
}

/// What became of the unexpected message that had a number last.
#[derive(Clone, Copy)]
enum MessageOutcome {
    Listed(Id),
    Held { mprobe: Id },
}

/// What a slot holds.
#[derive(Clone, Copy)]
struct SlotContents {
    pattern: Pattern,
    length: u64,
    is_sole: bool,
}

impl SlotContents {
    fn new(first: u64, tag: u64, mask: u64, length: u64) -> Result<Self, RecordMistake> {
        let source = low(first >> 32);
        let is_sole = first & flag::SOLE != 0;
        let has_source = first & flag::SOURCE != 0;
        let is_masked = first & flag::MASKED != 0;
        if (!has_source && (source != 0 || is_sole)) || (is_masked && mask == u64::MAX) {
            return Err(RecordMistake::Bits { kind: Kind::Shape as u8, value: first });
        }
        let pattern = Pattern::new(Tag(tag), TagMask(mask));
        let pattern = if has_source { pattern.from_source(SourceId(source)) } else { pattern };
        Ok(Self { pattern, length, is_sole })
    }
}

struct History {
    ops: Vec<TraceOp>,
    recorded: Vec<Option<Id>>,
    ids: Ids,
    receives: HashMap<u32, ReceiveOutcome>,
    /// Receives that the NIC has matched to messages that are not told yet.
    owed: Vec<u32>,
    messages: HashMap<u32, MessageOutcome>,
    shapes: [Option<SlotContents>; SLOTS],
    /// The record before was a probe that found nothing.
    was_idle_probe: bool,
    repeated_probes: u64,
    layout: TagLayout,
    stop: Option<Stop>,
}

impl History {
    fn new() -> Self {
        Self {
            ops: Vec::new(),
            recorded: Vec::new(),
            ids: Ids::default(),
            receives: HashMap::new(),
            owed: Vec::new(),
            messages: HashMap::new(),
            shapes: [None; SLOTS],
            was_idle_probe: false,
            repeated_probes: 0,
            layout: layout(0).unwrap_or(TagLayout::MPI),
            stop: None,
        }
    }

    /// Takes in the record at the front of some words; gives how many of them are its own.
    fn take(&mut self, words: &[u64]) -> Result<usize, RecordMistake> {
        let first = words[0];
        let kind = Kind::of(first).ok_or(RecordMistake::Kind(first.to_le_bytes()[0]))?;
        let (count, bits) = kind.layout(first);
        if first & !bits != 0 {
            return Err(RecordMistake::Bits { kind: kind as u8, value: first });
        }
        let values = words.get(1..count).ok_or(RecordMistake::CutShort)?;
        if self.stop.is_some() {
            return Err(RecordMistake::AfterEnd);
        }
        let was_idle_probe = std::mem::take(&mut self.was_idle_probe);
        let slot = usize::from(first.to_le_bytes()[2]);
        let number = low(first >> 32);
        let shape = || self.shapes[slot].ok_or(RecordMistake::NoShape(slot));
        match (kind, values) {
            (Kind::Shape, [tag, length, mask @ ..]) => {
                let mask = mask.first().copied().unwrap_or(u64::MAX);
                self.shapes[slot] = Some(SlotContents::new(first, *tag, mask, *length)?);
            }
            (Kind::Posted | Kind::Found, _) => self.receive(kind, number, shape()?)?,
            (Kind::Matched | Kind::Unexpected, _) => {
                self.message(kind, number, shape()?, first & flag::NIC != 0)?;
            }
            (Kind::Probed | Kind::Held, _) => {
                let found = first & flag::FOUND != 0;
                if !found && number != 0 {
                    return Err(RecordMistake::Bits { kind: kind as u8, value: first });
                }
                self.was_idle_probe = !found;
                self.probe(kind, found.then_some(number), shape()?.pattern)?;
            }
            (Kind::Repeated, [times]) if was_idle_probe => {
                self.repeated_probes = self.repeated_probes.saturating_add(*times);
            }
            (Kind::Repeated, _) => return Err(RecordMistake::StrayRepeat),
            (Kind::SourceBits, [bits]) => {
                self.layout = layout(*bits).ok_or(RecordMistake::SourceBits(*bits))?;
            }
            (Kind::Stopped, [FULL]) => self.stop = Some(Stop::Full),
            (Kind::Stopped, [NO_SPACE]) => self.stop = Some(Stop::NoSpace),
            (Kind::Stopped, [other, ..]) => return Err(RecordMistake::Stop(*other)),
            (Kind::Taken | Kind::Withdrawn | Kind::CancelledLate, _) => {
                if kind == Kind::Taken && first & flag::NIC != 0 {
                    self.owed.push(number);
                }
                self.posted(kind, number, 0)?;
            }
            (Kind::Landed, [length]) => self.posted(kind, number, *length)?,
            (Kind::Discarded | Kind::Lost, _) => self.unexpected(kind, number, 0)?,
            (Kind::Received, [length]) => self.unexpected(kind, number, *length)?,
            // The layout gives all others the words that they need.
            (
                Kind::Block
                | Kind::Shape
                | Kind::Landed
                | Kind::Received
                | Kind::Stopped
                | Kind::SourceBits,
                _,
            ) => {
                return Err(RecordMistake::Block);
            }
        }
        Ok(count)
    }

    fn push(&mut self, op: TraceOp, partner: Option<Id>) {
        self.ops.push(op);
        self.recorded.push(partner);
    }

    fn define(&mut self, length: u64) -> Result<Id, RecordMistake> {
        self.ids.next(length).ok_or(RecordMistake::TooMany)
    }

    fn receive(
        &mut self,
        kind: Kind,
        number: u32,
        shape: SlotContents,
    ) -> Result<(), RecordMistake> {
        let SlotContents { pattern, length, is_sole } = shape;
        let partner = if kind == Kind::Found {
            Some(self.leave(number)?)
        } else if let Some(ReceiveOutcome::Posted(_) | ReceiveOutcome::Taken(..)) =
            self.receives.get(&number)
        {
            return Err(RecordMistake::Twice { what: "receive", number });
        } else {
            None
        };
        let id = self.define(length)?;
        if partner.is_none() {
            self.receives.insert(number, ReceiveOutcome::Posted(id));
        }
        self.push(TraceOp::Recv { id, pattern, is_sole }, partner);
        Ok(())
    }

    fn message(
        &mut self,
        kind: Kind,
        number: u32,
        shape: SlotContents,
        by_nic: bool,
    ) -> Result<(), RecordMistake> {
        let SlotContents { pattern, length, is_sole } = shape;
        let tag = pattern.tag();
        let mask = pattern.mask();
        let source = pattern.source().filter(|_| !is_sole && mask == TagMask::EXACT);
        let source = source.ok_or(RecordMistake::NoEnvelope)?;
        if kind == Kind::Unexpected {
            if self.messages.contains_key(&number) {
                return Err(RecordMistake::Twice { what: "unexpected message", number });
            }
            let id = self.define(length)?;
            self.messages.insert(number, MessageOutcome::Listed(id));
            self.push(TraceOp::Msg { id, tag, source }, None);
            return Ok(());
        }
        let found = self.receives.get(&number).copied();
        let (recv, place) = match found {
            Some(ReceiveOutcome::Posted(recv)) => (recv, None),
            Some(ReceiveOutcome::Taken(recv, place)) => (recv, Some(place)),
            _ => return Err(RecordMistake::Unknown { what: "posted receive", number }),
        };
        let id = self.define(length)?;
        self.receives.insert(number, ReceiveOutcome::Matched { recv, msg: id });
        let op = TraceOp::Msg { id, tag, source };
        self.owed.retain(|owed| *owed != number);
        match place {
            Some(place) => (self.ops[place], self.recorded[place]) = (op, Some(recv)),
            None => self.push(op, Some(recv)),
        }
        if by_nic {
            self.move_before_owed(place.unwrap_or(self.ops.len() - 1));
        }
        Ok(())
    }

    /// Moves a match of the NIC before those that the NIC made later and that are owed.
    fn move_before_owed(&mut self, from: usize) {
        let places = self.owed.iter().filter_map(|owed| match self.receives.get(owed) {
            Some(ReceiveOutcome::Taken(_, place)) => Some(*place),
            _ => None,
        });
        let Some(first) = places.min().filter(|first| *first < from) else { return };
        self.ops[first..=from].rotate_right(1);
        self.recorded[first..=from].rotate_right(1);
        for receive in self.receives.values_mut() {
            if let ReceiveOutcome::Taken(_, place) = receive
                && (first..from).contains(place)
            {
                *place += 1;
            }
        }
    }

    fn probe(
        &mut self,
        kind: Kind,
        found: Option<u32>,
        pattern: Pattern,
    ) -> Result<(), RecordMistake> {
        let msg = match (found, kind) {
            (None, _) => None,
            (Some(number), Kind::Held) => Some(self.leave(number)?),
            (Some(number), _) => match self.messages.get(&number) {
                Some(MessageOutcome::Listed(msg)) => Some(*msg),
                _ => return Err(RecordMistake::Unknown { what: "unexpected message", number }),
            },
        };
        if kind == Kind::Probed {
            self.push(TraceOp::Probe { pattern }, msg);
            return Ok(());
        }
        let id = self.define(0)?;
        if let Some(number) = found {
            self.messages.insert(number, MessageOutcome::Held { mprobe: id });
        }
        self.push(TraceOp::Mprobe { id, pattern }, msg);
        Ok(())
    }

    /// What happens to a posted receive.
    fn posted(&mut self, kind: Kind, number: u32, value: u64) -> Result<(), RecordMistake> {
        let receive = self.receives.get(&number).copied();
        let next = match (kind, receive) {
            (Kind::Withdrawn, Some(ReceiveOutcome::Posted(recv))) => {
                self.push(TraceOp::Cancel { recv }, Some(recv));
                ReceiveOutcome::Withdrawn
            }
            (Kind::Withdrawn, Some(ReceiveOutcome::Taken(..))) => {
                self.owed.retain(|owed| *owed != number);
                ReceiveOutcome::Withdrawn
            }
            (Kind::Taken, Some(receive @ ReceiveOutcome::Taken(..))) => receive,
            // Until its message is known, the receive counts as withdrawn.
            (Kind::Taken, Some(ReceiveOutcome::Posted(recv))) => {
                self.push(TraceOp::Cancel { recv }, Some(recv));
                ReceiveOutcome::Taken(recv, self.ops.len() - 1)
            }
            (Kind::Landed, Some(receive @ ReceiveOutcome::Matched { msg, .. })) => {
                self.ids.lens[msg.index()] = value;
                receive
            }
            (Kind::CancelledLate, Some(receive)) => {
                let recv = match receive {
                    ReceiveOutcome::Posted(recv) | ReceiveOutcome::Taken(recv, _) => recv,
                    ReceiveOutcome::Matched { recv, .. } => recv,
                    ReceiveOutcome::Withdrawn => {
                        return Err(RecordMistake::Unknown { what: "posted receive", number });
                    }
                };
                // A receive that is still posted here has a message that is told of later.
                if !matches!(receive, ReceiveOutcome::Posted(_)) {
                    self.push(TraceOp::Cancel { recv }, None);
                }
                receive
            }
            _ => return Err(RecordMistake::Unknown { what: "posted receive", number }),
        };
        self.receives.insert(number, next);
        Ok(())
    }

    /// What happens to an unexpected message.
    fn unexpected(&mut self, kind: Kind, number: u32, value: u64) -> Result<(), RecordMistake> {
        let (op, partner) = match (kind, self.messages.remove(&number)) {
            (Kind::Lost, Some(MessageOutcome::Listed(msg))) => (TraceOp::Lost { msg }, Some(msg)),
            (Kind::Received, Some(MessageOutcome::Held { mprobe })) => {
                (TraceOp::Mrecv { mprobe, len: value }, None)
            }
            (Kind::Discarded, Some(MessageOutcome::Held { mprobe })) => {
                (TraceOp::Mcancel { mprobe }, None)
            }
            (Kind::Lost, _) => {
                return Err(RecordMistake::Unknown { what: "unexpected message", number });
            }
            _ => return Err(RecordMistake::Unknown { what: "held message", number }),
        };
        self.push(op, partner);
        Ok(())
    }

    /// An unexpected message leaves the list.
    fn leave(&mut self, number: u32) -> Result<Id, RecordMistake> {
        match self.messages.remove(&number) {
            Some(MessageOutcome::Listed(msg)) => Ok(msg),
            _ => Err(RecordMistake::Unknown { what: "unexpected message", number }),
        }
    }
}
