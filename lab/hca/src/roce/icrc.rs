//! The invariant CRC of RoCE version 2 (InfiniBand, annex A17.3.3): a CRC-32 over the packet from
//! its IP header on, with ones for all that routers may change.
//!
//! A receiver behind a UDP socket doesn't see one field that the CRC covers: the identification of
//! an IPv4 header. (The others are known: a packet of RoCE is never a fragment, has the flag *don't
//! fragment*, and no options.) A sender of this device leaves it 0. Another sender's is solved for:
//! a CRC is linear, so a packet is right if some identification makes it right. Of the 32 bits of
//! the check, 16 are left: a packet with a random fault passes once in 65,536 times. The ICRC of an
//! IPv6 packet is checked whole.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crc32fast::Hasher;

/// UDP's header.
const UDP: u16 = 8;
/// The ICRC itself.
pub(crate) const ICRC: usize = 4;
/// Bytes of an IPv4 header behind its identification.
const AFTER_IDENTIFICATION: usize = 14;
/// The byte of a BTH that holds marks of congestion and reserved bits, which may change.
const CHANGED: usize = 4;

/// The two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketFlow {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

impl PacketFlow {
    /// The headers before the BTH as the ICRC takes them: no bytes of a GRH, but eight of ones in
    /// place of an LRH; none if the addresses are of two families. `length`: bytes from the BTH to
    /// the ICRC.
    fn headers(&self, length: usize) -> Option<Vec<u8>> {
        let udp = u16::try_from(length + ICRC).ok()?.checked_add(UDP)?;
        let mut bytes = vec![0xff; 8];
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let [high, low] = udp.checked_add(20)?.to_be_bytes();
                // The type of service, the time to live and the checksum may change.
                bytes.extend([0x45, 0xff, high, low, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let [high, low] = udp.to_be_bytes();
                // So may the traffic class, the flow label and the hop limit.
                bytes.extend([0x6f, 0xff, 0xff, 0xff, high, low, 17, 0xff]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
            }
            _ => return None,
        }
        bytes.extend(self.from.port().to_be_bytes());
        bytes.extend(self.to.port().to_be_bytes());
        bytes.extend(udp.to_be_bytes());
        bytes.extend([0xff; 2]);
        Some(bytes)
    }

    /// The ICRC of a packet from the BTH on, with an IPv4 identification of 0. `None`: there is no
    /// such packet.
    pub(crate) fn icrc(&self, packet: &[u8]) -> Option<u32> {
        let (before, rest) = packet.split_at_checked(CHANGED)?;
        let (_, after) = rest.split_first()?;
        let mut hasher = Hasher::new();
        hasher.update(&self.headers(packet.len())?);
        hasher.update(before);
        hasher.update(&[0xff]);
        hasher.update(after);
        Some(hasher.finalize())
    }
}

/// What an unknown identification may change of an ICRC: a basis of the changes, by the number of
/// bytes behind the identification. A basis is reduced: no two have the same highest bit.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    bases: HashMap<usize, [u32; 16]>,
}

fn basis(after: usize) -> [u32; 16] {
    let zeros = vec![0; after];
    let crc = |identification: u16| {
        let mut hasher = Hasher::new();
        hasher.update(&identification.to_be_bytes());
        hasher.update(&zeros);
        hasher.finalize()
    };
    let none = crc(0);
    let mut basis = [0; 16];
    for bit in 0..16 {
        let change = reduced(&basis[..bit], crc(1 << bit) ^ none);
        basis[bit] = change;
    }
    basis
}

/// What is left of a change when the basis has explained all that it can.
fn reduced(basis: &[u32], change: u32) -> u32 {
    basis.iter().fold(change, |left, part| left.min(left ^ part))
}

impl Checker {
    /// Whether a received packet, from the BTH on, has a right ICRC at its end. The packet without
    /// it.
    pub(crate) fn checked<'a>(&mut self, flow: &PacketFlow, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (packet, icrc) = bytes.split_last_chunk::<ICRC>()?;
        let wrong = flow.icrc(packet)? ^ u32::from_le_bytes(*icrc);
        if wrong == 0 {
            return Some(packet);
        }
        if flow.to.is_ipv6() {
            return None;
        }
        let after = AFTER_IDENTIFICATION + usize::from(UDP) + packet.len();
        let basis = self.bases.entry(after).or_insert_with(|| basis(after));
        (reduced(basis, wrong) == 0).then_some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    }

    fn flow(from: &str, to: &str) -> PacketFlow {
        PacketFlow { from: from.parse().unwrap(), to: to.parse().unwrap() }
    }

    /// Packets that Scapy 2.8.0 has made (`contrib.roce`), from the BTH on. The last one but one
    /// has the identification 0xbeef.
    fn known() -> [(PacketFlow, &'static str); 5] {
        let v4 = flow("10.0.0.1:4791", "10.0.0.2:4791");
        let write = "0b0080010000001180000001\
                     0102030405060708\
                     0a0b0c0d00000004deadbeef61626364981570dd";
        [
            (v4, "04f0ffff0012345680abcdef68656c6c6f000000e3fc3684"),
            (flow("10.0.0.1:49153", "10.0.0.2:4791"), write),
            (v4, "1100ffff0000004200fffffe1f0000050a26954e"),
            (v4, "1100ffff0000004200fffffe1f000005423d5da9"),
            (
                flow("[fe80::1]:4791", "[fe80::2]:4791"),
                "6400ffff00000042000000070000000700000099646174616772616dd62a6275",
            ),
        ]
    }

    #[test]
    fn packets_of_another_maker_are_right_and_changed_ones_are_not() {
        let mut checker = Checker::default();
        for (at, (flow, hex)) in known().into_iter().enumerate() {
            let packet = bytes(hex);
            let end = packet.len() - ICRC;
            assert_eq!(checker.checked(&flow, &packet), Some(&packet[..end]), "{at}");
            let exact = flow.icrc(&packet[..end]).unwrap().to_le_bytes() == packet[end..];
            assert_eq!(exact, at != 3, "{at}");
            // Marks of congestion may change on the way; nothing else may, not one bit.
            for bit in 0..packet.len() * 8 {
                let mut changed = packet.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let is_right = checker.checked(&flow, &changed).is_some();
                assert_eq!(is_right, bit / 8 == CHANGED, "{at}: {bit}");
            }
            let other = PacketFlow { from: SocketAddr::new(flow.from.ip(), 1), ..flow };
            assert_eq!(checker.checked(&other, &packet), None);
        }
    }

    /// Each identification is found, and a fault that is none is not taken for one: of 2^32 ICRCs
    /// 2^16 are right.
    #[test]
    fn an_unknown_identification_explains_one_of_65536_faults() {
        let basis = basis(AFTER_IDENTIFICATION + 8 + 12);
        assert!(basis.iter().all(|part| *part != 0), "the changes are independent");
        let highest: std::collections::BTreeSet<u32> =
            basis.iter().map(|part| part.leading_zeros()).collect();
        assert_eq!(highest.len(), 16);
        let explained = (0..1_u32 << 20).filter(|change| reduced(&basis, *change << 12) == 0);
        assert!(explained.count() < 1 << 10);
    }

    #[test]
    fn what_is_too_short_or_of_two_families_has_no_icrc() {
        let mut checker = Checker::default();
        let [(v4, hex), .., (v6, _)] = known();
        let packet = bytes(hex);
        for length in 0..ICRC + CHANGED + 1 {
            assert_eq!(checker.checked(&v4, &packet[..length]), None);
        }
        assert_eq!(PacketFlow { from: v4.from, to: v6.to }.icrc(&packet), None);
        assert_eq!(v4.icrc(&vec![0; 1 << 16]), None);
    }
}
