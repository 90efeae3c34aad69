//! A shared receive queue with a list of tags: the model NIC decides, this module carries out.

use std::collections::HashMap;

use tagmatch_device::DeviceError;
use tagmatch_device::tm::{Opcode as HeaderOpcode, TMH_BYTES, Tmh};
use tagmatch_model::{
    Arrival, Completion, HEADERS_BYTES, Handle, ModelConfig, Nic, Operation, OperationKind,
    QueuePair, TmInfo, Verdict, WcFlags, WcOpcode, WcStatus, Work,
};

use super::counts::Counts;
use super::receive::Receive;
use crate::cqe::{Cqe, Opcode, TagOpcode};
use crate::wqe::{Segment, TagCommand};

/// An entry of the list, and what has become of it.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    handle: Option<Handle>,
    buffer: Segment,
    /// The NIC reads the data of the message that has matched.
    is_rendezvous: bool,
    /// The header of the message that has matched, whose reserved bytes may hold data of UCX.
    header: Option<[u8; TMH_BYTES]>,
}

/// Where the bytes of a message go.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Into the program's memory: segments, and the part of the message.
    Memory { segments: Vec<Segment>, from: usize, receive: Option<u64> },
    /// Nowhere: a READ follows.
    Nowhere,
    /// There is no buffer: the sender waits.
    NotReady,
    /// The queue pair is in error.
    Dropped,
}

/// The list of tags of a shared receive queue.
#[derive(Debug)]
pub(crate) struct TagQueue {
    pub(crate) nic: Nic,
    /// The longest packet, whatever the MTU of a queue pair is.
    packet_max: u64,
    pub(crate) cq: u32,
    entries: Vec<Entry>,
    /// Where the next entry goes.
    next: u16,
    generation: u32,
    /// Receives that the NIC knows, by number.
    receives: HashMap<u64, Receive>,
    receives_taken: u64,
    /// Receives whose memory could not be written.
    denied: Vec<u64>,
    /// Faults, messages that have missed a phase, and queue pairs that have failed on request, as
    /// far as they are counted.
    counted: (u64, u64, u64),
}

impl TagQueue {
    /// # Errors
    /// A setting of the list is out of its range.
    pub(crate) fn new(config: &ModelConfig, cq: u32) -> Result<Self, DeviceError> {
        let entries = vec![Entry::default(); config.slots.next_power_of_two() as usize];
        Ok(TagQueue {
            nic: Nic::new(config)?,
            packet_max: config.knobs.packet_bytes,
            cq,
            entries,
            next: 0,
            generation: 0,
            receives: HashMap::new(),
            receives_taken: 0,
            denied: Vec::new(),
            counted: (0, 0, 0),
        })
    }

    /// Takes a receive that the program has posted.
    pub(crate) fn post(&mut self, receive: Receive) {
        let number = self.receives_taken;
        self.receives_taken += 1;
        self.nic.post_receive(number, receive.room());
        self.receives.insert(number, receive);
    }

    /// Carries out an operation on the list. `answer`: what its completion carries.
    pub(crate) fn operate(
        &mut self,
        command: TagCommand,
        count: Option<u16>,
        is_signalled: bool,
        answer: (u32, u16),
    ) {
        let mask = self.entries.len() - 1;
        let (kind, handle) = match command {
            TagCommand::Nop => (OperationKind::Sync, None),
            TagCommand::Append { next, tag, mask: tag_mask, buffer } => {
                let slot = usize::from(self.next) & mask;
                self.next = next & mask as u16;
                self.generation = self.generation.wrapping_add(1);
                let handle = Handle(self.generation << 16 | slot as u32);
                let segment = buffer.unwrap_or_default();
                self.entries[slot] =
                    Entry { handle: Some(handle), buffer: segment, ..Entry::default() };
                let kind = OperationKind::Add {
                    recv_wr_id: 0,
                    tag,
                    mask: tag_mask,
                    elements: buffer.is_some().into(),
                    length: segment.length.into(),
                };
                (kind, Some(handle))
            }
            TagCommand::Remove { index } => {
                // An entry that never was, or a place that the list hasn't: the answer is that it
                // isn't there.
                let handle = self.entries.get(usize::from(index)).and_then(|entry| entry.handle);
                let handle = handle.unwrap_or(Handle(index.into()));
                (OperationKind::Delete { handle }, Some(handle))
            }
        };
        let wr_id = u64::from(answer.0) << 16 | u64::from(answer.1);
        let signalled = is_signalled;
        let operation = Operation { wr_id, signalled, unexpected_count: count, kind };
        self.nic.post_at(operation, handle);
    }

    /// A message has come on a queue pair: where its bytes go.
    pub(crate) fn arrive(
        &mut self,
        qpn: u32,
        mtu: u64,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Place {
        let mut head = [0; HEADERS_BYTES];
        let known = bytes.len().min(HEADERS_BYTES);
        head[..known].copy_from_slice(&bytes[..known]);
        let length = bytes.len() as u64;
        self.nic.set_packet_bytes(mtu.min(self.packet_max));
        let arrival = Arrival { queue_pair: QueuePair(qpn), length, head, immediate };
        match self.nic.arrive(&arrival) {
            Verdict::NotReady => Place::NotReady,
            Verdict::Ordinary { wr_id } => {
                let segments = self.receives.get(&wr_id).map(|receive| receive.segments.clone());
                let segments = segments.unwrap_or_default();
                Place::Memory { segments, from: 0, receive: Some(wr_id) }
            }
            Verdict::Payload { handle, .. } => self.matched(handle, &head, TMH_BYTES),
            Verdict::Headers { handle, .. } => self.matched(handle, &head, 0),
            Verdict::Rendezvous => Place::Nowhere,
            Verdict::Dropped => Place::Dropped,
        }
    }

    /// A message has matched an entry: its bytes from `from` go into the entry's buffer.
    fn matched(&mut self, handle: Handle, head: &[u8; HEADERS_BYTES], from: usize) -> Place {
        let entry = &mut self.entries[handle.slot()];
        entry.header = head.first_chunk().copied();
        Place::Memory { segments: vec![entry.buffer], from, receive: None }
    }

    /// The program's memory could not be written: the queue pair fails, and so does the receive.
    pub(crate) fn deny(&mut self, qpn: u32, receive: Option<u64>) {
        self.denied.extend(receive);
        self.nic.fail(QueuePair(qpn), "memory that may not be written");
    }

    /// The buffer of an entry that a rendezvous has matched.
    pub(crate) fn buffer(&mut self, handle: Handle) -> Option<Segment> {
        let entry = self.entries.get_mut(handle.slot())?;
        entry.is_rendezvous = true;
        (entry.handle == Some(handle)).then_some(entry.buffer)
    }

    pub(crate) fn next_work(&mut self) -> Option<Work> {
        self.nic.next_work()
    }

    /// The next completion for the program, if there is one. `peer_of`: what is known of the other
    /// end of a queue pair.
    pub(crate) fn next_completion(
        &mut self,
        user_index: u32,
        peer_of: impl Fn(u32) -> (u32, u16),
        counts: &mut Counts,
    ) -> Option<Cqe> {
        loop {
            let completion = self.nic.poll()?;
            if let Some(cqe) = self.completion(&completion, user_index, &peer_of, counts) {
                return Some(cqe);
            }
        }
    }

    fn completion(
        &mut self,
        completion: &Completion,
        user_index: u32,
        peer_of: &impl Fn(u32) -> (u32, u16),
        counts: &mut Counts,
    ) -> Option<Cqe> {
        let Some(QueuePair(qpn)) = completion.queue_pair else {
            return Some(self.answer(completion, user_index));
        };
        let opcode = match completion.immediate {
            Some(_) => Opcode::ReceiveSendImmediate,
            None => Opcode::ReceiveSend,
        };
        let (peer, lid) = peer_of(qpn);
        let length = u32::try_from(completion.length).unwrap_or(u32::MAX);
        let finish =
            |cqe: Cqe| cqe.queue_pair(0, qpn).length(length).immediate(completion.immediate);
        let Some(handle) = completion.handle else {
            let receive = self.receives.remove(&completion.wr_id)?;
            if let Some(at) = self.denied.iter().position(|denied| *denied == completion.wr_id) {
                self.denied.swap_remove(at);
                let why = crate::cqe::Syndrome::LocalProtection;
                let cqe = Cqe::error(Opcode::ReceiveError, user_index, why);
                return Some(cqe.queue_pair(0, qpn).counter(receive.index));
            }
            let tag = if completion.opcode == WcOpcode::TmNoTag {
                counts.without_tag += 1;
                TagOpcode::NoTag
            } else {
                counts.unexpected += 1;
                counts.unexpected_bytes += completion.length;
                TagOpcode::Unexpected
            };
            let cqe = Cqe::new(opcode, user_index).tag(tag, 0).source(peer, lid, false);
            return Some(finish(cqe.counter(receive.index)));
        };
        let index = handle.slot() as u16;
        let TmInfo { tag, app_ctx } = completion.tm_info;
        let rendezvous = Tmh { opcode: HeaderOpcode::Rendezvous, app_ctx, tag };
        let header = self.entries[handle.slot()].header.unwrap_or_else(|| rendezvous.emit());
        let has = |flags| completion.flags.contains(flags);
        let is_match = has(WcFlags::MATCH);
        let is_data = has(WcFlags::DATA_VALID);
        let is_incomplete = completion.status == WcStatus::RendezvousIncomplete;
        if completion.status == WcStatus::FlushError {
            // The device says nothing about the data of a match that will never come.
            counts.flushed += 1;
            return None;
        }
        if is_match {
            counts.matched += 1;
        }
        if is_data && !is_incomplete {
            counts.matched_bytes += completion.length;
            let is_rendezvous = self.entries[handle.slot()].is_rendezvous;
            counts.rendezvous += u64::from(is_rendezvous);
        }
        let (opcode, tag) = match (is_match, is_data, is_incomplete) {
            (true, true, false) => (opcode, TagOpcode::ConsumedMessage),
            (true, true, true) => (opcode, TagOpcode::ConsumedMessageSoftwareRendezvous),
            (_, false, false) => (Opcode::NoPacket, TagOpcode::Consumed),
            // The first completion says that software reads; libmlx5 expects it with data.
            (_, false, true) => (opcode, TagOpcode::ConsumedSoftwareRendezvous),
            (false, true, _) => (opcode, TagOpcode::Expected),
        };
        let cqe = Cqe::new(opcode, user_index).source(peer, lid, false).tag(tag, index);
        Some(finish(if is_match { cqe.header(&header) } else { cqe }))
    }

    /// The completion of an operation on the list.
    fn answer(&self, completion: &Completion, user_index: u32) -> Cqe {
        let tag = match completion.opcode {
            WcOpcode::TmAdd => TagOpcode::Append,
            WcOpcode::TmDel => TagOpcode::Remove,
            _ => TagOpcode::Noop,
        };
        let (counted, told) = self.nic.counts();
        // The library asks for a sync if the count differs from what it told the device last.
        let count = match (completion.flags.contains(WcFlags::SYNC_REQUEST), counted == told) {
            (true, true) => told.wrapping_add(1),
            (true, false) => counted,
            (false, _) => told,
        };
        let is_ok = completion.status == WcStatus::Success;
        let qpn = (completion.wr_id >> 16) as u32;
        let counter = (completion.wr_id & 0xffff) as u16;
        let index = completion.handle.map_or(0, |handle| handle.slot() as u16);
        let cqe = Cqe::new(Opcode::NoPacket, user_index).answer(is_ok, count);
        cqe.tag(tag, index).queue_pair(crate::wqe::opcode::TAG_MATCHING, qpn).counter(counter)
    }

    /// Counts what has come since the last call.
    pub(crate) fn count(&mut self, counts: &mut Counts) {
        let faults = self.nic.faults().len() as u64;
        let missed = self.nic.phase_missed();
        let failed = self.nic.failed_at_match();
        counts.faults += faults - self.counted.0;
        counts.phase_missed += missed - self.counted.1;
        counts.requested.matching += failed - self.counted.2;
        self.counted = (faults, missed, failed);
    }

    /// Whether the NIC has something to do, or will have after some time.
    pub(crate) fn has_work(&self) -> bool {
        self.nic.has_work()
    }
}
