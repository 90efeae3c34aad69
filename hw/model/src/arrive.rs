//! A message comes in: what the NIC makes of it.

use super::completion::{Completion, QueuePair, TmInfo, WcFlags, WcOpcode, WcStatus};
use super::fault::Fault;
use super::list::Entry;
use super::nic::Nic;
use super::slots::Handle;
use super::transfers::{HEADERS_BYTES, Transfer};
use tagmatch_device::Outgoing;
use tagmatch_device::tm::{Opcode, RVH_BYTES, Rvh, TMH_BYTES, Tmh};

/// A message that came in on a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Which queue pair.
    pub queue_pair: QueuePair,
    /// Bytes in the message, headers included.
    pub length: u64,
    /// Its first bytes, zeros behind its end.
    pub head: [u8; HEADERS_BYTES],
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// What is to be done with the bytes of a message. The host does it before it calls again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not taken (RNR NAK): there is no ordinary buffer, or there never were as many as the NIC wants.
    /// Offer it again before any later message of its queue pair.
    NotReady,
    /// The whole message goes into this ordinary buffer.
    Ordinary {
        /// Of [`Nic::post_receive`].
        wr_id: u64,
    },
    /// The message without its TMH goes into the entry's buffer.
    Payload {
        /// Which entry.
        handle: Handle,
        /// Its `recv_wr_id`.
        recv_wr_id: u64,
    },
    /// TMH and RVH go into the entry's buffer: the rendezvous doesn't fit.
    Headers {
        /// Which entry.
        handle: Handle,
        /// Its `recv_wr_id`.
        recv_wr_id: u64,
    },
    /// Nothing: [`Work::Read`](super::Work::Read) will come.
    Rendezvous,
    /// Nothing: the queue pair is in error.
    Dropped,
}

/// What a message is to the NIC.
enum Kind {
    Ordinary,
    Eager(Tmh),
    Rendezvous(Tmh, Rvh),
    Malformed(&'static str),
}

impl Arrival {
    fn kind(&self) -> Kind {
        if self.length == 0 {
            return Kind::Malformed("a message without a byte");
        }
        // Of these only the first byte is looked at, they may be shorter than a TMH.
        if self.head[0] == Opcode::NoTag as u8 || self.head[0] == Opcode::Fin as u8 {
            return Kind::Ordinary;
        }
        let (first, second) = self.head.split_at(TMH_BYTES);
        let tmh = first.try_into().ok().and_then(|bytes| Tmh::parse(bytes).ok());
        let rvh: Option<[u8; RVH_BYTES]> = second.try_into().ok();
        match (tmh, rvh) {
            (Some(tmh), _) if tmh.opcode == Opcode::Eager => {
                if self.length < TMH_BYTES as u64 {
                    return Kind::Malformed("an eager message shorter than its header");
                }
                Kind::Eager(tmh)
            }
            (Some(tmh), Some(rvh)) => {
                let range = HEADERS_BYTES as u64..=Outgoing::HEADER_MAX as u64;
                if !range.contains(&self.length) {
                    return Kind::Malformed("a rendezvous request not of 32 to 64 bytes");
                }
                Kind::Rendezvous(tmh, Rvh::parse(&rvh))
            }
            _ => Kind::Malformed("a message with an unknown opcode"),
        }
    }
}

impl Nic {
    /// A message came in.
    pub fn arrive(&mut self, message: &Arrival) -> Verdict {
        let queue_pair = message.queue_pair;
        if self.in_error.contains(&queue_pair) {
            return Verdict::Dropped;
        }
        if !self.is_ready() {
            return Verdict::NotReady;
        }
        let fails = self.knobs.queue_pair_error.draw(&mut self.random);
        if fails && self.random.below(2) == 0 {
            self.fail(queue_pair, SPONTANEOUS);
            return Verdict::Dropped;
        }
        let verdict = match message.kind() {
            Kind::Ordinary => self.ordinary(message, WcOpcode::TmNoTag),
            Kind::Malformed(why) => {
                self.fail(queue_pair, why);
                Verdict::Dropped
            }
            Kind::Eager(tmh) => self.eager(message, tmh),
            Kind::Rendezvous(tmh, rvh) => self.rendezvous(message, tmh, rvh),
        };
        if fails {
            self.fail(queue_pair, SPONTANEOUS);
        }
        self.settle();
        verdict
    }

    /// The message takes an ordinary buffer, header included.
    fn ordinary(&mut self, message: &Arrival, opcode: WcOpcode) -> Verdict {
        let Some(&(wr_id, room)) = self.ordinary.front() else { return Verdict::NotReady };
        let length = message.length;
        if length > room {
            self.faults.record(Fault::OrdinaryTooShort { length, room });
            self.fail(message.queue_pair, "a message longer than the buffers for it");
            return Verdict::Dropped;
        }
        self.ordinary.pop_front();
        let mut flags = WcFlags::NONE;
        if opcode == WcOpcode::TmRecv {
            self.list.count();
            let is_apart = self.list.distance() > self.knobs.sync_limit;
            if is_apart {
                let (counted, told) = (self.list.counted(), self.list.told());
                self.faults.record(Fault::CountsApart { counted, told });
            }
            flags = self.sync_request(is_apart);
        }
        let completion = Completion {
            wr_id,
            opcode,
            status: WcStatus::Success,
            flags,
            tm_info: TmInfo::default(),
            length,
            immediate: message.immediate,
            queue_pair: Some(message.queue_pair),
            handle: None,
        };
        let due = self.held_until(self.knobs.receive);
        self.queues.push_receive(due, completion);
        Verdict::Ordinary { wr_id }
    }

    /// A match's completion with everything on it.
    fn matched(message: &Arrival, tmh: Tmh, entry: &Entry, length: u64) -> Completion {
        Completion {
            wr_id: entry.recv_wr_id,
            opcode: WcOpcode::TmRecv,
            status: WcStatus::Success,
            flags: WcFlags::MATCH | WcFlags::DATA_VALID,
            tm_info: TmInfo { tag: tmh.tag, app_ctx: tmh.app_ctx },
            length,
            immediate: message.immediate,
            queue_pair: Some(message.queue_pair),
            handle: Some(entry.handle),
        }
    }

    fn take_match(&mut self, tag: u64) -> Option<Entry> {
        let entry = self.list.take_match(tag)?;
        self.slots.set_matched(entry.handle);
        Some(entry)
    }

    fn push_match(&mut self, completion: Completion) -> u64 {
        let due = self.held_until(self.knobs.receive);
        self.queues.push_receive(due, completion)
    }

    fn eager(&mut self, message: &Arrival, tmh: Tmh) -> Verdict {
        let Some(entry) = self.take_match(tmh.tag) else {
            return self.ordinary(message, WcOpcode::TmRecv);
        };
        let length = message.length - TMH_BYTES as u64;
        let whole = Self::matched(message, tmh, &entry, length);
        if length > entry.length {
            self.overflow(whole, &entry, length);
            return Verdict::Dropped;
        }
        if message.length <= self.knobs.packet_bytes {
            self.push_match(whole);
        } else {
            let (first, second) = in_two(whole);
            let after = self.push_match(first);
            let due = self.held_until(self.knobs.data);
            self.queues.push_data(due, second, after, true);
        }
        Verdict::Payload { handle: entry.handle, recv_wr_id: entry.recv_wr_id }
    }

    fn rendezvous(&mut self, message: &Arrival, tmh: Tmh, rvh: Rvh) -> Verdict {
        let Some(entry) = self.take_match(tmh.tag) else {
            return self.ordinary(message, WcOpcode::TmRecv);
        };
        let length = u64::from(rvh.len);
        // A rendezvous has no immediate data that the NIC would hand on.
        let message = &Arrival { immediate: None, ..*message };
        let whole = Self::matched(message, tmh, &entry, length);
        if length > entry.length {
            return self.incomplete(whole, &entry);
        }
        let (first, second) = in_two(whole);
        let after = self.push_match(first);
        let due = self.after(self.knobs.read);
        let names = (entry.handle, message.queue_pair);
        self.transfers.begin(Transfer::new(message.head, rvh, second, names, after), due);
        Verdict::Rendezvous
    }

    /// TMH and RVH go into the buffer, and software does the rest.
    fn incomplete(&mut self, whole: Completion, entry: &Entry) -> Verdict {
        let length = HEADERS_BYTES as u64;
        if length > entry.length {
            self.overflow(whole, entry, length);
            return Verdict::Dropped;
        }
        let whole = Completion { status: WcStatus::RendezvousIncomplete, length, ..whole };
        if self.knobs.incomplete_in_two.draw(&mut self.random) {
            let (first, second) = in_two(whole);
            let after = self.push_match(first);
            let due = self.held_until(self.knobs.data);
            self.queues.push_data(due, second, after, false);
        } else {
            self.push_match(whole);
        }
        Verdict::Headers { handle: entry.handle, recv_wr_id: entry.recv_wr_id }
    }

    /// More came than the entry's buffer holds. On hardware that is an error completion that names
    /// no entry, and the queue pair's end; here the entry's match is told and its data fails.
    fn overflow(&mut self, whole: Completion, entry: &Entry, length: u64) {
        self.faults.record(Fault::BufferTooShort {
            handle: entry.handle,
            length,
            room: entry.length,
        });
        let (first, second) = in_two(Completion { status: WcStatus::Success, ..whole });
        let after = self.push_match(first);
        self.flush(second, after);
        if let Some(queue_pair) = whole.queue_pair {
            self.fail(queue_pair, "more payload than the matched buffer holds");
        }
    }
}

/// Why a queue pair fails without a reason.
const SPONTANEOUS: &str = "its queue pair failed";

/// A match in two completions: the first says with what, the second brings the data.
fn in_two(whole: Completion) -> (Completion, Completion) {
    let first = Completion { flags: WcFlags::MATCH, length: 0, immediate: None, ..whole };
    let tm_info = TmInfo::default();
    (first, Completion { flags: WcFlags::DATA_VALID, tm_info, ..whole })
}
