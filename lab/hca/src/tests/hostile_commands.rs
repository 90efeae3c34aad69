//! Every hostile variant of the commands that make, change, query and destroy objects, by the
//! context that has the objects and by another one of the same program.

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};
use zerocopy::IntoBytes;

use super::programs::{Given, Program, word};
use super::{ALL, End, RELIABLE, connected};
use crate::abi::{self, ModifyQp, qp_mask, write_command};
use crate::boundary::Kind;
use crate::knobs::PKEYS;

/// The memory of each program's end, in bytes.
const MEMORY: u64 = 0x8_0000;
/// Where queues lie in it, and their doorbell records.
const RECORD: u64 = MEMORY - 4096;
/// States of a queue pair: `enum ib_qp_state`.
const INIT: u8 = 1;
const ERROR: u8 = 6;

/// The state of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairState {
    New,
    Connected,
}

/// Who gives a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Owner,
    /// Another context of the same program, to which no object belongs.
    Other,
    /// A descriptor that was never opened.
    Closed,
}

const DESCRIPTORS: [(Context, i32); 3] =
    [(Context::Owner, 3), (Context::Other, 4), (Context::Closed, 5)];

/// A program with an object of each kind.
struct CommandsRoom {
    program: Program,
    end: End,
    handles: Handles,
}

/// The objects that commands name. Nothing uses `spare`, a protection domain.
#[derive(Clone, Copy)]
struct Handles {
    pair: u32,
    srq: u32,
    ah: u32,
    spare: u32,
}

/// The first word of a message whose command is a method of an object rather than a command of
/// `INVOKE_WRITE`; the rest of the word says which.
const METHOD: u32 = 0x4000_0000;
const DESTROYED: [u32; 6] = [
    abi::pd::DESTROY,
    abi::mr::DESTROY,
    abi::qp::DESTROY,
    abi::srq::DESTROY,
    abi::ah::DESTROY,
    abi::cq::DESTROY,
];
const MAKE_CQ: u32 = METHOD | 16;
const MAKE_SRQ: u32 = METHOD | 17;
const MAKE_QP: u32 = METHOD | 18;

impl CommandsRoom {
    fn by(&mut self, context: Context) {
        let of = DESCRIPTORS.iter().find(|(name, _)| *name == context);
        self.program.descriptor = of.unwrap().1;
    }

    fn give(&mut self, command: u32, rest: &[u8]) -> Result<(), i32> {
        let uhw = || Given::In(abi::UHW_IN, rest.to_vec());
        let (words, odd) = rest.as_chunks();
        let numbers: Vec<u32> = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        let method = command.checked_sub(METHOD).and_then(|at| DESTROYED.get(at as usize));
        let given = match (command, method, &numbers[..]) {
            (_, Some(method), [low, high]) if odd.is_empty() => {
                let handle = u64::from(*high) << 32 | u64::from(*low);
                return self.program.command(*method, &[Given::Number(0, handle)]).map(drop);
            }
            (_, Some(_), _) => return Err(libc::EINVAL),
            (MAKE_CQ, ..) => vec![Given::Number(abi::cq::HANDLE, 0), word(abi::cq::CQE, 15), uhw()],
            (MAKE_SRQ, ..) => vec![
                Given::Number(abi::srq::HANDLE, 0),
                Given::Number(abi::srq::PD, self.program.pd.into()),
                word(abi::srq::MAX_WR, 15),
                word(abi::srq::MAX_SGE, 1),
                uhw(),
            ],
            (MAKE_QP, ..) => vec![
                Given::Number(abi::qp::HANDLE, 0),
                Given::Number(abi::qp::PD, self.program.pd.into()),
                Given::Number(abi::qp::SEND_CQ, self.end.cq.handle.into()),
                word(abi::qp::TYPE, RELIABLE),
                uhw(),
            ],
            _ => return self.program.write_command(command, rest, 128).map(drop),
        };
        let method = match command {
            MAKE_CQ => abi::cq::CREATE,
            MAKE_SRQ => abi::srq::CREATE,
            _ => abi::qp::CREATE,
        };
        self.program.command(method, &given).map(drop)
    }
}

impl Room for CommandsRoom {
    type Situation = PairState;
    type Sender = Context;

    fn enter(state: PairState) -> Self {
        let ([mut program, _], [end, _]) = connected(7);
        let srq = program.create_srq(0, &end.cq).unwrap().handle;
        let ah = program.function.objects.add(program.descriptor, Kind::Ah).unwrap();
        let spare = program.allocate_pd().unwrap();
        let pair = end.qp.handle;
        let mut room = CommandsRoom { program, end, handles: Handles { pair, srq, ah, spare } };
        if state == PairState::New {
            let new = room.program.create_qp(&room.end.cq, None, RELIABLE).unwrap();
            room.handles.pair = new.handle;
        }
        room.by(Context::Other);
        room.program.open().unwrap();
        room.by(Context::Owner);
        room
    }

    fn takes(state: PairState, context: Context, message: &Message) -> Legality {
        let is_legal = match message.name() {
            _ if context == Context::Closed => false,
            "make a completion queue" | "make a domain" => true,
            _ if context == Context::Other => false,
            "to init" => state == PairState::New,
            // It is in use.
            "destroy a completion queue" => false,
            _ => true,
        };
        if is_legal { Legality::Legal } else { Legality::Illegal }
    }

    fn hear(&mut self, context: Context, bytes: &[u8]) -> bool {
        let Some((command, rest)) = bytes.split_first_chunk() else { return false };
        self.by(context);
        let is_taken = self.give(u32::from_le_bytes(*command), rest).is_ok();
        self.by(Context::Owner);
        is_taken
    }

    fn state(&self) -> String {
        let function = &self.program.function;
        let number = |of: &Kind| if let Kind::Qp(number) = of { Some(*number) } else { None };
        let pair = function.objects.all.get(&self.handles.pair);
        let pair = pair.and_then(|object| function.qps.get(&number(&object.kind)?));
        let state = pair.map(|pair| (pair.state as u8, pair.to_lid));
        let srqs = &function.adapter.srqs;
        format!("{:?} {} {state:?} {srqs:?}", function.objects.all, function.objects.locked)
    }

    /// The owner is served.
    fn audit(mut self) {
        let locked = self.program.function.objects.locked;
        let (handle, _) = self.program.register(self.end.at, MEMORY, ALL).unwrap();
        let destroy = [Given::Number(abi::mr::HANDLE, handle.into())];
        self.program.command(abi::mr::DESTROY, &destroy).unwrap();
        assert_eq!(self.program.function.objects.locked, locked);
    }
}

fn command(name: &'static str, command: u32, rest: &[u8]) -> Message {
    let bytes = [&command.to_le_bytes()[..], rest].concat();
    Message::new(name, bytes).le(4, "command", Meaning::Open)
}

/// A command of the write interface. Bytes behind its structure are of a later kernel.
fn written(name: &'static str, number: u32, rest: &[u8]) -> Message {
    command(name, number, rest).or_of_length(4 + rest.len() + 1..=usize::MAX)
}

/// A structure of the driver. What a shorter one leaves out is zero.
fn of_driver(name: &'static str, number: u32, rest: &[u8]) -> Message {
    command(name, number, rest).or_of_length(0..=usize::MAX)
}

/// A number that has to be this one.
fn only(number: u64) -> Meaning {
    Meaning::Within(number..=number)
}

fn commands(room: &CommandsRoom) -> Vec<Message> {
    let CommandsRoom { program, end, handles } = room;
    let register = abi::RegisterMemory {
        start: end.at,
        length: MEMORY,
        hca_va: end.at,
        pd_handle: program.pd,
        access_flags: ALL,
        ..Default::default()
    };
    let register = written("register", write_command::REG_MR, register.as_bytes());
    // Other memory of the program may be registered as well.
    let register = register.le(8, "response", Meaning::Free).le(8, "start", Meaning::Open);
    let register = register.le(8, "length", Meaning::Open).le(8, "name", Meaning::Open);
    let register = register.le(4, "domain", Meaning::Fixed).le(4, "access", Meaning::Open);
    let query = |name, number, handle: u32| {
        let request = abi::QueryQp { response: 0, qp_handle: handle, attr_mask: 0 };
        let message = written(name, number, request.as_bytes());
        let message = message.le(8, "response", Meaning::Free);
        message.le(4, "handle", Meaning::Fixed).le(4, "mask", Meaning::Free)
    };
    let destroy = |name, at: u32, handle: u32| {
        let rest = u64::from(handle).to_le_bytes();
        command(name, METHOD | at, &rest).le(8, "handle", Meaning::Fixed)
    };
    let destroy_ah = abi::DestroyAh { ah_handle: handles.ah };
    let destroy_ah =
        written("destroy an address", write_command::DESTROY_AH, destroy_ah.as_bytes());
    let mut all = vec![
        register,
        query("query a pair", write_command::QUERY_QP, handles.pair),
        query("query a shared queue", write_command::QUERY_SRQ, handles.srq),
        written("make a domain", write_command::ALLOC_PD, &[0; 8])
            .le(8, "response", Meaning::Free)
            .or_of_length(0..=usize::MAX),
        destroy_ah.le(4, "handle", Meaning::Fixed),
        destroy("destroy a domain", 0, handles.spare),
        destroy("destroy memory", 1, end.handle),
        destroy("destroy a pair", 2, handles.pair),
        destroy("destroy a shared queue", 3, handles.srq),
        destroy("destroy an address handle", 4, handles.ah),
        destroy("destroy a completion queue", 5, end.cq.handle),
    ];
    all.extend(changes(handles.pair));
    all.extend(queues(end.at));
    all
}

/// Changes of a queue pair. What the mask doesn't name may be anything.
fn changes(pair: u32) -> [Message; 2] {
    let change = |name, attr_mask, qp_state: u8, states: Meaning| {
        let request =
            ModifyQp { qp_handle: pair, attr_mask, qp_state, port_num: 1, ..ModifyQp::default() };
        let keys = Meaning::Within(0..=PKEYS as u64 - 1);
        let has_ports = attr_mask & qp_mask::PORT != 0;
        let of_init = |meaning: Meaning| if has_ports { meaning } else { Meaning::Open };
        let message = written(name, write_command::MODIFY_QP, request.as_bytes());
        let message = message.bytes_of(2 * size_of::<abi::Destination>(), "path", &Meaning::Open);
        let message = message.le(4, "handle", Meaning::Fixed).le(4, "mask", Meaning::Open);
        let message = message.le(4, "qkey", Meaning::Free).le(4, "receive psn", Meaning::Free);
        let message = message.le(4, "send psn", Meaning::Free).le(4, "peer", Meaning::Free);
        let message = message.le(4, "access", Meaning::Open).le(2, "key", of_init(keys));
        let message = message.le(2, "other key", Meaning::Open).le(1, "state", states);
        let message = message.bytes_of(7, "attributes", &Meaning::Open);
        let message = message.le(1, "port", of_init(only(1)));
        let tail = size_of::<ModifyQp>() + 4 - message.described_bytes();
        message.bytes_of(tail, "more attributes", &Meaning::Open)
    };
    let init = qp_mask::STATE | qp_mask::PKEY_INDEX | qp_mask::PORT | qp_mask::ACCESS_FLAGS;
    let states = |others: &[u64]| Meaning::OneOf(others.to_vec());
    [
        change("to init", init, INIT, states(&[])),
        change("to error", qp_mask::STATE, ERROR, states(&[0, 1, 2, 3, 4, 5, 6])),
    ]
}

/// Queues that are made in the memory at `at`.
fn queues(at: u64) -> [Message; 3] {
    let db_addr = at + RECORD;
    let places =
        |message: Message| message.le(8, "buffer", Meaning::Open).le(8, "record", Meaning::Open);
    let cq = abi::CreateCq { buf_addr: at, db_addr, cqe_size: 64, ..Default::default() };
    let cq = of_driver("make a completion queue", MAKE_CQ, cq.as_bytes());
    let cq = places(cq).le(4, "entry", Meaning::OneOf(vec![64, 128]));
    let cq = cq.le(1, "compressed", Meaning::Fixed).le(1, "format", Meaning::Free);
    let cq = cq.le(2, "flags", Meaning::OneOf(vec![0, 2])).le(2, "page", Meaning::Free);
    let cq = cq.le(2, "reserved", Meaning::Open).le(4, "reserved", Meaning::Open);
    let srq = abi::CreateSrq { buf_addr: at, db_addr, ..Default::default() };
    let srq = of_driver("make a shared queue", MAKE_SRQ, srq.as_bytes());
    let srq = places(srq).le(4, "flags", Meaning::Fixed).le(4, "reserved", Meaning::Open);
    let srq = srq.le(4, "index", Meaning::Free).le(4, "reserved", Meaning::Open);
    let qp = abi::CreateQp {
        buf_addr: at,
        db_addr,
        sq_wqe_count: 16,
        rq_wqe_count: 16,
        rq_wqe_shift: 6,
        ..Default::default()
    };
    let powers = || Meaning::OneOf((0..=15).map(|bit| 1 << bit).chain([0]).collect());
    let flags = [1, 3, 8, 9, 10].into_iter().fold(vec![0], |sums: Vec<u64>, bit| {
        sums.iter().flat_map(|sum| [*sum, sum | 1 << bit]).collect()
    });
    let qp = of_driver("make a pair", MAKE_QP, qp.as_bytes());
    let qp = places(qp).le(4, "sends", powers()).le(4, "receives", powers());
    let qp = qp.le(4, "shift", Meaning::Within(4..=9)).le(4, "flags", Meaning::OneOf(flags));
    let tail = size_of::<abi::CreateQp>() + 4 - qp.described_bytes();
    [cq, srq, qp.bytes_of(tail, "what the device doesn't read", &Meaning::Open)]
}

#[test]
fn no_command_of_a_program_reaches_beyond_its_context() {
    for state in [PairState::New, PairState::Connected] {
        let messages = commands(&CommandsRoom::enter(state));
        let contexts = [Context::Owner, Context::Other, Context::Closed];
        try_all::<CommandsRoom>(&[state], &contexts, &messages);
    }
}
