//! Waking workers of other processes: one socket a worker, whatever the number of its peers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::socket;
use super::socket_calls::{SO_PASSRIGHTS, SocketAddress, length_of, open, set_option};

/// The bytes that a packet must have to be taken. Only peers know them.
pub type WakeKey = [u8; 8];

const KEY_BYTES: u32 = 8;
const _: () = assert!(size_of::<WakeKey>() == KEY_BYTES as usize);

/// A datagram socket under an abstract name, which is readable after a wake.
///
/// Any process may send to an abstract name. So a filter in the kernel drops all packets without
/// the key, and other processes wake nobody.
pub struct WakeSocket {
    socket: OwnedFd,
    key: WakeKey,
}

/// Most packets that are taken at a time.
const TAKEN_MAX: usize = 16;

impl WakeSocket {
    /// A socket that packets with this key wake.
    pub fn bind(name: &[u8], key: WakeKey) -> io::Result<Self> {
        let address = SocketAddress::of_abstract(name)?;
        let socket = open(libc::AF_UNIX, libc::SOCK_DGRAM)?;
        attach_filter(&socket, key)?;
        // Before Linux 6.16 there is no such option: descriptors that come are closed elsewhere.
        let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, 0);
        address.bind(&socket)?;
        Ok(WakeSocket { socket, key })
    }

    /// The key of this socket.
    pub fn key(&self) -> WakeKey {
        self.key
    }

    /// Wakes the owner of the socket with this name, out of this socket. Errors are ignored: a
    /// socket without room is readable and so wakes its owner anyway, and without a socket there is
    /// nobody.
    pub fn wake(&self, name: &[u8], key: WakeKey) {
        let Ok(address) = SocketAddress::of_abstract(name) else { return };
        let sent = address.send_to(self.socket.as_fd(), &key);
        // Packets count as this socket's until their receivers take them. So owners that take none
        // could fill it. A new socket has room.
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            && let Ok(other) = open(libc::AF_UNIX, libc::SOCK_DGRAM)
        {
            let _ = address.send_to(other.as_fd(), &key);
        }
    }

    /// Takes the packets that are there. The rest is taken at the next call.
    pub fn clear(&self) {
        let mut bytes = [0; size_of::<WakeKey>()];
        for _ in 0..TAKEN_MAX {
            if socket::receive(self.socket.as_fd(), &mut bytes).is_err() {
                return;
            }
        }
    }
}

impl AsFd for WakeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Has the kernel drop packets that are not the key (`SO_ATTACH_FILTER`, socket(7)).
fn attach_filter(socket: &OwnedFd, key: WakeKey) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    };
    let [a, b, c, d, e, f, g, h] = key;
    // The filter loads words in network byte order.
    let words = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
    let load = libc::BPF_LD | libc::BPF_W;
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut program = [
        step(load | libc::BPF_LEN, 0, 0, 0),
        step(is, 0, 5, KEY_BYTES),
        step(load | libc::BPF_ABS, 0, 0, 0),
        step(is, 0, 3, words[0]),
        step(load | libc::BPF_ABS, 0, 0, 4),
        step(is, 0, 1, words[1]),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: 8, filter: program.as_mut_ptr() };
    let from = (&raw const program).cast();
    let length = length_of::<libc::sock_fprog>();
    let level = libc::SOL_SOCKET;
    let option = libc::SO_ATTACH_FILTER;
    // SAFETY: the program has eight steps, which live through the call, as `program` does.
    super::check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, from, length) })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::is_readable;

    #[test]
    fn packets_with_the_key_wake_and_others_are_dropped() {
        let [own, other] = [b"own-key!", b"another!"].map(|key| {
            let name = format!("wake-{}-{}", std::process::id(), key[0]);
            (WakeSocket::bind(name.as_bytes(), *key).unwrap(), name)
        });
        assert_eq!(own.0.key(), *b"own-key!");
        let address = SocketAddress::of_abstract(own.1.as_bytes()).unwrap();
        for wrong in [&b""[..], b"own-key", b"own-key!!", b"own-kez!", b"Own-key!", &[0; 8]] {
            let _ = address.send_to(other.0.as_fd(), wrong);
            assert!(!is_readable(own.0.as_fd()), "{wrong:?}");
        }
        // A full socket blocks nobody, and is readable.
        for _ in 0..3000 {
            other.0.wake(own.1.as_bytes(), own.0.key());
        }
        assert!(is_readable(own.0.as_fd()));
        for _ in 0..1000 {
            own.0.clear();
        }
        assert!(!is_readable(own.0.as_fd()));
        // Sockets whose owners take no packets keep no other owner from being woken.
        let lazy: Vec<_> = (0..200)
            .map(|at| {
                let name = format!("wake-lazy-{}-{at}", std::process::id());
                (WakeSocket::bind(name.as_bytes(), *b"the key!").unwrap(), name)
            })
            .collect();
        for (lazy, name) in lazy.iter().cycle().take(200 * 10) {
            other.0.wake(name.as_bytes(), lazy.key());
        }
        other.0.wake(own.1.as_bytes(), own.0.key());
        assert!(is_readable(own.0.as_fd()));
        // Nobody has this name.
        own.0.wake(b"wake-nobody", own.0.key());
    }
}
