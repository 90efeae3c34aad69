//! The UCX device on a real libucp: run by `ci/test ucx`, or by hand with
//! `cargo test -p tagmatch-hw --test ucx -- --ignored` where libucx0 is installed.
//!
//! Each test runs over each of the transports that are named in `TAGMATCH_TEST_UCX_TLS` (values of
//! `UCX_TLS`, apart by spaces), else over shared memory and TCP.

#![allow(clippy::cast_possible_truncation, unreachable_pub, reason = "a test that fails loudly")]

mod common;
#[path = "ucx_parts/mod.rs"]
mod parts;

use parts::{drain, envelope_of, pair, pattern_of, receive, send_of, transports, ucx, wait};
use tagmatch_hw::matching::{CompleteWhen, MatchingDevice};
use tagmatch_hw::{Buffer, PeerId};

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_message_to_oneself() {
    for tls in transports().into_iter().chain(["self".into()]) {
        let mut a = ucx(&tls);
        for length in [0, 8, 4096, 100_000] {
            let bytes = common::pattern(length, length);
            receive(&mut a, pattern_of(5, !0, Some(PeerId::ONESELF)), length, 1);
            let sent = a.send(send_of(PeerId::ONESELF, 5, &bytes, CompleteWhen::Reusable)).unwrap();
            let (envelope, got) = wait(&mut [&mut a], "a message", |_, e| envelope_of(e, 1));
            assert!(got == bytes && envelope.length == length as u64, "{tls} {length}");
            assert_eq!((envelope.source, envelope.tag), (PeerId::ONESELF, 5));
            drop(sent);
            drain(&mut a);
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn every_size_arrives() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        for length in [0, 1, 8, 92, 93, 4096, 7999, 8000, 8001, 65_536, 3_000_000] {
            for is_expected in [true, false] {
                let bytes = common::pattern(length, length);
                let post = |b: &mut _| receive(b, pattern_of(9, !0, Some(to_a)), length, 3);
                if is_expected {
                    post(&mut b);
                }
                a.send(send_of(to_b, 9, &bytes, CompleteWhen::Reusable)).unwrap();
                for _ in 0..1000 {
                    assert!(is_expected || b.poll().is_none());
                }
                if !is_expected {
                    post(&mut b);
                }
                let mut done = None;
                wait(&mut [&mut a, &mut b], "a message", |_, event| {
                    done = done.take().or(envelope_of(event, 3));
                    done.is_some().then_some(())
                });
                let (envelope, got) = done.unwrap();
                assert!(got == bytes && envelope.source == to_a, "{tls} {length}");
                drain(&mut a);
            }
        }
    }
}
