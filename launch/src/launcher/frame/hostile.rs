//! Frames as a hostile agent, launcher or helper changes them.

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest, Room, try_all};

use super::*;

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameReader {
    Helper,
    Launcher,
}

struct LauncherFrameRoom {
    end: FrameReader,
}

/// The contents of a frame that was written: its kind, and what follows.
fn contents(mut written: &[u8]) -> Vec<u8> {
    read(&mut written).unwrap().unwrap()
}

impl Room for LauncherFrameRoom {
    type Situation = FrameReader;
    type Sender = ();

    fn enter(end: FrameReader) -> Self {
        LauncherFrameRoom { end }
    }

    /// The two directions have no kind in common.
    fn takes(end: FrameReader, (): (), message: &Message) -> Legality {
        let is_to_helper = message.bytes()[0] < 10;
        if is_to_helper == (end == FrameReader::Helper) {
            Legality::Legal
        } else {
            Legality::Illegal
        }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let again = |frame: &[u8]| match self.end {
            FrameReader::Helper => ToHelper::decode(frame).map(|frame| frame.encode()),
            FrameReader::Launcher => FromHelper::decode(frame).map(|frame| frame.encode()),
        };
        let Some(written) = again(bytes) else { return false };
        assert_eq!(again(&contents(&written)), Some(written));
        true
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

fn frame(name: &'static str, written: &[u8]) -> Message {
    let kinds = (1..=6).chain(11..=15).collect();
    Message::new(name, contents(written)).le(1, "kind", Meaning::OneOf(kinds))
}

fn member(message: Message) -> Message {
    message.le(4, "job", Meaning::Free).le(4, "rank", Meaning::Free)
}

/// A text of this length.
fn text(message: Message, length: usize) -> Message {
    message.le(4, "length", Meaning::Fixed).bytes_of(length, "text", &Meaning::Open)
}

fn start() -> Message {
    let part = MachinePart {
        job: 1,
        size: 9,
        first: 2,
        count: 3,
        command: ["program", "word"].map(OsString::from).into(),
        environment: vec![("NAME".into(), "value".into())],
        directory: "/tmp".into(),
        label: true,
        is_remote: true,
    };
    let message = frame("start", &ToHelper::Start(part).encode()).le(4, "job", Meaning::Free);
    let message = message.le(4, "size", Meaning::Within(5..=u32::MAX.into()));
    let message = message.le(4, "first", Meaning::Within(0..=6));
    let message = message.le(4, "count", Meaning::Within(0..=7)).le(4, "label", Meaning::Free);
    // The last two words of four are as good as a variable.
    let message = text(message, 4).le(4, "words", Meaning::OneOf(vec![2, 4]));
    let message = text(text(message, "program".len()), "word".len());
    let without = message.described_bytes();
    let message = text(text(message, "NAME".len()), "value".len());
    message.or_of_length(without..=without).rest(pairs())
}

/// Further pairs of empty texts.
fn pairs() -> Rest {
    Rest { unit: 8, count: 0..=usize::MAX, legality: Legality::Open }
}

#[test]
fn no_frame_is_taken_for_another() {
    let of = Member { job: 1, rank: 3 };
    let all = || Rest { unit: 1, count: 0..=usize::MAX, legality: Legality::Legal };
    let values = ToHelper::Values(1, "name".into(), vec![("key".into(), "value".into())]);
    let values = text(frame("values", &values.encode()).le(4, "job", Meaning::Free), 4);
    let without = values.described_bytes();
    let values = text(text(values, "key".len()), "value".len());
    let values = values.or_of_length(without..=without).rest(pairs());
    let started = frame("started", &FromHelper::Started(7, Some("why".into())).encode());
    let started = started.le(4, "job", Meaning::Free).le(4, "is refused", Meaning::Open);
    let printed = frame("printed", &ToHelper::Printed(70_000).encode());
    let ended = member(frame("ended", &FromHelper::Ended(of, -9).encode()));
    let signal = member(frame("signal", &ToHelper::Signal(of, 15).encode()));
    let messages = [
        start(),
        member(frame("reply", &ToHelper::Reply(of, b"line".to_vec()).encode())).rest(all()),
        signal.le(4, "signal", Meaning::Free),
        printed.le(4, "count", Meaning::Free),
        frame("finish", &ToHelper::Finish.encode()),
        values,
        started.rest(all()),
        member(frame("request", &FromHelper::Request(of, b"cmd".to_vec()).encode())).rest(all()),
        frame("output", &FromHelper::Output(b"text".to_vec()).encode()).rest(all()),
        ended.le(4, "status", Meaning::Free),
    ];
    try_all::<LauncherFrameRoom>(&[FrameReader::Helper, FrameReader::Launcher], &[()], &messages);
}
