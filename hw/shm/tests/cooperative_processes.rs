//! Long messages that receiver and sender, two processes, copy together: the one or the other is
//! stopped, or killed.

mod common;

use std::time::{Duration, Instant};

use tagmatch_device::{Buffer, Device, DownReason, PeerId, ReadError, ReadRequest, RemoteSpan};
use tagmatch_shm::{Shm, ShmConfig};

use common::{
    Other, Owned, connect, connect_to_server, pattern, poll, role, say, serve, shm, wait_for,
};

/// Bytes of a message: 24 pieces.
const LENGTH: usize = common::SERVED;

fn signal(server: &Other, signal: i32) {
    // SAFETY: no pointers; the process is a child of this one, and nothing has waited for it.
    assert_eq!(unsafe { libc::kill(server.pid().cast_signed(), signal) }, 0);
}

#[test]
fn a_sender_that_is_stopped_holds_up_its_own_message_alone() {
    let name = "a_sender_that_is_stopped_holds_up_its_own_message_alone";
    if role().is_some() {
        serve(ShmConfig::default());
    }
    let mut server = Other::spawn(name, "server");
    let (mut shm, peer, remote) = connect_to_server(&mut server, ShmConfig::default());
    let mut friend = common::shm(ShmConfig::default());
    let (to_friend, _) = connect(&mut shm, &mut friend);
    let expected = pattern(5, LENGTH);
    // Stopped at different times of a message.
    for round in 0..100u32 {
        let into = Buffer::zeroed(LENGTH);
        shm.read(ReadRequest { peer, remote, into, token: round.into() }).unwrap();
        let begin = Instant::now();
        let mut done = None;
        while begin.elapsed() < Duration::from_micros(u64::from(round) * 5) && done.is_none() {
            done = poll(&mut shm);
        }
        signal(&server, libc::SIGSTOP);
        shm.send(to_friend, common::message(b"on")).unwrap();
        let mut has_message = false;
        wait_for(&mut [&mut shm, &mut friend], "a message", |index, event| match event {
            Owned::Message(_, _, bytes) => (bytes == b"on").then_some(()),
            event if index == 0 => {
                assert!(!has_message);
                has_message = true;
                done = Some(event);
                None
            }
            other => panic!("{other:?}"),
        });
        signal(&server, libc::SIGCONT);
        let event = done.unwrap_or_else(|| wait_for(&mut [&mut shm], "it", |_, e| Some(e)));
        let Owned::ReadDone(token, into, result) = event else { panic!("{event:?}") };
        assert_eq!((token, result), (round.into(), Ok(())));
        assert!(into[..] == expected, "round {round}");
    }
}

/// The receiver of two processes: reads a buffer again and again.
fn read_again_and_again() -> ! {
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let mut next = || lines.next().unwrap();
    let address = next().parse().unwrap();
    let start = next();
    let key = next();
    let remote = RemoteSpan {
        address: start.parse().unwrap(),
        key: key.parse().unwrap(),
        length: LENGTH as u64,
    };
    let mut shm = shm(ShmConfig::default());
    let peer = shm.connect(&address).unwrap();
    let mut token = 0;
    let expected = pattern(5, LENGTH);
    let mut read = |shm: &mut Shm| {
        let into = Buffer::zeroed(LENGTH);
        shm.read(ReadRequest { peer, remote, into, token }).unwrap();
        token += 1;
    };
    loop {
        match poll(&mut shm) {
            Some(Owned::Up(up, _)) if up == peer => read(&mut shm),
            Some(Owned::ReadDone(at, into, result)) => {
                assert_eq!(result, Ok(()));
                assert!(into[..] == expected);
                say(at);
                read(&mut shm);
            }
            None => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_receiver_that_is_stopped_holds_up_no_sender() {
    if role().is_some() {
        read_again_and_again();
    }
    let mut sender = shm(ShmConfig::default());
    let mut friend = shm(ShmConfig::default());
    let (to_friend, _) = connect(&mut sender, &mut friend);
    // The reader is the next peer.
    let reader = PeerId(to_friend.0 + 1);
    let span = sender.expose(reader, Buffer::from(pattern(5, LENGTH))).unwrap().span;
    let mut other = Other::spawn("a_receiver_that_is_stopped_holds_up_no_sender", "reader");
    other.say(&sender.address().to_string());
    other.say(&span.address.to_string());
    other.say(&span.key.to_string());
    wait_for(&mut [&mut sender], "the connection", |_, event| match event {
        Owned::Up(up, _) => (up == reader).then_some(()),
        other => panic!("{other:?}"),
    });
    for round in 0..100u32 {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(u64::from(round) * 20) {
            assert!(poll(&mut sender).is_none());
        }
        signal(&other, libc::SIGSTOP);
        sender.send(to_friend, common::message(b"on")).unwrap();
        wait_for(&mut [&mut sender, &mut friend], "a message", |index, event| match event {
            Owned::Message(_, _, bytes) if index == 1 => (bytes == b"on").then_some(()),
            other => panic!("{other:?}"),
        });
        signal(&other, libc::SIGCONT);
    }
    // It has read on, and goes on.
    for number in 0..20u32 {
        for _ in 0..1000 {
            assert!(poll(&mut sender).is_none());
        }
        assert_eq!(other.hear(), number.to_string());
    }
}

#[test]
fn a_sender_that_dies_in_the_middle_ends_the_read() {
    let name = "a_sender_that_dies_in_the_middle_ends_the_read";
    if role().is_some() {
        serve(ShmConfig::default());
    }
    for round in 0..20u64 {
        let mut server = Other::spawn(name, "server");
        let (mut shm, peer, remote) = connect_to_server(&mut server, ShmConfig::default());
        let into = Buffer::zeroed(LENGTH);
        shm.read(ReadRequest { peer, remote, into, token: 1 }).unwrap();
        let begin = Instant::now();
        let mut is_back = false;
        while begin.elapsed() < Duration::from_micros(round * 20) {
            is_back |= matches!(poll(&mut shm), Some(Owned::ReadDone(..)));
        }
        server.kill();
        wait_for(&mut [&mut shm], "the end", |_, event| match event {
            Owned::ReadDone(1, into, result) => {
                assert!(!is_back);
                is_back = true;
                match result {
                    Ok(()) => assert!(into[..] == pattern(5, LENGTH)),
                    Err(error) => assert_eq!(error, ReadError::PeerDown),
                }
                None
            }
            Owned::Down(down, DownReason::Gone) => {
                assert!(down == peer && is_back);
                Some(())
            }
            other => panic!("{other:?}"),
        });
    }
}
