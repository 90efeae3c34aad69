//! The control socket, by which `tagmatch-hca ctl` asks for faults from outside of the programs.
//!
//! It is a socket of packets with an abstract name, which goes with the device. A packet is a fault
//! as text, and its answer is empty, or says why there is no such fault. Only processes of the same
//! user and of root are heard.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with,
};
use rustix::process::geteuid;

/// The beginning of the socket's name. The number of the command's process follows.
const NAME: &str = "tagmatch-hca/";
/// Bytes of the longest fault.
const TEXT_MAX: usize = 4096;
/// Connections at a time. A further one takes the place of the oldest one.
const OPEN_MAX: usize = 16;

fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn address(process: u32) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("{NAME}{process}").as_bytes())?)
}

/// Whether the other end belongs to this user, or to root.
fn is_own(fd: BorrowedFd<'_>) -> bool {
    socket_peercred(fd).is_ok_and(|peer| peer.uid == geteuid() || peer.uid.is_root())
}

#[derive(Debug)]
struct Open {
    number: u64,
    fd: OwnedFd,
    answer: Option<String>,
}

/// The device's end.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: OwnedFd,
    open: Vec<Open>,
    last: u64,
}

impl ControlSocket {
    /// Listens for the command with this process.
    pub(crate) fn open(process: u32) -> io::Result<Self> {
        let listener = new_socket(SocketFlags::NONBLOCK)?;
        bind(&listener, &address(process)?)?;
        listen(&listener, OPEN_MAX as i32)?;
        Ok(ControlSocket { listener, open: Vec::new(), last: 0 })
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open = self.open.iter().map(|open| open.fd.as_fd());
        std::iter::once(self.listener.as_fd()).chain(open)
    }

    /// The faults that were asked for, and by which connection.
    pub(crate) fn take(&mut self) -> Vec<(u64, String)> {
        for _ in 0..OPEN_MAX {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let Ok(fd) = accept_with(&self.listener, flags) else { break };
            if !is_own(fd.as_fd()) {
                continue;
            }
            if self.open.len() == OPEN_MAX {
                self.open.remove(0);
            }
            self.last += 1;
            self.open.push(Open { number: self.last, fd, answer: None });
        }
        let mut found = Vec::new();
        self.open.retain(|open| {
            let mut bytes = [0; TEXT_MAX];
            match recv(&open.fd, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => false,
                Ok((length, _)) => {
                    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                    found.push((open.number, text));
                    true
                }
                Err(error) => error == rustix::io::Errno::AGAIN,
            }
        });
        found
    }

    /// Keeps the answer for a connection until the fault has happened. `why`: there is none.
    pub(crate) fn prepare(&mut self, number: u64, why: Option<String>) {
        if let Some(open) = self.open.iter_mut().find(|open| open.number == number) {
            open.answer = Some(why.unwrap_or_default());
        }
    }

    /// Answers, and ends the connections that were answered.
    pub(crate) fn answer(&mut self) {
        for open in self.open.extract_if(.., |open| open.answer.is_some()) {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = send(&open.fd, open.answer.unwrap_or_default().as_bytes(), flags);
        }
    }
}

/// Asks the command with this process for a fault. The answer: why there is none.
pub(crate) fn ask(process: u32, fault: &str) -> io::Result<Option<String>> {
    let fd = new_socket(SocketFlags::empty())?;
    connect(&fd, &address(process)?)?;
    if !is_own(fd.as_fd()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    send(&fd, fault.as_bytes(), SendFlags::NOSIGNAL)?;
    let mut answer = Vec::new();
    File::from(fd).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok((!answer.is_empty()).then_some(answer))
}

/// The processes of the commands that listen in this network namespace, by `/proc/net/unix`.
pub(crate) fn listening(table: &str) -> Vec<u32> {
    let name = |line: &str| line.split_once('@')?.1.strip_prefix(NAME)?.parse().ok();
    let mut found: Vec<u32> = table.lines().filter_map(name).collect();
    // A connection has the name of its listener.
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that no process has: /proc/sys/kernel/pid_max is 2^22 at most.
    fn unused(test: u32) -> u32 {
        0x8000_0000 | std::process::id() << 4 | test
    }

    #[test]
    fn a_fault_is_answered_once_it_has_happened() {
        let process = unused(1);
        let mut socket = ControlSocket::open(process).unwrap();
        for why in [None, Some("no such fault".to_owned())] {
            let asked = std::thread::spawn(move || ask(process, "outage 1s").unwrap());
            let mut taken = Vec::new();
            while taken.is_empty() {
                taken = socket.take();
            }
            assert_eq!(taken.len(), 1);
            assert_eq!(taken[0].1, "outage 1s");
            assert!(!asked.is_finished(), "it waits for its answer");
            socket.prepare(taken[0].0, why.clone());
            socket.answer();
            assert_eq!(asked.join().unwrap(), why);
        }
    }

    #[test]
    fn connections_that_say_nothing_hold_up_no_other() {
        let process = unused(2);
        let mut socket = ControlSocket::open(process).unwrap();
        let silent = [(); OPEN_MAX].map(|()| {
            let fd = new_socket(SocketFlags::empty()).unwrap();
            connect(&fd, &address(process).unwrap()).unwrap();
            assert!(socket.take().is_empty());
            fd
        });
        let fd = new_socket(SocketFlags::empty()).unwrap();
        connect(&fd, &address(process).unwrap()).unwrap();
        send(&fd, &[b'x'; TEXT_MAX + 1], SendFlags::NOSIGNAL).unwrap();
        let taken = socket.take();
        assert_eq!(taken[0].1.len(), TEXT_MAX);
        // The place of the oldest one.
        assert_eq!(socket.open.len(), OPEN_MAX);
        assert_eq!(recv(&silent[0], &mut [0][..], RecvFlags::empty()).unwrap().0, 0);
    }

    #[test]
    fn one_process_has_one_name() {
        let process = unused(3);
        let _socket = ControlSocket::open(process).unwrap();
        assert!(ControlSocket::open(process).is_err());
        let table = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(listening(&table).contains(&process));
        let line = |name: &str| format!("0000: 00000002 00000000 00010000 0005 01 77 {name}\n");
        let table = ["@tagmatch-hca/12", "@tagmatch-hca/7", "@tagmatch-hca/12", "/tmp/x", "@y"];
        assert_eq!(listening(&table.map(line).concat()), [7, 12]);
        assert_eq!(listening("no table"), [0; 0]);
    }
}
