//! Messages: matching, order, lengths, sources, other processes.

use tagmatch_ofi_sys as sys;

use crate::client::{Context, Memory, Node};
use crate::process::{alone, publish, start, wait_for};

const ANY: u64 = sys::FI_ADDR_UNSPEC;
const TAGGED_RECEIVE: u64 = sys::FI_RECV | sys::FI_TAGGED;

#[test]
fn a_message_reaches_another_process() {
    alone("messages::a_message_reaches_another_process", &[], |role| {
        let node = Node::new();
        if role == "peer" {
            let parent = node.insert(&wait_for("parent"));
            publish("peer", &node.name());
            let (short, long) = (Context::new(), Context::new());
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
        let (short, long) = (Memory::new(16), Memory::new(100_000));
        let contexts = [Context::new(), Context::new()];
        node.recv(long, ANY, 8, 0, contexts[1]).expect("posted");
        node.recv(short, peer, 7, 0, contexts[0]).expect("posted");
        let entry = node.expect(contexts[0], 0);
        assert_eq!((entry.length, entry.tag, entry.source), (5, 7, peer));
        assert_eq!((entry.flags, &short.bytes()[..6]), (TAGGED_RECEIVE, &b"short\xee"[..]));
        assert_eq!(node.expect(contexts[1], 0).length, 100_000);
        assert_eq!(long.bytes(), [0x5a; 100_000]);
        assert!(child.wait().expect("it is ours").success());
        node.close();
    });
}
