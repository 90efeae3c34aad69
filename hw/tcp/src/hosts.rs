//! The machines that connect to this worker, and how many descriptors of this process they may
//! take.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use tagmatch_os::process;

/// Of the descriptors of this process, the share that is kept for peers that it connects to, and
/// the most that are.
const RESERVED_SHARE: u64 = 64;
const RESERVED_MAX: u64 = 16;

/// A remote machine, as far as its address tells. A machine has at least 2^64 addresses of IPv6, so
/// all of one /64 are taken for one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    Loopback,
    V4(Ipv4Addr),
    V6([u8; 8]),
}

impl Host {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Host::Loopback,
            IpAddr::V4(address) => Host::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Host::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// Whether a descriptor that the kernel has just given is one of the last ones. The kernel gives
/// the lowest number that is free, so few are left then.
pub(crate) fn is_of_the_last(descriptor: BorrowedFd<'_>) -> bool {
    let Some(limit) = process::descriptor_limit() else { return false };
    let reserved = (limit / RESERVED_SHARE).clamp(1, RESERVED_MAX);
    u64::try_from(descriptor.as_raw_fd())
        .is_ok_and(|number| number >= limit.saturating_sub(reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_one_machine_and_so_is_a_network_of_ipv6() {
        let host = |address: &str| Host::of(address.parse().unwrap());
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(host(address), Host::Loopback, "{address}");
        }
        assert_eq!(host("192.0.2.1"), host("::ffff:192.0.2.1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1:2:3"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
    }
}
