//! A forked child that drops its copies of workers and requests takes nothing from its parent.

use std::time::{Duration, Instant};

use tagmatch::{Config, Match, SharedWorker};

use crate::common::config;
use crate::common::fork::ends_in_a_forked_child;
use crate::pair::{Pair, bytes, pair_with};

#[test]
fn what_a_forked_child_drops_stays_its_parents() {
    drops_in_a_forked_child(&config());
}

#[cfg(feature = "model")]
#[test]
fn what_a_forked_child_drops_stays_its_parents_with_receives_in_a_nic() {
    let device = tagmatch::DeviceConfig::Shm(Default::default());
    let hw_tags = tagmatch::HwTags::Model(Default::default());
    drops_in_a_forked_child(
        &Config::default().device(device).hw_tags(hw_tags).hw_tags_threshold(0),
    );
}

fn drops_in_a_forked_child(config: &Config) {
    let p = pair_with(config);
    let shared = SharedWorker::new(config.clone()).unwrap();
    let mut thread = Some(shared.progress_thread().unwrap());
    const LARGE: usize = 1 << 20;
    // A receive that is posted, a message that waits, one that a probe holds, and a send under way.
    let mut posted = Some(p.b.recv(Match::tag(1), vec![0; LARGE]));
    p.a.inject(p.to_b, 2, &bytes(64)).unwrap();
    let mut large = Some(p.a.send(p.to_b, 3, bytes(LARGE)));
    p.probe(Match::tag(3));
    let mut message = p.b.mprobe(Match::tag(3)).unwrap();
    let mut pair = Some(p);
    let mut workers = Some(shared);
    assert!(ends_in_a_forked_child(|| {
        drop((posted.take(), message.take(), large.take()));
        drop((pair.take(), thread.take(), workers.take()));
    }));
    // The child dropped copies, so everything still works here.
    let p = pair.unwrap();
    let shared = workers.unwrap();
    for size in [0, 8, 1000, LARGE] {
        let back = p.a.recv(Match::tag(4).from(p.to_b), vec![0; size]);
        let send = p.b.send(p.to_a, 4, bytes(size));
        assert_eq!(p.ok(back).data(), bytes(size));
        p.ok(send);
    }
    let send = p.a.send(p.to_b, 1, bytes(LARGE));
    assert_eq!(p.ok(posted.unwrap()).data(), bytes(LARGE));
    p.ok(send);
    assert_eq!(p.ok(p.b.recv(Match::tag(2), vec![0; 64])).data(), bytes(64));
    let receive = message.unwrap().recv(vec![0; LARGE]);
    assert_eq!(p.ok(receive).data(), bytes(LARGE));
    p.ok(large.unwrap());
    assert!(p.a.peer_fault(p.to_b).unwrap().is_none() && p.b.peer_fault(p.to_a).unwrap().is_none());
    let me = shared.oneself();
    let receive = shared.recv(Match::tag(1), vec![0; 8]);
    shared.send(me, 1, bytes(8)).wait().unwrap();
    assert_eq!(receive.wait().unwrap().data(), bytes(8));
    drop(thread);
    // The end of b is still noticed.
    let Pair { a, b, to_b, .. } = p;
    drop(b);
    let start = Instant::now();
    while a.peer_fault(to_b).unwrap().is_none() {
        a.progress();
        assert!(start.elapsed() < Duration::from_secs(20), "not noticed");
    }
}
