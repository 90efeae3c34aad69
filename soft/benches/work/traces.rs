//! The recorded applications, and the rule by which their operations meet.

use super::plain::PlainList;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use tagmatch_soft::{Pattern, PostedList, SourceId, Tag, TagLayout, UnexpectedList};

#[derive(Clone, Copy)]
pub(crate) enum Op {
    Receive(Pattern),
    Message(Tag),
}

pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) ops: Vec<Op>,
}

/// All traces of the repository.
pub(crate) fn load() -> Vec<Trace> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/traces");
    let mut traces: Vec<Trace> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.expect("readable").path())
        .map(|path| Trace {
            name: path.file_stem().expect("a file").to_string_lossy().into_owned(),
            ops: parse(&fs::read_to_string(&path).expect("readable")),
        })
        .collect();
    traces.sort_by(|a, b| a.name.cmp(&b.name));
    traces
}

fn parse(text: &str) -> Vec<Op> {
    let layout = TagLayout::MPI;
    let op = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let field = |at: usize| match fields[at] {
            "*" => None,
            number => Some(number.parse::<u64>().expect("a number")),
        };
        let context = field(2).expect("a context");
        match fields[0] {
            "recv" => Op::Receive(layout.pattern(context, field(3), field(4)).expect("in range")),
            "msg" => {
                let (source, tag) = (field(3).expect("a source"), field(4).expect("a tag"));
                Op::Message(layout.pack(context, source, tag).expect("in range"))
            }
            other => panic!("{other}: the benches know recv and msg"),
        }
    };
    text.lines().skip(1).map(op).collect()
}

/// A posted and an unexpected list.
pub(crate) trait Lists {
    fn post(&mut self, pattern: &Pattern, value: u32);
    fn take_posted(&mut self, tag: Tag) -> Option<u32>;
    fn push(&mut self, tag: Tag, value: u32);
    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<u32>;
}

/// The source is in the tag.
const SOURCE: SourceId = SourceId(0);

impl Lists for (PostedList<u32>, UnexpectedList<u32>) {
    #[inline]
    fn post(&mut self, pattern: &Pattern, value: u32) {
        self.0.post(*pattern, value);
    }

    #[inline]
    fn take_posted(&mut self, tag: Tag) -> Option<u32> {
        self.0.take_match(tag, SOURCE)
    }

    #[inline]
    fn push(&mut self, tag: Tag, value: u32) {
        self.1.push(tag, SOURCE, value);
    }

    #[inline]
    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<u32> {
        self.1.take(pattern)
    }
}

impl Lists for (PlainList, PlainList) {
    #[inline]
    fn post(&mut self, pattern: &Pattern, value: u32) {
        self.0.post(pattern, value);
    }

    #[inline]
    fn take_posted(&mut self, tag: Tag) -> Option<u32> {
        self.0.take_match(tag, SOURCE)
    }

    #[inline]
    fn push(&mut self, tag: Tag, value: u32) {
        self.1.push(tag, SOURCE, value);
    }

    #[inline]
    fn take_unexpected(&mut self, pattern: &Pattern) -> Option<u32> {
        self.1.take(pattern)
    }
}

/// Runs a trace through the lists; how many operations found their partner waiting.
pub(crate) fn replay(ops: &[Op], lists: &mut impl Lists) -> u32 {
    let mut matched = 0;
    for (value, op) in (0u32..).zip(ops) {
        let found = match op {
            Op::Receive(pattern) => {
                let found = lists.take_unexpected(pattern);
                if found.is_none() {
                    lists.post(pattern, value);
                }
                found
            }
            Op::Message(tag) => {
                let found = lists.take_posted(*tag);
                if found.is_none() {
                    lists.push(*tag, value);
                }
                found
            }
        };
        matched += u32::from(black_box(found).is_some());
    }
    matched
}
