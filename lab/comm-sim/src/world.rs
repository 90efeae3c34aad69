//! The network's state: messages in flight, and each process's posted receives and unexpected
//! messages.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::rc::{Rc, Weak};

use tagmatch::{Buffer, Tag};
use tagmatch_comm::net::{Arrived, Envelope, Mode, NetError, NetFailed};
use tagmatch_comm::net::{Pattern, ProcessId, ProcessName};
use tagmatch_testkit::random::{Random, mix};

use crate::config::SimConfig;

/// The state of a receive.
#[derive(Debug)]
pub(crate) enum ReceiveState {
    Posted(Buffer),
    Ended(Result<Arrived, NetFailed>),
    Taken,
}

/// The state of a send.
#[derive(Debug)]
pub(crate) enum SendState {
    Waiting(Buffer),
    Ended(Result<Buffer, NetFailed>),
    Taken,
}

impl SendState {
    pub(crate) fn refused(error: NetError, buffer: Buffer) -> Self {
        SendState::Ended(Err(NetFailed { error, buffer }))
    }
}

/// A message in the network.
#[derive(Debug)]
pub(crate) struct Parcel {
    from: ProcessId,
    tag: Tag,
    data: Vec<u8>,
    /// The place of the message in the longest chain of messages that led to it.
    depth: u64,
    /// The number of the send that completes when this message is matched.
    ack: Option<u64>,
}

impl Parcel {
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope { from: Some(self.from), tag: self.tag, length: self.data.len() as u64 }
    }

    fn matches(&self, pattern: &Pattern) -> bool {
        (self.tag.0 ^ pattern.tag.0) & pattern.mask.0 == 0
            && pattern.from.is_none_or(|from| from == self.from)
    }
}

#[derive(Debug)]
enum Event {
    Parcel(Parcel),
    Ack(u64),
    Down,
}

/// An event in flight from one process to another.
#[derive(Debug)]
struct Flight {
    from: ProcessId,
    to: ProcessId,
    event: Event,
}

/// An entry of the list of posted receives.
#[derive(Debug)]
struct Posted {
    pattern: Pattern,
    /// Messages are compared by tag alone, whoever sent them.
    by_tag: bool,
    receive: Weak<RefCell<ReceiveState>>,
}

#[derive(Debug, Default)]
struct Node {
    is_dead: bool,
    /// The length of the longest chain of messages that led to what this process knows.
    depth: u64,
    /// Entries of dropped receives are void.
    posted: VecDeque<Posted>,
    unexpected: VecDeque<Parcel>,
    down: HashSet<ProcessId>,
    /// Processes in `down` that were not reported yet.
    news: Vec<ProcessId>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: SimConfig,
    pub(crate) random: Random,
    pub(crate) steps: u64,
    /// Each job's processes, numbered through all jobs.
    jobs: Vec<Range<u32>>,
    nodes: Vec<Node>,
    /// By time of arrival, then by number.
    flights: BTreeMap<(u64, u64), Flight>,
    now: u64,
    /// Number of events that were sent so far.
    pub(crate) number: u64,
    /// Time at which the last message from one process to another arrives.
    last: HashMap<(ProcessId, ProcessId), u64>,
    sends: HashMap<u64, (ProcessId, ProcessId, Weak<RefCell<SendState>>)>,
    /// Pairs of processes that learn of each other's death, the lower number first.
    connected: HashSet<[ProcessId; 2]>,
}

impl World {
    pub(crate) fn new(config: SimConfig, sizes: &[u32]) -> Self {
        let mut end = 0;
        let job = |size: &u32| {
            end += size;
            end - size..end
        };
        World {
            config,
            random: Random::new(mix(config.seed)),
            steps: 0,
            jobs: sizes.iter().map(job).collect(),
            nodes: (0..config.processes).map(|_| Node::default()).collect(),
            flights: BTreeMap::new(),
            now: 0,
            number: 0,
            last: HashMap::new(),
            sends: HashMap::new(),
            connected: HashSet::new(),
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connected.len()
    }

    /// Two processes learn of each other's death from now on.
    pub(crate) fn connect(&mut self, at: ProcessId, process: ProcessId) {
        let is_new = self.connected.insert([at.min(process), at.max(process)]);
        let is_dead = self.node(process).is_some_and(|node| node.is_dead);
        if is_new && is_dead && self.config.tells_deaths && !self.config.tells_unconnected {
            self.launch(process, at, Event::Down);
        }
    }

    /// The job of a process; an empty range if there is no such process.
    pub(crate) fn job(&self, number: u32) -> Range<u32> {
        self.jobs.iter().find(|job| job.contains(&number)).cloned().unwrap_or(number..number)
    }

    /// A process's name: the number of its job, and its rank there.
    pub(crate) fn name(&self, number: u32) -> Option<ProcessName> {
        let at = self.jobs.iter().position(|job| job.contains(&number))?;
        let words = [u32::try_from(at).ok()?, number - self.jobs[at].start];
        ProcessName::from_bytes(&words.map(u32::to_le_bytes).concat()).ok()
    }

    pub(crate) fn named(&self, name: &ProcessName) -> Option<ProcessId> {
        let (job, rank) = name.as_bytes().split_first_chunk()?;
        let job = u32::from_le_bytes(*job);
        let rank = u32::from_le_bytes(rank.try_into().ok()?);
        let number = self.jobs.get(job as usize)?.clone().nth(rank as usize)?;
        Some(ProcessId(number))
    }

    pub(crate) fn unexpected(&self) -> usize {
        self.nodes.iter().filter(|node| !node.is_dead).map(|node| node.unexpected.len()).sum()
    }

    pub(crate) fn depth(&self, of: ProcessId) -> u64 {
        self.node(of).map_or(0, |node| node.depth)
    }

    pub(crate) fn sending_pairs(&self) -> usize {
        self.last.keys().filter(|(from, to)| from != to).count()
    }

    /// Grows with each event that happens or is sent.
    pub(crate) fn activity(&self) -> u64 {
        self.now + self.number
    }

    pub(crate) fn is_down(&self, at: ProcessId, process: ProcessId) -> bool {
        self.node(at).is_some_and(|node| node.down.contains(&process))
    }

    pub(crate) fn take_down(&mut self, at: ProcessId) -> Vec<ProcessId> {
        self.node_mut(at).map(|node| std::mem::take(&mut node.news)).unwrap_or_default()
    }

    fn node(&self, of: ProcessId) -> Option<&Node> {
        self.nodes.get(of.0 as usize)
    }

    fn node_mut(&mut self, of: ProcessId) -> Option<&mut Node> {
        self.nodes.get_mut(of.0 as usize)
    }

    /// Sends an event. It arrives after everything that is in flight from `from` to `to`.
    fn launch(&mut self, from: ProcessId, to: ProcessId, event: Event) {
        let delay = if from == to { 0 } else { self.random.below_u32(self.config.delay_max + 1) };
        let last = self.last.entry((from, to)).or_default();
        *last = (self.now + u64::from(delay)).max(*last);
        let at = *last;
        self.number += 1;
        if !self.is_cut(from, to) || matches!(event, Event::Down) {
            self.flights.insert((at, self.number), Flight { from, to, event });
        }
    }

    pub(crate) fn send(
        &mut self,
        (from, to): (ProcessId, ProcessId),
        tag: Tag,
        data: Buffer,
        mode: Mode,
    ) -> Rc<RefCell<SendState>> {
        if self.is_down(from, to) {
            return Rc::new(RefCell::new(SendState::refused(NetError::Down(to), data)));
        }
        self.connect(from, to);
        let bytes = data.clone().into_vec();
        let depth = self.depth(from) + 1;
        if mode == Mode::Standard && bytes.len() <= self.config.eager_max {
            self.launch(
                from,
                to,
                Event::Parcel(Parcel { from, tag, data: bytes, depth, ack: None }),
            );
            return Rc::new(RefCell::new(SendState::Ended(Ok(data))));
        }
        let ack = Some(self.number);
        let send = Rc::new(RefCell::new(SendState::Waiting(data)));
        self.sends.insert(self.number, (from, to, Rc::downgrade(&send)));
        self.launch(from, to, Event::Parcel(Parcel { from, tag, data: bytes, depth, ack }));
        send
    }

    pub(crate) fn receive(
        &mut self,
        own: ProcessId,
        pattern: Pattern,
        room: Buffer,
        by_tag: bool,
    ) -> Rc<RefCell<ReceiveState>> {
        if let Some(from) = pattern.from {
            self.connect(own, from);
        }
        if let Some(parcel) = self.take(own, &pattern) {
            return self.receive_parcel(own, parcel, room);
        }
        if let Some(from) = pattern.from.filter(|from| self.is_down(own, *from)) {
            let failed = NetFailed { error: NetError::Down(from), buffer: room };
            return Rc::new(RefCell::new(ReceiveState::Ended(Err(failed))));
        }
        let receive = Rc::new(RefCell::new(ReceiveState::Posted(room)));
        if let Some(node) = self.node_mut(own) {
            node.posted.push_back(Posted { pattern, by_tag, receive: Rc::downgrade(&receive) });
        }
        receive
    }

    pub(crate) fn receive_parcel(
        &mut self,
        own: ProcessId,
        parcel: Parcel,
        room: Buffer,
    ) -> Rc<RefCell<ReceiveState>> {
        let receive = Rc::new(RefCell::new(ReceiveState::Posted(room)));
        self.deliver(own, parcel, &receive);
        receive
    }

    fn deliver(&mut self, own: ProcessId, parcel: Parcel, receive: &RefCell<ReceiveState>) {
        self.acknowledge(own, &parcel);
        let envelope = parcel.envelope();
        let mut receive = receive.borrow_mut();
        let ReceiveState::Posted(mut buffer) =
            std::mem::replace(&mut *receive, ReceiveState::Taken)
        else {
            return;
        };
        let mut bytes = &parcel.data[..];
        let mut fill = |room: Option<&mut [u8]>| {
            let room = room.unwrap_or_default();
            let (fits, rest) = bytes.split_at(room.len().min(bytes.len()));
            room[..fits.len()].copy_from_slice(fits);
            bytes = rest;
        };
        match buffer.slices().map(<[Buffer]>::len) {
            Some(slices) => (0..slices).for_each(|index| fill(buffer.slice_mut(index))),
            None => fill(buffer.as_mut_slice()),
        }
        *receive = ReceiveState::Ended(Ok(Arrived { envelope, buffer }));
    }

    /// Tells the sender of a message that it was matched or discarded, if the sender waits for
    /// that.
    pub(crate) fn acknowledge(&mut self, own: ProcessId, parcel: &Parcel) {
        let is_dead = self.node(own).is_none_or(|node| node.is_dead);
        if let Some(ack) = parcel.ack.filter(|_| !is_dead) {
            self.launch(own, parcel.from, Event::Ack(ack));
        }
    }

    pub(crate) fn probe(&self, own: ProcessId, pattern: &Pattern) -> Option<Envelope> {
        let waiting = &self.node(own)?.unexpected;
        waiting.iter().find(|parcel| parcel.matches(pattern)).map(Parcel::envelope)
    }

    pub(crate) fn take(&mut self, own: ProcessId, pattern: &Pattern) -> Option<Parcel> {
        let waiting = &mut self.node_mut(own)?.unexpected;
        let at = waiting.iter().position(|parcel| parcel.matches(pattern))?;
        waiting.remove(at)
    }

    pub(crate) fn kill(&mut self, process: ProcessId) {
        let Some(node) = self.node_mut(process).filter(|node| !node.is_dead) else { return };
        *node = Node { is_dead: true, ..Node::default() };
        // The news of the death come after all that the process has sent.
        let before = self.number;
        let mut cuts = vec![u64::MAX; self.nodes.len()];
        for to in (0..self.config.processes).map(ProcessId).filter(|to| *to != process) {
            // Events that would arrive later than this were not sent in time.
            cuts[to.0 as usize] =
                self.now + u64::from(self.random.below_u32(self.config.delay_max + 1));
            let is_connected = self.connected.contains(&[process.min(to), process.max(to)]);
            if self.config.tells_deaths && (self.config.tells_unconnected || is_connected) {
                self.launch(process, to, Event::Down);
            }
        }
        self.flights.retain(|(at, number), flight| {
            let is_lost = flight.from == process && *at > cuts[flight.to.0 as usize];
            *number > before || !is_lost
        });
    }

    pub(crate) fn forget_connections(&mut self) {
        self.last = HashMap::new();
        self.connected = HashSet::new();
    }

    /// Loses the connection of [`SimConfig::cut`] at its step; whether this is the step.
    pub(crate) fn cut_if_due(&mut self) -> bool {
        let Some(cut) = self.config.cut.filter(|cut| cut.step == self.steps) else { return false };
        let [one, other] = cut.ends.map(ProcessId);
        let ways = [(other, one), (one, other)];
        self.flights.retain(|_, flight| !ways.contains(&(flight.from, flight.to)));
        for ((from, to), tells) in ways.into_iter().zip(cut.tells) {
            if tells {
                self.launch(from, to, Event::Down);
            }
        }
        true
    }

    /// Whether the network says to `at` that a process has left in order.
    pub(crate) fn has_left(&self, at: ProcessId, process: ProcessId) -> bool {
        self.is_cut(at, process) && self.config.cut.is_some_and(|cut| cut.says_left)
    }

    /// Whether nothing but news of an end passes from one process to another.
    fn is_cut(&self, from: ProcessId, to: ProcessId) -> bool {
        let cut = self.config.cut.filter(|cut| cut.step <= self.steps);
        cut.is_some_and(|cut| from != to && [from, to].iter().all(|end| cut.ends.contains(&end.0)))
    }

    /// Carries out the next event; `false` if none is in flight.
    pub(crate) fn step(&mut self) -> bool {
        let Some(((at, _), flight)) = self.flights.pop_first() else { return false };
        self.now = self.now.max(at) + 1;
        let Flight { from, to, event } = flight;
        if self.node(to).is_none_or(|node| node.is_dead) {
            return true;
        }
        match event {
            Event::Parcel(parcel) => self.arrive(to, parcel),
            Event::Ack(number) => self.end_send(number, None),
            Event::Down => self.down(to, from),
        }
        true
    }

    fn arrive(&mut self, to: ProcessId, parcel: Parcel) {
        let Some(node) = self.node_mut(to) else { return };
        node.depth = node.depth.max(parcel.depth);
        node.posted.retain(|posted| posted.receive.strong_count() > 0);
        let accepts = |posted: &Posted| {
            let from = posted.pattern.from.filter(|_| !posted.by_tag);
            parcel.matches(&Pattern { from, ..posted.pattern })
        };
        let found = node.posted.iter().position(accepts);
        let found = found.and_then(|at| node.posted.remove(at));
        let from = found.as_ref().and_then(|posted| posted.pattern.from);
        match found.and_then(|posted| posted.receive.upgrade()) {
            Some(receive) => match from.filter(|from| *from != parcel.from) {
                Some(named) => {
                    self.acknowledge(to, &parcel);
                    cancel(&receive, NetError::Forged(named));
                }
                None => self.deliver(to, parcel, &receive),
            },
            None => node.unexpected.push_back(parcel),
        }
    }

    fn end_send(&mut self, number: u64, error: Option<NetError>) {
        let Some((_, _, send)) = self.sends.remove(&number) else { return };
        let Some(send) = send.upgrade() else { return };
        let mut send = send.borrow_mut();
        if let SendState::Waiting(buffer) = std::mem::replace(&mut *send, SendState::Taken) {
            *send = SendState::Ended(match error {
                Some(error) => Err(NetFailed { error, buffer }),
                None => Ok(buffer),
            });
        }
    }

    /// A process gives up another one, which learns of that after the last message.
    pub(crate) fn give_up(&mut self, at: ProcessId, process: ProcessId) {
        self.down(at, process);
        self.launch(at, process, Event::Down);
    }

    /// A process learns that another one is down.
    pub(crate) fn down(&mut self, at: ProcessId, process: ProcessId) {
        if self.is_down(at, process) {
            return;
        }
        let mut lost: Vec<u64> = self
            .sends
            .iter()
            .filter(|(_, send)| (send.0, send.1) == (at, process))
            .map(|s| *s.0)
            .collect();
        lost.sort_unstable();
        for number in lost {
            self.end_send(number, Some(NetError::Down(process)));
        }
        let Some(node) = self.node_mut(at) else { return };
        node.down.insert(process);
        node.news.push(process);
        // The rest of a long message would be read from the dead process's memory, so the message
        // is lost.
        node.unexpected.retain(|parcel| parcel.from != process || parcel.ack.is_none());
        node.posted.retain(|Posted { pattern, receive, .. }| {
            let Some(receive) = receive.upgrade().filter(|_| pattern.from == Some(process)) else {
                return true;
            };
            cancel(&receive, NetError::Down(process));
            false
        });
    }
}

/// Ends a posted receive with an error. A receive that has ended stays as it is.
pub(crate) fn cancel(receive: &RefCell<ReceiveState>, error: NetError) {
    let mut receive = receive.borrow_mut();
    match std::mem::replace(&mut *receive, ReceiveState::Taken) {
        ReceiveState::Posted(buffer) => {
            *receive = ReceiveState::Ended(Err(NetFailed { error, buffer }))
        }
        other => *receive = other,
    }
}
