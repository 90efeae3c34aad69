//! Probes: FI_PEEK and FI_CLAIM of fi_tagged(3), as cxi has them.

use tagmatch_ofi_sys as sys;

use crate::client::{Context, Hints, Memory, Message, Node, exactly};
use crate::messages::{pair, send};
use crate::process::alone;

const CLAIM: u64 = sys::FI_PEEK | sys::FI_CLAIM;

fn peek(node: &Node, from: u64, tag: u64, flags: u64) -> Context {
    let context = Context::new();
    node.recvmsg(Message::new(&[], from, tag, context), flags).expect("accepted");
    context
}

/// Takes in what has arrived.
fn settle(node: &Node) {
    node.expect_silence(5);
}

#[test]
fn a_probe_is_answered_some_rounds_later() {
    alone("probes::a_probe_is_answered_some_rounds_later", &[("TAGMATCH_CXI_PEEK", "10")], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        send(&sender, to, 4, b"four");
        settle(&receiver);
        let context = peek(&receiver, from, 4, sys::FI_PEEK);
        receiver.expect_silence(9);
        let entry = receiver.expect(context, 0);
        assert_eq!((entry.length, entry.tag, entry.source), (4, 4, from));
        let context = peek(&receiver, from, 5, sys::FI_PEEK);
        receiver.expect_silence(9);
        receiver.expect(context, sys::FI_ENOMSG);
        // The message is still there.
        let context = Context::new();
        receiver.recv(Memory::new(4), exactly(from, 4), context).expect("posted");
        receiver.expect(context, 0);
    });
}

#[test]
fn a_seed_makes_the_answers_of_probes_come_after_different_numbers_of_rounds() {
    let knobs = [("TAGMATCH_CXI_PEEK", "10"), ("TAGMATCH_CXI_SEED", "3")];
    let test = "probes::a_seed_makes_the_answers_of_probes_come_after_different_numbers_of_rounds";
    alone(test, &knobs, |_| {
        let (_, _, receiver, from) = pair(&Hints::default());
        let rounds = |_| {
            peek(&receiver, from, 5, sys::FI_PEEK);
            (1..).find(|_| receiver.poll().is_some()).expect("an answer")
        };
        let mut all: Vec<u32> = (0..30).map(rounds).collect();
        assert!(all.iter().all(|rounds| (1..=10).contains(rounds)), "{all:?}");
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 4, "{all:?}");
    });
}

#[test]
fn a_claimed_message_is_received_by_its_context_alone() {
    alone("probes::a_claimed_message_is_received_by_its_context_alone", &[], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        send(&sender, to, 4, b"claimed");
        send(&sender, to, 4, b"other");
        settle(&receiver);
        let claimed = peek(&receiver, from, 4, CLAIM);
        assert_eq!(receiver.expect(claimed, 0).length, 7);
        let into = Memory::new(7);
        let context = Context::new();
        receiver.recv(into, exactly(from, 4), context).expect("posted");
        assert_eq!(receiver.expect(context, 0).length, 5);
        let parts = [into];
        receiver.recvmsg(Message::new(&parts, from, 4, claimed), sys::FI_CLAIM).expect("accepted");
        assert_eq!(receiver.expect(claimed, 0).length, 7);
        assert_eq!(into.bytes(), b"claimed");
        // It is received once.
        let again = Message::new(&parts, from, 4, claimed);
        assert_eq!(receiver.recvmsg(again, sys::FI_CLAIM), Err(sys::FI_EINVAL));
    });
}

#[test]
fn a_claim_that_is_under_way_holds_up_receives_and_probes() {
    let test = "probes::a_claim_that_is_under_way_holds_up_receives_and_probes";
    alone(test, &[("TAGMATCH_CXI_PEEK", "10")], |_| {
        let (_, _, receiver, from) = pair(&Hints::default());
        let claim = peek(&receiver, from, 4, CLAIM);
        let memory = Memory::new(1);
        let context = Context::new();
        let search = Message::new(&[], from, 4, context);
        assert_eq!(receiver.recv(memory, exactly(from, 9), context), Err(sys::FI_EAGAIN));
        assert_eq!(receiver.recvmsg(search, sys::FI_PEEK), Err(sys::FI_EAGAIN));
        assert_eq!(receiver.recvmsg(search, CLAIM), Err(sys::FI_EAGAIN));
        receiver.expect(claim, sys::FI_ENOMSG);
        receiver.recv(memory, exactly(from, 9), context).expect("posted");
        // Probes that claim nothing don't hold each other up.
        peek(&receiver, from, 4, sys::FI_PEEK);
        peek(&receiver, from, 4, sys::FI_PEEK);
    });
}

#[test]
fn there_is_no_discard() {
    alone("probes::there_is_no_discard", &[], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        send(&sender, to, 4, b"four");
        settle(&receiver);
        let claimed = peek(&receiver, from, 4, CLAIM);
        receiver.expect(claimed, 0);
        let message = Message::new(&[], from, 4, claimed);
        for flags in [sys::FI_PEEK, sys::FI_CLAIM, CLAIM, 0] {
            let answer = receiver.recvmsg(message, flags | sys::FI_DISCARD);
            assert_eq!(answer, Err(sys::FI_EBADFLAGS));
        }
        // What programs do in place of it.
        let parts = [Memory::new(1)];
        let message = Message::new(&parts, from, 4, claimed);
        receiver.recvmsg(message, sys::FI_CLAIM).expect("accepted");
        assert_eq!(receiver.expect(claimed, sys::FI_ETRUNC).overflow, 3);
    });
}
