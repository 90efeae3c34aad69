//! The contents of a worker's address: its name, and where the worker is on each network.
//!
//! - **One format of addresses**: the worker's name, and what each of its networks has to say. All
//!   devices but UCX and libfabric use it. 64 bytes are enough for shared memory, verbs and
//!   one IPv6 host together. Both workers of a pair find the same route from both addresses: shared
//!   memory if both are at one *place* (a hash of boot id, network namespace and user), otherwise
//!   the first network of verbs and TCP that both have. A device refuses a peer that is to come
//!   another way. So a pair has one route for ever, and two messages of one sender never overtake
//!   each other. A machine whose place isn't known counts as another one. Workers whose ports on
//!   verbs don't reach each other (`hw/device/src/verbs_port.rs`) use the next network.
//!
//! - **Handshakes carry the whole address**, so each side knows the other's address as its worker
//!   gave it out, whichever way it came.

use crate::network::{Network, Networks};
use crate::verbs_port::VerbsPort;
use crate::{Address, DeviceError, Release};

/// Where shared memory reaches: a hash of the machine, since when it runs, the network namespace
/// and the user. Zero if that isn't known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub [u8; Place::BYTES]);

impl Place {
    /// The length in bytes.
    pub const BYTES: usize = Network::SHM_BYTES - 4;

    fn is_known(self) -> bool {
        self.0 != [0; Self::BYTES]
    }
}

/// The contents of an [`Address`].
///
/// | bytes | contents |
/// |---|---|
/// | 1 | format, in the upper five bits; the networks, in the lower three: 1 shm, 2 verbs, 4 tcp |
/// | 1 | the [`Release`] of the worker |
/// | 7 | the worker's name: random |
/// | 11 | shm: the [`Place`], and the process |
/// | 25 | verbs: the port and the queue pair for datagrams |
/// | the rest | tcp: the port, and the hosts |
///
/// An address has no part for a network that the worker isn't on. Only the device of a network
/// knows the meaning of that network's part. The place and the [port](VerbsPort) on verbs are the
/// exceptions, since routes are chosen by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents<'a> {
    /// The worker's name.
    pub name: Name,
    sections: [Option<&'a [u8]>; 3],
}

/// A worker's name.
pub type Name = [u8; 7];

/// The upper five bits of the first byte of an address.
const FORMAT: u8 = 0b1101_1000;
const NETWORKS: u8 = 0b111;
/// Format and networks, the release, and the name.
const FIXED: usize = 9;

impl<'a> Contents<'a> {
    /// Most bytes that networks can use together.
    ///
    /// One byte of an address stays free: programs of libfabric have room for 64 bytes, of which
    /// the provider needs one that ends the address.
    pub const ROOM: usize = Address::MAX - FIXED - 1;

    /// The contents of the address of a worker that is on no network yet.
    pub fn new(name: Name) -> Self {
        Contents { name, sections: [None; 3] }
    }

    /// Adds a network. `section` has as many bytes as the network needs.
    #[must_use]
    pub fn with(mut self, network: Network, section: &'a [u8]) -> Self {
        debug_assert!(network.bytes().is_none_or(|bytes| section.len() == bytes));
        self.sections[network as usize] = Some(section);
        self
    }

    /// The contents of an address. Its sender isn't trusted.
    ///
    /// # Errors
    /// [`DeviceError::BadAddress`] if it isn't the address of a worker;
    /// [`DeviceError::OtherRelease`] if its worker is of another release.
    pub fn of(address: &'a Address) -> Result<Self, DeviceError> {
        let bad = |why| DeviceError::BadAddress { why };
        let bytes = address.as_bytes();
        let name = bytes.get(2..FIXED).and_then(|name| name.try_into().ok());
        let name = name.ok_or(bad("it is too short to be a worker's"))?;
        if bytes[0] & !NETWORKS != FORMAT {
            return Err(bad("it is of another kind of device, or no address"));
        }
        Release::check(bytes[1])?;
        let networks = Networks(bytes[0] & NETWORKS);
        let mut contents = Contents::new(name);
        let mut rest = &bytes[FIXED..];
        for network in networks.iter() {
            let length = network.bytes().unwrap_or(rest.len());
            let (section, after) = rest.split_at_checked(length).ok_or(bad("it is cut short"))?;
            contents.sections[network as usize] = Some(section);
            rest = after;
        }
        if !rest.is_empty() || networks == Networks::default() {
            return Err(bad("its networks don't take up its bytes"));
        }
        Ok(contents)
    }

    /// The address with these contents.
    ///
    /// # Errors
    /// [`DeviceError::BadAddress`] if it is longer than an address can be.
    pub fn address(&self) -> Result<Address, DeviceError> {
        let mut bytes = vec![FORMAT | self.networks().0, Release::OWN.byte()];
        bytes.extend_from_slice(&self.name);
        bytes.extend(self.sections.iter().flatten().copied().flatten());
        let why = "it is longer than an address can be";
        Address::from_bytes(&bytes).map_err(|_| DeviceError::BadAddress { why })
    }

    /// The networks on which the worker is.
    pub fn networks(&self) -> Networks {
        let has = |network: &Network| self.sections[*network as usize].is_some();
        Networks(Network::ALL.iter().filter(|network| has(network)).map(|n| n.bit()).sum())
    }

    /// The part of the address about a network; `None` if the worker isn't on that network.
    pub fn section(&self, network: Network) -> Option<&'a [u8]> {
        self.sections[network as usize]
    }

    /// As [`Contents::section`], where its length is known.
    pub fn section_of<const N: usize>(&self, network: Network) -> Option<&'a [u8; N]> {
        self.section(network)?.try_into().ok()
    }

    fn place(&self) -> Option<Place> {
        Some(Place(*self.section(Network::Shm)?.first_chunk()?))
    }

    /// Why the ports of two workers on verbs don't reach each other; `None` if they do, or if one
    /// of the workers has no port.
    fn ports_apart(&self, other: &Self) -> Option<&'static str> {
        let port = |of: &Self| VerbsPort::parse(of.section_of(Network::Verbs)?);
        port(self)?.apart(&port(other)?)
    }
}

/// The network over which the workers with these two addresses reach each other. Both find the
/// same.
///
/// Shared memory, if both are at one place; otherwise the first network that both are on, and over
/// which they reach each other. Workers without such a network whose places aren't known try shared
/// memory.
///
/// # Errors
/// [`DeviceError::BadAddress`] if `peer` is no address; [`DeviceError::PortsApart`] if the only
/// network is verbs, and the two ports don't reach each other; [`DeviceError::NoRoute`] if there is
/// no network.
pub fn route(own: &Address, peer: &Address) -> Result<Network, DeviceError> {
    let own = Contents::of(own)?;
    let peer = Contents::of(peer)?;
    let both = Networks(own.networks().0 & peer.networks().0);
    let (is_one_place, may_be) = match (own.place(), peer.place()) {
        (Some(here), Some(there)) => {
            let is_known = here.is_known() && there.is_known();
            (is_known && here == there, !is_known)
        }
        _ => (false, false),
    };
    let apart = own.ports_apart(&peer);
    let is_usable = |network: &Network| match network {
        Network::Shm => is_one_place,
        Network::Verbs => apart.is_none(),
        Network::Tcp => true,
    };
    let network = both.iter().find(is_usable).or(may_be.then_some(Network::Shm));
    network.ok_or(match apart {
        Some(why) => DeviceError::PortsApart { why },
        None => DeviceError::NoRoute { own: own.networks(), peer: peer.networks() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: Name = *b"workers";

    /// An address on shared memory if it has a place, and on some networks.
    fn address(place: Option<u8>, networks: &[Network]) -> Address {
        let shm = [place.unwrap_or(0); Network::SHM_BYTES];
        let mut contents = Contents::new(NAME);
        if place.is_some() {
            contents = contents.with(Network::Shm, &shm);
        }
        for network in networks {
            let section: &[u8] = match network {
                Network::Verbs => &[2; Network::VERBS_BYTES],
                _ => &[3; 19],
            };
            contents = contents.with(*network, section);
        }
        contents.address().unwrap()
    }

    #[test]
    fn every_set_of_networks_fits_and_round_trips() {
        for networks in [&[][..], &[Network::Verbs], &[Network::Tcp], &Network::ALL[1..]] {
            for place in [Some(7), None] {
                if place.is_none() && networks.is_empty() {
                    continue;
                }
                let address = address(place, networks);
                let contents = Contents::of(&address).unwrap();
                assert_eq!(contents.address().unwrap(), address);
                assert_eq!(contents.name, NAME);
                assert_eq!(contents.section(Network::Shm).is_some(), place.is_some());
                let rest: Vec<_> = contents.networks().iter().collect();
                assert!(rest.ends_with(networks), "{rest:?}");
            }
        }
        assert_eq!(address(Some(7), &Network::ALL[1..]).as_bytes().len(), Address::MAX);
    }

    #[test]
    fn both_workers_find_the_same_route() {
        use Network::{Shm, Tcp, Verbs};
        let all = &Network::ALL[1..];
        let cases = [
            (address(Some(1), all), address(Some(1), all), Some(Shm)),
            (address(Some(1), all), address(Some(2), all), Some(Verbs)),
            (address(Some(1), all), address(Some(2), &[Tcp]), Some(Tcp)),
            (address(Some(1), &[Verbs]), address(Some(2), &[Tcp]), None),
            (address(Some(1), &[]), address(Some(2), &[]), None),
            (address(Some(1), &[]), address(None, &[Tcp]), None),
            // A machine of which nothing is known counts as another one.
            (address(Some(0), &[Tcp]), address(Some(0), &[Tcp]), Some(Tcp)),
            (address(Some(0), &[]), address(Some(1), &[Tcp]), Some(Shm)),
            (address(Some(0), &[]), address(Some(0), &[]), Some(Shm)),
            (address(None, &[Verbs]), address(Some(1), all), Some(Verbs)),
        ];
        for (one, other, expected) in cases {
            assert_eq!(route(&one, &other).ok(), expected, "{one} {other}");
            assert_eq!(route(&other, &one).ok(), expected, "{other} {one}");
        }
    }

    /// The ports are in different subnets of InfiniBand.
    #[test]
    fn workers_whose_ports_are_apart_use_the_next_network_of_both() {
        use crate::verbs_port::VerbsLink;
        let of = |subnet: u8, place: u8, has_tcp: bool| {
            let gid = [subnet; 16];
            let port = VerbsPort { link: VerbsLink::InfiniBand { lid: 1 }, gid }.emit();
            let mut section = [0; Network::VERBS_BYTES];
            section[..VerbsPort::BYTES].copy_from_slice(&port);
            let shm = [place; Network::SHM_BYTES];
            let contents = Contents::new(NAME).with(Network::Shm, &shm);
            let contents = contents.with(Network::Verbs, &section);
            let contents = if has_tcp { contents.with(Network::Tcp, &[3; 7]) } else { contents };
            contents.address().unwrap()
        };
        let cases = [
            (of(1, 1, true), of(2, 2, true), Some(Network::Tcp)),
            (of(1, 1, true), of(1, 2, true), Some(Network::Verbs)),
            (of(1, 1, true), of(2, 1, true), Some(Network::Shm)),
            (of(1, 1, true), of(2, 2, false), None),
        ];
        for (one, other, expected) in cases {
            assert_eq!(route(&one, &other).ok(), expected, "{one} {other}");
            assert_eq!(route(&other, &one).ok(), expected, "{other} {one}");
        }
        let refused = route(&of(1, 1, false), &of(2, 2, true)).unwrap_err();
        assert!(matches!(refused, DeviceError::PortsApart { .. }), "{refused}");
    }

    /// Of the part about shared memory, the last four bytes are the process.
    #[test]
    fn processes_of_one_place_meet_in_shared_memory_and_others_do_not() {
        let of = |section: [u8; Network::SHM_BYTES]| {
            Contents::new(NAME).with(Network::Shm, &section).address().unwrap()
        };
        for at in 0..Network::SHM_BYTES {
            let mut other = [7; Network::SHM_BYTES];
            other[at] = 8;
            let is_process = at >= Network::SHM_BYTES - 4;
            assert_eq!(route(&of([7; 11]), &of(other)).is_ok(), is_process, "byte {at}");
        }
    }

    #[test]
    fn networks_that_take_all_room_leave_one_byte_of_the_address_free() {
        let section: Vec<u8> = (0..).take(Contents::ROOM).collect();
        let address = Contents::new(NAME).with(Network::Tcp, &section).address().unwrap();
        assert_eq!(address.as_bytes().len(), Address::MAX - 1);
        let contents = Contents::of(&address).unwrap();
        assert_eq!(contents.section(Network::Tcp), Some(&section[..]));
        assert_eq!(contents.section_of(Network::Tcp), section.first_chunk::<{ Contents::ROOM }>());
        assert_eq!(contents.section_of::<3>(Network::Tcp), None);
        assert_eq!(contents.section_of::<3>(Network::Verbs), None);
        let more = [0; Address::MAX];
        assert!(Contents::new(NAME).with(Network::Tcp, &more).address().is_err());
    }

    #[test]
    fn an_error_names_the_networks_of_both() {
        let refused = route(&address(Some(1), &[Network::Verbs]), &address(None, &[Network::Tcp]));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("shm+verbs") && text.contains("tcp"), "{text}");
    }

    #[test]
    fn impossible_addresses_are_refused() {
        let good = address(Some(1), &Network::ALL[1..2]);
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.as_bytes().to_vec();
            change(&mut bytes);
            Contents::of(&Address::from_bytes(&bytes).unwrap()).is_err()
        };
        assert!(!refused(&|_| ()));
        assert!(refused(&|bytes| bytes[0] += 8), "another format");
        assert!(refused(&|bytes| bytes[1] += 1), "another release");
        assert!(refused(&|bytes| bytes[0] ^= 0x80), "no address");
        assert!(refused(&|bytes| bytes[0] &= !NETWORKS), "without a network");
        assert!(refused(&|bytes| bytes.truncate(5)), "without a name");
        assert!(refused(&|bytes| bytes.truncate(9 + 11 + 24)), "cut short");
        assert!(refused(&|bytes| bytes.push(0)), "with a byte more");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_address_or_refused(bytes in prop::collection::vec(any::<u8>(), 1..=64)) {
            let mut bytes = bytes;
            for first in [bytes[0], FORMAT | bytes[0] & NETWORKS] {
                bytes[0] = first;
                let address = Address::from_bytes(&bytes).unwrap();
                if let Ok(contents) = Contents::of(&address) {
                    prop_assert_eq!(contents.address().unwrap(), address);
                }
                let _ = route(&address, &address);
            }
        }
    }
}
