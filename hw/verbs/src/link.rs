//! A connection that stands, or is being made: a queue pair, and what is under way on it.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use tagmatch_rdma_core_sys as sys;

use super::credits::{Allowance, Grant};
use super::memory::SendBuffers;
use super::object::Qp;
use super::queued::Queued;
use super::read::Read;
use super::wire::Signal;
use tagmatch_device::{Outgoing, PeerId, Refused};

/// Places of the send queue that messages leave free: for signals, of which few are ever under way.
const RESERVED: u32 = 6;

/// What a work request under way holds.
enum Load {
    /// A send buffer.
    Buffer(u32),
    /// A part of the first read that isn't done.
    Read { is_last: bool },
}

/// What all peers share for sending.
pub(super) struct Outbox {
    pub(super) buffers: SendBuffers,
    /// Work requests under way, over all peers. Each may bring a completion, if only to say that it failed.
    pub(super) under_way: u32,
    /// So many completions there is room for.
    pub(super) under_way_max: u32,
}

impl Outbox {
    /// Whether there is room for the completion of another work request.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < self.under_way_max
    }
}

/// A queue pair, and what is under way on it.
pub(super) struct Link {
    // Before what the device may still reach: the pairs go first.
    /// What we send goes out here; and all that comes, comes in.
    pub(super) qp: Qp,
    /// What comes comes in here instead, if either's NIC matches tags: its send queue belongs to the NIC.
    pub(super) catch: Option<Qp>,
    /// Rendezvous requests whose FIN may come from the peer's NIC, without a credit: each has a small buffer
    /// standing for it.
    pub(super) fins: usize,
    pub(super) grant: Grant,
    pub(super) allowance: Allowance,
    /// The peer's longest message; 0 until it is known.
    pub(super) message_max: usize,
    /// READs that may be under way.
    pub(super) reads_max: u32,
    /// The longest message that a work request carries in itself.
    inline_max: usize,
    /// Work requests that the send queue holds.
    depth: u32,
    /// Work requests posted, and how many of these have ended. Both wrap.
    posted: u32,
    completed: u32,
    last_signalled: u32,
    loads: VecDeque<(u32, Load)>,
    /// Reads, in the order in which they were asked for; so they end, too.
    pub(super) reads: VecDeque<Read>,
    /// How many of them have been posted whole.
    pub(super) reads_posted: usize,
    /// READ requests under way.
    pub(super) reads_under_way: u32,
    /// A signal that the send queue had no place for.
    pub(super) owed: VecDeque<Signal>,
    /// The number of the peer's queue pair; 0 until it is known.
    pub(super) theirs: u32,
    /// Whether the peer's first word has come.
    pub(super) is_ready: bool,
    /// Since the last sweep: whether anything was sent, or heard.
    pub(super) has_sent: bool,
    pub(super) has_heard: bool,
    /// Since which sweep nothing was heard though something is under way.
    silent_since: Option<Instant>,
}

impl Link {
    pub(super) fn new(qp: Qp, catch: Option<Qp>, depth: u32) -> Self {
        Link {
            inline_max: qp.inline_max(),
            qp,
            catch,
            fins: 0,
            grant: Grant::new(),
            allowance: Allowance::new(),
            message_max: 0,
            reads_max: 1,
            depth,
            posted: 0,
            completed: 0,
            last_signalled: 0,
            loads: VecDeque::new(),
            reads: VecDeque::new(),
            reads_posted: 0,
            reads_under_way: 0,
            owed: VecDeque::new(),
            theirs: 0,
            is_ready: false,
            has_sent: false,
            has_heard: true,
            silent_since: None,
        }
    }

    /// Work requests that have not ended, as far as is known.
    pub(super) fn under_way(&self) -> u32 {
        self.posted.wrapping_sub(self.completed)
    }

    /// Whether a completion is to come without anything new being posted.
    fn has_signalled(&self) -> bool {
        let signalled = self.last_signalled.wrapping_sub(self.completed);
        signalled != 0 && signalled <= self.under_way()
    }

    /// Places of the send queue that are free for messages and READs.
    pub(super) fn room(&self) -> u32 {
        (self.depth - self.under_way()).saturating_sub(RESERVED)
    }

    /// Buffers of the receive queue that stand for this peer.
    pub(super) fn receives_needed(&self) -> usize {
        self.grant.outstanding()
            + usize::from(self.allowance.has_reserved)
            + usize::from(!self.is_ready)
    }

    /// Posts a work request.
    ///
    /// # Safety
    /// As for [`Qp::post_send`]; what `load` names is what the request may reach.
    unsafe fn post(
        &mut self,
        peer: PeerId,
        mut wr: sys::ibv_send_wr,
        parts: &mut [sys::ibv_sge],
        load: Option<Load>,
        outbox: &mut Outbox,
    ) -> io::Result<()> {
        let number = self.posted.wrapping_add(1);
        wr.wr_id = u64::from(peer.0) << 32 | u64::from(number);
        let unsignalled = number.wrapping_sub(self.last_signalled);
        let is_signalled = load.is_some()
            || wr.send_flags & sys::IBV_SEND_SIGNALED != 0
            || unsignalled >= self.depth / 4;
        if is_signalled {
            wr.send_flags |= sys::IBV_SEND_SIGNALED;
        }
        // SAFETY: handed on.
        unsafe { self.qp.post_send(&mut wr, parts) }?;
        self.posted = number;
        outbox.under_way += 1;
        if is_signalled {
            self.last_signalled = number;
        }
        if let Some(load) = load {
            self.loads.push_back((number, load));
        }
        Ok(())
    }

    /// Sends a message that there is a credit for, or refuses it.
    #[inline]
    pub(super) fn send(
        &mut self,
        peer: PeerId,
        message: Outgoing<'_>,
        outbox: &mut Outbox,
    ) -> Result<io::Result<()>, Refused> {
        if self.room() == 0 || !outbox.has_room() {
            return Err(Refused::Full);
        }
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.opcode = sys::IBV_WR_SEND;
        if let Some(immediate) = message.immediate {
            wr.opcode = sys::IBV_WR_SEND_WITH_IMM;
            wr.imm_data = immediate.to_be();
        }
        let posted = self
            .post_bytes(peer, wr, message.header, message.payload, outbox)
            .ok_or(Refused::Full)?;
        if posted.is_ok() {
            self.allowance.spend();
            self.has_sent = true;
        }
        Ok(posted)
    }

    /// Posts a request that sends bytes: carried in it, or out of a buffer. `None` if none is free.
    #[inline]
    fn post_bytes(
        &mut self,
        peer: PeerId,
        mut wr: sys::ibv_send_wr,
        header: &[u8],
        payload: &[u8],
        outbox: &mut Outbox,
    ) -> Option<io::Result<()>> {
        if header.len() + payload.len() <= self.inline_max {
            wr.send_flags |= sys::IBV_SEND_INLINE;
            let mut parts = [inline_part(header), inline_part(payload)];
            let first = usize::from(header.is_empty());
            let end = 2 - usize::from(payload.is_empty());
            // SAFETY: what is carried inline is copied by the call.
            return Some(unsafe {
                self.post(peer, wr, &mut parts[first.min(end)..end], None, outbox)
            });
        }
        let (at, part) = outbox.buffers.fill(header, payload)?;
        // SAFETY: the buffer is registered, and not used again until the request has ended.
        let posted = unsafe { self.post(peer, wr, &mut [part], Some(Load::Buffer(at)), outbox) };
        if posted.is_err() {
            outbox.buffers.give_back(at);
        }
        Some(posted)
    }

    /// Tells the peer's device something, at once or as soon as there is a place.
    pub(super) fn signal(
        &mut self,
        peer: PeerId,
        signal: Signal,
        outbox: &mut Outbox,
    ) -> io::Result<()> {
        self.owed.push_back(signal);
        self.send_owed(peer, outbox)
    }

    /// Sends the signals for which there was no place.
    pub(super) fn send_owed(&mut self, peer: PeerId, outbox: &mut Outbox) -> io::Result<()> {
        while self.under_way() < self.depth
            && let Some(signal) = self.owed.front().copied()
        {
            let mut wr = sys::ibv_send_wr::zeroed();
            if signal == Signal::Bye {
                wr.send_flags = sys::IBV_SEND_SIGNALED;
            }
            if self.catch.is_some() {
                wr.opcode = sys::IBV_WR_SEND;
                let Some(posted) = self.post_bytes(peer, wr, &signal.message(), &[], outbox) else {
                    return Ok(());
                };
                posted?;
            } else {
                wr.opcode = sys::IBV_WR_RDMA_WRITE_WITH_IMM;
                wr.imm_data = signal.emit().to_be();
                // SAFETY: no memory is named.
                unsafe { self.post(peer, wr, &mut [], None, outbox) }?;
            }
            self.owed.pop_front();
        }
        Ok(())
    }

    /// The numbers of its queue pairs.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        [Some(self.qp.number()), self.catch.as_ref().map(Qp::number)].into_iter().flatten()
    }

    /// Ends all transfers, either way.
    pub(super) fn fail(&self) {
        self.qp.fail();
        if let Some(catch) = &self.catch {
            catch.fail();
        }
    }

    /// Asks the peer's device, not its processor, whether it is there: a write of no bytes.
    pub(super) fn probe(&mut self, peer: PeerId, outbox: &mut Outbox) -> io::Result<()> {
        if self.under_way() >= self.depth {
            return Ok(());
        }
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.opcode = sys::IBV_WR_RDMA_WRITE;
        wr.send_flags = sys::IBV_SEND_SIGNALED;
        // SAFETY: no memory is named.
        unsafe { self.post(peer, wr, &mut [], None, outbox) }
    }

    /// Whether there are reads that were not asked for in whole.
    pub(super) fn has_reads_to_push(&self) -> bool {
        self.reads_posted < self.reads.len()
    }

    /// Posts a READ request for a part of the next read.
    ///
    /// # Safety
    /// `part` is of that read's registered buffer, which is kept until the request has ended or the pair
    /// is gone.
    pub(super) unsafe fn post_read(
        &mut self,
        peer: PeerId,
        part: sys::ibv_sge,
        remote: sys::ibv_send_wr_rdma,
        is_last: bool,
        outbox: &mut Outbox,
    ) -> io::Result<()> {
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.opcode = sys::IBV_WR_RDMA_READ;
        wr.wr.rdma = remote;
        let load = Load::Read { is_last };
        // SAFETY: handed on.
        unsafe { self.post(peer, wr, &mut [part], Some(load), outbox) }?;
        self.reads_under_way += 1;
        Ok(())
    }

    /// The request of this number has succeeded, and all before it.
    pub(super) fn end_until(
        &mut self,
        number: u32,
        outbox: &mut Outbox,
        events: &mut VecDeque<Queued>,
    ) {
        if number.wrapping_sub(self.completed) > self.under_way() {
            return;
        }
        while let Some((at, _)) = self.loads.front()
            && at.wrapping_sub(self.completed) <= number.wrapping_sub(self.completed)
            && let Some((at, load)) = self.loads.pop_front()
        {
            self.complete(at, outbox);
            match load {
                Load::Buffer(buffer) => outbox.buffers.give_back(buffer),
                Load::Read { is_last } => {
                    self.reads_under_way -= 1;
                    if is_last && let Some(read) = self.reads.pop_front() {
                        self.reads_posted -= 1;
                        events.push_back(read.end(Ok(())));
                    }
                }
            }
        }
        self.complete(number, outbox);
    }

    /// Whether the first request that has not ended is this one, and a READ.
    pub(super) fn is_read(&self, number: u32) -> bool {
        matches!(self.loads.front(), Some((at, Load::Read { .. })) if *at == number)
    }

    /// Whether no request was posted after this one.
    pub(super) fn is_last(&self, number: u32) -> bool {
        self.posted == number
    }

    /// To be called at intervals: tries a connection that was silent, and gives credits back that were not
    /// used.
    ///
    /// # Errors
    /// `ETIMEDOUT` if a request should have ended by now: for `patience` nothing came back, though the device
    /// was to give up before. Soft-RoCE can forget to, when its link goes down or if it is to retry 7 times.
    pub(super) fn sweep(
        &mut self,
        peer: PeerId,
        now: Instant,
        patience: Duration,
        outbox: &mut Outbox,
    ) -> io::Result<()> {
        let (had_sent, had_heard) = (self.has_sent, self.has_heard);
        (self.has_sent, self.has_heard) = (false, false);
        if !had_sent && self.allowance.can_release() && self.under_way() < self.depth {
            self.allowance.release();
            self.signal(peer, Signal::Release, outbox)?;
        }
        if had_heard {
            self.silent_since = None;
            return Ok(());
        }
        if !self.has_signalled() {
            self.probe(peer, outbox)?;
        }
        if now.duration_since(*self.silent_since.get_or_insert(now)) > patience {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        Ok(())
    }

    fn complete(&mut self, number: u32, outbox: &mut Outbox) {
        outbox.under_way -= number.wrapping_sub(self.completed);
        self.completed = number;
    }

    /// Ends the queue pair, so that the device reaches nothing of ours any more, then gives back what
    /// was under way: the reads.
    pub(super) fn end(self, outbox: &mut Outbox) -> VecDeque<Read> {
        outbox.under_way -= self.under_way();
        let Link { qp, catch, loads, reads, .. } = self;
        drop((qp, catch));
        for (_, load) in loads {
            if let Load::Buffer(buffer) = load {
                outbox.buffers.give_back(buffer);
            }
        }
        reads
    }
}

fn inline_part(bytes: &[u8]) -> sys::ibv_sge {
    sys::ibv_sge {
        addr: bytes.as_ptr().expose_provenance() as u64,
        length: u32::try_from(bytes.len()).unwrap_or(0),
        lkey: 0,
    }
}
