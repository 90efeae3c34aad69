//! A queue pair: its state, and the rules of `ibv_modify_qp(3)`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tagmatch_model::Handle;

use super::connection::Wired;
use super::fabric::UnderWay;
use super::packet::Request;
use super::receive_queue::Rq;
use crate::abi::{ModifyQp, qp_mask};
use crate::wqe::{RemoteAddress, Segment};

/// `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Reset = 0,
    Init = 1,
    ReadyToReceive = 2,
    ReadyToSend = 3,
    Drained = 4,
    SendError = 5,
    Error = 6,
}

impl State {
    pub(crate) fn parse(number: u8) -> Option<Self> {
        use State::*;
        [Reset, Init, ReadyToReceive, ReadyToSend, Drained, SendError, Error]
            .into_iter()
            .find(|state| *state as u8 == number)
    }
}

/// `enum ibv_qp_type`, as far as the device has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Reliable,
    Datagram,
}

/// Where received messages go.
#[derive(Clone, Debug)]
pub(crate) enum Receives {
    Own(Rq),
    Shared(u32),
}

impl Receives {
    /// Receives that the queue pair's own queue has room for.
    pub(crate) fn size(&self) -> Option<u32> {
        match self {
            Receives::Own(queue) => Some(queue.size()),
            Receives::Shared(_) => None,
        }
    }
}

/// The send queue.
#[derive(Clone, Debug)]
pub(crate) struct Sq {
    pub(crate) at: u64,
    /// Blocks: a power of two, or 0.
    pub(crate) size: u32,
    /// The number of the next block.
    pub(crate) next: u16,
    pub(crate) posted: u16,
}

/// What the end of a request is reported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The program's request, if this is its last part.
    Wqe { index: u16, opcode: u8, length: u32, is_signalled: bool, is_last: bool },
    /// A READ of the device into the buffer of an entry.
    TagRead { handle: Handle, is_last: bool },
    /// The message that ends a rendezvous.
    TagFin { handle: Handle },
}

/// A request that was sent and has not ended.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) psn: u32,
    /// Numbers that it takes up: one inside this command, and one for each packet on a network.
    pub(crate) span: u32,
    /// Packets of the answer that have come over a network.
    pub(crate) received: u32,
    pub(crate) request: Request,
    pub(crate) ends: Ends,
    pub(crate) into: AnswerRoom,
    /// READs and atomic operations that were under way with this one, if it is one.
    pub(crate) reads: u8,
    pub(crate) is_done: bool,
    pub(crate) _under_way: UnderWay,
}

/// Where the answer of a request goes: segments, and how much of them is skipped.
#[derive(Debug, Default)]
pub(crate) struct AnswerRoom {
    pub(crate) segments: Vec<Segment>,
    pub(crate) offset: u64,
}

/// A request of the program that is sent in parts.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) index: u16,
    pub(crate) opcode: u8,
    pub(crate) remote: RemoteAddress,
    /// The program's memory, or the bytes of the request itself.
    pub(crate) segments: Vec<Segment>,
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) length: u32,
    pub(crate) done: u32,
    pub(crate) is_read: bool,
    pub(crate) immediate: Option<u32>,
    pub(crate) is_solicited: bool,
    pub(crate) is_signalled: bool,
}

/// What the device itself does on a queue pair, for its list of tags.
#[derive(Clone, Debug)]
pub(crate) enum TagRequest {
    Read { handle: Handle, remote: RemoteAddress, into: Segment, length: u32, done: u32 },
    Fin { handle: Handle, bytes: Vec<u8> },
}

/// What the program has set by `ibv_modify_qp(3)`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes(pub(crate) ModifyQp);

impl Attributes {
    /// Takes over what a command sets.
    fn merge(&mut self, from: &ModifyQp) {
        let to = &mut self.0;
        let has = |bit| from.attr_mask & bit != 0;
        macro_rules! take {
            ($($bit:ident: $($field:ident),*;)*) => {
                $(if has(qp_mask::$bit) { $(to.$field = from.$field;)* })*
            };
        }
        take! {
            ACCESS_FLAGS: qp_access_flags;
            PKEY_INDEX: pkey_index;
            PORT: port_num;
            QKEY: qkey;
            AV: dest;
            PATH_MTU: path_mtu;
            TIMEOUT: timeout;
            RETRY_CNT: retry_cnt;
            RNR_RETRY: rnr_retry;
            RQ_PSN: rq_psn;
            MAX_QP_RD_ATOMIC: max_rd_atomic;
            ALT_PATH: alt_dest, alt_pkey_index, alt_port_num, alt_timeout;
            MIN_RNR_TIMER: min_rnr_timer;
            SQ_PSN: sq_psn;
            MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
            PATH_MIG_STATE: path_mig_state;
            DEST_QPN: dest_qp_num;
        }
    }

    /// Bytes of a packet: `IBV_MTU_256` is 1.
    pub(crate) fn mtu(&self) -> u16 {
        128 << self.0.path_mtu.clamp(1, 5)
    }

    /// READs and atomic operations that the peer may have under way: `mlx5_ib_modify_qp` rounds up
    /// to a power of two.
    pub(crate) fn reads_taken(&self) -> u8 {
        self.0.max_dest_rd_atomic.checked_next_power_of_two().unwrap_or(u8::MAX)
    }

    /// How long an answer is waited for; `None`: for ever. A real device is never so slow as a
    /// program's part of this one that gets no processor, so short times are longer here.
    pub(crate) fn answer_time(&self) -> Option<Duration> {
        const AT_LEAST: Duration = Duration::from_millis(100);
        let exponent = u32::from(self.0.timeout & 31);
        (exponent > 0).then(|| Duration::from_nanos(4096 << exponent).max(AT_LEAST))
    }
}

/// How long a sender waits after a peer had no buffer, by its 5 bits: InfiniBand's table 45.
pub(crate) fn not_ready_time(timer: u8) -> Duration {
    const HUNDREDTHS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(u64::from(HUNDREDTHS[usize::from(timer & 31)]) * 10)
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpFacts {
    pub(crate) number: u32,
    pub(crate) context: i32,
    /// The device's port, by the LID that it had at first.
    pub(crate) lid: u16,
    pub(crate) pd: u32,
    pub(crate) transport: Transport,
    pub(crate) user_handle: u64,
    pub(crate) user_index: u32,
    pub(crate) record: u64,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    /// Short messages go into the completion.
    pub(crate) scatters_to_cqe: bool,
    pub(crate) signals_all: bool,
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline: u32,
    pub(crate) pages: u64,
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) facts: QpFacts,
    pub(crate) state: State,
    pub(crate) attributes: Attributes,
    /// The port of the peer: the LID that packets carry.
    pub(crate) to_lid: u16,
    /// The connection to a peer at the other end of a network.
    pub(crate) wire: Option<Box<Wired>>,
    pub(crate) sq: Sq,
    pub(crate) receives: Receives,
    pub(crate) async_events: u32,
    /// The number of the next request.
    pub(crate) psn: u32,
    pub(crate) outstanding: VecDeque<Outstanding>,
    pub(crate) parts: Option<Parts>,
    pub(crate) tag_requests: VecDeque<TagRequest>,
    /// When outstanding requests are sent again: the peer was not ready.
    pub(crate) resend_at: Option<Instant>,
    /// When the peer has not answered in time.
    pub(crate) deadline: Option<Instant>,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    /// The number of the request that comes next from the peer.
    pub(crate) expected: u32,
    /// The peer was told to send that one again: what comes before it is dropped in silence.
    pub(crate) is_missing_said: bool,
    /// Old values of the last atomic operations, for a peer that asks again.
    pub(crate) atomics: VecDeque<(u32, u64)>,
    /// Bytes that were written so far by a WRITE in parts.
    pub(crate) is_flushed: bool,
    /// The program waits for the send queue to drain.
    pub(crate) tells_drained: bool,
}

/// Why a queue pair can't be changed so: an error number.
pub(crate) type Errno = i32;

/// Attributes that a change of state needs, and others that it allows: `qp_state_table` of the
/// kernel's `drivers/infiniband/core/verbs.c`. `None`: there is no such change.
fn rules(transport: Transport, from: State, to: State) -> Option<(u32, u32)> {
    use State::*;
    use qp_mask::*;
    let is_reliable = transport == Transport::Reliable;
    Some(match (from, to) {
        (_, Reset | Error) => (0, 0),
        (Reset, Init) if is_reliable => (PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
        (Reset, Init) => (PKEY_INDEX | PORT | QKEY, 0),
        (Init, Init) if is_reliable => (0, PKEY_INDEX | PORT | ACCESS_FLAGS),
        (Init, Init) => (0, PKEY_INDEX | PORT | QKEY),
        (Init, ReadyToReceive) if is_reliable => (
            AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
            ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
        ),
        (Init, ReadyToReceive) => (0, PKEY_INDEX | QKEY),
        (ReadyToReceive, ReadyToSend) if is_reliable => (
            TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC,
            CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE,
        ),
        (ReadyToReceive, ReadyToSend) => (SQ_PSN, CUR_STATE | QKEY),
        (ReadyToSend, ReadyToSend) | (Drained, ReadyToSend) if is_reliable => {
            (0, CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE | MIN_RNR_TIMER)
        }
        (ReadyToSend | Drained | SendError, ReadyToSend) => (0, CUR_STATE | QKEY),
        (ReadyToSend, Drained) => (0, EN_SQD_ASYNC_NOTIFY),
        (Drained, Drained) if is_reliable => (
            0,
            PORT | AV
                | TIMEOUT
                | RETRY_CNT
                | RNR_RETRY
                | MAX_QP_RD_ATOMIC
                | MAX_DEST_RD_ATOMIC
                | ALT_PATH
                | ACCESS_FLAGS
                | PKEY_INDEX
                | MIN_RNR_TIMER
                | PATH_MIG_STATE,
        ),
        (Drained, Drained) => (0, PKEY_INDEX | QKEY),
        _ => return None,
    })
}

impl Qp {
    pub(crate) fn new(facts: QpFacts, sq: Sq, receives: Receives) -> Self {
        Qp {
            facts,
            state: State::Reset,
            attributes: Attributes::default(),
            to_lid: 0,
            wire: None,
            sq,
            receives,
            async_events: 0,
            psn: 0,
            outstanding: VecDeque::new(),
            parts: None,
            tag_requests: VecDeque::new(),
            resend_at: None,
            deadline: None,
            retries: 0,
            rnr_retries: 0,
            expected: 0,
            is_missing_said: false,
            atomics: VecDeque::new(),
            is_flushed: false,
            tells_drained: false,
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.facts.number
    }

    /// The program's record: receives and blocks of the send queue posted. The latter count
    /// once the program has rung.
    pub(crate) fn hear_record(&mut self, [receives, sends]: [u32; 2], has_rung: bool) {
        if let Receives::Own(queue) = &mut self.receives {
            queue.hear(receives);
        }
        if has_rung {
            self.sq.posted = (sends & 0xffff) as u16;
        }
    }

    /// Whether messages of a peer are taken.
    pub(crate) fn receives_now(&self) -> bool {
        use State::*;
        matches!(self.state, ReadyToReceive | ReadyToSend | Drained | SendError)
    }

    /// The state that a command leads to, if the kernel allows the command.
    pub(crate) fn next_state(&self, change: &ModifyQp) -> Result<State, Errno> {
        let mask = change.attr_mask;
        let from = match mask & qp_mask::CUR_STATE {
            0 => self.state,
            _ => State::parse(change.cur_qp_state).ok_or(libc::EINVAL)?,
        };
        let to = match mask & qp_mask::STATE {
            0 => from,
            _ => State::parse(change.qp_state).ok_or(libc::EINVAL)?,
        };
        let (needed, allowed) = rules(self.facts.transport, from, to).ok_or(libc::EINVAL)?;
        let all = needed | allowed | qp_mask::STATE | qp_mask::CUR_STATE;
        let is_whole = mask & needed == needed && mask & !all == 0;
        // mlx5_ib_modify_qp: the port, the partition's key, and reads at once.
        let is_valid = (mask & qp_mask::PORT == 0 || change.port_num == 1)
            && (mask & qp_mask::PKEY_INDEX == 0 || change.pkey_index < 128)
            && (mask & qp_mask::MAX_QP_RD_ATOMIC == 0 || change.max_rd_atomic <= 16)
            && (mask & qp_mask::MAX_DEST_RD_ATOMIC == 0 || change.max_dest_rd_atomic <= 16)
            && (mask & qp_mask::PATH_MTU == 0 || (1..=5).contains(&change.path_mtu));
        if is_whole && is_valid { Ok(to) } else { Err(libc::EINVAL) }
    }

    /// Takes over the attributes of a change, and the state but for what the end of the queue pair
    /// flushes.
    pub(crate) fn change(&mut self, change: &ModifyQp, to: State) {
        self.attributes.merge(change);
        match to {
            State::Reset => self.reset(),
            State::ReadyToReceive => self.expected = self.attributes.0.rq_psn & 0xff_ffff,
            State::ReadyToSend if self.state == State::ReadyToReceive => {
                self.psn = self.attributes.0.sq_psn & 0xff_ffff;
                self.retries = self.attributes.0.retry_cnt;
                self.rnr_retries = self.attributes.0.rnr_retry;
                if let Some(wire) = &mut self.wire {
                    wire.start(self.psn);
                }
            }
            State::Drained => {
                self.tells_drained = change.attr_mask & qp_mask::EN_SQD_ASYNC_NOTIFY != 0
                    && change.en_sqd_async_notify != 0;
            }
            _ => {}
        }
        self.state = to;
    }

    fn reset(&mut self) {
        self.outstanding.clear();
        self.wire = None;
        self.parts = None;
        self.tag_requests.clear();
        (self.resend_at, self.deadline) = (None, None);
        self.atomics.clear();
        self.is_missing_said = false;
        self.is_flushed = false;
        (self.sq.next, self.sq.posted) = (0, 0);
        if let Receives::Own(queue) = &mut self.receives {
            queue.reset();
        }
    }
}
