//! The network interfaces of this machine, in this process's network namespace.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

use super::check;

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface's name.
    pub interface: String,
    /// The address, link-local ones included.
    pub address: IpAddr,
}

/// All addresses of the interfaces that are up, in the kernel's order.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a place for the list's start. The list is freed below.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the list is well-formed until it is freed; an address is null, or has the family
        // that its first field gives.
        unsafe {
            let interface = &*next;
            next = interface.ifa_next;
            let is_up = interface.ifa_flags & libc::IFF_UP.cast_unsigned() != 0;
            if !is_up || interface.ifa_addr.is_null() {
                continue;
            }
            let name = CStr::from_ptr(interface.ifa_name).to_string_lossy().into_owned();
            let address = address_of(interface.ifa_addr);
            found.extend(address.map(|address| InterfaceAddress { interface: name, address }));
        }
    }
    // SAFETY: `first` is the list that getifaddrs(3) made, freed once.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The IPv4 or IPv6 address, unless it is of another family.
///
/// # Safety
/// `address` points to an address of the family that its first field gives.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: valid by the caller's promise.
    let family = i32::from(unsafe { (*address).sa_family });
    if family == libc::AF_INET {
        // SAFETY: the family says that it is an IPv4 address.
        let bits = unsafe { (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr };
        return Some(Ipv4Addr::from(bits.to_ne_bytes()).into());
    }
    if family == libc::AF_INET6 {
        // SAFETY: the family says that it is an IPv6 address.
        let bytes = unsafe { (*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr };
        return Some(Ipv6Addr::from(bytes).into());
    }
    None
}

/// A request about an interface (`struct ifreq`): its name, and a number.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    number: libc::c_int,
    rest: [u8; 20],
}

/// The most bytes that a packet of an interface has, its IP header included.
///
/// # Errors
/// `ENODEV`: there is no such interface.
pub fn mtu(interface: &str) -> io::Result<u32> {
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], number: 0, rest: [0; 20] };
    if interface.len() >= request.name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    request.name[..interface.len()].copy_from_slice(interface.as_bytes());
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: the request is a `struct ifreq`, which the kernel reads and fills in.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) })?;
    u32::try_from(request.number).map_err(|_| io::ErrorKind::InvalidData.into())
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40, "as `struct ifreq` of 64-bit Linux");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_an_interface_with_its_address_and_mtu() {
        let own =
            InterfaceAddress { interface: "lo".to_owned(), address: Ipv4Addr::LOCALHOST.into() };
        assert!(addresses().unwrap().contains(&own));
        assert!(mtu("lo").unwrap() >= 576);
    }

    #[test]
    fn an_interface_that_is_missing_has_no_mtu() {
        for name in ["no interface", "a-name-that-is-too-long-for-one", ""] {
            assert_eq!(mtu(name).unwrap_err().raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
