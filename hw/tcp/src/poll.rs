//! Polling: what is ready is looked at, one peer after the other, and one event is reported.

use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Instant;

use tagmatch_device::{Bytes, DownReason, Event, Incoming, PeerId};
use tagmatch_os::event::ReadyDescriptor;
use tagmatch_os::{fails_for_now, stream, tcp};

use super::connection::{Connection, landing_room};
use super::device::Tcp;
use super::frame::{Frame, HEADER_BYTES, REGION_BYTES, REQUEST_BYTES, RegionBytes, parse_span};
use super::numbers::Watched;
use super::peers::PeerState;
use super::sources::StreamSource;

/// The clock is read once in so many polls.
const POLLS_PER_TICK: u32 = 64;
/// Most steps of one poll: frames that are no message, and calls that receive bytes.
const STEPS_PER_POLL: u32 = 16;
/// While bytes of reads or puts are expected, no more bytes than these are received beside them.
/// The others go straight into their memory.
const BESIDE_STREAMS: usize = 4096;

/// What a step of a poll has come to.
enum PollStep {
    /// A message, at this place of the inbox.
    Message { peer: PeerId, immediate: Option<u32>, place: Range<usize> },
    /// Something else was done.
    Done,
    /// Nothing is ready.
    Idle,
}

impl Tcp {
    /// See [`Device::poll`](tagmatch_device::Device::poll).
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event<'_>> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_TICK) {
            self.keep_time();
        }
        let mut has_asked = false;
        for _ in 0..STEPS_PER_POLL {
            if !self.events.is_empty() {
                return self.events.pop_front();
            }
            if !self.own_messages.is_empty() {
                return self.own_message();
            }
            match self.step(&mut has_asked) {
                PollStep::Message { peer, immediate, place } => {
                    let bytes = Bytes::from_slice(self.inbox.at(place));
                    let message = Incoming { peer, immediate, through_list: false, bytes };
                    return Some(Event::Message(message));
                }
                PollStep::Done => {}
                PollStep::Idle => return None,
            }
        }
        self.events.pop_front()
    }

    fn own_message(&mut self) -> Option<Event<'_>> {
        let (immediate, bytes) = self.own_messages.pop_front()?;
        self.own_bytes -= bytes.len() + 1;
        self.own_current = bytes;
        Some(Event::Message(Incoming {
            peer: PeerId::ONESELF,
            immediate,
            through_list: false,
            bytes: Bytes::from_slice(&self.own_current),
        }))
    }

    /// Whether a poll has something to do without asking the kernel.
    #[inline]
    pub(crate) fn has_found_work(&self) -> bool {
        !self.events.is_empty()
            || !self.own_messages.is_empty()
            || self.inbox.owner().is_some()
            || !self.ready.is_empty()
    }

    /// Looks at the next frame that was received, or else at the next descriptor that is ready. The
    /// kernel is asked once in a poll.
    #[inline]
    fn step(&mut self, has_asked: &mut bool) -> PollStep {
        if let Some(peer) = self.inbox.owner() {
            return self.take_frame(peer);
        }
        if self.ready.is_empty() {
            if *has_asked || !self.ready.fill(&self.epoll) {
                return PollStep::Idle;
            }
            *has_asked = true;
        }
        match self.ready.next() {
            Some((Watched::Peer(peer), ready)) => self.look_at_peer(peer, ready),
            Some((Watched::Pending(index), _)) => self.hear_pending(index),
            Some((Watched::Leaving(index), _)) => self.look_at_leaving(index),
            Some((Watched::Listener(place), _)) => self.accept(place),
            Some((Watched::Timer, _)) => self.take_timer(),
            None => {}
        }
        PollStep::Done
    }

    /// The time of a sleeping worker is over.
    #[cold]
    fn take_timer(&mut self) {
        self.timer.set(None);
        self.is_timer_stale = true;
        self.flush_wait.end_time();
        self.keep_time();
    }

    /// Does what is due by the clock. After a long time without a look, nobody is late until what
    /// the kernel holds was heard: that is done at the next look.
    #[cold]
    pub(crate) fn keep_time(&mut self) {
        let was_long = self.clock.look(Instant::now(), self.is_armed);
        self.hears_first = was_long && !self.hears_first;
        if self.hears_first {
            return;
        }
        self.tend_attempts();
        self.close_late_pending();
        self.resume_listeners();
        self.end_late_leaving();
        self.look_at_busy();
    }

    fn look_at_peer(&mut self, peer: PeerId, ready: ReadyDescriptor) {
        match self.peers.state(peer) {
            Some(PeerState::Up(_)) => {
                if ready.has_room {
                    self.push(peer);
                }
                if ready.is_readable {
                    self.receive(peer);
                }
            }
            Some(PeerState::Connecting(_)) => self.hear_answer(peer),
            Some(PeerState::Oneself | PeerState::Down { .. }) | None => {}
        }
    }

    /// Receives what has come from a peer. No other peer's bytes may be left in the inbox.
    fn receive(&mut self, peer: PeerId) {
        let Some(connection) = self.peers.connection_mut(peer) else { return };
        let partial = std::mem::take(&mut connection.partial);
        let room = self.inbox.begin(peer, &partial);
        let is_mixed = connection.reads.is_expecting() || connection.puts.is_expected;
        let landing = if is_mixed { connection.landing() } else { 0 };
        let beside = if is_mixed {
            connection.puts.note_receive();
            room.len().min(BESIDE_STREAMS.max(room_needed(&partial)))
        } else {
            room.len()
        };
        let Connection { socket, reads, puts, .. } = connection;
        let socket = socket.as_fd();
        let mut dropped = 0;
        let result = if landing == 0 {
            stream::receive(socket, &mut room[..beside])
        } else if let Some(into) = landing_room(reads, puts, &mut self.memory.regions) {
            // SAFETY: the kernel writes initialised bytes.
            let into = unsafe { into.into_uninit() };
            tcp::receive_parts(socket, into, &mut room[..beside])
        } else {
            dropped = landing;
            stream::receive(socket, room)
        };
        match result {
            Ok(0) => {
                self.inbox.forget(peer);
                self.finish(peer, DownReason::Gone);
            }
            Ok(count) => {
                let landed = count.min(landing);
                let skipped = count.min(dropped);
                self.inbox.received(count - landed + skipped);
                self.inbox.take(skipped);
                self.note_landed(peer, landed);
            }
            Err(error) if fails_for_now(&error) => {
                connection.partial = partial;
                self.inbox.forget(peer);
            }
            Err(_) => {
                self.inbox.forget(peer);
                self.finish(peer, DownReason::Gone);
            }
        }
    }

    /// Bytes of a read or a put have come.
    fn note_landed(&mut self, peer: PeerId, count: usize) {
        let Some(connection) = self.peers.connection_mut(peer).filter(|_| count > 0) else {
            return;
        };
        match connection.advance(count) {
            Ok(true) => self.push_unless_watched(peer),
            Ok(false) => {}
            Err(what) => self.break_with(peer, what),
        }
    }

    /// Looks at the next frame of the inbox, which are this peer's.
    #[inline]
    fn take_frame(&mut self, peer: PeerId) -> PollStep {
        let message_max = self.config.message_max as usize;
        let rest = self.inbox.rest();
        let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
            self.keep_rest(peer);
            return PollStep::Done;
        };
        let frame = match Frame::parse(header, message_max) {
            Ok(frame) => frame,
            Err(what) => {
                self.break_with(peer, what);
                return PollStep::Done;
            }
        };
        let have = rest.len() - HEADER_BYTES;
        if let Frame::Message { length, immediate } = frame {
            if have < length {
                self.keep_rest(peer);
                return PollStep::Done;
            }
            self.inbox.take(HEADER_BYTES);
            let place = self.inbox.take(length);
            return PollStep::Message { peer, immediate, place };
        }
        if let Err(what) = self.take_internal(peer, frame) {
            self.break_with(peer, what);
        }
        PollStep::Done
    }

    /// Takes a frame that is no message.
    ///
    /// # Errors
    /// The rule that the peer broke.
    fn take_internal(&mut self, peer: PeerId, frame: Frame) -> Result<(), &'static str> {
        let Some(connection) = self.peers.connection_mut(peer) else {
            self.inbox.forget(peer);
            return Ok(());
        };
        match frame {
            Frame::ReadRequest { id } => {
                let Some(span) = self.inbox.body::<REQUEST_BYTES>() else {
                    self.keep_rest(peer);
                    return Ok(());
                };
                let span = parse_span(span);
                self.memory.exposures.readable_by(peer).check(span)?;
                connection.out.take_request(id, StreamSource::Exposed(span))?;
                self.inbox.take(HEADER_BYTES + REQUEST_BYTES);
                self.push_unless_watched(peer);
            }
            Frame::Get { .. } | Frame::Put => {
                let Some(bytes) = self.inbox.body::<REGION_BYTES>() else {
                    self.keep_rest(peer);
                    return Ok(());
                };
                let bytes = RegionBytes::parse(bytes);
                self.inbox.take(HEADER_BYTES + REGION_BYTES);
                if let Frame::Get { id } = frame {
                    connection.out.take_request(id, StreamSource::Region(bytes))?;
                    self.push_unless_watched(peer);
                } else {
                    connection.puts.begin(bytes, &mut self.memory.regions)?;
                }
            }
            Frame::ReadData { length, .. } | Frame::PutData { length } => {
                if let Frame::ReadData { id, .. } = frame {
                    connection.reads.land(id, length)?;
                } else {
                    connection.puts.land(length)?;
                }
                self.inbox.take(HEADER_BYTES);
                let here = self.inbox.rest().len().min(length);
                let place = self.inbox.take(here);
                let Connection { reads, puts, .. } = connection;
                if let Some(room) = landing_room(reads, puts, &mut self.memory.regions) {
                    room.fill(self.inbox.at(place));
                }
                self.note_landed(peer, here);
                if here < length {
                    // The inbox is empty. More bytes of a long stream are probably there.
                    self.inbox.forget(peer);
                    self.receive(peer);
                }
            }
            Frame::ReadEnd { id } | Frame::ReadFailed { id } => {
                let is_good = matches!(frame, Frame::ReadEnd { .. });
                let ended = connection.reads.end(&mut connection.out, id, is_good)?;
                self.inbox.take(HEADER_BYTES);
                self.end_read(peer, ended);
                self.push_unless_watched(peer);
            }
            Frame::PutEnd { is_done } => {
                connection.accesses.end_put(&connection.out, is_done)?;
                self.inbox.take(HEADER_BYTES);
                self.report_accesses(peer);
                self.push_unless_watched(peer);
            }
            Frame::Flush => {
                self.inbox.take(HEADER_BYTES);
                tcp::acknowledge_now(connection.socket.as_fd());
            }
            Frame::Bye => self.finish(peer, DownReason::Left),
            Frame::Message { .. } => {}
        }
        Ok(())
    }

    /// Keeps the part of a frame that has come, until the rest comes.
    fn keep_rest(&mut self, peer: PeerId) {
        let rest = self.inbox.take_rest();
        if let Some(connection) = self.peers.connection_mut(peer) {
            connection.partial.extend_from_slice(rest);
        }
    }

    fn break_with(&mut self, peer: PeerId, what: &'static str) {
        self.inbox.forget(peer);
        self.finish(peer, DownReason::Misbehaved { what });
    }
}

/// Bytes that are missing of a frame of which a part is there, as far as its header tells.
fn room_needed(partial: &[u8]) -> usize {
    let length = partial.first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length));
    (HEADER_BYTES + length as usize).saturating_sub(partial.len())
}
