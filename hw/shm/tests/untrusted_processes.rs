//! Processes of other users, and descriptors whose closing blocks.

#![allow(clippy::cast_possible_truncation, reason = "small numbers, and a test that fails loudly")]

mod common;
#[allow(dead_code, reason = "a part of it")]
mod hostile_peer;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;

use tagmatch_device::{Address, Device, DownReason};
use tagmatch_shm::ShmConfig;
use tagmatch_shm::fuzzing::HelloRefusal;

use common::{Other, Owned, next_down, poll, role, shm, wait_for};
use hostile_peer::{
    Bystanders, DOORBELL_BYTES, HostilePeer, RawSocket, SEALS, hello, invented, memfd,
};

/// A thread that closes the first descriptor waits until the second is closed or read, or for an
/// hour.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other_end, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
    // SAFETY: a `linger` that lives through the call.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as u32,
        )
    };
    assert_eq!(answer, 0);
    (socket.into(), other_end)
}

/// Sends a packet with a descriptor, which this process then closes, before anybody receives it:
/// whoever closes it last waits.
fn send_lingering(raw: &RawSocket, bytes: &[u8]) -> TcpStream {
    let (socket, other_end) = lingering();
    if raw.send(bytes, &[socket.as_raw_fd()]) {
        drop(socket);
    } else {
        // The kernel has refused the descriptor, so that closing it here blocks.
        std::thread::spawn(move || drop(socket));
    }
    other_end
}

/// Runs `program` on another thread and fails if it hangs.
fn ends<T: Send + 'static>(what: &str, program: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(program()));
    ended.recv_timeout(common::PATIENCE).unwrap_or_else(|_| panic!("blocked: {what}"))
}

/// Becomes a user that has no rights here. All threads of the process change.
fn become_another_user() {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::setuid(65534) }, 0);
}

fn can_become_another_user() -> bool {
    // SAFETY: no pointers.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        println!("SKIPPED: needs root, to become another user");
    }
    is_root
}

#[test]
fn a_connection_of_another_user_is_closed_before_anything_is_received() {
    let test = "a_connection_of_another_user_is_closed_before_anything_is_received";
    if role().is_some() {
        become_another_user();
        let victim: Address = common::hear_line().parse().unwrap();
        let mut own = shm(ShmConfig::default());
        assert!(own.connect(&victim).is_err());
        let hello = hello(invented(&own.address(), 1));
        let pair = memfd(hello.geometry.pair_bytes(), SEALS);
        let doorbell = memfd(DOORBELL_BYTES, SEALS);
        let raw = RawSocket::connect(&victim).unwrap();
        raw.send(&hello.emit(), &[pair.as_raw_fd(), doorbell.as_raw_fd()]);
        assert!(raw.receive().is_none());
        let raws: Vec<RawSocket> = (0..3).map(|_| RawSocket::connect(&victim).unwrap()).collect();
        let _ends: Vec<_> = raws.iter().map(|raw| send_lingering(raw, &hello.emit())).collect();
        assert!(raws.iter().all(|raw| raw.receive().is_none()));
        common::say("refused");
        common::hear_line();
        return;
    }
    if !can_become_another_user() {
        return;
    }
    ends("by what another user has sent", move || {
        let mut bystanders = Bystanders::new(ShmConfig::default());
        let mut other = Other::spawn(test, "other user");
        other.say(&bystanders.victim.address().to_string());
        let answer = std::thread::spawn(move || {
            assert_eq!(other.hear(), "refused");
            other
        });
        while !answer.is_finished() {
            assert!(bystanders.exchange().is_empty());
        }
        drop(bystanders);
        answer.join().unwrap()
    });
}

#[test]
fn a_worker_that_never_looked_is_dropped_with_what_another_user_has_sent() {
    let test = "a_worker_that_never_looked_is_dropped_with_what_another_user_has_sent";
    if role().is_some() {
        become_another_user();
        let raw = RawSocket::connect(&common::hear_line().parse().unwrap()).unwrap();
        let _end = send_lingering(&raw, b"hello");
        common::say("sent");
        common::hear_line();
        return;
    }
    if !can_become_another_user() {
        return;
    }
    ends("by what nobody has received", move || {
        let victim = shm(ShmConfig::default());
        let mut other = Other::spawn(test, "other user");
        other.say(&victim.address().to_string());
        assert_eq!(other.hear(), "sent");
        drop(victim);
        other
    });
}

#[test]
fn what_a_peer_has_sent_is_closed_without_waiting() {
    ends("by what a peer has sent", || {
        let mut bystanders = Bystanders::new(ShmConfig::default());
        let victim = bystanders.victim.address();
        let mut other_ends = Vec::new();
        // With a hello, with a packet that is no hello, and behind either.
        for (number, bytes) in
            [hello(invented(&victim, 1)).emit(), b"hello".to_vec(), vec![]].into_iter().enumerate()
        {
            let raw = RawSocket::connect(&victim).unwrap();
            if number > 0 {
                raw.send(&HelloRefusal::Busy.emit(), &[]);
            }
            other_ends.push(send_lingering(&raw, &bytes));
            while !raw.is_hung_up() {
                assert!(bystanders.exchange().is_empty());
            }
        }
        // On an established connection.
        let hostile = HostilePeer::connect(&mut bystanders, 7);
        other_ends.push(send_lingering(&hostile.socket, b"w"));
        hostile.socket.send(b"no wake", &[]);
        assert!(matches!(bystanders.wait_down(), DownReason::Misbehaved { .. }));
        let hostile = HostilePeer::connect(&mut bystanders, 8);
        other_ends.push(send_lingering(&hostile.socket, b"w"));
        drop(bystanders);
        other_ends
    });
}

/// Threads of this process that close what came from peers.
fn closers() -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "tagmatch-close").count()
}

#[test]
fn no_connection_is_accepted_while_too_many_closings_are_blocked() {
    let test = "no_connection_is_accepted_while_too_many_closings_are_blocked";
    if role().is_none() {
        // In a process of its own, because the threads belong to the process.
        return Other::spawn(test, "alone").wait();
    }
    ends("by blocked closings", || {
        let mut bystanders = Bystanders::new(ShmConfig::default());
        let victim = bystanders.victim.address();
        let before = descriptors();
        // These are accepted before, and send when all threads are blocked.
        let late: Vec<RawSocket> = (0..4).map(|_| RawSocket::connect(&victim).unwrap()).collect();
        while descriptors() < before + 2 * late.len() {
            assert!(bystanders.exchange().is_empty());
        }
        let raws: Vec<RawSocket> = (0..20).map(|_| RawSocket::connect(&victim).unwrap()).collect();
        let mut other_ends: Vec<_> = raws.iter().map(|raw| send_lingering(raw, b"hello")).collect();
        while closers() < 16 {
            assert!(bystanders.exchange().is_empty());
        }
        other_ends.extend(late.iter().map(|raw| send_lingering(raw, b"hello")));
        while !late.iter().all(RawSocket::is_hung_up) {
            assert!(bystanders.exchange().is_empty());
        }
        let mut newcomer = shm(ShmConfig::default());
        let peer = newcomer.connect(&victim).unwrap();
        for _ in 0..1000 {
            assert!(bystanders.exchange().is_empty() && newcomer.poll().is_none());
        }
        assert_eq!((closers(), raws.iter().filter(|raw| raw.is_hung_up()).count()), (16, 16));
        // Blocked no more.
        drop(other_ends);
        wait_for(&mut [&mut newcomer, &mut bystanders.victim], "the peer", |index, event| {
            (index == 0).then(|| assert!(matches!(event, Owned::Up(up, _) if up == peer)))
        });
        drop((newcomer, late, raws));
        while descriptors() > before {
            bystanders.exchange();
        }
    });
}

/// How many descriptors this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn the_kernel_refuses_descriptors_on_an_established_connection() {
    let mut bystanders = Bystanders::new(ShmConfig::default());
    let hostile = HostilePeer::connect(&mut bystanders, 9);
    let has_passed = hostile.socket.send(b"w", &[0]);
    if kernel() >= (6, 16) {
        assert!(!has_passed);
        assert!(bystanders.exchange().is_empty());
    } else {
        assert!(matches!(bystanders.wait_down(), DownReason::Misbehaved { .. }));
    }
}

fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn a_user_that_has_no_number_in_a_namespace_is_not_taken_for_another_one_that_has_none() {
    let test =
        "a_user_that_has_no_number_in_a_namespace_is_not_taken_for_another_one_that_has_none";
    if role().is_some() {
        let mut victim = shm(ShmConfig::default());
        common::say(victim.address());
        let end = std::thread::spawn(common::hear_line);
        while !end.is_finished() {
            assert!(victim.poll().is_none());
        }
        return;
    }
    let Some(mut other) = Other::spawn_in_user_namespace(test, "victim") else {
        println!("SKIPPED: needs unshare(1) and leave to make a user namespace");
        return;
    };
    let victim = other.hear_address();
    let mut bytes = victim.as_bytes().to_vec();
    // The process: the lower 22 bits of the four bytes that follow the place.
    let process = u32::from_le_bytes(bytes[16..20].try_into().unwrap());
    let process = process >> 22 << 22 | std::process::id();
    bytes[16..20].copy_from_slice(&process.to_le_bytes());
    let hello = hello(invented(&Address::from_bytes(&bytes).unwrap(), 1));
    let pair = memfd(hello.geometry.pair_bytes(), SEALS);
    let doorbell = memfd(DOORBELL_BYTES, SEALS);
    let raw = RawSocket::connect(&victim).unwrap();
    raw.send(&hello.emit(), &[pair.as_raw_fd(), doorbell.as_raw_fd()]);
    assert!(raw.receive().is_none(), "was let in");
    assert!(raw.is_hung_up(), "not heard yet");
    other.say("end");
    other.wait();
}

#[test]
fn one_process_cannot_take_the_places_of_all() {
    let test = "one_process_cannot_take_the_places_of_all";
    if role().is_some() {
        let victim: Address = common::hear_line().parse().unwrap();
        let connect = || {
            let mut own = shm(ShmConfig::default());
            let peer = own.connect(&victim).unwrap();
            let is_up = wait_for(&mut [&mut own], "an answer", |_, event| match event {
                Owned::Up(up, _) if up == peer => Some(true),
                Owned::Down(_, DownReason::Unreachable { errno: libc::EUSERS }) => Some(false),
                other => panic!("{other:?}"),
            });
            is_up.then_some(own)
        };
        let mut all: Vec<_> = (0..4).filter_map(|_| connect()).collect();
        common::say(all.len());
        all.pop();
        assert_eq!(common::hear_line(), "left");
        all.extend((0..2).filter_map(|_| connect()));
        common::say(all.len());
        common::hear_line();
        return;
    }
    let mut victim = shm(ShmConfig::default().process_peers_max(2));
    let mut others = [0; 2].map(|_| Other::spawn(test, "connects"));
    for other in &mut others {
        other.say(&victim.address().to_string());
        let answer = std::thread::scope(|scope| {
            let answer = scope.spawn(|| other.hear());
            let mut downs = 0;
            while !answer.is_finished() || downs == 0 {
                downs += usize::from(matches!(poll(&mut victim), Some(Owned::Down(..))));
            }
            answer.join().unwrap()
        });
        assert_eq!(answer, "2");
        other.say("left");
        let answer = std::thread::scope(|scope| {
            let answer = scope.spawn(|| other.hear());
            while !answer.is_finished() {
                poll(&mut victim);
            }
            answer.join().unwrap()
        });
        assert_eq!(answer, "2");
    }
    // Connections of this process to itself are not counted.
    let mut own = [0; 3].map(|_| shm(ShmConfig::default()));
    for own in &mut own {
        let peer = own.connect(&victim.address()).unwrap();
        wait_for(&mut [own, &mut victim], "a peer", |index, event| match event {
            Owned::Up(up, _) if index == 0 && up == peer => Some(()),
            _ => None,
        });
    }
}

/// A worker connects to further workers of a process that has as many peers here as it may have.
#[test]
fn peers_that_a_worker_connects_to_count_for_no_process() {
    let test = "peers_that_a_worker_connects_to_count_for_no_process";
    if role().is_some() {
        let victim: Address = common::hear_line().parse().unwrap();
        let mut all = Vec::new();
        for _ in 0..10 {
            let mut own = shm(ShmConfig::default());
            let peer = own.connect(&victim).unwrap();
            common::say(own.address());
            wait_for(&mut [&mut own], "a peer", |_, event| match event {
                Owned::Up(up, _) if up == peer => Some(()),
                other => panic!("{other:?}"),
            });
            all.push(own);
            common::say("up");
            assert_eq!(common::hear_line(), "next");
        }
        return;
    }
    let mut victim = shm(ShmConfig::default().process_peers_max(1));
    let mut other = Other::spawn(test, "connects");
    other.say(&victim.address().to_string());
    for number in 0..10 {
        let address: Address = other.hear().parse().unwrap();
        // The first one alone counts. Which attempt of the others wins is their addresses' choice.
        if number > 0 {
            victim.connect(&address).unwrap();
        }
        let answer = std::thread::scope(|scope| {
            let answer = scope.spawn(|| other.hear());
            while !answer.is_finished() {
                poll(&mut victim);
            }
            answer.join().unwrap()
        });
        assert_eq!(answer, "up");
        other.say("next");
    }
    other.wait();
}

#[test]
fn a_listener_of_another_user_is_sent_nothing() {
    let test = "a_listener_of_another_user_is_sent_nothing";
    if role().is_some() {
        become_another_user();
        // It holds the name of a worker that is gone.
        let listener = RawSocket::listen(&common::hear_line().parse().unwrap());
        common::say("listens");
        let socket = listener.accept();
        assert!(socket.receive().is_none(), "was sent the doorbell and the ring");
        common::say("got nothing");
        return;
    }
    if !can_become_another_user() {
        return;
    }
    let mut victim = shm(ShmConfig::default());
    let address = invented(&victim.address(), 1);
    let mut other = Other::spawn(test, "listener");
    other.say(&address.to_string());
    assert_eq!(other.hear(), "listens");
    let peer = victim.connect(&address).unwrap();
    assert_eq!(next_down(&mut victim), (peer, DownReason::Unreachable { errno: libc::EPERM }));
    assert_eq!(other.hear(), "got nothing");
    other.wait();
}
