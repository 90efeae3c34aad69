//! Peers that are killed at different stages of a connection.

mod common;

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use tagmatch_device::{
    Buffer, Device, DownReason, EventDescriptor, PeerId, ReadMode, ReadRequest, RemoteSpan,
};
use tagmatch_shm::{ReadPolicy, Shm, ShmConfig};

use common::{Other, Owned, READER, connect, message, pattern, poll, role, say, shm, wait_for};

/// The time in which a death must be noticed.
const SOON: Duration = Duration::from_secs(1);
const EXPOSED: usize = 64 << 20;

fn config(role: &str) -> ShmConfig {
    let read = if role.contains("copied") { ReadPolicy::Copied } else { ReadPolicy::Auto };
    ShmConfig { read, ..ShmConfig::default() }
}

/// The program of the other process, which runs until the process is killed.
fn play(role: &str) -> ! {
    let mut shm = shm(config(role));
    let exposure = shm.expose(READER, Buffer::zeroed(EXPOSED)).unwrap();
    say(shm.address());
    say(exposure.span.address);
    say(exposure.span.key);
    if role == "mute" {
        common::hear_line();
        std::process::exit(0);
    }
    if role == "fork" {
        // SAFETY: the child only waits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: the call accesses no memory.
                unsafe { libc::pause() };
            }
        }
        say(child);
    }
    let mut flooded = None;
    let mut number = 0usize;
    loop {
        match poll(&mut shm) {
            Some(Owned::Message(peer, _, _)) if role == "flood" => flooded = Some(peer),
            Some(Owned::Message(peer, _, _)) if role == "burst" => {
                for number in 0..200 {
                    shm.send(peer, message(&pattern(number, number * 5))).unwrap();
                }
                say("done");
                common::hear_line();
            }
            Some(Owned::Message(peer, _, _)) if role == "close" => {
                for number in 0..200 {
                    shm.send(peer, message(&pattern(number, number * 5))).unwrap();
                }
                drop(shm);
                say("done");
                common::hear_line();
                std::process::exit(0);
            }
            _ => {}
        }
        if let Some(peer) = flooded
            && shm.send(peer, message(&pattern(number, number * 7 % 3000))).is_ok()
        {
            number += 1;
        }
    }
}

struct Served {
    other: Other,
    shm: Shm,
    peer: PeerId,
    span: RemoteSpan,
}

/// Starts the other process and connects to it.
fn serve(test: &str, part: &str) -> Served {
    let mut other = Other::spawn(test, part);
    let mut shm = shm(config(part));
    let address = other.hear_address();
    let span = RemoteSpan {
        address: other.hear().parse().unwrap(),
        key: other.hear().parse().unwrap(),
        length: EXPOSED as u64,
    };
    let peer = shm.connect(&address).unwrap();
    if part != "mute" {
        wait_for(&mut [&mut shm], "the connection", |_, event| match event {
            Owned::Up(up, _) if up == peer => Some(()),
            other => panic!("{other:?}"),
        });
    }
    Served { other, shm, peer, span }
}

fn expect_down(shm: &mut Shm, peer: PeerId, why: DownReason) {
    let start = Instant::now();
    wait_for(&mut [shm], "the peer's death", |_, event| match event {
        Owned::Down(down, reason) if (down, reason) == (peer, why) => Some(()),
        other => panic!("{other:?}"),
    });
    assert!(start.elapsed() < SOON, "the death was noticed after {:?}", start.elapsed());
}

#[test]
fn a_peer_that_dies_before_it_answers_is_unreachable() {
    if role().is_some() {
        play("mute");
    }
    let Served { mut other, mut shm, peer, .. } =
        serve("a_peer_that_dies_before_it_answers_is_unreachable", "mute");
    for _ in 0..10_000 {
        assert!(shm.poll().is_none());
    }
    other.kill();
    let start = Instant::now();
    wait_for(&mut [&mut shm], "the peer's death", |_, event| match event {
        Owned::Down(down, DownReason::Unreachable { errno: libc::ECONNREFUSED })
            if down == peer =>
        {
            Some(())
        }
        other => panic!("{other:?}"),
    });
    assert!(start.elapsed() < SOON);
}

#[test]
fn a_death_in_the_middle_of_a_stream_is_noticed() {
    if role().is_some() {
        play("flood");
    }
    let Served { mut other, mut shm, peer, .. } =
        serve("a_death_in_the_middle_of_a_stream_is_noticed", "flood");
    shm.send(peer, message(b"go")).unwrap();
    let mut next = 0;
    let mut killed = None;
    wait_for(&mut [&mut shm], "the peer's death", |_, event| match event {
        Owned::Message(_, _, bytes) => {
            assert!(bytes == pattern(next, next * 7 % 3000));
            next += 1;
            if next == 20_000 {
                other.kill();
                killed = Some(Instant::now());
            }
            None
        }
        Owned::Down(down, DownReason::Gone) => {
            assert_eq!(down, peer);
            Some(())
        }
        other => panic!("{other:?}"),
    });
    assert!(killed.unwrap().elapsed() < SOON);
}

#[test]
fn complete_messages_are_delivered_after_the_death() {
    if role().is_some() {
        play("burst");
    }
    let test = "complete_messages_are_delivered_after_the_death";
    let Served { mut other, mut shm, peer, .. } = serve(test, "burst");
    shm.send(peer, message(b"go")).unwrap();
    assert_eq!(other.hear(), "done");
    other.kill();
    let mut next = 0;
    wait_for(&mut [&mut shm], "the peer's death", |_, event| match event {
        Owned::Message(_, _, bytes) => {
            assert!(bytes == pattern(next, next * 5));
            next += 1;
            None
        }
        Owned::Down(down, DownReason::Gone) => {
            assert_eq!((down, next), (peer, 200));
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

#[test]
fn messages_of_a_dropped_worker_are_delivered() {
    if role().is_some() {
        play("close");
    }
    let test = "messages_of_a_dropped_worker_are_delivered";
    let Served { mut other, mut shm, peer, span } = serve(test, "close");
    shm.send(peer, message(b"go")).unwrap();
    assert_eq!(other.hear(), "done");
    let mut next = 0;
    wait_for(&mut [&mut shm], "the peer's end", |_, event| match event {
        Owned::Message(_, _, bytes) => {
            assert!(bytes == pattern(next, next * 5));
            next += 1;
            None
        }
        Owned::Down(down, DownReason::Left) => {
            assert_eq!((down, next), (peer, 200));
            Some(())
        }
        other => panic!("{other:?}"),
    });
    let into = Buffer::zeroed(EXPOSED);
    assert!(shm.read(ReadRequest { peer, remote: span, into, token: 0 }).is_err());
}

fn reads_end_when_the_peer_dies(test: &str, part: &str) {
    let Served { mut other, mut shm, peer, span } = serve(test, part);
    for token in 0..4 {
        let into = Buffer::zeroed(EXPOSED);
        shm.read(ReadRequest { peer, remote: span, into, token }).unwrap();
    }
    for _ in 0..10 {
        assert!(shm.poll().is_none());
    }
    other.kill();
    let start = Instant::now();
    let mut back = 0;
    wait_for(&mut [&mut shm], "the peer's death", |_, event| match event {
        Owned::ReadDone(_, into, result) => {
            assert!(result.is_err() && into.len() == EXPOSED);
            back += 1;
            None
        }
        Owned::Down(down, DownReason::Gone) => {
            assert_eq!((down, back), (peer, 4));
            Some(())
        }
        other => panic!("{other:?}"),
    });
    assert!(start.elapsed() < SOON);
}

#[test]
fn direct_reads_end_when_the_peer_dies() {
    if role().is_some() {
        play("read");
    }
    reads_end_when_the_peer_dies("direct_reads_end_when_the_peer_dies", "read");
}

#[test]
fn copied_reads_end_when_the_peer_dies() {
    if role().is_some() {
        play("copied");
    }
    reads_end_when_the_peer_dies("copied_reads_end_when_the_peer_dies", "copied");
}

#[test]
fn a_death_wakes_a_sleeping_worker() {
    if role().is_some() {
        play("any");
    }
    let Served { mut other, mut shm, peer, .. } = serve("a_death_wakes_a_sleeping_worker", "any");
    while !shm.arm(&[]) {
        assert!(shm.poll().is_none());
    }
    other.kill();
    let fd = shm.event_descriptor().as_raw_fd();
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: a valid pointer to one entry.
    let count = unsafe { libc::poll(&raw mut entry, 1, 1000) };
    assert_eq!(count, 1, "the death woke nobody");
    shm.disarm();
    expect_down(&mut shm, peer, DownReason::Gone);
}

/// A forked child holds the sockets open, so only the pidfd reports the death.
#[test]
fn a_death_is_noticed_while_a_forked_child_lives() {
    if role().is_some() {
        play("fork");
    }
    let Served { mut other, mut shm, peer, .. } = serve_forked();
    let child: i32 = other.hear().parse().unwrap();
    // The worker dies, and its child lives on.
    other.kill();
    expect_down(&mut shm, peer, DownReason::Gone);
    // SAFETY: no pointers. The child is a child of this process, and nothing has waited for it.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

fn serve_forked() -> Served {
    serve("a_death_is_noticed_while_a_forked_child_lives", "fork")
}

#[test]
fn a_forked_child_that_drops_a_device_disturbs_no_parent() {
    let (mut a, mut b) = (shm(ShmConfig::default()), shm(ShmConfig::default()));
    let (to_b, _) = connect(&mut a, &mut b);
    let mut devices = Some((a, b));
    // SAFETY: the child has this thread only. It drops its copies and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        drop(devices.take());
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    let (mut a, mut b) = devices.unwrap();
    a.send(to_b, message(b"still there")).unwrap();
    wait_for(&mut [&mut b], "a message", |_, event| match event {
        Owned::Message(_, _, bytes) => {
            assert_eq!(bytes, b"still there");
            Some(())
        }
        other => panic!("{other:?}"),
    });
    // Other workers can still connect, and the end of a peer is still noticed.
    let mut c = shm(ShmConfig::default());
    connect(&mut c, &mut a);
    drop(b);
    expect_down(&mut a, to_b, DownReason::Left);
}

#[test]
fn the_number_of_a_forgotten_peer_is_given_again_and_the_old_one_is_none() {
    let mut a = shm(ShmConfig::default());
    let mut old = PeerId::ONESELF;
    for round in 0..50 {
        let mut b = shm(ShmConfig::default());
        let (to_b, _) = connect(&mut a, &mut b);
        let address = b.address();
        assert_eq!((to_b.index(), to_b.generation()), (1, round));
        assert!(!a.forget(to_b), "it is up");
        drop(b);
        wait_for(&mut [&mut a], "the end of the peer", |_, event| {
            matches!(event, Owned::Down(peer, _) if peer == to_b).then_some(())
        });
        assert_eq!(a.connect(&address).unwrap(), to_b, "it is remembered");
        assert!(a.forget(to_b) && !a.forget(to_b));
        old = to_b;
    }
    assert!(!a.forget(PeerId::ONESELF));
    let mut b = shm(ShmConfig::default());
    let (to_b, to_a) = connect(&mut a, &mut b);
    assert_eq!((to_b.index(), a.peer_address(old)), (1, None));
    assert_eq!(a.read_mode(old), ReadMode::Unknown);
    a.disconnect(old);
    b.send(to_a, message(b"still here")).unwrap();
    wait_for(&mut [&mut a], "a message", |_, event| {
        matches!(event, Owned::Message(peer, ..) if peer == to_b).then_some(())
    });
}
