//! What the tests of all devices share, and TCP on loopback.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(unused_imports, reason = "each test binary uses its own part")]

pub mod raw;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use tagmatch_device::{Address, Device, DownReason, EventDescriptor, PeerId};
use tagmatch_tcp::{Secret, Tcp, TcpConfig};

pub use tagmatch_testkit::device::*;

/// Forks a child that only waits, with what this process has open. It ends by itself after a while,
/// so that a test that fails leaves nothing behind.
pub fn waiting_child() -> i32 {
    // SAFETY: the child only makes calls that access no memory.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            loop {
                libc::pause();
            }
        }
        child
    }
}

/// A secret of these bytes.
pub fn secret(byte: u8) -> Secret {
    Secret::from_bytes(&[byte; 16]).unwrap()
}

/// Settings for loopback, which end soon.
pub fn config() -> TcpConfig {
    TcpConfig::default()
        .secret(Some(secret(7)))
        .listen(vec![Ipv4Addr::LOCALHOST.into()])
        .connect_timeout(Duration::from_secs(2))
}

/// A device that has reported that it is connected to itself.
pub fn tcp(config: TcpConfig) -> Tcp {
    tagmatch_testkit::process::share_descriptors();
    up(Tcp::new(config).unwrap())
}

/// Where a device with the settings of [`config`] listens.
pub fn place(address: &Address) -> SocketAddr {
    let bytes = address.as_bytes();
    let port = u16::from_le_bytes([bytes[9], bytes[10]]);
    let host: [u8; 4] = bytes[12..16].try_into().unwrap();
    SocketAddr::new(IpAddr::V4(host.into()), port)
}

/// The address of a device with another place.
pub fn moved(address: &Address, to: SocketAddr) -> Address {
    let mut bytes = address.as_bytes().to_vec();
    bytes[9..11].copy_from_slice(&to.port().to_le_bytes());
    let IpAddr::V4(host) = to.ip() else { panic!() };
    bytes[12..16].copy_from_slice(&host.octets());
    Address::from_bytes(&bytes).unwrap()
}

/// Waits until a peer is down, and returns why. Other events are dropped.
pub fn wait_down(tcp: &mut Tcp, peer: PeerId) -> DownReason {
    wait_for(&mut [tcp], "the peer's end", |_, event| match event {
        Owned::Down(down, reason) if down == peer => Some(reason),
        _ => None,
    })
}

/// Sends a message from `a` to `b`, which must have no other event.
pub fn exchange(a: &mut Tcp, to_b: PeerId, b: &mut Tcp) {
    send(a, to_b, message(b"ping"), || {});
    assert_eq!(next_message(&mut [b]), b"ping");
}
