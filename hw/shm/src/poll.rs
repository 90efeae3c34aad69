//! Polling: each poll looks at rings, and now and then at everything else.

use std::time::{Duration, Instant};

use tagmatch_device::{Bytes, DownReason, Event, EventSink, Incoming, PeerId, Polled, hand_on};

use super::device::Shm;
use super::handshake::step::HandshakeStep;
use super::inboxes::ShortLook;
use super::peers::PeerState;
use super::ring::consumer::TakenMessage;
use super::watcher::Watched;

/// The clock is read once in so many polls.
const POLLS_PER_TICK: u32 = 64;
/// How often the kernel is asked for ready descriptors. One call takes half a microsecond.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);
/// How often the kernel is asked while connections are being made.
const LOOK_INTERVAL_CONNECTING: Duration = Duration::from_micros(20);
/// After so many polls in a row without a message, writers are told what was taken from their
/// rings. Telling them after the first such poll would cost time in every exchange of single
/// messages.
const POLLS_UNTIL_IDLE: u32 = 8;
/// Most internal messages that one poll takes. A long copied read arrives in as many messages as
/// its sender wants to send.
const INTERNALS_PER_POLL: u32 = 8;

/// The result of a poll's quick look.
enum QuickLook<'a> {
    /// A message that was copied whole, without immediate data.
    Short(Incoming<'a>),
    Nothing,
    /// The long way of a poll has to look, too.
    More(LongLook),
}

/// Why a poll takes its long way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LongLook {
    /// A message in the ring that had the last one.
    Message,
    /// Other messages.
    Messages,
    /// Something beside the rings wants attention.
    Attention,
}

impl Shm {
    /// See [`Device::poll`](tagmatch_device::Device::poll).
    #[inline(always)]
    pub(crate) fn next_event(&mut self) -> Option<Event<'_>> {
        // SAFETY: the event borrows `self`, so no method of `inboxes` can be called while the event
        // exists.
        match unsafe { self.quick_look() } {
            QuickLook::Short(incoming) => Some(Event::Message(incoming)),
            QuickLook::Nothing => None,
            QuickLook::More(look) => self.next_event_of_some(look),
        }
    }

    /// See [`Device::poll_into`](tagmatch_device::Device::poll_into).
    #[inline(always)]
    pub(crate) fn next_event_into(&mut self, sink: impl EventSink) -> Polled {
        // SAFETY: `sink` can't keep the message, and this call ends with it.
        match unsafe { self.quick_look() } {
            QuickLook::Short(incoming) => {
                sink.message(incoming);
                Polled::Message
            }
            QuickLook::Nothing => Polled::Nothing,
            QuickLook::More(look) => hand_on(self.next_event_of_some(look), sink),
        }
    }

    /// Looks for a message of the shortest kind, which is what most polls find, if anything.
    ///
    /// # Safety
    /// The message's bytes are not read after the next call of a method of `self`.
    #[inline(always)]
    unsafe fn quick_look<'a>(&mut self) -> QuickLook<'a> {
        self.polls = self.polls.wrapping_add(1);
        if self.connections.needs_attention | self.polls.is_multiple_of(POLLS_PER_TICK) {
            return QuickLook::More(LongLook::Attention);
        }
        // SAFETY: by the caller's promise.
        match unsafe { self.connections.inboxes.take_short() } {
            ShortLook::Taken(peer, bytes) => {
                self.idle_polls = 0;
                let bytes = Bytes::of_head(bytes);
                QuickLook::Short(Incoming { peer, immediate: None, through_list: false, bytes })
            }
            ShortLook::Other => QuickLook::More(LongLook::Message),
            ShortLook::Nothing if self.connections.inboxes.is_silent() => {
                self.note_idle();
                QuickLook::Nothing
            }
            ShortLook::Nothing => QuickLook::More(LongLook::Messages),
        }
    }

    /// The long way of a poll: an event that is queued, or a message that is not of the common
    /// kind.
    #[inline(never)]
    fn next_event_of_some(&mut self, look: LongLook) -> Option<Event<'_>> {
        if look == LongLook::Message
            // SAFETY: the event borrows `self`, so no method of `inboxes` can be called while the
            // event exists.
            && let Some((peer, taken)) = unsafe { self.connections.inboxes.take_common() }
        {
            self.idle_polls = 0;
            let TakenMessage { bytes, immediate } = taken;
            return Some(Event::Message(Incoming { peer, immediate, through_list: false, bytes }));
        }
        if look == LongLook::Attention {
            if !self.can_wait() {
                self.attend();
            }
            if let Some(event) = self.connections.events.pop_front() {
                return Some(event);
            }
        }
        let mut internals = 0;
        while let Some(found) = self.connections.inboxes.find() {
            let parsed = self.connections.inboxes.parse(found)?;
            self.connections.wake_writers();
            match parsed {
                Ok((peer, shape)) if !shape.internal => {
                    self.idle_polls = 0;
                    let taken = self.connections.inboxes.take(found.bit, shape)?;
                    return Some(Event::Message(Incoming {
                        peer,
                        immediate: taken.immediate,
                        through_list: false,
                        bytes: taken.bytes,
                    }));
                }
                Ok((peer, shape)) => {
                    let result = self.connections.receive_internal(peer, found.bit, shape);
                    if let Err(what) = result {
                        self.connections.finish(peer, DownReason::Misbehaved { what });
                    }
                    internals += 1;
                }
                Err((peer, what)) => {
                    self.connections.finish(peer, DownReason::Misbehaved { what });
                }
            }
            if let Some(event) = self.connections.events.pop_front() {
                return Some(event);
            }
            if internals >= INTERNALS_PER_POLL {
                return None;
            }
        }
        self.note_idle();
        None
    }

    /// Whether this poll only takes an event, or a message that may bring another short read.
    fn can_wait(&mut self) -> bool {
        let connections = &mut self.connections;
        !self.polls.is_multiple_of(POLLS_PER_TICK)
            && (!connections.events.is_empty()
                || connections.inboxes.has_message() && connections.reads.gathers())
    }

    #[inline]
    fn note_idle(&mut self) {
        self.idle_polls = self.idle_polls.wrapping_add(1);
        if self.idle_polls == POLLS_UNTIL_IDLE {
            self.connections.inboxes.publish_hot();
            self.connections.needs_attention |= !self.connections.inboxes.wake.is_empty();
        }
    }

    /// Does everything that a poll has to do besides looking at rings.
    #[cold]
    #[inline(never)]
    fn attend(&mut self) {
        let is_tick = self.polls.is_multiple_of(POLLS_PER_TICK);
        if is_tick {
            self.connections.audit_attention();
            self.connections.inboxes.tick();
        }
        let is_connecting = !self.connections.peers.connecting().is_empty();
        if is_connecting || is_tick {
            let interval = if is_connecting { LOOK_INTERVAL_CONNECTING } else { LOOK_INTERVAL };
            let now = Instant::now();
            if now.duration_since(self.last_look) >= interval {
                self.look(now);
            }
        }
        let connections = &mut self.connections;
        connections.push_reads();
        connections.wake_writers();
        connections.finish_drained();
        // A peer that doesn't answer a hello must not keep polls from the short way; so attempts
        // under way don't count here.
        connections.needs_attention = connections.has_work()
            || connections.reads.is_waiting()
            || self.has_retries
            || connections.is_draining();
    }

    /// Asks the kernel for ready descriptors, and does what is due by the clock.
    pub(crate) fn look(&mut self, now: Instant) {
        self.last_look = now;
        let mut step =
            HandshakeStep { local: &self.local, connections: &mut self.connections, now };
        for ready in step.connections.watcher.ready() {
            match ready {
                Watched::Listener => self.acceptor.accept(&mut step),
                // What is due by the clock follows.
                Watched::Timer => step.connections.watcher.clear_timer(),
                Watched::Pending(id) => self.acceptor.receive_hello(&mut step, id),
                Watched::Socket(peer) | Watched::Process(peer) => look_at_peer(&mut step, peer),
                Watched::OwnEventFd => self.eventfd.clear(),
                Watched::Waker => step.local.waker.clear(),
                Watched::Reports => step.connections.take_reports(),
            }
        }
        if now.duration_since(self.last_sweep) >= step.local.config.sweep_interval {
            self.last_sweep = now;
            step.connections.inboxes.sweep_all();
            step.connections.rest();
        }
        self.acceptor.keep_time(&step.connections.watcher, now);
        self.has_retries = step.keep_time();
        let connections = &mut self.connections;
        connections.lifelines.watch_new(&connections.watcher);
    }
}

/// The socket of a peer is readable, or its process has ended: the answer to a hello, or the end.
fn look_at_peer(step: &mut HandshakeStep<'_>, peer: PeerId) {
    let connections = &mut *step.connections;
    match connections.peers.state(peer) {
        Some(PeerState::Connecting(_)) => step.receive_answer(peer),
        Some(PeerState::Up(connection)) => {
            let other_end = connection.other_end.as_ref();
            if let Some(reason) = other_end.and_then(|other| other.lifeline.end_here()) {
                connections.note_end(peer, reason);
            }
        }
        Some(PeerState::Draining(..) | PeerState::Down) | None => {}
    }
}
