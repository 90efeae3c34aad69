//! What `--matches` must say, worked out the slow way: two lists, walked from the front.
//!
//! Nothing of tagperf is used here, its reader neither; only well-formed traces are understood.

use std::collections::HashMap;

struct Recv<'a> {
    id: &'a str,
    ctx: &'a str,
    src: &'a str,
    tag: &'a str,
    len: u64,
}

struct Msg<'a> {
    id: &'a str,
    ctx: &'a str,
    src: &'a str,
    tag: &'a str,
    len: u64,
}

fn fits(asked: [&str; 3], msg: &Msg<'_>) -> bool {
    let same = |asked: &str, is: &str| asked == "*" || asked == is;
    same(asked[0], msg.ctx) && same(asked[1], msg.src) && same(asked[2], msg.tag)
}

/// Ids of the messages in order of arrival, and the first that fits.
fn first(unexpected: &[Msg<'_>], asked: [&str; 3]) -> Option<usize> {
    unexpected.iter().position(|msg| fits(asked, msg))
}

fn cut(msg: u64, room: u64) -> &'static str {
    if msg > room { " truncated" } else { "" }
}

/// The lines of `--matches` for a well-formed trace.
pub(crate) fn matches(trace: &str) -> String {
    let mut out = Vec::new();
    let mut posted: Vec<Recv<'_>> = Vec::new();
    let mut unexpected: Vec<Msg<'_>> = Vec::new();
    let mut held: HashMap<&str, Option<Msg<'_>>> = HashMap::new();
    for line in trace.lines().skip(1) {
        let line = line.split('#').next().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["msg", id, ctx, src, tag, len] => {
                let msg = Msg { id, ctx, src, tag, len: len.parse().unwrap() };
                let at = posted.iter().position(|r| fits([r.ctx, r.src, r.tag], &msg));
                match at {
                    Some(at) => {
                        let recv = posted.remove(at);
                        out.push(format!("match {} {id}{}", recv.id, cut(msg.len, recv.len)));
                    }
                    None => unexpected.push(msg),
                }
            }
            ["recv", id, ctx, src, tag, len] => {
                let recv = Recv { id, ctx, src, tag, len: len.parse().unwrap() };
                match first(&unexpected, [ctx, src, tag]) {
                    Some(at) => {
                        let msg = unexpected.remove(at);
                        out.push(format!("match {id} {}{}", msg.id, cut(msg.len, recv.len)));
                    }
                    None => posted.push(recv),
                }
            }
            ["cancel", id] => match posted.iter().position(|recv| recv.id == id) {
                Some(at) => {
                    posted.remove(at);
                    out.push(format!("cancelled {id}"));
                }
                None => out.push(format!("late {id}")),
            },
            ["probe", ctx, src, tag] => {
                let found = first(&unexpected, [ctx, src, tag]);
                out.push(format!("probe {}", found.map_or("none", |at| unexpected[at].id)));
            }
            ["mprobe", id, ctx, src, tag] => {
                let found = first(&unexpected, [ctx, src, tag]).map(|at| unexpected.remove(at));
                out.push(format!("mprobe {id} {}", found.as_ref().map_or("none", |m| m.id)));
                held.insert(id, found);
            }
            ["mrecv", id, len] => out.push(match held.remove(id).unwrap() {
                Some(msg) => {
                    format!("mrecv {id} {}{}", msg.id, cut(msg.len, len.parse().unwrap()))
                }
                None => format!("mrecv {id} none"),
            }),
            ["mcancel", id] => {
                let msg = held.remove(id).unwrap();
                out.push(format!("mcancelled {id} {}", msg.map_or("none", |m| m.id)));
            }
            _ => panic!("not understood: {line}"),
        }
    }
    out.extend(posted.iter().map(|recv| format!("posted {}", recv.id)));
    out.extend(unexpected.iter().map(|msg| format!("unexpected {}", msg.id)));
    out.iter().map(|line| format!("{line}\n")).collect()
}

/// Random numbers from a seed (xorshift64*), so that a failure can be run again.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }
}

/// A well-formed trace of about `ops` operations: few envelopes, so that much matches; ids in no
/// order; a bias towards messages or receives, so that lists get long; odd blanks and comments.
#[allow(dead_code, reason = "some tests want lengths of their own")]
pub(crate) fn random_trace(seed: u64, ops: u64) -> String {
    random_trace_with(seed, ops, &[0, 1, 7, 8, 4096, u64::MAX])
}

/// The same, of messages and receives of these lengths.
pub(crate) fn random_trace_with(seed: u64, ops: u64, lens: &[u64]) -> String {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let labels = 1 + random.below(4);
    let wild = random.below(60);
    let bias = 20 + random.below(60);
    let end = if random.below(4) == 0 { "\r\n" } else { "\n" };
    let top = [0xff_ffffu64, 0xff_ffff];
    let (mut recvs, mut probes): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut used = std::collections::HashSet::new();
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
        let label = |random: &mut Random, top: u64| match random.below(labels + 1) {
            0 if random.below(8) == 0 => top.to_string(),
            label => label.to_string(),
        };
        let open = |random: &mut Random, top: u64| {
            if random.below(100) < wild { "*".to_owned() } else { label(random, top) }
        };
        let ctx = [0, 0, 0, 1, 65535][random.index(5)];
        let len = lens[random.index(lens.len())];
        let line = match random.below(10) {
            0..=6 if random.below(100) < bias => {
                let (src, tag) = (label(&mut random, top[0]), label(&mut random, top[1]));
                format!("msg {fresh} {ctx} {src} {tag} {len}")
            }
            0..=6 => {
                recvs.push(fresh);
                let (src, tag) = (open(&mut random, top[0]), open(&mut random, top[1]));
                format!("recv {fresh} {ctx} {src} {tag} {len}")
            }
            7 if !recvs.is_empty() => {
                format!("cancel {}", recvs[random.index(recvs.len())])
            }
            8 => {
                let (src, tag) = (open(&mut random, top[0]), open(&mut random, top[1]));
                format!("probe {ctx} {src} {tag}")
            }
            _ if random.below(2) == 0 && !probes.is_empty() => {
                let id = probes.swap_remove(random.index(probes.len()));
                match random.below(3) {
                    0 => format!("mcancel {id}"),
                    _ => format!("mrecv {id} {len}"),
                }
            }
            _ => {
                probes.push(fresh);
                let (src, tag) = (open(&mut random, top[0]), open(&mut random, top[1]));
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
