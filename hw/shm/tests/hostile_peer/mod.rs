//! A hostile peer, which can write anything, and workers that it must not harm.

#![allow(
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub,
    reason = "a part of one test, whose numbers are small"
)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use tagmatch_device::{Address, Device, DownReason, Outgoing, PeerId};
use tagmatch_shm::fuzzing::{DoorbellBit, Geometry, HandshakePacket, Hello, Nonce, Places};
use tagmatch_shm::{Shm, ShmConfig};

use crate::common::{Owned, connect, pattern, shm, wait_for};

pub const DOORBELL_BYTES: usize = 4096;

/// A socket on which any packet can be sent.
pub struct RawSocket(pub OwnedFd);

pub fn name_of(address: &Address) -> String {
    let random = &address.as_bytes()[2..9];
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\0tagmatch-{digits}")
}

impl RawSocket {
    pub fn socket() -> OwnedFd {
        // SAFETY: no pointers; the descriptor is new.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        }
    }

    pub fn sockaddr(name: &str) -> (libc::sockaddr_un, u32) {
        // SAFETY: all zeros is valid.
        let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        (address, (2 + name.len()) as u32)
    }

    pub fn connect(victim: &Address) -> io::Result<RawSocket> {
        let socket = Self::socket();
        let (address, length) = Self::sockaddr(&name_of(victim));
        // SAFETY: `address` lives through the call.
        let answer =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(RawSocket(socket)) }
    }

    pub fn listen(own: &Address) -> RawSocket {
        let socket = Self::socket();
        let (address, length) = Self::sockaddr(&name_of(own));
        // SAFETY: `address` lives through the calls.
        unsafe {
            assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length), 0);
            assert_eq!(libc::listen(socket.as_raw_fd(), 5), 0);
        }
        RawSocket(socket)
    }

    pub fn accept(&self) -> RawSocket {
        let none = std::ptr::null_mut();
        // SAFETY: no address is asked for; the descriptor is new.
        unsafe {
            let fd = libc::accept4(self.0.as_raw_fd(), none, std::ptr::null_mut(), 0);
            assert!(fd >= 0);
            RawSocket(OwnedFd::from_raw_fd(fd))
        }
    }

    /// Whether the kernel has taken the packet.
    pub fn send(&self, bytes: &[u8], fds: &[i32]) -> bool {
        // A header, and up to 253 descriptors, the most that the kernel takes.
        let mut control = [0u64; 2 + 127];
        assert!(fds.len() <= 253);
        let mut part =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: everything points to locals that are large enough.
        unsafe {
            let mut header: libc::msghdr = mem::zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            if !fds.is_empty() {
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = libc::CMSG_SPACE((fds.len() * 4) as u32) as usize;
                let rights = libc::CMSG_FIRSTHDR(&raw const header);
                (*rights).cmsg_level = libc::SOL_SOCKET;
                (*rights).cmsg_type = libc::SCM_RIGHTS;
                (*rights).cmsg_len = libc::CMSG_LEN((fds.len() * 4) as u32) as usize;
                std::ptr::copy_nonoverlapping(
                    fds.as_ptr(),
                    libc::CMSG_DATA(rights).cast(),
                    fds.len(),
                );
            }
            libc::sendmsg(self.0.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) >= 0
        }
    }

    /// Whether the other end was closed.
    pub fn is_hung_up(&self) -> bool {
        let mut entry = libc::pollfd { fd: self.0.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry that lives through the call.
        unsafe { libc::poll(&raw mut entry, 1, 0) > 0 && entry.revents & libc::POLLHUP != 0 }
    }

    /// The next packet and its descriptors; `None` at the end.
    pub fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = [0u8; 512];
        let mut control = [0u64; 32];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut fds = Vec::new();
        // SAFETY: everything points to locals that are large enough; the descriptors are new.
        let length = unsafe {
            let mut entry =
                libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            assert!(libc::poll(&raw mut entry, 1, 20_000) > 0, "neither an answer nor an end");
            let mut header: libc::msghdr = mem::zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = 256;
            let length = libc::recvmsg(self.0.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC);
            let rights = libc::CMSG_FIRSTHDR(&raw const header);
            if length > 0 && !rights.is_null() {
                let data = libc::CMSG_DATA(rights).cast::<i32>();
                for at in 0..((*rights).cmsg_len - libc::CMSG_LEN(0) as usize) / 4 {
                    fds.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            }
            length
        };
        let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
        Some((bytes[..length].to_vec(), fds))
    }
}

pub fn memfd(length: usize, seals: i32) -> OwnedFd {
    let name: &std::ffi::CStr = c"hostile";
    // SAFETY: the name ends in a zero byte; the descriptor is new.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        assert_eq!(libc::ftruncate(fd, length as i64), 0);
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seals), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

pub const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// An address that could be of this process, made from another one.
pub fn invented(like: &Address, seed: u8) -> Address {
    let mut bytes = like.as_bytes().to_vec();
    for (at, byte) in bytes[2..9].iter_mut().enumerate() {
        *byte = byte.wrapping_add(seed).wrapping_mul(5).wrapping_add(at as u8);
    }
    Address::from_bytes(&bytes).unwrap()
}

pub fn hello(address: Address) -> Hello {
    Hello {
        address,
        message_max: 1024,
        takes_offers: true,
        takes_fragments: true,
        geometry: Geometry::new(1 << 18).unwrap(),
        doorbell_bit: DoorbellBit::new(0).unwrap(),
        hears_barriers: true,
        makes_barriers: true,
        nonce_address: 0,
        nonce: Nonce([0; 16]),
        memory: None,
        wake_key: [0; 8],
    }
}

/// A worker that a hostile peer connects to, and a friend of it. The hostile peer must not disturb
/// their exchanges.
pub struct Bystanders {
    pub victim: Shm,
    pub friend: Shm,
    pub to_friend: PeerId,
    pub to_victim: PeerId,
    pub round: u32,
}

impl Bystanders {
    pub fn new(config: ShmConfig) -> Self {
        let mut victim = shm(config.clone());
        let mut friend = shm(config);
        let (to_friend, to_victim) = connect(&mut victim, &mut friend);
        Bystanders { victim, friend, to_friend, to_victim, round: 0 }
    }

    /// The two workers exchange messages. Returns the victim's events of other peers.
    pub fn exchange(&mut self) -> Vec<Owned> {
        self.round += 1;
        let round = self.round;
        let bytes = pattern(round as usize, round as usize * 37 % 5000);
        let outgoing = Outgoing { header: &[], payload: &bytes, immediate: Some(round) };
        self.victim.send(self.to_friend, outgoing).unwrap();
        self.friend.send(self.to_victim, outgoing).unwrap();
        let mut others = Vec::new();
        let mut has_message = [false; 2];
        let peers = [self.to_friend, self.to_victim];
        wait_for(&mut [&mut self.victim, &mut self.friend], "an exchange", |index, event| {
            match event {
                Owned::Message(peer, immediate, got) if peer == peers[index] => {
                    assert!(immediate == Some(round) && got == bytes && !has_message[index]);
                    has_message[index] = true;
                }
                other if index == 0 => others.push(other),
                other => panic!("the friend saw {other:?}"),
            }
            (has_message == [true; 2]).then_some(())
        });
        others
    }

    /// Waits until the victim reports that a peer is down.
    pub fn wait_down(&mut self) -> DownReason {
        wait_for(&mut [&mut self.victim], "the end of a peer", |_, event| match event {
            Owned::Down(_, reason) => Some(reason),
            _ => None,
        })
    }
}

/// A connection to a worker, all of whose memory the test can write.
pub struct HostilePeer {
    pub socket: RawSocket,
    pub memory: MmapRaw,
    /// Where the ring is that the victim reads.
    pub outgoing: Places,
    /// Where the ring is that the victim writes.
    pub incoming: Places,
    /// The victim's doorbell.
    pub doorbell: MmapRaw,
    pub bit: usize,
    /// The victim's hello.
    pub theirs: Hello,
    pub sent: u32,
    /// How far it says that it has read.
    pub read: u32,
}

impl HostilePeer {
    pub fn connect(bystanders: &mut Bystanders, seed: u8) -> HostilePeer {
        Self::connect_to(&mut bystanders.victim, seed)
    }

    pub fn connect_to(device: &mut Shm, seed: u8) -> HostilePeer {
        Self::greet(device, &hello(invented(&device.address(), seed)))
    }

    pub fn greet(device: &mut Shm, hello: &Hello) -> HostilePeer {
        Self::greet_with(device, hello, &[])
    }

    /// Connects with a hello, with which more descriptors are sent than those of pair and doorbell.
    pub fn greet_with(device: &mut Shm, hello: &Hello, more: &[i32]) -> HostilePeer {
        let victim = device.address();
        let pair = memfd(hello.geometry.pair_bytes(), SEALS);
        let doorbell = memfd(DOORBELL_BYTES, SEALS);
        let socket = RawSocket::connect(&victim).unwrap();
        let fds = [&[pair.as_raw_fd(), doorbell.as_raw_fd()], more].concat();
        socket.send(&hello.emit(), &fds);
        wait_for(&mut [device], "the hostile peer's connection", |_, event| {
            matches!(event, Owned::Up(..)).then_some(())
        });
        let (answer, fds) = socket.receive().unwrap();
        let Ok(HandshakePacket::Hello(theirs)) = HandshakePacket::parse(&answer) else {
            panic!("{answer:?}")
        };
        let map = |fd: &OwnedFd, length| MmapOptions::new().len(length).map_raw(fd).unwrap();
        let [incoming, outgoing] = hello.geometry.places();
        let memory = map(&pair, hello.geometry.pair_bytes());
        // Its first word, in a lap with an even number: it writes the long lines from now on.
        let change_lines = u64::from(2u32 << 30 | 1 << 28 | 1 << 27 | 1) << 32;
        Self::word(&memory, outgoing.short).store(change_lines, Ordering::Release);
        HostilePeer {
            socket,
            memory,
            outgoing,
            incoming,
            doorbell: map(&fds[0], DOORBELL_BYTES),
            bit: theirs.doorbell_bit.index(),
            theirs,
            sent: 4096,
            read: 0,
        }
    }

    pub fn word(map: &MmapRaw, at_bytes: usize) -> &AtomicU64 {
        assert!(at_bytes.is_multiple_of(8) && at_bytes + 8 <= map.len());
        // SAFETY: inside the mapping and aligned, by the check; any bits are a valid word.
        unsafe { &*map.as_mut_ptr().add(at_bytes).cast::<AtomicU64>() }
    }

    /// Writes a message of one line, and rings the doorbell.
    pub fn write_slot(&mut self, meta: u32, body: &[u8]) {
        self.write_quietly(meta, body);
        Self::word(&self.doorbell, 256 + self.bit / 64 * 8)
            .fetch_or(1 << (self.bit % 64), Ordering::SeqCst);
        Self::word(&self.doorbell, 0).fetch_or(1 << (self.bit / 64), Ordering::SeqCst);
    }

    /// Writes a message without ringing, as if another peer had cleared the doorbell bit at once.
    pub fn write_quietly(&mut self, meta: u32, body: &[u8]) {
        let slot = self.outgoing.long + 64 * (self.sent as usize % 4096);
        let lap = 2 | (self.sent / 4096 % 2);
        self.sent += 1;
        // The last message of a lap says so.
        let meta = if self.sent.is_multiple_of(4096) { meta | 1 << 27 } else { meta };
        for (at, chunk) in body.chunks(8).take(7).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(bytes);
            Self::word(&self.memory, slot + 8 + at * 8).store(word, Ordering::Relaxed);
        }
        let word = u64::from(self.read) | u64::from(meta | lap << 30) << 32;
        Self::word(&self.memory, slot).store(word, Ordering::Release);
    }
}
