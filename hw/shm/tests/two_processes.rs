//! Messages and reads between two processes, and the death of one of them.

mod common;

use std::time::Duration;

use tagmatch_device::{Buffer, Device, DownReason, ReadError, ReadMode, ReadRequest, RemoteSpan};
use tagmatch_shm::{ReadPolicy, Shm, ShmConfig};

use common::{
    Other, Owned, connect_to_server, hear_server, message, next_down, next_message, pattern,
    read_end, role, serve, shm, wait_for, wait_up,
};

fn config() -> ShmConfig {
    let read = match std::env::var("TAGMATCH_TEST_READ").as_deref() {
        Ok("copied") => ReadPolicy::Copied,
        _ => ReadPolicy::Auto,
    };
    ShmConfig::default().read(read)
}

#[test]
fn messages_and_reads_cross_processes_until_the_peer_dies() {
    if role().is_some() {
        serve(config());
    }
    let mut server =
        Other::spawn("messages_and_reads_cross_processes_until_the_peer_dies", "server");
    let (mut shm, peer, span) = connect_to_server(&mut server, config());
    for length in [0, 1, 8, 56, 57, 64, 100, 4096, 16448] {
        let sent = pattern(length, length);
        shm.send(peer, message(&sent)).unwrap();
        wait_for(&mut [&mut shm], "an echo", |_, event| match event {
            Owned::Message(from, None, bytes) => {
                assert_eq!((from, bytes), (peer, sent.clone()));
                Some(())
            }
            other => panic!("{other:?}"),
        });
    }
    assert_ne!(shm.read_mode(peer), ReadMode::Unknown);
    let into = Buffer::zeroed(3 << 20);
    shm.read(ReadRequest { peer, remote: span, into, token: 7 }).unwrap();
    let (into, result) = read_end(&mut [&mut shm]);
    assert_eq!(result, Ok(()));
    assert!(into[..] == pattern(5, 3 << 20)[..]);
    server.kill();
    assert_eq!(next_down(&mut shm), (peer, DownReason::Gone));
    let into = Buffer::zeroed(8);
    let remote = RemoteSpan { length: 8, ..span };
    let late = shm.read(ReadRequest { peer, remote, into, token: 8 });
    assert!(matches!(late, Err((_, ReadError::PeerDown))));
}

#[test]
fn an_address_without_a_worker_is_unreachable() {
    let gone = shm(ShmConfig::default()).address();
    let mut shm = shm(ShmConfig::default());
    let peer = shm.connect(&gone).unwrap();
    wait_for(&mut [&mut shm], "the refusal", |_, event| match event {
        Owned::Down(down, DownReason::Unreachable { .. }) if down == peer => Some(()),
        other => panic!("{other:?}"),
    });
}

/// In a pid namespace of its own, the server sees no process number for its peer, and copies reads.
/// The peer sees the server's number, and reads directly.
#[test]
fn workers_connect_across_pid_namespaces() {
    let test = "workers_connect_across_pid_namespaces";
    if role().is_some() {
        serve(config());
    }
    let Some(mut server) = Other::spawn_in_pid_namespace(test, "server") else {
        println!("SKIPPED: needs root and unshare(1), to make a pid namespace");
        return;
    };
    let (mut shm, peer, span) = connect_to_server(&mut server, config());
    let into = Buffer::zeroed(3 << 20);
    shm.read(ReadRequest { peer, remote: span, into, token: 7 }).unwrap();
    let (into, result) = read_end(&mut [&mut shm]);
    assert_eq!(result, Ok(()));
    assert!(into[..] == pattern(5, 3 << 20)[..]);
    shm.send(peer, message(b"echo")).unwrap();
    next_message(&mut [&mut shm]);
    server.kill();
    assert_eq!(next_down(&mut shm), (peer, DownReason::Gone));
}

/// A server with few free descriptors serves some of its peers, says so to the others once they
/// have waited, and serves new peers once some have left.
#[test]
fn a_server_short_of_descriptors_serves_later_peers() {
    let connect_timeout = Duration::from_millis(300);
    let patient = || config().connect_timeout(connect_timeout);
    if role().is_some() {
        // The process has three descriptors, the device has some, and a few are left for peers.
        let limit = libc::rlimit { rlim_cur: 24, rlim_max: 24 };
        // SAFETY: `limit` is valid during the call.
        let answer = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        assert_eq!(answer, 0);
        serve(patient());
    }
    let mut server = Other::spawn("a_server_short_of_descriptors_serves_later_peers", "server");
    let (address, _) = hear_server(&mut server);
    let mut clients: Vec<Shm> = (0..30).map(|_| shm(patient())).collect();
    for client in &mut clients {
        client.connect(&address).unwrap();
    }
    let mut ups = 0;
    let mut downs = 0;
    let mut all: Vec<&mut Shm> = clients.iter_mut().collect();
    wait_for(&mut all, "an answer to each", |_, event| {
        match event {
            Owned::Up(..) => ups += 1,
            Owned::Down(_, DownReason::Unreachable { errno: libc::EMFILE }) => downs += 1,
            other => panic!("{other:?}"),
        }
        (ups + downs == 30).then_some(())
    });
    assert!(ups >= 2 && downs >= 2, "{ups} up, {downs} down");
    drop(clients);
    let mut late = shm(config());
    let peer = late.connect(&address).unwrap();
    wait_up(&mut late, peer);
}
