//! What the devices are like beyond their lists of tags: the other part of `--knob`.

use crate::gid::GidKind;

/// What the devices are like beyond their lists of tags. The default is a ConnectX-5 on InfiniBand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceKnobs {
    pub(crate) link_layer: LinkLayer,
    pub(crate) roce: Roce,
    pub(crate) mtu: Option<u16>,
    /// In parts per million.
    pub(crate) loss: u32,
    /// On a network alone, in parts per million.
    pub(crate) duplication: u32,
    pub(crate) reordering: u32,
    pub(crate) needs_doorbell: bool,
    pub(crate) max_inline: Option<u32>,
    pub(crate) max_srq: u32,
    /// By device, in turns: the rows of its port's table of partition keys.
    pub(crate) pkeys: Vec<Vec<u16>>,
}

/// What the link of a port is: `IBV_LINK_LAYER_*`, but for iWARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LinkLayer {
    Unspecified = 0,
    InfiniBand = 1,
    Ethernet = 2,
    /// Ethernet, too, as the port says it.
    Iwarp,
}

impl LinkLayer {
    /// `IBV_LINK_LAYER_*`.
    pub(crate) fn number(self) -> u8 {
        match self {
            LinkLayer::Iwarp => LinkLayer::Ethernet as u8,
            other => other as u8,
        }
    }

    /// `link_layer` of sysfs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LinkLayer::Unspecified => "Unknown",
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet | LinkLayer::Iwarp => "Ethernet",
        }
    }

    /// `node_type` of sysfs.
    pub(crate) fn node_type(self) -> &'static str {
        if self == LinkLayer::Iwarp { "4: RNIC" } else { "1: CA" }
    }
}

/// The versions of RoCE of an Ethernet port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roce {
    V1,
    V2,
    Both,
}

/// One of these settings, as a user gives it.
pub(crate) struct DeviceKnob {
    pub(crate) name: &'static str,
    /// The values that are right.
    pub(crate) right: &'static str,
    pub(crate) meaning: &'static str,
    set: fn(&mut DeviceKnobs, &str) -> Option<()>,
}

/// A partition key with full membership, of the partition that all ports are in.
const DEFAULT_PKEY: u16 = 0xffff;
/// Rows of a port's table of partition keys.
pub(crate) const PKEYS: usize = 128;
/// `max_srq` of a device.
pub(crate) const SRQS_MAX: u32 = 4096;

impl Default for DeviceKnobs {
    fn default() -> Self {
        DeviceKnobs {
            link_layer: LinkLayer::InfiniBand,
            roce: Roce::Both,
            mtu: None,
            loss: 0,
            duplication: 0,
            reordering: 0,
            needs_doorbell: false,
            max_inline: None,
            max_srq: SRQS_MAX,
            pkeys: vec![vec![DEFAULT_PKEY]],
        }
    }
}

/// A probability as text, such as 0.1%, in parts per million.
pub(crate) fn parts_per_million(text: &str) -> Option<u32> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent * 1e4).round() as u32)
}

/// A partition key as text, such as 0x8001.
pub(crate) fn partition_key(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// All settings of a device.
pub(crate) const DEVICE_KNOBS: &[DeviceKnob] = &[
    DeviceKnob {
        name: "link_layer",
        right: "infiniband, ethernet, unspecified or iwarp",
        meaning: "What the links of the ports are. Ethernet is RoCE: a port has no LID, its GIDs \
                  are a link-local address and the IPv4 address 10.SUBNET.0.NUMBER, a path needs \
                  a GID that a port has (otherwise ETIMEDOUT, at once; to another subnet it is \
                  made, and its packets are lost), and there is no list of tags. Unspecified is \
                  InfiniBand that doesn't say what it is. iwarp is refused what needs RoCE: \
                  datagrams (EOPNOTSUPP), and connections that rdma_cm didn't make (EINVAL). \
                  Default: infiniband.",
        set: |knobs, text| {
            knobs.link_layer = match text {
                "infiniband" => LinkLayer::InfiniBand,
                "ethernet" => LinkLayer::Ethernet,
                "unspecified" => LinkLayer::Unspecified,
                "iwarp" => LinkLayer::Iwarp,
                _ => return None,
            };
            Some(())
        },
    },
    DeviceKnob {
        name: "roce",
        right: "1, 2 or both",
        meaning: "The versions of RoCE that Ethernet ports have rows for in their tables of GIDs: \
                  of each address one of version 1 and then one of version 2. A packet of version \
                  1 has a GRH, also between IPv4 addresses. Default: both.",
        set: |knobs, text| {
            knobs.roce = match text {
                "1" => Roce::V1,
                "2" => Roce::V2,
                "both" => Roce::Both,
                _ => return None,
            };
            Some(())
        },
    },
    DeviceKnob {
        name: "mtu",
        right: "256, 512, 1024, 2048 or 4096",
        meaning: "Bytes of data in the longest packet of a link: `active_mtu` of the port, and \
                  the length of the longest datagram. Longer packets are lost. Default: 4096, and \
                  1024 on Ethernet.",
        set: |knobs, text| {
            let bytes: u16 = text.parse().ok()?;
            knobs.mtu = Some([256, 512, 1024, 2048, 4096].into_iter().find(|mtu| *mtu == bytes)?);
            Some(())
        },
    },
    DeviceKnob {
        name: "max_inline",
        right: "a number of bytes",
        meaning: "The most bytes that a send request may carry inline: a queue pair that asks for \
                  more is refused (EINVAL), as by devices other than mlx5. libmlx5 rounds what a \
                  program asks for up, to 60, 124, 188 and so on, before the device sees it: what \
                  is rounded to the same number is granted or refused alike, and the program is \
                  told this number. Default: what libmlx5 allows.",
        set: |knobs, text| text.parse().ok().map(|bytes| knobs.max_inline = Some(bytes)),
    },
    DeviceKnob {
        name: "loss",
        right: "a probability: 0% to 100%, as 0.1%",
        meaning: "The probability that a packet is lost, drawn from --seed. Here a message is one \
                  packet, but for READs and WRITEs in parts of 256 KiB; on a network (`--port \
                  roce`) it is one packet, lost as it leaves. Default: 0%.",
        set: |knobs, text| parts_per_million(text).map(|loss| knobs.loss = loss),
    },
    DeviceKnob {
        name: "duplication",
        right: "a probability: 0% to 100%, as 0.1%",
        meaning: "The probability that a packet leaves for a network twice, drawn from --seed. \
                  Default: 0%.",
        set: |knobs, text| parts_per_million(text).map(|twice| knobs.duplication = twice),
    },
    DeviceKnob {
        name: "reordering",
        right: "a probability: 0% to 100%, as 0.1%",
        meaning: "The probability that a packet to a network is held back, drawn from --seed: \
                  until some others have overtaken it, or for 2 ms or somewhat more. Default: 0%.",
        set: |knobs, text| parts_per_million(text).map(|late| knobs.reordering = late),
    },
    DeviceKnob {
        name: "needs_doorbell",
        right: "true or false",
        meaning: "Whether requests and the arming of completion queues count only once a register \
                  was written to, as on a card: a driver that forgets its doorbell gets nothing. \
                  A register of the same open device will do, since a later write to it hides an \
                  earlier one. Otherwise, all that stands in memory is looked at each millisecond. \
                  Default: false.",
        set: |knobs, text| text.parse().ok().map(|needs| knobs.needs_doorbell = needs),
    },
    DeviceKnob {
        name: "max_srq",
        right: "a number from 0 to 4096",
        meaning: "Shared receive queues that a program may have. 0: the device has none, so that \
                  making one is refused (EOPNOTSUPP), and no list of tags. Default: 4096.",
        set: |knobs, text| {
            let count = text.parse().ok().filter(|count| *count <= SRQS_MAX)?;
            knobs.max_srq = count;
            Some(())
        },
    },
    DeviceKnob {
        name: "pkeys",
        right: "partition keys, as 0x7fff,0x8001, at most 128; a table for each device, as \
                0xffff/0x8001,0xffff",
        meaning: "The rows of a port's table of partition keys; 0 is an empty row. Devices take \
                  the tables in turns. Packets between queue pairs whose keys differ in their \
                  lower 15 bits, or have the highest bit both clear, are lost. Default: 0xffff.",
        set: |knobs, text| {
            let table = |text: &str| {
                let keys: Vec<u16> = text.split(',').map(partition_key).collect::<Option<_>>()?;
                (keys.len() <= PKEYS).then_some(keys)
            };
            knobs.pkeys = text.split('/').map(table).collect::<Option<_>>()?;
            Some(())
        },
    },
];

impl DeviceKnobs {
    /// Sets one setting from text. `None`: there is no such setting; an error: the values that are
    /// right.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Option<Result<(), &'static str>> {
        let knob = DEVICE_KNOBS.iter().find(|knob| knob.name == name)?;
        Some((knob.set)(self, text).ok_or(knob.right))
    }

    /// The partition key in a row of a device's table; 0 if the row is empty.
    pub(crate) fn pkey(&self, device: usize, row: u16) -> u16 {
        let table = self.pkeys.get(device % self.pkeys.len().max(1));
        table.and_then(|table| table.get(usize::from(row))).copied().unwrap_or(0)
    }

    /// Whether ports have Ethernet below them.
    pub(crate) fn is_ethernet(&self) -> bool {
        matches!(self.link_layer, LinkLayer::Ethernet | LinkLayer::Iwarp)
    }

    /// The kinds of GIDs of an Ethernet port; `None` on InfiniBand.
    pub(crate) fn roce_kinds(&self) -> Option<&'static [GidKind]> {
        let kinds: &[GidKind] = match self.roce {
            Roce::V1 => &[GidKind::RoceV1],
            Roce::V2 => &[GidKind::RoceV2],
            Roce::Both => &[GidKind::RoceV1, GidKind::RoceV2],
        };
        self.is_ethernet().then_some(kinds)
    }

    /// Bytes of data in the longest packet of a link.
    pub(crate) fn link_mtu(&self) -> u16 {
        self.mtu.unwrap_or(if self.is_ethernet() { 1024 } else { 4096 })
    }

    /// `enum ibv_mtu` of a link.
    pub(crate) fn active_mtu(&self) -> u8 {
        (self.link_mtu().ilog2() - 7) as u8
    }

    /// Whether a queue pair may be made that carries so many bytes inline, as libmlx5 has rounded
    /// them, and so many segments: `mlx5_calc_sq_size` makes a request as long as both need, in
    /// blocks of 64 bytes.
    pub(crate) fn takes_inline(&self, bytes: u32, segments: u32) -> bool {
        let Some(most) = self.max_inline else { return true };
        let by_rounding = most.saturating_add(64);
        let by_segments = segments.saturating_mul(16).saturating_add(45);
        bytes < by_rounding.max(by_segments)
    }

    /// What a program is told of so many bytes, which were granted.
    pub(crate) fn inline_granted(&self, bytes: u32) -> u32 {
        bytes.min(self.max_inline.unwrap_or(u32::MAX))
    }
}

/// Whether packets pass between queue pairs with these partition keys (InfiniBand 10.9.3).
pub(crate) fn is_one_partition(one: u16, other: u16) -> bool {
    const FULL: u16 = 0x8000;
    let is_named = one & !FULL != 0;
    is_named && one & !FULL == other & !FULL && (one | other) & FULL != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_the_right_ones_are_named() {
        let mut knobs = DeviceKnobs::default();
        assert_eq!(knobs.set("max_inline", "101"), Some(Ok(())));
        assert_eq!(knobs.set("max_srq", "0"), Some(Ok(())));
        assert_eq!(knobs.set("pkeys", "0x7fff,0x0,0x8001/0xffff"), Some(Ok(())));
        assert_eq!(knobs.set("link_layer", "ethernet"), Some(Ok(())));
        assert_eq!((knobs.link_mtu(), knobs.active_mtu()), (1024, 3));
        assert_eq!(knobs.set("needs_doorbell", "true"), Some(Ok(())));
        assert_eq!(knobs.set("roce", "1"), Some(Ok(())));
        assert_eq!(knobs.set("loss", "0.5%"), Some(Ok(())));
        assert_eq!(knobs.set("duplication", "100%"), Some(Ok(())));
        assert_eq!(knobs.set("reordering", "0.0001%"), Some(Ok(())));
        assert_eq!(knobs.set("mtu", "2048"), Some(Ok(())));
        assert_eq!((knobs.link_mtu(), knobs.active_mtu()), (2048, 4));
        let expected = DeviceKnobs {
            link_layer: LinkLayer::Ethernet,
            roce: Roce::V1,
            mtu: Some(2048),
            loss: 5000,
            duplication: 1_000_000,
            reordering: 1,
            needs_doorbell: true,
            max_inline: Some(101),
            max_srq: 0,
            pkeys: vec![vec![0x7fff, 0, 0x8001], vec![0xffff]],
        };
        assert_eq!(knobs, expected);
        let rows = [(0, 0), (0, 2), (0, 3), (1, 0), (2, 2)].map(|(at, row)| knobs.pkey(at, row));
        assert_eq!(rows, [0x7fff, 0x8001, 0, 0xffff, 0x8001]);
        assert_eq!(knobs.set("speed", "1"), None);
        let long = vec!["0x1"; 129].join(",");
        for (name, text) in [
            ("link_layer", "token ring"),
            ("roce", "3"),
            ("mtu", "1500"),
            ("loss", "1"),
            ("loss", "101%"),
            ("loss", "NaN%"),
            ("duplication", "-1%"),
            ("reordering", "1"),
            ("max_inline", "-1"),
            ("max_srq", "4097"),
            ("pkeys", ""),
            ("pkeys", "ffff"),
            ("pkeys", "0x10000"),
            ("pkeys", &long),
        ] {
            assert!(knobs.set(name, text).unwrap().is_err(), "{name}={text}");
        }
    }

    #[test]
    fn a_partition_has_a_full_member() {
        for (one, other, passes) in [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0x7fff, false),
            (0x8001, 0xffff, false),
            (0x8000, 0x8000, false),
            (0, 0xffff, false),
        ] {
            assert_eq!(is_one_partition(one, other), passes, "{one:#x} {other:#x}");
        }
    }
}
