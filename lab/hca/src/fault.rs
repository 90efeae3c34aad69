//! Faults on request: by `--fault`, by `tagmatch-hca ctl`, or by a line that a program writes to a
//! file.

mod forms;

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

pub(crate) use forms::{help, page};
use tagmatch_model::FailureTime;

use crate::abi::{DEVICE_PREFIX, event};
use crate::gid::{GIDS, GidKind, PortGid, of_ipv4};
use crate::knobs::{self, PKEYS};

/// A fault, on one device or on all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceFault {
    /// The number in the device's name; `None`: all devices.
    pub(crate) device: Option<u32>,
    pub(crate) kind: FaultKind,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// All packets from and to a port are lost for some time. The port knows nothing of it, as
    /// where a switch fails.
    Outage(Duration),
    /// The link of a port is down for some time: an outage that the port says.
    LinkDown(Duration),
    /// The link of a port is up again.
    LinkUp,
    /// An asynchronous event, and what has happened then.
    Event(FaultEvent),
    /// A row of the table of partition keys is changed.
    PartitionKey { row: u16, key: u16 },
    /// A row of the table of GIDs is changed, or emptied.
    Gid { row: usize, gid: Option<PortGid> },
    /// From now on, registrations fail with a probability: in parts per million.
    Registrations(u32),
    /// The next completion overruns its queue: the queue with this number, or any.
    Overrun(Option<u32>),
    /// A queue pair dies inside the next message that an entry matches.
    Match(FailureTime),
    /// The device is lost.
    Fatal(DeviceLoss),
}

/// An asynchronous event that can be asked for: `enum ibv_event_type`, with the number of the queue
/// that it is about; none: all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultEvent {
    pub(crate) event_type: u32,
    pub(crate) number: Option<u32>,
}

/// When a device is lost, and for how long no program can open it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceLoss {
    pub(crate) lasts: Duration,
    pub(crate) fuse: Fuse,
}

/// The operation at which a device is lost: so many from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fuse {
    Now,
    /// Requests of send queues.
    Requests(u32),
    /// Commands to the driver.
    Commands(u32),
}

/// A fault, and how long after the start of the program it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedFault {
    pub(crate) after: Duration,
    pub(crate) fault: DeviceFault,
}

/// The events that can be asked for.
pub(crate) const EVENTS: &[(&str, u32)] = &[
    ("CQ_ERR", event::CQ_ERR),
    ("QP_FATAL", event::QP_FATAL),
    ("SRQ_ERR", event::SRQ_ERR),
    ("PORT_ACTIVE", event::PORT_ACTIVE),
    ("PORT_ERR", event::PORT_ERR),
    ("LID_CHANGE", event::LID_CHANGE),
    ("PKEY_CHANGE", event::PKEY_CHANGE),
    ("SM_CHANGE", event::SM_CHANGE),
    ("CLIENT_REREGISTER", event::CLIENT_REREGISTER),
    ("GID_CHANGE", event::GID_CHANGE),
];

/// Why a fault can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FaultError {
    #[error(
        "no such fault: expected {}; mlx5_0 behind it if only that device is meant",
        forms::usages()
    )]
    DeviceFault,
    #[error("no such event: expected one of {}", event_names())]
    Event,
    #[error("invalid time `{0}`: expected a number of s or ms, such as 1.5s or 300ms")]
    Time(String),
    #[error("{0}: no queue has such a number, and no device such a name")]
    Number(String),
    #[error("invalid row `{0}`: the table of partition keys has {PKEYS} rows, that of GIDs {GIDS}")]
    Row(String),
    #[error("invalid partition key `{0}`: expected a number such as 0x8001; 0x0 empties the row")]
    PartitionKey(String),
    #[error("invalid address `{0}`: expected a GID such as fe80::1 or 10.0.0.1; - empties the row")]
    Gid(String),
    #[error("invalid probability `{0}`: expected 0% to 100%")]
    Probability(String),
    #[error("expected a time, a colon and a fault, such as `500ms:outage 2s`")]
    Timed,
}

fn event_names() -> String {
    EVENTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn duration(text: &str) -> Result<Duration, FaultError> {
    const LONGEST: f64 = 1e6;
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or_default(), 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    let seconds = seconds.filter(|seconds| (0.0..=LONGEST).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| FaultError::Time(text.to_owned()))
}

fn number(text: &str) -> Result<u32, FaultError> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    parsed.ok_or_else(|| FaultError::Number(text.to_owned()))
}

fn row(text: &str, rows: usize) -> Result<usize, FaultError> {
    let row = text.parse().ok().filter(|row| *row < rows);
    row.ok_or_else(|| FaultError::Row(text.to_owned()))
}

/// A row of the table of GIDs. InfiniBand has no versions; there, the kind says nothing.
fn gid(text: &str, kind: GidKind) -> Result<Option<PortGid>, FaultError> {
    if text == "-" {
        return Ok(None);
    }
    let gid = match text.parse() {
        Ok(IpAddr::V4(address)) => of_ipv4(address.octets()),
        Ok(IpAddr::V6(address)) if address != Ipv6Addr::UNSPECIFIED => address.octets(),
        _ => return Err(FaultError::Gid(text.to_owned())),
    };
    Ok(Some(PortGid { kind, gid }))
}

/// The fault that a name and its arguments mean.
fn kind(name: &str, arguments: &[&str]) -> Result<FaultKind, FaultError> {
    Ok(match (name, arguments) {
        ("outage", [time]) => FaultKind::Outage(duration(time)?),
        ("down", [time]) => FaultKind::LinkDown(duration(time)?),
        ("event", [name, queue @ ..]) if queue.len() < 2 => {
            let found = EVENTS.iter().find(|(of, _)| of == name).ok_or(FaultError::Event)?;
            let number = queue.first().map(|queue| number(queue)).transpose()?;
            FaultKind::Event(FaultEvent { event_type: found.1, number })
        }
        ("pkey", [at, key]) => {
            let wrong = || FaultError::PartitionKey((*key).to_owned());
            let row = row(at, PKEYS)? as u16;
            FaultKind::PartitionKey { row, key: knobs::partition_key(key).ok_or_else(wrong)? }
        }
        ("gid", [at, address]) => {
            FaultKind::Gid { row: row(at, GIDS)?, gid: gid(address, GidKind::RoceV2)? }
        }
        ("gid", [at, address, "v1"]) => {
            FaultKind::Gid { row: row(at, GIDS)?, gid: gid(address, GidKind::RoceV1)? }
        }
        ("registrations", [chance]) => {
            let wrong = || FaultError::Probability((*chance).to_owned());
            FaultKind::Registrations(knobs::parts_per_million(chance).ok_or_else(wrong)?)
        }
        ("overrun", []) => FaultKind::Overrun(None),
        ("overrun", [queue]) => FaultKind::Overrun(Some(number(queue)?)),
        ("match", ["before"]) => FaultKind::Match(FailureTime::Before),
        ("match", ["after"]) => FaultKind::Match(FailureTime::After),
        ("fatal", [time, rest @ ..]) => {
            let fuse = match rest {
                [] => Fuse::Now,
                ["requests", count] => Fuse::Requests(number(count)?),
                ["commands", count] => Fuse::Commands(number(count)?),
                _ => return Err(FaultError::DeviceFault),
            };
            FaultKind::Fatal(DeviceLoss { lasts: duration(time)?, fuse })
        }
        _ => return Err(FaultError::DeviceFault),
    })
}

impl FromStr for DeviceFault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let mut device = None;
        let mut arguments = Vec::new();
        for word in words {
            match word.strip_prefix(DEVICE_PREFIX) {
                Some(digits) => {
                    let wrong = |_| FaultError::Number(word.to_owned());
                    device = Some(digits.parse().map_err(wrong)?);
                }
                None => arguments.push(word),
            }
        }
        Ok(DeviceFault { device, kind: kind(name, &arguments)? })
    }
}

impl FromStr for TimedFault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (after, fault) = text.split_once(':').ok_or(FaultError::Timed)?;
        Ok(TimedFault { after: duration(after)?, fault: fault.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let second = Duration::from_secs(1);
        let event = |event_type, number| FaultKind::Event(FaultEvent { event_type, number });
        let lost = |fuse| FaultKind::Fatal(DeviceLoss { lasts: second, fuse });
        let loopback = of_ipv4([127, 0, 0, 1]);
        let at = |row, kind| FaultKind::Gid { row, gid: Some(PortGid { kind, gid: loopback }) };
        for (text, device, kind) in [
            ("outage 1s", None, FaultKind::Outage(second)),
            ("outage 1.5s", None, FaultKind::Outage(second * 3 / 2)),
            ("down 1000ms mlx5_3", Some(3), FaultKind::LinkDown(second)),
            ("event PORT_ERR", None, event(10, None)),
            ("event QP_FATAL 0x101", None, event(1, Some(257))),
            ("event SRQ_ERR 7 mlx5_0", Some(0), event(14, Some(7))),
            ("pkey 127 0x8001", None, FaultKind::PartitionKey { row: 127, key: 0x8001 }),
            ("gid 7 127.0.0.1 mlx5_1", Some(1), at(7, GidKind::RoceV2)),
            ("gid 0 ::ffff:127.0.0.1 v1", None, at(0, GidKind::RoceV1)),
            ("gid 1 -", None, FaultKind::Gid { row: 1, gid: None }),
            ("registrations 12.5%", None, FaultKind::Registrations(125_000)),
            ("overrun", None, FaultKind::Overrun(None)),
            ("overrun 0x10", None, FaultKind::Overrun(Some(16))),
            ("match before", None, FaultKind::Match(FailureTime::Before)),
            ("match after", None, FaultKind::Match(FailureTime::After)),
            ("fatal 1s", None, lost(Fuse::Now)),
            ("fatal 1s requests 7", None, lost(Fuse::Requests(7))),
            ("fatal 1s commands 9 mlx5_2", Some(2), lost(Fuse::Commands(9))),
        ] {
            let fault = DeviceFault { device, kind };
            assert_eq!(text.parse(), Ok(fault), "{text}");
            let timed = TimedFault { after: Duration::from_millis(20), fault };
            assert_eq!(format!("20ms:{text}").parse(), Ok(timed));
        }
    }

    #[test]
    fn what_is_no_fault_is_named() {
        for (text, why) in [
            ("", "no such fault: expected `outage TIME`, `down TIME`"),
            ("outage", "no such fault"),
            ("fire 1s", "no such fault"),
            ("event FIRE", "no such event: expected one of CQ_ERR, QP_FATAL"),
            ("event QP_FATAL 1 2", "no such fault"),
            ("outage 1", "invalid time `1`: expected a number of s or ms"),
            ("outage -1s", "invalid time"),
            ("outage NaNs", "invalid time"),
            ("outage 1e9s", "invalid time"),
            ("outage 1s mlx5_x", "mlx5_x: no queue"),
            ("event QP_FATAL 4294967296", "4294967296: no queue"),
            ("pkey 128 0x1", "invalid row `128`"),
            ("pkey 0 1", "invalid partition key `1`"),
            ("pkey 0 0x10000", "invalid partition key"),
            ("gid 8 ::1", "invalid row `8`"),
            ("gid 0 ::", "invalid address `::`"),
            ("gid 0 fe80", "invalid address `fe80`"),
            ("gid 0 ::1 v3", "no such fault"),
            ("registrations 101%", "invalid probability `101%`"),
            ("registrations 1", "invalid probability"),
            ("match", "no such fault"),
            ("fatal", "no such fault"),
            ("fatal 1s requests", "no such fault"),
            ("fatal 1s commands x", "x: no queue"),
        ] {
            let error = text.parse::<DeviceFault>().unwrap_err().to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        assert_eq!("outage 1s".parse::<TimedFault>(), Err(FaultError::Timed));
    }
}
