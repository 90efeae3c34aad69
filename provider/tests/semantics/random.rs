//! Random sequences of calls, against plain lists that are searched from the front. Each operation
//! has exactly one entry, which says what the lists say, and payloads are right. Numbers come from
//! a seed, so a failed run can be repeated.

use tagmatch_testkit::random::Random;

use crate::client::{Call, Entry, Memory, Node, at, payload, sys};

const NODES: usize = 3;
const LENGTHS: [usize; 6] = [0, 5, 200, 4096, 6000, 100_000];
/// Rounds of progress in which what is under way in this process has come to its end.
const ROUNDS: usize = 12;

struct Message {
    sender: usize,
    send: usize,
    bytes: Vec<u8>,
    kind: u64,
    tag: u64,
    data: Option<u64>,
}

struct Posted {
    context: usize,
    source: Option<usize>,
    kind: u64,
    tag: u64,
    ignore: u64,
    room: Memory,
}

impl Posted {
    fn accepts(&self, message: &Message) -> bool {
        let is_tag = (self.tag ^ message.tag) & !self.ignore == 0;
        self.kind == message.kind
            && self.source.is_none_or(|source| source == message.sender)
            && (self.kind == sys::FI_MSG || is_tag)
    }
}

/// A send without an entry so far.
struct Sending {
    context: usize,
    /// It ends only when the message was received.
    waits: bool,
    is_received: bool,
}

/// What an entry of a receive has to say.
struct Expected {
    context: usize,
    failure: i32,
    flags: u64,
    length: usize,
    overflow: usize,
    data: u64,
    tag: u64,
    source: u64,
    room: Option<(Memory, Vec<u8>)>,
}

/// An endpoint, and what it should have.
struct Model {
    node: Node,
    /// What stands for each endpoint in the address vector.
    addresses: Vec<Option<u64>>,
    posted: Vec<Posted>,
    unexpected: Vec<Message>,
    claimed: Vec<(usize, Message)>,
    sending: Vec<Sending>,
    expected: Vec<Expected>,
}

struct Run {
    random: Random,
    models: Vec<Model>,
    contexts: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let model = |_| Model {
            node: Node::new(),
            addresses: vec![None; NODES],
            posted: Vec::new(),
            unexpected: Vec::new(),
            claimed: Vec::new(),
            sending: Vec::new(),
            expected: Vec::new(),
        };
        let models = (0..NODES).map(model).collect();
        let mut run = Run { random: Random::new(seed), models, contexts: 0 };
        run.introduce();
        run
    }

    fn context(&mut self) -> usize {
        self.contexts += 1;
        self.contexts
    }

    /// All endpoints get the names of all that they lack, and are connected.
    fn introduce(&mut self) {
        for of in 0..NODES {
            for other in 0..NODES {
                let name = self.models[other].node.name;
                let vector = self.models[of].node.vector;
                self.models[of].addresses[other].get_or_insert_with(|| vector.add(name));
            }
        }
        for of in 0..NODES {
            for other in 0..NODES {
                let to = self.models[of].addresses[other].expect("all were inserted");
                self.models[of].node.endpoint.tinject(b"hello", to, 99).unwrap();
                let context = self.context();
                let receiver = self.models[other].node.endpoint;
                receiver.trecv(Memory::new(5), 99, 0, context).unwrap();
                let mut entry = None;
                while entry.is_none() {
                    self.models.iter().for_each(|model| model.node.queue.progress());
                    entry = self.models[other].node.queue.poll();
                }
                assert_eq!(entry.map(|entry| (entry.context, entry.failure)), Some((context, 0)));
            }
        }
    }

    /// What the receive of a message has to say.
    fn outcome(&self, node: usize, posted: &Posted, message: &Message) -> Expected {
        let room = posted.room.len();
        let whole = message.bytes.len();
        let length = room.min(whole);
        Expected {
            failure: if whole > room { sys::FI_ETRUNC } else { 0 },
            length,
            overflow: whole - length,
            room: Some((posted.room, message.bytes[..length].to_vec())),
            ..self.description(node, posted.context, message)
        }
    }

    /// What a peek has to say of a message.
    fn description(&self, node: usize, context: usize, message: &Message) -> Expected {
        let has_data = if message.data.is_some() { sys::FI_REMOTE_CQ_DATA } else { 0 };
        let source = self.models[node].addresses[message.sender];
        Expected {
            context,
            failure: 0,
            flags: sys::FI_RECV | message.kind | has_data,
            length: message.bytes.len(),
            overflow: 0,
            data: message.data.unwrap_or(0),
            tag: message.tag,
            source: source.unwrap_or(sys::FI_ADDR_NOTAVAIL),
            room: None,
        }
    }

    fn is_received(&mut self, message: &Message) {
        let sending = &mut self.models[message.sender].sending;
        let send = sending.iter_mut().find(|send| send.context == message.send);
        if let Some(send) = send {
            send.is_received = true;
        }
    }

    fn send(&mut self) {
        let from = self.random.index(NODES);
        let to = self.random.index(NODES);
        let length = self.random.pick(&LENGTHS);
        let context = self.context();
        let way = self.random.below(7);
        let bytes = payload(context as u64, length);
        let is_tagged = self.random.chance(2, 3);
        let tag = if is_tagged { self.random.below(8) } else { 0 };
        let data = self.random.chance(1, 3).then_some(context as u64);
        let endpoint = self.models[from].node.endpoint;
        let address = self.models[from].addresses[to];
        let number = address.unwrap_or(1_000_000);
        let parts = [Memory::of(&bytes)];
        let call = Call {
            parts: &parts,
            address: number,
            tag,
            context,
            data: data.unwrap_or(0),
            ..Call::default()
        };
        let flag = match way {
            0 => sys::FI_DELIVERY_COMPLETE,
            1 => sys::FI_MATCH_COMPLETE,
            _ => 0,
        };
        let has_data = if data.is_some() { sys::FI_REMOTE_CQ_DATA } else { 0 };
        let injects = way > 4 && length <= 4096;
        let answer = match (injects, is_tagged, data) {
            (true, true, None) => endpoint.tinject(&bytes, number, tag),
            (true, true, Some(data)) => endpoint.tinjectdata(&bytes, data, number, tag),
            (true, false, None) => endpoint.inject(&bytes, number),
            (true, false, Some(data)) => endpoint.injectdata(&bytes, data, number),
            (false, true, _) => endpoint.tsendmsg(call, flag | has_data),
            (false, false, _) => endpoint.sendmsg(call, flag | has_data),
        };
        if address.is_none() {
            assert_eq!(answer, Err(sys::FI_EINVAL));
            return;
        }
        answer.unwrap();
        if !injects {
            let waits = flag != 0;
            self.models[from].sending.push(Sending { context, waits, is_received: false });
        }
        let kind = if is_tagged { sys::FI_TAGGED } else { sys::FI_MSG };
        let message = Message { sender: from, send: context, bytes, kind, tag, data };
        let found = self.models[to].posted.iter().position(|posted| posted.accepts(&message));
        match found {
            Some(at) => {
                let posted = self.models[to].posted.remove(at);
                let expected = self.outcome(to, &posted, &message);
                self.is_received(&message);
                self.models[to].expected.push(expected);
            }
            None => self.models[to].unexpected.push(message),
        }
    }

    /// A receive or a peek of an endpoint, not posted yet. `None`: its source isn't in the vector.
    fn pattern(&mut self, node: usize) -> (Posted, u64) {
        let is_tagged = self.random.chance(2, 3);
        let source = self.random.chance(1, 3).then(|| self.random.index(NODES));
        let room = Memory::new(self.random.pick(&LENGTHS));
        let tag = self.random.below(8);
        let ignore = self.random.pick(&[0, 0, 1, 6, u64::MAX]);
        let number = match source {
            None => sys::FI_ADDR_UNSPEC,
            Some(source) => self.models[node].addresses[source].unwrap_or(1_000_000),
        };
        let kind = if is_tagged { sys::FI_TAGGED } else { sys::FI_MSG };
        (Posted { context: self.context(), source, kind, tag, ignore, room }, number)
    }

    fn receive(&mut self) {
        let node = self.random.index(NODES);
        let (posted, source) = self.pattern(node);
        let Posted { context, kind, tag, ignore, room, .. } = posted;
        let endpoint = self.models[node].node.endpoint;
        let answer = match kind {
            sys::FI_TAGGED => {
                endpoint.trecv_from(room, Call { ignore, ..at(source, tag) }, context)
            }
            _ => endpoint.recv_from(room, source, context),
        };
        if source == 1_000_000 {
            assert_eq!(answer, Err(sys::FI_EINVAL));
            return;
        }
        answer.unwrap();
        self.post(node, posted);
    }

    fn post(&mut self, node: usize, posted: Posted) {
        let waiting = &self.models[node].unexpected;
        match waiting.iter().position(|message| posted.accepts(message)) {
            Some(at) => {
                let message = self.models[node].unexpected.remove(at);
                let expected = self.outcome(node, &posted, &message);
                self.is_received(&message);
                self.models[node].expected.push(expected);
            }
            None => self.models[node].posted.push(posted),
        }
    }

    fn peek(&mut self) {
        let node = self.random.index(NODES);
        let (posted, address) = self.pattern(node);
        let Posted { context, tag, ignore, .. } = posted;
        let flags = sys::FI_PEEK | self.random.pick(&[0, sys::FI_CLAIM, sys::FI_DISCARD]);
        let call = Call { address, tag, ignore, context, ..Call::default() };
        let answer = self.models[node].node.endpoint.trecvmsg(call, flags);
        if address == 1_000_000 {
            assert_eq!(answer, Err(sys::FI_EINVAL));
            return;
        }
        answer.unwrap();
        let tagged = Posted { kind: sys::FI_TAGGED, ..posted };
        let waiting = &self.models[node].unexpected;
        let expected = match waiting.iter().position(|message| tagged.accepts(message)) {
            None => failed(context, sys::FI_TAGGED, sys::FI_ENOMSG),
            Some(at) => {
                let expected = self.description(node, context, &waiting[at]);
                if flags != sys::FI_PEEK {
                    let message = self.models[node].unexpected.remove(at);
                    if flags & sys::FI_CLAIM != 0 {
                        self.models[node].claimed.push((context, message));
                    } else {
                        self.is_received(&message);
                    }
                }
                expected
            }
        };
        self.models[node].expected.push(expected);
    }

    /// Receives or drops a message that was claimed.
    fn claim(&mut self, node: usize) {
        if self.models[node].claimed.is_empty() {
            return;
        }
        let at = self.random.index(self.models[node].claimed.len());
        let (context, message) = self.models[node].claimed.remove(at);
        let room = Memory::new(self.random.pick(&LENGTHS));
        let parts = [room];
        let call = Call { parts: &parts, context, ..Call::default() };
        let discards = self.random.chance(1, 3);
        let flags = sys::FI_CLAIM | if discards { sys::FI_DISCARD } else { 0 };
        self.models[node].node.endpoint.trecvmsg(call, flags).unwrap();
        self.is_received(&message);
        let expected = if discards {
            failed(context, sys::FI_TAGGED, 0)
        } else {
            let tag = message.tag;
            let ignore = 0;
            let source = None;
            let kind = message.kind;
            let posted = Posted { context, source, kind, tag, ignore, room };
            self.outcome(node, &posted, &message)
        };
        self.models[node].expected.push(expected);
    }

    fn cancel(&mut self, node: usize) {
        let model = &mut self.models[node];
        if model.posted.is_empty() || self.random.chance(1, 5) {
            // There is no such receive.
            model.node.endpoint.cancel(usize::MAX).unwrap();
            return;
        }
        let posted = model.posted.remove(self.random.index(model.posted.len()));
        model.node.endpoint.cancel(posted.context).unwrap();
        model.expected.push(failed(posted.context, posted.kind, sys::FI_ECANCELED));
    }

    /// Takes an address out of a vector, or puts it in again.
    fn change_vector(&mut self) {
        let node = self.random.index(NODES);
        let other = self.random.index(NODES);
        let name = self.models[other].node.name;
        let model = &mut self.models[node];
        match model.addresses[other].take() {
            Some(number) => drop(model.node.vector.remove(&[number]).unwrap()),
            None => model.addresses[other] = Some(model.node.vector.add(name)),
        }
    }

    /// Receives and cancels all that there is, closes an endpoint, and opens another in its place.
    fn reopen(&mut self) {
        self.empty();
        let node = self.random.index(NODES);
        self.models[node].node.close();
        self.models[node].node = Node::new();
        self.models[node].addresses = vec![None; NODES];
        for model in &mut self.models {
            if let Some(number) = model.addresses[node].take() {
                model.node.vector.remove(&[number]).unwrap();
            }
        }
        self.introduce();
    }

    fn empty(&mut self) {
        for node in 0..NODES {
            while !self.models[node].claimed.is_empty() {
                self.claim(node);
                self.settle();
            }
            while !self.models[node].posted.is_empty() {
                self.cancel(node);
                self.settle();
            }
            while let Some(Message { kind, tag, bytes, .. }) = self.models[node].unexpected.first()
            {
                let kind = *kind;
                let tag = *tag;
                let room = Memory::new(bytes.len());
                let context = self.context();
                let endpoint = self.models[node].node.endpoint;
                match kind {
                    sys::FI_TAGGED => endpoint.trecv(room, tag, 0, context).unwrap(),
                    _ => endpoint.recv(room, context).unwrap(),
                };
                self.post(node, Posted { context, source: None, kind, tag, ignore: 0, room });
                self.settle();
            }
        }
    }

    /// Lets all that is under way come to its end, and checks the entries.
    fn settle(&mut self) {
        let mut rounds = 0;
        while rounds < ROUNDS || (!self.is_quiet() && rounds < 100_000) {
            rounds += 1;
            for model in &mut self.models {
                while let Some(entry) = model.node.queue.poll() {
                    model.check(&entry);
                }
            }
        }
        assert!(self.is_quiet(), "some operations have no entry");
    }

    /// All entries that there should be have come.
    fn is_quiet(&self) -> bool {
        self.models.iter().all(|model| {
            model.expected.is_empty() && !model.sending.iter().any(|send| send.is_received)
        })
    }
}

/// The entry of an operation without a message.
fn failed(context: usize, kind: u64, failure: i32) -> Expected {
    let flags = sys::FI_RECV | kind;
    let source = sys::FI_ADDR_NOTAVAIL;
    let length = 0;
    let overflow = 0;
    let data = 0;
    let tag = 0;
    let room = None;
    Expected { context, failure, flags, length, overflow, data, tag, source, room }
}

impl Model {
    /// Checks an entry, and strikes its operation off.
    fn check(&mut self, entry: &Entry) {
        if entry.flags & sys::FI_SEND != 0 {
            let at = self.sending.iter().position(|send| send.context == entry.context);
            let send = self.sending.remove(at.expect("a send has one entry"));
            assert!(!send.waits || send.is_received, "too early: {entry:x?}");
            assert_eq!(entry.failure, 0);
            return;
        }
        let at = self.expected.iter().position(|expected| expected.context == entry.context);
        let Some(at) = at else { panic!("no receive has this entry: {entry:x?}") };
        let expected = self.expected.remove(at);
        let Expected { failure, flags, length, overflow, data, tag, source, room, .. } = expected;
        assert_eq!((entry.failure, entry.flags), (failure, flags), "{entry:x?}");
        assert_eq!((entry.length, entry.overflow), (length, overflow), "{entry:x?}");
        assert_eq!((entry.data, entry.tag, entry.source), (data, tag, source), "{entry:x?}");
        if let Some((room, bytes)) = room {
            assert_eq!(entry.start, room.start() as usize);
            assert!(room.bytes()[..length] == bytes, "wrong bytes: {entry:x?}");
            assert!(room.bytes()[length..].iter().all(|byte| *byte == 0xee), "{entry:x?}");
        }
    }
}

#[test]
fn random_calls_end_as_the_manual_pages_say() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..1500 {
            let node = run.random.index(NODES);
            match run.random.below(100) {
                0..36 => run.send(),
                36..74 => run.receive(),
                74..84 => run.peek(),
                84..90 => run.claim(node),
                90..96 => run.cancel(node),
                96..99 => run.change_vector(),
                _ if run.random.chance(1, 4) => run.reopen(),
                _ => {}
            }
            run.settle();
        }
        run.empty();
        run.models.iter().for_each(|model| model.node.close());
    }
}
