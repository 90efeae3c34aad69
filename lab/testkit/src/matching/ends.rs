//! Ends: of a peer that is killed, of a connection, of a device with much under way.

use std::time::{Duration, Instant};

use tagmatch_device::matching::{MatchingDevice, MatchingEvent, OperationError, TagSend, Unfit};
use tagmatch_device::{Buffer, DownReason, PeerId};

use super::fixture::Fixture;
use super::support::*;
use crate::device::{Other, PATIENCE, hear_line, role, say};

const LARGE: usize = 20 << 20;

/// What the other process does, until it is killed: first the part, then the way.
fn play<F: Fixture>(role: &str) -> ! {
    let (part, way) = role.split_once(' ').unwrap();
    let mut device = up::<F>(way);
    say(device.address());
    let peer = wait(&mut [&mut device], "the parent", |_, event| match event {
        MatchingEvent::PeerUp { peer } => Some(peer),
        _ => None,
    });
    match part {
        "idle" => {}
        "eager" => {
            for number in 0..50u8 {
                device.send(send_of(peer, 1, &vec![number; usize::from(number) * 100])).unwrap();
            }
            device.send(send_of(peer, 2, b"the last")).unwrap();
            go_silent(&mut device);
        }
        "rendezvous" => {
            device.send(send_of(peer, 1, &vec![1; LARGE])).unwrap();
            go_silent(&mut device);
        }
        // These go on as far as the parent lets them.
        "sends" => drop(device.send(send_of(peer, 1, &vec![1; LARGE])).unwrap()),
        "takes" => receive(&mut device, exactly(4), LARGE, 1),
        "drop" => {
            for number in 0..50u8 {
                let _ = device.send(send_of(peer, 1, &vec![number; usize::from(number) * 100]));
            }
            drop(device);
            say("dropped");
            hear_line();
            std::process::exit(0);
        }
        other => panic!("{other}"),
    }
    loop {
        device.poll();
    }
}

/// Polls until the parent says so, then no more.
fn go_silent<D: MatchingDevice>(device: &mut D) -> ! {
    let line = std::thread::spawn(hear_line);
    while !line.is_finished() {
        device.poll();
    }
    say("silent");
    loop {
        std::thread::park();
    }
}

/// Polls until a message with this tag is there, and the child doesn't poll any more.
fn outlast<D: MatchingDevice>(other: &mut Other, device: &mut D, tag: u64) {
    let is_there = |all: &mut [&mut D]| all[0].probe(exactly(tag)).unwrap().is_some();
    wait_until(&mut [device], "the child's message", is_there);
    other.say("stop");
    assert_eq!(other.hear(), "silent");
}

/// A child that plays a part, connected.
fn serve<F: Fixture>(test: &str, part: &str, way: &str) -> (Other, F::Device, PeerId) {
    let mut other = Other::spawn(&format!("{}{test}", F::MODULE), &format!("{part} {way}"));
    let mut device = up::<F>(way);
    let peer = device.connect(&other.hear_address()).unwrap();
    wait(&mut [&mut device], "the child", |_, event| match event {
        MatchingEvent::PeerUp { peer: up } if up == peer => Some(()),
        other => panic!("{other:?}"),
    });
    (other, device, peer)
}

/// Receives the messages of a child that sent those of "eager" or "drop", and is gone.
fn receive_what_is_kept<F: Fixture>(device: &mut F::Device, peer: PeerId, way: &str, most: usize) {
    for number in (0..50u8).filter(|number| usize::from(*number) * 100 <= most) {
        let pattern = if number % 2 == 0 { exactly(1) } else { pattern_of(1, !0, Some(peer)) };
        receive(device, pattern, 5000, number.into());
        let (envelope, bytes) =
            wait(&mut [&mut *device], "it", |_, event| message_of(event, number.into()));
        assert_eq!((envelope.source, bytes.len()), (peer, usize::from(number) * 100), "{way}");
        assert!(bytes.iter().all(|byte| *byte == number));
    }
}

/// A killed peer ends what depends on it and nothing else.
pub fn a_killed_peer_ends_what_depends_on_it_and_nothing_else<F: Fixture>() {
    if let Some(role) = role() {
        play::<F>(&role);
    }
    for way in F::ways_across() {
        let test = "a_killed_peer_ends_what_depends_on_it_and_nothing_else";
        let (mut other, mut device, peer) = serve::<F>(test, "idle", &way);
        // Lent memory comes back itself. That of a vector may stay with the device.
        let mut memory = vec![5; LARGE];
        let lent = F::lend(&mut memory);
        let start = lent.as_ptr();
        receive(&mut device, pattern_of(1, !0, Some(peer)), 8, 1);
        receive(&mut device, exactly(2), 8, 2);
        device.send(synchronous(peer, 3, b"eager")).unwrap();
        device.send(TagSend { buffer: lent, ..synchronous(peer, 4, b"") }).unwrap();
        device.send(synchronous(peer, 5, &vec![1; LARGE])).unwrap();
        for _ in 0..1000 {
            let event = device.poll();
            assert!(event.is_none(), "{way}: {event:?}");
        }
        other.kill();
        let mut ended = Vec::new();
        wait(&mut [&mut device], "its death", |_, event| match event {
            MatchingEvent::Received { token, result: Err(error), .. } => {
                assert_eq!(error, OperationError::PeerDown(peer));
                ended.push(token);
                None
            }
            MatchingEvent::Sent { token, result: Err(error), buffer } => {
                assert_eq!(error, OperationError::PeerDown(peer));
                assert!(token != 4 || buffer.as_ptr() == start && buffer.len() == LARGE, "{way}");
                assert!(token != 5 || [0, LARGE].contains(&buffer.len()), "{way}");
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
        assert_eq!(ended, [1, 3, 4, 5], "{way}");
        assert_eq!(device.send(send_of(peer, 1, b"x")).unwrap_err().1, Unfit::Down);
        let named = pattern_of(1, !0, Some(peer));
        assert_eq!(device.receive(named, Buffer::zeroed(1), 1).unwrap_err().1, Unfit::Down);
        device.send(send_of(PeerId::ONESELF, 2, b"posted")).unwrap();
        let (envelope, _) = wait(&mut [&mut device], "the rest", |_, event| message_of(event, 2));
        assert_eq!(envelope.source, PeerId::ONESELF);
    }
}

/// What a killed peer had sent whole can be received.
pub fn what_a_killed_peer_had_sent_whole_can_be_received<F: Fixture>() {
    if let Some(role) = role() {
        play::<F>(&role);
    }
    for way in F::ways_across() {
        let Some(most) = F::kept_of_the_dead(&way) else { continue };
        let test = "what_a_killed_peer_had_sent_whole_can_be_received";
        let (mut other, mut device, peer) = serve::<F>(test, "eager", &way);
        outlast(&mut other, &mut device, 2);
        other.kill();
        assert_eq!(down(&mut [&mut device], 0, peer), DownReason::Gone);
        receive_what_is_kept::<F>(&mut device, peer, &way, most);
    }
}

/// A rendezvous of a killed peer ends with it.
pub fn a_rendezvous_of_a_killed_peer_ends_with_it<F: Fixture>() {
    if let Some(role) = role() {
        play::<F>(&role);
    }
    for way in F::ways_across() {
        let test = "a_rendezvous_of_a_killed_peer_ends_with_it";
        let (mut other, mut device, peer) = serve::<F>(test, "rendezvous", &way);
        outlast(&mut other, &mut device, 1);
        // One that waits for the data, of a process that doesn't look any more.
        receive(&mut device, exactly(1), LARGE, 1);
        other.kill();
        let result = wait(&mut [&mut device], "its end", |_, event| match event {
            MatchingEvent::Received { token: 1, result, .. } => Some(result),
            other => panic!("{other:?}"),
        });
        match result {
            Err(OperationError::Failed { .. }) if !F::names_the_dead(&way) => {}
            _ => assert_eq!(result, Err(OperationError::PeerDown(peer)), "{way}"),
        }
        assert_eq!(down(&mut [&mut device], 0, peer), DownReason::Gone);
    }
}

/// A peer that is killed midway leaves a defined end.
pub fn a_peer_that_is_killed_midway_leaves_a_defined_end<F: Fixture>() {
    if let Some(role) = role() {
        play::<F>(&role);
    }
    for way in F::ways_across() {
        let parts = if F::SENDS_TO_THE_DYING { &["sends", "takes"][..] } else { &["sends"] };
        for (part, polls) in
            parts.iter().flat_map(|part| [1, 100, 2000, 10_000].map(|polls| (*part, polls)))
        {
            let test = "a_peer_that_is_killed_midway_leaves_a_defined_end";
            let (mut other, mut device, peer) = serve::<F>(test, part, &way);
            receive(&mut device, exactly(1), LARGE, 1);
            if F::SENDS_TO_THE_DYING {
                device.send(synchronous(peer, 4, &vec![1; LARGE])).unwrap();
            }
            let mut received = Vec::new();
            let mut sent = Vec::new();
            let mut note = |event| match event {
                MatchingEvent::Received { token: 1, result, .. } => received.push(result),
                MatchingEvent::Sent { token: 4, result, .. } => sent.push(result),
                MatchingEvent::PeerDown { peer: down, .. } => assert_eq!(down, peer),
                other => panic!("{other:?}"),
            };
            for _ in 0..polls {
                if let Some(e) = device.poll() {
                    note(e);
                }
            }
            other.kill();
            wait(&mut [&mut device], "its death", |_, event| {
                let is_down = matches!(event, MatchingEvent::PeerDown { .. });
                note(event);
                is_down.then_some(())
            });
            let down = Err(OperationError::PeerDown(peer));
            let is_right = match sent[..] {
                [] => !F::SENDS_TO_THE_DYING,
                [end] => end == Ok(()) || end == down,
                _ => false,
            };
            assert!(is_right, "{way} {part} {polls}: {sent:?}");
            match received[..] {
                [Ok(envelope)] => assert_eq!(envelope.length, LARGE as u64),
                [Err(error)] => assert_eq!(error, OperationError::PeerDown(peer)),
                // Killed before anything came: it waits for another.
                [] => assert!(device.cancel(1)),
                _ => panic!("{way} {part} {polls}: {received:?}"),
            }
        }
    }
}

/// What was sent before a device is dropped arrives.
pub fn what_was_sent_before_a_device_is_dropped_arrives<F: Fixture>() {
    if let Some(role) = role() {
        play::<F>(&role);
    }
    for way in F::ways_across() {
        let Some(most) = F::kept_of_the_dead(&way) else { continue };
        let test = "what_was_sent_before_a_device_is_dropped_arrives";
        let (mut other, mut device, peer) = serve::<F>(test, "drop", &way);
        assert_eq!(down(&mut [&mut device], 0, peer), DownReason::Left);
        assert_eq!(other.hear(), "dropped");
        receive_what_is_kept::<F>(&mut device, peer, &way, most);
    }
}

/// A disconnect ends both sides.
pub fn a_disconnect_ends_both_sides<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        receive(&mut a, pattern_of(1, !0, Some(to_b)), 8, 1);
        receive(&mut b, pattern_of(1, !0, Some(to_a)), 8, 1);
        a.send(synchronous(to_b, 2, &vec![0; 100_000])).unwrap();
        b.send(synchronous(to_a, 2, b"short")).unwrap();
        for _ in 0..200 {
            assert!(a.poll().is_none() && b.poll().is_none());
        }
        a.disconnect(to_b);
        a.disconnect(to_b);
        let mut ends = 0;
        let mut downs = Vec::new();
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
        assert_eq!(downs, [(0, DownReason::Disconnected), (1, DownReason::Left)], "{way}");
        assert_eq!(ends, 4);
        assert_eq!(a.connect(&b.address()).unwrap(), to_b);
        assert_eq!(a.send(send_of(to_b, 1, b"x")).unwrap_err().1, Unfit::Down);
    }
}

/// A device that is closed ends everything once.
pub fn a_device_that_is_closed_ends_everything_once<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        receive(&mut a, exactly(1), 8, 1);
        receive(&mut a, pattern_of(1, !0, Some(to_b)), 8, 2);
        a.send(synchronous(to_b, 3, &vec![0; 100_000])).unwrap();
        a.send(synchronous(PeerId::ONESELF, 4, &vec![0; 100_000])).unwrap();
        a.send(synchronous(PeerId::ONESELF, 5, b"short")).unwrap();
        b.send(send_of(to_a, 6, b"held")).unwrap();
        let is_there = |both: &mut [&mut F::Device]| both[0].probe(exactly(6)).unwrap().is_some();
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
        assert_eq!(ended, [1, 2, 3, 4, 5], "{way}");
        a.receive_held(held, Buffer::zeroed(8), 7).unwrap();
        let (_, bytes) = wait(&mut [&mut a], "what is held", |_, event| message_of(event, 7));
        assert_eq!(bytes, b"held");
        assert!(a.connect(&up::<F>(&way).address()).is_err());
        assert_eq!(a.receive(exactly(1), Buffer::zeroed(1), 1).unwrap_err().1, Unfit::Down);
        assert_eq!(down(&mut [&mut b], 0, to_a), DownReason::Left);
    }
}

/// Run under AddressSanitizer or valgrind, this is the test that the library has let go of all
/// memory.
pub fn a_device_is_dropped_with_everything_under_way<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
        for number in 0..20 {
            receive(&mut a, exactly(number), 100_000, number);
            receive(&mut b, pattern_of(number, !0, Some(to_a)), 100_000, number);
            let _ = a.send(synchronous(to_b, 100 + number, &vec![1; 50_000])).unwrap();
            let _ = b.send(synchronous(to_a, 100 + number, &[1; 50])).unwrap();
            let _ = a.send(synchronous(PeerId::ONESELF, 200, &vec![1; 50_000])).unwrap();
            let _ = a.send(send_of(to_b, number, &vec![1; 100_000])).unwrap();
        }
        let is_there = |both: &mut [&mut F::Device]| both[0].probe(exactly(119)).unwrap().is_some();
        let start = Instant::now();
        while !is_there(&mut [&mut a, &mut b]) && start.elapsed() < PATIENCE {
            a.poll();
            b.poll();
        }
        assert!(a.matched_probe(exactly(119)).unwrap().is_some());
        drop(a);
        assert_eq!(down(&mut [&mut b], 0, to_a), DownReason::Left, "{way}");
    }
}

/// A device can be dropped while it connects.
pub fn a_device_can_be_dropped_while_it_connects<F: Fixture>() {
    for way in F::ways() {
        let mut a = up::<F>(&way);
        let mut b = up::<F>(&way);
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
        let (mut c, mut d, to_d, _) = pair::<F>(&way);
        c.send(send_of(to_d, 1, b"still")).unwrap();
        receive(&mut d, exactly(1), 8, 1);
        assert_eq!(expect(&mut c, &mut d, 1).1, b"still");
    }
}

/// Either side may go while a large message is under way.
pub fn either_side_may_go_while_a_large_message_is_under_way<F: Fixture>() {
    for way in F::ways() {
        for is_sender in [true, false] {
            for polls in [10, 100, 300, 1000] {
                let (mut a, mut b, to_b, to_a) = pair::<F>(&way);
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
                            assert!(is_defined, "{way}: {result:?}");
                            ends += 1;
                        }
                        MatchingEvent::PeerDown { .. } => {}
                        other => panic!("{other:?}"),
                    }
                    (downs == 2).then_some(())
                });
                assert_eq!(ends, 2, "{way} {is_sender} {polls}");
            }
        }
    }
}

/// Whatever the library was doing for the sender, its receiver gets the message whole or not at
/// all, and neither touches what was freed.
pub fn a_sender_may_go_at_any_time<F: Fixture>() {
    const SIZE: usize = 8 << 20;
    for way in F::ways() {
        for round in 0..F::ENDS {
            let mut b = up::<F>(&way);
            let address = b.address();
            let other = way.clone();
            let sender = std::thread::spawn(move || {
                let mut a = up::<F>(&other);
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
                assert!(bytes.iter().all(|byte| *byte == 7), "{way} {round}: garbage");
            }
            sender.join().unwrap();
        }
    }
}
