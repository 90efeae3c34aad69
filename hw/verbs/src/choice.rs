//! Which port a worker uses where several are active.
//!
//! Ports that can't work are left out first: those that are down or have no address, and those of
//! devices that lack what this crate needs. All ranks of a job must end up in one network, or they
//! can't reach each other: so the kind of link and the network decide next, which are the same on
//! each machine: the subnet on InfiniBand, and on RoCE the version, the VLAN and the IP network.
//! Among the fastest ports of that network the nearest to this process' processors count: sysfs
//! tells them (`local_cpulist` and `numa_node` in the kernel's
//! `Documentation/ABI/testing/sysfs-bus-pci`). The ranks of a machine take turns at equal ones.

use std::cmp::Reverse;
use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use tagmatch_device::{DeviceError, InCall};
use tagmatch_rdma_core_sys as sys;

use super::calls::set_nonblocking;
use super::config::VerbsConfig;
use super::context::Context;
use super::gid::{self, RoceOrder};

/// Where launchers tell a process its number among those of its machine, from 0: ours and MPICH's,
/// Open MPI's, Slurm's.
const LOCAL_RANKS: [&str; 3] = ["MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"];

/// A network of ports that reach each other, as each machine knows it. InfiniBand comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PortNetwork {
    /// By the first half of the GID.
    InfiniBand(u64),
    Ethernet(RoceOrder),
}

impl fmt::Display for PortNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortNetwork::InfiniBand(subnet) => write!(f, "{subnet:#018x}"),
            PortNetwork::Ethernet(network) => network.fmt(f),
        }
    }
}

/// A port that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    network: PortNetwork,
    /// The speed of the link, in 100 Mb/s.
    speed: u32,
    /// The distance of the device from this process' processors: 0 if the device is near one of
    /// them, or nothing is known; otherwise the system's NUMA distance, 10 and more.
    distance: u8,
}

/// A device and a port, and the ports that can't be used.
pub(super) struct PortChoice {
    pub(super) context: Context,
    /// Each with its reason: `mlx5_1, port 1: it is not active`.
    pub(super) left_out: Vec<String>,
}

/// Opens the device that the settings name, or chooses one with a port that can be used.
///
/// # Errors
/// There is no device, none can be opened, or no port can be used: the error says why, for each.
pub(super) fn open(config: &VerbsConfig) -> Result<PortChoice, DeviceError> {
    let mut opened = Context::open_all(config)?;
    let mut ports = Vec::new();
    let mut candidates = Vec::new();
    let mut left_out = Vec::new();
    for (at, context) in opened.iter().enumerate() {
        let attr = match context.attributes() {
            Ok(attr) => attr,
            Err(error) => {
                left_out.push(format!("{}: ibv_query_device: {error}", context.name));
                continue;
            }
        };
        for number in 1..=attr.phys_port_cnt {
            if config.port.is_some_and(|wanted| wanted != number) {
                continue;
            }
            match candidate(context, &attr, number, config) {
                Ok(candidate) => {
                    ports.push((at, number));
                    candidates.push(candidate);
                }
                Err(why) => left_out.push(format!("{}, port {number}: {why}", context.name)),
            }
        }
    }
    let Some((chosen, why)) = choose(&candidates, local_rank()) else {
        return Err(no_port(config, opened.is_empty(), &left_out));
    };
    let (at, number) = ports[chosen];
    let mut context = opened.swap_remove(at);
    (context.port, context.why, context.local_rank) = (number, why, local_rank());
    set_nonblocking(context.async_fd()).in_call("fcntl")?;
    Ok(PortChoice { context, left_out })
}

/// Why there is no port to use.
fn no_port(config: &VerbsConfig, is_without_device: bool, left_out: &[String]) -> DeviceError {
    match config.port {
        _ if is_without_device => DeviceError::System {
            call: "ibv_get_device_list",
            source: io::Error::from_raw_os_error(libc::ENODEV),
            hint: match config.device {
                Some(_) => "; there is no RDMA device of this name (ibv_devices lists them)",
                None => "; there is no RDMA device (rdma link add rxe0 type rxe netdev eth0)",
            },
        },
        Some(port) if left_out.is_empty() => DeviceError::BadSetting {
            setting: "port",
            value: port.into(),
            range: "the number of one of the device's ports",
        },
        _ => DeviceError::System {
            call: "ibv_query_port",
            source: io::Error::other(format!("no port can be used: {}", left_out.join("; "))),
            hint: "",
        },
    }
}

/// What counts of a port, or why it can't be used.
fn candidate(
    context: &Context,
    attr: &sys::ibv_device_attr,
    number: u8,
    config: &VerbsConfig,
) -> Result<Candidate, String> {
    let port = context.port(number).map_err(|error| format!("ibv_query_port: {error}"))?;
    let lacks = |what: &str| Err(what.to_owned());
    if context.is_iwarp() {
        return lacks("its device speaks iWARP, which has no datagrams to meet by");
    }
    if attr.max_srq == 0 || attr.max_srq_wr == 0 {
        return lacks("its device has no shared receive queues (max_srq is 0)");
    }
    if ![sys::IBV_LINK_LAYER_INFINIBAND, sys::IBV_LINK_LAYER_ETHERNET].contains(&port.link_layer) {
        return lacks("its link layer is neither InfiniBand nor Ethernet");
    }
    if port.state != sys::IBV_PORT_ACTIVE {
        return lacks("it is not active (ibv_devinfo shows its state)");
    }
    let gid = gid::choose(context, number, &port, config.gid_index);
    let gid = gid.map_err(|error| error.to_string())?;
    let network = if port.link_layer == sys::IBV_LINK_LAYER_ETHERNET {
        PortNetwork::Ethernet(gid.order())
    } else {
        PortNetwork::InfiniBand(gid.gid.subnet())
    };
    Ok(Candidate {
        network,
        speed: speed(port.active_width, port.active_speed),
        distance: distance(&context.name),
    })
}

/// The index of the port to use, and why. `local_rank`: this process' number among those of its
/// machine. `None` if there is no port.
fn choose(ports: &[Candidate], local_rank: u32) -> Option<(usize, String)> {
    let key = |port: &Candidate| (port.network, Reverse(port.speed), port.distance);
    let best = ports.iter().map(key).min()?;
    let equal: Vec<usize> = (0..ports.len()).filter(|&at| key(&ports[at]) == best).collect();
    let at = equal[local_rank as usize % equal.len()];
    let count =
        |is_so: &dyn Fn(&Candidate) -> bool| ports.iter().filter(|port| is_so(port)).count();
    let (network, speed, distance) = best;
    let in_network = |port: &Candidate| port.network == network;
    let as_fast = |port: &Candidate| in_network(port) && Reverse(port.speed) == speed;
    let mut why = Vec::new();
    if count(&in_network) < ports.len() {
        why.push(format!("in the first of several networks, {network}"));
    }
    if count(&as_fast) < count(&in_network) {
        why.push("the fastest there".to_owned());
    }
    if equal.len() < count(&as_fast) {
        let far = if distance > 0 { format!(" (distance {distance})") } else { String::new() };
        why.push(format!("the nearest to this process' processors{far}"));
    }
    if equal.len() > 1 {
        why.push(format!("one of {} equal ports, by the local rank {local_rank}", equal.len()));
    }
    Some((at, why.join("; ")))
}

/// This process' number among those of its machine, as its launcher tells; otherwise 0.
fn local_rank() -> u32 {
    LOCAL_RANKS.iter().find_map(|name| env::var(name).ok()?.parse().ok()).unwrap_or(0)
}

/// The speed of a link in 100 Mb/s, from `active_width` and `active_speed` of ibv_query_port(3).
fn speed(width: u8, speed: u8) -> u32 {
    let lanes = match width {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    let lane = match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        128 => 1000,
        _ => 0,
    };
    lanes * lane
}

/// The distance of a device from this process' processors. See [`Candidate::distance`].
fn distance(device: &str) -> u8 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    distance_from(Path::new("/sys"), device, own.unwrap_or_default())
}

fn distance_from(sys: &Path, device: &str, own: &str) -> u8 {
    let own = Processors::parse(own);
    let read = |path: &Path| fs::read_to_string(path).ok();
    let place = sys.join("class/infiniband").join(device).join("device");
    let near = read(&place.join("local_cpulist")).map(|list| Processors::parse(&list));
    if near.is_none_or(|near| near.overlap(&own)) {
        return 0;
    }
    // The process is elsewhere: the nearest of its nodes counts.
    let node = read(&place.join("numa_node")).and_then(|node| node.trim().parse::<u32>().ok());
    let nodes = sys.join("devices/system/node");
    let row = node.and_then(|node| read(&nodes.join(format!("node{node}/distance"))));
    let distances = row.iter().flat_map(|row| row.split_whitespace()).enumerate();
    let of_own = distances.filter_map(|(at, distance)| {
        let there = Processors::parse(&read(&nodes.join(format!("node{at}/cpulist")))?);
        there.overlap(&own).then(|| distance.parse().ok())?
    });
    of_own.min().unwrap_or(u8::MAX)
}

/// Processors as the kernel lists them: `0-3,8`.
struct Processors(Vec<(u32, u32)>);

impl Processors {
    fn parse(text: &str) -> Self {
        let ranges = text.trim().split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        Processors(ranges.collect())
    }

    fn overlap(&self, other: &Self) -> bool {
        self.0.iter().any(|(a, b)| other.0.iter().any(|(c, d)| a <= d && c <= b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Candidate =
        Candidate { network: PortNetwork::InfiniBand(1), speed: 1000, distance: 0 };

    fn chosen(ports: &[Candidate], local_rank: u32) -> (usize, String) {
        choose(ports, local_rank).unwrap()
    }

    #[test]
    fn the_only_port_needs_no_reason() {
        assert_eq!(chosen(&[PORT], 5), (0, String::new()));
        assert_eq!(choose(&[], 0), None);
    }

    #[test]
    fn the_subnet_is_the_same_wherever_it_is_seen() {
        let [first, second] =
            [1, 2].map(|subnet| Candidate { network: PortNetwork::InfiniBand(subnet), ..PORT });
        let far = Candidate { distance: 30, speed: 500, ..first };
        let third = Candidate { network: PortNetwork::InfiniBand(3), ..PORT };
        for ports in [
            [third.clone(), second.clone(), far.clone()],
            [second.clone(), far.clone(), third.clone()],
        ] {
            let (at, why) = chosen(&ports, 1);
            assert_eq!(ports[at], far);
            assert_eq!(why, "in the first of several networks, 0x0000000000000001");
        }
    }

    #[test]
    fn the_fastest_and_among_them_the_nearest_port_is_chosen() {
        let slow = Candidate { speed: 500, ..PORT };
        let far = Candidate { distance: 12, ..PORT };
        let farther = Candidate { distance: 32, ..PORT };
        let (at, why) = chosen(&[slow.clone(), far.clone(), PORT], 0);
        assert_eq!((at, &*why), (2, "the fastest there; the nearest to this process' processors"));
        let (at, why) = chosen(&[farther, far], 3);
        assert_eq!((at, &*why), (1, "the nearest to this process' processors (distance 12)"));
        assert_eq!(chosen(&[slow, PORT], 0), (1, "the fastest there".to_owned()));
    }

    #[test]
    fn ranks_take_turns_at_equal_ports() {
        let far = Candidate { distance: 12, ..PORT };
        let ports = [PORT, far, PORT];
        let turns: Vec<usize> = (0..4).map(|rank| chosen(&ports, rank).0).collect();
        assert_eq!(turns, [0, 2, 0, 2]);
        assert!(chosen(&ports, 3).1.ends_with("; one of 2 equal ports, by the local rank 3"));
    }

    #[test]
    fn speeds_are_those_of_the_manual() {
        // SDR 1x, FDR10 4x, EDR 4x, HDR 2x, NDR 4x.
        let known = [(1, 1), (2, 8), (2, 32), (16, 64), (2, 128)];
        assert_eq!(known.map(|(width, code)| speed(width, code)), [25, 400, 1000, 1000, 4000]);
        assert_eq!([speed(4, 2), speed(8, 4), speed(2, 16), speed(2, 255)], [400, 1200, 560, 0]);
    }

    #[test]
    fn a_device_is_near_if_it_shares_a_processor_or_its_place_is_unknown() {
        let root = tagmatch_testkit::scratch::Scratch::new("verbs-nearest");
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("class/infiniband/mlx5_0/device/local_cpulist", "0-3,8\n");
        put("class/infiniband/mlx5_0/device/numa_node", "0\n");
        put("class/infiniband/mlx5_1/device/local_cpulist", "4-7\n");
        put("class/infiniband/mlx5_1/device/numa_node", "-1\n");
        for (node, cpus, distance) in [(0, "0-3,8", "10 12 32"), (1, "4-5", ""), (2, "6-7,9", "")] {
            put(&format!("devices/system/node/node{node}/cpulist"), &format!("{cpus}\n"));
            put(&format!("devices/system/node/node{node}/distance"), &format!("{distance}\n"));
        }
        let distance = |device, own| distance_from(&root, device, own);
        for own in ["0", "3-4", "\t8-9\n", "0-31"] {
            assert_eq!(distance("mlx5_0", own), 0, "{own}");
        }
        assert_eq!([distance("mlx5_0", "4"), distance("mlx5_0", "6-7")], [12, 32]);
        assert_eq!(distance("mlx5_0", "5-6"), 12, "the nearest of its nodes");
        assert_eq!(distance("mlx5_0", "77"), u8::MAX, "on no node");
        assert_eq!(distance("mlx5_1", "0"), u8::MAX, "on an unknown node");
        assert_eq!(distance("rxe0", "0"), 0, "software has no place");
    }
}
