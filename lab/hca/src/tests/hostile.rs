//! Every hostile variant of what a program writes into its send queue, of packets, and of commands.

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};
use zerocopy::{FromBytes, IntoBytes};

use super::programs::{Given, Program, TestQp, TestSrq, remote, segment, turns, word};
use super::tags::{append, with_tags};
use super::{End, NO_PACKET, RELIABLE, REQUEST, completions, connected};
use crate::abi::{self, ModifySrq, SrqAttributes, write_command};
use crate::nic::Letter;
use crate::nic::packet::{Body, Packet, Request};
use crate::wqe::opcode;

/// The turns in which the device does all that follows from a request.
const TURNS: usize = 8;
/// The bytes that requests move, and the memory that they may use.
const MOVED: u32 = 64;
const MEMORY: u64 = 0x8_0000;
/// The memory that requests write to, from the beginning of a program's memory: its end, so that
/// the first part of a request that goes beyond it is refused.
const TARGET: u64 = MEMORY - 0x1000;

/// Whether the list of tags has an entry, at its first place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListSituation {
    Empty,
    Appended,
}

/// A program with a list of tags that writes requests for its own memory.
struct RequestRoom {
    programs: [Program; 2],
    a: End,
    b: End,
    commands: TestQp,
    /// The operations on the list that have succeeded.
    operated: usize,
}

impl RequestRoom {
    /// Whether a request or an operation on the list has succeeded.
    fn work(&mut self) -> bool {
        turns(&mut self.programs, TURNS);
        let completions = self.programs[1].poll(&mut self.b.cq);
        let operated = completions.iter().filter(|one| one.opcode() == NO_PACKET);
        let operated = operated.filter(|one| one.0[0] & 0x80 != 0).count();
        self.operated += operated;
        operated > 0 || completions.iter().any(|one| one.opcode() == REQUEST)
    }

    fn memory(&self) -> Vec<u8> {
        self.programs[1].get(self.b.at + TARGET, MOVED as usize)
    }
}

impl Room for RequestRoom {
    type Situation = ListSituation;
    type Sender = ();

    fn enter(situation: ListSituation) -> Self {
        let (programs, a, b, _, commands) = with_tags();
        programs[1].put(b.at, &[9; MOVED as usize]);
        let mut room = RequestRoom { programs, a, b, commands, operated: 0 };
        if situation == ListSituation::Appended {
            let buffer = (room.b.at, 100, room.b.key);
            append(&room.programs[1], &mut room.commands, 1, 70, buffer);
            assert!(room.work());
        }
        room
    }

    fn takes(situation: ListSituation, (): (), message: &Message) -> Legality {
        match message.name() {
            "remove" if situation == ListSituation::Empty => Legality::Illegal,
            _ => Legality::Legal,
        }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Some((control, rest)) = bytes.split_at_checked(16) else { return false };
        let qp = &mut self.commands;
        let first = u32::from(qp.posted) % super::PLACES;
        // The helper writes a control segment of its own, with the number of the request.
        self.programs[1].post(qp, 0, 0, rest);
        let at = qp.sends + u64::from(first) * 64;
        let number = self.programs[1].get(at + 1, 2);
        self.programs[1].put(at, control);
        // A request is numbered from this one on.
        let [number, from] =
            [&number[..], &control[1..3]].map(|two| u16::from_be_bytes([two[0], two[1]]));
        self.programs[1].put(at + 1, &number.wrapping_add(from).to_be_bytes());
        self.work()
    }

    fn state(&self) -> String {
        format!("{:?}", (self.memory(), self.operated))
    }

    /// The other program is served.
    fn audit(self) {
        let RequestRoom { programs: [mut other, _], mut a, .. } = self;
        let own = other.create_qp(&a.cq, None, RELIABLE).unwrap();
        other.connect(&own, own.number, 7);
        let write = [remote(a.at + TARGET, a.key), segment(a.at, 8, a.key)].concat();
        other.post(&mut { own }, opcode::WRITE, 0, &write);
        assert_eq!(completions(&mut [other], 0, &mut a.cq, 1)[0].opcode(), REQUEST);
    }
}

/// A request: its control segment, and what follows.
fn request(name: &'static str, opcode: u8, rest: &[u8]) -> Message {
    let units = u8::try_from(1 + rest.len() / 16).unwrap();
    let control = [0, 0, 0, opcode, 0, 0, 0, units, 0, 0, 0, 8, 0, 0, 0, 0];
    let message = Message::new(name, [&control[..], rest].concat());
    let message = message.be(1, "modifier", Meaning::Free).be(2, "number", Meaning::Fixed);
    // Another opcode makes another request of the same bytes.
    let known = vec![0, 8, 9, 10, 11, 16, 17, 18, 0x28];
    let message = message.be(1, "opcode", Meaning::OneOf(known));
    let message = message.be(3, "queue pair", Meaning::Free).be(1, "units", Meaning::Open);
    let message = message.be(3, "signature", Meaning::Free).be(1, "flags", Meaning::Open);
    // What is cut off are zeros, or an earlier request.
    message.be(4, "immediate", Meaning::Free).or_of_length(0..=usize::MAX)
}

/// Memory of the peer.
fn at(message: Message, start: u64) -> Message {
    let places = Meaning::Within(start..=start + MEMORY - u64::from(MOVED));
    message.be(8, "address", places).be(4, "key", Meaning::Fixed).be(4, "zeros", Meaning::Free)
}

/// Memory of the program. The highest bit of a length says that data follow in the request.
fn data(message: Message, start: u64) -> Message {
    let places = Meaning::Within(start..=start + MEMORY - u64::from(MOVED));
    let message = message.be(1, "highest byte of the length", Meaning::Fixed);
    let message = message.be(3, "length", Meaning::Within(0..=MEMORY - TARGET));
    message.be(4, "local key", Meaning::Fixed).be(8, "local address", places)
}

fn requests() -> Vec<Message> {
    let (_, _, b, _, _) = with_tags();
    let target = [remote(b.at + TARGET, b.key), segment(b.at, MOVED, b.key)].concat();
    let moves = |name, opcode| {
        let message = request(name, opcode, &target);
        data(at(message, b.at), b.at)
    };
    let list = |name, command: u8, index: u16, rest: &[u8]| {
        let head = [&[command, 0x80][..], &index.to_be_bytes(), &[0; 12]].concat();
        let message = request(name, opcode::TAG_MATCHING, &[&head[..], rest].concat());
        let message = message.be(1, "operation", Meaning::OneOf((0..=0x2f).collect()));
        message.be(1, "list flags", Meaning::Open)
    };
    let tail = |message: Message| {
        let message = message.be(2, "reserved", Meaning::Free).be(2, "count", Meaning::Free);
        message.be(8, "more reserved", Meaning::Free)
    };
    let entry = [&[1; 8][..], &[0xff; 8], &segment(b.at, 100, b.key)].concat();
    let appended = tail(list("append", 0x10, 1, &entry).be(2, "next", Meaning::Free));
    let appended = appended.be(8, "tag", Meaning::Free).be(8, "mask", Meaning::Free);
    let appended = appended.bytes_of(16, "buffer", &Meaning::Open);
    let removed = list("remove", 0x20, 0, &[]).be(2, "index", Meaning::Within(0..=0));
    vec![
        moves("write", opcode::WRITE),
        moves("read", opcode::READ),
        request("nop", opcode::NOP, &[]),
        appended,
        tail(removed),
        tail(list("sync", 0, 0, &[]).be(2, "index", Meaning::Free)),
    ]
}

#[test]
fn no_request_of_a_program_does_harm() {
    let situations = [ListSituation::Empty, ListSituation::Appended];
    try_all::<RequestRoom>(&situations, &[()], &requests());
}

/// Whether the receiver of packets takes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiverSituation {
    Ready,
    Reset,
}

/// The queue pair that a packet names as its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Peer,
    /// Another queue pair of the same program.
    Sibling,
    Nobody,
}

struct PacketRoom {
    programs: [Program; 2],
    ends: [End; 2],
    sibling: TestQp,
    /// A WRITE of the peer, on its way.
    packet: Packet,
}

impl Room for PacketRoom {
    type Situation = ReceiverSituation;
    type Sender = Origin;

    fn enter(situation: ReceiverSituation) -> Self {
        let (mut programs, mut ends) = connected(7);
        let sibling = programs[0].create_qp(&ends[0].cq, None, RELIABLE).unwrap();
        programs[0].connect(&sibling, ends[1].qp.number, 7);
        programs[0].put(ends[0].at, &[9; MOVED as usize]);
        let [a, b] = &mut ends;
        let data = segment(a.at, MOVED, a.key);
        let write = [remote(b.at + TARGET, b.key), data].concat();
        programs[0].post(&mut a.qp, opcode::WRITE, 0, &write);
        programs[0].function.turn(|_| true);
        let Some(Letter::Packet(packet)) = programs[1].function.adapter.inbox.take() else {
            panic!("a WRITE is on its way")
        };
        if situation == ReceiverSituation::Reset {
            let reset = abi::ModifyQp { attr_mask: abi::qp_mask::STATE, ..Default::default() };
            programs[1].modify(&b.qp, reset).unwrap();
        }
        PacketRoom { programs, ends, sibling, packet }
    }

    fn takes(situation: ReceiverSituation, from: Origin, _: &Message) -> Legality {
        if situation == ReceiverSituation::Ready && from == Origin::Peer {
            Legality::Legal
        } else {
            Legality::Illegal
        }
    }

    fn hear(&mut self, from: Origin, bytes: &[u8]) -> bool {
        let mut packet = self.packet.clone();
        let Some(changed) = PacketFields::of(bytes) else { return false };
        let before = self.state();
        packet.from = match from {
            Origin::Peer => self.ends[0].qp.number,
            Origin::Sibling => self.sibling.number,
            Origin::Nobody => u32::MAX,
        };
        changed.put(&mut packet);
        self.programs[1].function.adapter.inbox.put(Letter::Packet(packet));
        let program = &mut self.programs[1];
        program.function.take_letters(&program.caller);
        self.state() != before
    }

    fn state(&self) -> String {
        format!("{:?}", self.programs[1].get(self.ends[1].at + TARGET, MOVED as usize))
    }

    /// Both programs are served on another connection.
    fn audit(self) {
        let PacketRoom { mut programs, ends: [mut a, b], .. } = self;
        let mut from = programs[0].create_qp(&a.cq, None, RELIABLE).unwrap();
        let to = programs[1].create_qp(&b.cq, None, RELIABLE).unwrap();
        programs[0].connect(&from, to.number, 7);
        programs[1].connect(&to, from.number, 7);
        turns(&mut programs, TURNS);
        programs[0].poll(&mut a.cq);
        let write = [remote(b.at + TARGET + 0x100, b.key), segment(a.at, MOVED, a.key)].concat();
        programs[0].post(&mut from, opcode::WRITE, 0, &write);
        turns(&mut programs, TURNS);
        assert_eq!(programs[1].get(b.at + TARGET + 0x100, MOVED as usize), [9; MOVED as usize]);
    }
}

/// The numbers of a packet, as a description has them.
#[derive(Clone, Copy)]
struct PacketFields {
    to: u32,
    to_lid: u16,
    pkey: u16,
    mtu: u16,
    psn: u32,
    reads: u8,
    at: u64,
    rkey: u32,
}

impl PacketFields {
    const BYTES: usize = 27;

    fn of(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let number = |at: usize, width: usize| {
            bytes[at..at + width].iter().fold(0, |all: u64, byte| all << 8 | u64::from(*byte))
        };
        Some(PacketFields {
            to: number(0, 4) as u32,
            to_lid: number(4, 2) as u16,
            pkey: number(6, 2) as u16,
            mtu: number(8, 2) as u16,
            psn: number(10, 4) as u32,
            reads: bytes[14],
            at: number(15, 8),
            rkey: number(23, 4) as u32,
        })
    }

    fn emit(self) -> Vec<u8> {
        let PacketFields { to, to_lid, pkey, mtu, psn, reads, at, rkey } = self;
        let shorts = [to_lid, pkey, mtu].map(u16::to_be_bytes).concat();
        let tail = [&[reads][..], &at.to_be_bytes(), &rkey.to_be_bytes()].concat();
        [&to.to_be_bytes()[..], &shorts, &psn.to_be_bytes(), &tail].concat()
    }

    fn put(self, packet: &mut Packet) {
        (packet.to, packet.to_lid, packet.pkey, packet.mtu) =
            (self.to, self.to_lid, self.pkey, self.mtu);
        let Body::Request { psn, reads, request: Request::Write { to, .. } } = &mut packet.body
        else {
            panic!("{packet:?}")
        };
        (*psn, *reads) = (self.psn, self.reads);
        (to.at, to.rkey) = (self.at, self.rkey);
    }
}

#[test]
fn no_packet_does_harm_beyond_its_connection() {
    let room = PacketRoom::enter(ReceiverSituation::Ready);
    let Body::Request { psn, reads, request: Request::Write { to, .. } } = &room.packet.body else {
        panic!("{:?}", room.packet)
    };
    let Packet { to: qp, to_lid, pkey, mtu, .. } = room.packet;
    let psn = *psn;
    let reads = *reads;
    let fields = PacketFields { to: qp, to_lid, pkey, mtu, psn, reads, at: to.at, rkey: to.rkey };
    let message = Message::new("write", fields.emit()).be(4, "receiver", Meaning::Fixed);
    // A path may have no port. Any other port isn't this one.
    let ports = Meaning::OneOf(vec![0, to_lid.into()]);
    // The highest bit of a partition key is that of a full member.
    let keys = Meaning::OneOf(vec![u64::from(pkey) | 0x8000, u64::from(pkey) & 0x7fff]);
    let message = message.be(2, "port", ports).be(2, "partition", keys);
    let message = message.be(2, "MTU", Meaning::Within(MOVED.into()..=u16::MAX.into()));
    let message = message.be(4, "sequence number", Meaning::Fixed);
    let message = message.be(1, "reads", Meaning::Within(0..=4));
    // A WRITE beside the place that is looked at is not seen.
    let message = message.be(8, "address", Meaning::Open).be(4, "key", Meaning::Fixed);
    let situations = [ReceiverSituation::Ready, ReceiverSituation::Reset];
    let origins = [Origin::Peer, Origin::Sibling, Origin::Nobody];
    try_all::<PacketRoom>(&situations, &origins, &[message]);
}

/// A program that changes a shared receive queue.
struct CommandRoom {
    program: Program,
    srq: TestSrq,
}

impl CommandRoom {
    fn limit(&mut self, handle: u32) -> u32 {
        let request = abi::QueryQp { response: 0, qp_handle: handle, attr_mask: 0 };
        let number = write_command::QUERY_SRQ;
        let answer = self.program.write_command(number, request.as_bytes(), 16).unwrap();
        SrqAttributes::read_from_bytes(&answer).unwrap().srq_limit
    }
}

impl Room for CommandRoom {
    type Situation = ();
    type Sender = ();

    fn enter((): ()) -> Self {
        let ([_, program], _, _, srq, _) = with_tags();
        CommandRoom { program, srq }
    }

    fn takes((): (), (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        self.program.write_command(write_command::MODIFY_SRQ, bytes, 8).is_ok()
    }

    fn state(&self) -> String {
        format!("{:?}", self.program.function.adapter.srqs)
    }

    fn audit(mut self) {
        let srq = self.srq.handle;
        assert!(self.limit(srq) < 64);
    }
}

#[test]
fn no_change_of_a_shared_queue_goes_beyond_it() {
    let CommandRoom { srq, .. } = CommandRoom::enter(());
    let change = ModifySrq { srq_handle: srq.handle, attr_mask: 2, max_wr: 9, srq_limit: 5 };
    let message = Message::new("modify", change.as_bytes()).le(4, "handle", Meaning::Fixed);
    let message = message.le(4, "mask", Meaning::Open);
    let message = message.le(4, "receives", Meaning::Free);
    let message = message.le(4, "limit", Meaning::Within(0..=63));
    // Bytes behind the structure are of a later kernel.
    let message = message.or_of_length(change.as_bytes().len() + 1..=usize::MAX);
    try_all::<CommandRoom>(&[()], &[()], &[message]);
}

/// `ibv_create_srq(3)`: the limit is irrelevant there, and `mlx5_ib_create_srq` leaves it out.
#[test]
fn a_new_shared_queue_has_no_limit() {
    let mut room = CommandRoom::enter(());
    let pd = room.program.allocate_pd().unwrap();
    let at = room.program.allocate(64 * 32);
    let record = room.program.allocate(64);
    let uhw = abi::CreateSrq { buf_addr: at, db_addr: record, ..Default::default() };
    let given = [
        Given::Number(abi::srq::HANDLE, 0),
        Given::Number(abi::srq::PD, pd.into()),
        word(abi::srq::MAX_WR, 63),
        word(abi::srq::MAX_SGE, 1),
        word(abi::srq::LIMIT, 1000),
        Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
        Given::Out(abi::UHW_OUT, 8),
    ];
    let answers = room.program.command(abi::srq::CREATE, &given).unwrap();
    let handle = u32::from_ne_bytes(answers[0][..4].try_into().unwrap());
    assert_eq!(room.limit(handle), 0);
}
