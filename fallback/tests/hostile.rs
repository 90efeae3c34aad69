//! Every hostile variant of every message between two engines, in each situation of the protocol.

mod hostile_messages;
mod script;
mod wire;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;

use tagmatch_device::{Buffer, PeerId, RegionPlace};
use tagmatch_fallback::wire::{AppCtx, Control, Fragment, Opcode, RmaHeader, Tmh};
use tagmatch_fallback::{
    Amount, CreditConfig, Engine, EngineConfig, FLOOR_MESSAGES, MatchEngine, RegionKey,
    RemoteAction, RemoteOperation, RequestId, Rights, RmaEngine, Send, SendMode, Started,
};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};
use tagmatch_testkit::hostile::{Legality, Message, Room, flood, try_all};

use hostile_messages::{
    FRAGMENTED, FRAGMENTED_FIRST, GET, MATCHED, Names, PUT, PUT_FIRST, request, tmh,
};
use script::{Report, Script, arrive, engine_with_list, report};
use wire::{Net, Node, address, config, forge, meet, nodes};

/// The nodes. The receiver knows each of the others by its number.
const RECEIVER: usize = 0;
/// The peer with which the receiver has something under way.
const PARTNER: usize = 1;
const STRANGER: usize = 2;
const BYSTANDER: usize = 3;

/// The messages of each peer for which the receiver has room, and their bytes.
const MESSAGES: u64 = 64;
const EAGER_MAX: usize = 16 * 1024;
const ANNOUNCED: AppCtx = AppCtx(9);
const ANNOUNCED_TAG: u64 = 6;

/// What is under way between the receiver and its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    Idle,
    /// The partner has no credit left.
    Spent,
    /// A rendezvous of the receiver waits for its FIN.
    Sending,
    /// A rendezvous request of the partner has come, and its companion hasn't.
    Announced,
    /// The first fragment of a message has come.
    Fragmented,
    /// The receiver gets bytes of the partner's region.
    Getting,
    /// The receiver puts bytes into the partner's region.
    Writing,
    /// The first piece of a put has come.
    Putting,
}

struct EngineRoom {
    net: Rc<RefCell<Net>>,
    nodes: Vec<Node>,
    key: RegionKey,
    under_way: Vec<RequestId>,
    /// The operations and notices that have ended well.
    ended: Vec<String>,
    /// The bytes of the region.
    memory: Vec<u8>,
}

fn exact(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}

impl EngineRoom {
    fn new() -> Self {
        let first = Amount { messages: MESSAGES, bytes: EAGER_MAX as u64 };
        let pool = Amount { messages: 8 * first.messages, bytes: 8 * first.bytes };
        let credit = CreditConfig { pool, first, peer_max: first };
        let (net, mut nodes) = nodes(4, &EngineConfig { credit, ..config() });
        net.borrow_mut().capacity = 1000;
        for peer in [PARTNER, STRANGER, BYSTANDER] {
            assert_eq!(meet(&mut nodes, RECEIVER, peer).index(), peer);
        }
        let key = nodes[RECEIVER].expose_region(Buffer::zeroed(64), Rights::ALL).unwrap();
        let under_way = Vec::new();
        let ended = Vec::new();
        let mut room = EngineRoom { net, nodes, key, under_way, ended, memory: Vec::new() };
        room.receive(MATCHED, 64);
        room.settle();
        room
    }

    fn receive(&mut self, tag: u64, length: usize) {
        let receive = self.nodes[RECEIVER].receive(&exact(tag), Buffer::zeroed(length));
        self.under_way.push(receive.unwrap());
    }

    fn operate(&mut self, action: RemoteAction) {
        let peer = PeerId::first(PARTNER);
        let key = RegionKey(1);
        let place = RegionPlace::default();
        let operation = RemoteOperation { peer, key, place, offset: 0, action };
        self.under_way.push(self.nodes[RECEIVER].begin_remote(operation).unwrap());
    }

    /// The receiver sends a message that its partner has to read.
    fn send(&mut self) {
        let credit = Control::Credit { messages: 8, bytes: 0 };
        self.say(PARTNER, &credit.emit());
        let message = Send::new(PeerId::first(PARTNER), Tag(1), Buffer::zeroed(2000));
        let Started::Pending(request) = self.nodes[RECEIVER].send(message, SendMode::Standard)
        else {
            panic!("a rendezvous waits for its FIN")
        };
        self.under_way.push(request);
    }

    /// The operation that the last message to the partner names.
    fn sent(&self) -> AppCtx {
        let net = self.net.borrow();
        let last = net.queues[&(RECEIVER, PARTNER)].back().unwrap();
        Tmh::parse(last.0.first_chunk().unwrap()).unwrap().app_ctx.operation()
    }

    fn say(&mut self, from: usize, bytes: &[u8]) {
        forge(&self.net, from, RECEIVER, bytes);
        self.settle();
    }

    /// Receiver and bystander work until nothing happens. The others never do.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            let events: usize =
                [RECEIVER, BYSTANDER].map(|node| self.nodes[node].progress()).iter().sum();
            quiet = if events > 0 { 0 } else { quiet + 1 };
        }
        let receiver = &mut self.nodes[RECEIVER];
        for request in &self.under_way {
            let done = receiver.requests_mut().take(*request);
            self.ended.extend(done.and_then(|done| {
                Some(format!("{:?} with {:?}", done.result.ok()?, &done.buffer[..]))
            }));
        }
        while let Some(notice) = receiver.take_notice() {
            self.ended.push(format!("{notice:?}"));
        }
        self.memory = receiver.region_memory(self.key).unwrap().to_vec();
    }

    fn begin(&mut self, situation: Situation) {
        match situation {
            Situation::Idle => {}
            Situation::Spent => {
                for number in 0..MESSAGES + FLOOR_MESSAGES {
                    self.say(PARTNER, &tmh(Opcode::Eager, AppCtx(0), 100 + number));
                }
            }
            Situation::Sending => self.send(),
            Situation::Announced => {
                self.receive(ANNOUNCED_TAG, 0);
                self.say(PARTNER, &request(ANNOUNCED, ANNOUNCED_TAG, 50, Some(7)));
            }
            Situation::Fragmented => {
                let header = Fragment::First { tag: Tag(9), length: FRAGMENTED as u64 }.emit();
                self.say(PARTNER, &[&header[..], &[1; FRAGMENTED_FIRST]].concat());
            }
            Situation::Getting => self.operate(RemoteAction::Get { into: Buffer::zeroed(GET) }),
            Situation::Writing => {
                self.operate(RemoteAction::Put { from: vec![7; 10].into(), notice: None });
            }
            Situation::Putting => {
                let left = (PUT - PUT_FIRST) as u64;
                let header = RmaHeader::Put { key: self.key.0, offset: 0, left, notice: None };
                let bytes = [&header.emit()[..header.byte_len()], &[7; PUT_FIRST]].concat();
                self.say(PARTNER, &bytes);
            }
        }
    }
}

impl Room for EngineRoom {
    type Situation = Situation;
    type Sender = usize;

    fn enter(situation: Situation) -> Self {
        let mut room = Self::new();
        room.begin(situation);
        assert_eq!(room.nodes[RECEIVER].peer_fault(PeerId::first(PARTNER)), None);
        room
    }

    fn takes(situation: Situation, sender: usize, message: &Message) -> Legality {
        let is_in = |other| sender == PARTNER && situation == other;
        let legal = |is_legal| if is_legal { Legality::Legal } else { Legality::Illegal };
        match message.name() {
            "fin" | "abort" => legal(is_in(Situation::Sending)),
            "companion" | "length" => legal(is_in(Situation::Announced)),
            "next fragment" => legal(is_in(Situation::Fragmented)),
            "data" => legal(is_in(Situation::Getting)),
            "done" => legal(is_in(Situation::Writing)),
            "failed" => legal(is_in(Situation::Getting) || is_in(Situation::Writing)),
            "last piece" => legal(is_in(Situation::Putting)),
            "put" | "put with a notice" | "first piece" | "get" | "atomic" | "fetching" => {
                legal(!is_in(Situation::Putting))
            }
            "eager" | "matched" | "acknowledged" | "request" | "first fragment"
                if is_in(Situation::Spent) =>
            {
                Legality::Illegal
            }
            "first fragment" => legal(!is_in(Situation::Fragmented)),
            // A companion of the last request is still to come.
            "request" if is_in(Situation::Announced) => Legality::Open,
            // No sender of ours sends a message to be matched between two fragments.
            "eager" | "matched" | "acknowledged" | "request" if is_in(Situation::Fragmented) => {
                Legality::Open
            }
            _ => Legality::Legal,
        }
    }

    /// A refused message ends the connection.
    fn hear(&mut self, sender: usize, bytes: &[u8]) -> bool {
        self.say(sender, bytes);
        self.nodes[RECEIVER].peer_fault(PeerId::first(sender)).is_none()
    }

    fn state(&self) -> String {
        let receiver = &self.nodes[RECEIVER];
        let mut unexpected = DefaultHasher::new();
        receiver.hash_unexpected(&mut unexpected);
        let waiting = vec![(); usize::try_from(receiver.counters().unexpected_now).unwrap()];
        format!("{:?}", (unexpected.finish(), waiting, &self.ended, &self.memory))
    }

    fn audit(mut self) {
        let wrong = self.nodes[RECEIVER].audit(false);
        assert!(wrong.is_empty(), "{wrong:?}");
        let to = self.nodes[BYSTANDER].connect(&address(RECEIVER)).unwrap();
        self.settle();
        let message = Send::new(to, Tag(300), Buffer::from(b"served".to_vec()));
        let sent = self.nodes[BYSTANDER].send(message, SendMode::Synchronous);
        let Started::Pending(sent) = sent else { panic!("{sent:?}") };
        let pattern = exact(300).from_source(SourceId(u32::try_from(BYSTANDER).unwrap()));
        let receive = self.nodes[RECEIVER].receive(&pattern, Buffer::zeroed(6)).unwrap();
        self.settle();
        let received = self.nodes[RECEIVER].requests_mut().take(receive).unwrap();
        assert_eq!((received.result.is_ok(), &received.buffer[..]), (true, &b"served"[..]));
        assert!(self.nodes[BYSTANDER].requests_mut().take(sent).unwrap().result.is_ok());
        let receiver = &mut self.nodes[RECEIVER];
        receiver.close();
        let wrong = receiver.audit(true);
        assert!(wrong.is_empty(), "{wrong:?}");
        receiver.close_region(self.key).expect("the region is back");
    }
}

fn messages() -> Vec<Message> {
    let room = EngineRoom::enter(Situation::Sending);
    let key = room.key.0;
    let names = Names { sent: room.sent(), announced: ANNOUNCED, key, eager_max: EAGER_MAX };
    hostile_messages::all(&names)
}

#[test]
fn no_message_of_a_peer_does_harm() {
    let situations = [
        Situation::Idle,
        Situation::Spent,
        Situation::Sending,
        Situation::Announced,
        Situation::Fragmented,
        Situation::Getting,
        Situation::Writing,
        Situation::Putting,
    ];
    // At any other time the last piece of a put is a put.
    let (last, others): (Vec<_>, Vec<_>) =
        messages().into_iter().partition(|message| message.name() == "last piece");
    try_all::<EngineRoom>(&situations, &[PARTNER], &others);
    try_all::<EngineRoom>(&[Situation::Putting], &[PARTNER], &last);
    // A peer changes nothing that is under way with another peer.
    let answers = others.into_iter().filter(|message| {
        !situations.iter().all(|of| EngineRoom::takes(*of, STRANGER, message) == Legality::Legal)
    });
    try_all::<EngineRoom>(&situations, &[STRANGER], &answers.collect::<Vec<_>>());
}

#[test]
fn the_messages_that_wait_are_within_their_credit() {
    for message in messages() {
        if ["eager", "request", "first fragment"].contains(&message.name()) {
            let bound = usize::try_from(MESSAGES + FLOOR_MESSAGES).unwrap();
            flood::<EngineRoom>(Situation::Idle, PARTNER, &message, ("tag", bound));
        }
    }
}

/// How a message reaches an engine whose NIC has a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The NIC has searched its list in vain, and has counted the message.
    ThroughList,
    PastList,
}

/// An engine whose NIC has a list, and a peer.
struct ListRoom {
    engine: Engine<Script>,
    peer: PeerId,
    bystander: PeerId,
}

impl ListRoom {
    fn say(&mut self, way: Way, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        let message = match way {
            Way::ThroughList => Report::Unmatched(self.peer, bytes),
            Way::PastList => Report::Message(self.peer, bytes),
        };
        report(&mut self.engine, message);
    }
}

impl Room for ListRoom {
    /// Whether a rendezvous request has come whose companion hasn't.
    type Situation = bool;
    type Sender = Way;

    fn enter(is_announced: bool) -> Self {
        let mut engine = engine_with_list();
        let [peer, bystander] = [(); 2].map(|()| arrive(&mut engine));
        let mut room = ListRoom { engine, peer, bystander };
        if is_announced {
            room.say(Way::ThroughList, &request(ANNOUNCED, ANNOUNCED_TAG, 50, Some(7)));
        }
        room
    }

    fn takes(is_announced: bool, _: Way, message: &Message) -> Legality {
        match message.name() {
            "companion" | "length" if is_announced => Legality::Legal,
            "fin" | "abort" | "companion" | "length" | "data" | "done" | "failed" => {
                Legality::Illegal
            }
            // They would be overtaken in the list.
            "first fragment" | "next fragment" => Legality::Illegal,
            "request" if is_announced => Legality::Open,
            _ => Legality::Legal,
        }
    }

    fn hear(&mut self, way: Way, bytes: &[u8]) -> bool {
        if self.engine.peer_fault(self.peer).is_some() {
            return false;
        }
        self.say(way, bytes);
        self.engine.peer_fault(self.peer).is_none()
    }

    /// A refused message breaks with its peer, whose requests leave the list of those that wait.
    fn state(&self) -> String {
        String::new()
    }

    fn audit(mut self) {
        let payload = [&tmh(Opcode::Eager, AppCtx(0), 300)[..], b"served"].concat();
        report(&mut self.engine, Report::Unmatched(self.bystander, payload));
        let receive = self.engine.receive(&exact(300), Buffer::zeroed(6)).unwrap();
        let received = self.engine.requests_mut().take(receive).unwrap();
        assert_eq!((received.result.is_ok(), &received.buffer[..]), (true, &b"served"[..]));
        self.engine.device_mut().reports.push_back(Report::Down(self.peer));
        self.engine.close();
        let wrong = self.engine.audit(true);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

#[test]
fn no_message_does_harm_beside_a_list_of_a_nic() {
    let names = Names { sent: AppCtx(1), announced: ANNOUNCED, key: 1, eager_max: 4096 };
    let messages: Vec<_> = hostile_messages::all(&names)
        .into_iter()
        .filter(|message| message.name() != "last piece")
        .collect();
    try_all::<ListRoom>(&[false, true], &[Way::ThroughList, Way::PastList], &messages);
}
