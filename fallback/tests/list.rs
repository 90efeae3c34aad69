//! A NIC's list that answers late or breaks its rules: no message is lost, and a peer is known as
//! long as a receive in the NIC or a message that waits for the NIC has to do with it.

mod script;

use tagmatch_device::{Buffer, DownReason, PeerId, TagEvent};
use tagmatch_fallback::wire::{AppCtx, Control};
use tagmatch_fallback::{Engine, Fault, MatchEngine, PeerFault, RequestId};
use tagmatch_soft::SourceId;

use script::{
    REMEMBERED, Report, Script, any, arrive, eager, engine_with_list, is_forgotten, leave, pass_by,
    report, say,
};

const ROOM: usize = 5000;

/// A receive that the NIC has in its list: the first one has the handle 0.
fn offload(engine: &mut Engine<Script>, named: Option<PeerId>) -> RequestId {
    let pattern = named.map_or(any(5), |peer| any(5).from_source(SourceId(peer.0)));
    let receive =
        engine.receive_with(&pattern, Buffer::zeroed(ROOM), named.is_some(), None).unwrap();
    engine.progress();
    let handle = engine.device().list.as_ref().unwrap().entries.len() - 1;
    let entry = entry(engine, handle);
    report(engine, Report::List(TagEvent::Added { entry }));
    receive
}

fn entry(engine: &Engine<Script>, handle: usize) -> u32 {
    engine.device().list.as_ref().unwrap().entries[handle].0
}

/// The buffer that the NIC has for an entry.
fn buffer(engine: &mut Engine<Script>, handle: usize) -> Buffer {
    engine.device_mut().list.as_mut().unwrap().take(handle)
}

/// A delete has found the first entry.
fn delete_first(engine: &mut Engine<Script>) {
    assert_eq!(engine.device().list.as_ref().unwrap().deletes, [0]);
    let entry = entry(engine, 0);
    let buffer = Some(buffer(engine, 0));
    report(engine, Report::List(TagEvent::Deleted { entry, buffer }));
}

/// A peer goes down. Its number stays known while so many others go that it would be forgotten.
fn leaves_and_is_kept(engine: &mut Engine<Script>, peer: PeerId) {
    leave(engine, peer);
    pass_by(engine, 10 * REMEMBERED);
    assert_eq!(engine.peer_fault(peer), Some(PeerFault::Gone));
}

fn is_forgotten_at_last(engine: &mut Engine<Script>, peer: PeerId) -> bool {
    pass_by(engine, 10 * REMEMBERED);
    is_forgotten(engine, peer)
}

#[test]
fn a_receive_that_the_nic_gives_back_late_ends_with_the_fault_of_the_peer_that_it_names() {
    let mut engine = engine_with_list();
    let peer = arrive(&mut engine);
    let receive = offload(&mut engine, Some(peer));
    leaves_and_is_kept(&mut engine, peer);
    delete_first(&mut engine);
    let down = Fault::PeerDown { peer, fault: PeerFault::Gone };
    assert_eq!(engine.requests_mut().take(receive).unwrap().result, Err(down));
    assert!(is_forgotten_at_last(&mut engine, peer));
}

/// The NIC reports the failure first, and the device says only then why the peer is down.
#[test]
fn a_match_whose_data_never_comes_ends_with_the_reason_of_the_peers_end() {
    let mut engine = engine_with_list();
    let peer = arrive(&mut engine);
    let receive = offload(&mut engine, None);
    let entry = entry(&engine, 0);
    let tag = 5;
    let app_ctx = AppCtx::default().0;
    report(&mut engine, Report::List(TagEvent::Matched { entry, peer, tag, app_ctx }));
    let buffer = buffer(&mut engine, 0);
    report(&mut engine, Report::List(TagEvent::Failed { entry, buffer }));
    report(&mut engine, Report::DownFor(peer, DownReason::Unreachable { errno: 110 }));
    let ended = engine.requests_mut().take(receive).expect("it has ended");
    let fault = PeerFault::Unreachable { errno: 110 };
    assert_eq!((ended.result, ended.buffer.len()), (Err(Fault::PeerDown { peer, fault }), ROOM));
}

#[test]
fn the_peers_of_a_match_are_known_until_its_data_is_there() {
    for is_named in [true, false] {
        let mut engine = engine_with_list();
        let [named, peer] = [(); 2].map(|()| arrive(&mut engine));
        let receive = offload(&mut engine, is_named.then_some(named));
        let entry = entry(&engine, 0);
        let tag = 5;
        let app_ctx = AppCtx::default().0;
        report(&mut engine, Report::List(TagEvent::Matched { entry, peer, tag, app_ctx }));
        if is_named {
            leaves_and_is_kept(&mut engine, named);
        }
        leaves_and_is_kept(&mut engine, peer);
        let buffer = buffer(&mut engine, 0);
        let landed = TagEvent::Landed { entry, length: 7, immediate: None, buffer };
        report(&mut engine, Report::List(landed));
        let result = engine.requests_mut().take(receive).unwrap().result;
        if is_named {
            assert_eq!(result, Err(Fault::WrongSender { named, sender: peer }));
        } else {
            assert_eq!(result.map(|status| status.source), Ok(peer));
        }
        assert!(is_forgotten_at_last(&mut engine, peer));
        assert_eq!(is_forgotten(&engine, named), is_named);
    }
}

#[test]
fn the_peer_that_a_matched_receive_names_is_known_until_the_companion_is_there() {
    let mut engine = engine_with_list();
    let [named, peer] = [(); 2].map(|()| arrive(&mut engine));
    let receive = offload(&mut engine, Some(named));
    let app_ctx = AppCtx::default().of_rendezvous(true);
    let entry = entry(&engine, 0);
    let tag = 5;
    let matched = TagEvent::Matched { entry, peer, tag, app_ctx: app_ctx.0 };
    report(&mut engine, Report::List(matched));
    let buffer = buffer(&mut engine, 0);
    let landed = TagEvent::Landed { entry, length: 7, immediate: None, buffer };
    report(&mut engine, Report::List(landed));
    leaves_and_is_kept(&mut engine, named);
    let app_ctx = app_ctx.operation();
    let companion = Control::Companion { app_ctx, immediate: Some(1), has_length: false };
    report(&mut engine, Report::Message(peer, companion.emit().to_vec()));
    let wrong = Fault::WrongSender { named, sender: peer };
    assert_eq!(engine.requests_mut().take(receive).unwrap().result, Err(wrong));
    assert!(is_forgotten_at_last(&mut engine, named));
}

#[test]
fn the_sender_of_a_message_that_waits_for_the_nic_is_known_until_the_message_is_received() {
    let mut engine = engine_with_list();
    let peer = arrive(&mut engine);
    let receive = offload(&mut engine, None);
    // The NIC may have given the receive to an earlier message.
    say(&mut engine, peer, 5);
    assert!(!engine.requests().is_over(receive));
    leaves_and_is_kept(&mut engine, peer);
    delete_first(&mut engine);
    let status = engine.requests_mut().take(receive).unwrap().result.unwrap();
    assert_eq!((status.source, status.length), (peer, 7));
    assert!(is_forgotten_at_last(&mut engine, peer));
}

/// A message that the NIC has reported as unexpected goes to a receive that the NIC can't have
/// matched, but the NIC says that it has.
#[test]
fn a_message_whose_receive_the_nic_does_not_give_back_is_received_by_the_next_one() {
    for has_next in [true, false] {
        let mut engine = engine_with_list();
        let peer = arrive(&mut engine);
        engine.device_mut().list.as_mut().unwrap().keeps_buffers = true;
        let first = engine.receive(&any(5), Buffer::zeroed(ROOM)).unwrap();
        engine.progress();
        // A receive that names its sender is in no list.
        let named = any(5).from_source(SourceId(peer.0));
        let next = has_next.then(|| engine.receive(&named, Buffer::zeroed(8)).unwrap());
        report(&mut engine, Report::Unmatched(peer, eager(5)));
        assert_eq!(engine.counters().list_faults, 1);
        let failed = engine.requests_mut().take(first).unwrap();
        assert_eq!(failed.result, Err(Fault::DeviceFailed { status: 0 }));
        let next = next.unwrap_or_else(|| {
            assert_eq!(engine.probe(&any(5)).unwrap().unwrap().source, peer);
            engine.receive(&any(5), Buffer::zeroed(8)).unwrap()
        });
        let done = engine.requests_mut().take(next).unwrap();
        assert_eq!((done.result.unwrap().source, &done.buffer[..7]), (peer, &b"payload"[..]));
        assert_eq!(engine.counters().unexpected_now, 0);
    }
}
