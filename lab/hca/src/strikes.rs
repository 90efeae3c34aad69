//! Faults of a command: when each is due, and what becomes of the ports.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use tagmatch_os::notice;

use crate::abi::event;
use crate::control::ControlFile;
use crate::control_socket::ControlSocket;
use crate::fault::{DeviceFault, FaultKind, TimedFault};
use crate::nic::Ports;
use crate::settings::Settings;

/// A fault whose device was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    /// The device, from 0; `None`: all.
    pub(crate) device: Option<usize>,
    pub(crate) kind: FaultKind,
}

impl Strike {
    /// `None`: there is no such device.
    fn new(fault: DeviceFault, settings: &Settings) -> Option<Self> {
        let device = match fault.device {
            None => None,
            Some(number) => Some(settings.devices.iter().position(|device| *device == number)?),
        };
        Some(Strike { device, kind: fault.kind })
    }

    /// What becomes of the ports.
    pub(crate) fn apply(&self, ports: &Ports, settings: &Settings) {
        let device = self.device;
        match self.kind {
            FaultKind::Outage(lasts) => ports.silence(device, lasts),
            FaultKind::LinkDown(lasts) => {
                ports.silence(device, lasts);
                ports.set_link(device, false);
            }
            FaultKind::LinkUp => ports.set_link(device, true),
            FaultKind::Event(event) if event.event_type == event::LID_CHANGE => {
                ports.change_lid(device);
            }
            FaultKind::Event(event) if event.event_type == event::GID_CHANGE => {
                ports.change_gids(device);
            }
            FaultKind::PartitionKey { row, key } => ports.set_pkey(device, row, key),
            FaultKind::Gid { row, gid } => ports.set_gid(settings, device, row, gid),
            FaultKind::Registrations(chance) => ports.set_registrations(device, chance),
            FaultKind::Fatal(loss) => ports.lose(device, loss),
            FaultKind::Event(_) | FaultKind::Overrun(_) | FaultKind::Match(_) => {}
        }
    }
}

/// All faults that are to come.
#[derive(Debug)]
pub(crate) struct Strikes {
    file: Option<ControlFile>,
    socket: Option<ControlSocket>,
    waiting: Vec<(Instant, Strike)>,
    settings: Settings,
}

impl Strikes {
    /// The faults that a command has been given, and those that are asked for while it runs. The
    /// first program and the command's own process have these numbers.
    pub(crate) fn new(program: i32, own: Option<u32>, settings: &Settings) -> Self {
        let start = Instant::now();
        let timed = |TimedFault { after, fault }: &TimedFault| {
            Some((start + *after, Strike::new(*fault, settings)?))
        };
        let waiting = settings.faults.iter().filter_map(timed).collect();
        let socket = own.and_then(|own| {
            let refused =
                |error| notice::tell(&format!("tagmatch-hca: no `ctl` reaches it: {error}"));
            ControlSocket::open(own).map_err(refused).ok()
        });
        let file = ControlFile::open(program).ok();
        Strikes { file, socket, waiting, settings: settings.clone() }
    }

    /// What has something to read when a fault is asked for.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let file = self.file.iter().map(ControlFile::as_fd);
        file.chain(self.socket.iter().flat_map(ControlSocket::descriptors))
    }

    /// How long nothing is due.
    pub(crate) fn until_next(&self) -> Duration {
        let now = Instant::now();
        let times = self.waiting.iter().map(|(at, _)| at.saturating_duration_since(now));
        times.min().unwrap_or(Duration::MAX)
    }

    /// The fault that a text means, with its device found.
    fn read(&self, text: &str) -> Result<Strike, String> {
        let fault: DeviceFault = text.parse().map_err(|error| format!("{error}"))?;
        Strike::new(fault, &self.settings).ok_or_else(|| "there is no such device".to_owned())
    }

    /// What is due.
    pub(crate) fn due(&mut self) -> Vec<Strike> {
        let now = Instant::now();
        for line in self.file.as_mut().map(ControlFile::take).unwrap_or_default() {
            match self.read(&line) {
                Ok(strike) => self.waiting.push((now, strike)),
                Err(error) => notice::tell(&format!("tagmatch-hca: control: {error}")),
            }
        }
        for (place, text) in self.socket.as_mut().map(ControlSocket::take).unwrap_or_default() {
            let found = self.read(&text);
            self.waiting.extend(found.clone().ok().map(|strike| (now, strike)));
            if let Some(socket) = &mut self.socket {
                socket.prepare(place, found.err());
            }
        }
        let due: Vec<Strike> =
            (self.waiting.extract_if(.., |(at, _)| *at <= now)).map(|(_, strike)| strike).collect();
        for strike in &due {
            if let FaultKind::LinkDown(lasts) = strike.kind {
                let up = Strike { device: strike.device, kind: FaultKind::LinkUp };
                self.waiting.push((now + lasts, up));
            }
        }
        due
    }

    /// Answers those who have asked for a fault that has happened.
    pub(crate) fn answer(&mut self) {
        if let Some(socket) = &mut self.socket {
            socket.answer();
        }
    }
}
