//! What the public documentation promises about receives that a NIC may match, with a model NIC.

use std::time::{Duration, Instant};

use tagmatch::model::ModelConfig;
use tagmatch::{Config, Error, HwTags, Match, Peer, Worker};

struct World {
    honest: Worker,
    liar: Worker,
    /// The receiver, which has a NIC, and the numbers by which it and the two senders know each
    /// other.
    at: Worker,
    from: [Peer; 2],
    to: [Peer; 2],
}

impl World {
    fn new() -> Self {
        let hw_tags = HwTags::Model(ModelConfig::default());
        let config = Config::default().hw_tags(hw_tags).hw_tags_threshold(0);
        let at = Worker::new(config).unwrap();
        let [honest, liar] = [(); 2].map(|()| Worker::new(Config::default()).unwrap());
        let from = [&honest, &liar].map(|worker| at.connect(&worker.address()).unwrap());
        let to = [&honest, &liar].map(|worker| worker.connect(&at.address()).unwrap());
        let world = World { honest, liar, at, from, to };
        for sender in 0..2 {
            world.send(sender, 0, b"");
            world.work_until(|at| at.probe(Match::tag(0)).unwrap().is_some());
            world.at.recv(Match::tag(0), vec![]).wait().unwrap();
        }
        world
    }

    fn send(&self, sender: usize, tag: u64, data: &[u8]) {
        let worker = [&self.honest, &self.liar][sender];
        worker.inject(self.to[sender], tag, data).unwrap();
    }

    fn progress(&self) {
        self.honest.progress();
        self.liar.progress();
        self.at.progress();
    }

    fn work_until(&self, is_over: impl Fn(&Worker) -> bool) {
        let begun = Instant::now();
        while !is_over(&self.at) {
            assert!(begun.elapsed() < Duration::from_secs(60), "never");
            self.progress();
        }
    }

    /// Makes progress until the NIC has added the receives that it was given.
    fn work(&self) {
        for _ in 0..1000 {
            self.progress();
        }
    }
}

/// Messages of these lengths go out in fragments to a worker without a NIC's list, and would come
/// past the list.
#[test]
fn a_message_of_middle_size_goes_through_the_list_of_the_nic() {
    let w = World::new();
    let before = w.at.counters().hardware;
    for (tag, length) in (1..).zip([8193, 9000, 12_000, 16_000]) {
        let receive = w.at.recv(Match::tag(tag).sent_only_by(w.from[0]), vec![0; length]);
        w.work();
        w.send(0, tag, &vec![7; length]);
        w.work_until(|at| at.counters().hardware == before + tag);
        let mut receive = receive;
        while receive.test().is_none() {
            w.progress();
        }
    }
    assert_eq!(w.honest.counters().fragmented_sent, 0);
}

#[test]
fn a_receive_whose_tag_one_peer_sends_is_matched_by_the_nic() {
    for (which, matched) in
        [(Match::from as fn(Match, Peer) -> Match, 0), (Match::sent_only_by, 100)]
    {
        let w = World::new();
        let before = w.at.counters().hardware;
        let receive = |tag| w.at.recv(which(Match::tag(tag), w.from[0]), vec![0; 4]);
        let receives: Vec<_> = (1..=100).map(receive).collect();
        w.work();
        (1..=100).for_each(|tag| w.send(0, tag, b"data"));
        for receive in receives {
            assert_eq!(receive.wait().unwrap().data(), b"data");
        }
        assert_eq!(w.at.counters().hardware - before, matched);
    }
}

#[test]
fn a_message_of_another_peer_is_an_error_that_names_both() {
    let w = World::new();
    let which = Match::tag(7).sent_only_by(w.from[0]);
    let [first, second] = [(); 2].map(|()| w.at.recv(which, vec![0; 4]));
    w.work();
    w.send(1, 7, b"lies");
    let failed = first.wait().unwrap_err();
    let Error::WrongSender { named, sender } = failed.error else { panic!("{failed}") };
    assert!(named == w.from[0] && sender == w.from[1] && failed.buffer.len() == 4);
    w.send(0, 7, b"data");
    assert_eq!(second.wait().unwrap().data(), b"data");
    assert!(w.at.peer_fault(sender).unwrap().is_none());
}

#[test]
fn it_ends_with_its_peer_and_by_a_cancel() {
    let w = World::new();
    let which = Match::tag(7).sent_only_by(w.from[0]);
    let [mut cancelled, named] = [(); 2].map(|()| w.at.recv(which, vec![0; 4]));
    w.work();
    cancelled.cancel();
    assert!(matches!(cancelled.wait().unwrap_err().error, Error::Cancelled));
    w.at.disconnect(w.from[0]).unwrap();
    let failed = named.wait().unwrap_err();
    assert!(matches!(failed.error, Error::PeerDown { peer, .. } if peer == w.from[0]), "{failed}");
}

#[test]
fn of_oneself_it_is_matched_by_software() {
    let w = World::new();
    let receive = w.at.recv(Match::tag(7).sent_only_by(w.at.oneself()), vec![0; 4]);
    w.at.inject(w.at.oneself(), 7, b"data").unwrap();
    assert_eq!(receive.wait().unwrap().data(), b"data");
    assert_eq!(w.at.counters().not_offloaded.source, 1);
}
