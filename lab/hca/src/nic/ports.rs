//! What all programs share of the devices' ports: their LIDs, their links, and their counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::loss::{DeviceOperation, LossState};
use crate::fault::DeviceLoss;
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
    /// Rows of its tables that were changed.
    rows: RwLock<ChangedRows>,
    /// The probability that a registration fails, in parts per million.
    registrations: AtomicU32,
    loss: LossState,
}

/// Rows of the tables of a port that were changed since the start.
#[derive(Debug, Default)]
struct ChangedRows {
    pkeys: BTreeMap<u16, u16>,
    gids: BTreeMap<usize, Option<PortGid>>,
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
            rows: RwLock::default(),
            registrations: AtomicU32::new(0),
            loss: LossState::default(),
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
        let mut table = settings.gids(first_lid, changes);
        if let Some(port) = port {
            let rows = port.rows.read().unwrap_or_else(PoisonError::into_inner);
            for (row, gid) in &rows.gids {
                table[*row] = *gid;
            }
        }
        table
    }

    /// Changes a row of the table of GIDs. On InfiniBand, GIDs have but one kind.
    pub(crate) fn set_gid(
        &self,
        settings: &Settings,
        device: Option<usize>,
        row: usize,
        gid: Option<PortGid>,
    ) {
        let is_ethernet = settings.knobs.is_ethernet();
        let kind = |of: GidKind| if is_ethernet { of } else { GidKind::InfiniBand };
        let gid = gid.map(|of| PortGid { kind: kind(of.kind), ..of });
        for port in self.of(device) {
            let mut rows = port.rows.write().unwrap_or_else(PoisonError::into_inner);
            rows.gids.insert(row, gid);
        }
    }

    /// The partition key in a row of a port's table; 0 if the row is empty.
    pub(crate) fn pkey(&self, settings: &Settings, first_lid: u16, row: u16) -> u16 {
        let changed = self.port(first_lid).and_then(|port| {
            let rows = port.rows.read().unwrap_or_else(PoisonError::into_inner);
            rows.pkeys.get(&row).copied()
        });
        changed.unwrap_or_else(|| settings.pkey(first_lid, row))
    }

    /// Changes a row of the table of partition keys.
    pub(crate) fn set_pkey(&self, device: Option<usize>, row: u16, key: u16) {
        for port in self.of(device) {
            let mut rows = port.rows.write().unwrap_or_else(PoisonError::into_inner);
            rows.pkeys.insert(row, key);
        }
    }

    /// From now on, registrations fail with a probability: in parts per million.
    pub(crate) fn set_registrations(&self, device: Option<usize>, chance: u32) {
        for port in self.of(device) {
            port.registrations.store(chance, Ordering::Relaxed);
        }
    }

    /// The probability that a registration of a device fails, in parts per million.
    pub(crate) fn registrations(&self, device: usize) -> u32 {
        self.all.get(device).map_or(0, |port| port.registrations.load(Ordering::Relaxed))
    }

    /// Has a device be lost.
    pub(crate) fn lose(&self, device: Option<usize>, loss: DeviceLoss) {
        for port in self.of(device) {
            port.loss.prepare(loss, self.now());
        }
    }

    /// An operation of a device begins; whether the device is lost with it.
    pub(crate) fn begin(&self, first_lid: u16, operation: DeviceOperation) -> bool {
        self.port(first_lid).is_some_and(|port| port.loss.begin(operation, || self.now()))
    }

    /// How often a device was lost.
    pub(crate) fn losses(&self, device: usize) -> u32 {
        self.all.get(device).map_or(0, |port| port.loss.times())
    }

    /// Whether programs can open a device that was lost.
    pub(crate) fn is_back(&self, device: usize) -> bool {
        self.all.get(device).is_none_or(|port| port.loss.is_back(self.now()))
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
