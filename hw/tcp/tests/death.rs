//! Peers that end or are killed while messages are under way, and peers that live and don't
//! receive.

mod common;

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use tagmatch_device::{Address, Device, DownReason, Flush, PeerId, Refused};
use tagmatch_tcp::Tcp;

use common::{
    Other, Owned, config, connect, exchange, hear_line, message, pattern, poll, role, say, tcp,
    wait_down, wait_for, wait_up, waiting_child,
};

const COUNT: usize = 2000;

fn numbered(number: usize) -> Vec<u8> {
    pattern(number, number * 37 % 20_000)
}

/// Starts the other process and connects to it.
fn serve(test: &str, part: &str) -> (Other, Tcp, PeerId) {
    let mut other = Other::spawn(test, part);
    let mut tcp = tcp(config());
    let peer = tcp.connect(&other.hear_address()).unwrap();
    wait_up(&mut tcp, peer);
    tcp.send(peer, message(b"go")).unwrap();
    (other, tcp, peer)
}

/// Its machine has two addresses and takes connections, so the worker is waited for as a busy one.
#[test]
fn a_peer_with_two_addresses_that_was_busy_and_dies_is_unreachable() {
    let listen = |host: [u8; 4], port| TcpListener::bind((Ipv4Addr::from(host), port)).unwrap();
    let one = listen([127, 0, 0, 1], 0);
    let two = listen([127, 0, 0, 2], one.local_addr().unwrap().port());
    let announce = vec![Ipv4Addr::new(127, 0, 0, 1).into(), Ipv4Addr::new(127, 0, 0, 2).into()];
    let address = {
        let busy = tcp(config().announce(announce)).address();
        let mut bytes = busy.as_bytes().to_vec();
        bytes[9..11].copy_from_slice(&one.local_addr().unwrap().port().to_le_bytes());
        Address::from_bytes(&bytes).unwrap()
    };
    let mut tcp = tcp(config());
    let peer = tcp.connect(&address).unwrap();
    // The second address is tried once the first one has been silent for a while.
    two.set_nonblocking(true).unwrap();
    let taken = loop {
        assert!(poll(&mut tcp).is_none(), "a busy peer was given up");
        if let Ok(taken) = two.accept() {
            break taken;
        }
    };
    drop((one, two, taken));
    let reason = wait_down(&mut tcp, peer);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ECONNREFUSED });
}

/// The peer has answered all but the last one, so no other one can be lost.
#[test]
fn only_messages_under_way_to_a_killed_peer_are_counted_as_lost() {
    let test = "only_messages_under_way_to_a_killed_peer_are_counted_as_lost";
    if role().is_some() {
        let mut tcp = tcp(config());
        say(tcp.address());
        loop {
            if let Some(Owned::Message(peer, ..)) = poll(&mut tcp) {
                let _ = tcp.send(peer, message(b"answer"));
            }
        }
    }
    let (mut other, mut tcp, peer) = serve(test, "answers");
    let answer = |tcp: &mut Tcp| {
        wait_for(&mut [tcp], "an answer", |_, event| match event {
            Owned::Message(..) => Some(()),
            _ => None,
        });
    };
    for _ in 0..30 {
        answer(&mut tcp);
        tcp.send(peer, message(b"again")).unwrap();
    }
    other.kill();
    // Its machine may answer this one with a reset, and may not.
    let _ = tcp.send(peer, message(b"too late"));
    assert_eq!(wait_down(&mut tcp, peer), DownReason::Gone);
    let lost = tcp.flush(peer, &mut None).lost();
    assert!(lost <= 2, "{lost} of 32");
}

#[test]
fn messages_that_a_killed_peer_has_not_received_are_counted_as_lost() {
    if role().is_some() {
        let mut tcp = tcp(config());
        say(tcp.address());
        while !matches!(poll(&mut tcp), Some(Owned::Message(..))) {}
        // It receives nothing more.
        hear_line();
        return;
    }
    let (mut other, mut tcp, peer) =
        serve("messages_that_a_killed_peer_has_not_received_are_counted_as_lost", "deaf");
    let mut sent = 1;
    while tcp.send(peer, message(&[7; 60_000])) != Err(Refused::Full) {
        sent += 1;
    }
    let mut mark = None;
    assert!(matches!(tcp.flush(peer, &mut mark), Flush::Pending { .. }));
    other.kill();
    assert_eq!(wait_down(&mut tcp, peer), DownReason::Gone);
    let lost = tcp.flush(peer, &mut mark);
    assert!(matches!(lost, Flush::Lost { messages } if (1..=sent).contains(&messages)), "{lost:?}");
    assert_eq!(tcp.send(peer, message(b"x")), Err(Refused::Down));
}

/// Both connections end with the process, and so does its listener: the one that was there, and one
/// to a worker that connects afterwards.
#[test]
fn a_death_is_noticed_while_a_forked_child_lives() {
    if role().is_some() {
        let mut tcp = tcp(config());
        say(tcp.address());
        wait_for(&mut [&mut tcp], "a message", |_, event| match event {
            Owned::Message(..) => Some(()),
            _ => None,
        });
        say(waiting_child());
        loop {
            poll(&mut tcp);
        }
    }
    let mut other = Other::spawn("a_death_is_noticed_while_a_forked_child_lives", "parent");
    let address = other.hear_address();
    let [mut tcp, mut late] = [(); 2].map(|()| tcp(config()));
    let peer = tcp.connect(&address).unwrap();
    wait_up(&mut tcp, peer);
    tcp.send(peer, message(b"go")).unwrap();
    let child: i32 = other.hear().parse().unwrap();
    other.kill();
    assert_eq!(wait_down(&mut tcp, peer), DownReason::Gone);
    let peer = late.connect(&address).unwrap();
    let refused = DownReason::Unreachable { errno: libc::ECONNREFUSED };
    assert_eq!(wait_down(&mut late, peer), refused);
    // SAFETY: no pointers. The child ends by itself, and nothing else has its number before.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

/// The receiver computes for several times the longest time of every deadline. Its window is shut
/// meanwhile, and its machine acknowledges.
#[test]
fn a_peer_that_does_not_receive_for_long_is_alive() {
    let short = config()
        .acknowledge_timeout(Duration::from_secs(1))
        .keep_alive(Duration::from_secs(4))
        .connect_timeout(Duration::from_millis(500));
    let mut a = tcp(short.clone());
    let mut b = tcp(short);
    let (to_b, to_a) = connect(&mut a, &mut b);
    let mut sent = 0;
    while a.send(to_b, message(&numbered(sent))) != Err(Refused::Full) {
        sent += 1;
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        assert!(poll(&mut a).is_none(), "{:?}", start.elapsed());
        if a.arm(&[]) {
            common::sleep(&a, Duration::from_millis(500));
            a.disarm();
        }
    }
    let mut next = 0;
    wait_for(&mut [&mut b, &mut a], "the messages", |index, event| match event {
        Owned::Message(_, _, bytes) if index == 0 => {
            assert!(bytes == numbered(next));
            next += 1;
            (next == sent).then_some(())
        }
        other => panic!("{other:?}"),
    });
    exchange(&mut b, to_a, &mut a);
}

/// A reader that takes little at a time gets everything, and other peers' messages don't wait.
#[test]
fn a_slow_reader_is_alive_and_others_are_served() {
    let mut a = tcp(config());
    let mut slow = tcp(config());
    let mut other = tcp(config());
    let (to_slow, _) = connect(&mut a, &mut slow);
    let (to_other, _) = connect(&mut a, &mut other);
    let mut sent = 0;
    let mut received = 0;
    let mut refused = 0;
    while received < COUNT {
        if sent < COUNT {
            match a.send(to_slow, message(&numbered(sent))) {
                Ok(()) => sent += 1,
                Err(Refused::Full) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(poll(&mut a).is_none());
        if sent % 100 == 0 || refused > 0 {
            exchange(&mut a, to_other, &mut other);
            if let Some(event) = poll(&mut slow) {
                let Owned::Message(_, _, bytes) = event else { panic!("{event:?}") };
                assert!(bytes == numbered(received));
                received += 1;
            }
        }
    }
    assert!(refused > 10, "{refused}");
}
