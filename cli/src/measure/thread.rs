//! The part of one thread in a measurement: its buffers, its tag, and the work before and after the
//! measured loop.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::{ANSWER, Batch, DATA};
use super::completions::{Operations, Queue, Requests, Selector, UnderWay};
use super::error::MeasureError;
use crate::link::{Access, Buffer, Link, LinkError, Receiving, Sending};
use crate::payload::{Direction, Stamp};
use crate::spec::{Case, Completions, Traffic};

/// The role of a participant in the traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Begins, and reads the clock.
    Client,
    /// Answers.
    Peer,
    /// Sends to itself.
    Alone,
}

impl Role {
    /// The direction in the payloads that it sends.
    fn outgoing(self) -> Direction {
        if self == Role::Peer { Direction::Pong } else { Direction::Ping }
    }

    /// The direction in the payloads that it receives.
    fn incoming(self) -> Direction {
        if self == Role::Client { Direction::Pong } else { Direction::Ping }
    }
}

/// The measured interval of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

impl Span {
    pub(crate) fn since(start: Instant) -> Self {
        Self { start, end: Instant::now() }
    }

    pub(crate) fn took(self) -> Duration {
        self.end - self.start
    }
}

/// One thread's buffers and receives.
pub(crate) struct ThreadPart<A: Access> {
    pub(super) case: Case,
    pub(super) role: Role,
    number: u64,
    /// Messages of all batches so far in one direction. They number the payloads.
    done: u64,
    pub(super) outgoing: Vec<Buffer>,
    pub(super) incoming: Vec<Buffer>,
    /// The bytes behind all of `outgoing`, if every message is sent from one buffer.
    single: Option<Arc<[u8]>>,
    /// The part of `incoming` that holds messages of the last batch.
    pub(super) fresh: Range<usize>,
    /// Operations of the measured loop, which has all of them back at its end. The first receives
    /// are posted before a batch begins.
    pub(super) operations: Operations<A>,
    /// Times of round trips, or of single trips, of the last batch.
    pub(super) times_ns: Vec<u64>,
}

impl<A: Access> ThreadPart<A> {
    pub(crate) fn new(link: &Link<A>, case: &Case, role: Role, number: u64) -> Self {
        let (out, into) = slots(case, role);
        let size = usize::try_from(case.size).unwrap_or(usize::MAX);
        let buffers = |count: u64| (0..count).map(|_| link.buffer(size)).collect::<Vec<_>>();
        // With one message at a time, the same buffer goes out and comes back anyway.
        let shared = case.single_buffer && out > 1;
        let single = shared.then(|| Arc::from(vec![0; size]));
        Self {
            case: case.clone(),
            role,
            number,
            done: 0,
            outgoing: if shared { Vec::new() } else { buffers(out) },
            incoming: buffers(into),
            single,
            fresh: 0..0,
            operations: Operations::default(),
            times_ns: Vec::new(),
        }
    }

    /// Prepares a batch: writes the payloads and posts the first receives.
    pub(crate) fn prepare(&mut self, link: &Link<A>, batch: Batch) -> Result<(), LinkError> {
        match self.case.completions {
            Completions::Requests => self.prepare_with::<Requests<A>>(link, batch),
            Completions::Queue => self.prepare_with::<Queue>(link, batch),
        }
    }

    fn prepare_with<U: UnderWay<A>>(
        &mut self,
        link: &Link<A>,
        batch: Batch,
    ) -> Result<(), LinkError> {
        self.fill(batch);
        self.times_ns.clear();
        let mut under_way = std::mem::take(U::of(&mut self.operations));
        let count = batch.count();
        self.fresh = 0..count.min(self.incoming.len());
        let first = match (self.case.traffic, self.role) {
            (_, Role::Alone) => 0,
            (Traffic::PingPong, Role::Peer) => 1,
            (Traffic::Stream, Role::Peer) | (Traffic::Both, _) => self.ahead().min(count),
            _ => 0,
        };
        if self.case.single_buffer && self.is_stream() && self.role != Role::Alone {
            // Posted buffers come back one by one, with the last messages of the batch in them.
            let rest = self.incoming.split_off(first);
            self.fresh = rest.len()..rest.len() + first;
            for (at, buffer) in std::mem::replace(&mut self.incoming, rest).into_iter().enumerate()
            {
                self.post(link, &mut under_way, at, buffer)?;
            }
        } else {
            for at in 0..first {
                self.post_into(link, &mut under_way, at)?;
            }
        }
        *U::of(&mut self.operations) = under_way;
        Ok(())
    }

    /// Checks the payloads of the last batch.
    pub(crate) fn check(&mut self, batch: Batch) -> Result<(), MeasureError> {
        let first = self.done;
        self.done += batch.messages;
        if !self.case.validate {
            return Ok(());
        }
        let direction = self.role.incoming();
        for (number, buffer) in (first..).zip(&self.incoming[self.fresh.clone()]) {
            let iteration = if self.case.single_buffer { first } else { number };
            Stamp { iteration, direction, thread: self.number }.check(buffer)?;
        }
        Ok(())
    }

    /// Writes the payloads of the batch.
    fn fill(&mut self, batch: Batch) {
        let done = self.done;
        let thread = self.number;
        let direction = self.role.outgoing();
        if let Some(single) = &mut self.single {
            let clones = self.case.window.min(batch.messages);
            self.outgoing.clear();
            if self.case.validate
                && let Some(bytes) = Arc::get_mut(single)
            {
                Stamp { iteration: done, direction, thread }.fill(bytes);
            }
            let clones = (0..clones).map(|_| Buffer::from(Arc::clone(single)));
            self.outgoing.extend(clones);
            return;
        }
        if !self.case.validate {
            return;
        }
        let count = batch.count().min(self.outgoing.len());
        for (iteration, buffer) in (done..).zip(&mut self.outgoing[..count]) {
            if let Some(bytes) = buffer.as_mut_slice() {
                Stamp { iteration, direction, thread }.fill(bytes);
            }
        }
    }

    /// Times of the round trips of the last batch. A single trip counts twice, so half of each time
    /// is one way.
    pub(crate) fn times_ns(&self) -> impl Iterator<Item = u64> + '_ {
        let ways = if self.role == Role::Alone { 2 } else { 1 };
        self.times_ns.iter().map(move |ns| ns.saturating_mul(ways))
    }

    fn is_stream(&self) -> bool {
        matches!(self.case.traffic, Traffic::Stream | Traffic::Both)
    }

    pub(super) fn window(&self) -> usize {
        usize::try_from(self.case.window).unwrap_or(usize::MAX)
    }

    /// Receives that are posted at a time.
    pub(super) fn ahead(&self) -> usize {
        usize::try_from(self.case.ahead()).unwrap_or(usize::MAX)
    }

    /// Posts the measured receive of message number `at`.
    #[inline]
    pub(super) fn post<U: UnderWay<A>>(
        &self,
        link: &Link<A>,
        under_way: &mut U,
        at: usize,
        buffer: Buffer,
    ) -> Result<(), LinkError> {
        let selector = Selector { any: self.case.wildcard_recv, tag: DATA | self.number };
        under_way.receive(link, selector, at, buffer)
    }

    /// Posts the measured receive of message number `at` into the buffer of that number.
    #[inline]
    pub(super) fn post_into<U: UnderWay<A>>(
        &mut self,
        link: &Link<A>,
        under_way: &mut U,
        at: usize,
    ) -> Result<(), LinkError> {
        let buffer = std::mem::take(&mut self.incoming[at]);
        self.post(link, under_way, at, buffer)
    }

    /// Starts the measured send from buffer number `at`.
    #[inline]
    pub(super) fn start<U: UnderWay<A>>(
        &mut self,
        link: &Link<A>,
        under_way: &mut U,
        at: usize,
    ) -> Result<(), LinkError> {
        under_way.send(link, DATA | self.number, at, &mut self.outgoing[at])
    }

    /// Posts the measured receive of a ping-pong.
    #[inline]
    pub(super) fn receive(&self, link: &Link<A>, buffer: Buffer) -> Receiving<A> {
        link.receive_from(self.case.wildcard_recv, DATA | self.number, buffer)
    }

    /// Posts the measured receive of a ping-pong into buffer number `at`.
    #[inline]
    pub(super) fn receive_into(&mut self, link: &Link<A>, at: usize) -> Receiving<A> {
        let buffer = std::mem::take(&mut self.incoming[at]);
        self.receive(link, buffer)
    }

    /// Starts the measured send of a ping-pong from buffer number `at`.
    #[inline]
    pub(super) fn send_from(&mut self, link: &Link<A>, at: usize) -> Sending<A> {
        link.send(DATA | self.number, std::mem::take(&mut self.outgoing[at]))
    }

    /// The tag of the messages that answer a window.
    pub(super) fn answer_tag(&self) -> u64 {
        ANSWER | self.number
    }

    /// Checks the length of a message.
    #[inline]
    pub(super) fn check_length(&self, found: usize) -> Result<(), MeasureError> {
        let found = found as u64;
        if found == self.case.size {
            return Ok(());
        }
        Err(MeasureError::Length { found, wanted: self.case.size })
    }
}

/// How many buffers a thread sends from, and receives into.
fn slots(case: &Case, role: Role) -> (u64, u64) {
    let (sends, receives) = match (case.traffic, role) {
        (Traffic::Stream, Role::Client) => (1, 0),
        (Traffic::Stream, Role::Peer) => (0, 1),
        _ => (1, 1),
    };
    let (out, into) = match (case.single_buffer, case.traffic) {
        (false, _) => (case.batch, case.batch),
        (true, Traffic::PingPong) => (1, 1),
        (true, _) => (case.window.max(2), case.ahead().min(case.batch)),
    };
    (out * sends, into * receives)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Local, Unlinked};
    use crate::spec::{DeviceArg, HwTagsArg, WorkerNeeds};

    /// A part with a batch prepared, and the addresses of the buffers that it sends from.
    fn prepared(case: &Case, role: Role, number: u64) -> (ThreadPart<Local>, Vec<*const u8>) {
        let link = Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), HwTagsArg::Off)
            .unwrap()
            .oneself();
        let mut part = ThreadPart::new(&link, case, role, number);
        part.prepare(&link, Batch::of(case.batch, true)).unwrap();
        let places = part.outgoing.iter().map(|buffer| buffer.as_ptr()).collect();
        (part, places)
    }

    #[test]
    fn a_single_buffer_is_a_single_buffer() {
        for (traffic, role) in [
            (Traffic::PingPong, Role::Client),
            (Traffic::PingPong, Role::Peer),
            (Traffic::Stream, Role::Client),
            (Traffic::Both, Role::Client),
            (Traffic::Both, Role::Peer),
            (Traffic::Stream, Role::Alone),
        ] {
            let case = Case { traffic, ..Case::sample() };
            let (_, mut places) = prepared(&case, role, 0);
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 1024, "{case:?}");
            let (part, mut places) = prepared(&Case { single_buffer: true, ..case }, role, 0);
            assert_eq!(places.len(), if traffic == Traffic::PingPong { 1 } else { 64 });
            places.dedup();
            assert_eq!(places.len(), 1, "{traffic:?}");
            let posted = part.operations.requests.receives.len() + part.incoming.len();
            let most = if traffic == Traffic::Both { 128 } else { 64 };
            assert!(posted <= most, "{traffic:?}: {posted} buffers to receive into");
        }
    }

    #[test]
    fn every_message_of_every_thread_says_something_else() {
        let says = |number| {
            let (part, _) = prepared(&Case::sample(), Role::Client, number);
            part.outgoing.iter().map(|buffer| buffer.to_vec()).collect::<Vec<_>>()
        };
        let mut all = [says(0), says(1)].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2 * 1024);
    }

    #[test]
    fn what_was_left_from_the_batch_before_is_no_message_of_this_one() {
        let case = Case { traffic: Traffic::PingPong, single_buffer: true, ..Case::sample() };
        let (client, _) = prepared(&case, Role::Client, 0);
        let (mut peer, _) = prepared(&case, Role::Peer, 0);
        peer.incoming = vec![Buffer::from(client.outgoing[0].to_vec())];
        assert!(peer.check(Batch::of(5, true)).is_ok());
        assert!(peer.check(Batch::of(5, true)).is_err());
    }
}
