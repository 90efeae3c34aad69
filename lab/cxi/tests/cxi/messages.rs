//! Messages: matching, order, lengths, sources, other processes.

use tagmatch_ofi_sys as sys;

use crate::client::{Context, Entry, Hints, Memory, Message, Node, Wanted, exactly};
use crate::process::{alone, publish, start, wait_for};

const ANY: u64 = sys::FI_ADDR_UNSPEC;
const RECEIVE: u64 = sys::FI_RECV | sys::FI_TAGGED;

#[test]
fn a_message_reaches_another_process() {
    alone("messages::a_message_reaches_another_process", &[], |role| {
        let node = Node::new();
        if role == "peer" {
            let parent = node.insert(&wait_for("parent"));
            publish("peer", &node.name());
            let short = Context::new();
            let long = Context::new();
            node.send(Memory::of(b"short"), parent, 7, short).expect("accepted");
            node.expect(short, 0);
            node.send(Memory::of(&[0x5a; 100_000]), parent, 8, long).expect("accepted");
            node.expect(long, 0);
            node.close();
            return;
        }
        publish("parent", &node.name());
        let mut child = start("messages::a_message_reaches_another_process", "peer");
        let peer = node.insert(&wait_for("peer"));
        let short = Memory::new(16);
        let long = Memory::new(100_000);
        let contexts = [Context::new(), Context::new()];
        node.recv(long, exactly(ANY, 8), contexts[1]).expect("posted");
        node.recv(short, exactly(peer, 7), contexts[0]).expect("posted");
        let entry = node.expect(contexts[0], 0);
        assert_eq!((entry.length, entry.tag, entry.source), (5, 7, peer));
        assert_eq!((entry.flags, &short.bytes()[..6]), (RECEIVE, &b"short\xee"[..]));
        assert_eq!(node.expect(contexts[1], 0).length, 100_000);
        assert_eq!(long.bytes(), [0x5a; 100_000]);
        assert!(child.wait().expect("it is ours").success());
        node.close();
    });
}

/// Two endpoints that know each other: a sender and a receiver, with the addresses that each has
/// for the other.
pub(crate) fn pair(hints: &Hints) -> (Node, u64, Node, u64) {
    let sender = Node::of(hints);
    let receiver = Node::of(hints);
    let to = sender.insert(&receiver.name());
    let from = receiver.insert(&sender.name());
    (sender, to, receiver, from)
}

/// Sends a message that leaves at once.
pub(crate) fn send(sender: &Node, to: u64, tag: u64, bytes: &[u8]) {
    let context = Context::new();
    sender.send(Memory::of(bytes), to, tag, context).expect("accepted");
    sender.expect(context, 0);
}

#[test]
fn named_and_any_source_receives_are_on_one_list() {
    alone("messages::named_and_any_source_receives_are_on_one_list", &[], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        let other = receiver.insert(&receiver.name());
        let all: [_; 5] = std::array::from_fn(|_| Context::new());
        let into = || Memory::new(8);
        receiver.recv(into(), exactly(other, 3), all[0]).expect("posted");
        receiver.recv(into(), exactly(ANY, 3), all[1]).expect("posted");
        receiver.recv(into(), exactly(from, 3), all[2]).expect("posted");
        receiver.recv(into(), Wanted { from, tag: 0, ignore: 0xff }, all[3]).expect("posted");
        receiver.recv(into(), exactly(ANY, 3), all[4]).expect("posted");
        for message in 0..4 {
            send(&sender, to, 3, &[message]);
        }
        for context in &all[1..] {
            receiver.expect(*context, 0);
        }
        send(&receiver, other, 3, b"own");
        // Entries of sends and receives are in one queue.
        receiver.expect(all[0], 0);
    });
}

#[test]
fn unexpected_messages_are_received_in_the_order_of_their_arrival() {
    alone("messages::unexpected_messages_are_received_in_the_order_of_their_arrival", &[], |_| {
        let (first, to, receiver, from) = pair(&Hints::default());
        let second = Node::new();
        let to_too = second.insert(&receiver.name());
        send(&second, to_too, 5, &[0]);
        send(&first, to, 5, &[1]);
        send(&second, to_too, 5, &[2]);
        send(&first, to, 6, &[3]);
        receiver.expect_silence(10);
        let take = |source, tag, ignore| {
            let into = Memory::new(1);
            let context = Context::new();
            receiver.recv(into, Wanted { from: source, tag, ignore }, context).expect("posted");
            receiver.expect(context, 0);
            into.bytes()[0]
        };
        assert_eq!(take(from, 0, 0xf), 1);
        assert_eq!((take(ANY, 5, 0), take(ANY, 5, 0)), (0, 2));
        assert_eq!(take(ANY, 0, (1 << 48) - 1), 3);
    });
}

#[test]
fn tags_have_48_bits() {
    alone("messages::tags_have_48_bits", &[], |_| {
        let (node, to, receiver, _) = pair(&Hints::default());
        let memory = Memory::new(1);
        let context = Context::new();
        let highest = (1 << 48) - 1;
        let over = highest + 1;
        assert_eq!(node.send(memory, to, over, context), Err(sys::FI_EINVAL));
        assert_eq!(node.inject(memory, to, over), Err(sys::FI_EINVAL));
        assert_eq!(node.recv(memory, exactly(ANY, over), context), Err(sys::FI_EINVAL));
        assert_eq!(
            node.recv(memory, Wanted { from: ANY, tag: 0, ignore: over }, context),
            Err(sys::FI_EINVAL)
        );
        receiver.recv(memory, exactly(ANY, highest), context).expect("posted");
        send(&node, to, highest, &[1]);
        assert_eq!(receiver.expect(context, 0).tag, highest);
    });
}

#[test]
fn a_truncated_receive_tells_how_much_is_missing() {
    alone("messages::a_truncated_receive_tells_how_much_is_missing", &[], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        for length in [100, 16384, 16385, 1 << 20] {
            let message = vec![0x33; length];
            let sent = Context::new();
            sender.send(Memory::of(&message), to, 1, sent).expect("accepted");
            let into = Memory::new(40);
            let context = Context::new();
            receiver.recv(into, exactly(from, 1), context).expect("posted");
            let entry = receiver.expect(context, sys::FI_ETRUNC);
            assert_eq!((entry.length, entry.overflow, entry.tag), (40, length - 40, 1));
            assert_eq!(into.bytes(), [0x33; 40]);
            sender.expect(sent, 0);
        }
    });
}

#[test]
fn data_has_eight_bytes() {
    alone("messages::data_has_eight_bytes", &[], |_| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        let sent = Context::new();
        let context = Context::new();
        let parts = [Memory::of(b"x")];
        let message = Message { data: u64::MAX - 5, ..Message::new(&parts, to, 1, sent) };
        sender.sendmsg(message, sys::FI_REMOTE_CQ_DATA).expect("accepted");
        receiver.recv(Memory::new(1), exactly(from, 1), context).expect("posted");
        let entry = receiver.expect(context, 0);
        assert_eq!((entry.data, entry.flags), (u64::MAX - 5, RECEIVE | sys::FI_REMOTE_CQ_DATA));
    });
}

#[test]
fn the_source_is_told_to_programs_that_ask_for_it() {
    alone("messages::the_source_is_told_to_programs_that_ask_for_it", &[], |_| {
        for (caps, is_told) in [(sys::FI_TAGGED | sys::FI_SOURCE, true), (sys::FI_TAGGED, false)] {
            let (sender, to, receiver, from) = pair(&Hints { caps, ..Hints::default() });
            let context = Context::new();
            let stranger = 17;
            // Without FI_DIRECTED_RECV the source of a receive doesn't count.
            receiver.recv(Memory::new(1), exactly(stranger, 1), context).expect("posted");
            send(&sender, to, 1, b"x");
            let Entry { source, .. } = receiver.expect(context, 0);
            assert_eq!(source, if is_told { from } else { sys::FI_ADDR_NOTAVAIL });
        }
    });
}

#[test]
fn an_endpoint_takes_so_many_receives_at_a_time_as_it_was_opened_for() {
    alone(
        "messages::an_endpoint_takes_so_many_receives_at_a_time_as_it_was_opened_for",
        &[],
        |_| {
            let mut hints = Hints::default();
            hints.receive.size = 2;
            let (sender, to, receiver, _) = pair(&hints);
            let post = |context| receiver.recv(Memory::new(1), exactly(ANY, 1), context);
            let contexts = [Context::new(), Context::new()];
            post(contexts[0]).expect("posted");
            post(contexts[1]).expect("posted");
            assert_eq!(post(Context::new()), Err(sys::FI_EAGAIN));
            send(&sender, to, 1, b"x");
            receiver.expect(contexts[0], 0);
            post(Context::new()).expect("there is room again");
        },
    );
}

/// A long message's bytes come later than its match. Nobody can cancel that, and until then the
/// receive has its place in the endpoint.
#[test]
fn the_bytes_of_a_long_message_are_read_some_rounds_after_the_match() {
    let test = "messages::the_bytes_of_a_long_message_are_read_some_rounds_after_the_match";
    alone(test, &[("TAGMATCH_CXI_GET", "20")], |_| {
        let mut hints = Hints::default();
        hints.receive.size = 1;
        let (sender, to, receiver, from) = pair(&hints);
        let post_another = || receiver.recv(Memory::new(1), exactly(from, 2), Context::new());
        let into = Memory::new(20_000);
        let sent = Context::new();
        let context = Context::new();
        sender.send(Memory::of(&[7; 20_000]), to, 1, sent).expect("accepted");
        receiver.recv(into, exactly(from, 1), context).expect("posted");
        receiver.expect_silence(19);
        sender.expect_silence(5);
        assert_eq!(into.bytes(), [0xee; 20_000]);
        assert_eq!(receiver.cancel(context), Err(sys::FI_ENOENT));
        assert_eq!(post_another(), Err(sys::FI_EAGAIN));
        receiver.expect(context, 0);
        sender.expect(sent, 0);
        assert_eq!(into.bytes(), [7; 20_000]);
        post_another().expect("there is room again");
    });
}

#[test]
fn an_endpoint_that_is_not_enabled_moves_nothing() {
    alone("messages::an_endpoint_that_is_not_enabled_moves_nothing", &[], |_| {
        let node = Node::disabled(&Hints::default());
        let memory = Memory::new(1);
        let context = Context::new();
        let own = node.insert(&node.name());
        assert_eq!(node.send(memory, own, 1, context), Err(sys::FI_EOPBADSTATE));
        assert_eq!(node.recv(memory, exactly(ANY, 1), context), Err(sys::FI_EOPBADSTATE));
        assert_eq!(node.close_used(), [Err(sys::FI_EBUSY); 4]);
        node.close();
    });
}
