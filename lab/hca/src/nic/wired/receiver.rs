//! The receiving side: requests that come in packets, and what the peer is told of them.

use super::super::adapter::Adapter;
use super::super::connection::{IncomingMessage, PeerReply, after, distance, is_before};
use super::super::packet::{Message, is_up_to};
use super::super::queue_pair::{Qp, Receives};
use super::super::respond::{ATOMICS_KEPT, Answer};
use super::super::send::{MESSAGE_MAX, TagNotice};
use crate::abi::{access, event};
use crate::cqe::Syndrome;
use crate::memory::Memory;
use crate::roce::aeth::{Aeth, AethVerdict, NO_CREDITS, NakCode, encoded_credits};
use crate::roce::packet::{Extra, PacketPart, Reth, RoceOperation, RocePacket};
use crate::wqe::{Atomic, RemoteAddress};

/// Packets of answers that one turn sends.
const BUDGET: usize = 64;
/// Packets whose data is read from the program's memory at once.
const READ_AT_ONCE: u32 = 16;

/// What becomes of a packet that has come in its turn.
enum PacketOutcome {
    /// It was taken; the peer is told so if it asks. `ends`: its message is complete.
    Taken {
        ends: bool,
    },
    /// It is answered by data, which takes up so many numbers.
    Answered(PeerReply, u32),
    NotReady,
    Refused(NakCode),
    Silence,
}

impl From<Answer> for PacketOutcome {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Acknowledge | Answer::Data(_) => PacketOutcome::Taken { ends: true },
            Answer::NotReady => PacketOutcome::NotReady,
            Answer::Refuse(Syndrome::RemoteAccess) => PacketOutcome::Refused(NakCode::RemoteAccess),
            Answer::Refuse(Syndrome::RemoteOperation) => {
                PacketOutcome::Refused(NakCode::RemoteOperation)
            }
            Answer::Refuse(_) => PacketOutcome::Refused(NakCode::InvalidRequest),
            Answer::Silence => PacketOutcome::Silence,
        }
    }
}

/// Numbers that the answer of a READ takes up.
fn span(length: u32, mtu: u16) -> u32 {
    length.div_ceil(mtu.into()).max(1)
}

impl Qp {
    /// Takes a request of the peer.
    pub(super) fn take_wire_request<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        packet: RocePacket,
    ) -> Vec<TagNotice> {
        let psn = packet.psn;
        if is_before(self.expected, psn) {
            if !std::mem::replace(&mut self.is_missing_said, true) {
                let verdict = AethVerdict::Refused(NakCode::Sequence);
                self.queue_reply(PeerReply::Verdict { psn: self.expected, verdict });
            }
        } else if psn != self.expected {
            self.repeat_on_wire(adapter, &packet);
        } else {
            return self.take_in_turn(adapter, packet);
        }
        self.pump_replies(adapter)
    }

    fn take_in_turn<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        packet: RocePacket,
    ) -> Vec<TagNotice> {
        let psn = packet.psn;
        let asks = packet.asks_acknowledge;
        // What follows a request that was not taken is no gap.
        self.is_missing_said = true;
        let outcome = self.outcome(adapter, packet);
        if adapter.is_gone {
            // The process has ended: the kernel destroys its queue pairs, which answer nothing.
            return Vec::new();
        }
        match outcome {
            PacketOutcome::Silence => {}
            PacketOutcome::Taken { ends } => {
                self.took(1, ends);
                if asks {
                    self.queue_reply(PeerReply::Verdict { psn, verdict: self.done(adapter) });
                }
            }
            PacketOutcome::Answered(reply, span) => {
                self.took(span, true);
                self.queue_reply(reply);
            }
            PacketOutcome::NotReady => {
                adapter.fabric.ports.count_out_of_buffer(self.facts.lid);
                let timer = self.attributes.0.min_rnr_timer;
                self.queue_reply(PeerReply::Verdict {
                    psn,
                    verdict: AethVerdict::NotReady { timer },
                });
            }
            PacketOutcome::Refused(code) => {
                self.queue_reply(PeerReply::Verdict { psn, verdict: AethVerdict::Refused(code) });
                let mut notices = self.pump_replies(adapter);
                notices.extend(self.enter_error(adapter));
                return notices;
            }
        }
        self.pump_replies(adapter)
    }

    /// The packet was taken, and the next one has a number that is so much larger.
    fn took(&mut self, span: u32, ends: bool) {
        self.is_missing_said = false;
        self.expected = after(self.expected, span);
        if let Some(wire) = &mut self.wire {
            wire.msn = after(wire.msn, ends.into());
        }
    }

    /// An acknowledgement. The peer need not count receives of a shared queue.
    fn done<M: Memory>(&self, adapter: &Adapter<M>) -> AethVerdict {
        let credits = match self.receives {
            Receives::Own(_) => encoded_credits(self.available(adapter)),
            Receives::Shared(_) => NO_CREDITS,
        };
        AethVerdict::Done { credits }
    }

    /// Has the peer be told, in the order of its requests. An acknowledgement stands for those
    /// before it.
    fn queue_reply(&mut self, reply: PeerReply) {
        let Some(wire) = &mut self.wire else { return };
        let is_done = |reply: &PeerReply| {
            matches!(reply, PeerReply::Verdict { verdict: AethVerdict::Done { .. }, .. })
        };
        let takes_place = wire.replies.back().is_some_and(|last| {
            let is_same = !last.is_data() && !reply.is_data() && last.psn() == reply.psn();
            is_same || is_done(last) && is_done(&reply)
        });
        if takes_place {
            wire.replies.pop_back();
        }
        wire.replies.push_back(reply);
    }

    fn outcome<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        packet: RocePacket,
    ) -> PacketOutcome {
        let mtu = self.attributes.mtu();
        match packet.operation {
            RoceOperation::Send { part, .. } if part.takes(packet.data.len(), mtu.into()) => {
                self.take_send(adapter, packet, part)
            }
            RoceOperation::Write { part, .. } if part.takes(packet.data.len(), mtu.into()) => {
                self.take_write(adapter, packet, part)
            }
            RoceOperation::ReadRequest(reth) if packet.data.is_empty() => {
                self.take_read(adapter, packet.psn, reth)
            }
            RoceOperation::Atomic { at, atomic } if packet.data.is_empty() => {
                self.take_atomic(adapter, packet.psn, at, atomic)
            }
            _ => self.invalid(adapter),
        }
    }

    fn invalid<M: Memory>(&self, adapter: &mut Adapter<M>) -> PacketOutcome {
        self.notice(adapter, event::QP_REQ_ERR);
        PacketOutcome::Refused(NakCode::InvalidRequest)
    }

    fn take_send<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        packet: RocePacket,
        part: PacketPart,
    ) -> PacketOutcome {
        let RoceOperation::Send { extra, .. } = packet.operation else {
            return PacketOutcome::Silence;
        };
        // This device lets no peer invalidate its keys.
        let is_valid = !matches!(extra, Extra::Invalidate(_));
        let incoming = self.wire.as_mut().and_then(|wire| wire.incoming.take());
        let (mut bytes, mut rooms) = match (incoming, part.is_first()) {
            (None, true) if is_valid => (Vec::new(), Vec::new()),
            (Some(IncomingMessage::Send { bytes, _rooms }), false) if is_valid => (bytes, _rooms),
            _ => return self.invalid(adapter),
        };
        let before = bytes.len();
        if (before + packet.data.len()) as u64 > MESSAGE_MAX {
            return self.invalid(adapter);
        }
        let is_without_buffer =
            part.is_first() && !self.has_tags(adapter) && self.available(adapter) == 0;
        let room = adapter.fabric.take_room(packet.data.len()).filter(|_| !is_without_buffer);
        let has_room = room.is_some();
        rooms.extend(room);
        let mut outcome = PacketOutcome::NotReady;
        if has_room {
            bytes.extend(&packet.data);
            outcome = PacketOutcome::Taken { ends: false };
        }
        if has_room && part.is_last() {
            let immediate = match extra {
                Extra::Immediate(word) => Some(word),
                _ => None,
            };
            let is_solicited = packet.is_solicited;
            let message = Message { bytes: bytes.as_slice().into(), immediate, is_solicited };
            outcome = self.take_message(adapter, &message).into();
        }
        let is_kept = match outcome {
            PacketOutcome::NotReady => !part.is_first(),
            PacketOutcome::Taken { ends } => !ends,
            _ => false,
        };
        if matches!(outcome, PacketOutcome::NotReady) {
            bytes.truncate(before);
        }
        if let Some(wire) = self.wire.as_mut().filter(|_| is_kept) {
            wire.incoming = Some(IncomingMessage::Send { bytes, _rooms: rooms });
        }
        outcome
    }

    fn take_write<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        packet: RocePacket,
        part: PacketPart,
    ) -> PacketOutcome {
        let RoceOperation::Write { reth, immediate, .. } = packet.operation else {
            return PacketOutcome::Silence;
        };
        let incoming = self.wire.as_mut().and_then(|wire| wire.incoming.take());
        let (reth, done) = match (incoming, reth) {
            (None, Some(reth)) => (reth, 0),
            (Some(IncomingMessage::Write { reth, done }), None) => (reth, done),
            _ => return self.invalid(adapter),
        };
        let length = packet.data.len() as u32;
        let left = reth.length.checked_sub(done).and_then(|left| left.checked_sub(length));
        let is_right = match left {
            Some(left) => part.is_last() == (left == 0),
            None => false,
        };
        if !is_right || !self.allows(access::REMOTE_WRITE) {
            return self.invalid(adapter);
        }
        if part == PacketPart::First {
            let pd = self.facts.pd;
            let whole = u64::from(reth.length);
            let found = adapter.regions.find(pd, reth.at, whole, access::REMOTE_WRITE);
            if found.is_none() {
                return self.refuse_access(adapter, Syndrome::RemoteAccess).into();
            }
        }
        let at = reth.at.at.wrapping_add(done.into());
        let at = RemoteAddress { at, rkey: reth.at.rkey };
        let is_solicited = packet.is_solicited;
        let message = Message { bytes: packet.data.into(), immediate, is_solicited };
        let ended = part.is_last().then_some(reth.length);
        let outcome = match self.write(adapter, at, &message, ended) {
            Answer::Acknowledge => PacketOutcome::Taken { ends: part.is_last() },
            other => other.into(),
        };
        let done = match outcome {
            PacketOutcome::Taken { ends: false } => Some(done + length),
            PacketOutcome::NotReady if !part.is_first() => Some(done),
            _ => None,
        };
        if let (Some(wire), Some(done)) = (&mut self.wire, done) {
            wire.incoming = Some(IncomingMessage::Write { reth, done });
        }
        outcome
    }

    /// Whether the peer may ask for more data: no message of it is half here, and it has no more
    /// READs and atomic operations under way than it may.
    fn may_answer(&self, wanted: u32) -> bool {
        let Some(wire) = &self.wire else { return false };
        let waiting = wire.replies.iter().filter(|reply| reply.is_data()).count();
        wire.incoming.is_none()
            && self.allows(wanted)
            && waiting < self.attributes.reads_taken().into()
    }

    fn take_read<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        psn: u32,
        reth: Reth,
    ) -> PacketOutcome {
        let length = reth.length;
        if u64::from(length) > MESSAGE_MAX || !self.may_answer(access::REMOTE_READ) {
            return self.invalid(adapter);
        }
        if !self.may_be_read(adapter, &reth) {
            return self.refuse_access(adapter, Syndrome::RemoteAccess).into();
        }
        let reply = PeerReply::Read { psn, from: reth.at, left: length, is_first: true };
        PacketOutcome::Answered(reply, span(length, self.attributes.mtu()))
    }

    fn may_be_read<M: Memory>(&self, adapter: &Adapter<M>, reth: &Reth) -> bool {
        let length = u64::from(reth.length);
        let wanted = access::REMOTE_READ;
        length == 0 || adapter.regions.find(self.facts.pd, reth.at, length, wanted).is_some()
    }

    fn take_atomic<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        psn: u32,
        at: RemoteAddress,
        atomic: Atomic,
    ) -> PacketOutcome {
        if !self.may_answer(access::REMOTE_ATOMIC) {
            return self.invalid(adapter);
        }
        match self.change_word(adapter, at, atomic) {
            Ok(old) => {
                if self.atomics.len() >= ATOMICS_KEPT {
                    self.atomics.pop_front();
                }
                self.atomics.push_back((psn, old));
                PacketOutcome::Answered(PeerReply::Atomic { psn, old }, 1)
            }
            Err(why) => self.refuse_access(adapter, why).into(),
        }
    }

    /// Answers a packet again that has come before: its answer may be lost (InfiniBand 9.7.5.1.2).
    fn repeat_on_wire<M: Memory>(&mut self, adapter: &Adapter<M>, packet: &RocePacket) {
        let psn = packet.psn;
        let reply = match packet.operation {
            RoceOperation::ReadRequest(reth) => {
                let end = after(psn, span(reth.length, self.attributes.mtu()));
                let is_old = u64::from(reth.length) <= MESSAGE_MAX
                    && is_up_to(end, self.expected)
                    && self.allows(access::REMOTE_READ)
                    && self.may_be_read(adapter, &reth);
                let read =
                    PeerReply::Read { psn, from: reth.at, left: reth.length, is_first: true };
                is_old.then_some(read)
            }
            RoceOperation::Atomic { .. } => {
                let kept = self.atomics.iter().find(|(of, _)| *of == psn);
                kept.map(|(_, old)| PeerReply::Atomic { psn, old: *old })
            }
            _ => {
                if packet.asks_acknowledge {
                    let credits = NO_CREDITS;
                    let psn = after(self.expected, 0xff_ffff);
                    self.queue_reply(PeerReply::Verdict {
                        psn,
                        verdict: AethVerdict::Done { credits },
                    });
                }
                None
            }
        };
        let limit = self.attributes.reads_taken().into();
        let (Some(reply), Some(wire)) = (reply, &mut self.wire) else { return };
        // It takes the place of the answer that is being given, and comes before those of later
        // requests.
        wire.replies.retain(|other| !other.is_data() || other.psn() != psn);
        let base = self.expected;
        let behind = |psn: u32| distance(psn, base);
        let at = wire.replies.partition_point(|other| behind(other.psn()) > behind(psn));
        if wire.replies.iter().filter(|reply| reply.is_data()).count() < limit {
            wire.replies.insert(at, reply);
        }
    }

    /// Tells the peer what it is to be told, some packets at a time.
    pub(in super::super) fn pump_replies<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
    ) -> Vec<TagNotice> {
        let mut sent = 0;
        while sent < BUDGET {
            let Some(wire) = &mut self.wire else { break };
            let msn = wire.msn;
            let aeth = |verdict| Aeth { verdict, msn };
            let is_done = aeth(AethVerdict::Done { credits: NO_CREDITS });
            let Some(reply) = wire.replies.pop_front() else { break };
            sent += 1;
            match reply {
                PeerReply::Verdict { psn, verdict } => {
                    let operation = RoceOperation::Acknowledge(aeth(verdict));
                    self.put_on_wire(adapter, &self.wire_packet(adapter, psn, operation, vec![]));
                }
                PeerReply::Atomic { psn, old } => {
                    let operation = RoceOperation::AtomicAcknowledge { aeth: is_done, old };
                    self.put_on_wire(adapter, &self.wire_packet(adapter, psn, operation, vec![]));
                }
                PeerReply::Read { psn, .. } => match self.answer_read(adapter, reply, is_done) {
                    Ok(packets) => sent += packets,
                    Err(()) => {
                        // The memory has gone meanwhile.
                        let verdict = aeth(AethVerdict::Refused(NakCode::RemoteAccess));
                        let operation = RoceOperation::Acknowledge(verdict);
                        let packet = self.wire_packet(adapter, psn, operation, vec![]);
                        self.put_on_wire(adapter, &packet);
                        self.notice(adapter, event::QP_ACCESS_ERR);
                        return self.enter_error(adapter);
                    }
                },
            }
        }
        Vec::new()
    }

    /// Whether there is more to tell the peer.
    pub(in super::super) fn has_replies(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| !wire.replies.is_empty())
    }

    /// Sends some packets of the answer of a READ; how many.
    fn answer_read<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        reply: PeerReply,
        aeth: Aeth,
    ) -> Result<usize, ()> {
        let PeerReply::Read { mut psn, from, left, mut is_first } = reply else { return Ok(0) };
        let mtu = self.attributes.mtu();
        let now = left.min(READ_AT_ONCE * u32::from(mtu));
        let bytes = self.read(adapter, from, now).map_err(drop)?;
        let mut packets = 0;
        let mut rest = &bytes[..];
        while !rest.is_empty() || packets == 0 {
            let (data, later) = rest.split_at(rest.len().min(mtu.into()));
            rest = later;
            let is_last = rest.is_empty() && now == left;
            let part = PacketPart::new(is_first, is_last);
            let aeth = (part != PacketPart::Middle).then_some(aeth);
            let operation = RoceOperation::ReadResponse { part, aeth };
            self.put_on_wire(adapter, &self.wire_packet(adapter, psn, operation, data.to_vec()));
            psn = after(psn, 1);
            is_first = false;
            packets += 1;
        }
        if now < left {
            let at = from.at.wrapping_add(now.into());
            let from = RemoteAddress { at, rkey: from.rkey };
            if let Some(wire) = &mut self.wire {
                wire.replies.push_front(PeerReply::Read { psn, from, left: left - now, is_first });
            }
        }
        Ok(packets)
    }
}
