//! The handshake: from an address, or a stranger's greeting, to a connection.
//!
//! Whoever wants a connection makes its queue pair and says *hello*, again and again, until there is an
//! answer or the time is over: datagrams get lost. Whoever hears a hello makes its own queue pair, lets
//! it receive, and says *accept*. Both name their ends, and each has one queue pair for the other; so if
//! both begin at once there is nothing to choose, and what is said twice is heard once.
//!
//! A peer is up when it is known that *its* queue pair receives, since packets before that would wait
//! for the time of a loss: by an accept, or by the first word on the connection itself, which everyone
//! sends who has come so far.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch_rdma_core_sys as sys;

use super::Verbs;
use super::address::{BITS_24, VerbsAddress};
use super::link::Link;
use super::object::{Ah, Qp, QpShape};
use super::peer::{Connecting, Peer, PeerState};
use super::queued::Queued;
use super::wire::{Datagram, End, Greeting, Refusal, Signal};
use tagmatch_device::{Address, DeviceError, DownReason, Limits, PeerId};
use tagmatch_os::random;

/// Time until a greeting is sent again: at first, and at most.
const PATIENCE_FIRST: Duration = Duration::from_millis(20);
const PATIENCE_MAX: Duration = Duration::from_millis(500);

impl Verbs {
    /// See [`Device::connect`](tagmatch_device::Device::connect).
    pub(super) fn start_connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let now = Instant::now();
        if let Some(peer) = self.by_address.get(address).copied() {
            if let PeerState::Connecting(connecting) = &mut self.peers[peer.index()].state
                && !connecting.is_wanted
            {
                connecting.is_wanted = true;
                connecting.deadline = now + self.config.connect_timeout;
            }
            return Ok(peer);
        }
        let to = VerbsAddress::parse(address.as_bytes())?;
        if to.link_layer != self.own.link_layer {
            return Err(DeviceError::BadAddress { why: "it is on another kind of network" });
        }
        if self.peers() >= self.peers_max {
            let limit = self.peers_max;
            return Err(DeviceError::Exhausted { what: "peer", limit });
        }
        let ah = self.address_handle(&to).map_err(DeviceError::system("ibv_create_ah", ""))?;
        let connecting = self.begin(&to, ah, true, now)?;
        let peer = self.add_peer(*address, PeerState::Connecting(Box::new(connecting)))?;
        self.enlist(peer);
        self.greet(peer, now);
        Ok(peer)
    }

    /// Makes what a connection needs on our side.
    fn begin(
        &mut self,
        to: &VerbsAddress,
        ah: Arc<Ah>,
        is_wanted: bool,
        now: Instant,
    ) -> Result<Connecting, DeviceError> {
        let link = self.make_link(to).map_err(DeviceError::system("make queue pairs", ""))?;
        let psn =
            u32::from_le_bytes(random().map_err(DeviceError::system("getrandom", ""))?) & BITS_24;
        let mine = End {
            qp_num: link.qp.number(),
            catch_num: link.catch.as_ref().map_or(0, Qp::number),
            psn,
            message_max: self.config.message_max,
            reads_max: self.port.reads_served,
            mtu: u8::try_from(self.port.mtu).unwrap_or(1),
        };
        self.receives.need(link.receives_needed()).map_err(DeviceError::system(
            "post receive buffers",
            "; raise the limit on locked memory",
        ))?;
        Ok(Connecting {
            link,
            mine,
            theirs: None,
            ah,
            is_wanted,
            deadline: now + self.config.connect_timeout,
            greet_at: now,
            patience: PATIENCE_FIRST,
        })
    }

    /// One queue pair; or two where a NIC matches tags, one for each direction, since such a NIC has the
    /// send queue of the one that it receives on.
    fn make_link(&self, to: &VerbsAddress) -> io::Result<Link> {
        let receives = self.receives.srq().clone();
        let depth = self.config.queue_depth;
        let shape = QpShape {
            kind: sys::IBV_QPT_RC,
            max_send_wr: depth,
            max_recv_wr: 0,
            max_send_sge: 2,
            inline_max: self.config.inline_max,
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

    fn enlist(&mut self, peer: PeerId) {
        if let PeerState::Connecting(connecting) = &self.peers[peer.index()].state {
            self.by_qp.extend(connecting.link.numbers().map(|number| (number, peer)));
            self.connecting.push(peer);
            self.needs_look = true;
        }
    }

    fn address_handle(&self, to: &VerbsAddress) -> io::Result<Arc<Ah>> {
        Ok(Arc::new(Ah::new(self.pd.clone(), self.port.path(to))?))
    }

    /// A handle for one who has greeted; `None` if there is none now.
    fn strangers_handle(&mut self, to: &VerbsAddress) -> Option<Arc<Ah>> {
        let began = Instant::now();
        if !self.pause.is_over(began) {
            return None;
        }
        let ah = self.address_handle(to);
        self.pause.took(began, Instant::now());
        ah.ok()
    }

    fn tell(&mut self, to: &VerbsAddress, ah: Arc<Ah>, greeting: Greeting) {
        let datagram = Datagram { to: to.instance, from: self.own, greeting };
        self.datagrams.send(to, ah, &datagram);
    }

    /// Says hello.
    fn greet(&mut self, peer: PeerId, now: Instant) {
        let Peer { address, state: PeerState::Connecting(connecting) } =
            &mut self.peers[peer.index()]
        else {
            return;
        };
        connecting.greet_at = now + connecting.patience;
        connecting.patience = (connecting.patience * 2).min(PATIENCE_MAX);
        let (ah, mine) = (connecting.ah.clone(), connecting.mine);
        if let Ok(to) = VerbsAddress::parse(address.as_bytes()) {
            self.tell(&to, ah, Greeting::Hello(mine));
        }
    }

    /// A datagram has come.
    pub(super) fn hear(&mut self, datagram: &Datagram) {
        let Datagram { to, from, greeting } = datagram;
        if *to != self.own.instance || from.link_layer != self.own.link_layer {
            return;
        }
        let Ok(address) = from.address() else { return };
        let known = self.by_address.get(&address).copied();
        match (*greeting, known) {
            (Greeting::Hello(theirs), _) => self.hear_hello(from, &address, known, theirs),
            (Greeting::Accept { mine: theirs, yours }, Some(peer)) => {
                if self.is_answer(peer, yours) && self.receive_from(peer, theirs) {
                    self.bring_up(peer);
                }
            }
            (Greeting::Refuse { why, yours }, Some(peer)) if self.is_answer(peer, yours) => {
                let errno = match why {
                    Refusal::Closed => libc::ECONNREFUSED,
                    Refusal::Full => libc::EUSERS,
                    Refusal::Known => libc::ECONNRESET,
                };
                self.give_up(peer, DownReason::Unreachable { errno });
            }
            (Greeting::Accept { .. } | Greeting::Refuse { .. }, _) => {}
        }
    }

    /// Whether this names our end of a connection that is being made.
    fn is_answer(&self, peer: PeerId, yours: u32) -> bool {
        match &self.peers[peer.index()].state {
            PeerState::Connecting(connecting) => connecting.mine.qp_num == yours,
            _ => false,
        }
    }

    fn hear_hello(
        &mut self,
        from: &VerbsAddress,
        address: &Address,
        known: Option<PeerId>,
        theirs: End,
    ) {
        let refuse = |why| Greeting::Refuse { why, yours: theirs.qp_num };
        let answer = match known {
            None if self.is_closed => refuse(Refusal::Closed),
            None if self.peers() >= self.peers_max => refuse(Refusal::Full),
            None => match self.welcome(from, *address) {
                Some(peer) => return self.accept(peer, from, theirs),
                // For want of something: it will ask again.
                None => return,
            },
            Some(PeerId::ONESELF) => return,
            Some(peer) => match &self.peers[peer.index()].state {
                PeerState::Connecting(_) => return self.accept(peer, from, theirs),
                // It has not heard our accept, but will hear our first word.
                PeerState::Up(link) if link.theirs == theirs.qp_num => return,
                _ => refuse(Refusal::Known),
            },
        };
        if let Some(ah) = self.strangers_handle(from) {
            self.tell(from, ah, answer);
        }
    }

    /// Makes a entry for a stranger.
    fn welcome(&mut self, from: &VerbsAddress, address: Address) -> Option<PeerId> {
        let ah = self.strangers_handle(from)?;
        let connecting = self.begin(from, ah, false, Instant::now()).ok()?;
        let needed = connecting.link.receives_needed();
        let Ok(peer) = self.add_peer(address, PeerState::Connecting(Box::new(connecting))) else {
            self.receives.spare(needed);
            return None;
        };
        self.enlist(peer);
        Some(peer)
    }

    fn accept(&mut self, peer: PeerId, from: &VerbsAddress, theirs: End) {
        if !self.receive_from(peer, theirs) {
            return;
        }
        if let PeerState::Connecting(connecting) = &self.peers[peer.index()].state {
            let (ah, mine) = (connecting.ah.clone(), connecting.mine);
            self.tell(from, ah, Greeting::Accept { mine, yours: theirs.qp_num });
        }
    }

    /// Lets our queue pair receive from theirs. `false` if it can't, or receives from another.
    fn receive_from(&mut self, peer: PeerId, theirs: End) -> bool {
        let Peer { address, state: PeerState::Connecting(connecting) } =
            &mut self.peers[peer.index()]
        else {
            return false;
        };
        if let Some(known) = connecting.theirs {
            return known == theirs;
        }
        let Ok(to) = VerbsAddress::parse(address.as_bytes()) else { return false };
        if (theirs.catch_num != 0) != connecting.link.catch.is_some() {
            let what = "another number of queue pairs than its address says";
            self.give_up(peer, DownReason::Misbehaved { what });
            return false;
        }
        let (link, psn) = (&mut connecting.link, connecting.mine.psn);
        let connected = match &link.catch {
            None => self.port.connect(&link.qp, &to, psn, theirs.qp_num, &theirs),
            Some(catch) => self
                .port
                .connect(&link.qp, &to, psn, theirs.catch_num, &theirs)
                .and_then(|()| self.port.connect(catch, &to, psn, theirs.qp_num, &theirs)),
        };
        if let Err(error) = connected {
            let errno = error.raw_os_error().unwrap_or(0);
            self.give_up(peer, DownReason::Unreachable { errno });
            return false;
        }
        link.message_max = theirs.message_max as usize;
        link.reads_max = u32::from(theirs.reads_max.min(self.port.reads_asked));
        link.theirs = theirs.qp_num;
        connecting.theirs = Some(theirs);
        true
    }

    /// Their queue pair receives, and so does ours: the connection stands.
    pub(super) fn bring_up(&mut self, peer: PeerId) {
        let entry = &mut self.peers[peer.index()];
        let PeerState::Connecting(connecting) =
            std::mem::replace(&mut entry.state, PeerState::Down)
        else {
            return;
        };
        self.connecting.retain(|other| *other != peer);
        let mut link = connecting.link;
        let said = link.signal(peer, Signal::Ready, &mut self.outbox);
        let message_max = link.message_max;
        entry.state = PeerState::Up(Box::new(link));
        self.up.push(peer);
        self.events.push_back(Queued::Up(peer, Limits { message_max }));
        if let Err(error) = said {
            self.lose(peer, error.raw_os_error().unwrap_or(0));
        }
    }

    /// Ends an attempt. Nobody hears of it who has not asked for it.
    pub(super) fn give_up(&mut self, peer: PeerId, reason: DownReason) {
        let entry = &mut self.peers[peer.index()];
        if !matches!(entry.state, PeerState::Connecting(_)) {
            return;
        }
        if let PeerState::Connecting(connecting) =
            std::mem::replace(&mut entry.state, PeerState::Down)
        {
            self.connecting.retain(|other| *other != peer);
            self.receives.spare(connecting.link.receives_needed());
            for number in connecting.link.numbers() {
                self.by_qp.remove(&number);
            }
            connecting.link.end(&mut self.outbox);
            if connecting.is_wanted {
                self.events.push_back(Queued::Down(peer, reason));
            }
        }
    }

    /// Greets again those who have not answered, and gives up on those whose time is over.
    pub(super) fn keep_greeting(&mut self, now: Instant) {
        for at in (0..self.connecting.len()).rev() {
            let peer = self.connecting[at];
            let PeerState::Connecting(connecting) = &self.peers[peer.index()].state else {
                continue;
            };
            if now >= connecting.deadline {
                self.give_up(peer, DownReason::Unreachable { errno: libc::ETIMEDOUT });
            } else if connecting.is_wanted && now >= connecting.greet_at {
                self.greet(peer, now);
            }
        }
    }

    /// When [`Verbs::keep_greeting`] has something to do next.
    pub(super) fn next_greeting(&self) -> Option<Instant> {
        let times =
            self.connecting.iter().filter_map(|peer| match &self.peers[peer.index()].state {
                PeerState::Connecting(c) if c.is_wanted => Some(c.greet_at.min(c.deadline)),
                PeerState::Connecting(c) => Some(c.deadline),
                _ => None,
            });
        times.min()
    }
}
