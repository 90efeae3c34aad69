//! What the tests of all devices share, and TCP on loopback.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(unused_imports, reason = "each test binary uses its own part")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tagmatch_device::Address;
use tagmatch_tcp::{Secret, Tcp, TcpConfig};

pub use tagmatch_testkit::device::*;

/// A secret of these bytes.
pub fn secret(byte: u8) -> Secret {
    Secret::from_bytes(&[byte; 16]).unwrap()
}

/// Settings for loopback, which end soon.
pub fn config() -> TcpConfig {
    TcpConfig {
        secret: Some(secret(7)),
        listen: vec![Ipv4Addr::LOCALHOST.into()],
        connect_timeout: Duration::from_secs(2),
        ..TcpConfig::default()
    }
}

/// A device that has reported that it is connected to itself.
pub fn tcp(config: TcpConfig) -> Tcp {
    up(Tcp::new(config).unwrap())
}

/// Where a device with the settings of [`config`] listens.
pub fn place(address: &Address) -> SocketAddr {
    let bytes = address.as_bytes();
    let port = u16::from_le_bytes([bytes[13], bytes[14]]);
    let host: [u8; 4] = bytes[16..20].try_into().unwrap();
    SocketAddr::new(IpAddr::V4(host.into()), port)
}

/// The address of a device with another place.
pub fn moved(address: &Address, to: SocketAddr) -> Address {
    let mut bytes = address.as_bytes().to_vec();
    bytes[13..15].copy_from_slice(&to.port().to_le_bytes());
    let IpAddr::V4(host) = to.ip() else { panic!() };
    bytes[16..20].copy_from_slice(&host.octets());
    Address::from_bytes(&bytes).unwrap()
}
