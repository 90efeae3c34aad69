//! Peers whose process is killed.

use std::process::Child;

use tagmatch_ofi_sys as sys;

use crate::client::{Context, Hints, Memory, Node, exactly};
use crate::process::{alone, publish, start, wait_for};

/// A peer's process that is killed when it has done what it is there for.
fn kill(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
}

/// As a peer: does something with the parent, and waits for its death.
fn peer(action: impl FnOnce(&Node, u64)) {
    let node = Node::of(&Hints::default());
    let parent = node.insert(&wait_for("parent"));
    action(&node, parent);
    publish("peer", &node.name());
    loop {
        std::thread::park();
    }
}

/// As the parent of such a peer.
fn with_peer(test: &str) -> (Node, u64, Child) {
    let node = Node::new();
    publish("parent", &node.name());
    let child = start(test, "peer");
    let address = node.insert(&wait_for("peer"));
    (node, address, child)
}

fn sends_to_the_dead(test: &str, knobs: &[(&str, &str)], error: i32) {
    alone(test, knobs, |role| {
        if role == "peer" {
            return peer(|_, _| ());
        }
        let (node, to, child) = with_peer(test);
        kill(child);
        for length in [1, 100_000, 100_000] {
            let context = Context::new();
            node.send(Memory::new(length), to, 1, context).expect("accepted");
            assert_eq!(node.expect(context, error).flags, sys::FI_SEND | sys::FI_TAGGED);
        }
        // The failure of an injected message has an entry, without a context.
        node.inject(Memory::new(1), to, 1).expect("accepted");
        let entry = node.entry();
        assert_eq!((entry.context, entry.error), (None, error));
    });
}

#[test]
fn sends_to_the_dead_end_with_an_error() {
    // A failed send waits for no match any more.
    let knobs = [("TAGMATCH_CXI_MATCH_IDS", "1")];
    sends_to_the_dead("deaths::sends_to_the_dead_end_with_an_error", &knobs, sys::FI_EHOSTUNREACH);
}

#[test]
fn the_error_of_a_send_to_the_dead_can_be_chosen() {
    sends_to_the_dead(
        "deaths::the_error_of_a_send_to_the_dead_can_be_chosen",
        &[("TAGMATCH_CXI_DEATH", "EIO")],
        sys::FI_EIO,
    );
}

#[test]
fn the_third_error_of_a_send_to_the_dead() {
    sends_to_the_dead(
        "deaths::the_third_error_of_a_send_to_the_dead",
        &[("TAGMATCH_CXI_DEATH", "ENOTCONN")],
        sys::FI_ENOTCONN,
    );
}

#[test]
fn a_long_send_that_the_dead_had_not_matched_never_ends() {
    let test = "deaths::a_long_send_that_the_dead_had_not_matched_never_ends";
    alone(test, &[], |role| {
        if role == "peer" {
            return peer(|_, _| ());
        }
        let (node, to, child) = with_peer(test);
        node.send(Memory::new(100_000), to, 1, Context::new()).expect("accepted");
        node.expect_silence(10);
        kill(child);
        node.expect_silence(1000);
    });
}

#[test]
fn a_long_message_of_the_dead_ends_with_an_error() {
    let test = "deaths::a_long_message_of_the_dead_ends_with_an_error";
    alone(test, &[], |role| {
        if role == "peer" {
            return peer(|node, parent| {
                node.send(Memory::new(100_000), parent, 1, Context::new()).expect("accepted");
                node.inject(Memory::of(b"short"), parent, 2).expect("accepted");
            });
        }
        let (node, from, child) = with_peer(test);
        node.expect_silence(10);
        kill(child);
        let long = Context::new();
        let short = Context::new();
        node.recv(Memory::new(100_000), exactly(from, 1), long).expect("posted");
        node.expect(long, sys::FI_EIO);
        // What had arrived whole is received.
        node.recv(Memory::new(5), exactly(from, 2), short).expect("posted");
        node.expect(short, 0);
    });
}
