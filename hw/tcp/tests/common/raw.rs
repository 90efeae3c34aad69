//! An end of a connection that is made by hand, byte by byte.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tagmatch_device::contents::{Contents, Name};
use tagmatch_device::{Address, Device, Network};
use tagmatch_secret::{Greeting, NONCE_BYTES, Nonce, Proof, ProofEnd, Role};
use tagmatch_tcp::{Secret, Tcp};

use super::{PATIENCE, place, poll};

const PROTOCOL: &[u8] = b"tagmatch tcp 2";
/// Bytes of an opening, of a question, and of an answer.
pub const OPENING: usize = 5 + NONCE_BYTES + 1 + 64;
pub const QUESTION: usize = 32 + 4;
pub const ANSWER: usize = 1 + QUESTION;

/// The bytes of an opening.
pub fn opening(nonce: &Nonce, address: &Address) -> Vec<u8> {
    let bytes = address.as_bytes();
    let mut out = b"TMtp\x02".to_vec();
    out.extend(nonce);
    out.push(u8::try_from(bytes.len()).unwrap());
    out.extend(bytes);
    out.resize(OPENING, 0);
    out
}

/// Nonce and address of an opening.
pub fn parse_opening(bytes: &[u8]) -> (Nonce, Address) {
    assert_eq!((bytes.len(), &bytes[..5]), (OPENING, &b"TMtp\x02"[..]));
    let length = usize::from(bytes[21]);
    (bytes[5..21].try_into().unwrap(), Address::from_bytes(&bytes[22..22 + length]).unwrap())
}

/// The proof of an end, from both openings.
pub fn proof(secret: &Secret, role: Role, caller: &[u8], listener: &[u8]) -> Proof {
    let ((caller_nonce, caller), (listener_nonce, listener)) =
        (parse_opening(caller), parse_opening(listener));
    let greeting = Greeting {
        protocol: PROTOCOL,
        caller: ProofEnd { nonce: &caller_nonce, address: caller.as_bytes() },
        listener: ProofEnd { nonce: &listener_nonce, address: listener.as_bytes() },
    };
    greeting.proof(secret, role)
}

/// The bytes of a question.
pub fn question(proof: &Proof, message_max: u32) -> Vec<u8> {
    [&proof[..], &message_max.to_le_bytes()].concat()
}

/// A frame, with its kind and word.
pub fn frame(kind: u8, word: u32, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    [&length[..], &[kind, 0, 0, 0], &word.to_le_bytes(), bytes].concat()
}

/// An address of a worker that is on TCP alone: its name, and what TCP has to say.
pub fn address_of(name: Name, section: &[u8]) -> Address {
    Contents::new(name).with(Network::Tcp, section).address().unwrap()
}

/// An address at which nothing listens: port 1 of 127.0.0.1.
pub fn nowhere(name: Name) -> Address {
    address_of(name, b"\x01\x00\x04\x7f\0\0\x01")
}

/// An address at which nothing listens, of a worker whose name ends in a byte.
pub fn invented(byte: u8) -> Address {
    let mut name = *b"nobody?";
    name[6] = byte;
    nowhere(name)
}

/// A socket made by hand.
pub struct Raw(pub TcpStream);

impl Raw {
    /// Connects to a device.
    pub fn connect(to: &Address) -> Self {
        Self::connect_at(place(to)).unwrap()
    }

    pub fn connect_at(place: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(place)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Raw(socket))
    }

    pub fn say(&self, bytes: &[u8]) {
        (&self.0).write_all(bytes).unwrap();
    }

    /// The next `length` bytes. The device, which must report nothing, is polled meanwhile. An
    /// error if the socket ends before.
    pub fn hear(&self, tcp: &mut Tcp, length: usize) -> io::Result<Vec<u8>> {
        let mut out = vec![0; length];
        let start = Instant::now();
        let mut have = 0;
        while have < length {
            assert!(start.elapsed() < PATIENCE, "{have} of {length} bytes came");
            let event = poll(tcp);
            assert!(event.is_none(), "{event:?}");
            match (&self.0).read(&mut out[have..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(out)
    }

    /// Whether the device closes the connection without a byte.
    pub fn is_closed_by(&self, tcp: &mut Tcp) -> bool {
        self.hear(tcp, 1).is_err()
    }

    /// Polls the device for a time, in which it must report nothing.
    pub fn is_left_open_by(&self, tcp: &mut Tcp, time: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < time {
            assert!(poll(tcp).is_none());
        }
        matches!((&self.0).read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Connects to a device with the right proof, as a worker with this address. The device reports
    /// the peer then.
    pub fn greet(tcp: &mut Tcp, secret: &Secret, own: &Address) -> Self {
        let raw = Self::connect(&tcp.address());
        let caller = opening(&[3; NONCE_BYTES], own);
        raw.say(&caller);
        let listener = raw.hear(tcp, OPENING).unwrap();
        raw.say(&question(&proof(secret, Role::Caller, &caller, &listener), 1 << 16));
        raw
    }
}
