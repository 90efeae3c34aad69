//! What a poll does: look at rings; now and then, at everything else.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::lane::{Link, Stage};
use super::ring::consumer::Taken;
use super::{Shm, Watched};
use tagmatch_device::{Buffer, DownReason, Event, Incoming, Limits, PeerId, ReadError};
use tagmatch_os::event::BATCH;
use tagmatch_os::socket;

/// Each so many polls, the clock is read.
const POLLS_PER_TICK: u32 = 64;
/// So often is the kernel asked for news. Asking takes half a microsecond.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);
/// The same while connections are being made.
const LOOK_INTERVAL_CONNECTING: Duration = Duration::from_micros(20);
/// After so many polls without a message, writers get their room back. One in a row would be paid
/// for in every exchange of single messages.
const POLLS_UNTIL_IDLE: u32 = 8;

/// So many messages of the device's own are taken in one poll: a long copied read comes in as many
/// as its sender cares to send.
const INTERNALS_PER_POLL: u32 = 8;

/// An event to report.
pub(crate) enum Queued {
    Up(PeerId, Limits),
    Down(PeerId, DownReason),
    ReadDone(u64, Buffer, Result<(), ReadError>),
}

impl Shm {
    #[inline(always)]
    pub(crate) fn next_event(&mut self) -> Option<Event<'_>> {
        self.polls = self.polls.wrapping_add(1);
        let is_due = self.needs_attention | self.polls.is_multiple_of(POLLS_PER_TICK);
        if is_due {
            return self.next_event_of_some(true);
        }
        // SAFETY: the event is given out with the lifetime of the borrow of `self`, so that nobody can
        // call `self.inboxes` while it is looked at.
        if let Some((peer, taken)) = unsafe { self.inboxes.take_common() } {
            self.idle_polls = 0;
            let Taken { bytes, immediate } = taken;
            return Some(Event::Message(Incoming { peer, immediate, through_list: false, bytes }));
        }
        if self.inboxes.is_silent() {
            self.note_idle();
            return None;
        }
        self.next_event_of_some(false)
    }

    #[inline(never)]
    fn next_event_of_some(&mut self, is_due: bool) -> Option<Event<'_>> {
        if is_due {
            self.attend();
            if let Some(event) = self.events.pop_front() {
                return Some(Self::report(event));
            }
        }
        let mut internals = 0;
        while let Some(found) = self.inboxes.find() {
            let parsed = self.inboxes.parse(found);
            self.wake_writers();
            match parsed {
                Ok((peer, shape)) if !shape.internal => {
                    self.idle_polls = 0;
                    let taken = self.inboxes.take(found.bit, shape)?;
                    return Some(Event::Message(Incoming {
                        peer,
                        immediate: taken.immediate,
                        through_list: false,
                        bytes: taken.bytes,
                    }));
                }
                Ok((peer, shape)) => {
                    if let Err(what) = self.hear(peer, found.bit, shape) {
                        self.finish(peer, DownReason::Misbehaved { what });
                    }
                    internals += 1;
                }
                Err((peer, what)) => self.finish(peer, DownReason::Misbehaved { what }),
            }
            if let Some(event) = self.events.pop_front() {
                return Some(Self::report(event));
            }
            if internals >= INTERNALS_PER_POLL {
                return None;
            }
        }
        self.note_idle();
        None
    }

    #[inline]
    fn note_idle(&mut self) {
        self.idle_polls = self.idle_polls.wrapping_add(1);
        if self.idle_polls == POLLS_UNTIL_IDLE {
            self.inboxes.publish_hot();
            self.needs_attention |= !self.inboxes.wake.is_empty();
        }
    }

    fn report(event: Queued) -> Event<'static> {
        match event {
            Queued::Up(peer, limits) => Event::PeerUp { peer, limits },
            Queued::Down(peer, reason) => Event::PeerDown { peer, reason },
            Queued::ReadDone(token, into, result) => Event::ReadDone { token, into, result },
        }
    }

    /// Everything but the rings.
    #[cold]
    #[inline(never)]
    fn attend(&mut self) {
        if self.polls.is_multiple_of(POLLS_PER_TICK) {
            self.inboxes.tick();
        }
        let is_connecting = !self.connecting.is_empty();
        if is_connecting || self.polls.is_multiple_of(POLLS_PER_TICK) {
            let interval = if is_connecting { LOOK_INTERVAL_CONNECTING } else { LOOK_INTERVAL };
            let now = Instant::now();
            if now.duration_since(self.last_look) >= interval {
                self.look(now);
            }
        }
        self.push_direct_reads();
        self.push_copied_reads();
        self.wake_writers();
        self.finish_drained();
        // A connection whose other side says nothing must not keep polls from the short way.
        self.needs_attention = self.has_work() || self.is_asking || !self.draining.is_empty();
    }

    /// Whether there is something that only our own polling can bring on.
    pub(crate) fn has_work(&self) -> bool {
        !self.events.is_empty()
            || !self.direct_reads.is_empty()
            || !self.copying.is_empty()
            || !self.inboxes.wake.is_empty()
    }

    /// Asks the kernel for news, and sees to what is due.
    pub(crate) fn look(&mut self, now: Instant) {
        self.last_look = now;
        let mut numbers = [0; BATCH];
        let count = self.epoll.ready(&mut numbers);
        for number in &numbers[..count] {
            match Watched::from_number(*number) {
                Some(Watched::Listener) => self.accept_strangers(now),
                Some(Watched::Timer) => {
                    self.timer.set(None);
                    self.inboxes.sweep_all();
                }
                Some(Watched::Stranger(id)) => self.hear_stranger(id),
                Some(Watched::Socket(peer)) => self.hear_socket(peer, now),
                Some(Watched::Oneself) => self.eventfd.clear(),
                Some(Watched::Process(peer)) => {
                    // A process that ended may have said on the socket that its worker leaves.
                    self.hear_socket(peer, now);
                    self.drain(peer, DownReason::Gone);
                }
                None => {}
            }
        }
        self.keep_time(now);
    }

    /// A peer's socket is readable: the answer to our greeting, a wake, or its end.
    fn hear_socket(&mut self, peer: PeerId, now: Instant) {
        let Some(lane) = self.lanes.get_mut(peer.index()) else {
            return;
        };
        match &mut lane.stage {
            Stage::Connecting(_) => self.hear_answer(peer, now),
            Stage::Up(link) => match drain_wakes(link) {
                Wakes::Taken => {}
                Wakes::Bye => self.drain(peer, DownReason::Left),
                Wakes::End => self.drain(peer, DownReason::Gone),
                Wakes::Nonsense => {
                    let what = "a packet on the socket that is no wake";
                    self.finish(peer, DownReason::Misbehaved { what });
                }
            },
            Stage::Draining(..) | Stage::Down => {}
        }
    }

    pub(crate) fn wake_writers(&mut self) {
        while let Some(peer) = self.inboxes.wake.pop() {
            if let Some(link) = self.link_mut(peer) {
                link.wake();
            }
        }
    }

    /// A peer is gone: what it has written is still delivered, then it goes down.
    pub(crate) fn drain(&mut self, peer: PeerId, reason: DownReason) {
        let Some(lane) = self.lanes.get_mut(peer.index()) else {
            return;
        };
        match std::mem::replace(&mut lane.stage, Stage::Down) {
            Stage::Up(link) => {
                self.unwatch(&link);
                self.inboxes.look_at(link.inbox);
                let taken = self.inboxes.inbox(link.inbox).map_or(0, |i| i.consumer.taken());
                self.draining.push((peer, taken));
                self.needs_attention = true;
                self.lanes[peer.index()].stage = Stage::Draining(link, reason);
            }
            other => lane.stage = other,
        }
    }

    /// Reports the peers whose rings are empty now.
    pub(crate) fn finish_drained(&mut self) {
        let mut at = 0;
        while at < self.draining.len() {
            let (peer, taken_before) = self.draining[at];
            let is_done = match self.lanes.get(peer.index()).map(|lane| &lane.stage) {
                Some(Stage::Draining(link, _)) => {
                    self.inboxes.inbox(link.inbox).is_none_or(|inbox| {
                        // A dead peer's ring holds no more than fits. One that goes on writing
                        // after closing its socket is not waited for.
                        let taken = inbox.consumer.taken().wrapping_sub(taken_before);
                        inbox.consumer.peek().is_none() || taken >= inbox.consumer.capacity()
                    })
                }
                _ => true,
            };
            if is_done {
                self.draining.swap_remove(at);
                self.finish(peer, DownReason::Gone);
            } else {
                at += 1;
            }
        }
    }

    /// Ends a connection now: gives back its reads, frees what it has, and reports it.
    pub(crate) fn finish(&mut self, peer: PeerId, reason: DownReason) {
        let Some(lane) = self.lanes.get_mut(peer.index()) else {
            return;
        };
        let reason = match std::mem::replace(&mut lane.stage, Stage::Down) {
            Stage::Down => return,
            Stage::Connecting(connecting) => {
                self.connecting.retain(|other| *other != peer);
                if let Some(asked) = connecting.asked {
                    self.withdraw_offer(asked);
                }
                reason
            }
            Stage::Up(link) => {
                self.unwatch(&link);
                if let (DownReason::Disconnected, Some(socket)) = (reason, &link.socket) {
                    // After all messages: the peer delivers what is in its ring by now.
                    socket::send_bye(socket);
                }
                self.release(peer, *link);
                reason
            }
            // It went down for the reason that was found first.
            Stage::Draining(link, first_reason) => {
                self.release(peer, *link);
                self.draining.retain(|(other, _)| *other != peer);
                first_reason
            }
        };
        self.events.push_back(Queued::Down(peer, reason));
        self.needs_attention = true;
    }

    fn unwatch(&self, link: &Link) {
        if let Some(socket) = &link.socket {
            self.epoll.forget(socket.as_fd());
        }
        if let Some(process) = &link.process {
            self.epoll.forget(process.pidfd.as_fd());
        }
    }

    fn release(&mut self, peer: PeerId, mut link: Link) {
        self.inboxes.remove(link.inbox);
        if let Some(guest) = link.guest {
            self.guests.leave(guest);
        }
        self.give_back_direct_reads(peer);
        self.copying.retain(|other| *other != peer);
        for (token, into) in link.copied.take_reads() {
            let result = Err(ReadError::PeerDown);
            self.events.push_back(Queued::ReadDone(token, into, result));
        }
    }
}

enum Wakes {
    Taken,
    Bye,
    End,
    Nonsense,
}

/// Takes the wake bytes from a socket. Bounded: the rest is taken next time.
fn drain_wakes(link: &Link) -> Wakes {
    let Some(socket) = &link.socket else {
        return Wakes::Taken;
    };
    for _ in 0..16 {
        let mut byte = [0; 2];
        match socket::receive(socket.as_fd(), &mut byte) {
            Ok(packet) if packet.length == 0 => return Wakes::End,
            Ok(packet)
                if packet.length == 1 && packet.fds.0.is_empty() && byte[0] == socket::WAKE => {}
            Ok(packet)
                if packet.length == 1 && packet.fds.0.is_empty() && byte[0] == socket::BYE =>
            {
                return Wakes::Bye;
            }
            Ok(_) => return Wakes::Nonsense,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Wakes::Taken,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Wakes::End,
        }
    }
    Wakes::Taken
}
