//! The sockets that peers connect to, and the addresses that peers are told.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tagmatch_device::{DeviceError, InCall};
use tagmatch_os::event::Epoll;
use tagmatch_os::peer_socket::Listener;
use tagmatch_os::{socket, stream, tcp};

use super::address::TcpAddress;
use super::config::TcpConfig;
use super::hosts;
use super::numbers::Watched;

/// Connections that wait in the kernel to be accepted: peers connect while this worker is busy.
const BACKLOG: i32 = 4096;
/// Attempts to find a port that is free on several addresses.
const PORT_TRIALS: usize = 16;

/// The listening sockets.
pub(crate) struct TcpListeners {
    sockets: Vec<Listener>,
    /// A descriptor that is closed when no other is left, so that the next connection can still be
    /// accepted: only its greeting tells which peer this worker lacks descriptors for.
    spare: Option<OwnedFd>,
    /// Until when no connection is accepted, because the last one could not be.
    pub(crate) muted_until: Option<Duration>,
}

impl TcpListeners {
    /// Listens as the settings say; returns port and hosts in the form of an address, too.
    pub(crate) fn open(
        config: &TcpConfig,
        epoll: &Epoll,
    ) -> Result<(Self, TcpAddress), DeviceError> {
        let hosts = hosts_to_listen_on(config)?;
        let hint = "; see TcpConfig::listen, interfaces and port";
        let (port, sockets) = if hosts.is_empty() {
            listen_everywhere(config.port)
        } else {
            listen_on(&hosts, config.port)
        }
        .map_err(DeviceError::system("listen on TCP", hint))?;
        let announced = announced(config, &hosts).in_call("getifaddrs")?;
        if announced.is_empty() {
            let why = "this machine has no network interface that is up";
            return Err(DeviceError::Unsupported { what: "TCP", why });
        }
        let sockets: Vec<_> = sockets.into_iter().map(Listener::new).collect();
        for (place, socket) in sockets.iter().enumerate() {
            epoll.watch(socket.as_fd(), Watched::Listener(place).number()).in_call("epoll_ctl")?;
        }
        let address = TcpAddress { port, hosts: announced };
        let mut listeners = TcpListeners { sockets, spare: None, muted_until: None };
        listeners.restore_spare();
        Ok((listeners, address))
    }

    /// Closes the spare descriptor. Returns whether there was one.
    pub(crate) fn use_spare(&mut self) -> bool {
        self.spare.take().is_some()
    }

    /// Whether no descriptor was free since the spare one was used.
    pub(crate) fn lacks_spare(&self) -> bool {
        self.spare.is_none()
    }

    /// Opens the spare descriptor again, if one is free that isn't kept for peers that this worker
    /// connects to.
    pub(crate) fn restore_spare(&mut self) {
        if let (None, Some(socket)) = (&self.spare, self.sockets.first()) {
            let spare = socket::duplicate(socket.as_fd()).ok();
            self.spare = spare.filter(|spare| !hosts::is_of_the_last(spare.as_fd()));
        }
    }

    pub(crate) fn socket(&self, place: usize) -> Option<&Listener> {
        self.sockets.get(place)
    }

    /// Stops accepting until a time, or resumes.
    pub(crate) fn mute(&mut self, epoll: &Epoll, muted_until: Option<Duration>) {
        for (place, socket) in self.sockets.iter().enumerate() {
            let number = Watched::Listener(place).number();
            let _ = epoll.mute(socket.as_fd(), number, muted_until.is_some());
        }
        self.muted_until = muted_until;
    }

    /// Takes no more connections.
    pub(crate) fn close(&mut self, epoll: &Epoll) {
        for socket in self.sockets.drain(..) {
            epoll.forget(socket.as_fd());
        }
        (self.spare, self.muted_until) = (None, None);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sockets.is_empty()
    }
}

/// The addresses to listen on; none stands for all.
fn hosts_to_listen_on(config: &TcpConfig) -> Result<Vec<IpAddr>, DeviceError> {
    if !config.listen.is_empty() || config.interfaces.is_empty() {
        return Ok(config.listen.clone());
    }
    let is_wanted =
        |name: &CStr| config.interfaces.iter().any(|wanted| wanted.as_bytes() == name.to_bytes());
    let found = stream::addresses_of(is_wanted).in_call("getifaddrs")?;
    if found.is_empty() {
        let why = "no interface that TcpConfig::interfaces names is up and has an address";
        return Err(DeviceError::Unsupported { what: "TCP", why });
    }
    Ok(found)
}

/// The addresses that peers are told.
fn announced(config: &TcpConfig, listening: &[IpAddr]) -> io::Result<Vec<IpAddr>> {
    if !config.announce.is_empty() {
        return Ok(config.announce.clone());
    }
    let mut hosts = Vec::new();
    let is_any = |host: &IpAddr| host.is_unspecified();
    hosts.extend(listening.iter().copied().filter(|host| !is_any(host)));
    if listening.is_empty() || listening.iter().any(is_any) {
        hosts.extend(stream::own_addresses()?);
    }
    // On another machine, an address of loopback means that machine.
    if !hosts.iter().all(IpAddr::is_loopback) {
        hosts.retain(|host| !host.is_loopback());
    }
    Ok(hosts)
}

/// Listens on all addresses of this machine, of both families where it has both.
fn listen_everywhere(port: u16) -> io::Result<(u16, Vec<OwnedFd>)> {
    let any = |host: IpAddr| tcp::listen(SocketAddr::new(host, port), BACKLOG, false);
    let listener =
        any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
    Ok((stream::port_of(listener.as_fd())?, vec![listener]))
}

/// Listens on the same port of several addresses.
fn listen_on(hosts: &[IpAddr], wanted: u16) -> io::Result<(u16, Vec<OwnedFd>)> {
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    for _ in 0..PORT_TRIALS {
        let mut port = wanted;
        let mut listeners = Vec::new();
        for host in hosts {
            match tcp::listen(SocketAddr::new(*host, port), BACKLOG, true) {
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
        if wanted != 0 || last.raw_os_error() != Some(libc::EADDRINUSE) {
            break;
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_the_same_on_all_addresses_and_can_be_listened_on_again() {
        let hosts: Vec<IpAddr> =
            vec![Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 2).into()];
        let (port, listeners) = listen_on(&hosts, 0).unwrap();
        for listener in &listeners {
            assert_eq!(stream::port_of(listener.as_fd()).unwrap(), port);
        }
        let used = listen_on(&hosts, port).unwrap_err();
        assert_eq!(used.raw_os_error(), Some(libc::EADDRINUSE));
        drop(listeners);
        assert_eq!(listen_on(&hosts, port).unwrap().0, port);
    }

    #[test]
    fn loopback_is_announced_only_if_there_is_nothing_else() {
        let hosts = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let announce =
            |listening: &[&str]| announced(&TcpConfig::default(), &hosts(listening)).unwrap();
        assert_eq!(announce(&["127.0.0.1", "::1"]), hosts(&["127.0.0.1", "::1"]));
        assert_eq!(announce(&["127.0.0.1", "10.0.0.1"]), hosts(&["10.0.0.1"]));
        assert!(
            !announce(&[]).is_empty() && !announce(&["0.0.0.0"]).iter().any(IpAddr::is_unspecified)
        );
    }
}
