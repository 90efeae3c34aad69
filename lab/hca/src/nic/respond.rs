//! The receiving side of a queue pair: it takes requests of the peer in their order, and answers.

use std::sync::Arc;

use super::adapter::{Adapter, ScatterError};
use super::packet::{Body, Message, Packet, Request, has_right_lengths, is_up_to, next_psn};
use super::queue_pair::{Qp, Receives, Transport};
use super::receive::Receive;
use super::send::TagNotice;
use super::tags::Place;
use crate::abi::{access, event};
use crate::cqe::{Cqe, Opcode, Syndrome};
use crate::gid::{ROUTE_BYTES, Route};
use crate::knobs::is_one_partition;
use crate::memory::Memory;
use crate::wqe::{Atomic, RemoteAddress};

/// Old values of atomic operations that are kept for a peer that asks again.
pub(super) const ATOMICS_KEPT: usize = 16;

/// What becomes of a request of the peer.
pub(super) enum Answer {
    Acknowledge,
    Data(Arc<[u8]>),
    NotReady,
    /// Refused; the peer is told why.
    Refuse(Syndrome),
    Silence,
}

impl Qp {
    /// Takes a packet of another queue pair.
    pub(crate) fn hear<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        packet: Packet,
    ) -> Vec<TagNotice> {
        let ports = &adapter.fabric.ports;
        let own = self.facts.lid;
        let is_here = (packet.to_lid == 0 || packet.to_lid == ports.lid(own))
            && ports.passes(own)
            && adapter.settings.are_connected(packet.from_lid, self.facts.lid);
        if !is_here
            || packet.longest() > adapter.settings.knobs.link_mtu().into()
            || !is_one_partition(packet.pkey, self.pkey(adapter))
        {
            return Vec::new();
        }
        if self.facts.transport == Transport::Datagram {
            if let Body::Datagram { qkey, route, message } = &packet.body
                && self.receives_now()
                && *qkey == self.attributes.0.qkey
            {
                self.take_datagram(adapter, &packet, *route, message);
            }
            return Vec::new();
        }
        let is_peer = packet.from == self.attributes.0.dest_qp_num & 0xff_ffff;
        if !is_peer || !self.receives_now() {
            return Vec::new();
        }
        match packet.body {
            Body::Request { psn, reads, request } => {
                self.take_request(adapter, (psn, reads, packet.mtu), &request)
            }
            body => self.hear_answer(adapter, packet.mtu, body),
        }
    }

    fn reply<M: Memory>(&self, adapter: &Adapter<M>, body: Body) {
        adapter.fabric.send(self.packet(adapter, body));
    }

    fn take_request<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        (psn, reads, mtu): (u32, u8, u16),
        request: &Request,
    ) -> Vec<TagNotice> {
        if psn != self.expected {
            if is_up_to(psn, self.expected) {
                // It was carried out already.
                self.repeat(adapter, psn, request);
            } else if !std::mem::replace(&mut self.is_missing_said, true) {
                self.reply(adapter, Body::Missing { psn: self.expected });
            }
            return Vec::new();
        }
        // What follows a request that was not taken is no gap.
        self.is_missing_said = true;
        let answer = if self.takes(request, reads, mtu) {
            self.carry_out(adapter, psn, request)
        } else {
            self.notice(adapter, event::QP_REQ_ERR);
            Answer::Refuse(Syndrome::RemoteInvalidRequest)
        };
        let mut notices = Vec::new();
        if adapter.is_gone {
            // The process has ended: the kernel destroys its queue pairs, which answer nothing.
            return notices;
        }
        let body = match answer {
            Answer::Silence => return notices,
            Answer::NotReady => {
                adapter.fabric.ports.count_out_of_buffer(self.facts.lid);
                Body::NotReady { psn, timer: self.attributes.0.min_rnr_timer }
            }
            Answer::Refuse(why) => {
                notices = self.enter_error(adapter);
                Body::Refused { psn, why }
            }
            Answer::Acknowledge => {
                self.is_missing_said = false;
                self.expected = next_psn(psn);
                Body::Acknowledge { psn }
            }
            Answer::Data(bytes) => {
                self.is_missing_said = false;
                self.expected = next_psn(psn);
                Body::Data { psn, bytes }
            }
        };
        self.reply(adapter, body);
        notices
    }

    /// Answers a request again that was carried out.
    fn repeat<M: Memory>(&mut self, adapter: &mut Adapter<M>, psn: u32, request: &Request) {
        let body = match request {
            Request::Read { from, length } => match self.read(adapter, *from, *length) {
                Ok(bytes) => Body::Data { psn, bytes },
                Err(_) => return,
            },
            Request::Atomic { .. } => {
                let Some((_, old)) = self.atomics.iter().find(|(of, _)| *of == psn) else { return };
                Body::Data { psn, bytes: old.to_ne_bytes().to_vec().into() }
            }
            _ => Body::Acknowledge { psn },
        };
        self.reply(adapter, body);
    }

    fn carry_out<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        psn: u32,
        request: &Request,
    ) -> Answer {
        match request {
            Request::Send(message) => self.take_message(adapter, message),
            Request::Write { to, message, length, is_last, .. } => {
                self.write(adapter, *to, message, is_last.then_some(*length))
            }
            Request::Read { from, length } => match self.read(adapter, *from, *length) {
                Ok(bytes) => Answer::Data(bytes),
                Err(why) => self.refuse_access(adapter, why),
            },
            Request::Atomic { at, operation } => match self.change_word(adapter, *at, *operation) {
                Ok(old) => {
                    if self.atomics.len() >= ATOMICS_KEPT {
                        self.atomics.pop_front();
                    }
                    self.atomics.push_back((psn, old));
                    Answer::Data(old.to_ne_bytes().to_vec().into())
                }
                Err(why) => self.refuse_access(adapter, why),
            },
        }
    }

    /// The peer asks for what it may not have: this queue pair fails, too, and says so.
    pub(super) fn refuse_access<M: Memory>(
        &self,
        adapter: &mut Adapter<M>,
        why: Syndrome,
    ) -> Answer {
        self.notice(adapter, event::QP_ACCESS_ERR);
        Answer::Refuse(why)
    }

    /// Whether the peer may do this to the memory of the program.
    pub(super) fn allows(&self, wanted: u32) -> bool {
        let mut allowed = self.attributes.0.qp_access_flags;
        if self.attributes.0.max_dest_rd_atomic == 0 {
            // to_mlx5_access_flags
            allowed &= access::REMOTE_WRITE;
        }
        wanted & !allowed == 0
    }

    /// Whether a request is one that the queue pair takes: InfiniBand 9.7.4.1.
    fn takes(&self, request: &Request, reads: u8, mtu: u16) -> bool {
        self.allows(request.wanted())
            && reads <= self.attributes.reads_taken()
            && has_right_lengths(request.length(), mtu, self.attributes.mtu())
    }

    pub(super) fn read<M: Memory>(
        &self,
        adapter: &mut Adapter<M>,
        from: RemoteAddress,
        length: u32,
    ) -> Result<Arc<[u8]>, Syndrome> {
        if length == 0 {
            return Ok(Vec::new().into());
        }
        let wanted = access::REMOTE_READ;
        let found = adapter.regions.find(self.facts.pd, from, length.into(), wanted);
        let at = found.ok_or(Syndrome::RemoteAccess)?;
        let mut bytes = vec![0; length as usize];
        adapter.memory.read(at, &mut bytes).map_err(|error| {
            adapter.note(error);
            Syndrome::RemoteAccess
        })?;
        Ok(bytes.into())
    }

    /// Changes eight bytes, and gives the old ones: in the byte order of the machine, as mlx5 does.
    pub(super) fn change_word<M: Memory>(
        &self,
        adapter: &mut Adapter<M>,
        to: RemoteAddress,
        operation: Atomic,
    ) -> Result<u64, Syndrome> {
        if !to.at.is_multiple_of(8) {
            return Err(Syndrome::RemoteInvalidRequest);
        }
        let wanted = access::REMOTE_ATOMIC;
        let found = adapter.regions.find(self.facts.pd, to, 8, wanted);
        let at = found.ok_or(Syndrome::RemoteAccess)?;
        let mut bytes = [0; 8];
        adapter.memory.read(at, &mut bytes).map_err(|error| {
            adapter.note(error);
            Syndrome::RemoteAccess
        })?;
        let old = u64::from_ne_bytes(bytes);
        let new = match operation {
            Atomic::CompareAndSwap { compare, swap } if old == compare => swap,
            Atomic::CompareAndSwap { .. } => old,
            Atomic::FetchAndAdd { add } => old.wrapping_add(add),
        };
        let written = adapter.memory.write(&[(at, &new.to_ne_bytes())]);
        written.map_err(|_| Syndrome::RemoteAccess)?;
        Ok(old)
    }

    /// Carries out a part of a WRITE. `ended`: the length of the whole, with its last part.
    pub(super) fn write<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        to: RemoteAddress,
        message: &Message,
        ended: Option<u32>,
    ) -> Answer {
        let ends = message.immediate.zip(ended);
        if ends.is_some() {
            if self.has_tags(adapter) {
                // No document says what a list of tags makes of it.
                return Answer::Refuse(Syndrome::RemoteInvalidRequest);
            }
            if self.available(adapter) == 0 {
                return Answer::NotReady;
            }
        }
        if !message.bytes.is_empty() {
            let wanted = access::REMOTE_WRITE;
            let length = message.bytes.len() as u64;
            let found = adapter.regions.find(self.facts.pd, to, length, wanted);
            let Some(at) = found else {
                return self.refuse_access(adapter, Syndrome::RemoteAccess);
            };
            if let Err(error) = adapter.memory.write(&[(at, &message.bytes)]) {
                adapter.note(error);
                return self.refuse_access(adapter, Syndrome::RemoteAccess);
            }
        }
        if let Some((immediate, length)) = ends
            && let Some(receive) = self.take_receive(adapter)
        {
            let opcode = Opcode::ReceiveWriteImmediate;
            let cqe = self.received(opcode, &receive, length, Some(immediate));
            adapter.complete(self.facts.recv_cq, &cqe.solicited(message.is_solicited));
        }
        Answer::Acknowledge
    }

    pub(super) fn has_tags<M: Memory>(&self, adapter: &Adapter<M>) -> bool {
        match self.receives {
            Receives::Shared(srq) => adapter.srqs.get(&srq).is_some_and(|srq| srq.tags.is_some()),
            Receives::Own(_) => false,
        }
    }

    pub(super) fn available<M: Memory>(&self, adapter: &Adapter<M>) -> u32 {
        match &self.receives {
            Receives::Own(queue) => queue.available(),
            Receives::Shared(srq) => adapter.srqs.get(srq).map_or(0, |srq| srq.available()),
        }
    }

    fn take_receive<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> Option<Receive> {
        let taken = match &mut self.receives {
            Receives::Own(queue) => queue.take(&adapter.memory),
            Receives::Shared(srq) => adapter.srqs.get_mut(srq)?.take(&adapter.memory),
        };
        taken.unwrap_or_else(|error| {
            adapter.note(error);
            None
        })
    }

    /// The completion of a receive.
    fn received(
        &self,
        opcode: Opcode,
        receive: &Receive,
        length: u32,
        immediate: Option<u32>,
    ) -> Cqe {
        let attributes = &self.attributes.0;
        Cqe::new(opcode, self.facts.user_index)
            .queue_pair(0, self.facts.number)
            .counter(receive.index)
            .length(length)
            .immediate(immediate)
            .source(attributes.dest_qp_num, attributes.dest.dlid, false)
    }

    pub(super) fn take_message<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        message: &Message,
    ) -> Answer {
        if self.has_tags(adapter) {
            return self.take_tagged(adapter, message);
        }
        let Some(receive) = self.take_receive(adapter) else { return Answer::NotReady };
        let bytes = &message.bytes;
        let length = bytes.len() as u32;
        let opcode = message.receive_opcode();
        let cqe = self.received(opcode, &receive, length, message.immediate);
        let cqe = cqe.solicited(message.is_solicited);
        let size = adapter.cqs.get(&self.facts.recv_cq).map_or(64, |cq| cq.place.entry_bytes);
        let is_inline = self.facts.scatters_to_cqe
            && Cqe::takes(size, bytes.len())
            && bytes.len() as u64 <= receive.room();
        if is_inline {
            adapter.complete(self.facts.recv_cq, &cqe.data(size, bytes));
            return Answer::Acknowledge;
        }
        match adapter.scatter(self.facts.pd, &receive.segments, 0, bytes) {
            Ok(()) => {
                adapter.complete(self.facts.recv_cq, &cqe);
                Answer::Acknowledge
            }
            Err(error) => {
                let (why, told) = match error {
                    ScatterError::TooShort => {
                        (Syndrome::LocalLength, Syndrome::RemoteInvalidRequest)
                    }
                    ScatterError::Denied => (Syndrome::LocalProtection, Syndrome::RemoteOperation),
                };
                self.receive_failed(adapter, &receive, why);
                Answer::Refuse(told)
            }
        }
    }

    fn receive_failed<M: Memory>(
        &self,
        adapter: &mut Adapter<M>,
        receive: &Receive,
        why: Syndrome,
    ) {
        let cqe = Cqe::error(Opcode::ReceiveError, self.facts.user_index, why)
            .queue_pair(0, self.facts.number)
            .counter(receive.index);
        adapter.complete(self.facts.recv_cq, &cqe);
    }

    /// A message for a queue with a list of tags.
    fn take_tagged<M: Memory>(&mut self, adapter: &mut Adapter<M>, message: &Message) -> Answer {
        let Receives::Shared(number) = self.receives else { return Answer::Silence };
        let qpn = self.facts.number;
        let mtu = self.attributes.mtu().into();
        let Some(srq) = adapter.srqs.get_mut(&number) else { return Answer::Silence };
        let Some(queue) = srq.tags.as_mut() else { return Answer::Silence };
        match queue.arrive(qpn, mtu, &message.bytes, message.immediate) {
            Place::NotReady => Answer::NotReady,
            Place::Nowhere => Answer::Acknowledge,
            Place::Dropped => Answer::Refuse(Syndrome::RemoteOperation),
            Place::Memory { segments, from, receive } => {
                let pd = srq.pd;
                let bytes = &message.bytes[from..];
                let bytes = if segments.is_empty() { &[] } else { bytes };
                if adapter.scatter(pd, &segments, 0, bytes).is_ok() {
                    return Answer::Acknowledge;
                }
                let queue = adapter.srqs.get_mut(&number).and_then(|srq| srq.tags.as_mut());
                if let Some(queue) = queue {
                    queue.deny(qpn, receive);
                }
                Answer::Refuse(Syndrome::RemoteOperation)
            }
        }
    }

    pub(super) fn take_datagram<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        packet: &Packet,
        route: Option<Route>,
        message: &Message,
    ) {
        let own = self.facts.lid;
        let ports = &adapter.fabric.ports;
        let is_ours =
            |route: Route| ports.takes(&adapter.settings, own, route.from.kind, &route.to);
        if adapter.settings.knobs.is_ethernet() && !route.is_some_and(is_ours) {
            return;
        }
        let Some(receive) = self.take_receive(adapter) else { return };
        let mut bytes = route.map_or([0; ROUTE_BYTES], |route| route.bytes()).to_vec();
        let has_lids = !adapter.settings.knobs.is_ethernet();
        let from_lid = if has_lids { adapter.fabric.ports.lid(packet.from_lid) } else { 0 };
        bytes.extend_from_slice(&message.bytes);
        match adapter.scatter(self.facts.pd, &receive.segments, 0, &bytes) {
            Ok(()) => {
                let cqe = self
                    .received(
                        message.receive_opcode(),
                        &receive,
                        bytes.len() as u32,
                        message.immediate,
                    )
                    .source(packet.from, from_lid, route.is_some())
                    .roce(route.map_or(0, |route| route.packet()))
                    .solicited(message.is_solicited);
                adapter.complete(self.facts.recv_cq, &cqe);
            }
            // A datagram that is too long for its buffer ends in an error of the receive.
            Err(ScatterError::TooShort) => {
                self.receive_failed(adapter, &receive, Syndrome::LocalLength);
            }
            Err(ScatterError::Denied) => {
                self.receive_failed(adapter, &receive, Syndrome::LocalProtection);
            }
        }
    }
}
