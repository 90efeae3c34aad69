//! Traces of the format `tagtrace 1`: the record that a replay must write, and random traces.
//!
//! The reader here is not that of `tagmatch-trace`, and so can find its mistakes. It understands
//! well-formed traces only.

use std::collections::{HashMap, HashSet};

use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use crate::oracle::PlainMatching;
use crate::random::Random;

/// Context id, source and tag are all in the tag, so every message has the same source beside it.
const SOURCE: SourceId = SourceId(0);

#[derive(Clone, Copy)]
struct Recv<'a> {
    id: &'a str,
    len: u64,
}

#[derive(Clone, Copy)]
struct Msg<'a> {
    id: &'a str,
    len: u64,
}

/// The pattern for context id, source and tag, of which the last two may be `*`.
fn pattern([ctx, src, tag]: [&str; 3]) -> Pattern {
    let field = |text: &str, shift: u32, bits: u32| match text {
        "*" => (0, 0),
        number => (number.parse::<u64>().unwrap() << shift, ((1 << bits) - 1) << shift),
    };
    let fields = [field(ctx, 48, 16), field(src, 24, 24), field(tag, 0, 24)];
    let (tag, mask) = fields.iter().fold((0, 0), |all, one| (all.0 | one.0, all.1 | one.1));
    Pattern::new(Tag(tag), TagMask(mask))
}

/// Ends the line of a message that is received into a buffer of `room` bytes.
fn suffix(msg: Msg<'_>, room: u64) -> &'static str {
    if msg.len > room { " truncated" } else { "" }
}

/// The record of a well-formed trace, as `tagperf replay --matches` must write it.
///
/// # Panics
///
/// If the trace is not well-formed.
#[must_use]
pub fn matches(trace: &str) -> String {
    let mut out = Vec::new();
    let mut lists = PlainMatching::<Recv<'_>, Msg<'_>>::default();
    let mut held: HashMap<&str, Option<Msg<'_>>> = HashMap::new();
    let name = |found: Option<Msg<'_>>| found.map_or("none".to_owned(), |msg| msg.id.to_owned());
    for line in trace.lines().skip(1) {
        let line = line.split('#').next().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["msg", id, ctx, src, tag, len] => {
                let msg = Msg { id, len: len.parse().unwrap() };
                if let Some(recv) = lists.arrive(pattern([ctx, src, tag]).tag(), SOURCE, msg) {
                    out.push(format!("match {} {id}{}", recv.id, suffix(msg, recv.len)));
                }
            }
            ["recv", id, ctx, src, tag, len] => {
                let recv = Recv { id, len: len.parse().unwrap() };
                if let Some(msg) = lists.receive(pattern([ctx, src, tag]), recv) {
                    out.push(format!("match {id} {}{}", msg.id, suffix(msg, recv.len)));
                }
            }
            ["cancel", id] => out.push(match lists.posted.take(|_, recv| recv.id == id) {
                Some(_) => format!("cancelled {id}"),
                None => format!("late {id}"),
            }),
            ["probe", ctx, src, tag] => {
                let found = lists.unexpected.find(&pattern([ctx, src, tag]));
                out.push(format!("probe {}", name(found.copied())));
            }
            ["mprobe", id, ctx, src, tag] => {
                let found = lists.unexpected.take(&pattern([ctx, src, tag]));
                out.push(format!("mprobe {id} {}", name(found)));
                held.insert(id, found);
            }
            ["mrecv", id, len] => {
                let found = held.remove(id).unwrap();
                let end = found.map_or("", |msg| suffix(msg, len.parse().unwrap()));
                out.push(format!("mrecv {id} {}{end}", name(found)));
            }
            ["mcancel", id] => {
                out.push(format!("mcancelled {id} {}", name(held.remove(id).unwrap())));
            }
            _ => panic!("not understood: {line}"),
        }
    }
    out.extend(lists.posted.receives().iter().map(|(_, recv)| format!("posted {}", recv.id)));
    let unexpected = lists.unexpected.messages();
    out.extend(unexpected.iter().map(|(.., msg)| format!("unexpected {}", msg.id)));
    out.iter().map(|line| format!("{line}\n")).collect()
}

/// Lengths for [`random_trace`] that meet the bounds of the format.
pub const LENS: [u64; 6] = [0, 1, 7, 8, 4096, u64::MAX];

/// A well-formed trace of about `ops` operations, with messages and receives of the lengths `lens`.
///
/// There are few different envelopes, so that much matches. Ids have no order. Some traces have
/// more messages and some more receives, so that lists get long. Some lines have odd blanks and
/// comments.
#[must_use]
pub fn random_trace(seed: u64, ops: u64, lens: &[u64]) -> String {
    let mut random = Random::new(seed);
    let labels = 1 + random.below(4);
    let wildcards = random.below(60);
    let messages = 20 + random.below(60);
    let end = if random.chance(1, 4) { "\r\n" } else { "\n" };
    let (mut recvs, mut probes): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut used = HashSet::new();
    let mut text = format!("tagtrace 1{end}");
    for _ in 0..ops {
        let mut id = || loop {
            let id = match random.below(3) {
                0 => random.below(ops * 4),
                1 => u64::MAX - random.below(ops * 4),
                _ => random.below(1 << 30) << 32,
            };
            if used.insert(id) {
                return id;
            }
        };
        let fresh = id();
        // A source or a tag. 2^24-1 is the greatest.
        let label = |random: &mut Random| match random.below(labels + 1) {
            0 if random.chance(1, 8) => "16777215".to_owned(),
            label => label.to_string(),
        };
        let or_any = |random: &mut Random| {
            if random.chance(wildcards, 100) { "*".to_owned() } else { label(random) }
        };
        let ctx = random.pick(&[0, 0, 0, 1, 65535]);
        let len = random.pick(lens);
        let line = match random.below(10) {
            0..=6 if random.chance(messages, 100) => {
                let src = label(&mut random);
                let tag = label(&mut random);
                format!("msg {fresh} {ctx} {src} {tag} {len}")
            }
            0..=6 => {
                recvs.push(fresh);
                let src = or_any(&mut random);
                let tag = or_any(&mut random);
                format!("recv {fresh} {ctx} {src} {tag} {len}")
            }
            7 if !recvs.is_empty() => {
                format!("cancel {}", random.pick(&recvs))
            }
            8 => {
                let src = or_any(&mut random);
                let tag = or_any(&mut random);
                format!("probe {ctx} {src} {tag}")
            }
            _ if random.chance(1, 2) && !probes.is_empty() => {
                let id = probes.swap_remove(random.index(probes.len()));
                match random.below(3) {
                    0 => format!("mcancel {id}"),
                    _ => format!("mrecv {id} {len}"),
                }
            }
            _ => {
                probes.push(fresh);
                let src = or_any(&mut random);
                let tag = or_any(&mut random);
                format!("mprobe {fresh} {ctx} {src} {tag}")
            }
        };
        match random.below(20) {
            0 => text += &format!("\t {}  # {line}{end}", line.replace(' ', "\t ")),
            1 => text += &format!(" \t{end}#{line}{end}{line}#{end}"),
            _ => text += &format!("{line}{end}"),
        }
    }
    text
}
