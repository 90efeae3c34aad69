//! What the tests of all devices share, and shared memory.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(unused_imports, reason = "each test binary uses its own part")]

use tagmatch_device::{Address, Buffer, Device, Outgoing, PeerId, RemoteSpan};
use tagmatch_shm::{Shm, ShmConfig};

pub use tagmatch_testkit::device::*;

/// Makes a worker leave all its lifelines to a thread: with so many more peers, which live as long
/// as the result.
pub fn crowd(hub: &mut Shm) -> Vec<Shm> {
    let connected = |_| {
        let mut peer = shm(ShmConfig::default());
        connect(&mut peer, hub);
        peer
    };
    (0..5).map(connected).collect()
}

/// A device that has reported that it is connected to itself.
pub fn shm(config: ShmConfig) -> Shm {
    tagmatch_testkit::process::share_descriptors();
    up(Shm::new(config).unwrap())
}

/// Makes a child that only waits, and that has open what this process has, its sockets as well: it
/// is made past the handlers of fork(2). It ends by itself after a while, so that a test that fails
/// leaves nothing behind.
pub fn waiting_child() -> i32 {
    // SAFETY: without flags, clone(2) does what fork(2) does; no argument is a pointer. The child
    // only makes calls that access no memory.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        let child = i32::try_from(child).unwrap_or(-1);
        if child == 0 {
            libc::alarm(60);
            loop {
                libc::pause();
            }
        }
        child
    }
}

/// Bytes that a server exposes.
pub const SERVED: usize = 3 << 20;

/// The program of another process. It prints its address, exposes a buffer to the first peer, and
/// echoes messages until it is killed.
pub fn serve(config: ShmConfig) -> ! {
    let mut shm = shm(config);
    let exposure = shm.expose(READER, Buffer::from(pattern(5, SERVED))).unwrap();
    say(shm.address());
    say(exposure.span.address);
    say(exposure.span.key);
    loop {
        if let Some(Owned::Message(peer, immediate, bytes)) = poll(&mut shm) {
            let echo = Outgoing { header: &[], payload: &bytes, immediate };
            // This drops events of other peers, of which these tests have none.
            while shm.send(peer, echo).is_err() {
                shm.poll();
            }
        }
    }
}

/// What a server prints.
pub fn hear_server(server: &mut Other) -> (Address, RemoteSpan) {
    let address = server.hear_address();
    let start = server.hear().parse().unwrap();
    let key = server.hear().parse().unwrap();
    (address, RemoteSpan { address: start, key, length: SERVED as u64 })
}

/// A worker that is connected to a server, and where the server's buffer is.
pub fn connect_to_server(server: &mut Other, config: ShmConfig) -> (Shm, PeerId, RemoteSpan) {
    let (address, span) = hear_server(server);
    let mut shm = shm(config);
    let peer = shm.connect(&address).unwrap();
    wait_up(&mut shm, peer);
    assert_eq!(shm.peer_address(peer), Some(address));
    (shm, peer, span)
}
