//! The sockets that peers connect to: one by name on this machine, and TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use tagmatch_device::{DeviceError, InCall};
use tagmatch_os::event::Epoll;
use tagmatch_os::peer_socket::Listener;
use tagmatch_os::{process, stream};

use super::address::MeetingAddress;
use super::kind::MeetingKind;

/// Connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 1024;
/// Attempts to find a port that is free on several addresses.
const PORT_TRIALS: usize = 16;
/// The listening sockets of the handshake, and the set of descriptors for them and for the
/// connections.
pub(crate) struct Listeners {
    pub(crate) epoll: Epoll,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) muted_until: Option<Instant>,
}

/// The number of a listener in the set of descriptors: its place, counted down from the highest
/// number. Connections have small numbers.
pub(crate) fn listener_number(place: usize) -> u64 {
    u64::MAX - place as u64
}

impl Listeners {
    /// Listens under the name of `own`, and on TCP; enters port and hosts there.
    pub(crate) fn open(
        own: &mut MeetingAddress,
        kind: &MeetingKind,
        listen: &[IpAddr],
    ) -> Result<Self, DeviceError> {
        process::learn_own_user();
        let epoll = Epoll::new().in_call("epoll_create1")?;
        let local = stream::listen_abstract(own.socket_name(kind).as_bytes(), BACKLOG)
            .in_call("listen on an abstract socket")?;
        let mut listeners = vec![local];
        if listen.is_empty() {
            // A machine without a network still has the local socket.
            if let Ok((port, listener)) = listen_everywhere() {
                listeners.push(listener);
                own.port = port;
                own.hosts = stream::own_addresses().unwrap_or_default();
            }
        } else {
            let (port, mut tcp) = listen_on(listen).map_err(DeviceError::system(
                "listen on TCP",
                "; see `listen` among the settings of the device",
            ))?;
            listeners.append(&mut tcp);
            own.port = port;
            own.hosts = listen.to_vec();
        }
        let listeners: Vec<_> = listeners.into_iter().map(Listener::new).collect();
        for (place, listener) in listeners.iter().enumerate() {
            epoll.watch(listener.as_fd(), listener_number(place)).in_call("epoll_ctl")?;
        }
        Ok(Listeners { epoll, listeners, muted_until: None })
    }

    pub(crate) fn mute(&mut self, muted_until: Option<Instant>) {
        for (place, listener) in self.listeners.iter().enumerate() {
            let number = listener_number(place);
            let _ = self.epoll.mute(listener.as_fd(), number, muted_until.is_some());
        }
        self.muted_until = muted_until;
    }

    /// Resumes listeners whose pause is over.
    pub(crate) fn resume(&mut self, now: Instant) {
        if self.muted_until.is_some_and(|until| until <= now) {
            self.mute(None);
        }
    }

    /// Takes no more connections.
    pub(crate) fn close(&mut self) {
        for listener in self.listeners.drain(..) {
            self.epoll.forget(listener.as_fd());
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Listens on all addresses of this machine, of both families where it has both.
fn listen_everywhere() -> io::Result<(u16, OwnedFd)> {
    let any = |host: IpAddr| stream::listen_tcp(SocketAddr::new(host, 0), BACKLOG);
    let listener =
        any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
    Ok((stream::port_of(listener.as_fd())?, listener))
}

/// Listens on the same port of several addresses.
fn listen_on(hosts: &[IpAddr]) -> io::Result<(u16, Vec<OwnedFd>)> {
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    for _ in 0..PORT_TRIALS {
        let mut port = 0;
        let mut listeners = Vec::new();
        for host in hosts {
            match stream::listen_tcp(SocketAddr::new(*host, port), BACKLOG) {
                Ok(listener) => {
                    port = stream::port_of(listener.as_fd())?;
                    listeners.push(listener);
                }
                Err(error) => last = error,
            }
        }
        if listeners.len() == hosts.len() {
            return Ok((port, listeners));
        }
        if last.raw_os_error() != Some(libc::EADDRINUSE) {
            break;
        }
    }
    Err(last)
}
