//! What the devices of one command are like.

use std::str::FromStr;

use tagmatch_model::ModelConfig;

use crate::fault::TimedFault;
use crate::gid::{GidKind, GidTable, PortGid, of_address, of_ipv4};
use crate::knobs::DeviceKnobs;
use crate::roce::port::RocePort;

/// What the devices of one command are like.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The numbers in the devices' names: `mlx5_0`.
    pub(crate) devices: Vec<u32>,
    /// Where the devices are, as far as it was said.
    pub(crate) places: Vec<Location>,
    /// The subnets that the devices' ports are in by turns.
    pub(crate) subnets: u32,
    /// A signal that is not deadly may interrupt a command.
    pub(crate) is_interruptible: bool,
    /// The list of tags, and its choices. `slots` is one less than a power of two.
    pub(crate) model: ModelConfig,
    pub(crate) knobs: DeviceKnobs,
    /// The Ethernet ports of the devices; none if no network is connected.
    pub(crate) ports: Vec<RocePort>,
    /// What goes wrong, and when.
    pub(crate) faults: Vec<TimedFault>,
}

/// Where a device is: its NUMA node, and the processors near it, as the kernel lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) node: u32,
    pub(crate) processors: String,
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("invalid place `{text}`: expected NODE:PROCESSORS such as 1:8-15,24");
        let (node, processors) = text.split_once(':').ok_or_else(wrong)?;
        let is_range = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let numbers = (first.parse::<u32>(), last.parse::<u32>());
            matches!(numbers, (Ok(first), Ok(last)) if first <= last)
        };
        if !processors.split(',').all(is_range) {
            return Err(wrong());
        }
        Ok(Location { node: node.parse().map_err(|_| wrong())?, processors: processors.to_owned() })
    }
}

/// The link-local address of an Ethernet port (RFC 4291, appendix A).
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

impl Settings {
    /// Whether the ports of two devices are in one subnet.
    pub(crate) fn are_connected(&self, one: u16, other: u16) -> bool {
        let subnet = |lid: u16| u32::from(lid.wrapping_sub(1)) % self.subnets;
        subnet(one) == subnet(other)
    }

    /// The partition key in a row of the table of a device's port; 0 if the row is empty.
    pub(crate) fn pkey(&self, lid: u16, row: u16) -> u16 {
        self.knobs.pkey(usize::from(lid).wrapping_sub(1), row)
    }

    /// Entries in a list of tags that a device may have; 0: it matches no tags.
    pub(crate) fn tags_max(&self) -> u32 {
        let has_lists = self.knobs.max_srq > 0 && (self.has_network() || !self.knobs.is_ethernet());
        if has_lists { self.model.slots } else { 0 }
    }

    /// Whether the ports are connected to a network.
    pub(crate) fn has_network(&self) -> bool {
        !self.ports.is_empty()
    }

    /// The Ethernet ports with the LIDs that they are known by.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (u16, &RocePort)> {
        self.ports.iter().enumerate().map(|(device, port)| (Self::lid(device), port))
    }

    /// The number of a device's port in its subnet.
    pub(crate) fn lid(device: usize) -> u16 {
        u16::try_from(device + 1).unwrap_or(u16::MAX)
    }

    /// The name of the device with a port, which no other device has.
    pub(crate) fn guid(lid: u16) -> [u8; 8] {
        let [high, low] = lid.wrapping_sub(1).to_be_bytes();
        [0x0c, 0x42, 0xa1, 0x03, 0x00, high, low, 0x33]
    }

    /// The table of GIDs of a port whose address has changed so often.
    pub(crate) fn gids(&self, lid: u16, changes: u8) -> GidTable {
        let device = usize::from(lid).wrapping_sub(1);
        let mut table = GidTable::default();
        let Some(kinds) = self.knobs.roce_kinds() else {
            let mut gid = self.gid(device);
            gid[6] = changes;
            table[0] = Some(PortGid { kind: GidKind::InfiniBand, gid });
            return table;
        };
        // As mlx5's driver fills it: by address, and of each both versions.
        let subnet = (device % self.subnets as usize) as u8;
        let ipv4 = of_ipv4([10, subnet, changes, (device + 1) as u8]);
        let gids = match self.ports.get(device) {
            Some(port) => port.addresses.iter().copied().map(of_address).collect(),
            None => vec![link_local(Self::mac(lid)), ipv4],
        };
        let rows = gids
            .into_iter()
            .flat_map(|gid| kinds.iter().map(move |kind| PortGid { kind: *kind, gid }));
        for (row, gid) in table.iter_mut().zip(rows) {
            *row = Some(gid);
        }
        table
    }

    /// The Ethernet address of a port.
    pub(crate) fn mac(lid: u16) -> [u8; 6] {
        let [a, b, c, _, _, high, low, last] = Self::guid(lid);
        [a, b, c, high, low, last]
    }

    /// The name of a device's port. The first subnet has the prefix of one that was not configured,
    /// the others those of sites (InfiniBand 4.1.1).
    pub(crate) fn gid(&self, device: usize) -> [u8; 16] {
        let mut gid = [0; 16];
        let subnet = (device % self.subnets as usize) as u8;
        gid[..2].copy_from_slice(if subnet == 0 { &[0xfe, 0x80] } else { &[0xfe, 0xc0] });
        gid[7] = subnet;
        gid[8..].copy_from_slice(&Self::guid(Self::lid(device)));
        gid
    }
}
