//! A device that matches by itself, in memory: workers of one thread, on the lists of
//! `tagmatch-soft`.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use tagmatch_device::matching::{
    CompleteWhen, Envelope, HeldId, MatchingDevice, MatchingEvent, OperationError, TagPattern,
    TagSend, Unfit,
};
use tagmatch_device::{Address, Buffer, DeviceError, DownReason, Flush, PeerId};
use tagmatch_soft::{Pattern, PostedHandle, PostedList, SourceId, Tag, TagMask, UnexpectedList};

/// What the device says of what it doesn't carry.
pub(crate) const TOO_WIDE: &str = "tags have 32 bits here";

/// The first peer beside oneself.
const TO_OTHER: PeerId = PeerId(1);

type Sent = Result<(), OperationError>;

struct Message {
    envelope: Envelope,
    payload: Vec<u8>,
    /// Worker, token and buffer of a send that waits for its match.
    sender: Option<(usize, u64, Buffer)>,
}

struct Posted {
    token: u64,
    buffer: Buffer,
    handle: PostedHandle,
}

struct Node {
    /// By number: the worker, and whether it is down here.
    peers: Vec<(usize, bool)>,
    posted: PostedList<u32>,
    receives: BTreeMap<u32, Posted>,
    unexpected: UnexpectedList<u32>,
    messages: BTreeMap<u32, Message>,
    /// Names of receives and messages.
    names: u32,
    events: VecDeque<MatchingEvent>,
    /// The next polls, as many as this, give nothing.
    slow_polls: u32,
    /// Its answer to the question whether messages have left.
    flush: Flush,
}

/// All workers.
#[derive(Default)]
pub(crate) struct World(RefCell<Vec<Node>>);

/// One worker's device.
#[derive(Clone)]
pub(crate) struct Memory {
    world: Rc<World>,
    me: usize,
}

impl Node {
    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    /// The number of a worker; it gets one if it has none.
    fn number(&mut self, worker: usize) -> PeerId {
        let known = self.peers.iter().position(|(of, _)| *of == worker);
        let index = known.unwrap_or_else(|| {
            self.peers.push((worker, false));
            self.peers.len() - 1
        });
        PeerId(u32::try_from(index).unwrap())
    }

    fn up(&self, peer: PeerId) -> Result<usize, Unfit> {
        match self.peers.get(peer.index()) {
            Some((worker, false)) => Ok(*worker),
            Some(_) => Err(Unfit::Down),
            None => Err(Unfit::NoSuchPeer),
        }
    }

    /// Puts a message into a buffer. Gives the send that this completes.
    fn deliver(
        &mut self,
        message: Message,
        mut buffer: Buffer,
        token: u64,
    ) -> Option<(usize, u64, Buffer)> {
        let room = buffer.as_mut_slice().unwrap();
        let fits = room.len().min(message.payload.len());
        room[..fits].copy_from_slice(&message.payload[..fits]);
        let result = Ok(message.envelope);
        self.events.push_back(MatchingEvent::Received { token, buffer, result });
        message.sender
    }

    /// Ends what depends on a peer, then tells why.
    fn lose(&mut self, peer: PeerId, reason: DownReason) {
        let Some(known) = self.peers.get_mut(peer.index()) else { return };
        if std::mem::replace(&mut known.1, true) {
            return;
        }
        for name in self.posted.take_source(SourceId(peer.0)) {
            self.end_receive(name, OperationError::PeerDown(peer));
        }
        self.events.push_back(MatchingEvent::PeerDown { peer, reason });
    }

    fn end_receive(&mut self, name: u32, error: OperationError) {
        let Posted { token, buffer, .. } = self.receives.remove(&name).unwrap();
        self.events.push_back(MatchingEvent::Received { token, buffer, result: Err(error) });
    }
}

impl World {
    pub(crate) fn worker(self: &Rc<Self>, seed: u64) -> Memory {
        let mut nodes = self.0.borrow_mut();
        let me = nodes.len();
        nodes.push(Node {
            peers: vec![(me, false)],
            posted: PostedList::new(seed),
            receives: BTreeMap::new(),
            unexpected: UnexpectedList::new(seed),
            messages: BTreeMap::new(),
            names: 0,
            events: VecDeque::new(),
            slow_polls: 0,
            flush: Flush::Done,
        });
        Memory { world: self.clone(), me }
    }
}

fn pattern(pattern: TagPattern) -> Pattern {
    let TagPattern { tag, mask, source } = pattern;
    let any = Pattern::new(Tag(tag), TagMask(mask));
    source.map_or(any, |source| any.from_source(SourceId(source.0)))
}

fn carried(tag: u64) -> Result<(), Unfit> {
    if tag >> 32 == 0 { Ok(()) } else { Err(Unfit::NotCarried(TOO_WIDE)) }
}

impl Memory {
    fn node(&self) -> RefMut<'_, Node> {
        RefMut::map(self.world.0.borrow_mut(), |nodes| &mut nodes[self.me])
    }

    /// A send has ended.
    fn tell(&self, sender: Option<(usize, u64, Buffer)>, result: Sent) {
        if let Some((worker, token, buffer)) = sender {
            let event = MatchingEvent::Sent { token, buffer, result };
            self.world.0.borrow_mut()[worker].events.push_back(event);
        }
    }

    /// Ends this worker without a word, as if its process were killed.
    pub(crate) fn die(&self) {
        let lost: Vec<_> =
            self.node().messages.values_mut().filter_map(|message| message.sender.take()).collect();
        for (worker, token, buffer) in lost {
            let peer = self.world.0.borrow_mut()[worker].number(self.me);
            self.tell(Some((worker, token, buffer)), Err(OperationError::PeerDown(peer)));
        }
        for (at, node) in self.world.0.borrow_mut().iter_mut().enumerate() {
            if at != self.me && node.peers.iter().any(|(of, _)| *of == self.me) {
                let peer = node.number(self.me);
                node.lose(peer, DownReason::Gone);
            }
        }
    }

    /// Ends sends of this worker that wait for their match elsewhere.
    fn abandon_sends(&self) {
        let mut abandoned = Vec::new();
        for (at, node) in self.world.0.borrow_mut().iter_mut().enumerate() {
            let messages = node.messages.values_mut();
            let ours = messages.filter(|m| m.sender.as_ref().is_some_and(|s| s.0 == self.me));
            abandoned.extend(ours.filter_map(|m| Some((at, m.sender.take()?))));
        }
        for (at, sender) in abandoned {
            let peer = self.node().number(at);
            self.tell(Some(sender), Err(OperationError::PeerDown(peer)));
        }
    }

    /// The oldest receive that is posted fails in the device's own way.
    pub(crate) fn fail_oldest(&self, status: i32) {
        let mut node = self.node();
        let name = *node.receives.keys().next().unwrap();
        let handle = node.receives[&name].handle;
        node.posted.cancel(handle).unwrap();
        node.end_receive(name, OperationError::Failed { status });
    }

    /// Has its next polls give nothing, though there is something.
    pub(crate) fn be_slow(&self, polls: u32) {
        self.node().slow_polls = polls;
    }

    /// Has it answer the question whether messages have left.
    pub(crate) fn answer_flushes(&self, answer: Flush) {
        self.node().flush = answer;
    }

    /// Has it report that a peer is connected.
    pub(crate) fn come_up(&self, peer: PeerId) {
        self.node().events.push_back(MatchingEvent::PeerUp { peer });
    }

    /// Forgets its receives: a device that is dead gives nothing back.
    pub(crate) fn lose_receives(&self) {
        self.node().receives.clear();
    }

    fn found(&self, which: TagPattern) -> Result<Option<u32>, Unfit> {
        carried(which.tag)?;
        let mut node = self.node();
        let handle = node.unexpected.find(&pattern(which));
        Ok(handle.and_then(|handle| Some(node.unexpected.get(handle)?.2)))
    }
}

impl MatchingDevice for Memory {
    fn address(&self) -> Address {
        Address::from_bytes(&[u8::try_from(self.me).unwrap()]).unwrap()
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        let worker = usize::from(address.as_bytes()[0]);
        let nodes = self.world.0.borrow().len();
        if worker >= nodes {
            return Err(DeviceError::BadAddress { why: "nobody has it" });
        }
        Ok(self.node().number(worker))
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        let worker = self.node().peers.get(peer.index())?.0;
        Address::from_bytes(&[u8::try_from(worker).unwrap()]).ok()
    }

    fn transports(&self, _: PeerId) -> Vec<String> {
        Vec::new()
    }

    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        let TagSend { peer, tag, immediate, buffer, complete_when, token } = message;
        let to = carried(tag).and_then(|()| self.node().up(peer));
        let to = match to {
            Ok(to) => to,
            Err(unfit) => return Err((buffer, unfit)),
        };
        let payload = buffer.to_vec();
        let length = payload.len() as u64;
        let (sender, complete) = match complete_when {
            CompleteWhen::Reusable => (None, Some(buffer)),
            _ => (Some((self.me, token, buffer)), None),
        };
        let released = {
            let node = &mut self.world.0.borrow_mut()[to];
            let source = node.number(self.me);
            let envelope = Envelope { source, tag, length, immediate };
            let message = Message { envelope, payload, sender };
            match node.posted.take_match(Tag(tag), SourceId(source.0)) {
                Some(name) => {
                    let Posted { token, buffer, .. } = node.receives.remove(&name).unwrap();
                    node.deliver(message, buffer, token)
                }
                None => {
                    let name = node.name();
                    node.unexpected.push(Tag(tag), SourceId(source.0), name);
                    node.messages.insert(name, message);
                    None
                }
            }
        };
        self.tell(released, Ok(()));
        Ok(complete)
    }

    fn inject(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<bool, Unfit> {
        let buffer = Buffer::from(payload.to_vec());
        let complete_when = CompleteWhen::Reusable;
        let send = TagSend { peer, tag, immediate, buffer, complete_when, token: 0 };
        self.send(send).map(|_| true).map_err(|(_, unfit)| unfit)
    }

    fn receive(
        &mut self,
        which: TagPattern,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        if !buffer.is_writable() {
            return Err((buffer, Unfit::ReadOnly));
        }
        match self.matched_probe(which) {
            Ok(Some((held, _))) => return self.receive_held(held, buffer, token),
            Ok(None) => {}
            Err(unfit) => return Err((buffer, unfit)),
        }
        let mut node = self.node();
        if let Some(Err(unfit)) = which.source.map(|peer| node.up(peer)) {
            return Err((buffer, unfit));
        }
        let name = node.name();
        let handle = node.posted.post(pattern(which), name);
        node.receives.insert(name, Posted { token, buffer, handle });
        Ok(())
    }

    fn cancel(&mut self, token: u64) -> bool {
        let mut node = self.node();
        let found = node.receives.iter().find(|(_, posted)| posted.token == token);
        let Some((&name, &Posted { handle, .. })) = found else { return false };
        node.posted.cancel(handle).unwrap();
        node.end_receive(name, OperationError::Cancelled);
        true
    }

    fn probe(&mut self, which: TagPattern) -> Result<Option<Envelope>, Unfit> {
        let found = self.found(which)?;
        Ok(found.map(|name| self.node().messages[&name].envelope))
    }

    fn matched_probe(&mut self, which: TagPattern) -> Result<Option<(HeldId, Envelope)>, Unfit> {
        let Some(name) = self.found(which)? else { return Ok(None) };
        let mut node = self.node();
        node.unexpected.take(&pattern(which)).unwrap();
        Ok(Some((HeldId(name.into()), node.messages[&name].envelope)))
    }

    fn receive_held(
        &mut self,
        HeldId(name): HeldId,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        if !buffer.is_writable() {
            return Err((buffer, Unfit::ReadOnly));
        }
        let name = u32::try_from(name).unwrap();
        let Some(message) = self.node().messages.remove(&name) else {
            return Err((buffer, Unfit::NoSuchMessage));
        };
        let released = self.node().deliver(message, buffer, token);
        self.tell(released, Ok(()));
        Ok(())
    }

    fn discard_held(&mut self, HeldId(name): HeldId) -> bool {
        let message = self.node().messages.remove(&u32::try_from(name).unwrap());
        let found = message.is_some();
        self.tell(message.and_then(|message| message.sender), Ok(()));
        found
    }

    fn poll(&mut self) -> Option<MatchingEvent> {
        let mut node = self.node();
        if node.slow_polls > 0 {
            node.slow_polls -= 1;
            return None;
        }
        node.events.pop_front()
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.node().lose(peer, DownReason::Disconnected);
    }

    fn close(&mut self) {
        self.die();
        self.abandon_sends();
        let mut node = self.node();
        for index in 0..u32::try_from(node.peers.len()).unwrap() {
            node.lose(PeerId(index), DownReason::Disconnected);
        }
        for name in node.receives.keys().copied().collect::<Vec<_>>() {
            let handle = node.receives[&name].handle;
            node.posted.cancel(handle).unwrap();
            node.end_receive(name, OperationError::Cancelled);
        }
    }

    fn arm(&mut self) -> bool {
        self.node().events.is_empty()
    }

    fn disarm(&mut self) {}

    fn has_work(&self) -> bool {
        !self.node().events.is_empty()
    }

    fn has_unsent(&mut self) -> bool {
        false
    }

    fn flush(&mut self, peer: PeerId) -> Flush {
        if peer == TO_OTHER { self.node().flush } else { Flush::Done }
    }

    fn unexpected_now(&self) -> Option<u64> {
        Some(self.node().unexpected.len() as u64)
    }
}
