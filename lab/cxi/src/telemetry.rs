//! The NIC's counters, as files that look like those of cxi's driver. They count what all processes
//! do that use the NIC.
//!
//! `/sys/class/cxi/cxi0/device/telemetry/lpe_net_match_priority_0` of cxi holds
//! `value@seconds.nanoseconds` (`prov/cxi/src/cxip_telemetry.c`). Here another folder stands for
//! `/sys/class/cxi`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tagmatch_os::check;

use crate::chance::Chance;
use crate::settings::Settings;

/// The list that an arriving message has matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// The receives that are posted in the NIC.
    Priority,
    /// The NIC's buffers for unexpected messages.
    Overflow,
    /// The buffers of messages that software matches.
    Request,
}

const NAMES: [&str; 3] = ["priority", "overflow", "request"];
/// cxi's NIC has four list processing engines, each with counters of its own.
const ENGINES: u32 = 4;

/// The counters of an endpoint's NIC, and what the endpoint has yet to add to them.
pub(crate) struct Telemetry {
    folder: Option<PathBuf>,
    engine: u32,
    lost_per_mille: u32,
    counts: [u64; 3],
}

impl Telemetry {
    /// The counters for the endpoint with this number in its process.
    pub(crate) fn new(settings: &Settings, endpoint: u32) -> Self {
        let folder = settings.sysfs.as_ref();
        let folder = folder.map(|sysfs| sysfs.join(&settings.nic).join("device/telemetry"));
        let lost_per_mille = settings.telemetry_lost_per_mille;
        Telemetry { folder, engine: endpoint % ENGINES, lost_per_mille, counts: [0; 3] }
    }

    /// Makes the NIC's files, unless another process has made them.
    pub(crate) fn create(&self) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        fs::create_dir_all(folder)?;
        let _lock = lock(folder)?;
        for name in NAMES {
            for engine in 0..ENGINES {
                let file = folder.join(format!("lpe_net_match_{name}_{engine}"));
                if !file.exists() {
                    write(folder, &file, 0)?;
                }
            }
        }
        Ok(())
    }

    /// Counts a message.
    pub(crate) fn count(&mut self, list: List, chance: &mut Chance) {
        if !chance.per_mille(self.lost_per_mille) {
            self.counts[list as usize] += 1;
        }
    }

    /// Adds to the files what was counted since the last time.
    pub(crate) fn publish(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        let Some(folder) = self.folder.as_ref().filter(|_| counts != [0; 3]) else { return };
        // A NIC whose files are gone has no telemetry: nothing else depends on it.
        let _ = add(folder, self.engine, counts);
    }
}

fn add(folder: &Path, engine: u32, counts: [u64; 3]) -> io::Result<()> {
    let _lock = lock(folder)?;
    for (name, count) in NAMES.iter().zip(counts).filter(|(_, count)| *count > 0) {
        let file = folder.join(format!("lpe_net_match_{name}_{engine}"));
        let text = fs::read_to_string(&file)?;
        let value = text.split('@').next().and_then(|value| value.parse::<u64>().ok());
        write(folder, &file, value.unwrap_or(0) + count)?;
    }
    Ok(())
}

/// Replaces a file as a whole, so that no reader sees a part of it.
fn write(folder: &Path, file: &Path, value: u64) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let new = folder.join(".new");
    fs::write(&new, format!("{value}@{}.{:09}", now.as_secs(), now.subsec_nanos()))?;
    fs::rename(new, file)
}

/// Keeps other processes out until the file is dropped.
fn lock(folder: &Path) -> io::Result<File> {
    let file = File::create(folder.join(".lock"))?;
    // SAFETY: no pointers. The lock ends with the descriptor.
    check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) })?;
    Ok(file)
}
