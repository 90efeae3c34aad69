//! How the NIC handles an incoming message: match, count, place.

use tagmatch_device::Outgoing;
use tagmatch_device::tm::{Opcode, RVH_BYTES, Rvh, TMH_BYTES, Tmh};

use crate::completion::{Completion, QueuePair, TmInfo, WcFlags, WcOpcode, WcStatus};
use crate::fault::Fault;
use crate::knob_values::InTwo;
use crate::list::ModelEntry;
use crate::nic::Nic;
use crate::slots::Handle;
use crate::transfers::{FailureTime, HEADERS_BYTES, QUEUE_PAIR_FAILED, Transfer, TransferState};

/// A message that arrived on a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The queue pair.
    pub queue_pair: QueuePair,
    /// Bytes in the message, headers included.
    pub length: u64,
    /// The first bytes of the message, padded with zeros.
    pub head: [u8; HEADERS_BYTES],
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// Where the bytes of a message go. The host copies them before it calls the NIC again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not accepted (RNR NAK): there is no ordinary buffer, or fewer than
    /// [`Knobs::buffers_min`](crate::Knobs::buffers_min) were posted so far. The host must offer
    /// the message again before any later message of its queue pair.
    NotReady,
    /// The whole message goes into this ordinary buffer.
    Ordinary {
        /// The number given to [`Nic::post_receive`].
        wr_id: u64,
    },
    /// The message without its TMH goes into the entry's buffer.
    Payload {
        /// The matched entry.
        handle: Handle,
        /// Its `recv_wr_id`.
        recv_wr_id: u64,
    },
    /// TMH and RVH go into the entry's buffer, since the rendezvous does not fit.
    Headers {
        /// The matched entry.
        handle: Handle,
        /// Its `recv_wr_id`.
        recv_wr_id: u64,
    },
    /// Nowhere yet: a [`Work::Read`](crate::Work::Read) follows.
    Rendezvous,
    /// Nowhere: the queue pair is in error.
    Dropped,
}

/// A message after a look at its headers.
enum Parsed {
    Ordinary,
    Eager(Tmh),
    Rendezvous(Tmh, Rvh),
    Malformed(&'static str),
}

impl Parsed {
    /// The tag that is compared with those of the entries.
    fn tag(&self) -> Option<u64> {
        match self {
            Parsed::Eager(tmh) | Parsed::Rendezvous(tmh, _) => Some(tmh.tag),
            Parsed::Ordinary | Parsed::Malformed(_) => None,
        }
    }
}

impl Arrival {
    fn parse(&self) -> Parsed {
        if self.length == 0 {
            return Parsed::Malformed("an empty message");
        }
        // NO_TAG messages and FINs may be shorter than a TMH: only their first byte is read.
        if self.head[0] == Opcode::NoTag as u8 || self.head[0] == Opcode::Fin as u8 {
            return Parsed::Ordinary;
        }
        let (first, second) = self.head.split_at(TMH_BYTES);
        let tmh = first.try_into().ok().and_then(|bytes| Tmh::parse(bytes).ok());
        let rvh: Option<[u8; RVH_BYTES]> = second.try_into().ok();
        match (tmh, rvh) {
            (Some(tmh), _) if tmh.opcode == Opcode::Eager => {
                if self.length < TMH_BYTES as u64 {
                    return Parsed::Malformed("an eager message shorter than its header");
                }
                Parsed::Eager(tmh)
            }
            (Some(tmh), Some(rvh)) => {
                let range = HEADERS_BYTES as u64..=Outgoing::HEADER_MAX as u64;
                if !range.contains(&self.length) {
                    let why = "a rendezvous request of less than 32 or more than 64 bytes";
                    return Parsed::Malformed(why);
                }
                Parsed::Rendezvous(tmh, Rvh::parse(&rvh))
            }
            _ => Parsed::Malformed("a message with an unknown opcode"),
        }
    }
}

impl Nic {
    /// When the queue pair of a message fails, if it does.
    fn draw_failure(&mut self, matches: bool) -> Option<FailureTime> {
        if matches && let Some(asked) = self.fails_at_match.take() {
            self.failed_at_match += 1;
            return Some(asked);
        }
        if !self.knobs.queue_pair_error.draw(&mut self.random) {
            return None;
        }
        let is_before = self.random.below(2) == 0;
        Some(if is_before { FailureTime::Before } else { FailureTime::After })
    }

    /// Accepts a message, and says where its bytes go.
    pub fn arrive(&mut self, message: &Arrival) -> Verdict {
        let queue_pair = message.queue_pair;
        if self.in_error.contains(&queue_pair) {
            return Verdict::Dropped;
        }
        let parsed = message.parse();
        let matches = parsed.tag().is_some_and(|tag| self.list.matches(tag));
        let takes_match = matches && self.is_open() && self.knobs.matches_without_buffers;
        if !(self.is_ready() || takes_match) {
            return Verdict::NotReady;
        }
        let failure = self.draw_failure(matches);
        if failure == Some(FailureTime::Before) {
            self.fail(queue_pair, QUEUE_PAIR_FAILED);
            return Verdict::Dropped;
        }
        let verdict = match parsed {
            Parsed::Ordinary => self.ordinary(message, WcOpcode::TmNoTag),
            Parsed::Malformed(why) => {
                self.fail(queue_pair, why);
                Verdict::Dropped
            }
            Parsed::Eager(tmh) => self.eager(message, tmh),
            Parsed::Rendezvous(tmh, rvh) => self.rendezvous(message, tmh, rvh),
        };
        if failure == Some(FailureTime::After) {
            self.fail(queue_pair, QUEUE_PAIR_FAILED);
        }
        self.settle();
        verdict
    }

    /// Puts the whole message, header included, into an ordinary buffer.
    fn ordinary(&mut self, message: &Arrival, opcode: WcOpcode) -> Verdict {
        let Some(&(wr_id, room)) = self.ordinary.front() else { return Verdict::NotReady };
        let length = message.length;
        if length > room {
            self.faults.record(Fault::OrdinaryTooShort { length, room });
            self.fail(message.queue_pair, "a message longer than an ordinary buffer");
            return Verdict::Dropped;
        }
        self.ordinary.pop_front();
        let mut flags = WcFlags::NONE;
        if opcode == WcOpcode::TmRecv {
            self.list.count();
            let is_apart = self.list.distance() > self.knobs.sync_limit;
            if is_apart {
                let counted = self.list.counted();
                let software_count = self.list.software_count();
                self.faults.record(Fault::CountsApart { counted, software_count });
            }
            flags = self.sync_request(is_apart);
        }
        let completion = Completion {
            flags,
            length,
            immediate: message.immediate,
            queue_pair: Some(message.queue_pair),
            ..Completion::new(wr_id, opcode)
        };
        let due = self.due_after(self.knobs.receive);
        self.queues.push_receive(due, completion);
        Verdict::Ordinary { wr_id }
    }

    fn unexpected(&mut self, message: &Arrival, tmh: Tmh) -> Verdict {
        self.phase_missed += u64::from(self.list.matches_inactive(tmh.tag));
        self.ordinary(message, WcOpcode::TmRecv)
    }

    /// The completion of a match whose data is there.
    fn matched(message: &Arrival, tmh: Tmh, entry: &ModelEntry, length: u64) -> Completion {
        Completion {
            flags: WcFlags::MATCH | WcFlags::DATA_VALID,
            tm_info: TmInfo { tag: tmh.tag, app_ctx: tmh.app_ctx },
            length,
            immediate: message.immediate,
            queue_pair: Some(message.queue_pair),
            handle: Some(entry.handle),
            ..Completion::new(entry.recv_wr_id, WcOpcode::TmRecv)
        }
    }

    fn take_match(&mut self, tag: u64) -> Option<ModelEntry> {
        let entry = self.list.take_match(tag)?;
        self.slots.set_matched(entry.handle);
        Some(entry)
    }

    fn push_match(&mut self, completion: Completion) -> u64 {
        let due = self.due_after(self.knobs.receive);
        self.queues.push_receive(due, completion)
    }

    fn eager(&mut self, message: &Arrival, tmh: Tmh) -> Verdict {
        let Some(entry) = self.take_match(tmh.tag) else {
            return self.unexpected(message, tmh);
        };
        let length = message.length - TMH_BYTES as u64;
        let whole = Self::matched(message, tmh, &entry, length);
        if length > entry.length {
            self.overflow(whole, &entry, length);
            return Verdict::Dropped;
        }
        let in_two = match self.knobs.eager_in_two {
            InTwo::BeyondAPacket => message.length > self.knobs.packet_bytes,
            InTwo::Always => true,
            InTwo::Never => false,
        };
        if !in_two {
            self.push_match(whole);
        } else {
            let (first, second) = split_match(whole);
            let after = self.push_match(first);
            let due = self.due_after(self.knobs.data);
            self.queues.push_data(due, second, after, true);
        }
        Verdict::Payload { handle: entry.handle, recv_wr_id: entry.recv_wr_id }
    }

    fn rendezvous(&mut self, message: &Arrival, tmh: Tmh, rvh: Rvh) -> Verdict {
        let Some(entry) = self.take_match(tmh.tag) else {
            return self.unexpected(message, tmh);
        };
        let length = u64::from(rvh.len);
        // The NIC drops the immediate data of a rendezvous request.
        let message = &Arrival { immediate: None, ..*message };
        let whole = Self::matched(message, tmh, &entry, length);
        if length > entry.length {
            return self.incomplete(whole, &entry);
        }
        let (first, second) = split_match(whole);
        let after = self.push_match(first);
        let due = self.after(self.knobs.read);
        let is_read = length > 0 || self.knobs.reads_nothing;
        let state = if is_read { TransferState::ReadDue(due) } else { TransferState::FinDue(due) };
        self.transfers.push(Transfer {
            handle: entry.handle,
            queue_pair: message.queue_pair,
            remote: rvh,
            headers: message.head,
            completion: Some(second),
            after,
            state,
        });
        Verdict::Rendezvous
    }

    /// Puts TMH and RVH into the buffer: software reads the payload.
    fn incomplete(&mut self, whole: Completion, entry: &ModelEntry) -> Verdict {
        let length = HEADERS_BYTES as u64;
        if length > entry.length {
            self.overflow(whole, entry, length);
            return Verdict::Dropped;
        }
        let whole = Completion { status: WcStatus::RendezvousIncomplete, length, ..whole };
        if self.knobs.incomplete_in_two.draw(&mut self.random) {
            let (first, second) = split_match(whole);
            let after = self.push_match(first);
            let due = self.due_after(self.knobs.data);
            self.queues.push_data(due, second, after, false);
        } else {
            self.push_match(whole);
        }
        Verdict::Headers { handle: entry.handle, recv_wr_id: entry.recv_wr_id }
    }

    /// Ends the queue pair, since the message is longer than the buffer of the matched entry. On
    /// hardware the error completion names no entry. Here the match is reported, and its data
    /// completes with an error.
    fn overflow(&mut self, whole: Completion, entry: &ModelEntry, length: u64) {
        self.faults.record(Fault::BufferTooShort {
            handle: entry.handle,
            length,
            room: entry.length,
        });
        let (first, second) = split_match(Completion { status: WcStatus::Success, ..whole });
        let after = self.push_match(first);
        self.flush(Some(second), after);
        if let Some(queue_pair) = whole.queue_pair {
            self.fail(queue_pair, "more payload than the matched buffer holds");
        }
    }
}

/// Splits the completion of a match in two: the first has the tag, the second the data.
fn split_match(whole: Completion) -> (Completion, Completion) {
    let first = Completion { flags: WcFlags::MATCH, length: 0, immediate: None, ..whole };
    let tm_info = TmInfo::default();
    (first, Completion { flags: WcFlags::DATA_VALID, tm_info, ..whole })
}
