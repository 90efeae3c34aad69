//! What all programs share of the devices' ports: their LIDs, their links, and their counters.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::gid::{GidKind, GidTable, PortGid};
use crate::settings::Settings;

/// Devices that there may be.
pub(crate) const DEVICES_MAX: usize = 64;

/// The port of a device.
#[derive(Debug)]
struct SharedPort {
    /// How often its LID has changed.
    lid_changes: AtomicU16,
    /// How often its GIDs have changed.
    gid_changes: AtomicU8,
    is_link_down: AtomicBool,
    /// Until when all its packets are lost, in microseconds since the start; 0: none is.
    silent_until: AtomicU64,
    /// How often a receiver had no buffer: `out_of_buffer` of sysfs.
    out_of_buffer: AtomicU64,
}

/// All ports. A device's port is known by the LID that it had at first: [`Settings::lid`].
#[derive(Debug)]
pub(crate) struct Ports {
    all: [SharedPort; DEVICES_MAX],
    start: Instant,
}

impl Default for Ports {
    fn default() -> Self {
        let port = || SharedPort {
            lid_changes: AtomicU16::new(0),
            gid_changes: AtomicU8::new(0),
            is_link_down: AtomicBool::new(false),
            silent_until: AtomicU64::new(0),
            out_of_buffer: AtomicU64::new(0),
        };
        Ports { all: std::array::from_fn(|_| port()), start: Instant::now() }
    }
}

impl Ports {
    fn port(&self, first_lid: u16) -> Option<&SharedPort> {
        self.all.get(usize::from(first_lid).wrapping_sub(1))
    }

    /// The ports of one device, or of all.
    fn of(&self, device: Option<usize>) -> &[SharedPort] {
        match device {
            Some(device) => self.all.get(device..=device).unwrap_or_default(),
            None => &self.all,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Loses all packets of a device, or of all, for some time from now on.
    pub(crate) fn silence(&self, device: Option<usize>, lasts: Duration) {
        let lasts = u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
        let until = self.now().saturating_add(lasts);
        for port in self.of(device) {
            port.silent_until.store(until, Ordering::Relaxed);
        }
    }

    /// Whether packets pass a port.
    pub(crate) fn passes(&self, first_lid: u16) -> bool {
        let Some(port) = self.port(first_lid) else { return true };
        let until = port.silent_until.load(Ordering::Relaxed);
        until == 0 || until <= self.now()
    }

    pub(crate) fn set_link(&self, device: Option<usize>, is_up: bool) {
        for port in self.of(device) {
            port.is_link_down.store(!is_up, Ordering::Relaxed);
        }
    }

    /// Whether a device's link is up, as the port says it.
    pub(crate) fn is_link_up(&self, device: usize) -> bool {
        self.all.get(device).is_none_or(|port| !port.is_link_down.load(Ordering::Relaxed))
    }

    /// The subnet manager gives a port another LID.
    pub(crate) fn change_lid(&self, device: Option<usize>) {
        for port in self.of(device) {
            port.lid_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The LID that a port has now, which no other port has had for the last changes.
    pub(crate) fn lid(&self, first_lid: u16) -> u16 {
        const CHANGES: u16 = 256;
        let changes =
            self.port(first_lid).map_or(0, |port| port.lid_changes.load(Ordering::Relaxed));
        first_lid.wrapping_add(changes % CHANGES * DEVICES_MAX as u16)
    }

    /// The LID of a device's port.
    pub(crate) fn lid_of(&self, device: usize) -> u16 {
        self.lid(Settings::lid(device))
    }

    /// The subnet gets another prefix, or an Ethernet port another IPv4 address.
    pub(crate) fn change_gids(&self, device: Option<usize>) {
        for port in self.of(device) {
            port.gid_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The table of GIDs that a port has now.
    pub(crate) fn gids(&self, settings: &Settings, first_lid: u16) -> GidTable {
        let port = self.port(first_lid);
        let changes = port.map_or(0, |port| port.gid_changes.load(Ordering::Relaxed));
        settings.gids(first_lid, changes)
    }

    /// The port that has a GID.
    pub(crate) fn named(&self, settings: &Settings, gid: &[u8; 16]) -> Option<u16> {
        let rows = |lid| self.gids(settings, lid).into_iter().flatten();
        let mut lids = (0..settings.devices.len()).map(Settings::lid);
        lids.find(|lid| rows(*lid).any(|row| row.gid == *gid))
    }

    /// Whether a port takes packets of a kind that are sent to a GID.
    pub(crate) fn takes(
        &self,
        settings: &Settings,
        first_lid: u16,
        kind: GidKind,
        gid: &[u8; 16],
    ) -> bool {
        self.gids(settings, first_lid).contains(&Some(PortGid { kind, gid: *gid }))
    }

    /// A message has found no buffer at a port.
    pub(crate) fn count_out_of_buffer(&self, first_lid: u16) {
        if let Some(port) = self.port(first_lid) {
            port.out_of_buffer.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often messages have found no buffer at a device's port.
    pub(crate) fn out_of_buffer(&self, device: usize) -> u64 {
        self.all.get(device).map_or(0, |port| port.out_of_buffer.load(Ordering::Relaxed))
    }
}
