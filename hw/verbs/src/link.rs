//! A connection that is up or is being set up: its queue pairs and the work requests on them.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use tagmatch_device::{CopiedReads, Event, Outgoing, Refused};
use tagmatch_rdma_core_sys as sys;

use super::credits::{Allowance, Grant};
use super::memory::{Receives, SendBuffers};
use super::object::Qp;
use super::read::Read;
use super::silence::Silence;
use super::wire::Signal;

/// Entries of the send queue that messages and READs leave free for signals. Only a few signals are
/// ever under way at a time.
const RESERVED: u32 = 6;

/// The resource that a work request uses until it completes.
enum Resource {
    /// A send buffer.
    Buffer(u32),
    /// A part of the oldest read that isn't done.
    Read { is_last: bool },
}

/// The resources for sending that all peers share.
pub(super) struct Outbox {
    pub(super) buffers: SendBuffers,
    /// Work requests under way, over all peers. Each may produce a completion, if only to report a
    /// failure.
    pub(super) under_way: u32,
    /// The number of completions that the completion queue reserves for work requests.
    pub(super) under_way_max: u32,
}

impl Outbox {
    /// Whether there is room for the completion of another work request.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < self.under_way_max
    }
}

/// A connection's queue pairs, with the work requests and reads under way on them.
pub(super) struct Link {
    /// The index of the peer, which the `wr_id` of each work request has.
    pub(super) index: usize,
    // Drop order: the queue pairs must be destroyed before the memory that the device may still
    // access.
    /// The queue pair that sends. It also receives, unless there is a `receive_qp`.
    pub(super) qp: Qp,
    /// A second queue pair that receives, present if either side's NIC matches tags: such a NIC
    /// owns the send queue of the queue pair on which it receives.
    pub(super) receive_qp: Option<Qp>,
    /// Buffers that are exposed to the peer, whose NIC may send a FIN for each. A NIC sends FINs
    /// without a credit, so a small receive buffer is posted for each.
    pub(super) fins: usize,
    pub(super) grant: Grant,
    pub(super) allowance: Allowance,
    /// The longest message that the peer receives, in bytes; 0 until it is known.
    pub(super) message_max: usize,
    /// READ requests that may be under way at a time.
    pub(super) reads_max: u32,
    /// The longest message that a work request can carry inline, in bytes.
    inline_max: usize,
    /// Work requests that the send queue can hold.
    depth: u32,
    /// Work requests posted and completed so far. Both counters wrap.
    posted: u32,
    completed: u32,
    last_signalled: u32,
    /// The newest run of work requests that are no messages: the request before the run, and its
    /// last one.
    without_message: (u32, u32),
    resources: VecDeque<(u32, Resource)>,
    /// Reads, in the order of their requests. They also end in this order.
    pub(super) reads: VecDeque<Read>,
    /// How many of `reads` have had all their READ requests posted.
    pub(super) reads_posted: usize,
    /// READ requests under way.
    pub(super) reads_under_way: u32,
    /// Reads of memory that isn't registered, in both directions.
    pub(super) copied: CopiedReads,
    /// Signals that wait for room in the send queue.
    pub(super) pending_signals: VecDeque<Signal>,
    /// The number of the peer's sending queue pair; 0 until it is known.
    pub(super) remote_qp_num: u32,
    /// Whether the peer's ready signal has arrived.
    pub(super) is_ready: bool,
    /// Whether anything was sent, or received, since the last sweep.
    pub(super) has_sent: bool,
    pub(super) has_received: bool,
    silence: Silence,
}

impl Link {
    /// A connection of no peer yet.
    pub(super) fn new(qp: Qp, receive_qp: Option<Qp>, depth: u32) -> Self {
        Link {
            index: 0,
            inline_max: qp.inline_max(),
            qp,
            receive_qp,
            fins: 0,
            grant: Grant::new(),
            allowance: Allowance::new(),
            message_max: 0,
            reads_max: 1,
            depth,
            posted: 0,
            completed: 0,
            last_signalled: 0,
            without_message: (0, 0),
            resources: VecDeque::new(),
            reads: VecDeque::new(),
            reads_posted: 0,
            reads_under_way: 0,
            copied: CopiedReads::default(),
            pending_signals: VecDeque::new(),
            remote_qp_num: 0,
            is_ready: false,
            has_sent: false,
            has_received: true,
            silence: Silence::default(),
        }
    }

    /// Work requests that have not completed as far as is known. Unsignalled ones count until a
    /// later request completes.
    pub(super) fn under_way(&self) -> u32 {
        self.posted.wrapping_sub(self.completed)
    }

    /// Whether a signalled work request is under way, so that a completion will come without
    /// posting anything new.
    fn has_signalled(&self) -> bool {
        let signalled = self.last_signalled.wrapping_sub(self.completed);
        signalled != 0 && signalled <= self.under_way()
    }

    /// Notes that the newest work request is no message.
    fn note_without_message(&mut self) {
        let before = self.posted.wrapping_sub(1);
        if self.without_message.1 != before {
            self.without_message.0 = before;
        }
        self.without_message.1 = self.posted;
    }

    /// The number of the newest message, or of a request after it that has completed.
    fn last_message(&self) -> u32 {
        if self.without_message.1 == self.posted { self.without_message.0 } else { self.posted }
    }

    /// How many work requests, up to this one, are under way as far as is known.
    fn left_of(&self, number: u32) -> u32 {
        let left = number.wrapping_sub(self.completed);
        if left <= self.under_way() { left } else { 0 }
    }

    /// How many messages the peer's device has not acknowledged, as far as is known. Unsignalled
    /// ones count until a later request completes.
    pub(super) fn unacknowledged(&self) -> usize {
        self.left_of(self.last_message()) as usize
    }

    /// See [`Device::flush`](tagmatch_device::Device::flush). Returns how many messages the peer's
    /// device has not acknowledged. Posts a signalled request if none after the last message is
    /// under way: its completion tells of all earlier ones.
    pub(super) fn flush(
        &mut self,
        mark: &mut Option<u64>,
        outbox: &mut Outbox,
    ) -> io::Result<usize> {
        let mark = *mark.get_or_insert(self.last_message().into());
        let left = self.left_of(u32::try_from(mark).unwrap_or(0));
        let signalled = self.last_signalled.wrapping_sub(self.completed);
        let is_signalled = (left..=self.under_way()).contains(&signalled);
        if left > 0 && !is_signalled {
            self.probe(outbox)?;
        }
        Ok(left as usize)
    }

    /// Free entries of the send queue that messages and READs may use.
    pub(super) fn room(&self) -> u32 {
        (self.depth - self.under_way()).saturating_sub(RESERVED)
    }

    /// Receive buffers that must be posted for this peer.
    pub(super) fn receives_needed(&self) -> usize {
        self.grant.outstanding()
            + usize::from(self.allowance.has_reserved)
            + usize::from(!self.is_ready)
    }

    /// Posts a work request. `resource` names the resource that it uses.
    ///
    /// # Safety
    /// As for [`Qp::post_send`]. Memory that the request accesses must stay valid until `resource`
    /// is released.
    unsafe fn post(
        &mut self,
        mut wr: sys::ibv_send_wr,
        parts: &mut [sys::ibv_sge],
        resource: Option<Resource>,
        outbox: &mut Outbox,
    ) -> io::Result<()> {
        let number = self.posted.wrapping_add(1);
        wr.wr_id = (self.index as u64) << 32 | u64::from(number);
        let unsignalled = number.wrapping_sub(self.last_signalled);
        let is_signalled = resource.is_some()
            || wr.send_flags & sys::IBV_SEND_SIGNALED != 0
            || unsignalled >= self.depth / 4;
        if is_signalled {
            wr.send_flags |= sys::IBV_SEND_SIGNALED;
        }
        // SAFETY: the caller's promise.
        unsafe { self.qp.post_send(&mut wr, parts) }?;
        self.posted = number;
        outbox.under_way += 1;
        if is_signalled {
            self.last_signalled = number;
        }
        if let Some(resource) = resource {
            self.resources.push_back((number, resource));
        }
        Ok(())
    }

    /// Whether half of the send queue is free.
    pub(super) fn has_half_free(&self) -> bool {
        self.room() > self.depth / 2
    }

    /// Sends a message that isn't too long for the peer. Refuses it if there is no credit for it or
    /// a queue is full.
    #[inline]
    pub(super) fn send(
        &mut self,
        message: Outgoing<'_>,
        receives: &mut Receives,
        outbox: &mut Outbox,
    ) -> Result<io::Result<()>, Refused> {
        if !self.allowance.is_open() {
            return Err(Refused::Full);
        }
        if self.allowance.needs_reserve() {
            // No memory for a buffer now. The caller can try again later.
            receives.need(1).map_err(|_| Refused::Full)?;
            self.allowance.has_reserved = true;
        }
        if self.room() == 0 || !outbox.has_room() {
            return Err(Refused::Full);
        }
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.opcode = sys::IBV_WR_SEND;
        if let Some(immediate) = message.immediate {
            wr.opcode = sys::IBV_WR_SEND_WITH_IMM;
            wr.imm_data = immediate.to_be();
        }
        let posted =
            self.post_bytes(wr, message.header, message.payload, outbox).ok_or(Refused::Full)?;
        if posted.is_ok() {
            self.allowance.spend();
            self.has_sent = true;
        }
        Ok(posted)
    }

    /// Posts a request that sends bytes, inline if they fit, else from a send buffer. Returns
    /// `None` if no send buffer is free.
    #[inline]
    fn post_bytes(
        &mut self,
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
            // SAFETY: ibv_post_send copies inline data before it returns.
            return Some(unsafe { self.post(wr, &mut parts[first.min(end)..end], None, outbox) });
        }
        let (at, part) = outbox.buffers.fill(header, payload)?;
        // SAFETY: the buffer is registered and isn't reused until the request has completed.
        let posted = unsafe { self.post(wr, &mut [part], Some(Resource::Buffer(at)), outbox) };
        if posted.is_err() {
            outbox.buffers.give_back(at);
        }
        Some(posted)
    }

    /// Sends a signal to the peer's device, now or as soon as the send queue has room.
    pub(super) fn signal(&mut self, signal: Signal, outbox: &mut Outbox) -> io::Result<()> {
        self.pending_signals.push_back(signal);
        self.send_pending_signals(outbox)
    }

    /// Sends the waiting signals, as far as the send queue has room.
    pub(super) fn send_pending_signals(&mut self, outbox: &mut Outbox) -> io::Result<()> {
        while self.under_way() < self.depth
            && let Some(signal) = self.pending_signals.front().copied()
        {
            let mut wr = sys::ibv_send_wr::zeroed();
            if signal == Signal::Leave {
                wr.send_flags = sys::IBV_SEND_SIGNALED;
            }
            if self.receive_qp.is_some() {
                wr.opcode = sys::IBV_WR_SEND;
                let Some(posted) = self.post_bytes(wr, &signal.message(), &[], outbox) else {
                    return Ok(());
                };
                posted?;
            } else {
                wr.opcode = sys::IBV_WR_RDMA_WRITE_WITH_IMM;
                wr.imm_data = signal.emit().to_be();
                // SAFETY: no memory is named.
                unsafe { self.post(wr, &mut [], None, outbox) }?;
            }
            self.note_without_message();
            self.pending_signals.pop_front();
        }
        Ok(())
    }

    /// How many send buffers its work requests use.
    pub(super) fn buffers(&self) -> usize {
        let is_buffer = |(_, resource): &&(u32, Resource)| matches!(resource, Resource::Buffer(_));
        self.resources.iter().filter(is_buffer).count()
    }

    /// For tests: an error in the books, if there is one.
    pub(super) fn error(&self) -> Option<&'static str> {
        let reading = self.resources.len() - self.buffers();
        if self.reads_under_way as usize != reading {
            return Some("READ requests are miscounted");
        }
        if self.reads_posted > self.reads.len() {
            return Some("more reads are posted than there are");
        }
        let is_left = |number: &u32| self.left_of(*number) > 0;
        let are_left = self.resources.iter().map(|(number, _)| number).all(is_left);
        (!are_left).then_some("a work request has completed, and keeps its buffer")
    }

    /// The numbers of this side's queue pairs.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        [Some(self.qp.number()), self.receive_qp.as_ref().map(Qp::number)].into_iter().flatten()
    }

    /// Moves the queue pairs to the error state, which ends all transfers in both directions.
    pub(super) fn fail(&self) {
        self.qp.fail();
        if let Some(receive_qp) = &self.receive_qp {
            receive_qp.fail();
        }
    }

    /// Tests the connection by an RDMA write of zero bytes. The peer's NIC acknowledges it without
    /// its CPU.
    pub(super) fn probe(&mut self, outbox: &mut Outbox) -> io::Result<()> {
        if self.under_way() >= self.depth {
            return Ok(());
        }
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.opcode = sys::IBV_WR_RDMA_WRITE;
        wr.send_flags = sys::IBV_SEND_SIGNALED;
        // SAFETY: no memory is named.
        unsafe { self.post(wr, &mut [], None, outbox) }?;
        self.note_without_message();
        Ok(())
    }

    /// Whether a read has parts for which no READ request was posted yet.
    pub(super) fn has_reads_to_push(&self) -> bool {
        self.reads_posted < self.reads.len()
    }

    /// Posts a READ request for a part of the next read.
    ///
    /// # Safety
    /// `part` lies in that read's registered buffer, which is kept until the request has completed
    /// or the queue pair is destroyed.
    pub(super) unsafe fn post_read(
        &mut self,
        part: sys::ibv_sge,
        remote: sys::ibv_send_wr_rdma,
        is_last: bool,
        outbox: &mut Outbox,
    ) -> io::Result<()> {
        let mut wr = sys::ibv_send_wr::zeroed();
        wr.opcode = sys::IBV_WR_RDMA_READ;
        wr.wr.rdma = remote;
        let resource = Resource::Read { is_last };
        // SAFETY: the caller's promise.
        unsafe { self.post(wr, &mut [part], Some(resource), outbox) }?;
        self.note_without_message();
        self.reads_under_way += 1;
        Ok(())
    }

    /// The request of this number has succeeded, and with it all earlier ones.
    pub(super) fn end_until(
        &mut self,
        number: u32,
        outbox: &mut Outbox,
        events: &mut VecDeque<Event<'static>>,
    ) {
        if number.wrapping_sub(self.completed) > self.under_way() {
            return;
        }
        while let Some((at, _)) = self.resources.front()
            && at.wrapping_sub(self.completed) <= number.wrapping_sub(self.completed)
            && let Some((at, resource)) = self.resources.pop_front()
        {
            self.complete(at, outbox);
            match resource {
                Resource::Buffer(buffer) => outbox.buffers.give_back(buffer),
                Resource::Read { is_last } => {
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

    /// Whether the oldest request that uses a resource is this one, and is a READ.
    pub(super) fn is_read(&self, number: u32) -> bool {
        matches!(self.resources.front(), Some((at, Resource::Read { .. })) if *at == number)
    }

    /// Whether this is the newest request.
    pub(super) fn is_last(&self, number: u32) -> bool {
        self.posted == number
    }

    /// Must be called at intervals of [`VerbsConfig::keepalive`](super::VerbsConfig::keepalive).
    /// Tests a silent connection and gives back unused credits.
    ///
    /// # Errors
    /// `ETIMEDOUT` if nothing was received for `silence_max` although requests are under way. The
    /// device should have reported an error before that. Soft-RoCE may not do so when its network
    /// interface goes down, or when `retry_count` is 7.
    pub(super) fn sweep(
        &mut self,
        now: Instant,
        silence_max: Duration,
        outbox: &mut Outbox,
    ) -> io::Result<()> {
        let had_sent = self.has_sent;
        let had_heard = self.has_received;
        (self.has_sent, self.has_received) = (false, false);
        if !had_sent && self.allowance.can_release() && self.under_way() < self.depth {
            self.allowance.release();
            self.signal(Signal::Release, outbox)?;
        }
        let silent_for = self.silence.look(had_heard, now);
        if !had_heard && !self.has_signalled() {
            self.probe(outbox)?;
        }
        if silent_for > silence_max {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        Ok(())
    }

    fn complete(&mut self, number: u32, outbox: &mut Outbox) {
        outbox.under_way -= number.wrapping_sub(self.completed);
        self.completed = number;
    }

    /// Destroys the queue pairs, so that the device no longer accesses our memory. Returns the
    /// reads that were under way.
    pub(super) fn end(self, outbox: &mut Outbox) -> VecDeque<Read> {
        outbox.under_way -= self.under_way();
        let Link { qp, receive_qp, resources, reads, .. } = self;
        drop((qp, receive_qp));
        for (_, resource) in resources {
            if let Resource::Buffer(buffer) = resource {
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
