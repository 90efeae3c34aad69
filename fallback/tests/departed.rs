//! Peers that went down are forgotten once nothing of them is left, their numbers are given again,
//! and an old number is an error.

mod script;

use std::sync::mpsc::channel;

use tagmatch_device::{Buffer, PeerId};
use tagmatch_fallback::wire::Control;
use tagmatch_fallback::{
    Decision, Engine, Fault, FlushEngine, MatchEngine, PeerFault, Posted, Send, SendMode, Started,
};
use tagmatch_soft::{SourceId, Tag};

use script::{REMEMBERED, Report, Script, any, arrive, engine, is_forgotten, leave, pass_by, say};

fn refusal(posted: Posted) -> Fault {
    posted.map(drop).unwrap_err().fault
}

#[test]
fn any_number_of_peers_come_and_go_in_few_places() {
    let mut engine = engine();
    // An index has 4095 generations.
    assert!(pass_by(&mut engine, 50_000) <= 2 * REMEMBERED + 50_000 / 4095);
    let known = engine.counters();
    assert!(known.peers_forgotten >= 50_000 - 2 * REMEMBERED as u64);
    assert_eq!(known.peer_faults, 50_000);
    let told = engine.snapshot(usize::MAX).peers;
    assert!(told.len() <= 2 * REMEMBERED + 1, "a snapshot names {} peers", told.len());
    engine.device_mut().keeps_all = true;
    assert!(pass_by(&mut engine, 100) > 50, "a device may keep numbers");
}

#[test]
fn the_last_peers_are_remembered_with_their_reasons() {
    let mut engine = engine();
    pass_by(&mut engine, 100);
    let last: Vec<_> = (0..REMEMBERED).map(|_| arrive(&mut engine)).collect();
    last.iter().for_each(|peer| leave(&mut engine, *peer));
    for peer in last {
        assert_eq!(engine.peer_fault(peer), Some(PeerFault::Gone));
    }
}

#[test]
fn a_watcher_is_told_of_peers_that_come_and_go() {
    let mut engine = engine();
    let (teller, told) = channel();
    engine.watch_decisions(Box::new(move |decision| teller.send(decision).unwrap()));
    let peer = arrive(&mut engine);
    leave(&mut engine, peer);
    let due = [Decision::PeerUp(peer), Decision::PeerDown(peer, PeerFault::Gone)];
    assert_eq!(told.try_iter().collect::<Vec<_>>(), due);
}

#[test]
fn an_old_number_is_an_error_and_its_successor_is_not_touched() {
    let mut engine = engine();
    let old = arrive(&mut engine);
    leave(&mut engine, old);
    pass_by(&mut engine, 2 * REMEMBERED);
    assert!(is_forgotten(&engine, old));
    // A peer with the same index.
    let mut new = arrive(&mut engine);
    while new.index() != old.index() {
        leave(&mut engine, new);
        new = arrive(&mut engine);
    }
    assert!(new != old && is_forgotten(&engine, old) && engine.peer_fault(new).is_none());
    let down = Fault::PeerDown { peer: old, fault: PeerFault::Forgotten };
    let payload = || Buffer::from(vec![1; 8]);
    assert!(!engine.inject_at_once(Send::new(old, Tag(1), &[1; 8])));
    for mode in [SendMode::Standard, SendMode::Synchronous] {
        match engine.send(Send::new(old, Tag(1), payload()), mode) {
            Started::Refused(refused) => assert_eq!(refused.fault, down),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(engine.inject(Send::new(old, Tag(1), &[1; 8]), u64::MAX), Err(down));
    let of_old = any(1).from_source(SourceId(old.0));
    assert_eq!(refusal(engine.receive(&of_old, payload())), down);
    assert_eq!(engine.source_fault(&of_old), Some(down));
    // A message of the new peer is none of the old one.
    say(&mut engine, new, 1);
    assert_eq!(engine.probe(&of_old).unwrap(), None);
    assert_eq!(refusal(engine.receive(&of_old, payload())), down);
    assert_eq!(engine.probe(&any(1)).unwrap().unwrap().source, new);
    let credit = Control::Credit { messages: 5, bytes: 5000 }.emit().to_vec();
    engine.device_mut().reports.push_back(Report::Message(new, credit));
    engine.progress();
    assert!(!engine.inject_at_once(Send::new(old, Tag(1), &[1; 8])), "with credit of the new one");
    engine.disconnect(old);
    assert!(!engine.has_lost_messages(old));
    assert_eq!((&engine.device().sent_to, &engine.device().disconnected), (&vec![], &vec![]));
    assert!(matches!(
        engine.send(Send::new(new, Tag(1), payload()), SendMode::Standard),
        Started::Sent(_)
    ));
    assert_eq!(engine.device().sent_to, [new]);
    let unknown = PeerId::first(1000);
    assert_eq!(
        engine.source_fault(&any(1).from_source(SourceId(unknown.0))),
        Some(Fault::NoSuchPeer { peer: unknown })
    );
}

/// What can be left of a peer, and how it goes.
#[test]
fn a_peer_of_which_something_is_left_is_kept_until_it_is_gone() {
    type Step = fn(&mut Engine<Script>, PeerId) -> Box<dyn FnOnce(&mut Engine<Script>)>;
    let cases: [(&str, Step); 5] = [
        ("a message that waits", |engine, peer| {
            say(engine, peer, 5);
            Box::new(|engine| {
                let request = engine.receive(&any(5), Buffer::zeroed(100)).unwrap();
                assert!(engine.requests_mut().take(request).unwrap().result.is_ok());
            })
        }),
        ("a message that a probe took", |engine, peer| {
            say(engine, peer, 5);
            let (message, _) = engine.matched_probe(&any(5)).unwrap().unwrap();
            Box::new(move |engine| assert!(engine.discard_message(message)))
        }),
        ("a result that was not taken", |engine, peer| {
            let request = engine.receive(&any(5), Buffer::zeroed(100)).unwrap();
            say(engine, peer, 5);
            Box::new(move |engine| {
                assert!(engine.requests_mut().take(request).unwrap().result.is_ok());
            })
        }),
        ("an error that was not taken", |engine, peer| {
            let named = any(5).from_source(SourceId(peer.0));
            let request = engine.receive(&named, Buffer::zeroed(100)).unwrap();
            Box::new(move |engine| {
                assert!(engine.requests_mut().take(request).unwrap().result.is_err());
            })
        }),
        ("lost messages that no flush has told of", |engine, _| {
            engine.device_mut().lost = 3;
            Box::new(|engine| {
                assert!(!engine.take_lost().is_empty());
                engine.device_mut().lost = 0;
            })
        }),
    ];
    for (what, left) in cases {
        let mut engine = engine();
        let peer = arrive(&mut engine);
        let take = left(&mut engine, peer);
        assert_eq!(engine.peer_fault(peer), None, "{what}");
        leave(&mut engine, peer);
        pass_by(&mut engine, 10 * REMEMBERED);
        assert_eq!(engine.peer_fault(peer), Some(PeerFault::Gone), "{what}");
        take(&mut engine);
        pass_by(&mut engine, 10 * REMEMBERED);
        assert!(is_forgotten(&engine, peer), "{what}");
    }
}

#[test]
fn ends_of_peers_in_the_completion_queue_keep_their_peers() {
    let mut engine = engine();
    engine.requests_mut().tell_peers();
    let peers: Vec<_> = (0..10 * REMEMBERED)
        .map(|_| {
            let peer = arrive(&mut engine);
            leave(&mut engine, peer);
            peer
        })
        .collect();
    assert!(peers.iter().all(|peer| engine.peer_fault(*peer) == Some(PeerFault::Gone)));
    let mut ends = Vec::new();
    engine.requests_mut().take_ends(&mut ends);
    assert_eq!(ends.len(), 2 * peers.len());
    pass_by(&mut engine, 200);
}

#[test]
fn a_flush_that_is_under_way_ends_though_its_peers_are_forgotten() {
    let mut engine = engine();
    let peers: Vec<_> = (0..3).map(|_| arrive(&mut engine)).collect();
    let mut flushing = engine.begin_flush();
    peers.iter().for_each(|peer| leave(&mut engine, *peer));
    pass_by(&mut engine, 10 * REMEMBERED);
    assert!(peers.iter().all(|peer| is_forgotten(&engine, *peer)));
    // Their successors are none of the flush's business.
    let request = (0..3 * REMEMBERED).map(|_| arrive(&mut engine)).collect::<Vec<_>>();
    for peer in request {
        let _ =
            engine.send(Send::new(peer, Tag(1), Buffer::from(vec![1; 8])), SendMode::Synchronous);
    }
    assert!(engine.is_flushed(&mut flushing));
}

#[test]
fn an_engine_that_is_closed_while_it_is_armed_disarms_its_device() {
    let mut engine = engine();
    assert!(engine.arm());
    assert!(engine.device().is_armed);
    engine.close();
    assert!(!engine.device().is_armed);
}
