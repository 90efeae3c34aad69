//! List entries of the NIC: what happens when there are no more.

use tagmatch_ofi_sys as sys;

use crate::client::{Context, Hints, Memory, Message, Node, Wanted, exactly, within_limit};
use crate::messages::{pair, send};
use crate::process::{alone, outcome};
use crate::sleep::sleeping;

const FOUR: (&str, &str) = ("TAGMATCH_CXI_ENTRIES", "4");
const LONG: (&str, &str) = ("TAGMATCH_CXI_ONLOAD", "20");

/// Receives messages with these tags in their order.
fn receive_tags(receiver: &Node, from: u64, tags: std::ops::Range<u64>) {
    tags.for_each(|tag| receive_tag(receiver, from, tag, || ()));
}

/// Receives the next message, which has this tag. The sender may need progress.
fn receive_tag(receiver: &Node, from: u64, tag: u64, mut progress: impl FnMut()) {
    let into = Memory::new(1);
    let context = Context::new();
    within_limit("a receive that is accepted", || {
        progress();
        receiver.recv(into, Wanted { from, tag: 0, ignore: 0xff }, context).ok()
    });
    let entry = within_limit("a message", || {
        progress();
        receiver.poll()
    });
    assert_eq!((entry.context, entry.tag, entry.error), (Some(context), tag, 0));
}

/// Five unexpected messages, and four entries: from then on the state changes.
fn exhaust(sender: &Node, to: u64, receiver: &Node) {
    for tag in 0..5 {
        send(sender, to, tag, b"x");
    }
    receiver.expect_silence(1);
}

#[test]
fn flow_control_holds_up_both_sides_and_loses_nothing() {
    let test = "entries::flow_control_holds_up_both_sides_and_loses_nothing";
    alone(test, &[FOUR, LONG], |_| {
        let (sender, to, receiver, from) = pair(&sleeping());
        exhaust(&sender, to, &receiver);
        let memory = Memory::new(1);
        let context = Context::new();
        let search = Message::new(&[], from, 0, context);
        assert_eq!(receiver.recv(memory, exactly(from, 99), context), Err(sys::FI_EAGAIN));
        assert_eq!(receiver.recvmsg(search, sys::FI_PEEK), Err(sys::FI_EAGAIN));
        assert!(!receiver.may_sleep());
        // The next message is dropped, and the sender told so.
        send(&sender, to, 5, b"x");
        receiver.expect_silence(1);
        sender.expect_silence(1);
        assert_eq!(sender.send(memory, to, 6, context), Err(sys::FI_EAGAIN));
        assert_eq!(sender.inject(memory, to, 6), Err(sys::FI_EAGAIN));
        receive_tags(&receiver, from, 0..6);
        within_limit("the sender's turn", || sender.send(memory, to, 6, context).ok());
        receive_tags(&receiver, from, 6..7);
        // It begins again as soon as there is no entry.
        sender.expect(context, 0);
        exhaust(&sender, to, &receiver);
        receive_tags(&receiver, from, 0..5);
    });
}

#[test]
fn messages_that_were_put_aside_keep_their_order_when_the_entries_end_again() {
    let test = "entries::messages_that_were_put_aside_keep_their_order_when_the_entries_end_again";
    alone(test, &[FOUR, LONG], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        exhaust(&sender, to, &receiver);
        // The sender makes no progress, and so isn't told to pause.
        for tag in 5..14 {
            sender.inject(Memory::new(1), to, tag).expect("accepted");
        }
        receiver.expect_silence(200);
        receive_tags(&receiver, from, 0..14);
    });
}

#[test]
fn a_sender_keeps_its_messages_while_the_receiver_is_in_flow_control() {
    let test = "entries::a_sender_keeps_its_messages_while_the_receiver_is_in_flow_control";
    alone(test, &[FOUR, ("TAGMATCH_CXI_ONLOAD", "1000")], |_| {
        let (sender, to, receiver, from) = pair(&sleeping());
        exhaust(&sender, to, &receiver);
        for tag in 5..100 {
            sender.inject(Memory::new(1), to, tag).expect("accepted");
        }
        for _ in 0..200 {
            receiver.expect_silence(1);
            sender.expect_silence(1);
        }
        assert!(!sender.may_sleep());
        for tag in 0..100 {
            receive_tag(&receiver, from, tag, || sender.expect_silence(1));
        }
        assert!(sender.may_sleep());
    });
}

#[test]
fn an_entry_is_free_again_when_its_message_was_received() {
    let test = "entries::an_entry_is_free_again_when_its_message_was_received";
    alone(test, &[FOUR], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        for tag in 0..10 {
            send(&sender, to, tag, b"x");
            receiver.expect_silence(1);
            let context = Context::new();
            receiver.recv(Memory::new(1), exactly(from, tag), context).expect("posted");
            receiver.expect(context, 0);
        }
    });
}

#[test]
fn in_hybrid_mode_there_is_no_end_of_entries_once_software_matches() {
    let test = "entries::in_hybrid_mode_there_is_no_end_of_entries_once_software_matches";
    alone(test, &[FOUR, LONG], |_| {
        let hints = Hints { mode: Some(c"hybrid"), ..Hints::default() };
        let (sender, to, receiver, from) = pair(&hints);
        exhaust(&sender, to, &receiver);
        let memory = Memory::new(1);
        let context = Context::new();
        assert_eq!(receiver.recv(memory, exactly(from, 99), context), Err(sys::FI_EAGAIN));
        receiver.expect_silence(60);
        for tag in 5..20 {
            send(&sender, to, tag, b"x");
            receiver.expect_silence(1);
            receiver.recv(memory, exactly(from, 99), Context::new()).expect("posted");
        }
        receive_tags(&receiver, from, 0..20);
    });
}

/// Posts five receives, which take all entries.
fn post_five(receiver: &Node, from: u64) {
    for tag in 0..5 {
        receiver.recv(Memory::new(1), exactly(from, tag), Context::new()).expect("posted");
    }
    receiver.expect_silence(60);
}

#[test]
fn a_second_exhaustion_in_flow_control_ends_the_process() {
    let test = "entries::a_second_exhaustion_in_flow_control_ends_the_process";
    let ended = outcome(test, &[FOUR], |_| {
        let (_, _, receiver, from) = pair(&Hints::default());
        post_five(&receiver, from);
    });
    if let Some((is_well, words)) = ended {
        assert!(!is_well && words.contains("LE resources not recovered"), "{words}");
        assert!(words.starts_with("signal: 6"), "{words}");
    }
}

#[test]
fn a_second_exhaustion_can_wait_for_an_entry() {
    let test = "entries::a_second_exhaustion_can_wait_for_an_entry";
    alone(test, &[FOUR, ("TAGMATCH_CXI_SECOND", "wait")], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        let cancelled = [Context::new(), Context::new()];
        for context in cancelled {
            receiver.recv(Memory::new(1), exactly(from, 100), context).expect("posted");
        }
        for tag in 0..3 {
            receiver.recv(Memory::new(1), exactly(from, tag), Context::new()).expect("posted");
        }
        receiver.expect_silence(60);
        let post = || receiver.recv(Memory::new(1), exactly(from, 3), Context::new());
        assert_eq!(post(), Err(sys::FI_EAGAIN));
        for context in cancelled {
            receiver.cancel(context).expect("it is posted");
            receiver.expect(context, sys::FI_ECANCELED);
        }
        within_limit("a receive that is accepted", || {
            assert_eq!(receiver.poll(), None);
            post().ok()
        });
        for tag in (0..4).rev() {
            send(&sender, to, tag, b"x");
            assert_eq!(receiver.entry().tag, tag);
        }
    });
}

#[test]
fn in_hybrid_mode_receives_that_take_all_entries_end_nothing() {
    let test = "entries::in_hybrid_mode_receives_that_take_all_entries_end_nothing";
    alone(test, &[FOUR], |_| {
        let (sender, to, receiver, from) =
            pair(&Hints { mode: Some(c"hybrid"), ..Hints::default() });
        post_five(&receiver, from);
        for tag in (0..5).rev() {
            send(&sender, to, tag, b"x");
            assert_eq!(receiver.entry().tag, tag);
        }
    });
}

#[test]
fn a_claim_is_answered_wrongly_when_the_entries_end() {
    let test = "entries::a_claim_is_answered_wrongly_when_the_entries_end";
    alone(test, &[FOUR, ("TAGMATCH_CXI_PEEK", "100")], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        send(&sender, to, 0, b"there");
        receiver.expect_silence(2);
        let claim = Context::new();
        let probe = Context::new();
        receiver.recvmsg(Message::new(&[], from, 0, probe), sys::FI_PEEK).expect("accepted");
        let flags = sys::FI_PEEK | sys::FI_CLAIM;
        receiver.recvmsg(Message::new(&[], from, 0, claim), flags).expect("accepted");
        for tag in 1..5 {
            send(&sender, to, tag, b"x");
        }
        receiver.expect(claim, sys::FI_ENOMSG);
        receiver.expect(probe, 0);
    });
}

#[test]
fn others_can_take_the_entries_of_the_nic() {
    let test = "entries::others_can_take_the_entries_of_the_nic";
    let knobs = [("TAGMATCH_CXI_TAKEN", "1000"), ("TAGMATCH_CXI_SEED", "1"), LONG];
    alone(test, &knobs, |_| {
        let hints = Hints { mode: Some(c"hybrid"), ..sleeping() };
        let (sender, to, receiver, from) = pair(&hints);
        let into = Memory::new(1);
        let context = Context::new();
        receiver.recv(into, exactly(from, 0), context).expect("posted");
        send(&sender, to, 0, b"x");
        receiver.expect(context, 0);
        receiver
            .recv(into, exactly(from, 99), context)
            .expect("an expected message takes no entry");
        send(&sender, to, 0, b"x");
        receiver.expect_silence(1);
        assert!(!receiver.may_sleep());
        receive_tags(&receiver, from, 0..1);
    });
}
