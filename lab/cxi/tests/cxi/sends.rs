//! Sends: completion levels, injected messages, calls to be tried again, closing.

use tagmatch_ofi_sys as sys;

use crate::client::{Code, Context, Hints, Memory, Message, Node, exactly};
use crate::messages::{pair, send};
use crate::process::alone;

const ANY: u64 = sys::FI_ADDR_UNSPEC;

#[test]
fn match_completion_comes_with_the_match() {
    alone("sends::match_completion_comes_with_the_match", &[], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        let sent = Context::new();
        let context = Context::new();
        let parts = [Memory::of(b"x")];
        sender.sendmsg(Message::new(&parts, to, 1, sent), sys::FI_MATCH_COMPLETE).expect("sent");
        receiver.expect_silence(20);
        sender.expect_silence(20);
        receiver.recv(Memory::new(1), exactly(from, 1), context).expect("posted");
        receiver.expect(context, 0);
        assert_eq!(sender.expect(sent, 0).flags, sys::FI_SEND | sys::FI_TAGGED);
        // A plain send has an entry without a receive.
        send(&sender, to, 1, b"x");
    });
}

#[test]
fn so_many_sends_at_a_time_can_wait_for_a_match() {
    let test = "sends::so_many_sends_at_a_time_can_wait_for_a_match";
    alone(test, &[("TAGMATCH_CXI_MATCH_IDS", "2")], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        let parts = [Memory::of(b"x")];
        let sent: [_; 3] = std::array::from_fn(|_| Context::new());
        let try_send =
            |context| sender.sendmsg(Message::new(&parts, to, 1, context), sys::FI_MATCH_COMPLETE);
        try_send(sent[0]).expect("accepted");
        try_send(sent[1]).expect("accepted");
        assert_eq!(try_send(sent[2]), Err(sys::FI_EAGAIN));
        let context = Context::new();
        receiver.recv(Memory::new(1), exactly(from, 1), context).expect("posted");
        receiver.expect(context, 0);
        sender.expect(sent[0], 0);
        try_send(sent[2]).expect("accepted");
    });
}

#[test]
fn an_endpoint_takes_so_many_sends_at_a_time_as_it_was_opened_for() {
    alone("sends::an_endpoint_takes_so_many_sends_at_a_time_as_it_was_opened_for", &[], |_| {
        let mut hints = Hints::default();
        hints.transmit.size = 4;
        let (sender, to, receiver, _) = pair(&hints);
        for _ in 0..3 {
            // Those that have left for the receiver's socket don't count.
            let send = |_: &usize| sender.inject(Memory::new(1), to, 1).is_ok();
            let count = (0..1000).take_while(send).count();
            assert!((4..1000).contains(&count), "{count}");
            assert_eq!(sender.inject(Memory::new(1), to, 1), Err(sys::FI_EAGAIN));
            for _ in 0..100 {
                receiver.expect_silence(1);
                sender.expect_silence(1);
            }
        }
    });
}

#[test]
fn an_injected_message_is_short_and_has_no_entry() {
    alone("sends::an_injected_message_is_short_and_has_no_entry", &[], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        assert_eq!(sender.inject(Memory::new(193), to, 1), Err(sys::FI_EMSGSIZE));
        let long = [Memory::new(193)];
        let short = [Memory::new(192)];
        let context = Context::new();
        let message = Message::new(&long, to, 1, context);
        assert_eq!(sender.sendmsg(message, sys::FI_INJECT), Err(sys::FI_EMSGSIZE));
        sender.sendmsg(Message::new(&short, to, 1, context), sys::FI_INJECT).expect("accepted");
        sender.expect(context, 0);
        sender.inject(Memory::new(192), to, 1).expect("accepted");
        sender.expect_silence(10);
        for _ in 0..2 {
            receiver.recv(Memory::new(192), exactly(from, 1), context).expect("posted");
            assert_eq!(receiver.expect(context, 0).length, 192);
        }
    });
}

#[test]
fn a_message_has_less_than_four_gibibytes() {
    alone("sends::a_message_has_less_than_four_gibibytes", &[], |_| {
        let (sender, to, ..) = pair(&Hints::default());
        let long = Memory::new(1).claimed(1 << 32);
        assert_eq!(sender.send(long, to, 1, Context::new()), Err(sys::FI_EMSGSIZE));
    });
}

#[test]
fn a_message_has_one_part() {
    alone("sends::a_message_has_one_part", &[], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        let parts = [Memory::new(1), Memory::new(1)];
        let context = Context::new();
        assert_eq!(sender.sendmsg(Message::new(&parts, to, 1, context), 0), Err(sys::FI_EINVAL));
        assert_eq!(
            receiver.recvmsg(Message::new(&parts, from, 1, context), 0),
            Err(sys::FI_EINVAL)
        );
        receiver.recvmsg(Message::new(&[], from, 1, context), 0).expect("posted");
        let sent = Context::new();
        sender.sendmsg(Message::new(&[], to, 1, sent), 0).expect("accepted");
        sender.expect(sent, 0);
        assert_eq!(receiver.expect(context, 0).length, 0);
    });
}

#[test]
fn with_selective_completion_only_marked_operations_and_failures_have_entries() {
    let test = "sends::with_selective_completion_only_marked_operations_and_failures_have_entries";
    alone(test, &[], |_| {
        let bind_flags = sys::FI_TRANSMIT | sys::FI_RECV | sys::FI_SELECTIVE_COMPLETION;
        let (sender, to, receiver, from) = pair(&Hints { bind_flags, ..Hints::default() });
        let parts = [Memory::new(4)];
        let quiet = Context::new();
        let telling = Context::new();
        for _ in 0..2 {
            sender.sendmsg(Message::new(&parts, to, 1, quiet), 0).expect("accepted");
        }
        sender.sendmsg(Message::new(&parts, to, 1, telling), sys::FI_COMPLETION).expect("accepted");
        sender.expect(telling, 0);
        receiver.recvmsg(Message::new(&parts, from, 1, quiet), 0).expect("posted");
        receiver.recvmsg(Message::new(&[], from, 1, quiet), 0).expect("posted");
        receiver
            .recvmsg(Message::new(&parts, from, 1, telling), sys::FI_COMPLETION)
            .expect("posted");
        receiver.expect(quiet, sys::FI_ETRUNC);
        receiver.expect(telling, 0);
    });
}

#[test]
fn calls_ask_to_be_tried_again_without_a_reason() {
    let knobs = [("TAGMATCH_CXI_AGAIN", "500"), ("TAGMATCH_CXI_SEED", "7")];
    alone("sends::calls_ask_to_be_tried_again_without_a_reason", &knobs, |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        type Try = fn(&Node, u64) -> Code;
        let tries: [Try; 3] = [
            |node, to| node.send(Memory::new(1), to, 1, Context::new()),
            |node, from| node.recv(Memory::new(1), exactly(from, 2), Context::new()),
            |node, from| {
                let message = Message::new(&[], from, 2, Context::new());
                node.recvmsg(message, sys::FI_PEEK)
            },
        ];
        for (number, call) in tries.into_iter().enumerate() {
            let (node, address) = if number == 0 { (&sender, to) } else { (&receiver, from) };
            let answers: Vec<_> = (0..100).map(|_| call(node, address)).collect();
            let again = answers.iter().filter(|answer| **answer == Err(sys::FI_EAGAIN)).count();
            let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
            assert!(again > 20 && accepted > 20 && again + accepted == 100, "{again} {accepted}");
        }
    });
}

/// More messages than a socket has room for.
const MANY: usize = 100;

/// More messages than there is room for.
fn send_many(sender: &Node, to: u64) {
    for _ in 0..MANY {
        sender.inject(Memory::new(1), to, 1).expect("accepted");
    }
}

struct MovedNode(Node);

// SAFETY: the endpoint is of FI_THREAD_SAFE, and one thread has it.
unsafe impl Send for MovedNode {}

#[test]
fn closing_an_endpoint_waits_until_its_messages_have_left() {
    alone("sends::closing_an_endpoint_waits_until_its_messages_have_left", &[], |_| {
        let (sender, to, receiver, _) = pair(&Hints::default());
        send_many(&sender, to);
        let sender = MovedNode(sender);
        let closing = std::thread::spawn(move || {
            let MovedNode(sender) = { sender };
            sender.close();
        });
        for _ in 0..MANY {
            let context = Context::new();
            receiver.recv(Memory::new(1), exactly(ANY, 1), context).expect("posted");
            receiver.expect(context, 0);
        }
        closing.join().expect("it closes");
    });
}

#[test]
fn closing_an_endpoint_at_once_loses_messages() {
    let test = "sends::closing_an_endpoint_at_once_loses_messages";
    alone(test, &[("TAGMATCH_CXI_CLOSE_MS", "0")], |_| {
        let (sender, to, receiver, _) = pair(&Hints::default());
        send_many(&sender, to);
        sender.close();
        let arrives = |_: &usize| {
            receiver.recv(Memory::new(1), exactly(ANY, 1), Context::new()).expect("posted");
            (0..10).any(|_| receiver.poll().is_some())
        };
        let count = (0..MANY).take_while(arrives).count();
        assert!((1..MANY).contains(&count), "{count}");
    });
}
