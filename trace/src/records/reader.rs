//! Reads `tagtrace 2`. As with text, everything that can be wrong is found here.

use std::collections::HashMap;
use std::io::BufRead;

use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use super::blocks::Blocks;
use super::{FULL, Kind, NO_SPACE, Words, flag};
use crate::error::{RecordMistake, TraceError};
use crate::format::{Id, TraceOp};
use crate::ids::Ids;
use crate::trace::{Stop, Trace};

/// Reads the rest of a trace whose first line was [`HEADER`](super::HEADER).
pub(crate) fn read(input: impl BufRead) -> Result<Trace, TraceError> {
    let (mut blocks, about) = Blocks::new(input)?;
    let mut history = History::default();
    while let Some(block) = blocks.next()? {
        for (at, words) in block.records()? {
            let wrong = |mistake| TraceError::Record { byte: block.place(at), mistake };
            if history.stop.is_some() {
                return Err(wrong(RecordMistake::AfterEnd));
            }
            history.take(&words).map_err(wrong)?;
        }
    }
    let History { ops, recorded, ids, stop, .. } = history;
    let names = (1..=ids.lens.len() as u64).collect();
    Ok(Trace { ops, names, lens: ids.lens, recorded: Some(recorded), about, stop })
}

#[expect(clippy::cast_possible_truncation, reason = "the other half stands for something else")]
fn low(word: u64) -> u32 {
    word as u32
}

/// What became of the posted receive that had a number last.
#[derive(Clone, Copy)]
enum Receive {
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
enum Message {
    Listed(Id),
    Held { mprobe: Id },
}

#[derive(Default)]
struct History {
    ops: Vec<TraceOp>,
    recorded: Vec<Option<Id>>,
    ids: Ids,
    receives: HashMap<u32, Receive>,
    messages: HashMap<u32, Message>,
    mask: u64,
    /// Of the next record.
    length: Option<u64>,
    stop: Option<Stop>,
}

/// The bits of word 0 that a record of a kind may have: its flags, and its number.
fn bits(kind: Kind) -> u64 {
    const NUMBER: u64 = 0xffff_ffff << 32;
    let pattern = flag::SOURCE | flag::SOLE | flag::EXACT;
    0xff | match kind {
        Kind::Posted | Kind::Found => NUMBER | pattern | flag::LONG,
        Kind::Matched | Kind::Unexpected => NUMBER | flag::LONG,
        Kind::Taken
        | Kind::Landed
        | Kind::Withdrawn
        | Kind::CancelledLate
        | Kind::Received
        | Kind::Discarded
        | Kind::Lost => NUMBER,
        Kind::Probed | Kind::Held => NUMBER | flag::SOURCE | flag::EXACT | flag::FOUND,
        Kind::Mask | Kind::Length | Kind::Block | Kind::Stopped => 0,
    }
}

impl History {
    /// Takes in a record.
    fn take(&mut self, words: &Words) -> Result<(), RecordMistake> {
        let [first, second, third] = *words;
        let kind = Kind::of(first).ok_or(RecordMistake::Kind(first.to_le_bytes()[0]))?;
        if first & !bits(kind) != 0 {
            return Err(RecordMistake::Bits { word: 0, value: first });
        }
        let (has_tag, has_third) = match kind {
            Kind::Posted | Kind::Found | Kind::Matched | Kind::Unexpected => (true, true),
            Kind::Probed | Kind::Held => (true, true),
            Kind::Landed | Kind::Received | Kind::Mask | Kind::Length | Kind::Stopped => {
                (true, false)
            }
            Kind::Taken
            | Kind::Withdrawn
            | Kind::CancelledLate
            | Kind::Discarded
            | Kind::Lost
            | Kind::Block => (false, false),
        };
        for (word, value, is_used) in [(1, second, has_tag), (2, third, has_third)] {
            if !is_used && value != 0 {
                return Err(RecordMistake::Bits { word, value });
            }
        }
        let number = low(first >> 32);
        match kind {
            Kind::Mask => self.mask = second,
            Kind::Length => {
                self.length = Some(second);
                return Ok(());
            }
            Kind::Block => return Err(RecordMistake::Block),
            Kind::Stopped => {
                self.stop = Some(match second {
                    FULL => Stop::Full,
                    NO_SPACE => Stop::NoSpace,
                    other => return Err(RecordMistake::Stop(other)),
                });
                return Ok(());
            }
            Kind::Posted | Kind::Found => self.receive(kind, number, words)?,
            Kind::Matched | Kind::Unexpected => self.message(kind, number, words)?,
            Kind::Probed | Kind::Held => self.probe(kind, number, words)?,
            Kind::Taken | Kind::Withdrawn | Kind::CancelledLate | Kind::Landed => {
                self.posted(kind, number, second)?;
            }
            Kind::Received | Kind::Discarded | Kind::Lost => {
                self.unexpected(kind, number, second)?;
            }
        }
        match self.length.take() {
            Some(_) if first & flag::LONG == 0 => Err(RecordMistake::StrayLength),
            _ => Ok(()),
        }
    }

    fn length(&mut self, [first, _, third]: Words) -> Result<u64, RecordMistake> {
        match (first & flag::LONG != 0, self.length) {
            (false, _) => Ok(third >> 32),
            (true, Some(length)) if third >> 32 == 0 => Ok(length),
            (true, _) => Err(RecordMistake::NoLength),
        }
    }

    fn pattern(&self, [first, second, third]: Words) -> Result<Pattern, RecordMistake> {
        let mask = if first & flag::EXACT != 0 { u64::MAX } else { self.mask };
        let pattern = Pattern::new(Tag(second), TagMask(mask));
        let source = low(third);
        match first & flag::SOURCE != 0 {
            true => Ok(pattern.from_source(SourceId(source))),
            false if source == 0 && first & flag::SOLE == 0 => Ok(pattern),
            false => Err(RecordMistake::NoSource),
        }
    }

    fn push(&mut self, op: TraceOp, partner: Option<Id>) {
        self.ops.push(op);
        self.recorded.push(partner);
    }

    fn define(&mut self, length: u64) -> Result<Id, RecordMistake> {
        self.ids.next(length).ok_or(RecordMistake::TooMany)
    }

    fn receive(&mut self, kind: Kind, number: u32, words: &Words) -> Result<(), RecordMistake> {
        let (pattern, length) = (self.pattern(*words)?, self.length(*words)?);
        let is_sole = words[0] & flag::SOLE != 0;
        let partner = if kind == Kind::Found {
            Some(self.leave(number)?)
        } else if let Some(Receive::Posted(_) | Receive::Taken(..)) = self.receives.get(&number) {
            return Err(RecordMistake::Twice { what: "receive", number });
        } else {
            None
        };
        let id = self.define(length)?;
        if partner.is_none() {
            self.receives.insert(number, Receive::Posted(id));
        }
        self.push(TraceOp::Recv { id, pattern, is_sole }, partner);
        Ok(())
    }

    fn message(&mut self, kind: Kind, number: u32, words: &Words) -> Result<(), RecordMistake> {
        let (tag, source) = (Tag(words[1]), SourceId(low(words[2])));
        let length = self.length(*words)?;
        if kind == Kind::Unexpected {
            if self.messages.contains_key(&number) {
                return Err(RecordMistake::Twice { what: "unexpected message", number });
            }
            let id = self.define(length)?;
            self.messages.insert(number, Message::Listed(id));
            self.push(TraceOp::Msg { id, tag, source }, None);
            return Ok(());
        }
        let found = self.receives.get(&number).copied();
        let (recv, place) = match found {
            Some(Receive::Posted(recv)) => (recv, None),
            Some(Receive::Taken(recv, place)) => (recv, Some(place)),
            _ => return Err(RecordMistake::Unknown { what: "posted receive", number }),
        };
        let id = self.define(length)?;
        self.receives.insert(number, Receive::Matched { recv, msg: id });
        let op = TraceOp::Msg { id, tag, source };
        match place {
            Some(place) => (self.ops[place], self.recorded[place]) = (op, Some(recv)),
            None => self.push(op, Some(recv)),
        }
        Ok(())
    }

    fn probe(&mut self, kind: Kind, number: u32, words: &Words) -> Result<(), RecordMistake> {
        let pattern = self.pattern(*words)?;
        let found = words[0] & flag::FOUND != 0;
        if words[2] >> 32 != 0 || (!found && number != 0) {
            return Err(RecordMistake::Bits { word: 2, value: words[2] });
        }
        let msg = match (found, kind) {
            (false, _) => None,
            (true, Kind::Held) => Some(self.leave(number)?),
            (true, _) => match self.messages.get(&number) {
                Some(Message::Listed(msg)) => Some(*msg),
                _ => return Err(RecordMistake::Unknown { what: "unexpected message", number }),
            },
        };
        if kind == Kind::Probed {
            self.push(TraceOp::Probe { pattern }, msg);
            return Ok(());
        }
        let id = self.define(0)?;
        if found {
            self.messages.insert(number, Message::Held { mprobe: id });
        }
        self.push(TraceOp::Mprobe { id, pattern }, msg);
        Ok(())
    }

    /// What happens to a posted receive.
    fn posted(&mut self, kind: Kind, number: u32, value: u64) -> Result<(), RecordMistake> {
        let receive = self.receives.get(&number).copied();
        let next = match (kind, receive) {
            (Kind::Withdrawn, Some(Receive::Posted(recv))) => {
                self.push(TraceOp::Cancel { recv }, Some(recv));
                Receive::Withdrawn
            }
            (Kind::Withdrawn, Some(Receive::Taken(..))) => Receive::Withdrawn,
            (Kind::Taken, Some(receive @ Receive::Taken(..))) => receive,
            // Until its message is known, the receive counts as withdrawn.
            (Kind::Taken, Some(Receive::Posted(recv))) => {
                self.push(TraceOp::Cancel { recv }, Some(recv));
                Receive::Taken(recv, self.ops.len() - 1)
            }
            (Kind::Landed, Some(receive @ Receive::Matched { msg, .. })) => {
                self.ids.lens[msg.index()] = value;
                receive
            }
            (Kind::CancelledLate, Some(receive)) => {
                let recv = match receive {
                    Receive::Posted(recv) | Receive::Taken(recv, _) => recv,
                    Receive::Matched { recv, .. } => recv,
                    Receive::Withdrawn => {
                        return Err(RecordMistake::Unknown { what: "posted receive", number });
                    }
                };
                // A receive that is still posted here has a message that is told of later.
                if !matches!(receive, Receive::Posted(_)) {
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
            (Kind::Lost, Some(Message::Listed(msg))) => (TraceOp::Lost { msg }, Some(msg)),
            (Kind::Received, Some(Message::Held { mprobe })) => {
                (TraceOp::Mrecv { mprobe, len: value }, None)
            }
            (Kind::Discarded, Some(Message::Held { mprobe })) => {
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
            Some(Message::Listed(msg)) => Ok(msg),
            _ => Err(RecordMistake::Unknown { what: "unexpected message", number }),
        }
    }
}
