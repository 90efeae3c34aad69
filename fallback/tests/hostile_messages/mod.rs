//! The descriptions of all messages between two engines.

#![allow(unreachable_pub, reason = "a part of one test")]

use tagmatch_device::RemoteSpan;
use tagmatch_fallback::wire::{AppCtx, Control, Fragment, Opcode, Rendezvous, RmaHeader, Tmh};
use tagmatch_fallback::{AtomicOp, AtomicType, ElementUse, RemoteFault};
use tagmatch_soft::Tag;
use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest};

/// The tag of the receive that is posted.
pub const MATCHED: u64 = 5;
/// The length of a message in fragments, and how much of it has come, in bytes.
pub const FRAGMENTED: usize = 100;
pub const FRAGMENTED_FIRST: usize = 30;
/// The length of a put in pieces, and how much of it has come, in bytes.
pub const PUT: usize = 60;
pub const PUT_FIRST: usize = 20;
/// The length of a get that is under way, in bytes.
pub const GET: usize = 100;
/// The most elements of 8 bytes that one atomic operation fetches.
const FETCHED_MAX: usize = 128;

/// The numbers that messages name.
pub struct Names {
    /// The operation of the receiver that a FIN or an abort ends.
    pub sent: AppCtx,
    /// The operation of a rendezvous request whose companion is to come.
    pub announced: AppCtx,
    /// The receiver's region.
    pub key: u64,
    /// The longest eager message for which a peer has credit, in bytes.
    pub eager_max: usize,
}

fn rest(count: std::ops::RangeInclusive<usize>) -> Rest {
    Rest { unit: 1, count, legality: Legality::Legal }
}

/// A message, described from its opcode to its flags.
fn headed(name: &'static str, bytes: Vec<u8>, flags: Meaning) -> Message {
    let message = Message::new(name, bytes).be(1, "opcode", Meaning::OneOf(vec![0, 1, 2, 3]));
    let kinds = Meaning::OneOf((1..=12).collect());
    message.be(1, "version", Meaning::Fixed).be(1, "kind", kinds).be(1, "flags", flags)
}

/// A message with a tag-matching header, described up to the reserved bytes.
fn tagged(name: &'static str, bytes: Vec<u8>) -> Message {
    let message = Message::new(name, bytes).be(1, "opcode", Meaning::OneOf(vec![0, 1, 2, 3]));
    message.be(3, "reserved", Meaning::Free)
}

/// An operation, whose flags the receiver of a FIN and of controls leaves alone.
fn operation(message: Message) -> Message {
    let message = message.be(1, "flags and generation", Meaning::Open);
    message.be(3, "generation and index", Meaning::Fixed)
}

pub fn tmh(opcode: Opcode, app_ctx: AppCtx, tag: u64) -> Vec<u8> {
    Tmh { opcode, app_ctx, tag: Tag(tag) }.emit().to_vec()
}

fn eager(name: &'static str, tag: u64, app_ctx: AppCtx, eager_max: usize) -> Message {
    let bytes = [&tmh(Opcode::Eager, app_ctx, tag)[..], b"payload"].concat();
    // Bits 5 and 6 of the flags are those of a rendezvous.
    let plain = (0..=0xff).filter(|byte| byte & 0x60 == 0).collect();
    let message = tagged(name, bytes).be(1, "flags", Meaning::OneOf(plain));
    let message = message.be(3, "operation", Meaning::Free).be(8, "tag", Meaning::Free);
    message.rest(rest(0..=eager_max))
}

pub fn request(operation: AppCtx, tag: u64, length: u64, immediate: Option<u32>) -> Vec<u8> {
    let span = RemoteSpan { address: 1 << 40, key: 3, length };
    Rendezvous::new(operation, Tag(tag), span, immediate).emit().to_vec()
}

/// The lengths and the flags of a request depend on each other, so none of them may change alone.
fn rendezvous(name: &'static str, bytes: Vec<u8>) -> Message {
    let flags = u64::from(bytes[4] & 0xe0);
    let is_short = bytes.len() == 32;
    let is_long = bytes[28..32] == [0xff; 4];
    let message = tagged(name, bytes).be(1, "flags", Meaning::Within(flags..=flags | 0x1f));
    let message = message.be(3, "operation", Meaning::Free).be(8, "tag", Meaning::Free);
    let message = message.be(8, "address", Meaning::Free).be(4, "key", Meaning::Free);
    if is_short {
        return message.be(4, "length", Meaning::Within(0..=u64::from(u32::MAX) - 1));
    }
    let message = message.be(4, "length", Meaning::Fixed).be(1, "version", Meaning::Fixed);
    // A long request has a companion in any case.
    let more = if is_long { Meaning::Within(0..=1) } else { Meaning::Fixed };
    let message = message.be(1, "more flags", more).be(2, "reserved", Meaning::Free);
    let message = message.be(4, "immediate", Meaning::Free);
    let real = if is_long { Meaning::Within(u32::MAX.into()..=u64::MAX) } else { Meaning::Fixed };
    message.be(8, "real length", real).or_of_length(32..=32)
}

fn controls(names: &Names) -> Vec<Message> {
    let control = |name, control: Control, flags| headed(name, control.emit().to_vec(), flags);
    let Names { sent, announced, .. } = *names;
    let credit = Control::Credit { messages: 5, bytes: 4096 };
    let credit = control("credit", credit, Meaning::Free).be(4, "messages", Meaning::Free);
    let abort = Control::Abort { app_ctx: sent, errno: 14 };
    let abort = operation(control("abort", abort, Meaning::Free)).be(4, "errno", Meaning::Free);
    let companion = Control::Companion { app_ctx: announced, immediate: None, has_length: false };
    let companion = operation(control("companion", companion, Meaning::Within(0..=3)));
    let companion = companion.be(4, "immediate", Meaning::Free);
    let length = Control::Length { app_ctx: announced, length: 1 << 40 };
    vec![
        credit.be(8, "bytes", Meaning::Free),
        abort.be(4, "reserved", Meaning::Free),
        companion.be(4, "reserved", Meaning::Free),
        operation(control("length", length, Meaning::Free)).be(8, "length", Meaning::Free),
    ]
}

fn fragments(eager_max: usize) -> [Message; 2] {
    let fragment = |name, header: Fragment| {
        let bytes = [&header.emit()[..], b"payload"].concat();
        headed(name, bytes, Meaning::Fixed).be(4, "zeros", Meaning::Fixed)
    };
    let first = Fragment::First { tag: Tag(9), length: FRAGMENTED as u64 };
    let first = fragment("first fragment", first).be(8, "tag", Meaning::Free);
    let lengths = Meaning::Within(7..=eager_max as u64);
    let next = Fragment::Next { offset: FRAGMENTED_FIRST as u64 };
    let next = fragment("next fragment", next).be(8, "offset", Meaning::Fixed);
    [
        first.be(8, "length", lengths).rest(rest(1..=FRAGMENTED)),
        next.be(8, "more zeros", Meaning::Fixed).rest(rest(1..=FRAGMENTED - FRAGMENTED_FIRST)),
    ]
}

/// A message of a one-sided operation: its header, and bytes behind it.
fn one_sided(name: &'static str, header: RmaHeader, behind: usize, flags: Meaning) -> Message {
    let bytes = [&header.emit()[..header.byte_len()], &vec![7; behind]].concat();
    headed(name, bytes, flags)
}

/// Where an operation's bytes are. What lies outside of the region is the operation's error alone.
fn place(message: Message, reserved: usize) -> Message {
    let message = message.be(reserved, "zeros", Meaning::Fixed);
    message.be(8, "key", Meaning::Open).be(8, "offset", Meaning::Open)
}

fn puts(key: u64) -> [Message; 4] {
    const BEHIND: usize = 8;
    let put = |name, left: u64, notice: Option<u64>, behind| {
        let header = RmaHeader::Put { key, offset: 0, left, notice };
        // Without the flag the notice is payload, and the other way round.
        place(one_sided(name, header, behind, Meaning::OneOf(vec![0, 1])), 4)
    };
    let left = Meaning::Within(0..=u64::MAX - BEHIND as u64);
    let plain = put("put", 0, None, BEHIND).be(8, "left", left.clone());
    let told = put("put with a notice", 0, Some(5), BEHIND).be(8, "left", left);
    let begun = put("first piece", (PUT - BEHIND) as u64, None, BEHIND);
    let begun = begun.be(8, "left", Meaning::Within(0..=u64::MAX - BEHIND as u64));
    let last = put("last piece", 0, None, PUT - PUT_FIRST).be(8, "left", Meaning::Fixed);
    let all = || rest(0..=usize::MAX);
    [
        plain.rest(all()),
        told.be(8, "notice", Meaning::Free).rest(all()),
        begun.rest(rest(1..=usize::MAX)),
        last.rest(rest(PUT - PUT_FIRST..=PUT - PUT_FIRST)),
    ]
}

fn atomics(key: u64) -> [Message; 2] {
    let atomic = |name, fetches| {
        let element = ElementUse::new(AtomicOp::BitXor, AtomicType::U64).unwrap();
        let header = RmaHeader::Atomic { element, key, offset: 0, count: 2, fetches };
        let message = one_sided(name, header, 16, Meaning::Within(0..=1));
        let message = message.be(1, "operation", Meaning::OneOf((1..=19).collect()));
        let message = message.be(1, "type", Meaning::OneOf((1..=14).collect()));
        place(message, 2).be(8, "count", Meaning::Counts(8))
    };
    let elements = |most| Rest { unit: 8, count: 0..=most, legality: Legality::Legal };
    [
        atomic("atomic", false).rest(elements(usize::MAX)),
        atomic("fetching", true).rest(elements(FETCHED_MAX)),
    ]
}

fn answers() -> [Message; 3] {
    let done = |name, count, fault| {
        let reasons = if count == 0 { Meaning::Within(1..=4) } else { Meaning::Fixed };
        let message = one_sided(name, RmaHeader::Done { count, fault }, 0, reasons);
        message.be(4, "count", Meaning::Fixed).be(8, "zeros", Meaning::Fixed)
    };
    let data = one_sided("data", RmaHeader::Data, 7, Meaning::Fixed);
    let data = data.be(4, "zeros", Meaning::Fixed).be(8, "more zeros", Meaning::Fixed);
    [data.rest(rest(1..=GET)), done("done", 1, None), done("failed", 0, Some(RemoteFault::NoRight))]
}

pub fn all(names: &Names) -> Vec<Message> {
    let fin = operation(tagged("fin", tmh(Opcode::Fin, names.sent, 0)));
    let other = AppCtx::new(77, 3);
    let get = RmaHeader::Get { key: names.key, offset: 8, length: 16 };
    let get = place(one_sided("get", get, 0, Meaning::Fixed), 4);
    let long = |length| rendezvous("request", request(other, 9, length, None));
    let mut all = vec![
        eager("eager", 9, AppCtx::default(), names.eager_max),
        eager("matched", MATCHED, AppCtx::default(), names.eager_max),
        eager("acknowledged", MATCHED, other.with_ack(), names.eager_max),
        rendezvous("request", request(other, 9, 50, None)),
        rendezvous("request", request(other, MATCHED, u32::MAX.into(), None)),
        rendezvous("request", request(other, 9, 50, Some(7))),
        rendezvous("request", request(other, 9, 50, None)[..32].to_vec()),
        long(0),
        long(u64::from(u32::MAX) - 1),
        long(u64::MAX),
        fin.be(8, "tag", Meaning::Free).rest(rest(0..=16)),
        get.be(8, "length", Meaning::Open),
    ];
    all.extend(controls(names));
    all.extend(fragments(names.eager_max));
    all.extend(puts(names.key));
    all.extend(atomics(names.key));
    all.extend(answers());
    all
}
