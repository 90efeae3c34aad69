//! One-sided operations between engines on a network of queues.

mod wire;

use tagmatch_device::{Buffer, RegionPlace};
use tagmatch_fallback::{MatchEngine, RemoteAction, RemoteOperation, Rights, RmaEngine};

use wire::{config, meet, nodes, settle};

#[test]
fn no_thread_may_sleep_while_a_put_has_room_and_waits_for_its_turn() {
    let (net, mut nodes) = nodes(2, &config());
    net.borrow_mut().capacity = 1000;
    let peer = meet(&mut nodes, 0, 1);
    settle(&mut nodes);
    let key = nodes[1].expose_region(Buffer::zeroed(1 << 20), Rights::WRITE).unwrap();
    assert!(nodes[0].arm(), "nothing to do yet");
    let action = RemoteAction::Put { from: vec![7; 1 << 20].into(), notice: None };
    let place = RegionPlace::default();
    let operation = RemoteOperation { peer, key, place, offset: 0, action };
    let put = nodes[0].begin_remote(operation).unwrap();
    let mut turns = 0;
    while !nodes[0].arm() {
        nodes[0].progress();
        turns += 1;
        assert!(turns < 100, "hangs");
    }
    assert!(turns > 10, "only {turns} turns");
    // All has gone out: only the answer is missing, which wakes the thread.
    settle(&mut nodes);
    assert!(nodes[0].requests_mut().take(put).unwrap().result.is_ok());
    assert_eq!(nodes[1].close_region(key).unwrap()[..], vec![7; 1 << 20]);
}

#[test]
fn memory_that_a_peer_may_write_is_never_given_back() {
    let (net, mut nodes) = nodes(1, &config());
    for has_late_writers in [false, true] {
        net.borrow_mut().has_late_writers = has_late_writers;
        let memory = Buffer::from(vec![7; 100]);
        let address = memory.as_ptr().addr();
        let key = nodes[0].expose_region(memory, Rights::ALL).unwrap();
        let back = nodes[0].close_region(key).unwrap();
        assert_eq!(back[..], [7; 100]);
        assert_eq!(back.as_ptr().addr() != address, has_late_writers);
    }
}
