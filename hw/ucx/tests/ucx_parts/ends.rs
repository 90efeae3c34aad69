//! Ends: of a peer that is killed, of a connection, of a device with much under way.

use std::time::{Duration, Instant};

use tagmatch_device::matching::{MatchingDevice, MatchingEvent, OperationError, Unfit};
use tagmatch_device::{Buffer, DownReason, PeerId};
use tagmatch_ucx::Ucx;

use super::support::{
    config, down, end_of, exactly, expect, message_of, pair, pattern_of, poll_for, receive,
    send_of, synchronous, transports, ucx, ucx_with, wait, wait_until,
};
use crate::common::{self, Other, role, say};

/// How long a child looks before it goes silent.
const TALK: Duration = Duration::from_millis(300);
const LARGE: usize = 20 << 20;

/// What the other process does, until it is killed: first the part, then the transports.
fn play(role: &str) -> ! {
    let (part, tls) = role.split_once(' ').unwrap();
    let mut ucx = ucx(tls);
    say(ucx.address());
    let peer = wait(&mut [&mut ucx], "the parent", |_, event| match event {
        MatchingEvent::PeerUp { peer } => Some(peer),
        _ => None,
    });
    match part {
        "idle" => {}
        "eager" => {
            for number in 0..50u8 {
                ucx.send(send_of(peer, 1, &vec![number; usize::from(number) * 100])).unwrap();
            }
            go_silent(&mut ucx);
        }
        "rendezvous" => {
            ucx.send(send_of(peer, 1, &vec![1; LARGE])).unwrap();
            go_silent(&mut ucx);
        }
        // Goes on as far as the parent lets it.
        "midway" => {
            ucx.send(send_of(peer, 1, &vec![1; LARGE])).unwrap();
        }
        "drop" => {
            for number in 0..50u8 {
                let _ = ucx.send(send_of(peer, 1, &vec![number; usize::from(number) * 100]));
            }
            drop(ucx);
            say("dropped");
            common::hear_line();
            std::process::exit(0);
        }
        other => panic!("{other}"),
    }
    loop {
        ucx.poll();
    }
}

/// Polls long enough for a connection of UCX's own, then no more.
fn go_silent(ucx: &mut Ucx) {
    let start = Instant::now();
    while start.elapsed() < TALK {
        ucx.poll();
    }
    say("silent");
    common::hear_line();
}

/// Polls until the child doesn't any more.
fn outlast(other: &mut Other, ucx: &mut Ucx) {
    poll_for(ucx, TALK);
    assert_eq!(other.hear(), "silent");
}

/// A child that plays a part, connected.
fn serve(test: &str, part: &str, tls: &str) -> (Other, Ucx, PeerId) {
    let mut other = Other::spawn(&format!("ucx_parts::ends::{test}"), &format!("{part} {tls}"));
    let mut ucx = ucx(tls);
    let address = other.hear_address();
    let peer = ucx.connect(&address).unwrap();
    wait(&mut [&mut ucx], "the child", |_, event| match event {
        MatchingEvent::PeerUp { peer: up } if up == peer => Some(()),
        other => panic!("{other:?}"),
    });
    (other, ucx, peer)
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_killed_peer_ends_what_depends_on_it_and_nothing_else() {
    if let Some(role) = role() {
        play(&role);
    }
    for tls in transports() {
        let (mut other, mut ucx, peer) =
            serve("a_killed_peer_ends_what_depends_on_it_and_nothing_else", "idle", &tls);
        receive(&mut ucx, pattern_of(1, !0, Some(peer)), 8, 1);
        receive(&mut ucx, exactly(2), 8, 2);
        ucx.send(synchronous(peer, 3, b"eager")).unwrap();
        ucx.send(synchronous(peer, 4, &vec![1; LARGE])).unwrap();
        for _ in 0..1000 {
            assert!(ucx.poll().is_none());
        }
        other.kill();
        let mut ended = Vec::new();
        wait(&mut [&mut ucx], "its death", |_, event| match event {
            MatchingEvent::Received { token, result: Err(error), .. } => {
                assert_eq!(error, OperationError::PeerDown(peer));
                ended.push(token);
                None
            }
            MatchingEvent::Sent { token, result: Err(error), buffer } => {
                assert_eq!(error, OperationError::PeerDown(peer));
                assert_eq!(buffer.len(), if token == 3 { 5 } else { LARGE });
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
        assert_eq!(ended, [1, 3, 4], "{tls}");
        assert_eq!(ucx.send(send_of(peer, 1, b"x")).unwrap_err().1, Unfit::Down);
        let named = pattern_of(1, !0, Some(peer));
        assert_eq!(ucx.receive(named, Buffer::zeroed(1), 1).unwrap_err().1, Unfit::Down);
        ucx.send(send_of(PeerId::ONESELF, 2, b"posted")).unwrap();
        let (envelope, _) = wait(&mut [&mut ucx], "the rest", |_, event| message_of(event, 2));
        assert_eq!(envelope.source, PeerId::ONESELF);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn what_a_killed_peer_had_sent_whole_can_be_received() {
    if let Some(role) = role() {
        play(&role);
    }
    for tls in transports() {
        let (mut other, mut ucx, peer) =
            serve("what_a_killed_peer_had_sent_whole_can_be_received", "eager", &tls);
        outlast(&mut other, &mut ucx);
        other.kill();
        assert_eq!(down(&mut [&mut ucx], 0, peer), DownReason::Gone);
        for number in 0..50u8 {
            let pattern = if number % 2 == 0 { exactly(1) } else { pattern_of(1, !0, Some(peer)) };
            receive(&mut ucx, pattern, 5000, number.into());
            let (envelope, bytes) =
                wait(&mut [&mut ucx], "it", |_, event| message_of(event, number.into()));
            assert_eq!((envelope.source, bytes.len()), (peer, usize::from(number) * 100), "{tls}");
            assert!(bytes.iter().all(|byte| *byte == number));
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_rendezvous_of_a_killed_peer_ends_with_it() {
    if let Some(role) = role() {
        play(&role);
    }
    for tls in transports() {
        let (mut other, mut ucx, peer) =
            serve("a_rendezvous_of_a_killed_peer_ends_with_it", "rendezvous", &tls);
        outlast(&mut other, &mut ucx);
        let is_there = |ucx: &mut [&mut Ucx]| ucx[0].probe(exactly(1)).unwrap().is_some();
        wait_until(&mut [&mut ucx], "the request", is_there);
        // One that waits for the data, of a process that doesn't look any more.
        receive(&mut ucx, exactly(1), LARGE, 1);
        other.kill();
        let result = wait(&mut [&mut ucx], "its end", |_, event| match event {
            MatchingEvent::Received { token: 1, result, .. } => Some(result),
            other => panic!("{other:?}"),
        });
        assert_eq!(result, Err(OperationError::PeerDown(peer)), "{tls}");
        assert_eq!(down(&mut [&mut ucx], 0, peer), DownReason::Gone);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_peer_that_is_killed_midway_leaves_a_defined_end() {
    if let Some(role) = role() {
        play(&role);
    }
    for tls in transports() {
        for polls in [1, 50, 400, 3000] {
            let (mut other, mut ucx, peer) =
                serve("a_peer_that_is_killed_midway_leaves_a_defined_end", "midway", &tls);
            receive(&mut ucx, exactly(1), LARGE, 1);
            let mut results = Vec::new();
            let mut note = |event| match event {
                MatchingEvent::Received { token: 1, result, .. } => results.push(result),
                MatchingEvent::PeerDown { peer: down, .. } => assert_eq!(down, peer),
                other => panic!("{other:?}"),
            };
            for _ in 0..polls {
                ucx.poll().into_iter().for_each(&mut note);
            }
            other.kill();
            wait(&mut [&mut ucx], "its death", |_, event| {
                let is_down = matches!(event, MatchingEvent::PeerDown { .. });
                note(event);
                is_down.then_some(())
            });
            match results[..] {
                [Ok(envelope)] => assert_eq!(envelope.length, LARGE as u64),
                [Err(error)] => assert_eq!(error, OperationError::PeerDown(peer)),
                // Killed before anything came: it waits for another.
                [] => assert!(ucx.cancel(1)),
                _ => panic!("{results:?}"),
            }
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn what_was_sent_before_a_device_is_dropped_arrives() {
    if let Some(role) = role() {
        play(&role);
    }
    for tls in transports() {
        let (mut other, mut ucx, peer) =
            serve("what_was_sent_before_a_device_is_dropped_arrives", "drop", &tls);
        assert_eq!(down(&mut [&mut ucx], 0, peer), DownReason::Left);
        assert_eq!(other.hear(), "dropped");
        for number in 0..50u8 {
            receive(&mut ucx, exactly(1), 5000, number.into());
            let (_, bytes) =
                wait(&mut [&mut ucx], "it", |_, event| message_of(event, number.into()));
            assert_eq!(bytes.len(), usize::from(number) * 100, "{tls}");
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_disconnect_ends_both_sides() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        receive(&mut a, pattern_of(1, !0, Some(to_b)), 8, 1);
        receive(&mut b, pattern_of(1, !0, Some(to_a)), 8, 1);
        a.send(synchronous(to_b, 2, &vec![0; 100_000])).unwrap();
        b.send(synchronous(to_a, 2, b"short")).unwrap();
        for _ in 0..200 {
            assert!(a.poll().is_none() && b.poll().is_none());
        }
        a.disconnect(to_b);
        a.disconnect(to_b);
        let (mut ends, mut downs) = (0, Vec::new());
        wait(&mut [&mut a, &mut b], "both ends", |index, event| {
            match event {
                MatchingEvent::Received { result: Err(OperationError::PeerDown(_)), .. }
                | MatchingEvent::Sent { result: Err(OperationError::PeerDown(_)), .. } => ends += 1,
                MatchingEvent::PeerDown { reason, .. } => downs.push((index, reason)),
                other => panic!("{other:?}"),
            }
            (downs.len() == 2).then_some(())
        });
        downs.sort_unstable_by_key(|(index, _)| *index);
        assert_eq!(downs, [(0, DownReason::Disconnected), (1, DownReason::Left)], "{tls}");
        assert_eq!(ends, 4);
        assert_eq!(a.connect(&b.address()).unwrap(), to_b);
        assert_eq!(a.send(send_of(to_b, 1, b"x")).unwrap_err().1, Unfit::Down);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_device_that_is_closed_ends_everything_once() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        receive(&mut a, exactly(1), 8, 1);
        receive(&mut a, pattern_of(1, !0, Some(to_b)), 8, 2);
        a.send(synchronous(to_b, 3, &vec![0; 100_000])).unwrap();
        a.send(synchronous(PeerId::ONESELF, 4, &vec![0; 100_000])).unwrap();
        a.send(synchronous(PeerId::ONESELF, 5, b"short")).unwrap();
        b.send(send_of(to_a, 6, b"held")).unwrap();
        let is_there = |both: &mut [&mut Ucx]| both[0].probe(exactly(6)).unwrap().is_some();
        wait_until(&mut [&mut a, &mut b], "it", is_there);
        let (held, _) = a.matched_probe(exactly(6)).unwrap().unwrap();
        a.close();
        let mut ended = Vec::new();
        let mut downs = Vec::new();
        wait(&mut [&mut a], "all ends", |_, event| {
            match event {
                MatchingEvent::Received { token, result: Err(_), .. } => ended.push(token),
                // Whether those to oneself were matched before is nobody's business any more.
                MatchingEvent::Sent { token, .. } => ended.push(token),
                MatchingEvent::PeerDown { peer, reason: DownReason::Disconnected } => {
                    downs.push(peer);
                }
                other => panic!("{other:?}"),
            }
            (downs.len() == 2).then_some(())
        });
        ended.sort_unstable();
        assert_eq!(ended, [1, 2, 3, 4, 5], "{tls}");
        a.receive_held(held, Buffer::zeroed(8), 7).unwrap();
        let (_, bytes) = wait(&mut [&mut a], "what is held", |_, event| message_of(event, 7));
        assert_eq!(bytes, b"held");
        assert!(a.connect(&ucx(&tls).address()).is_err());
        assert_eq!(a.receive(exactly(1), Buffer::zeroed(1), 1).unwrap_err().1, Unfit::Down);
        assert_eq!(down(&mut [&mut b], 0, to_a), DownReason::Left);
    }
}

/// Run under AddressSanitizer or valgrind, this is the test that UCX has let go of all memory.
#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_device_is_dropped_with_everything_under_way() {
    for tls in transports() {
        let (mut a, mut b, to_b, to_a) = pair(&tls);
        for number in 0..20 {
            receive(&mut a, exactly(number), 100_000, number);
            receive(&mut b, pattern_of(number, !0, Some(to_a)), 100_000, number);
            let _ = a.send(synchronous(to_b, 100 + number, &vec![1; 50_000])).unwrap();
            let _ = b.send(synchronous(to_a, 100 + number, &[1; 50])).unwrap();
            let _ = a.send(synchronous(PeerId::ONESELF, 200, &vec![1; 50_000])).unwrap();
            let _ = a.send(send_of(to_b, number, &vec![1; 100_000])).unwrap();
        }
        let is_there = |both: &mut [&mut Ucx]| both[0].probe(exactly(119)).unwrap().is_some();
        let start = Instant::now();
        while !is_there(&mut [&mut a, &mut b]) && start.elapsed() < common::PATIENCE {
            a.poll();
            b.poll();
        }
        assert!(a.matched_probe(exactly(119)).unwrap().is_some());
        drop(a);
        assert_eq!(down(&mut [&mut b], 0, to_a), DownReason::Left, "{tls}");
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_device_can_be_dropped_while_it_connects() {
    for tls in transports() {
        let (mut a, mut b) = (ucx(&tls), ucx_with(config(&tls)));
        let to_b = a.connect(&b.address()).unwrap();
        a.send(send_of(to_b, 1, &[0; 10_000])).unwrap();
        drop(a);
        for _ in 0..3000 {
            if let Some(event) = b.poll() {
                let is_end =
                    matches!(event, MatchingEvent::PeerUp { .. } | MatchingEvent::PeerDown { .. });
                assert!(is_end, "{event:?}");
            }
        }
        let (mut c, mut d, to_d, _) = pair(&tls);
        c.send(send_of(to_d, 1, b"still")).unwrap();
        receive(&mut d, exactly(1), 8, 1);
        assert_eq!(expect(&mut c, &mut d, 1).1, b"still");
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn either_side_may_go_while_a_large_message_is_under_way() {
    for tls in transports() {
        for is_sender in [true, false] {
            for polls in [10, 100, 300, 1000] {
                let (mut a, mut b, to_b, to_a) = pair(&tls);
                let _ = a.send(send_of(to_b, 1, &vec![1; LARGE])).unwrap();
                receive(&mut b, exactly(1), LARGE, 1);
                let mut ends = 0;
                for _ in 0..polls {
                    ends += usize::from(a.poll().is_some()) + usize::from(b.poll().is_some());
                }
                if is_sender {
                    a.close();
                } else {
                    b.close();
                }
                let mut downs = 0;
                wait(&mut [&mut a, &mut b], "both ends", |_, event| {
                    match event {
                        MatchingEvent::PeerDown { peer, .. } if peer == to_a || peer == to_b => {
                            downs += 1;
                        }
                        MatchingEvent::Sent { .. } => ends += 1,
                        MatchingEvent::Received { result, .. } => {
                            let is_defined = !matches!(result, Err(OperationError::Failed { .. }));
                            assert!(is_defined, "{tls}: {result:?}");
                            ends += 1;
                        }
                        MatchingEvent::PeerDown { .. } => {}
                        other => panic!("{other:?}"),
                    }
                    (downs == 2).then_some(())
                });
                assert_eq!(ends, 2, "{tls} {is_sender} {polls}");
            }
        }
    }
}

/// Whatever UCX was doing for the sender, its receiver gets the message whole or not at all, and
/// neither touches what was freed.
#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_sender_may_go_at_any_time() {
    const SIZE: usize = 8 << 20;
    for tls in transports() {
        for round in 0..30u32 {
            let mut b = ucx(&tls);
            let (address, other) = (b.address(), tls.clone());
            let sender = std::thread::spawn(move || {
                let mut a = ucx(&other);
                let to_b = a.connect(&address).unwrap();
                // Not before: UCX 1.13 over TCP ends the process now and then when a peer goes
                // while it connects.
                wait(&mut [&mut a], "the peer to come up", |_, event| {
                    matches!(event, MatchingEvent::PeerUp { .. }).then_some(())
                });
                a.send(send_of(to_b, 1, &vec![7; SIZE])).unwrap();
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(u64::from(round % 10) * 400) {
                    a.poll();
                }
                drop(a);
                std::hint::black_box(vec![9u8; SIZE]);
            });
            let result = loop {
                b.poll();
                if let Some((held, _)) = b.matched_probe(exactly(1)).unwrap() {
                    b.receive_held(held, Buffer::zeroed(SIZE), 1).unwrap();
                    break wait(&mut [&mut b], "its end", |_, event| end_of(event, 1));
                }
                if sender.is_finished() {
                    break (Err(OperationError::Cancelled), Vec::new());
                }
            };
            if let (Ok(_), bytes) = result {
                assert!(bytes.iter().all(|byte| *byte == 7), "{tls} {round}: garbage");
            }
            sender.join().unwrap();
        }
    }
}
