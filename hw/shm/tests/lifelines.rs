//! Workers with many peers: their descriptors don't grow, and all ends are noticed.

mod common;
#[allow(dead_code, reason = "one test has a peer made by hand")]
mod hostile_peer;

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tagmatch_device::{
    Address, Buffer, Device, DownReason, PeerId, ReadError, ReadRequest, RemoteSpan,
};
use tagmatch_shm::{Shm, ShmConfig};

use common::{
    Other, Owned, READER, connect, crowd, fall_asleep, hear_line, message, next_down, next_up,
    pattern, poll, role, say, shm, sleep, wait_for, wait_up,
};
use hostile_peer::HostilePeer;

/// A worker that doesn't wake by itself: whoever wakes it has told it something.
fn sleepy() -> ShmConfig {
    ShmConfig::default().sweep_interval(Duration::from_secs(3600))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Threads of this process that watch lifelines.
fn end_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    tasks.map(name).filter(|name| name.trim() == "tagmatch-ends").count()
}

/// The end of a peer, of which a sleeping worker is told.
fn end_of(hub: &mut Shm, peer: PeerId) -> DownReason {
    loop {
        match poll(hub) {
            Some(Owned::Down(down, reason)) => {
                assert_eq!(down, peer);
                return reason;
            }
            Some(other) => panic!("{other:?}"),
            None if hub.arm(&[]) => {
                assert!(sleep(hub, common::PATIENCE), "the end of a peer woke nobody");
                hub.disarm();
            }
            None => {}
        }
    }
}

#[test]
fn descriptors_do_not_grow_with_the_peers() {
    let test = "descriptors_do_not_grow_with_the_peers";
    if role().is_some() {
        let mut hub = shm(ShmConfig::default());
        say(hub.address());
        let mut up = 0;
        loop {
            let wanted: usize = hear_line().parse().unwrap();
            while up < wanted {
                up += usize::from(matches!(poll(&mut hub), Some(Owned::Up(..))));
            }
            say(format!("{} {}", descriptors(), end_threads()));
        }
    }
    let mut other = Other::spawn(test, "hub");
    let hub = other.hear_address();
    let mut peers = Vec::new();
    let mut counts = |wanted: usize| {
        while peers.len() < wanted {
            let mut peer = shm(ShmConfig::default());
            peer.connect(&hub).unwrap();
            peers.push(peer);
        }
        other.say(&wanted.to_string());
        let line = other.hear();
        let (descriptors, threads) = line.split_once(' ').unwrap();
        [descriptors, threads].map(|count| count.parse::<usize>().unwrap())
    };
    // Four lifelines of two descriptors are watched by the worker itself.
    let ([none, 0], [four, 0]) = (counts(0), counts(4)) else {
        panic!("a thread for few lifelines")
    };
    assert_eq!(four, none + 8);
    let [five, threads] = counts(5);
    // The socket of the thread, and the eventfd by which it reports.
    assert_eq!((five, threads), (none + 2, 1));
    assert_eq!(counts(45), [five, 1]);
    assert_eq!(counts(49), [five + 8, 1]);
}

/// Answers close_range(2) with ENOSYS in this process, as kernels before 5.9 do.
fn forbid_descriptor_tables() {
    let step = |code: u32, jf, k| {
        let code = u16::try_from(code).unwrap();
        libc::sock_filter { code, jt: 0, jf, k }
    };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ, 1, u32::try_from(libc::SYS_close_range).unwrap()),
        step(libc::BPF_RET, 0, refuse),
        step(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: the program lives through the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn without_descriptor_tables_of_threads_a_worker_watches_all_peers_itself() {
    let test = "without_descriptor_tables_of_threads_a_worker_watches_all_peers_itself";
    if role().is_none() {
        // In a process of its own, which the filter belongs to.
        return Other::spawn(test, "alone").wait();
    }
    forbid_descriptor_tables();
    let mut hub = shm(sleepy());
    let mut peers = crowd(&mut hub);
    peers.extend(crowd(&mut hub));
    // A thread that gets no table ends at once, but the kernel may need a moment.
    let start = Instant::now();
    while end_threads() > 0 {
        assert!(start.elapsed() < common::PATIENCE, "a thread watches");
    }
    let mut ends = 0;
    while let Some(peer) = peers.pop() {
        drop(peer);
        ends += usize::from(matches!(
            common::sleep_for_event(&mut hub),
            Owned::Down(_, DownReason::Left)
        ));
    }
    assert_eq!(ends, 10);
}

/// Peers that don't poll answer no hello. Each attempt takes a socket and the memory of a ring.
#[test]
fn attempts_to_connect_wait_for_each_other() {
    let test = "attempts_to_connect_wait_for_each_other";
    if role().is_some() {
        let mut worker = shm(ShmConfig::default());
        say("ready");
        let addresses: Vec<_> = (0..20).map(|_| hear_line().parse::<Address>().unwrap()).collect();
        let before = descriptors();
        for address in &addresses {
            worker.connect(address).unwrap();
        }
        say(descriptors() - before);
        let mut up = 0;
        while up < addresses.len() {
            up += usize::from(matches!(poll(&mut worker), Some(Owned::Up(..))));
        }
        say("up");
        hear_line();
        return;
    }
    let mut other = Other::spawn(test, "caller");
    assert_eq!(other.hear(), "ready");
    let mut peers: Vec<_> = (0..20).map(|_| shm(ShmConfig::default())).collect();
    for peer in &peers {
        other.say(&peer.address().to_string());
    }
    let taken: usize = other.hear().parse().unwrap();
    assert!((2..=8).contains(&taken), "{taken} descriptors");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                peers.iter_mut().for_each(|peer| drop(poll(peer)));
            }
        });
        assert_eq!(other.hear(), "up");
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn each_end_is_noticed_by_a_sleeping_worker() {
    let test = "each_end_is_noticed_by_a_sleeping_worker";
    if let Some(role) = role() {
        let mut worker = shm(ShmConfig::default());
        say(worker.address());
        next_up(&mut worker);
        say("up");
        hear_line();
        match role.as_str() {
            "leaves" => drop(worker),
            "exits" => {}
            "calls exec" => {
                let error = Command::new("sleep").arg("60").exec();
                panic!("{error}");
            }
            "has a child" => say(common::waiting_child()),
            _ => panic!("{role}"),
        }
        if role == "leaves" {
            hear_line();
        }
        // Drops nothing.
        std::process::exit(0);
    }
    let ends = [
        ("leaves", DownReason::Left),
        ("exits", DownReason::Gone),
        ("calls exec", DownReason::Gone),
        ("has a child", DownReason::Gone),
    ];
    let mut hub = shm(sleepy());
    let mut others: Vec<_> = ends
        .into_iter()
        .map(|(role, reason)| {
            let mut other = Other::spawn(test, role);
            let peer = hub.connect(&other.hear_address()).unwrap();
            wait_up(&mut hub, peer);
            assert_eq!(other.hear(), "up");
            (other, peer, reason)
        })
        .collect();
    let _crowd = crowd(&mut hub);
    for (other, peer, reason) in &mut others {
        fall_asleep(&mut hub);
        other.say("end");
        assert!(sleep(&hub, common::PATIENCE), "the end of a peer woke nobody");
        hub.disarm();
        assert_eq!(&end_of(&mut hub, *peer), reason);
    }
    let child: i32 = others[3].0.hear().parse().unwrap();
    // SAFETY: no pointers. Nothing has waited for the child, so the number is still its.
    unsafe { libc::kill(child, libc::SIGKILL) };
    others.iter_mut().for_each(|(other, ..)| other.kill());
}

/// The other side of a connection that a thread watches is told at once that it ends.
#[test]
fn a_worker_with_many_peers_leaves_each_of_them() {
    let mut hub = shm(sleepy());
    let mut peer = shm(sleepy());
    let (to_peer, to_hub) = connect(&mut hub, &mut peer);
    let mut crowd = crowd(&mut hub);
    hub.send(to_peer, message(b"last")).unwrap();
    hub.disconnect(to_peer);
    let first = wait_for(&mut [&mut peer], "a message", |_, event| Some(event));
    assert!(
        matches!(&first, Owned::Message(from, _, bytes) if (*from, &bytes[..]) == (to_hub, b"last"))
    );
    assert_eq!(end_of(&mut peer, to_hub), DownReason::Left);
    assert_eq!(end_of(&mut hub, to_peer), DownReason::Disconnected);
    // The number of a peer that is forgotten means another peer afterwards.
    assert!(hub.forget(to_peer));
    let mut next = shm(sleepy());
    let (to_next, _) = connect(&mut hub, &mut next);
    drop(peer);
    hub.send(to_next, message(b"hello")).unwrap();
    wait_for(&mut [&mut next, &mut hub], "a message", |index, event| match event {
        Owned::Message(_, _, bytes) => (bytes == b"hello").then_some(()),
        other => panic!("{index}: {other:?}"),
    });
    for peer in &mut crowd {
        fall_asleep(peer);
    }
    drop(hub);
    for peer in &mut crowd {
        assert!(sleep(peer, common::PATIENCE), "the end of the hub woke nobody");
        peer.disarm();
        assert_eq!(next_down(peer).1, DownReason::Left);
    }
}

#[test]
fn a_packet_that_breaks_rules_is_noticed_by_the_thread() {
    let mut hub = shm(sleepy());
    let hostile = HostilePeer::connect_to(&mut hub, 3);
    let _crowd = crowd(&mut hub);
    fall_asleep(&mut hub);
    hostile.socket.send(b"whatever", &[]);
    assert!(sleep(&hub, common::PATIENCE));
    hub.disarm();
    let reason = end_of(&mut hub, PeerId(1));
    assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
}

/// A read succeeds only if the sender still had the buffer when all bytes were read.
#[test]
fn a_buffer_that_was_let_go_is_not_read() {
    let test = "a_buffer_that_was_let_go_is_not_read";
    if role().is_some() {
        let mut worker = shm(ShmConfig::default());
        let buffer = Buffer::from(pattern(5, 100_000));
        // Behind the buffer, so that its memory stays with the process.
        let behind = vec![1; 100_000];
        say(buffer.as_ptr().addr());
        let exposure = worker.expose(READER, buffer).unwrap();
        say(worker.address());
        say(exposure.span.key);
        next_up(&mut worker);
        hear_line();
        drop(worker);
        say(behind.len());
        hear_line();
        return;
    }
    let mut other = Other::spawn(test, "sender");
    let at: u64 = other.hear().parse().unwrap();
    let address = other.hear_address();
    let remote = RemoteSpan { address: at, key: other.hear().parse().unwrap(), length: 100_000 };
    let mut reader = shm(sleepy());
    let peer = reader.connect(&address).unwrap();
    wait_up(&mut reader, peer);
    let _crowd = crowd(&mut reader);
    let mut read = |token| {
        let into = Buffer::zeroed(100_000);
        reader.read(ReadRequest { peer, remote, into, token }).unwrap();
        wait_for(&mut [&mut reader], "the read", |_, event| match event {
            Owned::ReadDone(done, into, result) => Some((done, into.to_vec(), result)),
            _ => None,
        })
    };
    assert_eq!(read(1), (1, pattern(5, 100_000), Ok(())));
    other.say("let go");
    assert_eq!(other.hear(), "100000");
    // The reader has not polled, so it doesn't know that the sender has left.
    let (_, _, result) = read(2);
    assert_eq!(result, Err(ReadError::PeerDown));
}
