//! Where workers are: their machines, and the networks that their machines are on.

use tagmatch_device::bytes::array_at;
use tagmatch_device::contents::Contents;
use tagmatch_device::verbs_port::{VerbsLink, VerbsPort};
use tagmatch_device::{Address, Network};
use tagmatch_testkit::random::Random;

/// The place of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// The number of the machine, from 1; 0 if there are no machines.
    machine: u8,
    /// Whether the machine is on the better network of the two that connect machines.
    has_verbs: bool,
    /// The part of the better network that the machine is in. Parts don't reach each other.
    subnet: u8,
}

impl Site {
    /// The place of a worker, by its number, on one of so many machines.
    pub(super) fn new(machines: u32, seed: u64, node: u32) -> Self {
        let mut random = Random::stream(seed ^ u64::from(node), 8);
        let machine = random.below_u32(machines);
        let is_placed = machines > 0;
        let mut of_machine = Random::stream(seed ^ u64::from(machine), 9);
        Site {
            subnet: u8::from(of_machine.per_mille(250)),
            machine: u8::from(is_placed) + u8::try_from(machine).unwrap_or(u8::MAX),
            has_verbs: is_placed && random.per_mille(850),
        }
    }

    /// The networks that connect this worker to other machines, in the order of preference.
    pub(super) fn beyond(self) -> &'static [Network] {
        match (self.machine, self.has_verbs) {
            (0, _) => &[],
            (_, true) => &[Network::Verbs, Network::Tcp],
            (_, false) => &[Network::Tcp],
        }
    }

    /// The part of a worker's address about a network.
    pub(super) fn section(self, network: Network, node: u32) -> Vec<u8> {
        let length = match network {
            Network::Shm => Network::SHM_BYTES,
            Network::Verbs => Network::VERBS_BYTES,
            Network::Tcp => 4,
        };
        let mut section = node.to_be_bytes().to_vec();
        section.resize(length, self.machine);
        section.rotate_left(4);
        if network == Network::Verbs {
            let link = VerbsLink::InfiniBand { lid: self.machine.into() };
            let port = VerbsPort { link, gid: [self.subnet; 16] }.emit();
            section[..VerbsPort::BYTES].copy_from_slice(&port);
        }
        section
    }

    /// The address of a worker that is on no network beyond its machine.
    pub(super) fn address(self, node: u32) -> Address {
        let section = self.section(Network::Shm, node);
        let contents = Contents::new(array_at(&u64::from(node).to_be_bytes(), 1));
        let address = contents.with(Network::Shm, &section).address();
        address.unwrap_or_else(|_| unreachable!("one network fits"))
    }
}

/// The worker with this address.
pub(super) fn node_of(address: &Address) -> Option<u32> {
    Some(u32::from_be_bytes(array_at(&Contents::of(address).ok()?.name, 3)))
}
