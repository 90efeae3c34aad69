//! The sockets of Ethernet ports: UDP's port 4791 at each of their addresses.
//!
//! A socket isn't connected and doesn't fragment, so that the kernel gives each IPv4 packet the
//! identification 0, which the ICRC covers.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::Arc;

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::icrc::{Checker, PacketFlow};
use super::link::{ArrivedPacket, PacketLink, WirePath};
use super::packet::RocePacket;
use super::port::RocePort;

/// UDP's port of RoCE.
const PORT: u16 = 4791;
/// Bytes of received packets that a socket keeps, if the system allows so many.
const RECEIVE_BUFFER: usize = 8 << 20;
/// The longest packet, with room for one that is too long.
const PACKET_MAX: usize = 8192;

/// Why an address can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("--port roce: the UDP address {0} is in use by {1}")]
    InUse(SocketAddr, String),
    #[error("--port roce: no socket with the UDP address {0} can be made: {1}")]
    Failed(SocketAddr, io::Error),
}

/// The socket of one address.
#[derive(Debug)]
struct RoceSocket {
    lid: u16,
    own: SocketAddr,
    /// The interface's number, which a link-local address needs.
    scope: u32,
    socket: UdpSocket,
}

/// The sockets of all ports.
#[derive(Debug, Default)]
pub(crate) struct RoceWire(Vec<Arc<RoceSocket>>);

impl RoceSocket {
    fn open(lid: u16, own: SocketAddr, scope: u32) -> Result<Self, SocketError> {
        let failed = |error| SocketError::Failed(own, error);
        let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(|error| failed(error.into()))?;
        let set = if own.is_ipv4() {
            sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)
        } else {
            // An address that the kernel still looks for elsewhere is taken already.
            let _ = sockopt::set_ipv6_freebind(&socket, true);
            sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)
        };
        set.map_err(|error| failed(error.into()))?;
        match bind(&socket, &own) {
            Err(rustix::io::Errno::ADDRINUSE) => {
                return Err(SocketError::InUse(own, owner(own)));
            }
            bound => bound.map_err(|error| failed(error.into()))?,
        }
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
        }
        Ok(RoceSocket { lid, own, scope, socket: socket.into() })
    }

    /// The port 4791 of an address.
    fn end(address: IpAddr, scope: u32) -> SocketAddr {
        match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                SocketAddrV6::new(address, PORT, 0, scope).into()
            }
            address => SocketAddr::new(address, PORT),
        }
    }

    fn send(&self, to: IpAddr, packet: &RocePacket) {
        let to = Self::end(to, self.scope);
        let flow = PacketFlow { from: self.own, to };
        let mut bytes = packet.to_bytes();
        let Some(icrc) = flow.icrc(&bytes) else { return };
        bytes.extend(icrc.to_le_bytes());
        // What can't be sent is lost, as on a network, and sent again later.
        let _ = self.socket.send_to(&bytes, to);
    }

    /// Gives away all packets that come, until nobody takes them.
    fn listen(&self, take: &impl Fn(ArrivedPacket) -> bool) {
        let mut checker = Checker::default();
        let mut bytes = vec![0; PACKET_MAX];
        loop {
            // An error tells of a packet that was sent, and that the peer's machine has refused.
            let Ok((length, from)) = self.socket.recv_from(&mut bytes) else { continue };
            let flow = PacketFlow { from, to: self.own };
            let Some(packet) = checker.checked(&flow, &bytes[..length]) else { continue };
            let Ok(packet) = RocePacket::parse(packet) else { continue };
            let path = WirePath { from: from.ip(), to: self.own.ip() };
            if !take(ArrivedPacket { lid: self.lid, path, packet }) {
                return;
            }
        }
    }
}

impl RoceWire {
    /// Opens the sockets of all Ethernet ports, each known by the LID that its device had at first.
    pub(crate) fn open<'a>(
        ports: impl Iterator<Item = (u16, &'a RocePort)>,
    ) -> Result<Self, SocketError> {
        let mut sockets = Vec::new();
        for (lid, port) in ports {
            for address in &port.addresses {
                let own = RoceSocket::end(*address, port.index);
                sockets.push(Arc::new(RoceSocket::open(lid, own, port.index)?));
            }
        }
        Ok(RoceWire(sockets))
    }

    /// Starts a thread for each socket, which gives away what comes until nobody takes it.
    pub(crate) fn listen(
        &self,
        take: impl Fn(ArrivedPacket) -> bool + Clone + Send + 'static,
    ) -> io::Result<()> {
        for socket in &self.0 {
            let socket = Arc::clone(socket);
            let take = take.clone();
            let name = format!("roce {}", socket.own.ip());
            std::thread::Builder::new().name(name).spawn(move || {
                crate::priority::ask_for_short_turns();
                socket.listen(&take);
            })?;
        }
        Ok(())
    }
}

impl PacketLink for RoceWire {
    fn send(&self, path: &WirePath, packet: &RocePacket) {
        let socket = self.0.iter().find(|socket| socket.own.ip() == path.from);
        if let Some(socket) = socket {
            socket.send(path.to, packet);
        }
    }
}

/// Who has the UDP port of an address, in words.
fn owner(end: SocketAddr) -> String {
    let inode = inode_of_owner(end);
    let process = inode.and_then(|inode| process_with(&format!("socket:[{inode}]")));
    process.unwrap_or_else(|| {
        "the kernel (soft-RoCE: `rdma link`) or by another user's process".to_owned()
    })
}

/// The inode of the socket that has the port, by the lists of the kernel: an address that is
/// exactly this one, or any.
fn inode_of_owner(end: SocketAddr) -> Option<u64> {
    let (file, octets) = match end.ip() {
        IpAddr::V4(address) => ("/proc/net/udp", address.octets().to_vec()),
        IpAddr::V6(address) => ("/proc/net/udp6", address.octets().to_vec()),
    };
    let words = octets.chunks(4).map(|word| {
        let word = u32::from_ne_bytes(word.try_into().unwrap_or_default());
        format!("{word:08X}")
    });
    let port = end.port();
    let own = format!("{}:{port:04X}", words.collect::<String>());
    let any = format!("{}:{port:04X}", "0".repeat(2 * octets.len()));
    let text = std::fs::read_to_string(file).ok()?;
    let mut rows = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1).is_some_and(|local| *local == own || *local == any))?;
    row.get(9)?.parse().ok()
}

/// The process that has a socket open, in words.
fn process_with(socket: &str) -> Option<String> {
    let is_it = |link: io::Result<std::fs::DirEntry>| {
        let target = link.and_then(|link| std::fs::read_link(link.path()));
        target.is_ok_and(|target| target.as_os_str() == socket)
    };
    let mut processes = std::fs::read_dir("/proc").ok()?.flatten();
    let found = processes.find(|process| {
        let is_process = process.file_name().to_string_lossy().parse::<u32>().is_ok();
        let fds = std::fs::read_dir(process.path().join("fd"));
        is_process && fds.is_ok_and(|mut fds| fds.any(is_it))
    })?;
    // The command starts itself as `/proc/self/exe`, after which its process would be named.
    let program = std::fs::read_link(found.path().join("exe")).ok()?;
    let name = program.file_name()?.to_string_lossy();
    Some(format!("{name} (process {})", found.file_name().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_refused_with_its_owner() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let any = address.parse().unwrap();
            // A machine may have no IPv6.
            let Ok(first) = RoceSocket::open(1, any, 0) else {
                assert!(any.is_ipv6());
                continue;
            };
            let end = first.socket.local_addr().unwrap();
            let error = RoceSocket::open(1, end, 0).unwrap_err().to_string();
            let program = std::fs::read_link("/proc/self/exe").unwrap();
            let name = program.file_name().unwrap().to_string_lossy();
            let own = std::process::id();
            let expected =
                format!("--port roce: the UDP address {end} is in use by {name} (process {own})");
            assert_eq!(error, expected);
        }
    }
}
