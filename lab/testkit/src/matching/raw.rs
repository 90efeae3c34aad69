//! The handshake as its pages describe it, written a second time, for ends that break its rules.

use std::hash::Hasher;
// Deprecated as the hasher of maps; it takes a key.
#[allow(deprecated)]
use std::hash::SipHasher;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Instant;

use tagmatch_device::matching::{MatchingDevice, MatchingEvent};
use tagmatch_device::{Address, Release};

use super::fixture::Fixture;
use crate::device::PATIENCE;

pub(super) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

pub(super) fn socket_name<F: Fixture>(address: &Address) -> SocketAddr {
    let name: String = address.as_bytes()[5..13].iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddr::from_abstract_name(format!("{}{name}", F::SOCKET)).unwrap()
}

pub(super) fn secret(address: &Address) -> [u8; 16] {
    address.as_bytes()[13..29].try_into().unwrap()
}

/// A connection to the name of a device.
pub(super) fn by_name<F: Fixture>(address: &Address) -> UnixStream {
    let stream = UnixStream::connect_addr(&socket_name::<F>(address)).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// A connection to the port of a device.
pub(super) fn by_tcp(address: &Address) -> TcpStream {
    let bytes = address.as_bytes();
    let port = u16::from_le_bytes([bytes[29], bytes[30]]);
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// Connections to both kinds of sockets of a device.
pub(super) fn both<F: Fixture>(address: &Address) -> [Box<dyn Stream>; 2] {
    [Box::new(by_name::<F>(address)), Box::new(by_tcp(address))]
}

/// The address of a device that takes greetings only over TCP, on this machine.
pub(super) fn address<F: Fixture>(secret: [u8; 16], port: u16) -> Address {
    let mut bytes = [&opening::<F>()[..], b"no name."].concat();
    bytes.extend_from_slice(&secret);
    bytes.extend_from_slice(&port.to_le_bytes());
    bytes.extend_from_slice(&[4, 127, 0, 0, 1]);
    Address::from_bytes(&bytes).unwrap()
}

/// The first bytes of an address, and of a connection.
pub(super) fn opening<F: Fixture>() -> [u8; 5] {
    let [a, b, c, d] = *F::MAGIC;
    [a, b, c, d, Release::OWN.byte()]
}

/// The same of a worker of another release.
pub(super) fn opening_of_another_release<F: Fixture>() -> [u8; 5] {
    let [a, b, c, d, release] = opening::<F>();
    [a, b, c, d, release ^ 1]
}

/// A greeting of the device at `address`, which carries tags by the usual settings.
pub(super) fn hello(address: &Address, number: u64, worker: &[u8]) -> Vec<u8> {
    let mut packet = vec![1];
    for word in [0x7fff_ffffu64, 0x7fff_0000, number] {
        packet.extend_from_slice(&word.to_le_bytes());
    }
    packet.extend_from_slice(&[0; 9]);
    packet.push(address.as_bytes().len() as u8);
    packet.extend_from_slice(address.as_bytes());
    packet.extend_from_slice(worker);
    packet
}

/// The address of the worker in a greeting.
pub(super) fn worker_of(hello: &[u8]) -> Vec<u8> {
    assert_eq!(hello[0], 1);
    hello[35 + usize::from(hello[34])..].to_vec()
}

/// Bytes that come from a device, which is polled meanwhile; fewer at the end of the stream.
pub(super) fn receive<D: MatchingDevice>(
    stream: &mut dyn Stream,
    device: &mut D,
    length: usize,
) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut have = 0;
    let start = Instant::now();
    while have < length {
        // At most that a peer is up, over a library that makes no connection for that.
        let event = device.poll();
        assert!(matches!(event, None | Some(MatchingEvent::PeerUp { .. })), "{event:?}");
        match stream.read(&mut bytes[have..]) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < PATIENCE, "{have} of {length} bytes came");
    }
    bytes.truncate(have);
    bytes
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Role {
    Caller,
    Listener,
}

/// One end of a connection with a device, which has proved itself.
pub(super) struct Raw {
    pub(super) stream: Box<dyn Stream>,
    key: [u8; 16],
    role: u8,
    sealed: u64,
    opened: u64,
}

impl Raw {
    /// Exchanges openings and proofs with a device. Its own proof hasn't been looked at if it is
    /// the listener.
    pub(super) fn meet<F: Fixture>(
        mut stream: Box<dyn Stream>,
        device: &mut F::Device,
        role: Role,
        secret: [u8; 16],
    ) -> Self {
        let own = [0x55; 16];
        stream.write_all(&opening::<F>()).unwrap();
        stream.write_all(&own).unwrap();
        let opening = receive(&mut *stream, device, 21);
        assert_eq!(opening[..5], self::opening::<F>());
        let challenges = match role {
            Role::Caller => [&own, &opening[5..]].concat(),
            Role::Listener => [&opening[5..], &own].concat(),
        };
        let key = hash(secret, 1, 0, 0, &challenges);
        let mut raw = Raw { stream, key, role: role as u8, sealed: 0, opened: 0 };
        let own = raw.hash(2, raw.role, 0, &[]);
        let others = raw.hash(2, 1 - raw.role, 0, &[]);
        if role == Role::Listener {
            assert_eq!(receive(&mut *raw.stream, device, 16), others);
        }
        raw.stream.write_all(&own).unwrap();
        raw
    }

    fn hash(&self, purpose: u8, role: u8, number: u64, bytes: &[u8]) -> [u8; 16] {
        hash(self.key, purpose, role, number, bytes)
    }

    fn cover(&self, role: u8, number: u64, packet: &mut [u8]) {
        for (at, bytes) in packet.chunks_mut(16).enumerate() {
            let stream = self.hash(4, role, number, &(at as u64).to_le_bytes());
            bytes.iter_mut().zip(stream).for_each(|(byte, other)| *byte ^= other);
        }
    }

    /// A packet as it goes over the stream.
    pub(super) fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut bytes = packet.to_vec();
        self.cover(self.role, self.sealed, &mut bytes);
        let tag = self.hash(3, self.role, self.sealed, &bytes);
        self.sealed += 1;
        [&(packet.len() as u32).to_le_bytes()[..], &bytes, &tag].concat()
    }

    /// Sends a packet. The device may have hung up already.
    pub(super) fn say(&mut self, packet: &[u8]) {
        let bytes = self.seal(packet);
        let _ = self.stream.write_all(&bytes);
    }

    /// The device's next packet; `None` if it hangs up.
    pub(super) fn hear<D: MatchingDevice>(&mut self, device: &mut D) -> Option<Vec<u8>> {
        if self.opened == 0 && self.role == Role::Caller as u8 {
            let proof = self.hash(2, 1, 0, &[]);
            if receive(&mut *self.stream, device, 16) != proof {
                return None;
            }
        }
        let length = receive(&mut *self.stream, device, 4);
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let mut packet = receive(&mut *self.stream, device, length + 16);
        let tag = packet.split_off(length);
        assert_eq!(tag, self.hash(3, 1 - self.role, self.opened, &packet));
        self.cover(1 - self.role, self.opened, &mut packet);
        self.opened += 1;
        Some(packet)
    }
}

#[allow(deprecated)]
fn hash(key: [u8; 16], purpose: u8, role: u8, number: u64, bytes: &[u8]) -> [u8; 16] {
    let word = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().unwrap());
    let half = |half: u8| {
        let mut hasher = SipHasher::new_with_keys(word(0), word(8));
        hasher.write(&[half, purpose, role, 0]);
        hasher.write(&number.to_le_bytes());
        hasher.write(bytes);
        hasher.finish().to_le_bytes()
    };
    [half(0), half(1)].concat().try_into().unwrap()
}
