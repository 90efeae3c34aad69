//! The transport between real processes: a worker of `tagmatch`. Its completion queue tells of the
//! processes that go down.
//!
//! **`comm` takes the deaths of peers out of the queue, and tests its operations by requests.** A
//! rank of a collective operation has a handful of operations under way, and a test of each costs
//! less than a table of contexts: 2,950 instructions for a send and a receive of 8 bytes, against
//! 3,510 by the queue.

mod place;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tagmatch::{Access, Address, Buffer, End, Failed, Local, Match, Message, Peer, PeerFault};
use tagmatch::{
    Received, Request, SendMode, SendOptions, Sent, Tag, TagMask, WaitPolicy, WorkerOf,
};

use super::{Arrived, Directory, Envelope, FOREIGN_MAX, Mode, Net, NetError, NetFailed};
use super::{Pattern, ProcessId, ProcessName, Sleeper};
use place::Place;

/// How a blocking call waits: polls for some 200 us, and yields for some 100 us if no other thread
/// wants the processor.
const WAIT: WaitPolicy = WaitPolicy::SLEEP.spin(8192).yields(200);
/// How a blocking call waits where processes share processors: the awaited process may need this
/// one's. A yield reaches the threads of the same scheduling group only, and the ranks of some
/// launchers have a group each (see sched(7) on autogroups); then the sleep is what gives way.
const WAIT_CROWDED: WaitPolicy = WaitPolicy::SLEEP.spin(4).yields(64);

/// A worker, and the addresses of the processes of its job and of the processes of other jobs that
/// it knows. A process's name is the address of its worker.
#[derive(Debug)]
pub struct WorkerNet<A: Access = Local> {
    worker: WorkerOf<A>,
    /// Number of processes of this job.
    size: u32,
    /// By process.
    addresses: Vec<Address>,
    /// By process; `None` for a process that was not needed yet, and so is not connected.
    peers: Vec<Option<Peer>>,
    processes: HashMap<Address, ProcessId>,
    by_peer: HashMap<Peer, ProcessId>,
    own: ProcessId,
    /// The processes that are known to be down.
    down: HashSet<ProcessId>,
    /// The processes of `down` that were not reported yet.
    news: Vec<ProcessId>,
    sleeper: Arc<tagmatch::Sleeper>,
    is_armed: bool,
    /// By process; empty if all are on one machine.
    nodes: Vec<u32>,
    /// How many processes of the job, with this one, may run on processors that this one may run
    /// on. `None`: the processes have not told each other.
    sharers: Option<usize>,
    /// The waker for operations that are tested.
    waker: Option<Waker>,
    /// Set once a connection to another process of the job could not be made: the limit of this
    /// process that was reached, or why there is no way to the other one, as [`Net::failure`]
    /// returns it.
    failure: Option<String>,
}

impl<A: Access + 'static> WorkerNet<A> {
    /// A transport for the process of rank `rank`, whose worker this is. `addresses` are those of
    /// all processes of the job, in the order of their ranks.
    ///
    /// # Errors
    /// Two processes have one address, or the worker's is not the one at `rank`; or the system
    /// refused a descriptor.
    pub fn new(worker: WorkerOf<A>, addresses: Vec<Address>, rank: u32) -> Result<Self, NetError> {
        if addresses.get(rank as usize) != Some(&worker.address()) {
            return Err(other("the address at the own rank is not the worker's"));
        }
        let numbers = (0..).map(ProcessId);
        let processes: HashMap<_, _> = addresses.iter().copied().zip(numbers).collect();
        if processes.len() < addresses.len() {
            return Err(other("two processes of the job have the same address"));
        }
        let size = u32::try_from(addresses.len()).map_err(other)?;
        let sleeper = worker.sleeper().map_err(other)?;
        worker.tell_peers();
        Ok(WorkerNet {
            worker,
            size,
            peers: vec![None; addresses.len()],
            addresses,
            processes,
            by_peer: HashMap::new(),
            own: ProcessId(rank),
            down: HashSet::new(),
            news: Vec::new(),
            sleeper: Arc::new(sleeper),
            is_armed: false,
            nodes: Vec::new(),
            sharers: None,
            waker: None,
            failure: None,
        })
    }

    /// As [`new`](Self::new), with addresses that the processes exchange. `exchange` sends this
    /// process's bytes to all processes of the job and returns the bytes of all, in the order of
    /// their ranks, as launchers do.
    ///
    /// The processes also tell each other their machine and the processors that this thread may run
    /// on. A process that doesn't know its machine counts as being on a machine of its own. If
    /// there are more processes than processors, blocking calls poll a few times only before they
    /// yield, and yield a few times only before they sleep. A process that changes its processors
    /// changes them before this call. Processes of other jobs are not counted.
    ///
    /// # Errors
    /// `exchange` failed or returned bytes without an address; or the errors of
    /// [`new`](Self::new).
    pub fn meet<E: Display>(
        worker: WorkerOf<A>,
        rank: u32,
        exchange: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Self, NetError> {
        let address = worker.address();
        let own = Place::of_thread();
        let length = u8::try_from(address.as_bytes().len()).map_err(other)?;
        let place = own.as_ref().map(Place::to_string).unwrap_or_default();
        let all = exchange(&[&[length], address.as_bytes(), place.as_bytes()].concat());
        let mut addresses = Vec::new();
        let mut places = Vec::new();
        for bytes in all.map_err(other)? {
            let address = bytes
                .split_first()
                .and_then(|(length, rest)| rest.split_at_checked(usize::from(*length)));
            let (address, place) = address.ok_or_else(|| other("a process gave no address"))?;
            addresses.push(Address::from_bytes(address).map_err(other)?);
            places.push(Place::parse(place));
        }
        let known = || places.iter().flatten();
        let sharers = own.map(|own| known().filter(|place| place.overlaps(&own)).count());
        let nodes = place::machines(&places);
        Ok(WorkerNet { sharers, nodes, ..Self::new(worker, addresses, rank)? })
    }

    /// Sets the number of each process's machine, in the order of ranks. All processes must give
    /// the same numbers. By default, processes that were told of each other by
    /// [`meet`](Self::meet) know their machines by the kernel's boot id, and count as being on one
    /// machine if they have the same network namespace and user as well, since only these share
    /// memory. Otherwise all processes count as being on one machine.
    ///
    /// The numbers decide who is in [`Comm::intranode`](crate::Comm::intranode), and which
    /// processes try to map memory together. A test may give numbers that make one machine look
    /// like several.
    #[must_use]
    pub fn on_nodes(self, nodes: Vec<u32>) -> Self {
        WorkerNet { nodes, ..self }
    }

    /// The worker. Its completion queue belongs to this transport, which takes all ends.
    pub fn worker(&self) -> &WorkerOf<A> {
        &self.worker
    }

    fn peer(&mut self, process: ProcessId) -> Result<Peer, NetError> {
        let at = process.0 as usize;
        if let Some(Some(peer)) = self.peers.get(at) {
            return Ok(*peer);
        }
        let unknown = || other(format!("there is no process {}", process.0));
        let address = self.addresses.get(at).ok_or_else(unknown)?;
        match self.worker.connect(address) {
            Ok(peer) => {
                self.connected(process, peer);
                Ok(peer)
            }
            Err(error) => {
                self.lack(process, &error);
                Err(other(error))
            }
        }
    }

    /// Takes note of why there can be no connection to a process. Without one to each process of
    /// its job, this process can take no part.
    fn lack(&mut self, process: ProcessId, why: &dyn Display) {
        if process.0 < self.size {
            self.failure
                .get_or_insert_with(|| format!("no connection to process {}: {why}", process.0));
        }
    }

    /// Takes note of a process's peer. The peer may have gone down before the transport was made,
    /// or before the process was known.
    fn connected(&mut self, process: ProcessId, peer: Peer) {
        self.peers[process.0 as usize] = Some(peer);
        self.by_peer.insert(peer, process);
        if self.is_down(process) && self.down.insert(process) {
            self.news.push(process);
        }
        if let Ok(Some(PeerFault::Shortage(shortage))) = self.worker.peer_fault(peer) {
            self.lack(process, &shortage);
        }
    }

    /// The process of a peer. A peer that this process has not connected to is found by its
    /// address. If the address is of no known process, the peer is a process of another job.
    fn process(&mut self, peer: Peer) -> Option<ProcessId> {
        if let Some(process) = self.by_peer.get(&peer) {
            return Some(*process);
        }
        let process = self.admit_at(self.worker.peer_address(peer).ok()?).ok()?;
        self.is_only(process, peer).then(|| {
            self.by_peer.insert(peer, process);
            process
        })
    }

    /// Whether a peer is the process whose address it has. A process has one peer for ever: once
    /// that one went down and its worker has forgotten it, another peer may come with the same
    /// address.
    fn is_only(&self, process: ProcessId, peer: Peer) -> bool {
        let known = self.peers.get(process.0 as usize).copied().flatten();
        known.is_none_or(|known| known == peer)
    }

    /// The number of the process with this address. A process that was not known is connected at
    /// once: only that tells whether the bytes are an address, and without a connection the death
    /// of the process would not be noticed.
    fn admit_at(&mut self, address: Address) -> Result<ProcessId, NetError> {
        if let Some(process) = self.processes.get(&address) {
            return Ok(*process);
        }
        let number = u32::try_from(self.addresses.len()).ok();
        let number = number.filter(|number| number - self.size < FOREIGN_MAX);
        let full = || other(format!("{FOREIGN_MAX} processes of other jobs are known"));
        let process = ProcessId(number.ok_or_else(full)?);
        let peer = self.worker.connect(&address).map_err(other)?;
        self.addresses.push(address);
        self.peers.push(None);
        self.processes.insert(address, process);
        self.connected(process, peer);
        Ok(process)
    }

    /// Names the sender beside the tag. So a receive ends when its sender does, and no other
    /// process can send to it. `named` says how.
    fn pattern(
        &mut self,
        pattern: Pattern,
        named: fn(Match, Peer) -> Match,
    ) -> Result<Match, NetError> {
        let which = Match::masked(pattern.tag, pattern.mask);
        pattern.from.map_or(Ok(which), |process| Ok(named(which, self.peer(process)?)))
    }

    fn post(
        &mut self,
        pattern: Pattern,
        named: fn(Match, Peer) -> Match,
        room: Buffer,
    ) -> WorkerOperation<Received, A> {
        let request = match self.pattern(pattern, named) {
            Ok(which) => Ok(self.worker.recv(which, room)),
            Err(error) => Err(NetFailed { error, buffer: room }),
        };
        WorkerOperation::new(request, pattern.from)
    }

    /// The result of an operation, once, if it has ended.
    fn test<T: tagmatch::Output>(
        &mut self,
        operation: &mut WorkerOperation<T, A>,
    ) -> Option<Result<T, NetFailed>> {
        let request = match &mut operation.request {
            Ok(request) => request,
            Err(refused) => return Some(Err(refused.take().unwrap_or_else(taken))),
        };
        let end = match &self.waker {
            None => request.test(),
            Some(waker) => match Pin::new(request).poll(&mut Context::from_waker(waker)) {
                Poll::Ready(end) => Some(end),
                Poll::Pending => None,
            },
        };
        Some(end?.map_err(|failed| self.failed(failed, operation.with)))
    }

    /// `from`: the only process that can have sent the message, if there is only one.
    fn envelope(&mut self, status: tagmatch::Status, from: Option<ProcessId>) -> Envelope {
        let from = from.or_else(|| self.process(status.source));
        Envelope { from, tag: status.tag, length: status.length as u64 }
    }

    /// `with`: the process that the operation depends on, if it is a certain one.
    fn failed(&mut self, failed: Failed, with: Option<ProcessId>) -> NetFailed {
        let process = match failed.error {
            tagmatch::Error::PeerDown { peer, .. } => self.process(peer),
            tagmatch::Error::WrongSender { named, .. } => self.process(named),
            // A death may be noticed by another error: a message can't be read out of memory that
            // is gone.
            _ => with.filter(|process| self.is_down(*process)),
        };
        let error = match (failed.error, process) {
            (tagmatch::Error::Cancelled, _) => NetError::Cancelled,
            (tagmatch::Error::WrongSender { .. }, Some(process)) => NetError::Forged(process),
            (_, Some(process)) => NetError::Down(process),
            (error, None) => other(error),
        };
        NetFailed { error, buffer: failed.buffer }
    }
}

/// An operation of the worker, or the reason why it could not start.
#[derive(Debug)]
pub struct WorkerOperation<T: tagmatch::Output, A: Access> {
    request: Result<Request<T, A>, Option<NetFailed>>,
    /// The process that the operation depends on, if it is for one process only.
    with: Option<ProcessId>,
}

/// A message that a matched probe took.
#[derive(Debug)]
pub struct HeldMessage<A: Access> {
    message: Message<A>,
    from: Option<ProcessId>,
}

impl<T: tagmatch::Output, A: Access> WorkerOperation<T, A> {
    fn new(request: Result<Request<T, A>, NetFailed>, with: Option<ProcessId>) -> Self {
        WorkerOperation { request: request.map_err(Some), with }
    }
}

fn other(error: impl Display) -> NetError {
    NetError::Other(error.to_string())
}

/// The result of an operation whose result was taken before.
fn taken() -> NetFailed {
    NetFailed { error: other("the result was taken before"), buffer: Buffer::default() }
}

impl Sleeper for tagmatch::Sleeper {
    fn sleep(&self, max: Duration) {
        // A thread that can't sleep polls again.
        if self.sleep(max).is_err() {
            thread::yield_now();
        }
    }

    fn ring(&self) {
        self.ring();
    }
}

impl<A: Access + 'static> Directory for WorkerNet<A> {
    fn processes(&self) -> u32 {
        self.size
    }

    fn own(&self) -> ProcessId {
        self.own
    }

    fn name(&self, process: ProcessId) -> Option<ProcessName> {
        self.addresses.get(process.0 as usize).copied()
    }

    fn admit(&mut self, name: &ProcessName) -> Result<ProcessId, NetError> {
        self.admit_at(*name)
    }
}

impl<A: Access + 'static> Net for WorkerNet<A> {
    type Send = WorkerOperation<Sent, A>;
    type Receive = WorkerOperation<Received, A>;
    type Message = HeldMessage<A>;

    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> Self::Send {
        let mode = match mode {
            Mode::Standard => SendMode::Standard,
            Mode::Synchronous => SendMode::Synchronous,
        };
        let options = SendOptions::default().mode(mode).immediate(None);
        let request = match self.peer(to) {
            Ok(peer) => Ok(self.worker.send_with(peer, tag, data, options)),
            Err(error) => Err(NetFailed { error, buffer: data }),
        };
        WorkerOperation::new(request, Some(to))
    }

    fn inject(&mut self, to: ProcessId, tag: Tag, data: &[u8]) -> Result<(), NetError> {
        let peer = self.peer(to)?;
        let sent = self.worker.inject(peer, tag, data);
        sent.map_err(|error| {
            self.failed(Failed { error, buffer: Buffer::default() }, Some(to)).error
        })
    }

    fn receive(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        self.post(pattern, Match::from, room)
    }

    fn receive_by_tag(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        self.post(pattern, Match::sent_only_by, room)
    }

    fn test_send(&mut self, send: &mut Self::Send) -> Option<Result<Buffer, NetFailed>> {
        Some(self.test(send)?.map(|sent| sent.buffer))
    }

    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>> {
        Some(self.test(receive)?.map(|Received { buffer, status }| Arrived {
            envelope: self.envelope(status, receive.with),
            buffer,
        }))
    }

    fn cancel(&mut self, receive: &mut Self::Receive) {
        if let Ok(request) = &mut receive.request {
            request.cancel();
        }
    }

    fn probe(&mut self, pattern: Pattern) -> Option<Envelope> {
        let which = self.pattern(pattern, Match::from).ok()?;
        let status = self.worker.probe(which).ok()??;
        Some(self.envelope(status, pattern.from))
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)> {
        let which = self.pattern(pattern, Match::from).ok()?;
        let message = self.worker.mprobe(which).ok()??;
        let envelope = self.envelope(message.status(), pattern.from);
        Some((HeldMessage { message, from: envelope.from }, envelope))
    }

    fn receive_message(&mut self, message: Self::Message, room: Buffer) -> Self::Receive {
        WorkerOperation::new(Ok(message.message.recv(room)), message.from)
    }

    fn is_down(&self, process: ProcessId) -> bool {
        let peer = self.peers.get(process.0 as usize).copied().flatten();
        peer.is_some_and(|peer| !matches!(self.worker.peer_fault(peer), Ok(None)))
    }

    fn watch(&mut self, process: ProcessId) {
        if let Err(error) = self.peer(process) {
            // The process is not known to be down, and this one counts itself out.
            log::debug!("process {} is not watched: {error}", process.0);
        }
    }

    fn has_left(&self, process: ProcessId) -> bool {
        let peer = self.peers.get(process.0 as usize).copied().flatten();
        peer.is_some_and(|peer| matches!(self.worker.peer_fault(peer), Ok(Some(PeerFault::Left))))
    }

    fn give_up(&mut self, process: ProcessId) {
        let peer = self.peer(process);
        if let Err(error) = peer.and_then(|peer| self.worker.disconnect(peer).map_err(other)) {
            log::debug!("process {} has no connection to end: {error}", process.0);
        }
    }

    fn free_tag_bits(&self) -> (TagMask, Tag) {
        self.worker.free_tag_bits()
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    fn take_down(&mut self) -> Vec<ProcessId> {
        let mut ends = Vec::new();
        self.worker.ends(&mut ends, usize::MAX);
        for end in ends {
            // A process is known from the time when it is up: when many go down at once, the worker
            // may have forgotten its address by now.
            let (End::PeerUp { peer } | End::PeerDown { peer, .. }) = end else { continue };
            let process = match self.by_peer.get(&peer) {
                Some(process) => Some(*process),
                None => {
                    let address = self.worker.peer_address(peer).ok();
                    address.and_then(|address| self.processes.get(&address).copied())
                }
            };
            if let Some(process) = process.filter(|process| self.is_only(*process, peer)) {
                self.connected(process, peer);
            }
        }
        std::mem::take(&mut self.news)
    }

    fn progress(&mut self) -> usize {
        self.worker.progress()
    }

    fn wait_policy(&self) -> WaitPolicy {
        let is_crowded = match self.sharers {
            Some(sharers) => sharers > place::own_processors(),
            None => {
                let node = self.node(self.own);
                let all = (0..self.processes()).map(ProcessId);
                let here = all.filter(|process| self.node(*process) == node);
                here.count() > place::processors()
            }
        };
        if is_crowded { WAIT_CROWDED } else { WAIT }
    }

    fn node(&self, process: ProcessId) -> u32 {
        self.nodes.get(process.0 as usize).copied().unwrap_or(0)
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn sleeper(&self) -> Option<Arc<dyn Sleeper>> {
        Some(Arc::clone(&self.sleeper) as _)
    }

    fn arm(&mut self) -> bool {
        self.is_armed = true;
        self.notify(None);
        self.worker.arm() && !self.worker.has_ends()
    }

    fn arrived(&self) -> u64 {
        let counters = self.worker.counters();
        let taken = counters.unexpected + counters.discarded + counters.lost_messages;
        counters.unexpected_now.wrapping_add(taken)
    }

    fn reports_messages(&self) -> bool {
        !A::SHARED && self.worker.reports_messages()
    }

    fn disarm(&mut self) {
        self.is_armed = false;
        self.notify(None);
        self.worker.disarm();
    }

    fn notify(&mut self, waker: Option<&Waker>) {
        let sleeper = || self.is_armed.then(|| Waker::from(Arc::clone(&self.sleeper)));
        self.waker = waker.cloned().or_else(sleeper);
    }
}
