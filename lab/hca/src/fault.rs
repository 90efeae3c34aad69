//! Faults on request: by `--fault`, or by a line that a program writes to a file.

use std::str::FromStr;
use std::time::Duration;

use crate::abi::{DEVICE_PREFIX, event};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceFault {
    /// All packets from and to a device's port are lost for some time, or for all ports. The port
    /// knows nothing of it, as where a switch fails.
    Outage { device: Option<u32>, lasts: Duration },
    /// The link of a port is down for some time: an outage that the port says.
    LinkDown { device: Option<u32>, lasts: Duration },
    /// The link of a port is up again.
    LinkUp { device: Option<u32> },
    /// An asynchronous event, and what has happened then.
    Event { device: Option<u32>, event: FaultEvent },
}

/// An asynchronous event that can be asked for: `enum ibv_event_type`, with the number of the queue
/// that it is about; none: all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultEvent {
    pub(crate) event_type: u32,
    pub(crate) number: Option<u32>,
}

/// A fault, and how long after the start of the program it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedFault {
    pub(crate) after: Duration,
    pub(crate) fault: DeviceFault,
}

impl DeviceFault {
    /// The number of the device that it is about; `None`: all of them.
    pub(crate) fn device(&self) -> Option<u32> {
        match *self {
            DeviceFault::Outage { device, .. }
            | DeviceFault::LinkDown { device, .. }
            | DeviceFault::LinkUp { device }
            | DeviceFault::Event { device, .. } => device,
        }
    }
}

/// Faults as text, for error messages and for the manual.
pub(crate) const FAULTS: &str =
    "`outage 2s`, `down 2s` or `event NAME`, then mlx5_0 if only that device is meant";

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
    #[error("no such fault: expected {FAULTS}")]
    DeviceFault,
    #[error("no such event: expected one of {}", names())]
    Event,
    #[error("invalid time `{0}`: expected a number of s or ms, such as 1.5s or 300ms")]
    Time(String),
    #[error("{0}: no queue has such a number, and no device such a name")]
    Number(String),
    #[error("expected a time, a colon and a fault, such as `500ms:outage 2s`")]
    Timed,
}

fn names() -> String {
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

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl FromStr for DeviceFault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_ascii_whitespace();
        let kind = words.next();
        let what = words.next();
        let mut device = None;
        let mut queue = None;
        for word in words {
            let wrong = || FaultError::Number(word.to_owned());
            match word.strip_prefix(DEVICE_PREFIX) {
                Some(digits) => device = Some(digits.parse().map_err(|_| wrong())?),
                None => queue = Some(number(word).ok_or_else(wrong)?),
            }
        }
        match (kind, what) {
            (Some("outage"), Some(time)) => {
                Ok(DeviceFault::Outage { device, lasts: duration(time)? })
            }
            (Some("down"), Some(time)) => {
                Ok(DeviceFault::LinkDown { device, lasts: duration(time)? })
            }
            (Some("event"), Some(name)) => {
                let found = EVENTS.iter().find(|(of, _)| *of == name).ok_or(FaultError::Event)?;
                let event = FaultEvent { event_type: found.1, number: queue };
                Ok(DeviceFault::Event { device, event })
            }
            _ => Err(FaultError::DeviceFault),
        }
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
        let event = |event_type, number| FaultEvent { event_type, number };
        for (text, fault) in [
            ("outage 1s", DeviceFault::Outage { device: None, lasts: second }),
            ("outage 1.5s", DeviceFault::Outage { device: None, lasts: second * 3 / 2 }),
            ("down 1000ms mlx5_3", DeviceFault::LinkDown { device: Some(3), lasts: second }),
            ("event PORT_ERR", DeviceFault::Event { device: None, event: event(10, None) }),
            (
                "event QP_FATAL 0x101",
                DeviceFault::Event { device: None, event: event(1, Some(257)) },
            ),
            (
                "event SRQ_ERR 7 mlx5_0",
                DeviceFault::Event { device: Some(0), event: event(14, Some(7)) },
            ),
        ] {
            assert_eq!(text.parse(), Ok(fault), "{text}");
            let timed = TimedFault { after: Duration::from_millis(20), fault };
            assert_eq!(format!("20ms:{text}").parse(), Ok(timed));
        }
    }

    #[test]
    fn what_is_no_fault_is_named() {
        for (text, why) in [
            ("", "no such fault: expected `outage 2s`"),
            ("outage", "no such fault"),
            ("fire 1s", "no such fault"),
            ("event FIRE", "no such event: expected one of CQ_ERR, QP_FATAL"),
            ("outage 1", "invalid time `1`: expected a number of s or ms"),
            ("outage -1s", "invalid time"),
            ("outage NaNs", "invalid time"),
            ("outage 1e9s", "invalid time"),
            ("outage 1s mlx5_x", "mlx5_x: no queue"),
            ("event QP_FATAL 4294967296", "4294967296: no queue"),
        ] {
            let error = text.parse::<DeviceFault>().unwrap_err().to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        assert_eq!("outage 1s".parse::<TimedFault>(), Err(FaultError::Timed));
    }
}
