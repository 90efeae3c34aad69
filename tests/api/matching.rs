//! Which receive or probe gets which message.

use std::sync::Arc;

use tagmatch::observe::Pattern;
use tagmatch::observe::{Envelope, ListObserver};
use tagmatch::{Buffer, Error, Fault, HwTags, Match, TagMask, Worker};

use crate::common::{Ability, config, has};
use crate::pair::{SIZES, bytes, pair};

#[test]
fn wildcards_take_messages_in_post_and_arrival_order() {
    let p = pair();
    let layout = config().layout;
    let tag = |t: u64| layout.pack(3, 0, t).unwrap();
    let any_tag = Match::masked(tag(0), TagMask(layout.context_mask().0 | layout.source_mask().0));
    let first = p.b.recv(any_tag, vec![0; 1]);
    let exact = p.b.recv(Match::tag(tag(5)), vec![0; 1]);
    let last = p.b.recv(Match::any().from(p.to_a), vec![0; 1]);
    for i in 0..3u8 {
        p.a.inject(p.to_b, tag(5), &[i]).unwrap();
    }
    for (i, request) in [first, exact, last].into_iter().enumerate() {
        assert_eq!(p.ok(request).data(), [i as u8]);
    }
    // Among unexpected messages the oldest match is taken, whatever the pattern.
    for i in 0..3u8 {
        p.a.inject(p.to_b, tag(6 + u64::from(i % 2)), &[10 + i]).unwrap();
    }
    p.all_arrive();
    if has(Ability::Counts) {
        assert_eq!(p.b.counters().unexpected_now, 3);
    }
    assert_eq!(p.ok(p.b.recv(Match::tag(tag(7)), vec![0; 1])).data(), [11]);
    assert_eq!(p.ok(p.b.recv(any_tag, vec![0; 1])).data(), [10]);
    assert_eq!(p.ok(p.b.recv(Match::any(), vec![0; 1])).data(), [12]);
}

#[test]
fn a_receive_that_names_its_source_waits_for_it() {
    let p = pair();
    let c = Worker::new(config()).unwrap();
    let c_to_b = c.connect(&p.b.address()).unwrap();
    let from_a = p.b.recv(Match::tag(1).from(p.to_a), vec![0; 1]);
    c.inject(c_to_b, 1, &[3]).unwrap();
    while p.b.probe(Match::tag(1)).unwrap().is_none() {
        c.progress();
        p.progress();
    }
    p.a.inject(p.to_b, 1, &[1]).unwrap();
    assert_eq!(p.ok(from_a).data(), [1]);
    // A message from a worker that b never connected to is matched by an any-source receive, and
    // names its sender.
    let received = p.ok(p.b.recv(Match::tag(1), vec![0; 1]));
    assert_eq!(received.data(), [3]);
    assert_eq!(p.b.connect(&c.address()).unwrap(), received.status.source);
    assert_eq!(p.b.peer_address(received.status.source).unwrap(), c.address());
}

#[test]
fn thousands_of_unexpected_messages_of_one_tag_keep_their_order() {
    let p = pair();
    let sends: Vec<_> =
        (0..5000u32).map(|i| p.a.send(p.to_b, 4, i.to_le_bytes().to_vec())).collect();
    let mut receives: Vec<_> = (0..5000).map(|_| p.b.recv(Match::tag(4), vec![0; 4])).collect();
    for (i, receive) in receives.drain(..).enumerate() {
        assert_eq!(p.ok(receive).data(), (i as u32).to_le_bytes());
    }
    for send in sends {
        p.ok(send);
    }
}

#[test]
fn matched_messages_are_received_in_any_order() {
    let p = pair();
    let sends = [p.a.send_sync(p.to_b, 1, bytes(10)), p.a.send_sync(p.to_b, 1, bytes(50_000))];
    p.all_arrive();
    let first = p.b.mprobe(Match::any()).unwrap().unwrap();
    let second = p.b.mprobe(Match::tag(1)).unwrap().unwrap();
    assert!(p.b.mprobe(Match::any()).unwrap().is_none());
    assert_eq!(p.b.probe(Match::any()).unwrap(), None);
    assert_eq!((first.status().length, second.status().length), (10, 50_000));
    assert_eq!(p.ok(second.recv(vec![0; 50_000])).data(), bytes(50_000));
    let [mut first_send, second_send] = sends;
    p.ok(second_send);
    assert!(first_send.test().is_none(), "complete though only probed");
    let short = p.ok(first.recv(vec![0; 4]));
    assert!(short.status.truncated);
    p.ok(first_send);
}

#[test]
fn the_sender_of_a_message_that_is_dropped_or_whose_receive_is_refused_completes() {
    let p = pair();
    for size in SIZES {
        for drop_how in 0..4 {
            let send = p.a.send_sync(p.to_b, 1, bytes(size));
            p.probe(Match::tag(1));
            let message = p.b.mprobe(Match::tag(1)).unwrap().unwrap();
            let read_only = || Buffer::from(Arc::<[u8]>::from(vec![0; size]));
            let error = match drop_how {
                0 => Some(p.end(message.recv(read_only())).unwrap_err().error),
                1 => Some(message.recv_queued(read_only(), 1).unwrap_err().error),
                2 => {
                    message.discard();
                    None
                }
                _ => {
                    drop(message);
                    None
                }
            };
            let is_refusal = |error| matches!(error, Error::Operation(Fault::ReadOnlyBuffer));
            assert!(error.is_none_or(is_refusal));
            p.ok(send);
        }
    }
}

#[test]
fn a_message_is_received_whole_whatever_its_length() {
    let p = pair();
    for size in SIZES {
        let send = p.a.send(p.to_b, 1, bytes(size));
        p.probe(Match::tag(1));
        let received = p.ok(p.b.mprobe(Match::tag(1)).unwrap().unwrap().recv_whole());
        assert_eq!((received.buffer.into_vec(), received.status.truncated), (bytes(size), false));
        p.ok(send);
    }
    let me = p.b.oneself();
    p.b.inject(me, 2, &bytes(64)).unwrap();
    let received = p.b.recv_whole_blocking(Match::tag(2)).unwrap();
    assert_eq!((received.buffer.into_vec(), received.status.source), (bytes(64), me));
    assert!(p.b.recv_whole_blocking(Match::any().from(p.to_b)).is_err());
}

#[test]
fn a_dropped_message_releases_its_sender() {
    let p = pair();
    for size in [10, 50_000] {
        let send = p.a.send_sync(p.to_b, 1, bytes(size));
        p.probe(Match::any());
        drop(p.b.mprobe(Match::any()).unwrap().unwrap());
        p.ok(send);
        assert_eq!(p.b.probe(Match::any()).unwrap(), None);
    }
    assert_eq!(p.b.counters().discarded, 2);
    assert_eq!(p.b.counters().unexpected_bytes_now, 0);
}

#[test]
fn up_to_8_kib_go_at_once_and_a_nic_matches_them() {
    if !has(Ability::Counts) {
        return;
    }
    let has_nic = !matches!(config().hw_tags, HwTags::Off);
    let p = pair();
    for length in [4096, 8192] {
        let which = Match::tag(7).sent_only_by(p.to_a);
        let receive = p.b.recv(which, vec![0; length]);
        // A NIC's list takes the receive before the message comes.
        (0..1000).for_each(|_| p.progress());
        let before = [p.a.counters(), p.b.counters()];
        let sent = p.a.send(p.to_b, 7, bytes(length));
        assert!(p.ok(receive).data() == bytes(length));
        p.ok(sent);
        let after = [p.a.counters(), p.b.counters()];
        assert_eq!(after[0].eager_sent - before[0].eager_sent, 1, "{length} bytes");
        assert_eq!(after[0].rendezvous_sent, before[0].rendezvous_sent, "{length} bytes");
        assert_eq!(after[1].hardware - before[1].hardware, u64::from(has_nic), "{length} bytes");
    }
}

/// An observer that notes nothing.
struct Deaf;

impl ListObserver for Deaf {
    fn source_bits(&mut self, _: TagMask) {}
    fn posted(&mut self, _: u32, _: &Pattern, _: u64, _: bool) {}
    fn found(&mut self, _: u32, _: &Pattern, _: u64, _: bool) {}
    fn matched(&mut self, _: u32, _: &Envelope, _: bool) {}
    fn unexpected(&mut self, _: u32, _: &Envelope) {}
    fn taken(&mut self, _: u32, _: bool) {}
    fn length(&mut self, _: u32, _: u64) {}
    fn withdrawn(&mut self, _: u32) {}
    fn cancelled_late(&mut self, _: u32) {}
    fn probed(&mut self, _: Option<u32>, _: &Pattern) {}
    fn held(&mut self, _: Option<u32>, _: &Pattern) {}
    fn received(&mut self, _: u32, _: u64) {}
    fn discarded(&mut self, _: u32) {}
    fn lost(&mut self, _: u32) {}
}

#[test]
fn lists_can_be_observed_where_they_are_tagmatchs_own() {
    let observed = Worker::new(config()).unwrap().observe(Box::new(Deaf));
    assert_eq!(observed.is_ok(), has(Ability::Observes), "{observed:?}");
    if let Err(error) = observed {
        assert!(error.to_string().contains("UCX and libfabric match by themselves"), "{error}");
    }
}
