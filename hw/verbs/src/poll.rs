//! Sending and polling. A poll handles completions one at a time and periodically does the device's
//! other work.

use std::time::{Duration, Instant};

use tagmatch_device::tm::TMH_BYTES;
use tagmatch_device::{
    Bytes, DownReason, Event, Incoming, OrBug, Outgoing, PeerId, ReadError, Refused,
};
use tagmatch_rdma_core_sys as sys;

use super::Verbs;
use super::batch::MessageBuffer;
use super::failure;
use super::peer::PeerState;
use super::sizes::PER_PEER;
use super::wire::{self, Signal};
use super::wr_id::{DATAGRAM_RECEIVED, DATAGRAM_SENT, ENTRY, FIN, OPERATION, RECEIVE};

/// The clock is read once in this many polls.
const POLLS_PER_TICK: u32 = 256;
/// The interval at which periodic work is done, such as asking the kernel for asynchronous events.
const PERIODIC_INTERVAL: Duration = Duration::from_millis(1);
/// Most completions that produce no event that one poll handles.
const INTERNALS_PER_POLL: u32 = 64;

/// The result of handling a completion.
enum Outcome {
    /// Nothing to report, or an event that was queued.
    Internal,
    /// Nothing to report yet: the same completion must be handled again.
    Again,
    /// A message to report.
    Message {
        peer: PeerId,
        place: MessageBuffer,
        length: usize,
        immediate: Option<u32>,
        through_list: bool,
    },
}

impl Verbs {
    /// See [`Device::send`](tagmatch_device::Device::send).
    #[inline]
    pub(super) fn send_message(
        &mut self,
        peer: PeerId,
        message: Outgoing<'_>,
    ) -> Result<(), Refused> {
        let link = match self.peers.state_mut(peer) {
            Some(PeerState::Up(link)) => link,
            Some(PeerState::Connecting(_)) => return Err(Refused::NotUp),
            Some(PeerState::Oneself) => return self.send_oneself(message),
            Some(PeerState::Ending(_) | PeerState::Down | PeerState::Unmet) | None => {
                return Err(Refused::Down);
            }
        };
        let room = link.message_max.saturating_sub(message.header.len());
        if message.header.len() > Outgoing::HEADER_MAX || message.payload.len() > room {
            return Err(Refused::TooLong);
        }
        let sent = link.send(message, &mut self.receives, &mut self.outbox)?;
        sent.map_err(|error| {
            self.lose_peer(peer, failure::of_call("ibv_post_send", &error));
            Refused::Down
        })
    }

    fn send_oneself(&mut self, message: Outgoing<'_>) -> Result<(), Refused> {
        let room = (self.config.message_max as usize).saturating_sub(message.header.len());
        if message.header.len() > Outgoing::HEADER_MAX || message.payload.len() > room {
            return Err(Refused::TooLong);
        }
        self.oneself.send(message)?;
        self.event_fds.signal();
        Ok(())
    }

    #[inline]
    pub(super) fn next_event(&mut self) -> Option<Event<'_>> {
        self.polls = self.polls.wrapping_add(1);
        match self.batch.lent.take() {
            Some(MessageBuffer::Receive(at)) => self.receives.give_back(at),
            Some(MessageBuffer::Fin(at)) => self.fins.give_back(at),
            None => {}
        }
        if self.receives.is_posting_due() || self.fins.is_posting_due() {
            self.post_receives();
        }
        if self.needs_periodic_work | self.polls.is_multiple_of(POLLS_PER_TICK) {
            self.run_periodic_work_if_due();
        }
        // Messages to oneself and other events take turns, so that neither can starve the other.
        if !self.oneself.is_empty() && self.events.is_empty() && self.polls.is_multiple_of(2) {
            return self.message_to_oneself();
        }
        for _ in 0..INTERNALS_PER_POLL {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.batch.is_empty() && !self.refill() {
                self.end_gone();
                self.finish_ended();
                return match self.events.pop_front() {
                    None => self.message_to_oneself(),
                    event => event,
                };
            }
            let completion = self.batch.completions[self.batch.next];
            let outcome = self.on_completion(&completion, self.batch.tags[self.batch.next]);
            if !matches!(outcome, Outcome::Again) {
                self.batch.next += 1;
            }
            if let Outcome::Message { peer, place, length, immediate, through_list } = outcome {
                self.batch.lent = Some(place);
                let bytes = Bytes::from_slice(self.bytes(place, length));
                return Some(Event::Message(Incoming { peer, immediate, through_list, bytes }));
            }
        }
        None
    }

    /// The bytes of a message. They stay valid until the next poll.
    #[inline]
    fn bytes(&self, place: MessageBuffer, length: usize) -> &[u8] {
        // SAFETY: the device has completed the buffer. Only the next poll gives it back to the
        // queue, and by then the borrow of `self` has ended.
        unsafe {
            match place {
                MessageBuffer::Receive(at) => self.receives.bytes(at, length),
                MessageBuffer::Fin(at) => self.fins.bytes(at, length),
            }
        }
    }

    fn message_to_oneself(&mut self) -> Option<Event<'_>> {
        let (bytes, immediate) = self.oneself.take()?;
        Some(Event::Message(Incoming {
            peer: PeerId::ONESELF,
            immediate,
            through_list: false,
            bytes: Bytes::from_slice(bytes),
        }))
    }

    /// Takes a batch from the completion queue. Returns `false` if it is empty.
    #[inline]
    pub(super) fn refill(&mut self) -> bool {
        self.batch.next = 0;
        self.batch.count = match self.cq.poll(&mut self.batch.completions, &mut self.batch.tags) {
            Ok(count) => count,
            Err(error) => {
                self.lose_all_peers(failure::of_call("ibv_poll_cq", &error));
                0
            }
        };
        self.batch.count > 0
    }

    fn on_completion(&mut self, wc: &sys::ibv_wc, tm: sys::ibv_wc_tm_info) -> Outcome {
        let id = wc.wr_id;
        let is_incoming = id & (RECEIVE | FIN | ENTRY) != 0;
        if is_incoming {
            let Some(peer) = self.by_qp.get(&wc.qp_num).copied() else {
                self.take_back(wc);
                return Outcome::Internal;
            };
            let has_failed =
                wc.status != sys::IBV_WC_SUCCESS && wc.status != sys::IBV_WC_TM_RNDV_INCOMPLETE;
            if has_failed {
                self.take_back(wc);
                self.receive_failed(peer, wc.status);
                return Outcome::Internal;
            }
            if self.peers.connecting(peer).is_some() {
                // The peer has sent on its queue pair, so its queue pair also receives.
                self.bring_up(peer);
                return Outcome::Again;
            }
            return if id & RECEIVE != 0 {
                self.on_receive(peer, wc)
            } else if id & FIN != 0 {
                self.on_fin(peer, wc)
            } else {
                self.on_match(peer, wc, tm)
            };
        }
        if wc.status != sys::IBV_WC_SUCCESS && id & OPERATION == 0 && !self.is_own(wc) {
            return Outcome::Internal;
        }
        if id & OPERATION != 0 {
            if let Some(list) = &mut self.list {
                list.on_operation_completion(id, wc.status);
                self.events.extend(list.take_events().map(Event::Tag));
            }
        } else if id & DATAGRAM_RECEIVED != 0 {
            if let Some(received) = self.datagrams.received(wc) {
                self.on_datagram(&received);
            }
        } else if id & DATAGRAM_SENT != 0 {
            self.datagrams.sent(id);
        } else {
            self.on_send_completion(wc);
        }
        Outcome::Internal
    }

    /// Whether a request that has failed is of a queue pair of this device. The list of libmlx5 has
    /// a queue pair of its own, for whose flushed requests libmlx5 gives any number.
    fn is_own(&self, wc: &sys::ibv_wc) -> bool {
        if wc.wr_id & (DATAGRAM_RECEIVED | DATAGRAM_SENT) != 0 {
            return wc.qp_num == self.datagrams.qp_num();
        }
        let named = usize::try_from(wc.wr_id >> 32).ok();
        self.by_qp.get(&wc.qp_num).map(|peer| peer.index()) == named
    }

    /// Takes back a receive buffer that carries no message. After a failure, a tag-matching queue
    /// doesn't report the right buffer (mlx5 doesn't), so that buffer is never used again.
    fn take_back(&mut self, wc: &sys::ibv_wc) {
        if self.list.is_some()
            && wc.status != sys::IBV_WC_SUCCESS
            && !self.by_qp.contains_key(&wc.qp_num)
        {
            // Of the list's own queue pair, which names no buffer.
        } else if wc.wr_id & FIN != 0 {
            if let Some(at) = self.fins.received(wc.wr_id) {
                self.fins.give_back(at);
            }
        } else if self.list.is_some() && wc.status != sys::IBV_WC_SUCCESS {
            self.receives.forget_one();
        } else if let Some(at) = self.receives.received(wc.wr_id) {
            self.receives.give_back(at);
        }
    }

    /// Handles a completed buffer of the shared receive queue.
    #[inline]
    fn on_receive(&mut self, peer: PeerId, wc: &sys::ibv_wc) -> Outcome {
        let Some(at) = self.receives.received(wc.wr_id) else { return Outcome::Internal };
        let immediate = u32::from_be(wc.imm_data);
        let place = MessageBuffer::Receive(at);
        let length = wc.byte_len as usize;
        let head = self.bytes(place, length.min(TMH_BYTES));
        let is_copy = wire::is_copy(head);
        let signal = match wc.opcode {
            sys::IBV_WC_RECV_RDMA_WITH_IMM => Some(immediate),
            _ if length == TMH_BYTES && self.has_two_pairs(peer) => Signal::code_of(head),
            _ => None,
        };
        if let Some(code) = signal {
            self.receives.give_back(at);
            self.on_signal(peer, code);
            return Outcome::Internal;
        }
        if !self.count_message(peer) {
            self.receives.give_back(at);
            return Outcome::Internal;
        }
        if is_copy {
            self.take_copy(peer, at, length);
            self.receives.give_back(at);
            return Outcome::Internal;
        }
        let has_immediate = wc.wc_flags & sys::IBV_WC_WITH_IMM != 0;
        let immediate = has_immediate.then_some(immediate);
        let through_list = wc.opcode == sys::IBV_WC_TM_RECV;
        Outcome::Message { peer, place, length, immediate, through_list }
    }

    /// Whether the connection has two queue pairs. Its signals are messages then.
    pub(super) fn has_two_pairs(&self, peer: PeerId) -> bool {
        self.peers.link(peer).is_some_and(|link| link.receive_qp.is_some())
    }

    /// Handles a FIN that the peer's NIC has sent.
    fn on_fin(&mut self, peer: PeerId, wc: &sys::ibv_wc) -> Outcome {
        let Some(at) = self.fins.received(wc.wr_id) else { return Outcome::Internal };
        if self.peers.link(peer).is_none_or(|link| link.fins == 0) {
            self.fins.give_back(at);
            self.end_for_violation(peer, "a FIN without a rendezvous");
            return Outcome::Internal;
        }
        let length = wc.byte_len as usize;
        let place = MessageBuffer::Fin(at);
        Outcome::Message { peer, place, length, immediate: None, through_list: false }
    }

    /// The NIC's list has matched a message, or has received its data.
    fn on_match(&mut self, peer: PeerId, wc: &sys::ibv_wc, tm: sys::ibv_wc_tm_info) -> Outcome {
        if wc.wc_flags & sys::IBV_WC_TM_MATCH != 0 {
            // The message has used a credit, whether or not it is delivered.
            self.count_message(peer);
        }
        if let Some(list) = &mut self.list {
            list.on_match_completion(wc, tm, peer);
            self.events.extend(list.take_events().map(Event::Tag));
        }
        Outcome::Internal
    }

    /// Takes the credit of a message that arrived, and announces more credits if that is due.
    /// Returns `false` if the message must not be delivered.
    #[inline]
    fn count_message(&mut self, peer: PeerId) -> bool {
        let link = match self.peers.state_mut(peer) {
            Some(PeerState::Up(link)) => link,
            // Messages that were sent before the connection ended are still delivered, unless the
            // peer broke a rule or this side disconnected.
            Some(PeerState::Ending(ending)) => {
                self.receives.spare(usize::from(ending.link.grant.take().is_ok()));
                return ending.delivers_messages;
            }
            _ => return false,
        };
        link.has_received = true;
        if link.grant.take().is_err() {
            self.end_for_violation(peer, "more messages than it had credits for");
            return false;
        }
        self.receives.spare(1);
        let shared = self.up.len() * PER_PEER as usize + self.config.receive_buffers as usize;
        let available = shared.saturating_sub(self.receives.needed());
        self.announce(peer, available);
        true
    }

    /// Announces up to `available` more messages to a peer if that is due; or, where there is no
    /// memory for their buffers, no more than keep the connection going.
    fn announce(&mut self, peer: PeerId, available: usize) {
        let Some(link) = self.peers.up(peer) else { return };
        let before = link.grant;
        let Some(mut more) = link.grant.extend(available, self.config.window_max) else { return };
        let mut taken = self.receives.want(more as usize);
        if taken.is_err() {
            link.grant = before;
            let Some(fewer) = link.grant.extend(0, self.config.window_max) else { return };
            more = fewer;
            taken = self.receives.need(more as usize);
        }
        let signal = Signal::Announce(more);
        let sent = taken.and_then(|()| link.signal(signal, &mut self.outbox));
        if let Err(error) = sent {
            self.lose_peer(peer, failure::of_call("posting what a credit needs", &error));
        }
    }

    /// Handles a signal from a peer's device.
    fn on_signal(&mut self, peer: PeerId, code: u32) {
        let signal = Signal::parse(code);
        let link = match self.peers.state_mut(peer) {
            Some(PeerState::Up(link)) => link,
            // Both sides leave: the peer won't acknowledge our leave signal any more.
            Some(PeerState::Ending(_)) if signal == Some(Signal::Leave) => {
                return self.stop_waiting_for(peer, None);
            }
            _ => return,
        };
        link.has_received = true;
        match signal {
            Some(Signal::Ready) if !link.is_ready => {
                link.is_ready = true;
                self.receives.spare(1);
            }
            Some(Signal::Announce(more)) if link.allowance.extend(more).is_ok() => {
                self.receives.spare(1);
                self.push_copied(peer);
            }
            Some(Signal::Release) if link.grant.take().is_ok() => {
                let back = link.grant.release();
                self.receives.spare(1 + back);
            }
            Some(Signal::Leave) => self.end(peer, DownReason::Left, None),
            _ => self.end_for_violation(peer, "an invalid or unexpected signal"),
        }
    }

    /// A work request on a peer's sending queue pair has completed, and with it all earlier ones.
    fn on_send_completion(&mut self, completion: &sys::ibv_wc) {
        if completion.status != sys::IBV_WC_SUCCESS {
            // An event may tell why.
            self.take_async_events();
        }
        let index = usize::try_from(completion.wr_id >> 32).unwrap_or(usize::MAX);
        let number = u32::try_from(completion.wr_id & u64::from(u32::MAX)).unwrap_or(0);
        let known = self.peers.at_mut(index).or_bug("a work request names a known peer");
        let Ok(known) = known else { return };
        let peer = known.id;
        let (link, is_up) = match &mut known.state {
            PeerState::Up(link) => (link.as_mut(), true),
            PeerState::Ending(ending) => {
                if completion.status != sys::IBV_WC_SUCCESS {
                    ending.flush(&mut self.outbox);
                    return ending.flushed(number);
                }
                (&mut ending.link, false)
            }
            _ => return,
        };
        let is_success = completion.status == sys::IBV_WC_SUCCESS;
        // Requests complete in order: those before a failed one have succeeded.
        let succeeded = if is_success { number } else { number.wrapping_sub(1) };
        link.end_until(succeeded, &mut self.outbox, &mut self.events);
        if !is_success {
            let first_read = link.is_read(number).then(|| read_error(completion.status));
            let silence_means = self.impairment.stale;
            let reason = failure::of_status(completion.status, silence_means);
            self.end(peer, reason, first_read);
        } else if is_up {
            link.has_received = true;
            if let Err(error) = link.send_pending_signals(&mut self.outbox) {
                return self.lose_peer(peer, failure::of_call("ibv_post_send", &error));
            }
            self.push_reads(peer);
            self.push_copied(peer);
        }
    }

    fn post_receives(&mut self) {
        if let Err(error) = self.receives.post_idle().and_then(|()| self.fins.post_idle()) {
            self.lose_all_peers(failure::of_call("ibv_post_srq_recv", &error));
        }
    }

    /// Reads the clock and does the periodic work if it is due.
    #[cold]
    #[inline(never)]
    fn run_periodic_work_if_due(&mut self) {
        let now = Instant::now();
        if self.needs_periodic_work
            || now.duration_since(self.last_periodic_work) >= PERIODIC_INTERVAL
        {
            self.do_periodic_work(now);
        }
    }

    /// Does everything but completions: asynchronous events, handshakes, lingering memory, silent
    /// connections, and reads that wait for room.
    pub(super) fn do_periodic_work(&mut self, now: Instant) {
        self.needs_periodic_work = false;
        self.last_periodic_work = now;
        self.take_async_events();
        self.local_processes.look();
        if let Some(list) = self.list.as_mut().filter(|list| list.is_lost()) {
            self.events.extend(list.take_events().map(Event::Tag));
        }
        self.drive_handshakes(now);
        self.exposures.unregister_expired(now, self.config.linger);
        if now.duration_since(self.last_sweep) >= self.config.keepalive {
            self.last_sweep = now;
            self.sweep(now);
        }
        for peer in std::mem::take(&mut self.waiting_to_read) {
            self.push_reads(peer);
        }
        for peer in std::mem::take(&mut self.waiting_to_copy) {
            self.push_copied(peer);
        }
    }

    /// Tests the connections that were silent, and gives back credits that idle ones don't use.
    fn sweep(&mut self, now: Instant) {
        let silence_max = self.config.silence_max();
        for at in (0..self.up.len()).rev() {
            let peer = self.up[at];
            let Some(link) = self.peers.up(peer) else { continue };
            if let Err(error) = link.sweep(now, silence_max, &mut self.outbox) {
                self.lose_peer(peer, failure::of_call("ibv_post_send", &error));
            }
        }
    }
}

/// The result of a READ that failed with this status.
fn read_error(status: sys::ibv_wc_status) -> ReadError {
    match status {
        sys::IBV_WC_REM_ACCESS_ERR | sys::IBV_WC_REM_INV_REQ_ERR => ReadError::BadSpan,
        sys::IBV_WC_LOC_PROT_ERR => ReadError::Failed { errno: libc::EFAULT },
        _ => ReadError::PeerDown,
    }
}
