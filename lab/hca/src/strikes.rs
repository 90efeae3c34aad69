//! Faults of a command: when each is due, and what becomes of the ports.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tagmatch_os::notice;

use crate::abi::event;
use crate::control::ControlFile;
use crate::fault::{DeviceFault, FaultEvent, TimedFault};
use crate::nic::Ports;
use crate::settings::Settings;

/// A fault whose device was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strike {
    /// The device, from 0; `None`: all.
    device: Option<usize>,
    fault: DeviceFault,
}

impl Strike {
    /// `None`: there is no such device.
    fn new(fault: DeviceFault, settings: &Settings) -> Option<Self> {
        let device = match fault.device() {
            None => None,
            Some(number) => Some(settings.devices.iter().position(|device| *device == number)?),
        };
        Some(Strike { device, fault })
    }

    /// What becomes of the ports.
    pub(crate) fn apply(&self, ports: &Ports) {
        match self.fault {
            DeviceFault::Outage { lasts, .. } => ports.silence(self.device, lasts),
            DeviceFault::LinkDown { lasts, .. } => {
                ports.silence(self.device, lasts);
                ports.set_link(self.device, false);
            }
            DeviceFault::LinkUp { .. } => ports.set_link(self.device, true),
            DeviceFault::Event { event, .. } if event.event_type == event::LID_CHANGE => {
                ports.change_lid(self.device);
            }
            DeviceFault::Event { event, .. } if event.event_type == event::GID_CHANGE => {
                ports.change_gids(self.device);
            }
            DeviceFault::Event { .. } => {}
        }
    }

    /// The event that programs are told, of one device or of all.
    pub(crate) fn event(&self) -> Option<(Option<usize>, FaultEvent)> {
        let of_port = |event_type| FaultEvent { event_type, number: None };
        let event = match self.fault {
            DeviceFault::Outage { .. } => return None,
            DeviceFault::LinkDown { .. } => of_port(event::PORT_ERR),
            DeviceFault::LinkUp { .. } => of_port(event::PORT_ACTIVE),
            DeviceFault::Event { event, .. } => event,
        };
        Some((self.device, event))
    }
}

/// All faults that are to come.
#[derive(Debug)]
pub(crate) struct Strikes {
    control: Option<ControlFile>,
    waiting: Vec<(Instant, Strike)>,
    settings: Settings,
}

impl Strikes {
    /// The faults that a command has been given, and those that its programs ask for. The first
    /// program has this number.
    pub(crate) fn new(process: i32, settings: &Settings) -> Self {
        let start = Instant::now();
        let timed = |TimedFault { after, fault }: &TimedFault| {
            Some((start + *after, Strike::new(*fault, settings)?))
        };
        let waiting = settings.faults.iter().filter_map(timed).collect();
        Strikes { control: ControlFile::open(process).ok(), waiting, settings: settings.clone() }
    }

    /// What has something to read when a program asks for a fault.
    pub(crate) fn control(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(ControlFile::as_fd)
    }

    /// How long nothing is due.
    pub(crate) fn until_next(&self) -> Duration {
        let now = Instant::now();
        let times = self.waiting.iter().map(|(at, _)| at.saturating_duration_since(now));
        times.min().unwrap_or(Duration::MAX)
    }

    /// What is due.
    pub(crate) fn due(&mut self) -> Vec<Strike> {
        let now = Instant::now();
        for fault in self.control.as_mut().map(ControlFile::take).unwrap_or_default() {
            let found = fault.map_err(|error| error.to_string()).and_then(|fault| {
                Strike::new(fault, &self.settings).ok_or_else(|| "there is no such device".into())
            });
            match found {
                Ok(strike) => self.waiting.push((now, strike)),
                Err(error) => notice::tell(&format!("tagmatch-hca: control: {error}")),
            }
        }
        let due: Vec<Strike> =
            (self.waiting.extract_if(.., |(at, _)| *at <= now)).map(|(_, strike)| strike).collect();
        for strike in &due {
            if let DeviceFault::LinkDown { device, lasts } = strike.fault {
                let up = Strike { device: strike.device, fault: DeviceFault::LinkUp { device } };
                self.waiting.push((now + lasts, up));
            }
        }
        due
    }
}
