//! READs and FINs: what waits for its turn, and what is under way.

use tagmatch_device::tm::Rvh;
use tagmatch_model::{HEADERS_BYTES, Handle, QueuePair};

use super::{Engine, Segment, Wire};

/// Most requests of one queue pair that the device has at once.
pub(crate) const PER_PAIR: u32 = 16;

/// Something that the NIC's own send queue does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// A READ of a part of a rendezvous.
    Read { handle: Handle, address: u64, rkey: u32, into: Segment },
    /// The end of one; `length` bytes of the headers.
    Fin { handle: Handle, headers: [u8; HEADERS_BYTES], length: usize },
}

/// A request that the device has.
#[derive(Clone, Copy, Debug)]
struct Job {
    pair: u32,
    handle: Handle,
    is_fin: bool,
}

/// What the device has. A token is a place, and how often it was used: one that has ended for other
/// reasons is told from the next at its place.
#[derive(Debug)]
pub(super) struct InFlight {
    places: Vec<(u32, Option<Job>)>,
    free: Vec<u32>,
}

impl InFlight {
    pub(super) fn new(count: u32) -> Self {
        InFlight { places: vec![(0, None); count as usize], free: (0..count).rev().collect() }
    }

    fn put(&mut self, job: Job) -> Option<u64> {
        let place = self.free.pop()?;
        let (uses, held) = &mut self.places[place as usize];
        *uses = uses.wrapping_add(1) & (u32::MAX >> 1);
        *held = Some(job);
        Some(u64::from(*uses) << 32 | u64::from(place))
    }

    fn take(&mut self, token: u64) -> Option<Job> {
        let place = u32::try_from(token & u64::from(u32::MAX)).ok()?;
        let (uses, held) = self.places.get_mut(place as usize)?;
        let job = held.take_if(|_| u64::from(*uses) == token >> 32)?;
        self.free.push(place);
        Some(job)
    }

    /// Takes out one of a queue pair.
    fn take_of(&mut self, pair: u32) -> Option<Job> {
        let at = self.places.iter().position(|(_, job)| job.is_some_and(|job| job.pair == pair))?;
        self.free.extend(u32::try_from(at));
        self.places[at].1.take()
    }
}

impl<W: Wire> Engine<W> {
    /// The NIC wants a rendezvous read: in as many READs as the device needs.
    pub(super) fn read(&mut self, handle: Handle, queue_pair: QueuePair, remote: Rvh) {
        let pair = self.pairs.get(&queue_pair.0);
        let Some(_) = pair.filter(|pair| pair.is_offloaded && pair.reads_max != Some(0)) else {
            self.nic.fail(queue_pair, "a rendezvous on a queue pair that can't READ by itself");
            return self.nic.read_done(handle, false);
        };
        let held = &mut self.entries[handle.slot()];
        let step = self.sizes.read_max.max(1);
        held.reads = remote.len.div_ceil(step);
        held.are_reads_ok = true;
        let start = held.segment;
        for at in (0..remote.len).step_by(step as usize) {
            let into = Segment {
                address: start.address.wrapping_add(at.into()),
                length: step.min(remote.len - at),
                ..start
            };
            let address = remote.va.wrapping_add(at.into());
            self.queue(queue_pair.0, Request::Read { handle, address, rkey: remote.rkey, into });
        }
    }

    /// Lets a request wait for its turn, which may be now.
    pub(super) fn queue(&mut self, pair: u32, request: Request) {
        match self.pairs.get_mut(&pair) {
            Some(state) => {
                state.requests.push_back(request);
                self.waiting.insert(pair);
                self.begin_requests(pair);
            }
            None => self.ended(request.handle(), request.is_fin(), false),
        }
    }

    /// Gives the device what it can take of a queue pair's requests.
    pub(super) fn begin_requests(&mut self, number: u32) {
        while let Some(pair) = self.pairs.get_mut(&number) {
            let Some(&request) = pair.requests.front().filter(|_| pair.is_ready()) else { break };
            let (handle, is_fin) = (request.handle(), request.is_fin());
            let Some(token) = self.in_flight.put(Job { pair: number, handle, is_fin }) else {
                return;
            };
            pair.requests.pop_front();
            pair.under_way += 1;
            if !self.wire.begin(number, token, &request) {
                self.request_done(token, false);
            }
        }
        if self.pairs.get(&number).is_none_or(|pair| pair.requests.is_empty()) {
            self.waiting.remove(&number);
        }
    }

    /// The device has ended a request.
    pub(super) fn request_done(&mut self, token: u64, is_ok: bool) {
        let Some(job) = self.in_flight.take(token) else { return };
        if let Some(pair) = self.pairs.get_mut(&job.pair) {
            pair.under_way -= 1;
        }
        self.ended(job.handle, job.is_fin, is_ok);
        let next: Vec<u32> = self.waiting.iter().copied().collect();
        for pair in next {
            self.begin_requests(pair);
        }
    }

    fn ended(&mut self, handle: Handle, is_fin: bool, is_ok: bool) {
        if is_fin {
            return self.nic.fin_done(handle, is_ok);
        }
        let held = &mut self.entries[handle.slot()];
        if held.handle != Some(handle) {
            return;
        }
        held.reads = held.reads.saturating_sub(1);
        held.are_reads_ok &= is_ok;
        if held.reads == 0 {
            let is_ok = held.are_reads_ok;
            self.nic.read_done(handle, is_ok);
        }
    }

    /// The device has forgotten all requests of a queue pair: none of them will end any more.
    pub(super) fn drop_requests(&mut self, number: u32) {
        while let Some(job) = self.in_flight.take_of(number) {
            self.ended(job.handle, job.is_fin, false);
        }
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.under_way = 0;
        for request in std::mem::take(&mut pair.requests) {
            self.ended(request.handle(), request.is_fin(), false);
        }
        self.waiting.remove(&number);
    }
}

impl Request {
    fn handle(&self) -> Handle {
        match self {
            Request::Read { handle, .. } | Request::Fin { handle, .. } => *handle,
        }
    }

    fn is_fin(&self) -> bool {
        matches!(self, Request::Fin { .. })
    }
}
