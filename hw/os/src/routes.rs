//! How far a network interface leads: its routes, and its VLAN.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::socket_calls::{open, set_option};
use super::{check, check_count};

/// `NETLINK_GET_STRICT_CHK`: the kernel sends only what the request asks for (Linux 4.20).
const STRICT: libc::c_int = 12;
/// Answers to read; a table of routes may be long where the kernel doesn't filter.
const ANSWERS_MAX: usize = 256;

/// A route over an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceRoute {
    /// The network that it leads to: its address, and how many of the leading bits count.
    pub to: (IpAddr, u8),
    /// Whether it leads through a gateway.
    pub has_gateway: bool,
}

/// How many leading bits an address must have in common with `own` for the two to reach each other
/// over the interface that has these routes. 0: all addresses, or nothing is known.
pub fn reach(own: IpAddr, routes: &[InterfaceRoute]) -> u8 {
    let leads_here = |route: &InterfaceRoute| has_prefix(own, route.to);
    let is_further = |route: &&InterfaceRoute| {
        route.has_gateway || !leads_here(route) && !is_of_every_interface(route.to.0)
    };
    if routes.iter().any(|route| is_further(&route)) {
        return 0;
    }
    routes.iter().filter(|route| leads_here(route)).map(|route| route.to.1).min().unwrap_or(0)
}

fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

fn has_prefix(address: IpAddr, (network, length): (IpAddr, u8)) -> bool {
    let ((one, width), (other, other_width)) = (bits(address), bits(network));
    width == other_width && (one ^ other).leading_zeros() >= u32::from(length).min(width)
}

/// Networks to which every interface leads: link-local ones, and multicast.
fn is_of_every_interface(network: IpAddr) -> bool {
    match network {
        IpAddr::V4(address) => address.is_link_local() || address.is_multicast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    }
}

/// The routes of all tables that lead over the interface with this number, of the family that
/// `own` has. Asks the kernel; doesn't wait for anybody else.
pub fn of_interface(index: u32, own: IpAddr) -> io::Result<Vec<InterfaceRoute>> {
    // Its only protocol here is the first one, NETLINK_ROUTE.
    let socket = open(libc::AF_NETLINK, libc::SOCK_RAW)?;
    let fd = socket.as_raw_fd();
    // Kernels without this option send more.
    let _ = set_option(socket.as_fd(), libc::SOL_NETLINK, STRICT, 1);
    let request = request(index, own);
    // SAFETY: `request` is so long, and only read.
    check_count(unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) })?;
    let mut routes = Vec::new();
    let mut answer = vec![0; 1 << 16];
    for _ in 0..ANSWERS_MAX {
        // SAFETY: `answer` has room for so many bytes, and nothing else refers to it.
        let count =
            check_count(unsafe { libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0) })?;
        if !parse(&answer[..count], index, &mut routes)? {
            return Ok(routes);
        }
    }
    Err(io::ErrorKind::FileTooLarge.into())
}

/// Asks for the routes over an interface: `struct nlmsghdr`, `struct rtmsg`, and an attribute.
fn request(index: u32, own: IpAddr) -> Vec<u8> {
    let family = if own.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::RTM_GETROUTE.to_ne_bytes();
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or(0).to_ne_bytes();
    let attribute = [8_u16.to_ne_bytes(), libc::RTA_OIF.to_ne_bytes()].concat();
    let mut message = vec![0; 28];
    message[4..6].copy_from_slice(&kind);
    message[6..8].copy_from_slice(&flags);
    message[16] = u8::try_from(family).unwrap_or(0);
    message.extend([attribute, index.to_ne_bytes().to_vec()].concat());
    let length = u32::try_from(message.len()).unwrap_or(0);
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Adds the routes of one answer. Returns whether another one follows.
fn parse(mut answer: &[u8], index: u32, routes: &mut Vec<InterfaceRoute>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(answer, 0), u16_at(answer, 4)) {
        let length = length as usize;
        let Some(message) = answer.get(16..length) else { break };
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(false),
            libc::NLMSG_ERROR => {
                let errno = u32_at(message, 0).unwrap_or(0).cast_signed();
                return Err(io::Error::from_raw_os_error(-errno));
            }
            _ if kind == libc::RTM_NEWROUTE => routes.extend(route(message, index)),
            _ => {}
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

/// The route of a message, if it leads over the interface to other machines.
fn route(message: &[u8], index: u32) -> Option<InterfaceRoute> {
    let &[family, length, ..] = message else { return None };
    if message.get(7) != Some(&libc::RTN_UNICAST) {
        return None;
    }
    let is_ipv4 = i32::from(family) == libc::AF_INET;
    let mut to = if is_ipv4 { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let mut leads_over = false;
    let mut has_gateway = false;
    for (kind, value) in attributes(message.get(12..)?) {
        match kind {
            libc::RTA_DST if is_ipv4 => to = <[u8; 4]>::try_from(value).ok()?.into(),
            libc::RTA_DST => to = <[u8; 16]>::try_from(value).ok()?.into(),
            libc::RTA_OIF => leads_over |= u32_at(value, 0) == Some(index),
            libc::RTA_GATEWAY | libc::RTA_VIA => has_gateway = true,
            libc::RTA_MULTIPATH => {
                for (hop, rest) in hops(value) {
                    if hop == index {
                        leads_over = true;
                        has_gateway |= attributes(rest)
                            .any(|(kind, _)| kind == libc::RTA_GATEWAY || kind == libc::RTA_VIA);
                    }
                }
            }
            _ => {}
        }
    }
    leads_over.then_some(InterfaceRoute { to: (to, length), has_gateway })
}

/// Splits `bytes` into parts, each of which begins with its length. `head` bytes precede its value.
fn parts(mut bytes: &[u8], head: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let part = bytes.get(..length)?;
        let value = part.get(head..)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((part, value))
    })
}

/// `struct rtattr`: kinds and values.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    parts(bytes, 4).filter_map(|(part, value)| Some((u16_at(part, 2)?, value)))
}

/// `struct rtnexthop`: interfaces and attributes.
fn hops(bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    parts(bytes, 8).filter_map(|(part, value)| Some((u32_at(part, 4)?, value)))
}

/// The VLAN of the interface with this number; `None` if its packets have no tag.
pub fn vlan(index: u32) -> Option<u16> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: there is room for a name.
    if unsafe { libc::if_indextoname(index, name.as_mut_ptr()) }.is_null() {
        return None;
    }
    // `c_char` has a sign on x86-64, and none on AArch64.
    let name = name.map(|letter| letter.to_ne_bytes()[0]);
    let text = std::str::from_utf8(name.split(|byte| *byte == 0).next()?).ok()?;
    let facts = std::fs::read_to_string(format!("/sys/class/net/{text}/uevent")).ok()?;
    if !facts.lines().any(|line| line == "DEVTYPE=vlan") {
        return None;
    }
    /// `struct vlan_ioctl_args` of `linux/if_vlan.h`. The union has 24 bytes.
    #[repr(C)]
    struct VlanCall {
        command: libc::c_int,
        device: [u8; 24],
        answer: libc::c_int,
        rest: [u8; 20],
        qos: libc::c_short,
    }
    /// `GET_VLAN_VID_CMD`, and `SIOCGIFVLAN` of `linux/sockios.h`.
    const GET_ID: libc::c_int = 9;
    const CALL: libc::c_ulong = 0x8982;
    let mut args = VlanCall { command: GET_ID, device: [0; 24], answer: 0, rest: [0; 20], qos: 0 };
    args.device[..name.len()].copy_from_slice(&name);
    let socket = open(libc::AF_INET, libc::SOCK_DGRAM).ok()?;
    // SAFETY: the kernel reads and writes no more than the structure.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), CALL as _, &raw mut args) }).ok()?;
    u16::try_from(args.answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn on_link(to: &str, length: u8) -> InterfaceRoute {
        InterfaceRoute { to: (address(to), length), has_gateway: false }
    }

    #[test]
    fn an_interface_reaches_its_network_or_beyond_by_a_gateway() {
        let own = address("10.1.2.3");
        let gateway = |to, length| InterfaceRoute { has_gateway: true, ..on_link(to, length) };
        let cases: [(&[InterfaceRoute], u8); 7] = [
            (&[], 0),
            (&[on_link("10.1.2.0", 24)], 24),
            (&[on_link("10.1.2.0", 24), on_link("10.1.0.0", 16)], 16),
            (&[on_link("10.1.2.0", 24), gateway("0.0.0.0", 0)], 0),
            (&[on_link("10.1.2.0", 24), gateway("10.9.0.0", 16)], 0),
            (&[on_link("10.1.2.0", 24), on_link("10.9.0.0", 16)], 0),
            (&[on_link("10.1.2.0", 24), on_link("224.0.0.0", 4), on_link("169.254.0.0", 16)], 24),
        ];
        for (routes, expected) in cases {
            assert_eq!(reach(own, routes), expected, "{routes:?}");
        }
        let routes = [on_link("2001:db8::", 64), on_link("fe80::", 64), on_link("ff00::", 8)];
        assert_eq!(reach(address("2001:db8::7"), &routes), 64);
        assert_eq!(reach(address("fe80::7"), &routes[1..]), 64);
    }

    /// The loopback interface leads to no other machine, whatever else there is.
    #[test]
    fn the_kernel_tells_the_routes_of_an_interface() {
        for own in ["127.0.0.1", "::1"].map(address) {
            let routes = of_interface(1, own).unwrap();
            assert!(routes.iter().all(|route| !route.has_gateway), "{routes:?}");
        }
        assert_eq!(of_interface(u32::MAX >> 1, address("127.0.0.1")).unwrap_or_default(), []);
        assert_eq!((vlan(1), vlan(u32::MAX >> 1)), (None, None));
    }

    /// `struct rtmsg` and attributes, as the kernel sends them.
    #[test]
    fn routes_are_read_out_of_messages() {
        fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
            let length = u16::try_from(4 + value.len()).unwrap();
            let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        }
        let header = |kind| [2, 24, 0, 0, 254, 3, 0, kind, 0, 0, 0, 0];
        let message = |kind, rest: &[Vec<u8>]| [&header(kind)[..], &rest.concat()].concat();
        let to = attribute(libc::RTA_DST, &[10, 1, 2, 0]);
        let over = attribute(libc::RTA_OIF, &7_u32.to_ne_bytes());
        let by = attribute(libc::RTA_GATEWAY, &[10, 1, 2, 1]);
        let plain = message(libc::RTN_UNICAST, &[to.clone(), over.clone()]);
        assert_eq!(route(&plain, 7), Some(on_link("10.1.2.0", 24)));
        assert_eq!(route(&plain, 8), None);
        assert_eq!(route(&message(libc::RTN_LOCAL, &[to.clone(), over.clone()]), 7), None);
        let through = message(libc::RTN_UNICAST, &[to.clone(), over, by.clone()]);
        assert!(route(&through, 7).unwrap().has_gateway);
        let hop = |index: u32, rest: &[u8]| {
            let length = u16::try_from(8 + rest.len()).unwrap().to_ne_bytes();
            [&length[..], &[0, 0], &index.to_ne_bytes(), rest].concat()
        };
        let several = [hop(6, &[]), hop(7, &by)].concat();
        let several = message(libc::RTN_UNICAST, &[to, attribute(libc::RTA_MULTIPATH, &several)]);
        assert!(route(&several, 7).unwrap().has_gateway);
        assert!(!route(&several, 6).unwrap().has_gateway);
        // Cut short anywhere, it is read as far as it goes.
        for length in 0..several.len() {
            let _ = route(&several[..length], 7);
            let _ = parse(&several[..length], 7, &mut Vec::new());
        }
    }
}
