//! A peer that sends what it likes, against an engine that is in the middle of things.
#![no_main]

#[path = "../../../fallback/tests/wire/mod.rs"]
mod wire;

use libfuzzer_sys::fuzz_target;
use tagmatch_device::Buffer;
use tagmatch_fallback::{MatchEngine, Send, SendMode, Started};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use wire::{config, forge, kill, meet, nodes, settle};

fuzz_target!(|data: &[u8]| {
    let (net, mut n) = nodes(3, &config());
    let hostile = meet(&mut n, 0, 1);
    let good = meet(&mut n, 0, 2);
    settle(&mut n);
    let mut requests = Vec::new();
    let mut begin = |started: Started| {
        if let Started::Pending(request) = started {
            requests.push(request);
        }
    };
    let mut rest = data;
    while let [what, length, tail @ ..] = rest {
        let (bytes, tail) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = tail;
        let tag = Tag(bytes.first().map_or(0, |&b| u64::from(b % 4)));
        let size = usize::from(*length) * 20;
        match what % 8 {
            0..=3 => forge(&net, 1, 0, bytes),
            4 => {
                begin(n[0].send(Send::new(hostile, tag, Buffer::zeroed(size)), SendMode::Delivered))
            }
            5 => begin(n[0].send(
                Send::new(hostile, tag, Buffer::zeroed(size)).immediate(Some(1)),
                SendMode::Standard,
            )),
            6 => {
                let pattern = Pattern::new(tag, TagMask(3)).from_source(SourceId(hostile.0));
                begin(n[0].receive(&pattern, Buffer::zeroed(size)).into());
            }
            _ => {
                let taken = n[0].matched_probe(&Pattern::new(tag, TagMask::ANY)).unwrap();
                if let Some((message, _)) = taken {
                    begin(n[0].receive_message(message, Buffer::zeroed(size)).into());
                }
            }
        }
        n[0].progress();
    }
    assert!(n[0].counters().unexpected_bytes_now <= config().credit.peer_max.bytes);
    // Whatever it did: once it is gone, what depended on it has ended, and others are served.
    kill(&net, 1);
    settle(&mut n);
    for request in requests {
        assert!(n[0].requests_mut().take(request).is_some() || n[0].peer_fault(hostile).is_none());
    }
    let receive = n[2].receive(&Pattern::new(Tag(9), TagMask::EXACT), Buffer::zeroed(5000));
    begin_ok(n[0].send(Send::new(good, Tag(9), Buffer::zeroed(5000)), SendMode::Standard));
    settle(&mut n);
    if let Ok(receive) = receive {
        assert!(n[2].requests_mut().take(receive).is_some_and(|done| done.result.is_ok()));
    }
});

fn begin_ok(started: Started) {
    assert!(!matches!(started, Started::Refused(_)), "{started:?}");
}
