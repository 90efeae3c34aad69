//! All that tagperf uses of `tagmatch`: a worker, its peer, and waiting.

mod error;
mod patience;
mod tags;

use std::str::FromStr;
use std::time::{Duration, Instant};

pub(crate) use tagmatch::{
    Access, Buffer, End, Local, Output, Received, Region, Remote, Request, Sent, Shared, Token,
};
use tagmatch::{
    Address, AtomicOp, AtomicType, Config, Failed, LearnedChoice, Match, Peer, QueuedSend, Rights,
    SendOptions, Sleeper, Worker, WorkerOf,
};
use tagmatch_results::Matching;
use tagmatch_results::show::{show_count, show_size};

use crate::control::Attention;
use crate::device;
use crate::secret;
use crate::spec::{DeviceArg, HwTagsArg, WorkerNeeds};
pub(crate) use error::LinkError;
use patience::Patience;
use tags::TagScheme;

/// A look at whether the peer is down comes after so many polls.
const POLLS_PER_LOOK_AT_PEER: u32 = 4096;

/// Polls without result after which a wait sleeps between two polls, as the library's blocking
/// calls do. Some milliseconds, so the peer is reading a large message. A side that goes on polling
/// slows that down where the processors, or the host of a guest, have other work as well.
const POLLS_BEFORE_SLEEP: u32 = 3000;
/// The longest sleep between two polls.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// A receive that is not complete.
pub(crate) type Receiving<A = Local> = Request<Received, A>;
/// A send that is not complete.
pub(crate) type Sending<A = Local> = Request<Sent, A>;

/// The settings that bound a worker, in words.
pub(crate) fn settings() -> Vec<String> {
    let Config { eager_max, unexpected_bytes, unexpected_messages, .. } = Config::default();
    let messages = show_count(unexpected_messages);
    let bytes = show_size(unexpected_bytes);
    vec![
        format!("sent at once: up to {}", show_size(eager_max as u64)),
        format!("unexpected: up to {messages} messages, {bytes} in all"),
    ]
}

/// A worker that is not connected yet.
pub(crate) struct UnlinkedOf<A: Access> {
    worker: WorkerOf<A>,
    device: DeviceArg,
    tags: TagScheme,
}

/// A worker for one thread.
pub(crate) type Unlinked = UnlinkedOf<Local>;

impl<A: Access> UnlinkedOf<A> {
    /// Makes a worker on `device` with what is needed; its receives are matched by `hw_tags`.
    pub(crate) fn new(
        device: &DeviceArg,
        needs: WorkerNeeds,
        hw_tags: HwTagsArg,
    ) -> Result<Self, LinkError> {
        let default = Config::default();
        let unexpected = needs.unexpected;
        let tags = TagScheme::of(device, needs, hw_tags);
        // An empty message takes its envelope. The fillers must not use up the room of other
        // messages.
        let messages = default.unexpected_messages + 4 * unexpected;
        let bytes = default.unexpected_bytes + 256 * unexpected;
        let config = default
            .unexpected_messages(messages)
            .unexpected_bytes(bytes)
            .unexpected_peer_percent(100)
            .hw_tags(hw_tags.config(None))
            .layout(tags.layout)
            .device(device.config())
            .secret(secret::for_workers(device).map_err(LinkError::Tagmatch)?);
        let worker = WorkerOf::new(config)?;
        let device = device.clone();
        Ok(Self { worker, device, tags })
    }

    /// The address that the other side connects to.
    pub(crate) fn address(&self) -> String {
        self.worker.address().to_string()
    }

    /// Connects to the other side's worker. Returns at once.
    pub(crate) fn connect(self, address: &str, attention: Attention) -> Result<Link<A>, LinkError> {
        let address = Address::from_str(address).map_err(|e| LinkError::Tagmatch(e.to_string()))?;
        let peer = self.worker.connect(&address)?;
        Ok(Link::new(self, peer, attention))
    }

    /// Makes this worker its own peer.
    pub(crate) fn oneself(self) -> Link<A> {
        let peer = self.worker.oneself();
        Link::new(self, peer, Attention::default())
    }
}

/// A worker and its peer.
pub(crate) struct Link<A: Access> {
    worker: WorkerOf<A>,
    device: DeviceArg,
    peer: Peer,
    patience: Patience,
    tags: TagScheme,
    /// `None` where threads share the worker: a thread's request may end by another one's progress.
    sleeper: Option<Sleeper>,
}

impl<A: Access> Link<A> {
    fn new(unlinked: UnlinkedOf<A>, peer: Peer, attention: Attention) -> Self {
        let UnlinkedOf { worker, device, tags } = unlinked;
        let sleeper = if A::SHARED { None } else { worker.sleeper().ok() };
        Self { worker, device, peer, patience: Patience::new(attention), tags, sleeper }
    }

    /// Ends waits for the peer with [`LinkError::Stuck`] after `longest`.
    pub(crate) fn set_wait_limit(&mut self, longest: Duration) {
        self.patience.set_limit(longest);
    }

    /// Says that there are more threads than cores.
    pub(crate) fn crowded(&mut self) {
        self.patience.crowded();
    }

    /// Connects `count` workers of this process to this one, both ways, while `go_on` returns true.
    /// They are idle then, until they are dropped.
    pub(crate) fn meet_idle_peers(
        &self,
        count: u64,
        tag: u64,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<Vec<Worker>, LinkError> {
        let tag = self.tags.tag(tag);
        let layout = self.tags.layout;
        let meet = |_| {
            let device = self.device.idle_config();
            let secret = secret::for_workers(&self.device).map_err(LinkError::Tagmatch)?;
            let idle = Worker::new(Config::default().device(device).layout(layout).secret(secret))?;
            let peer = idle.connect(&self.worker.address())?;
            let hello = idle.send(peer, tag, Buffer::default());
            let known = idle.recv(Match::tag(tag).from(peer), Buffer::default());
            let theirs = self.worker.recv(Match::tag(tag), Buffer::default());
            let mut go_on = || {
                idle.progress();
                self.progress();
                go_on()
            };
            let source = self.finish_while(theirs, &mut go_on)?.status.source;
            let back = self.worker.send(source, tag, Buffer::default());
            self.finish_while(back, &mut go_on)?;
            self.finish_while(hello, &mut go_on)?;
            self.finish_while(known, &mut go_on)?;
            Ok(idle)
        };
        (0..count).map(meet).collect()
    }

    /// Posts a receive from the peer.
    #[inline]
    pub(crate) fn receive(&self, tag: u64, buffer: Buffer) -> Receiving<A> {
        self.receive_from(false, tag, buffer)
    }

    /// Posts a receive from any source, or from the peer.
    #[inline]
    pub(crate) fn receive_from(&self, any: bool, tag: u64, buffer: Buffer) -> Receiving<A> {
        self.worker.recv(self.pattern(any, tag), buffer)
    }

    /// As [`receive_from`](Self::receive_from); the end comes in the worker's completion queue.
    #[inline]
    pub(crate) fn receive_queued(
        &self,
        any: bool,
        tag: u64,
        buffer: Buffer,
        context: u64,
    ) -> Result<(), LinkError> {
        self.worker.recv_queued(self.pattern(any, tag), buffer, context)?;
        Ok(())
    }

    #[inline]
    fn pattern(&self, any: bool, tag: u64) -> Match {
        let tag = self.tags.tag(tag);
        if any {
            Match::masked(tag, self.tags.any_source())
        } else if self.tags.source_in_tag {
            Match::tag(tag)
        } else {
            Match::tag(tag).from(self.peer)
        }
    }

    #[inline]
    pub(crate) fn send(&self, tag: u64, buffer: Buffer) -> Sending<A> {
        self.worker.send(self.peer, self.tags.tag(tag), buffer)
    }

    /// Sends. The buffer, if the send is complete at once; else the end comes in the worker's
    /// completion queue.
    #[inline]
    pub(crate) fn send_queued(
        &self,
        tag: u64,
        buffer: Buffer,
        context: u64,
    ) -> Result<Option<Buffer>, LinkError> {
        match self.worker.send_queued(self.peer, self.tags.tag(tag), buffer, context)? {
            QueuedSend::Complete(buffer) => Ok(Some(buffer)),
            QueuedSend::UnderWay(_) => Ok(None),
        }
    }

    /// Sends with 32 bits of immediate data.
    pub(crate) fn send_with(&self, tag: u64, buffer: Buffer, immediate: u32) -> Sending<A> {
        let options = SendOptions::default().immediate(Some(immediate));
        self.worker.send_with(self.peer, self.tags.tag(tag), buffer, options)
    }

    /// The immediate data of a message that is unexpected, if one is there. Makes progress.
    pub(crate) fn waiting(&self, tag: u64) -> Result<Option<Option<u32>>, LinkError> {
        let found = self.worker.probe(Match::tag(self.tags.tag(tag)).from(self.peer))?;
        Ok(found.map(|status| status.immediate))
    }

    /// Waits for a request: spins, then yields, then sleeps. Ends early if the control channel
    /// wants attention.
    #[inline]
    pub(crate) fn finish<T: Output>(&self, request: Request<T, A>) -> Result<T, LinkError> {
        self.finish_while(request, || true)
    }

    /// Waits for a request as [`finish`](Self::finish) does. Now and then, `others` looks at the
    /// other operations that are under way: if one of them has failed, the other side may wait for
    /// it, and what is waited for here may never come. Their error ends the wait.
    #[inline]
    pub(crate) fn finish_beside<T: Output>(
        &self,
        mut request: Request<T, A>,
        others: impl FnMut() -> Result<(), LinkError>,
    ) -> Result<T, LinkError> {
        Ok(self.await_some(|| request.test(), || true, others)??)
    }

    /// Waits for a request while `go_on`, which is asked after each poll, returns true.
    #[inline]
    pub(crate) fn finish_while<T: Output, B: Access>(
        &self,
        mut request: Request<T, B>,
        go_on: impl FnMut() -> bool,
    ) -> Result<T, LinkError> {
        Ok(self.await_some(|| request.test(), go_on, || Ok(()))??)
    }

    /// Waits, while `go_on` returns true, until the peer can be named as a source: over a provider
    /// of libfabric that must have a way to it.
    pub(crate) fn await_peer(&self, go_on: impl FnMut() -> bool) -> Result<(), LinkError> {
        if !matches!(self.device, DeviceArg::Ofi { .. }) {
            return Ok(());
        }
        let look = || {
            self.progress();
            let is_reached = self.worker.transports(self.peer).is_ok_and(|by| !by.is_empty());
            is_reached.then_some(())
        };
        self.await_some(look, go_on, || Ok(()))
    }

    /// Waits for ends in the worker's completion queue as [`finish`](Self::finish) does for a
    /// request, and adds them to `ends`, at most `max`.
    #[inline]
    pub(crate) fn await_ends(&self, ends: &mut Vec<End>, max: usize) -> Result<(), LinkError> {
        let look = || (self.worker.ends(ends, max) > 0).then_some(());
        self.await_some(look, || true, || Ok(()))
    }

    /// Waits until `look`, which makes progress, finds something, or `others`, which is called now
    /// and then, an error.
    #[inline]
    fn await_some<T>(
        &self,
        mut look: impl FnMut() -> Option<T>,
        mut go_on: impl FnMut() -> bool,
        mut others: impl FnMut() -> Result<(), LinkError>,
    ) -> Result<T, LinkError> {
        let mut polls = 0u32;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if !go_on() {
                return Err(LinkError::Interrupted);
            }
            if let Err(error) = self.pause(&mut polls) {
                // Messages sent before the one on the control channel are here by now. An error of
                // this side's own operation tells more than that the other side has given up.
                return look().map_or_else(|| others().and(Err(error)), Ok);
            }
            if polls.is_multiple_of(POLLS_PER_LOOK_AT_PEER) {
                others()?;
            }
            if polls > POLLS_BEFORE_SLEEP && self.sleep() {
                // The next pause looks at the control channel, the limit and the peer.
                polls |= POLLS_PER_LOOK_AT_PEER - 1;
            }
        }
    }

    /// Sleeps until the worker has something to do, for at most [`SLEEP_MAX`]. `false` if it has
    /// something to do already, or can't sleep.
    fn sleep(&self) -> bool {
        let Some(sleeper) = &self.sleeper else { return false };
        if !self.worker.arm() {
            return false;
        }
        let slept = sleeper.sleep(SLEEP_MAX);
        self.worker.disarm();
        slept.is_ok()
    }

    /// Cancels a receive; `None` if a message was faster.
    pub(crate) fn take_back(&self, mut request: Receiving<A>) -> Result<Option<Buffer>, LinkError> {
        request.cancel();
        let mut polls = 0;
        loop {
            match request.test() {
                Some(Err(Failed { error: tagmatch::Error::Cancelled, buffer })) => {
                    return Ok(Some(buffer));
                }
                Some(Err(failed)) => return Err(failed.into()),
                Some(Ok(_)) => return Ok(None),
                None => self.pause(&mut polls)?,
            }
        }
    }

    /// Between two polls: spins, or yields after many. An error if the other side wants attention
    /// or has let this one wait too long, or is down: a receive from any source doesn't end by
    /// that. `polls` starts at 0 for each wait.
    #[inline]
    pub(crate) fn pause(&self, polls: &mut u32) -> Result<(), LinkError> {
        self.patience.pause(polls)?;
        if polls.is_multiple_of(POLLS_PER_LOOK_AT_PEER)
            && let Some(fault) = self.worker.peer_fault(self.peer)?
        {
            return Err(tagmatch::Error::PeerDown { peer: self.peer, fault }.into());
        }
        Ok(())
    }

    /// A buffer of that length for messages.
    pub(crate) fn buffer(&self, length: usize) -> Buffer {
        self.worker.buffer(length)
    }

    /// Exposes a region of so many bytes, all of them 0.
    pub(crate) fn expose(&self, length: usize) -> Result<Region<A>, LinkError> {
        let mut memory = self.buffer(length);
        if let Some(bytes) = memory.as_mut_slice() {
            bytes.fill(0);
        }
        Ok(self.worker.expose_region(memory, Rights::ALL)?)
    }

    /// The peer's region that a token names.
    pub(crate) fn attach(&self, token: &[u8; Token::BYTES]) -> Result<Remote<A>, LinkError> {
        Ok(self.worker.attach(self.peer, &Token::from_bytes(token)?)?)
    }

    /// Adds one to the first number of a region, and waits for the old number.
    #[inline]
    pub(crate) fn add_one(&self, remote: &Remote<A>) -> Result<u64, LinkError> {
        Ok(remote.fetch_u64(0, AtomicOp::Sum, 1)?)
    }

    /// Begins to add one to the first number of a region. The buffer, which has the length of a
    /// number, comes back with the old number.
    #[inline]
    pub(crate) fn begin_add_one(
        &self,
        remote: &Remote<A>,
        mut buffer: Buffer,
    ) -> Request<Received, A> {
        if let Some(bytes) = buffer.as_mut_slice() {
            bytes.copy_from_slice(&1u64.to_ne_bytes());
        }
        remote.fetch(0, AtomicOp::Sum, AtomicType::U64, buffer)
    }

    /// Makes progress.
    #[inline]
    pub(crate) fn progress(&self) {
        self.worker.progress();
    }

    /// Makes progress until `done` returns true, for at most `limit`.
    pub(crate) fn progress_until(
        &self,
        limit: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<(), LinkError> {
        let start = Instant::now();
        while !done(self) {
            if self.worker.progress() == 0 {
                std::thread::yield_now();
            }
            if self.patience.attention.is_wanted() {
                return Err(LinkError::Attention);
            }
            if start.elapsed() > limit {
                return Err(LinkError::Stuck(limit));
            }
        }
        Ok(())
    }

    /// How receives were matched so far.
    pub(crate) fn matching(&self) -> Matching {
        self.worker.counters().into()
    }

    /// Receives posted now, and messages that are unexpected now where the device counts them.
    pub(crate) fn depths(&self) -> (u64, Option<u64>) {
        let counters = self.worker.counters();
        let is_told = !self.device.matches();
        (counters.posted_now, is_told.then_some(counters.unexpected_now))
    }

    /// Whether `count` messages are unexpected. `last` is the tag of the one sent last. Makes
    /// progress.
    pub(crate) fn are_waiting(&self, count: u64, last: u64) -> bool {
        match self.depths().1 {
            Some(waiting) => waiting >= count,
            // Messages don't overtake each other, so the last one is enough.
            None => count == 0 || matches!(self.waiting(last), Ok(Some(_))),
        }
    }

    /// The choices that this side's worker has learned for the messages to and from the peer.
    pub(crate) fn learned(&self) -> Result<Vec<LearnedChoice>, LinkError> {
        Ok(self.worker.learned(self.peer)?)
    }

    /// How large messages are transferred, once the peer is connected.
    pub(crate) fn large_messages(&self) -> Result<String, LinkError> {
        let mode = self.worker.read_mode(self.peer)?;
        Ok(device::large_messages(&self.device, mode, &self.worker.transports(self.peer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_peers_are_connected_both_ways_and_leave_nothing_behind() {
        let link = Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), HwTagsArg::Off)
            .unwrap()
            .oneself();
        let idle = link.meet_idle_peers(3, 1 << 60, &mut || true).unwrap();
        assert_eq!(idle.len(), 3);
        let heard = |counters: tagmatch::Counters| counters.posted + counters.unexpected;
        assert_eq!(heard(link.worker.counters()), 3, "one message from each");
        for idle in &idle {
            assert_eq!(heard(idle.counters()), 1, "and one back");
        }
        assert_eq!(link.depths(), (0, Some(0)));
    }

    #[test]
    fn a_wait_ends_where_patience_does() {
        let mut link = Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), HwTagsArg::Off)
            .unwrap()
            .oneself();
        link.set_wait_limit(Duration::from_millis(20));
        for _ in 0..2 {
            let error = link.finish(link.receive(1, Buffer::default())).unwrap_err();
            assert!(matches!(error, LinkError::Stuck(_)), "{error}");
        }
        // The time counts from the beginning of each wait.
        std::thread::sleep(Duration::from_millis(40));
        let receiving = link.receive(2, Buffer::default());
        link.finish(link.send(2, Buffer::default())).unwrap();
        link.finish(receiving).unwrap();
    }

    #[test]
    fn a_long_wait_sleeps_between_its_polls() {
        let mut link = Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), HwTagsArg::Off)
            .unwrap()
            .oneself();
        let limit = SLEEP_MAX * 20;
        link.set_wait_limit(limit);
        let mut polls = 0;
        let count = || {
            polls += 1;
            true
        };
        let error = link.finish_while(link.receive(1, Buffer::default()), count).unwrap_err();
        assert!(matches!(error, LinkError::Stuck(_)), "{error}");
        // Without the sleep there are as many polls as the limit has time for. A busy machine has
        // time for fewer.
        assert!(polls <= POLLS_BEFORE_SLEEP + 40, "{polls} polls in {limit:?}");
    }

    #[test]
    fn a_receive_is_taken_back_unless_it_was_faster() {
        let link = Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), HwTagsArg::Off)
            .unwrap()
            .oneself();
        let buffer = link.take_back(link.receive(1, Buffer::zeroed(8))).unwrap();
        assert_eq!(buffer.unwrap().len(), 8);
        let receiving = link.receive(1, Buffer::default());
        link.finish(link.send_with(1, Buffer::default(), 77)).unwrap();
        link.progress_until(Duration::from_secs(10), |link| link.depths().0 == 0).unwrap();
        assert!(link.take_back(receiving).unwrap().is_none());
        link.finish(link.send_with(1, Buffer::default(), 77)).unwrap();
        link.progress_until(Duration::from_secs(10), |link| link.are_waiting(1, 1)).unwrap();
        assert_eq!(link.waiting(1).unwrap(), Some(Some(77)));
        assert_eq!(link.waiting(2).unwrap(), None);
    }
}
