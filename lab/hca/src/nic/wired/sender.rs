//! The sending side: requests in packets, and the peer's answers to them.

use std::time::Instant;

use super::super::adapter::{Adapter, ScatterError};
use super::super::connection::{SenderNumbers, after, distance, is_before};
use super::super::packet::{Message, Request};
use super::super::queue_pair::{Outstanding, Qp, not_ready_time};
use super::super::send::TagNotice;
use crate::cqe::Syndrome;
use crate::memory::Memory;
use crate::roce::aeth::{Aeth, AethVerdict, NakCode};
use crate::roce::packet::{Extra, PacketPart, Reth, RoceOperation, RocePacket};
use crate::wqe::RemoteAddress;

/// A packet that asks for an acknowledgement comes at least once in so many.
const ACKNOWLEDGED_EACH: u32 = 8;

/// The bytes of a message that its packet with this index carries.
fn chunk(message: &Message, index: u32, mtu: u16) -> Vec<u8> {
    let mtu = usize::from(mtu);
    let from = (index as usize * mtu).min(message.bytes.len());
    let to = (from + mtu).min(message.bytes.len());
    message.bytes[from..to].to_vec()
}

impl Qp {
    /// The longest part of a READ: its answer may not overrun the own socket's buffer.
    pub(in super::super) fn wire_read_part(&self) -> Option<u32> {
        let bytes = self.window() / 2 * u32::from(self.attributes.mtu());
        self.wire.as_ref().map(|_| bytes)
    }

    /// Packet sequence numbers that a request takes up.
    pub(in super::super) fn span(&self, request: &Request) -> u32 {
        if self.wire.is_some() { request.packets(self.attributes.mtu()) } else { 1 }
    }

    /// The packet with a number, and how many numbers it stands for.
    fn packet_at<M>(
        &self,
        adapter: &Adapter<M>,
        sent: &Outstanding,
        index: u32,
    ) -> (RocePacket, u32) {
        let mtu = self.attributes.mtu();
        let is_last = index + 1 == sent.span;
        let (operation, data, is_solicited) = match &sent.request {
            Request::Send(message) => {
                let part = PacketPart::new(index == 0, is_last);
                let immediate = message.immediate.filter(|_| is_last);
                let extra = immediate.map_or(Extra::Nothing, Extra::Immediate);
                let operation = RoceOperation::Send { part, extra };
                (operation, chunk(message, index, mtu), message.is_solicited)
            }
            Request::Write { to, message, length, is_first, is_last: ends } => {
                let part = PacketPart::new(*is_first && index == 0, is_last && *ends);
                let reth = part.is_first().then_some(Reth { at: *to, length: *length });
                let immediate = message.immediate.filter(|_| part.is_last());
                let operation = RoceOperation::Write { part, reth, immediate };
                (operation, chunk(message, index, mtu), message.is_solicited)
            }
            Request::Read { from, length } => {
                // What has come is not asked for again.
                let before = index * u32::from(mtu);
                let at = from.at.wrapping_add(before.into());
                let at = RemoteAddress { at, rkey: from.rkey };
                let reth = Reth { at, length: length - before };
                (RoceOperation::ReadRequest(reth), Vec::new(), false)
            }
            Request::Atomic { at, operation } => {
                (RoceOperation::Atomic { at: *at, atomic: *operation }, Vec::new(), false)
            }
        };
        let is_answered = sent.request.is_answered();
        let mut packet = self.wire_packet(adapter, after(sent.psn, index), operation, data);
        packet.is_solicited = is_solicited && is_last;
        packet.asks_acknowledge =
            is_last || is_answered || index % ACKNOWLEDGED_EACH == ACKNOWLEDGED_EACH - 1;
        (packet, if is_answered { sent.span - index } else { 1 })
    }

    /// Sends as much as the window has room for.
    pub(in super::super) fn pump<M: Memory>(&mut self, adapter: &Adapter<M>) {
        let window = self.window();
        let Some(wire) = &self.wire else { return };
        if self.resend_at.is_some() {
            return;
        }
        let mut numbers = wire.sender;
        while numbers.cursor != self.psn {
            let cursor = numbers.cursor;
            let under_way = distance(numbers.base, cursor);
            let mut all = self.outstanding.iter();
            let Some(sent) = all.find(|sent| distance(sent.psn, cursor) < sent.span) else { break };
            let (mut packet, covers) = self.packet_at(adapter, sent, distance(sent.psn, cursor));
            if under_way > 0 && under_way + covers > window {
                break;
            }
            packet.asks_acknowledge |= under_way + covers == window;
            self.put_on_wire(adapter, &packet);
            numbers.cursor = after(cursor, covers);
            if is_before(numbers.end, numbers.cursor) {
                numbers.end = numbers.cursor;
            }
        }
        self.set_numbers(numbers);
    }

    fn numbers(&self) -> SenderNumbers {
        self.wire.as_ref().map_or_else(SenderNumbers::default, |wire| wire.sender)
    }

    fn set_numbers(&mut self, numbers: SenderNumbers) {
        if let Some(wire) = &mut self.wire {
            wire.sender = numbers;
        }
    }

    /// Sends again all that was not acknowledged. `false`: the peer is inside this command.
    pub(in super::super) fn resend_on_wire<M: Memory>(&mut self, adapter: &Adapter<M>) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        wire.sender.cursor = wire.sender.base;
        wire.sender.asked_again = None;
        self.wait_for_answer();
        self.pump(adapter);
        true
    }

    /// Takes all packets before `end` for carried out, but not READs and atomic operations without
    /// an answer. Whether one of these is before `end`: its answer was lost.
    fn settle(&mut self, end: u32) -> bool {
        let mut numbers = self.numbers();
        let mut base = numbers.base;
        let mut is_answer_lost = false;
        for sent in self.outstanding.iter_mut().filter(|sent| !sent.is_done) {
            if !is_before(sent.psn, end) {
                break;
            }
            if sent.request.is_answered() {
                is_answer_lost = true;
                base = after(sent.psn, sent.received);
                break;
            }
            let covered = distance(sent.psn, end).min(sent.span);
            base = after(sent.psn, covered);
            sent.is_done = covered == sent.span;
            if !sent.is_done {
                break;
            }
        }
        let is_news = numbers.advance(base);
        self.set_numbers(numbers);
        if is_news {
            self.progressed();
        }
        is_answer_lost
    }

    /// Sends again from the first packet that was not acknowledged: one of the retries (InfiniBand
    /// 9.9.2.4.1).
    fn go_back<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> Vec<TagNotice> {
        let mut notices = self.end_done(adapter);
        if self.resend_at.is_some() || self.outstanding.is_empty() {
            return notices;
        }
        if self.retries == 0 {
            notices.extend(self.fail_front(adapter, Syndrome::RetriesExceeded));
            return notices;
        }
        self.retries -= 1;
        let mut numbers = self.numbers();
        numbers.cursor = numbers.base;
        self.set_numbers(numbers);
        self.wait_for_answer();
        self.pump(adapter);
        notices
    }

    /// A later answer has come, so that this one was lost: it is asked for again, once.
    fn ask_again<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> Vec<TagNotice> {
        let mut numbers = self.numbers();
        if numbers.asked_again == Some(numbers.base) {
            return self.end_done(adapter);
        }
        numbers.asked_again = Some(numbers.base);
        self.set_numbers(numbers);
        self.go_back(adapter)
    }

    /// Takes an answer of the peer.
    pub(super) fn hear_wire_answer<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        packet: RocePacket,
    ) -> Vec<TagNotice> {
        if !self.numbers().is_under_way(packet.psn) {
            return Vec::new();
        }
        match packet.operation {
            RoceOperation::Acknowledge(aeth) => self.hear_acknowledge(adapter, packet.psn, aeth),
            RoceOperation::ReadResponse { part, .. } => {
                self.hear_response(adapter, packet.psn, Some(part), &packet.data)
            }
            RoceOperation::AtomicAcknowledge { old, .. } => {
                self.hear_response(adapter, packet.psn, None, &old.to_ne_bytes())
            }
            _ => Vec::new(),
        }
    }

    fn hear_acknowledge<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        psn: u32,
        aeth: Aeth,
    ) -> Vec<TagNotice> {
        let code = match aeth.verdict {
            AethVerdict::Done { .. } => {
                if self.settle(after(psn, 1)) {
                    return self.ask_again(adapter);
                }
                let notices = self.end_done(adapter);
                self.pump(adapter);
                return notices;
            }
            AethVerdict::NotReady { timer } => return self.hear_not_ready(adapter, psn, timer),
            AethVerdict::Refused(code) => code,
        };
        let is_answer_lost = self.settle(psn);
        let why = match code {
            NakCode::Sequence => return self.go_back(adapter),
            NakCode::InvalidRequest => Syndrome::RemoteInvalidRequest,
            NakCode::RemoteAccess => Syndrome::RemoteAccess,
            NakCode::RemoteOperation => Syndrome::RemoteOperation,
        };
        let mut notices = self.end_done(adapter);
        // The answer of an earlier READ was lost, and the peer's queue pair has failed since.
        let why = if is_answer_lost { Syndrome::RetriesExceeded } else { why };
        notices.extend(self.fail_front(adapter, why));
        notices
    }

    fn hear_not_ready<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        psn: u32,
        timer: u8,
    ) -> Vec<TagNotice> {
        if self.settle(psn) {
            return self.ask_again(adapter);
        }
        let mut notices = self.end_done(adapter);
        if self.resend_at.is_some() {
            return notices;
        }
        if self.rnr_retries == 0 {
            notices.extend(self.fail_front(adapter, Syndrome::RnrRetriesExceeded));
            return notices;
        }
        // 7 is for ever.
        self.rnr_retries -= u8::from(self.rnr_retries < 7);
        self.resend_at = Some(Instant::now() + not_ready_time(timer));
        self.deadline = None;
        notices
    }

    /// Takes a packet of the answer of a READ, or the answer of an atomic operation, which has no
    /// part.
    fn hear_response<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        psn: u32,
        part: Option<PacketPart>,
        data: &[u8],
    ) -> Vec<TagNotice> {
        let mtu = u32::from(self.attributes.mtu());
        let pd = self.facts.pd;
        let mut all = self.outstanding.iter();
        let waiting = all.position(|sent| !sent.is_done && sent.request.is_answered());
        let Some((at, sent)) = waiting.map(|at| (at, &self.outstanding[at])) else {
            return Vec::new();
        };
        let next = after(sent.psn, sent.received);
        if psn != next {
            let is_lost = is_before(next, psn);
            self.settle(next);
            return if is_lost { self.ask_again(adapter) } else { self.end_done(adapter) };
        }
        let before = sent.received * mtu;
        let is_last = sent.received + 1 == sent.span;
        let expected = match sent.request {
            Request::Read { length, .. } => part.map(|_| (length - before).min(mtu)),
            _ => part.is_none().then_some(8),
        };
        let is_right = expected.is_some_and(|expected| expected as usize == data.len())
            && part.is_none_or(|part| part.is_last() == is_last);
        let offset = sent.into.offset + u64::from(before);
        let why = if is_right {
            match adapter.scatter(pd, &sent.into.segments, offset, data) {
                Ok(()) => None,
                Err(ScatterError::TooShort) => Some(Syndrome::LocalLength),
                Err(ScatterError::Denied) => Some(Syndrome::LocalProtection),
            }
        } else {
            Some(Syndrome::BadResponse)
        };
        // All requests before this one were carried out.
        self.settle(next);
        if let Some(why) = why {
            let mut notices = self.end_done(adapter);
            notices.extend(self.fail_front(adapter, why));
            return notices;
        }
        let sent = &mut self.outstanding[at];
        sent.received += 1;
        sent.is_done = is_last;
        let mut numbers = self.numbers();
        numbers.advance(after(next, 1));
        self.set_numbers(numbers);
        self.progressed();
        let notices = self.end_done(adapter);
        self.pump(adapter);
        notices
    }
}
