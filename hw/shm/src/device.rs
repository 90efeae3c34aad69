//! The device: its parts, and the calls of [`Device`] that need one part alone.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use tagmatch_device::{
    Address, Buffer, CopiedReads, Device, DeviceError, DownReason, Event, EventDescriptor,
    EventSink, Exposure, ExposureId, Flush, InCall, Join, LearnedChoice, Limits, Network, Outgoing,
    PeerId, PeerNumbers, Polled, PublishedRegion, QuickAccess, ReadError, ReadMode, ReadRequest,
    Refused, RegionAccess, RegionPlace, RegionSpan,
};
use tagmatch_os::memory::Mapping;
use tagmatch_os::sleep::EventFd;

use super::carrying::Carrying;
use super::config::ShmConfig;
use super::connection::Connection;
use super::connections::Connections;
use super::doorbell;
use super::handshake::accept::Acceptor;
use super::handshake::local::LocalEnd;
use super::handshake::step::HandshakeStep;
use super::peers::PeerState;
use super::ring::{Consumer, Piggyback, Producer, PushError, Ring};
use super::sharing::Sharing;
use super::watcher::Watched;

/// The shared-memory device. See the [crate](crate) for how it works.
///
/// All work is done in the calls of [`Device`], on the caller's thread. Two kinds of work are done
/// by other threads: closing descriptors that were received from an unknown process, because that
/// can block; and watching how connections end, if there are more than four. A worker that polls
/// rarely notices new connections and ended peers late. A worker with nothing to do sleeps on its
/// [event descriptor](EventDescriptor::event_descriptor).
pub struct Shm {
    pub(crate) local: LocalEnd,
    pub(crate) acceptor: Acceptor,
    pub(crate) connections: Connections,
    /// Wakes this worker when one of its threads sends to oneself while another sleeps.
    pub(crate) eventfd: Arc<EventFd>,
    /// Polls so far.
    pub(crate) polls: u32,
    /// Polls in a row that found nothing.
    pub(crate) idle_polls: u32,
    /// When the kernel was last asked for ready descriptors.
    pub(crate) last_look: Instant,
    /// When all rings were last looked at without their doorbell bits.
    pub(crate) last_sweep: Instant,
    /// A peer is to be connected to again later, so that polls have to look at the clock.
    pub(crate) has_retries: bool,
    pub(crate) is_armed: bool,
}

impl Shm {
    /// A new worker. Peers that get its address can connect to it at once.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range; [`DeviceError::System`] if the
    /// system has no descriptors or memory left, or lacks memfd_create(2).
    pub fn new(config: ShmConfig) -> Result<Self, DeviceError> {
        let local = LocalEnd::new(config)?;
        let doorbell = local.doorbell.clone();
        let connections =
            Connections::new(&local.config, doorbell, local.makes_barriers, local.arena.clone())?;
        let acceptor = Acceptor::new(&local, &connections.watcher)?;
        let eventfd = Arc::new(EventFd::new().in_call("eventfd")?);
        connections.watcher.watch(eventfd.as_fd(), Watched::OwnEventFd).in_call("epoll_ctl")?;
        connections.watcher.watch(local.waker.as_fd(), Watched::Waker).in_call("epoll_ctl")?;
        let mut shm = Shm {
            local,
            acceptor,
            connections,
            eventfd,
            polls: 0,
            idle_polls: 0,
            last_look: Instant::now(),
            last_sweep: Instant::now(),
            has_retries: false,
            is_armed: false,
        };
        shm.connect_oneself()?;
        Ok(shm)
    }

    /// Messages to oneself go through a ring like all others. Its memory is mapped by this process
    /// alone.
    fn connect_oneself(&mut self) -> Result<(), DeviceError> {
        let none_left = DeviceError::Exhausted { what: "ring", limit: doorbell::BITS };
        let local = &self.local;
        let connections = &mut self.connections;
        let mapping = Mapping::private(local.geometry.pair_bytes()).in_call("mmap")?;
        let rings = Ring::pair(mapping, local.geometry, local.geometry);
        let (Some([ring, _]), Some(bit)) = (rings, connections.inboxes.reserve()) else {
            return Err(none_left);
        };
        let piggyback = Arc::<Piggyback>::default();
        let consumer =
            Consumer::new(ring.clone(), local.config.message_max, Arc::clone(&piggyback));
        connections.inboxes.insert(bit, consumer, PeerId::ONESELF);
        let connection = Connection {
            producer: Producer::new(ring.clone(), piggyback)
                .with_ways(local.config.pinned_laps(), local.config.streams),
            message_max: local.config.message_max,
            is_fenced: false,
            doorbell: local.doorbell.clone(),
            doorbell_bit: bit,
            inbox: bit,
            other_end: None,
            eventfd: Some(self.eventfd.clone()),
            counted_for: None,
            read_mode: ReadMode::Direct,
            memory: None,
            copied: CopiedReads::default(),
            inbound: ring,
            takes_offers: false,
            offers: 0,
            is_offering: false,
            carrying: Carrying::new(false, None, 0),
            sharing: Sharing::new(Some(true)),
        };
        let peer = connections.peers.add(local.address, PeerState::Up(Box::new(connection)))?;
        connections.events.push_back(Event::PeerUp { peer, limits: local.limits() });
        Ok(())
    }
}

impl Shm {
    /// In a build with debug assertions: panics if the books of the connections are wrong.
    fn audit(&self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            let wrong = self.connections.audit();
            assert!(wrong.is_empty(), "an audit of shared memory: {}", wrong.join("; "));
        }
    }
}

impl fmt::Debug for Shm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shm")
            .field("address", &self.local.address)
            .field("peers", &self.connections.peers.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        if !self.local.name.is_own_process() {
            return;
        }
        self.audit();
        // All generations end before any buffer is dropped. The nonces are erased when connections
        // are dropped, before the exposed buffers. A peer that reads a buffer looks afterwards
        // whether the one or the other has happened.
        self.acceptor.shut_down();
        self.connections.abandon_reads();
        self.connections.regions.unpublish_all(&self.connections.peers);
        let states = self.connections.peers.states();
        for connection in states.filter_map(|(_, state)| state.connection()) {
            self.connections.reads.end_generation(connection);
            if let Some(other) = &connection.other_end {
                other.lifeline.say_bye();
            }
        }
    }
}

impl Device for Shm {
    fn limits(&self) -> Limits {
        self.local.limits()
    }

    fn address(&self) -> Address {
        self.local.address
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let Shm { local, connections, .. } = self;
        HandshakeStep { local, connections, now: Instant::now() }.start(address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.connections.peers.address(peer)
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        match self.connections.peers.state(peer) {
            Some(PeerState::Up(connection) | PeerState::Draining(connection, _)) => {
                connection.read_mode
            }
            _ => ReadMode::Unknown,
        }
    }

    fn sends_fragments(&self, peer: PeerId, length: usize) -> bool {
        let connection = self.connections.peers.state(peer).and_then(PeerState::connection);
        connection.is_some_and(|connection| connection.carrying.is_fragmented(length))
    }

    fn note_sent(&mut self, peer: PeerId, length: usize) {
        if let Some(connection) = self.connections.peers.connection_mut(peer) {
            connection.carrying.sent(length, Instant::now);
        }
    }

    fn learned(&self, peer: PeerId) -> Vec<LearnedChoice> {
        let connection = self.connections.peers.state(peer).and_then(PeerState::connection);
        connection.map_or_else(Vec::new, Connection::learned)
    }

    #[inline(always)]
    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        let connection = match self.connections.peers.state_of_receiver(peer) {
            Some(PeerState::Up(connection)) => connection,
            Some(PeerState::Connecting(_)) => return Err(Refused::NotUp),
            Some(PeerState::Draining(..) | PeerState::Down) | None => return Err(Refused::Down),
        };
        let header = message.header;
        let payload = message.payload;
        let room = (connection.message_max as usize).saturating_sub(header.len());
        if header.len() > Outgoing::HEADER_MAX || payload.len() > room {
            return Err(Refused::TooLong);
        }
        match connection.send(header, payload, message.immediate, &self.polls) {
            Ok(()) => Ok(()),
            Err(PushError::Full) => Err(Refused::Full),
            Err(PushError::Broken(what)) => {
                self.connections.finish(peer, DownReason::Misbehaved { what });
                Err(Refused::Down)
            }
        }
    }

    fn allocate(&mut self, length: usize) -> Option<Buffer> {
        // A buffer that fits into one message is copied through a ring, so no peer reads it.
        let message = length.saturating_add(Outgoing::HEADER_MAX);
        let is_carried = message <= self.local.config.message_max as usize;
        let arena = self.local.arena.as_ref().filter(|_| !is_carried);
        arena.and_then(|arena| arena.allocate(length)).or_else(|| Buffer::try_zeroed(length))
    }

    fn expose(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        self.connections.reads.exposures.expose(reader, buffer)
    }

    fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        self.connections.reads.exposures.withdraw(reader, id)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        let connections = &mut self.connections;
        connections.reads.start(&mut connections.peers, request)?;
        connections.needs_attention = true;
        Ok(())
    }

    fn publish(&mut self, region: &PublishedRegion<'_>) -> RegionPlace {
        self.connections.regions.publish(region)
    }

    fn unpublish(&mut self, key: u64) -> bool {
        self.connections.regions.unpublish(key, &self.connections.peers)
    }

    fn access(&mut self, access: RegionAccess) -> Result<(), Buffer> {
        let connections = &mut self.connections;
        connections.regions.start(&connections.peers, access)?;
        connections.needs_attention = true;
        Ok(())
    }

    fn access_at_once(&mut self, peer: PeerId, of: RegionSpan, access: QuickAccess<'_>) -> bool {
        let connections = &self.connections;
        connections.regions.do_at_once(&connections.peers, peer, of, access)
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Event<'_>> {
        self.next_event()
    }

    #[inline(always)]
    fn poll_into(&mut self, sink: impl EventSink) -> Polled {
        self.next_event_into(sink)
    }

    /// A message that was taken lies in a ring whose memory the peer owns.
    fn flush(&mut self, _: PeerId, _: &mut Option<u64>) -> Flush {
        Flush::Done
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.connections.finish(peer, DownReason::Disconnected);
    }

    fn forget(&mut self, peer: PeerId) -> bool {
        self.connections.peers.forget(peer)
    }

    fn close(&mut self) {
        self.acceptor.close(&self.connections.watcher);
    }

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.audit();
        self.fall_asleep(waiting_to_send)
    }

    #[inline]
    fn has_work(&self) -> bool {
        let connections = &self.connections;
        connections.has_work()
            || connections.is_draining()
            || !connections.peers.connecting().is_empty()
    }

    fn disarm(&mut self) {
        self.wake_up();
    }
}

impl Join for Shm {
    fn network(&self) -> Network {
        Network::Shm
    }

    fn section(&self, _: usize) -> Vec<u8> {
        self.local.name.section().to_vec()
    }

    /// The name in the address must be that of this worker: it is the name of its socket.
    fn join(&mut self, address: Address, numbers: &PeerNumbers) {
        self.local.address = address;
        self.connections.peers.join(address, numbers);
    }
}

impl EventDescriptor for Shm {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.connections.watcher.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use tagmatch_device::{LearnedDirection, RemoteSpan};
    use tagmatch_os::socket;

    use super::*;

    /// Two workers, how the first one names the second one, and the other way round.
    fn connected(config: &ShmConfig) -> ([Shm; 2], [PeerId; 2]) {
        let mut pair = [(); 2].map(|()| Shm::new(config.clone()).unwrap());
        let [a, b] = &mut pair;
        let to_b = a.connect(&b.address()).unwrap();
        let to_a = b.connect(&a.address()).unwrap();
        let start = Instant::now();
        while a.connections.peers.connection_mut(to_b).is_none()
            || b.connections.peers.connection_mut(to_a).is_none()
        {
            a.poll();
            b.poll();
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        while a.poll().is_some() || b.poll().is_some() {}
        (pair, [to_b, to_a])
    }

    #[test]
    fn a_pair_tries_both_ways_of_reading_unless_it_is_not_to_learn() {
        // The longer one begins with a part for the sender, and the shorter one without.
        for (learns, length) in [(true, 64 << 10), (false, 64 << 10), (true, 32 << 10)] {
            let ([mut a, mut b], [to_b, to_a]) = connected(&ShmConfig::default().learns(learns));
            let remote = a.expose(to_b, Buffer::zeroed(length)).unwrap().span;
            let mut ways = [false; 2];
            let mut buffer = Buffer::zeroed(length);
            // More than two epochs of 18 samples of 64 reads.
            for token in 0..2400 {
                b.read(ReadRequest { peer: to_a, remote, into: buffer, token }).unwrap();
                buffer = loop {
                    match b.poll() {
                        Some(Event::ReadDone { result: Ok(()), into, .. }) => break into,
                        other => assert!(other.is_none() && a.poll().is_none()),
                    }
                };
                let connection = b.connections.peers.connection_mut(to_a).unwrap();
                ways[usize::from(connection.sharing.is_offered(length))] = true;
            }
            assert_eq!(ways, [learns, true]);
            let choices = b.learned(to_a);
            let of_reads = |choice: &&LearnedChoice| {
                choice.direction == LearnedDirection::Received && choice.lengths.contains(&length)
            };
            let measured = choices.iter().find(of_reads).map(|choice| choice.samples > 0);
            assert_eq!(measured, learns.then_some(true));
            assert!(b.learned(PeerId::ONESELF).iter().all(|choice| choice.samples == 0));
        }
    }

    /// Begins reads of buffers of `owner` by `reader`; buffer number i has bytes i.
    fn begin_reads(owner: (&mut Shm, PeerId), reader: (&mut Shm, PeerId), count: u8) {
        for number in 0..count {
            let bytes = vec![number; 16 << 10];
            let remote = owner.0.expose(owner.1, bytes.into()).unwrap().span;
            let into = Buffer::zeroed(16 << 10);
            let token = number.into();
            reader.0.read(ReadRequest { peer: reader.1, remote, into, token }).unwrap();
        }
    }

    /// The next event, which is the end of this read.
    fn end_of_read(shm: &mut Shm, number: u8) -> Result<(), ReadError> {
        let Some(Event::ReadDone { token, into, result }) = shm.poll() else { panic!("no end") };
        assert_eq!(token, number.into());
        let is_whole = into.iter().all(|byte| *byte == number);
        assert!(is_whole || result.is_err());
        result
    }

    #[test]
    fn short_reads_from_one_peer_are_done_in_one_call() {
        let ([mut a, mut b], [to_b, to_a]) = connected(&ShmConfig::default());
        begin_reads((&mut a, to_b), (&mut b, to_a), 11);
        let mut waiting = Vec::new();
        for number in 0..11 {
            assert_eq!(end_of_read(&mut b, number), Ok(()));
            waiting.push(b.connections.events.len());
        }
        // A call takes eight at most.
        assert_eq!(waiting, [7, 6, 5, 4, 3, 2, 1, 0, 2, 1, 0]);
    }

    #[test]
    fn each_of_several_short_reads_has_an_error_of_its_own() {
        let ([mut a, mut b], [to_b, to_a]) = connected(&ShmConfig::default());
        begin_reads((&mut a, to_b), (&mut b, to_a), 2);
        let remote = RemoteSpan { address: 1, length: 1 << 10, key: 0 };
        let into = Buffer::zeroed(1 << 10);
        b.read(ReadRequest { peer: to_a, remote, into, token: 2 }).unwrap();
        let results = [0, 1, 2].map(|number| end_of_read(&mut b, number));
        assert_eq!(results, [Ok(()), Ok(()), Err(ReadError::BadSpan)]);
        // A worker that has let go of its buffers.
        begin_reads((&mut a, to_b), (&mut b, to_a), 3);
        let connection = a.connections.peers.connection_mut(to_b).unwrap();
        connection.other_end.as_ref().unwrap().own_nonce.erase();
        let results = [0, 1, 2].map(|number| end_of_read(&mut b, number));
        assert_eq!(results, [Err(ReadError::PeerDown); 3]);
    }

    #[test]
    fn a_short_read_waits_for_a_few_messages_and_no_longer() {
        let ([mut a, mut b], [to_b, to_a]) = connected(&ShmConfig::default());
        for messages in [0, 3, 40] {
            for _ in 0..messages {
                let message = Outgoing { header: &[0; 16], payload: &[], immediate: None };
                a.send(to_b, message).unwrap();
            }
            begin_reads((&mut a, to_b), (&mut b, to_a), 1);
            let mut received = 0;
            while let Some(Event::Message(_)) = b.poll() {
                received += 1;
            }
            assert!(received <= messages.min(8), "{received} of {messages}");
            // The others come behind the read, whose end was taken.
            let mut rest = 0;
            while let Some(Event::Message(_)) = b.poll() {
                rest += 1;
            }
            assert_eq!(received + rest, messages);
        }
    }

    #[test]
    fn a_pair_tries_both_ways_for_messages_of_middle_length_unless_it_is_not_to_learn() {
        const LENGTH: usize = 20 << 10;
        for learns in [true, false] {
            let ([mut a, _b], [to_b, _]) = connected(&ShmConfig::default().learns(learns));
            let before = a.sends_fragments(to_b, LENGTH);
            // More than two epochs of 18 samples of 256 messages.
            let has_changed = (0..10_000).any(|_| {
                a.note_sent(to_b, LENGTH);
                a.sends_fragments(to_b, LENGTH) != before
            });
            assert_eq!(has_changed, learns);
        }
    }

    #[test]
    fn a_busy_pair_tries_both_kinds_of_laps_unless_it_is_not_to_learn() {
        for learns in [true, false] {
            let ([mut a, mut b], [to_b, _]) = connected(&ShmConfig::default().learns(learns));
            let mut has_long_laps = false;
            // More lines than two epochs of 17 samples of 4096 lines.
            for _ in 0..150_000 {
                let message = Outgoing { header: &[0; 16], payload: &[], immediate: None };
                a.send(to_b, message).unwrap();
                assert!(matches!(b.poll(), Some(Event::Message(_))));
                let connection = a.connections.peers.connection_mut(to_b).unwrap();
                has_long_laps |= !connection.producer.ends_laps_early();
            }
            assert_eq!(has_long_laps, learns);
        }
    }

    #[test]
    fn a_pending_connection_that_says_nothing_leaves_polls_short() {
        let mut shm = Shm::new(ShmConfig::default()).unwrap();
        assert!(matches!(shm.poll(), Some(Event::PeerUp { .. })));
        let silent = socket::connect(shm.local.name.socket_name().as_bytes()).unwrap();
        let start = Instant::now();
        while !shm.acceptor.has_pending() {
            assert!(shm.poll().is_none() && start.elapsed() < Duration::from_secs(20));
        }
        assert!(shm.poll().is_none());
        assert!(!shm.connections.needs_attention);
        // An attempt of this worker leaves polls short, too, until it is answered.
        let mut busy = Shm::new(ShmConfig::default()).unwrap();
        let peer = shm.connect(&busy.address()).unwrap();
        for _ in 0..100_000 {
            assert!(shm.poll().is_none());
        }
        assert!(!shm.connections.needs_attention);
        assert_eq!(shm.connections.peers.connecting(), [peer]);
        while !matches!(shm.poll(), Some(Event::PeerUp { peer: up, .. }) if up == peer) {
            busy.poll();
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        drop(silent);
        while shm.acceptor.has_pending() {
            assert!(shm.poll().is_none() && start.elapsed() < Duration::from_secs(20));
        }
    }
}
