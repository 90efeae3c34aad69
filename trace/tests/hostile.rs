//! Traces that no recorder has written: each field at its limits and beyond them, records at the
//! wrong time, twice, and cut off. What is read is replayed by two kinds of lists.

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};
use tagmatch_trace::{Trace, check};

/// The number that all records name, and the slot of their shape.
const NUMBER: u32 = 5;
const SLOT: u8 = 3;
/// The bytes of the header, and those of a block.
const HEADER_BYTES: usize = 4096;
const BLOCK_BYTES: usize = 8 * 4096;
/// Flags of a record.
const SOURCE: u8 = 1;
const SOLE: u8 = 2;
const MASKED: u8 = 4;
const FOUND: u8 = 8;
const NIC: u8 = 16;
/// Kinds of records.
const POSTED: u8 = 1;
const FOUND_RECEIVE: u8 = 2;
const MATCHED: u8 = 3;
const UNEXPECTED: u8 = 4;
const TAKEN: u8 = 5;
const LANDED: u8 = 6;
const WITHDRAWN: u8 = 7;
const CANCELLED_LATE: u8 = 8;
const PROBED: u8 = 9;
const HELD: u8 = 10;
const RECEIVED: u8 = 11;
const DISCARDED: u8 = 12;
const LOST: u8 = 13;
const SHAPE: u8 = 14;
const REPEATED: u8 = 15;
const BLOCK: u8 = 16;
const STOPPED: u8 = 17;
const SOURCE_BITS: u8 = 18;

fn first(kind: u8, flags: u8, slot: u8, number: u32) -> Vec<u8> {
    [&[kind, flags, slot, 0][..], &number.to_le_bytes()].concat()
}

/// A record, with further words.
fn record(kind: u8, flags: u8, words: &[u64]) -> Vec<u8> {
    let has_slot = [POSTED, FOUND_RECEIVE, MATCHED, UNEXPECTED, PROBED, HELD, SHAPE];
    let slot = if has_slot.contains(&kind) { SLOT } else { 0 };
    let has_number = match kind {
        PROBED | HELD => flags & FOUND != 0,
        REPEATED | BLOCK | STOPPED | SOURCE_BITS => false,
        _ => true,
    };
    let first = first(kind, flags, slot, if has_number { NUMBER } else { 0 });
    words.iter().fold(first, |record, word| [&record[..], &word.to_le_bytes()].concat())
}

/// A file with these numbers of blocks, the window's first, and records in the window.
fn file(numbers: &[u64], records: &[u8]) -> Vec<u8> {
    let mut file = b"tagtrace 2\nhostile\n".to_vec();
    file.resize(HEADER_BYTES, 0);
    for (at, number) in numbers.iter().enumerate() {
        file.extend([u64::from(BLOCK), *number].into_iter().flat_map(u64::to_le_bytes));
        file.extend_from_slice(if at == 0 { records } else { &[] });
        file.resize(HEADER_BYTES + (at + 1) * BLOCK_BYTES, 0);
    }
    file
}

/// Whether a trace is read. A trace that is read can be replayed.
fn is_read(trace: &[u8]) -> bool {
    match Trace::parse(trace) {
        Ok(trace) => {
            check(&trace);
            true
        }
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error}");
            false
        }
    }
}

/// What the records before have made of the receive, or of the message, with the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Posted,
    Taken,
    Matched,
    Withdrawn,
    Listed,
    Held,
    IdleProbe,
    Stopped,
}

struct RecordRoom {
    records: Vec<u8>,
}

impl Room for RecordRoom {
    type Situation = Before;
    type Sender = ();

    fn enter(before: Before) -> Self {
        let listed = record(UNEXPECTED, 0, &[]);
        let posted = record(POSTED, 0, &[]);
        let behind = match before {
            Before::Nothing => vec![],
            Before::Posted => posted,
            Before::Taken => [posted, record(TAKEN, NIC, &[])].concat(),
            Before::Matched => [posted, record(MATCHED, 0, &[])].concat(),
            Before::Withdrawn => [posted, record(WITHDRAWN, 0, &[])].concat(),
            Before::Listed => listed,
            Before::Held => [listed, record(HELD, FOUND, &[])].concat(),
            Before::IdleProbe => record(PROBED, 0, &[]),
            Before::Stopped => record(STOPPED, 0, &[1]),
        };
        let shape = [first(SHAPE, SOURCE, SLOT, 1), vec![0; 16]].concat();
        RecordRoom { records: [shape, behind].concat() }
    }

    fn takes(before: Before, (): (), message: &Message) -> Legality {
        use Before::{Held, IdleProbe, Listed, Matched, Posted, Stopped, Taken};
        let is_legal = match message.name() {
            _ if before == Stopped => false,
            "posted" => !matches!(before, Posted | Taken),
            "unexpected" => !matches!(before, Listed | Held),
            "matched" | "taken" | "withdrawn" => matches!(before, Posted | Taken),
            "cancelled late" => matches!(before, Posted | Taken | Matched),
            "landed" => before == Matched,
            "found" | "probed one" | "held one" | "lost" => before == Listed,
            "received" | "discarded" => before == Held,
            "repeated" => before == IdleProbe,
            "block" => false,
            _ => true,
        };
        if is_legal { Legality::Legal } else { Legality::Illegal }
    }

    /// Without its first word, a record is one that a killed process has half written.
    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let is_whole = bytes.first_chunk::<8>().is_some_and(|word| *word != [0; 8]);
        let records = [&self.records[..], bytes].concat();
        let is_taken = is_read(&file(&[0], &records)) && is_whole;
        if is_taken {
            self.records = records;
            self.records.resize(self.records.len().next_multiple_of(8), 0);
        }
        is_taken
    }

    fn state(&self) -> String {
        format!("{:?}", self.records)
    }

    fn audit(self) {}
}

/// A record whose other kinds are open, and which only its good flags, slot and number make right.
fn described(name: &'static str, bytes: Vec<u8>, flags: Meaning) -> Message {
    let message = Message::new(name, bytes).le(1, "kind", Meaning::OneOf((1..=18).collect()));
    let message = message.le(1, "flags", flags).le(1, "slot", Meaning::Fixed);
    // What is cut off are zeros, and what comes behind is the next record.
    message.le(1, "zeros", Meaning::Fixed).or_of_length(8..=usize::MAX)
}

fn records() -> Vec<Message> {
    let numbered = |name, kind, flags: u8, legal: &[u64]| {
        let flags_legal = Meaning::OneOf(legal.to_vec());
        described(name, record(kind, flags, &[]), flags_legal).le(4, "number", Meaning::Fixed)
    };
    let new = |name, kind| {
        described(name, record(kind, 0, &[]), Meaning::Fixed).le(4, "number", Meaning::Free)
    };
    let with_word = |name, kind, word, meaning| {
        let message = described(name, record(kind, 0, &[word]), Meaning::Fixed);
        message.le(4, "number", Meaning::Fixed).le(8, "word", meaning)
    };
    let nic = [0, u64::from(NIC)];
    let found = [0, u64::from(FOUND)];
    let mask = SOURCE | SOLE | MASKED;
    let shape = [first(SHAPE, mask, SLOT, 1), vec![0; 24]].concat();
    let shape = Message::new("shape", shape).le(1, "kind", Meaning::OneOf((1..=18).collect()));
    let shape = shape.le(1, "flags", Meaning::OneOf((0..8).collect()));
    let shape = shape.le(1, "slot", Meaning::Free).le(1, "zeros", Meaning::Fixed);
    let shape = shape.le(4, "source", Meaning::Free).le(8, "tag", Meaning::Free);
    let shape =
        shape.le(8, "length", Meaning::Free).le(8, "mask", Meaning::Within(0..=u64::MAX - 1));
    vec![
        new("posted", POSTED),
        new("unexpected", UNEXPECTED),
        numbered("found", FOUND_RECEIVE, 0, &[]),
        numbered("matched", MATCHED, 0, &nic),
        numbered("taken", TAKEN, NIC, &nic),
        numbered("withdrawn", WITHDRAWN, 0, &[]),
        numbered("cancelled late", CANCELLED_LATE, 0, &[]),
        numbered("probed", PROBED, 0, &found),
        numbered("held", HELD, 0, &found),
        numbered("probed one", PROBED, FOUND, &found),
        numbered("held one", HELD, FOUND, &found),
        numbered("discarded", DISCARDED, 0, &[]),
        numbered("lost", LOST, 0, &[]),
        with_word("landed", LANDED, 9, Meaning::Free),
        with_word("received", RECEIVED, 9, Meaning::Free),
        with_word("repeated", REPEATED, 9, Meaning::Free),
        with_word("block", BLOCK, 1, Meaning::Free),
        with_word("stopped", STOPPED, 1, Meaning::Within(1..=2)),
        // Which bits are side by side is open here.
        with_word("source bits", SOURCE_BITS, 0xff00, Meaning::Open),
        shape.or_of_length(8..=usize::MAX),
    ]
}

#[test]
fn no_record_is_taken_at_the_wrong_time() {
    use Before::{Held, IdleProbe, Listed, Matched, Nothing, Posted, Stopped, Taken, Withdrawn};
    let situations = [Nothing, Posted, Taken, Matched, Withdrawn, Listed, Held, IdleProbe, Stopped];
    try_all::<RecordRoom>(&situations, &[()], &records());
}

/// The numbers of the window and of two blocks behind it.
struct BlockRoom;

impl Room for BlockRoom {
    type Situation = ();
    type Sender = ();

    fn enter((): ()) -> Self {
        BlockRoom
    }

    fn takes((): (), (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let (numbers, []) = bytes.as_chunks() else { return false };
        let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
        !numbers.is_empty() && is_read(&file(&numbers, &[]))
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

#[test]
fn blocks_are_taken_in_their_order_alone() {
    let numbers = [2, 0, 1u64].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    // The window may still hold the block that was appended last.
    let message = Message::new("blocks", numbers).le(8, "window", Meaning::Within(1..=2));
    let message = message.le(8, "first", Meaning::Fixed).le(8, "second", Meaning::Fixed);
    // Other numbers of blocks go with another number of the window.
    try_all::<BlockRoom>(&[()], &[()], &[message.or_of_length(16..=usize::MAX)]);
}

/// What the lines before have made of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdUse {
    Unknown,
    Message,
    Receive,
    Probe,
    SpentProbe,
}

/// A `tagtrace 1`, whose lines are described as an operation, a count of words, and numbers.
struct LineRoom {
    text: String,
}

const OPERATIONS: [&str; 7] = ["msg", "recv", "cancel", "probe", "mprobe", "mrecv", "mcancel"];
const HEAD_BYTES: usize = 2;

fn line(bytes: &[u8]) -> Option<String> {
    let (head, words) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (numbers, []) = words.as_chunks::<8>() else { return None };
    let operation = OPERATIONS.get(usize::from(head[0]))?;
    let numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
    let mut line = (*operation).to_owned();
    for number in numbers.chain(std::iter::repeat(0)).take(head[1].into()) {
        line += &format!(" {number}");
    }
    Some(line + "\n")
}

impl Room for LineRoom {
    type Situation = IdUse;
    type Sender = ();

    fn enter(id: IdUse) -> Self {
        let before = match id {
            IdUse::Unknown => "",
            IdUse::Message => "msg 7 0 0 0 0\n",
            IdUse::Receive => "recv 7 0 * * 0\n",
            IdUse::Probe => "mprobe 7 0 * *\n",
            IdUse::SpentProbe => "mprobe 7 0 * *\nmcancel 7\n",
        };
        LineRoom { text: format!("tagtrace 1\n{before}") }
    }

    fn takes(id: IdUse, (): (), message: &Message) -> Legality {
        let is_legal = match message.name() {
            "msg" | "recv" | "mprobe" => id == IdUse::Unknown,
            "cancel" => id == IdUse::Receive,
            "mrecv" | "mcancel" => id == IdUse::Probe,
            _ => true,
        };
        if is_legal { Legality::Legal } else { Legality::Illegal }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Some(line) = line(bytes) else { return false };
        let text = format!("{}{line}", self.text);
        let is_taken = is_read(text.as_bytes());
        if is_taken {
            self.text = text;
        }
        is_taken
    }

    fn state(&self) -> String {
        self.text.clone()
    }

    fn audit(self) {}
}

fn lines() -> Vec<Message> {
    let new = || ("id", Meaning::Free);
    let known = || ("id", Meaning::Fixed);
    let length = || ("length", Meaning::Free);
    let place = || {
        let label_max = (1 << 24) - 1;
        [
            ("context", Meaning::Within(0..=u16::MAX.into())),
            ("source", Meaning::Within(0..=label_max)),
            ("tag", Meaning::Within(0..=label_max)),
        ]
    };
    let all = |before: Vec<(&'static str, Meaning)>, behind: Vec<(&'static str, Meaning)>| {
        before.into_iter().chain(place()).chain(behind).collect::<Vec<_>>()
    };
    let fields = [
        all(vec![new()], vec![length()]),
        all(vec![new()], vec![length()]),
        vec![known()],
        all(vec![], vec![]),
        all(vec![new()], vec![]),
        vec![known(), length()],
        vec![known()],
    ];
    let described = |(operation, fields): (usize, Vec<(&'static str, Meaning)>)| {
        let words = u8::try_from(fields.len()).unwrap();
        let head = vec![u8::try_from(operation).unwrap(), words];
        let numbers = fields.iter().flat_map(|_| 7u64.to_le_bytes());
        let bytes: Vec<u8> = head.into_iter().chain(numbers).collect();
        let others = (0..OPERATIONS.len() as u64).collect();
        let message = Message::new(OPERATIONS[operation], bytes);
        let message = message.le(1, "operation", Meaning::OneOf(others));
        let message = message.le(1, "words", Meaning::Fixed);
        // The count of words says how many of the numbers are in the line.
        let message = message.or_of_length(HEAD_BYTES..=usize::MAX);
        fields.into_iter().fold(message, |message, (name, meaning)| message.le(8, name, meaning))
    };
    fields.into_iter().enumerate().map(described).collect()
}

#[test]
fn no_line_is_taken_with_a_number_beyond_its_limit_or_an_id_of_another_kind() {
    use IdUse::{Message, Probe, Receive, SpentProbe, Unknown};
    let situations = [Unknown, Message, Receive, Probe, SpentProbe];
    try_all::<LineRoom>(&situations, &[()], &lines());
}
