//! The handshake: from a worker's address, or from an unknown sender's request, to a connection.
//!
//! 1. The side that connects creates its queue pair and sends a *request*. It repeats the request
//!    until it gets an answer or the connect timeout is over, since datagrams get lost.
//! 2. The side that gets a request creates its own queue pair, lets it receive, and sends an
//!    *accept*, or a *refuse*.
//! 3. A side is up when it knows that the peer's queue pair receives: from the accept, or from the
//!    *ready* signal, which each side sends first on the new connection. A packet sent earlier
//!    would be dropped and resent only after the acknowledgement timeout.
//!
//! Request and accept both describe the sender's end, and each side has one queue pair for the
//! other. So if both sides connect at once, both requests lead to the same connection, and repeated
//! datagrams change nothing.
//!
//! Each datagram proves that its sender knows the job's secret, if the job has one. Nothing is done
//! for the sender of a request without that proof; it is told why, but such an answer isn't proven
//! either, so the sender goes on until its connect timeout is over.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch_device::contents::route;
use tagmatch_device::{Address, DeviceError, DownReason, Event, InCall, Limits, Network, PeerId};
use tagmatch_os::random;
use tagmatch_rdma_core_sys as sys;

use super::Verbs;
use super::address::{BITS_24, VerbsAddress};
use super::datagrams::Received;
use super::failure;
use super::link::Link;
use super::object::{Ah, Qp, QpShape};
use super::partition::can_meet;
use super::peer::{Connecting, PeerState};
use super::settings::PARTITION_KEY;
use super::wire::{Datagram, Handshake, LinkEnd, Refusal, Signal};

/// Time until a request is sent again: at first, and at most.
const REQUEST_INTERVAL_FIRST: Duration = Duration::from_millis(20);
const REQUEST_INTERVAL_MAX: Duration = Duration::from_millis(500);
/// The reason for giving up on a peer of another job.
const NO_PROOF: &str = "it has not proved that it knows the job's secret: either it has another one, or only \
                        one of the workers has one (TAGMATCH_SECRET_FILE, TAGMATCH_SECRET)";

impl Verbs {
    /// See [`Device::connect`](tagmatch_device::Device::connect).
    pub(super) fn start_connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let now = Instant::now();
        if let Some(peer) = self.met(address) {
            if let Some(connecting) = self.peers.connecting_mut(peer)
                && !connecting.is_wanted
            {
                connecting.is_wanted = true;
                connecting.deadline = now + self.config.connect_timeout;
            }
            return Ok(peer);
        }
        if let Some(what) = self.impairment.what() {
            let call = "ibv_get_async_event";
            let source = io::Error::other(what);
            return Err(DeviceError::System { call, source, hint: "" });
        }
        let to = self.check_route(address)?;
        let own = self.own.partition_key();
        let peer = to.partition_key();
        if !can_meet(own, peer) {
            return Err(DeviceError::OtherPartition { own, peer, setting: PARTITION_KEY });
        }
        if self.peers() >= self.peers_max {
            let limit = self.peers_max;
            return Err(DeviceError::Exhausted { what: "peer", limit });
        }
        let ah = self.address_handle(&to).in_call("ibv_create_ah")?;
        let connecting = self.prepare_connection(&to, ah, true, now)?;
        let peer = self.add_connecting(*address, connecting)?;
        self.send_request(peer, now);
        Ok(peer)
    }

    /// Creates what this side of a connection needs: queue pairs and receive buffers.
    fn prepare_connection(
        &mut self,
        to: &VerbsAddress,
        ah: Arc<Ah>,
        is_wanted: bool,
        now: Instant,
    ) -> Result<Connecting, DeviceError> {
        let link = self.make_link(to).in_call("make queue pairs")?;
        let psn = u32::from_le_bytes(random().in_call("getrandom")?) & BITS_24;
        let local_end = LinkEnd {
            qp_num: link.qp.number(),
            receive_qp_num: link.receive_qp.as_ref().map_or(0, Qp::number),
            psn,
            message_max: self.config.message_max,
            reads_max: self.port.reads_served,
            mtu: u8::try_from(self.port.mtu).unwrap_or(1),
            process: self.local_processes.own,
        };
        self.receives.need(link.receives_needed()).map_err(DeviceError::system(
            "post receive buffers",
            "; raise the limit on locked memory",
        ))?;
        Ok(Connecting {
            to: *to,
            link,
            local_end,
            remote_end: None,
            ah,
            is_wanted,
            deadline: now + self.config.connect_timeout,
            request_at: now,
            request_interval: REQUEST_INTERVAL_FIRST,
            was_answered_unproven: false,
        })
    }

    /// Creates one queue pair; or two, one for each direction, if either side's NIC matches tags:
    /// such a NIC owns the send queue of the queue pair on which it receives.
    fn make_link(&self, to: &VerbsAddress) -> io::Result<Link> {
        let receives = self.receives.srq().clone();
        let depth = self.config.queue_depth;
        let shape = QpShape {
            kind: sys::IBV_QPT_RC,
            max_send_wr: depth,
            max_recv_wr: 0,
            max_send_sge: 2,
            inline_max: self.config.inline_max_or_default(),
        };
        let make = |srq, shape| {
            let qp = Qp::new(self.pd.clone(), self.cq.clone(), Some(srq), shape)?;
            self.port.initialise(&qp).map(|()| qp)
        };
        if self.list.is_none() && !to.matches_tags {
            return Ok(Link::new(make(receives, &shape)?, None, depth));
        }
        let qp = make(self.fins.srq().clone(), &shape)?;
        let none = QpShape { max_send_wr: 0, max_send_sge: 0, inline_max: 0, ..shape };
        Ok(Link::new(qp, Some(make(receives, &none)?), depth))
    }

    fn add_connecting(
        &mut self,
        address: Address,
        connecting: Connecting,
    ) -> Result<PeerId, DeviceError> {
        let numbers = connecting.link.numbers();
        let needed = connecting.link.receives_needed();
        let added = self.add_peer(address, PeerState::Connecting(Box::new(connecting)));
        let peer = added.inspect_err(|_| self.receives.spare(needed))?;
        if let Some(connecting) = self.peers.connecting_mut(peer) {
            connecting.link.index = peer.index();
        }
        self.by_qp.extend(numbers.map(|number| (number, peer)));
        self.connecting.push(peer);
        self.needs_periodic_work = true;
        Ok(peer)
    }

    fn address_handle(&self, to: &VerbsAddress) -> io::Result<Arc<Ah>> {
        Ok(Arc::new(Ah::new(self.pd.clone(), self.port.path(to))?))
    }

    /// An address handle for the sender of a request. `None` if it can't be created, or not now;
    /// see [`HandleLimiter`](super::handle_limiter::HandleLimiter).
    fn handle_for_unknown_sender(&mut self, to: &VerbsAddress) -> Option<Arc<Ah>> {
        let began = Instant::now();
        if !self.handle_limiter.is_allowed(began) {
            return None;
        }
        let ah = self.address_handle(to);
        self.handle_limiter.record(began, Instant::now());
        ah.ok()
    }

    /// Where the worker with this address is, which is to be reached over verbs: its port and this
    /// worker's reach each other, and it is not on this machine.
    fn check_route(&self, peer: &Address) -> Result<VerbsAddress, DeviceError> {
        let why = "its worker is on this machine, and is reached over shared memory";
        match route(&self.address, peer)? {
            Network::Verbs => VerbsAddress::parse(peer),
            _ => Err(DeviceError::BadAddress { why }),
        }
    }

    fn send_datagram(&mut self, to: &VerbsAddress, ah: Arc<Ah>, handshake: Handshake) {
        let datagram = Datagram { to: to.name, from: self.address, handshake };
        self.datagrams.send(to, ah, &datagram);
    }

    /// Sends a datagram about this side's end to a peer to which a connection is being set up.
    fn send_end(&mut self, peer: PeerId, handshake: impl Fn(LinkEnd) -> Handshake) {
        if let Some(connecting) = self.peers.connecting(peer) {
            let Connecting { to, ah, local_end, .. } = connecting;
            let to = *to;
            let ah = ah.clone();
            let handshake = handshake(*local_end);
            self.send_datagram(&to, ah, handshake);
        }
    }

    /// Sends a request, and schedules the next one.
    fn send_request(&mut self, peer: PeerId, now: Instant) {
        if let Some(connecting) = self.peers.connecting_mut(peer) {
            let interval = connecting.request_interval;
            connecting.request_at = now + interval;
            connecting.request_interval = (interval * 2).min(REQUEST_INTERVAL_MAX);
        }
        self.send_end(peer, Handshake::Request);
    }

    /// Handles a datagram of the handshake.
    pub(super) fn on_datagram(&mut self, received: &Received) {
        let Datagram { to, from: address, handshake } = &received.datagram;
        let Ok(from) = self.check_route(address) else { return };
        let own = self.own.partition_key();
        let peer = from.partition_key();
        if *to != self.own.name || !can_meet(own, peer) {
            return;
        }
        let known = self.met(address);
        if !received.is_proven {
            return self.on_unproven(&from, known, *handshake);
        }
        match (*handshake, known) {
            (Handshake::Request(remote_end), _) => {
                self.on_request(&from, address, known, remote_end)
            }
            (Handshake::Accept { end: remote_end, to_qp }, Some(peer)) => {
                if self.is_answer(peer, to_qp) && self.receive_from(peer, remote_end) {
                    self.bring_up(peer);
                }
            }
            (Handshake::Refuse { why, to_qp }, Some(peer)) if self.is_answer(peer, to_qp) => {
                let errno = match why {
                    Refusal::Closed => libc::ECONNREFUSED,
                    Refusal::Full => libc::EUSERS,
                    Refusal::Known => libc::ECONNRESET,
                    Refusal::Unproven => libc::EACCES,
                };
                self.fail_connecting(peer, DownReason::Unreachable { errno });
            }
            (Handshake::Accept { .. } | Handshake::Refuse { .. }, _) => {}
        }
    }

    /// Handles a datagram of a sender that doesn't share this worker's job's secret.
    fn on_unproven(&mut self, from: &VerbsAddress, known: Option<PeerId>, handshake: Handshake) {
        match handshake {
            Handshake::Request(LinkEnd { qp_num: to_qp, .. }) => {
                if let Some(ah) = self.handle_for_unknown_sender(from) {
                    let answer = Handshake::Refuse { why: Refusal::Unproven, to_qp };
                    self.send_datagram(from, ah, answer);
                }
            }
            Handshake::Accept { to_qp, .. } | Handshake::Refuse { to_qp, .. } => {
                if let Some(peer) = known.filter(|peer| self.is_answer(*peer, to_qp))
                    && let Some(connecting) = self.peers.connecting_mut(peer)
                {
                    connecting.was_answered_unproven = true;
                }
            }
        }
    }

    /// Whether `to_qp` names this side's end of a connection that is being set up.
    fn is_answer(&self, peer: PeerId, to_qp: u32) -> bool {
        let connecting = self.peers.connecting(peer);
        connecting.is_some_and(|connecting| connecting.local_end.qp_num == to_qp)
    }

    fn on_request(
        &mut self,
        from: &VerbsAddress,
        address: &Address,
        known: Option<PeerId>,
        remote_end: LinkEnd,
    ) {
        let refuse = |why| Handshake::Refuse { why, to_qp: remote_end.qp_num };
        let answer = match known {
            None if self.is_closed || self.impairment.what().is_some() => refuse(Refusal::Closed),
            None if self.peers() >= self.peers_max => refuse(Refusal::Full),
            None => match self.add_pending_peer(from, *address) {
                Some(peer) => return self.accept(peer, remote_end),
                // A resource is missing now. The sender will repeat its request.
                None => return,
            },
            Some(PeerId::ONESELF) => return,
            Some(peer) => match self.peers.get(peer).map(|known| &known.state) {
                Some(PeerState::Connecting(_)) => return self.accept(peer, remote_end),
                // Our accept was lost, but our ready signal will reach it.
                Some(PeerState::Up(link)) if link.remote_qp_num == remote_end.qp_num => return,
                _ => refuse(Refusal::Known),
            },
        };
        if let Some(ah) = self.handle_for_unknown_sender(from) {
            self.send_datagram(from, ah, answer);
        }
    }

    /// Creates a pending peer for an unknown sender.
    fn add_pending_peer(&mut self, from: &VerbsAddress, address: Address) -> Option<PeerId> {
        let ah = self.handle_for_unknown_sender(from)?;
        let connecting = self.prepare_connection(from, ah, false, Instant::now()).ok()?;
        self.add_connecting(address, connecting).ok()
    }

    fn accept(&mut self, peer: PeerId, remote_end: LinkEnd) {
        if self.receive_from(peer, remote_end) {
            let to_qp = remote_end.qp_num;
            self.send_end(peer, |end| Handshake::Accept { end, to_qp });
        }
    }

    /// Connects this side's queue pairs to the peer's, so that they receive. Returns `false` if
    /// that fails, or if they are connected to another queue pair already.
    fn receive_from(&mut self, peer: PeerId, remote_end: LinkEnd) -> bool {
        let Some(connecting) = self.peers.connecting_mut(peer) else { return false };
        if let Some(known) = connecting.remote_end {
            return known == remote_end;
        }
        if (remote_end.receive_qp_num != 0) != connecting.link.receive_qp.is_some() {
            let what = "a number of queue pairs that contradicts its address";
            self.fail_connecting(peer, DownReason::Misbehaved { what });
            return false;
        }
        let link = &mut connecting.link;
        let psn = connecting.local_end.psn;
        let connect = |qp: &Qp, qp_num| {
            self.port.connect(qp, &connecting.to, psn, &LinkEnd { qp_num, ..remote_end })
        };
        let connected = match &link.receive_qp {
            None => connect(&link.qp, remote_end.qp_num),
            Some(receive_qp) => connect(&link.qp, remote_end.receive_qp_num)
                .and_then(|()| connect(receive_qp, remote_end.qp_num)),
        };
        if let Err(error) = connected {
            self.fail_connecting(peer, failure::of_connecting_call("ibv_modify_qp", &error));
            return false;
        }
        link.message_max = remote_end.message_max as usize;
        link.reads_max = u32::from(remote_end.reads_max.min(self.port.reads_asked));
        link.remote_qp_num = remote_end.qp_num;
        connecting.remote_end = Some(remote_end);
        true
    }

    /// Moves a peer to up: its queue pair receives, and so does ours.
    pub(super) fn bring_up(&mut self, peer: PeerId) {
        let Some(connecting) = self.peers.take_connecting(peer) else { return };
        self.connecting.retain(|other| *other != peer);
        if let Some(remote_end) = connecting.remote_end {
            self.local_processes.watch(peer, remote_end.process);
        }
        let mut link = connecting.link;
        let sent = link.signal(Signal::Ready, &mut self.outbox);
        let message_max = link.message_max;
        if let Some(state) = self.peers.state_mut(peer) {
            *state = PeerState::Up(Box::new(link));
        }
        self.up.push(peer);
        self.events
            .push_back(Event::PeerUp { peer, limits: Limits { message_max, fragmented_max: 0 } });
        if let Err(error) = sent {
            self.lose_peer(peer, failure::of_call("ibv_post_send", &error));
        }
    }

    /// Ends an attempt to connect. The failure is reported only if the user asked for the
    /// connection.
    pub(super) fn fail_connecting(&mut self, peer: PeerId, reason: DownReason) {
        let connecting = self.peers.take_connecting(peer);
        let Some(Connecting { link, is_wanted, .. }) = connecting else { return };
        self.connecting.retain(|other| *other != peer);
        self.forget(&link);
        link.end(&mut self.outbox);
        if is_wanted {
            self.events.push_back(Event::PeerDown { peer, reason });
        } else if let Some(state) = self.peers.state_mut(peer) {
            *state = PeerState::Unmet;
        }
    }

    /// Forgets the queue pairs of a link, and the receive buffers that it needed.
    pub(super) fn forget(&mut self, link: &Link) {
        self.receives.spare(link.receives_needed());
        for number in link.numbers() {
            self.by_qp.remove(&number);
        }
    }

    /// Repeats the requests that have no answer, and ends attempts whose time is over.
    pub(super) fn drive_handshakes(&mut self, now: Instant) {
        for at in (0..self.connecting.len()).rev() {
            let peer = self.connecting[at];
            let Some(connecting) = self.peers.connecting(peer) else { continue };
            if now >= connecting.deadline {
                let reason = match self.impairment.what() {
                    _ if connecting.was_answered_unproven => {
                        DownReason::Misbehaved { what: NO_PROOF }
                    }
                    Some(what) => failure::of_own_end(what),
                    None => DownReason::Unreachable { errno: libc::ETIMEDOUT },
                };
                self.fail_connecting(peer, reason);
            } else if connecting.is_wanted && now >= connecting.request_at {
                self.send_request(peer, now);
            }
        }
    }

    /// When [`Verbs::drive_handshakes`] has something to do next.
    pub(super) fn next_handshake_deadline(&self) -> Option<Instant> {
        let connecting = self.connecting.iter().filter_map(|peer| self.peers.connecting(*peer));
        let times = connecting.map(|connecting| {
            let Connecting { is_wanted, deadline, request_at, .. } = *connecting;
            if is_wanted { request_at.min(deadline) } else { deadline }
        });
        times.min()
    }
}
