//! The files that libibverbs, UCX and hwloc look for: `/sys/class/infiniband*` and
//! `/dev/infiniband`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};

use crate::abi::DEVICE_PREFIX;
use crate::control;
use crate::knobs::PKEYS;
use crate::nic::Ports;
use crate::settings::Settings;

/// The kind of each device: ConnectX-5 Ex.
const VENDOR: &str = "0x15b3";
const DEVICE: &str = "0x1019";
const MODALIAS: &str = "pci:v000015B3d00001019sv000015B3sd00000008bc02sc07i00";

/// A directory in which files are written.
struct Folder(PathBuf);

impl Folder {
    fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.0.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, format!("{text}\n"))
    }
}

fn colons(bytes: &[u8]) -> String {
    let words = bytes.chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1]));
    words.collect::<Vec<_>>().join(":")
}

/// The first number that no device of this machine has, nor a later one.
pub(crate) fn first_free() -> u32 {
    let names =
        [("/sys/class/infiniband", DEVICE_PREFIX), ("/sys/class/infiniband_verbs", "uverbs")];
    let numbers = names.into_iter().flat_map(|(folder, prefix)| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            entry.file_name().to_str()?.strip_prefix(prefix)?.parse::<u32>().ok()
        })
    });
    numbers.max().map_or(0, |last| last + 1)
}

/// The counter of messages that found no buffer, of each device, as a process sees them.
pub(crate) fn counters(process: i32, settings: &Settings) -> Vec<Option<fs::File>> {
    let open = |number: &u32| {
        let port = format!("infiniband/{DEVICE_PREFIX}{number}/ports/1/hw_counters");
        let path = format!("/proc/{process}/root/sys/class/{port}/out_of_buffer");
        fs::OpenOptions::new().write(true).open(path).ok()
    };
    settings.devices.iter().map(open).collect()
}

/// The files of a device's port that change with it, below its directory.
fn changing(ports: &Ports, settings: &Settings, device: usize) -> BTreeMap<String, String> {
    let lid = Settings::lid(device);
    let is_up = ports.is_link_up(device);
    let lid_now = if settings.knobs.is_ethernet() { 0 } else { ports.lid(lid) };
    let mut files = BTreeMap::from([
        ("state".to_owned(), if is_up { "4: ACTIVE" } else { "1: DOWN" }.to_owned()),
        ("phys_state".to_owned(), if is_up { "5: LinkUp" } else { "2: Polling" }.to_owned()),
        ("lid".to_owned(), format!("{lid_now:#x}")),
    ]);
    for (index, row) in ports.gids(settings, lid).iter().enumerate() {
        let gid = row.map_or([0; 16], |row| row.gid);
        files.insert(format!("gids/{index}"), colons(&gid));
        if let Some(row) = row {
            files.insert(format!("gid_attrs/types/{index}"), row.kind.name().to_owned());
            if let Some(port) = settings.ports.get(device) {
                files.insert(format!("gid_attrs/ndevs/{index}"), port.interface.clone());
            }
        }
    }
    for index in 0..PKEYS as u16 {
        let key = format!("{:#06x}", ports.pkey(settings, lid, index));
        files.insert(format!("pkeys/{index}"), key);
    }
    files
}

/// The files of all ports, as programs see them.
#[derive(Debug)]
pub(crate) struct PortFiles {
    /// By device: the directory of its port, and what stands in it.
    ports: Vec<(Option<OwnedFd>, BTreeMap<String, String>)>,
}

impl PortFiles {
    /// Opens the files that a process sees.
    pub(crate) fn open(process: i32, settings: &Settings) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let ports = settings.devices.iter().enumerate().map(|(at, number)| {
            let port = format!("infiniband/{DEVICE_PREFIX}{number}/ports/1");
            let path = format!("/proc/{process}/root/sys/class/{port}");
            let folder = openat(CWD, path, flags, Mode::empty()).ok();
            (folder, changing(&Ports::default(), settings, at))
        });
        PortFiles { ports: ports.collect() }
    }

    /// Writes what has changed. A reader sees the old text of a file or the new one.
    pub(crate) fn refresh(&mut self, ports: &Ports, settings: &Settings) {
        for (device, (folder, written)) in self.ports.iter_mut().enumerate() {
            let Some(folder) = folder else { continue };
            let now = changing(ports, settings, device);
            for (file, text) in &now {
                if written.get(file) != Some(text) {
                    // A file that can't be written keeps its text, as on a system without it.
                    let _ = replace(folder, file, text);
                }
            }
            for file in written.keys().filter(|file| !now.contains_key(*file)) {
                let _ = unlinkat(&*folder, file, AtFlags::empty());
            }
            *written = now;
        }
    }
}

/// Puts a new file in the place of one.
fn replace(folder: &OwnedFd, file: &str, text: &str) -> io::Result<()> {
    const NEW: &str = ".new";
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let new = openat(folder, NEW, flags, Mode::from_raw_mode(0o644))?;
    fs::File::from(new).write_all(format!("{text}\n").as_bytes())?;
    Ok(renameat(folder, NEW, folder, file)?)
}

/// Makes the files of all devices below a directory that takes the place of `/sys/class`.
pub(crate) fn make(class: &Path, settings: &Settings) -> io::Result<()> {
    let verbs = Folder::new(class.join("infiniband_verbs"))?;
    if !class.join("infiniband_verbs/abi_version").exists() {
        verbs.put("abi_version", "6")?;
    }
    for (at, number) in settings.devices.iter().enumerate() {
        make_device(class, settings, at, *number)?;
    }
    control::make(class)
}

fn make_device(class: &Path, settings: &Settings, at: usize, number: u32) -> io::Result<()> {
    let name = format!("{DEVICE_PREFIX}{number}");
    let node = format!("uverbs{number}");
    // The place of a PCI device: UCX and hwloc look at the name.
    let slot = format!("0000:{:02x}:00.0", 3 + at % 200);
    let root = class.join("tagmatch-hca/pci0000:00").join(&slot);
    let pci = Folder::new(root.clone())?;
    pci.put("modalias", MODALIAS)?;
    pci.put("vendor", VENDOR)?;
    pci.put("device", DEVICE)?;
    pci.put("subsystem_vendor", VENDOR)?;
    pci.put("subsystem_device", "0x0008")?;
    pci.put("class", "0x020700")?;
    // A device that is on no node is near all processors.
    let place = settings.places.get(at);
    pci.put("numa_node", &place.map_or_else(|| "-1".to_owned(), |place| place.node.to_string()))?;
    let all = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    pci.put("local_cpulist", place.map_or(all.trim(), |place| &place.processors))?;
    for which in ["current", "max"] {
        pci.put(&format!("{which}_link_width"), "16")?;
        pci.put(&format!("{which}_link_speed"), "16.0 GT/s PCIe")?;
    }
    let ib = Folder::new(root.join("infiniband").join(&name))?;
    let guid = colons(&Settings::guid(Settings::lid(at)));
    ib.put("node_type", settings.knobs.link_layer.node_type())?;
    ib.put("node_guid", &guid)?;
    ib.put("sys_image_guid", &guid)?;
    ib.put("fw_ver", "16.35.4030")?;
    ib.put("hw_rev", "0")?;
    ib.put("hca_type", "MT4121")?;
    ib.put("board_id", "TMHCA0000001")?;
    ib.put("node_desc", "a ConnectX in software")?;
    let is_ethernet = settings.knobs.is_ethernet();
    let port = [
        ("rate", "100 Gb/sec (4X EDR)"),
        ("sm_lid", if is_ethernet { "0x0" } else { "0x1" }),
        ("lid_mask_count", "0"),
        ("sm_sl", "0"),
        ("cap_mask", "0x2651e848"),
        ("link_layer", settings.knobs.link_layer.name()),
        ("hw_counters/out_of_buffer", "0"),
    ];
    for (file, text) in port {
        ib.put(&format!("ports/1/{file}"), text)?;
    }
    for (file, text) in changing(&Ports::default(), settings, at) {
        ib.put(&format!("ports/1/{file}"), &text)?;
    }
    symlink(format!("../../../{slot}"), root.join("infiniband").join(&name).join("device"))?;
    fs::create_dir_all(class.join("infiniband"))?;
    symlink(
        format!("../tagmatch-hca/pci0000:00/{slot}/infiniband/{name}"),
        class.join("infiniband").join(&name),
    )?;
    let verbs = Folder::new(root.join("infiniband_verbs").join(&node))?;
    verbs.put("ibdev", &name)?;
    // /dev/full: what the library opens is bound to it.
    verbs.put("dev", "1:7")?;
    verbs.put("abi_version", "1")?;
    symlink(format!("../../../{slot}"), root.join("infiniband_verbs").join(&node).join("device"))?;
    symlink(
        format!("../tagmatch-hca/pci0000:00/{slot}/infiniband_verbs/{node}"),
        class.join("infiniband_verbs").join(&node),
    )
}
