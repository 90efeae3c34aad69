//! The sending side of a queue pair: it reads requests, sends them, and ends them in order.

use std::time::Instant;

use tagmatch_model::Handle;

use super::adapter::{Adapter, AsyncNotice, ScatterError};
use super::loss::DeviceOperation;
use super::packet::{Body, Message, NOWHERE, Packet, Request};
use super::queue_pair::{
    AnswerRoom, Ends, Outstanding, Parts, Qp, Receives, State, TagRequest, Transport,
};
use crate::abi::event;
use crate::cqe::Syndrome;
use crate::gid::Route;
use crate::memory::Memory;
use crate::wqe::{
    self, AddressVector, BLOCK, BLOCKS_MAX, Kind, Piece, RemoteAddress, Segment, Wqe,
};

/// Bytes of a part of a READ or a WRITE.
const PART: u32 = 256 << 10;
/// Requests of a queue pair that may be under way.
const OUTSTANDING_MAX: usize = 64;
/// Bytes of them, unless there is one request only.
const OUTSTANDING_BYTES: usize = 4 << 20;
/// Requests that one turn begins on a queue pair.
const BUDGET: usize = 32;
/// The longest message: `max_msg_sz` of the port.
pub(crate) const MESSAGE_MAX: u64 = 1 << 30;

/// What a queue pair has to say to the list of tags of its shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagNotice {
    ReadDone(Handle, bool),
    FinDone(Handle, bool),
}

/// What sending has brought about.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) was_busy: bool,
    pub(crate) notices: Vec<TagNotice>,
}

/// The data of a request: segments, or bytes of the request itself, and their length.
struct RequestData {
    segments: Vec<Segment>,
    inline: Option<Vec<u8>>,
    length: u64,
}

impl Qp {
    /// Whether one more request of so many bytes may be under way.
    fn has_room(&self, bytes: usize) -> bool {
        let under_way: usize = self.outstanding.iter().map(|sent| sent.request.carries()).sum();
        let fits = self.outstanding.is_empty() || under_way + bytes <= OUTSTANDING_BYTES;
        self.outstanding.len() < OUTSTANDING_MAX && fits
    }

    /// Whether one more READ or atomic operation may be under way.
    fn may_read(&self) -> bool {
        let reads = self.outstanding.iter().filter(|sent| sent.request.is_answered()).count();
        reads < usize::from(self.attributes.0.max_rd_atomic.max(1))
    }

    /// READs and atomic operations that have no answer.
    fn reads_under_way(&self) -> u8 {
        let waiting = self.outstanding.iter().filter(|sent| !sent.is_done);
        let count = waiting.filter(|sent| sent.request.is_answered()).count();
        count.min(OUTSTANDING_MAX) as u8
    }

    /// A packet to the peer of a reliable connection.
    pub(super) fn packet<M>(&self, adapter: &Adapter<M>, body: Body) -> Packet {
        let attributes = &self.attributes.0;
        Packet {
            to: attributes.dest_qp_num & 0xff_ffff,
            from: self.facts.number,
            to_lid: self.to_lid,
            from_lid: self.facts.lid,
            pkey: self.pkey(adapter),
            mtu: self.attributes.mtu(),
            body,
        }
    }

    /// The port that a datagram goes to, and what it says of its route.
    fn route<M>(&self, adapter: &Adapter<M>, to: &AddressVector) -> (u16, Option<Route>) {
        let settings = &adapter.settings;
        let ports = &adapter.fabric.ports;
        let row =
            ports.gids(settings, self.facts.lid).get(usize::from(to.sgid_index)).copied().flatten();
        let route = row.map(|from| Route { from, to: to.gid });
        if settings.knobs.is_ethernet() {
            return (ports.named(settings, &to.gid).unwrap_or(NOWHERE), route);
        }
        (to.lid, route.filter(|_| to.has_grh))
    }

    /// The partition key of its packets.
    pub(super) fn pkey<M>(&self, adapter: &Adapter<M>) -> u16 {
        let row = self.attributes.0.pkey_index;
        adapter.fabric.ports.pkey(&adapter.settings, self.facts.lid, row)
    }

    /// Sends a request, which is under way from now on. `false`: there is no room in the device.
    fn issue<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        request: Request,
        ends: Ends,
        into: AnswerRoom,
    ) -> bool {
        let Some(under_way) = adapter.fabric.take_room(request.carries()) else { return false };
        let psn = self.psn;
        let span = self.span(&request);
        self.psn = psn.wrapping_add(span) & 0xff_ffff;
        let reads = if request.is_answered() { self.reads_under_way() + 1 } else { 0 };
        // While the peer is not ready, it would only refuse this one, too.
        if self.resend_at.is_none() && self.wire.is_none() {
            let body = Body::Request { psn, reads, request: request.clone() };
            adapter.fabric.send(self.packet(adapter, body));
        }
        if self.outstanding.is_empty() {
            self.wait_for_answer();
        }
        self.outstanding.push_back(Outstanding {
            psn,
            span,
            received: 0,
            request,
            ends,
            into,
            reads,
            is_done: false,
            _under_way: under_way,
        });
        self.pump(adapter);
        true
    }

    pub(super) fn wait_for_answer(&mut self) {
        self.deadline = self.attributes.answer_time().map(|time| Instant::now() + time);
    }

    /// Begins as many requests as may be under way.
    pub(crate) fn advance<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> Sent {
        let mut sent = Sent::default();
        if self.state == State::Error {
            sent.was_busy |= self.flush(adapter);
            return sent;
        }
        self.look_at_clock(adapter, &mut sent);
        sent.notices.extend(self.pump_replies(adapter));
        sent.was_busy |= self.has_replies();
        if !matches!(self.state, State::ReadyToSend | State::Drained) {
            return sent;
        }
        for _ in 0..BUDGET {
            let is_begun = self.advance_tags(adapter)
                || self.state == State::ReadyToSend
                    && (self.advance_parts(adapter, &mut sent)
                        || self.parts.is_none() && self.begin(adapter, &mut sent));
            if !is_begun || self.state == State::Error {
                break;
            }
            sent.was_busy = true;
        }
        let is_drained = self.state == State::Drained && self.outstanding.is_empty();
        if is_drained && std::mem::take(&mut self.tells_drained) {
            self.notice(adapter, event::SQ_DRAINED);
        }
        sent
    }

    pub(crate) fn notice<M: Memory>(&self, adapter: &mut Adapter<M>, event_type: u32) {
        let context = self.facts.context;
        let element = self.facts.user_handle;
        adapter.notices.push(AsyncNotice { context, element, event_type });
    }

    /// Sends again what was not answered in time, or refused for lack of a buffer.
    fn look_at_clock<M: Memory>(&mut self, adapter: &mut Adapter<M>, sent: &mut Sent) {
        if self.outstanding.is_empty() {
            (self.deadline, self.resend_at) = (None, None);
            return;
        }
        if self.deadline.is_none() && self.resend_at.is_none() {
            return;
        }
        let now = Instant::now();
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_at = None;
            self.resend(adapter);
        } else if self.deadline.is_some_and(|deadline| deadline <= now) {
            if self.retries == 0 {
                let notices = self.fail_front(adapter, Syndrome::RetriesExceeded);
                sent.notices.extend(notices);
                return;
            }
            self.retries -= 1;
            self.resend(adapter);
        }
    }

    pub(super) fn resend<M: Memory>(&mut self, adapter: &mut Adapter<M>) {
        if self.resend_on_wire(adapter) {
            return;
        }
        for sent in self.outstanding.iter().filter(|sent| !sent.is_done) {
            let psn = sent.psn;
            let reads = sent.reads;
            let body = Body::Request { psn, reads, request: sent.request.clone() };
            adapter.fabric.send(self.packet(adapter, body));
        }
        self.wait_for_answer();
    }

    /// The next part of what the list of tags wants on this queue pair.
    fn advance_tags<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> bool {
        if !self.has_room(64) {
            return false;
        }
        match self.tag_requests.front().cloned() {
            Some(TagRequest::Read { handle, remote, into, length, done }) => {
                if !self.may_read() {
                    return false;
                }
                let part = (length - done).min(self.wire_read_part().unwrap_or(PART));
                let is_last = done + part == length;
                let at = remote.at.wrapping_add(done.into());
                let request = Request::Read { from: RemoteAddress { at, ..remote }, length: part };
                let ends = Ends::TagRead { handle, is_last };
                let into = AnswerRoom { segments: vec![into], offset: done.into() };
                if !self.issue(adapter, request, ends, into) {
                    return false;
                }
                if is_last {
                    self.tag_requests.pop_front();
                } else if let Some(TagRequest::Read { done, .. }) = self.tag_requests.front_mut() {
                    *done += part;
                }
                true
            }
            Some(TagRequest::Fin { handle, bytes }) => {
                let message = Message { bytes: bytes.into(), immediate: None, is_solicited: false };
                let ends = Ends::TagFin { handle };
                let is_sent =
                    self.issue(adapter, Request::Send(message), ends, AnswerRoom::default());
                if is_sent {
                    self.tag_requests.pop_front();
                }
                is_sent
            }
            None => false,
        }
    }

    /// The next part of a READ or WRITE of the program.
    fn advance_parts<M: Memory>(&mut self, adapter: &mut Adapter<M>, sent: &mut Sent) -> bool {
        let Some(parts) = self.parts.take() else { return false };
        let read_part = self.wire_read_part().filter(|_| parts.is_read);
        let part = (parts.length - parts.done).min(read_part.unwrap_or(PART));
        if !self.has_room(part as usize) || parts.is_read && !self.may_read() {
            self.parts = Some(parts);
            return false;
        }
        let is_last = parts.done + part == parts.length;
        let remote =
            RemoteAddress { at: parts.remote.at.wrapping_add(parts.done.into()), ..parts.remote };
        let ends = Ends::Wqe {
            index: parts.index,
            opcode: parts.opcode,
            length: parts.length,
            is_signalled: parts.is_signalled,
            is_last,
        };
        let offset = u64::from(parts.done);
        let is_begun = if parts.is_read {
            let request = Request::Read { from: remote, length: part };
            let into = AnswerRoom { segments: parts.segments.clone(), offset };
            self.issue(adapter, request, ends, into)
        } else {
            let mut bytes = vec![0; part as usize];
            let from = parts.done as usize;
            let got = match &parts.inline {
                Some(inline) => {
                    bytes.copy_from_slice(&inline[from..from + part as usize]);
                    Ok(())
                }
                None => adapter.gather(self.facts.pd, &parts.segments, offset, &mut bytes),
            };
            if got.is_err() && !self.outstanding.is_empty() {
                self.parts = Some(parts);
                return false;
            }
            if got.is_err() {
                let notices = self.fail(
                    adapter,
                    Some((parts.index, parts.opcode)),
                    Syndrome::LocalProtection,
                );
                sent.notices.extend(notices);
                return true;
            }
            let message = Message {
                bytes: bytes.into(),
                immediate: parts.immediate.filter(|_| is_last),
                is_solicited: parts.is_solicited,
            };
            let length = parts.length;
            let is_first = parts.done == 0;
            let request = Request::Write { to: remote, message, length, is_first, is_last };
            self.issue(adapter, request, ends, AnswerRoom::default())
        };
        if !is_begun {
            self.parts = Some(parts);
        } else if !is_last {
            self.parts = Some(Parts { done: parts.done + part, ..parts });
        }
        is_begun
    }

    /// Reads the blocks of the next request.
    pub(super) fn fetch<M: Memory>(&self, adapter: &mut Adapter<M>) -> Option<(Vec<u8>, u16)> {
        let size = self.sq.size;
        let at = |block: u32| self.sq.at + u64::from(block & (size - 1)) * BLOCK;
        let first = u32::from(self.sq.next);
        let mut bytes = vec![0; BLOCK as usize];
        let got = adapter.memory.read(at(first), &mut bytes);
        if let Err(error) = got {
            adapter.note(error);
            return None;
        }
        let length = wqe::length(&bytes).ok()?;
        let blocks = length.div_ceil(BLOCK as usize).min(BLOCKS_MAX);
        bytes.resize(blocks * BLOCK as usize, 0);
        for block in 1..blocks as u32 {
            let place = block as usize * BLOCK as usize;
            let into = &mut bytes[place..place + BLOCK as usize];
            if let Err(error) = adapter.memory.read(at(first + block), into) {
                adapter.note(error);
                return None;
            }
        }
        Some((bytes, blocks as u16))
    }

    /// Begins the next request of the program. `false`: there is none, or it has to wait.
    fn begin<M: Memory>(&mut self, adapter: &mut Adapter<M>, sent: &mut Sent) -> bool {
        let waiting = self.sq.posted.wrapping_sub(self.sq.next);
        if waiting == 0 || u32::from(waiting) > self.sq.size {
            return false;
        }
        let is_datagram = self.facts.transport == Transport::Datagram;
        let index = self.sq.next;
        let fetched = self.fetch(adapter);
        if adapter.is_gone {
            return false;
        }
        let read = fetched.and_then(|(bytes, blocks)| {
            let wqe = Wqe::parse(&bytes, is_datagram).ok()?;
            (wqe.index == index).then_some((wqe, bytes, blocks))
        });
        let Some((wqe, bytes, blocks)) = read else {
            if !self.outstanding.is_empty() {
                return false;
            }
            let notices = self.fail(adapter, Some((index, 0)), Syndrome::LocalQpOperation);
            sent.notices.extend(notices);
            return true;
        };
        let reads_outstanding =
            self.outstanding.iter().any(|sent| sent.request.is_answered() && !sent.is_done);
        if wqe.is_fenced && reads_outstanding {
            return false;
        }
        match self.execute(adapter, &wqe, &bytes, sent) {
            Ok(false) => return false,
            Ok(true) => {}
            // Completions have an order: those before it come first.
            Err(_) if !self.outstanding.is_empty() => return false,
            Err(why) => {
                let notices = self.fail(adapter, Some((index, wqe.opcode)), why);
                sent.notices.extend(notices);
                return true;
            }
        }
        adapter.counts.requests += 1;
        self.sq.next = self.sq.next.wrapping_add(blocks);
        !adapter.fabric.ports.begin(self.facts.lid, DeviceOperation::Request)
    }

    /// Carries a request out, or begins to. `Ok(false)`: later.
    fn execute<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        wqe: &Wqe,
        bytes: &[u8],
        sent: &mut Sent,
    ) -> Result<bool, Syndrome> {
        let is_signalled = wqe.is_signalled || self.facts.signals_all;
        let data = self.data(adapter, wqe, bytes)?;
        let length = data.length;
        let ends = Ends::Wqe {
            index: wqe.index,
            opcode: wqe.opcode,
            length: length as u32,
            is_signalled,
            is_last: true,
        };
        match wqe.kind {
            Kind::Tags { command, count, is_signalled } => {
                let Receives::Shared(srq) = self.receives else {
                    return Err(Syndrome::LocalQpOperation);
                };
                let queue = adapter.srqs.get_mut(&srq).and_then(|srq| srq.tags.as_mut());
                let queue = queue.ok_or(Syndrome::LocalQpOperation)?;
                let answer = (self.facts.number, wqe.index);
                adapter.counts.list_operations += 1;
                queue.operate(command, count, is_signalled, answer);
                Ok(true)
            }
            Kind::Nop => {
                if !self.outstanding.is_empty() {
                    return Ok(false);
                }
                self.succeed(adapter, &ends);
                Ok(true)
            }
            Kind::Send => self.send(adapter, wqe, data, ends),
            Kind::Write(remote) | Kind::Read(remote) => {
                if self.facts.transport == Transport::Datagram {
                    return Err(Syndrome::LocalQpOperation);
                }
                let RequestData { segments, inline, .. } = data;
                if matches!(wqe.kind, Kind::Read(_)) {
                    if inline.is_some() {
                        return Err(Syndrome::LocalQpOperation);
                    }
                    self.check_into(adapter, &segments, length)?;
                }
                self.parts = Some(Parts {
                    index: wqe.index,
                    opcode: wqe.opcode,
                    remote,
                    segments,
                    inline,
                    length: length as u32,
                    done: 0,
                    is_read: matches!(wqe.kind, Kind::Read(_)),
                    immediate: wqe.immediate,
                    is_solicited: wqe.is_solicited,
                    is_signalled,
                });
                self.advance_parts(adapter, sent);
                Ok(true)
            }
            Kind::Atomic(at, operation) => {
                if self.facts.transport == Transport::Datagram || length != 8 {
                    return Err(Syndrome::LocalQpOperation);
                }
                if !self.has_room(8) || !self.may_read() {
                    return Ok(false);
                }
                self.check_into(adapter, &data.segments, 8)?;
                let request = Request::Atomic { at, operation };
                let into = AnswerRoom { segments: data.segments, offset: 0 };
                Ok(self.issue(adapter, request, ends, into))
            }
        }
    }

    fn data<M: Memory>(
        &self,
        adapter: &mut Adapter<M>,
        wqe: &Wqe,
        bytes: &[u8],
    ) -> Result<RequestData, Syndrome> {
        let mut segments = Vec::new();
        let mut length = 0;
        let mut has_inline = false;
        for piece in &wqe.data {
            match piece {
                Piece::Inline(range) => {
                    length += range.len() as u64;
                    has_inline = true;
                }
                Piece::Segment(segment) => {
                    length += u64::from(segment.length);
                    segments.push(*segment);
                }
            }
        }
        if length > MESSAGE_MAX {
            return Err(Syndrome::LocalLength);
        }
        if !has_inline {
            return Ok(RequestData { segments, inline: None, length });
        }
        // UCX puts a header into the request, and the data behind it into memory.
        let mut all = Vec::with_capacity(length as usize);
        for piece in &wqe.data {
            match piece {
                Piece::Inline(range) => all.extend_from_slice(&bytes[range.clone()]),
                Piece::Segment(segment) => {
                    let start = all.len();
                    all.resize(start + segment.length as usize, 0);
                    let gathered = adapter.gather(self.facts.pd, &[*segment], 0, &mut all[start..]);
                    gathered.map_err(|_| Syndrome::LocalProtection)?;
                }
            }
        }
        Ok(RequestData { segments: Vec::new(), inline: Some(all), length })
    }

    /// Whether an answer may be written where the request says: `LocalProtection` if not.
    fn check_into<M: Memory>(
        &self,
        adapter: &Adapter<M>,
        segments: &[Segment],
        length: u64,
    ) -> Result<(), Syndrome> {
        let wanted = crate::abi::access::LOCAL_WRITE;
        let found = adapter.regions.locate(self.facts.pd, segments, 0..length, wanted);
        found.map(drop).ok_or(Syndrome::LocalProtection)
    }

    /// Sends a message.
    fn send<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        wqe: &Wqe,
        data: RequestData,
        ends: Ends,
    ) -> Result<bool, Syndrome> {
        let length = data.length as usize;
        let is_datagram = self.facts.transport == Transport::Datagram;
        let link_mtu = adapter.settings.knobs.link_mtu();
        if is_datagram && length > link_mtu.into() {
            return Err(Syndrome::LocalLength);
        }
        if !is_datagram && !self.has_room(length) {
            return Ok(false);
        }
        let bytes = match data.inline {
            Some(inline) => inline,
            None => {
                // Room is taken before the memory is: a message may be long.
                if adapter.fabric.take_room(length).is_none() {
                    return Ok(false);
                }
                let mut bytes = vec![0; length];
                let gathered = adapter.gather(self.facts.pd, &data.segments, 0, &mut bytes);
                gathered.map_err(|error| match error {
                    ScatterError::TooShort => Syndrome::LocalLength,
                    ScatterError::Denied => Syndrome::LocalProtection,
                })?;
                bytes
            }
        };
        let message = Message {
            bytes: bytes.into(),
            immediate: wqe.immediate,
            is_solicited: wqe.is_solicited,
        };
        let Some(to) = wqe.to.filter(|_| is_datagram) else {
            return Ok(self.issue(adapter, Request::Send(message), ends, AnswerRoom::default()));
        };
        // InfiniBand 10.2.5
        let is_own_key = to.qkey >> 31 != 0;
        let qkey = if is_own_key { self.attributes.0.qkey } else { to.qkey };
        let (to_lid, route) = self.route(adapter, &to);
        if to_lid == NOWHERE
            && let Some(path) = self.datagram_path(adapter, &to)
        {
            self.send_datagram_out(adapter, &path, (to.qpn, qkey), &message);
            self.succeed(adapter, &ends);
            return Ok(true);
        }
        adapter.fabric.send(Packet {
            to: to.qpn,
            from: self.facts.number,
            to_lid,
            from_lid: self.facts.lid,
            pkey: self.pkey(adapter),
            mtu: link_mtu,
            body: Body::Datagram { qkey, route, message },
        });
        self.succeed(adapter, &ends);
        Ok(true)
    }
}
