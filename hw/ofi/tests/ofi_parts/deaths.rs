//! Deaths of peers, which no provider tells of: at every stage of a message, by SIGKILL.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use tagmatch_device::matching::{MatchingDevice, MatchingEvent, OperationError, Unfit};
use tagmatch_device::{Buffer, DownReason, PeerId};
use tagmatch_ofi::Ofi;
use tagmatch_testkit::device::{Other, hear_line, role, say};

use super::support::{exactly, ofi, providers, received, send_of, synchronous, wait};

const LARGE: usize = 20 << 20;

/// What the other process does, until it is killed: first the part, then the provider.
fn play(role: &str) -> ! {
    let (part, provider) = role.split_once(' ').unwrap();
    let mut ofi = ofi(provider);
    say(ofi.address());
    let peer = wait(&mut [&mut ofi], "the parent", |_, event| match event {
        MatchingEvent::PeerUp { peer } => Some(peer),
        _ => None,
    });
    match part {
        "idle" => {}
        "takes" => ofi.receive(exactly(4, None), Buffer::zeroed(LARGE), 1).unwrap(),
        "sends" => drop(ofi.send(send_of(peer, 1, &vec![1; LARGE])).unwrap()),
        "eager" => {
            for number in 0..50u8 {
                ofi.send(send_of(peer, 1, &vec![number; usize::from(number) * 100])).unwrap();
            }
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                ofi.poll();
            }
            say("sent");
            hear_line();
        }
        other => panic!("{other}"),
    }
    loop {
        ofi.poll();
    }
}

/// A child that plays a part, connected.
fn serve(test: &str, part: &str, provider: &str) -> (Other, Ofi, PeerId) {
    let role = format!("{part} {provider}");
    let mut other = Other::spawn(&format!("ofi_parts::deaths::{test}"), &role);
    let mut ofi = ofi(provider);
    let peer = ofi.connect(&other.hear_address()).unwrap();
    wait(&mut [&mut ofi], "the child", |_, event| match event {
        MatchingEvent::PeerUp { peer: up } if up == peer => Some(()),
        other => panic!("{other:?}"),
    });
    (other, ofi, peer)
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn a_killed_peer_ends_what_depends_on_it_and_nothing_else() {
    if let Some(role) = role() {
        play(&role);
    }
    for provider in providers() {
        let test = "a_killed_peer_ends_what_depends_on_it_and_nothing_else";
        let (mut other, mut ofi, peer) = serve(test, "idle", &provider);
        // Lent memory comes back itself, although libfabric never gives a send to the dead back.
        let mut lent = vec![5u8; LARGE];
        let start = NonNull::new(lent.as_mut_ptr()).unwrap();
        // SAFETY: the memory stays until the send has ended, and nobody looks at it before.
        let loan = unsafe { Buffer::from_raw(start, LARGE, true) };
        ofi.receive(exactly(1, Some(peer)), Buffer::zeroed(8), 1).unwrap();
        ofi.receive(exactly(2, None), Buffer::zeroed(8), 2).unwrap();
        ofi.send(synchronous(peer, 3, b"short".to_vec().into())).unwrap();
        ofi.send(synchronous(peer, 4, loan)).unwrap();
        ofi.send(synchronous(peer, 5, vec![1; LARGE].into())).unwrap();
        for _ in 0..1000 {
            let event = ofi.poll();
            assert!(event.is_none(), "{provider}: {event:?}");
        }
        other.kill();
        let mut ended = Vec::new();
        wait(&mut [&mut ofi], "its death", |_, event| match event {
            MatchingEvent::Received { token, result: Err(error), .. } => {
                assert_eq!(error, OperationError::PeerDown(peer));
                ended.push(token);
                None
            }
            MatchingEvent::Sent { token, result: Err(error), buffer } => {
                assert_eq!(error, OperationError::PeerDown(peer));
                assert!(token != 4 || buffer.as_ptr() == start.as_ptr(), "{provider}");
                ended.push(token);
                None
            }
            MatchingEvent::PeerDown { peer: down, reason } => {
                assert_eq!((down, reason), (peer, DownReason::Gone));
                Some(())
            }
            other => panic!("{other:?}"),
        });
        ended.sort_unstable();
        assert_eq!(ended, [1, 3, 4, 5], "{provider}");
        assert_eq!(ofi.send(send_of(peer, 1, b"x")).unwrap_err().1, Unfit::Down);
        let named = exactly(1, Some(peer));
        assert_eq!(ofi.receive(named, Buffer::zeroed(1), 1).unwrap_err().1, Unfit::Down);
        ofi.send(send_of(PeerId::ONESELF, 2, b"posted")).unwrap();
        let (length, _) = wait(&mut [&mut ofi], "the rest", |_, event| received(event, 2));
        assert_eq!(length, Ok(6), "{provider}");
    }
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn what_a_killed_peer_had_sent_can_be_received() {
    if let Some(role) = role() {
        play(&role);
    }
    for provider in providers().into_iter().filter(|provider| provider != "net") {
        let (mut other, mut ofi, peer) =
            serve("what_a_killed_peer_had_sent_can_be_received", "eager", &provider);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(600) {
            assert!(ofi.poll().is_none());
        }
        assert_eq!(other.hear(), "sent");
        other.kill();
        wait(&mut [&mut ofi], "its death", |_, event| {
            matches!(event, MatchingEvent::PeerDown { peer: down, .. } if down == peer)
                .then_some(())
        });
        // What is longer than 4096 bytes, these read out of its sender, who is gone.
        let reads = provider == "shm" || provider == "sm2";
        for number in 0..if reads { 41 } else { 50 } {
            ofi.receive(exactly(1, None), Buffer::zeroed(5000), number.into()).unwrap();
            let (length, buffer) =
                wait(&mut [&mut ofi], "it", |_, event| received(event, number.into()));
            assert_eq!(length, Ok(u64::from(number) * 100), "{provider}");
            assert!(buffer[..usize::from(number) * 100].iter().all(|byte| *byte == number));
        }
    }
}

/// Over `tcp;ofi_rxm`, a death in a rendezvous of the provider's own would end this process.
#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn a_peer_that_is_killed_midway_leaves_a_defined_end() {
    if let Some(role) = role() {
        play(&role);
    }
    for provider in providers() {
        for (part, polls) in [
            ("sends", 1),
            ("sends", 100),
            ("sends", 2000),
            ("sends", 10_000),
            ("takes", 1),
            ("takes", 100),
            ("takes", 2000),
            ("takes", 10_000),
        ] {
            let (mut other, mut ofi, peer) =
                serve("a_peer_that_is_killed_midway_leaves_a_defined_end", part, &provider);
            ofi.receive(exactly(1, None), Buffer::zeroed(LARGE), 1).unwrap();
            ofi.send(synchronous(peer, 4, vec![1; LARGE].into())).unwrap();
            let (mut received, mut sent) = (Vec::new(), Vec::new());
            let mut note = |event| match event {
                MatchingEvent::Received { token: 1, result, .. } => received.push(result),
                MatchingEvent::Sent { token: 4, result, .. } => sent.push(result),
                MatchingEvent::PeerDown { peer: down, .. } => assert_eq!(down, peer),
                other => panic!("{other:?}"),
            };
            for _ in 0..polls {
                ofi.poll().into_iter().for_each(&mut note);
            }
            other.kill();
            wait(&mut [&mut ofi], "its death", |_, event| {
                let is_down = matches!(event, MatchingEvent::PeerDown { .. });
                note(event);
                is_down.then_some(())
            });
            let down = Err(OperationError::PeerDown(peer));
            assert!(sent == [Ok(())] || sent == [down], "{provider} {part} {polls}: {sent:?}");
            match received[..] {
                [Ok(envelope)] => assert_eq!(envelope.length, LARGE as u64),
                [Err(error)] => assert_eq!(error, OperationError::PeerDown(peer)),
                // Killed before anything came: it waits for another.
                [] => assert!(ofi.cancel(1)),
                _ => panic!("{provider} {part} {polls}: {received:?}"),
            }
        }
    }
}
