//! Messages and reads between two processes, and the death of one of them.

mod common;

use std::time::Duration;

use tagmatch_device::{
    Buffer, Device, DownReason, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan,
};
use tagmatch_shm::{ReadPolicy, Shm, ShmConfig};

use common::{Other, Owned, READER, connect, message, pattern, poll, role, say, shm, wait_for};

fn config() -> ShmConfig {
    let read = match std::env::var("TAGMATCH_TEST_READ").as_deref() {
        Ok("copied") => ReadPolicy::Copied,
        _ => ReadPolicy::Auto,
    };
    ShmConfig::default().read(read)
}

/// The program of the other process. It prints its address, exposes a buffer to all peers and
/// echoes messages until it is killed.
fn serve() -> ! {
    serve_with(config())
}

fn serve_with(config: ShmConfig) -> ! {
    let mut shm = shm(config);
    let exposure = shm.expose(READER, Buffer::from(pattern(5, 3 << 20))).unwrap();
    say(shm.address());
    say(exposure.span.address);
    say(exposure.span.key);
    loop {
        if let Some(Owned::Message(peer, immediate, bytes)) = poll(&mut shm) {
            let echo = tagmatch_device::Outgoing { header: &[], payload: &bytes, immediate };
            // This drops events of other peers, of which this test has none.
            while shm.send(peer, echo).is_err() {
                shm.poll();
            }
        }
    }
}

fn hear_server(server: &mut Other) -> (tagmatch_device::Address, RemoteSpan) {
    let address = server.hear_address();
    let start = server.hear().parse().unwrap();
    let key = server.hear().parse().unwrap();
    (address, RemoteSpan { address: start, key, length: 3 << 20 })
}

fn wait_up(shm: &mut Shm, peer: PeerId) {
    wait_for(&mut [shm], "the connection", |_, event| match event {
        Owned::Up(up, _) if up == peer => Some(()),
        other => panic!("{other:?}"),
    });
}

#[test]
fn messages_and_reads_cross_processes_until_the_peer_dies() {
    if role().is_some() {
        serve();
    }
    let mut server =
        Other::spawn("messages_and_reads_cross_processes_until_the_peer_dies", "server");
    let (address, span) = hear_server(&mut server);
    let mut shm = shm(config());
    let peer = shm.connect(&address).unwrap();
    wait_up(&mut shm, peer);
    assert_eq!(shm.peer_address(peer), Some(address));
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
    wait_for(&mut [&mut shm], "a read", |_, event| match event {
        Owned::ReadDone(7, into, Ok(())) => {
            assert!(into[..] == pattern(5, 3 << 20)[..]);
            Some(())
        }
        other => panic!("{other:?}"),
    });
    server.kill();
    wait_for(&mut [&mut shm], "the peer's death", |_, event| match event {
        Owned::Down(down, DownReason::Gone) if down == peer => Some(()),
        other => panic!("{other:?}"),
    });
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

#[test]
fn a_closed_worker_goes_down_after_its_messages() {
    let mut a = shm(ShmConfig::default());
    let mut b = shm(ShmConfig::default());
    let (to_b, to_a) = connect(&mut a, &mut b);
    for number in 0..100u8 {
        b.send(to_a, message(&[number])).unwrap();
    }
    drop(b);
    let mut next = 0;
    wait_for(&mut [&mut a], "the peer's end", |_, event| match event {
        Owned::Message(_, _, bytes) => {
            assert_eq!(bytes, [next]);
            next += 1;
            None
        }
        Owned::Down(peer, DownReason::Left) => {
            assert_eq!((peer, next), (to_b, 100));
            Some(())
        }
        other => panic!("{other:?}"),
    });
}

/// In a pid namespace of its own, the server sees no process number for its peer, and copies reads.
/// The peer sees the server's number, and reads directly.
#[test]
fn workers_connect_across_pid_namespaces() {
    let test = "workers_connect_across_pid_namespaces";
    if role().is_some() {
        serve();
    }
    let Some(mut server) = Other::spawn_in_pid_namespace(test, "server") else {
        println!("SKIPPED: needs root and unshare(1), to make a pid namespace");
        return;
    };
    let (address, span) = hear_server(&mut server);
    let mut shm = shm(config());
    let peer = shm.connect(&address).unwrap();
    wait_up(&mut shm, peer);
    let into = Buffer::zeroed(3 << 20);
    shm.read(ReadRequest { peer, remote: span, into, token: 7 }).unwrap();
    wait_for(&mut [&mut shm], "a read", |_, event| match event {
        Owned::ReadDone(7, into, Ok(())) => {
            assert!(into[..] == pattern(5, 3 << 20)[..]);
            Some(())
        }
        other => panic!("{other:?}"),
    });
    shm.send(peer, message(b"echo")).unwrap();
    wait_for(&mut [&mut shm], "an echo", |_, event| {
        matches!(event, Owned::Message(..)).then_some(())
    });
    server.kill();
    wait_for(&mut [&mut shm], "the peer's death", |_, event| match event {
        Owned::Down(down, DownReason::Gone) if down == peer => Some(()),
        other => panic!("{other:?}"),
    });
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
        serve_with(patient());
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
