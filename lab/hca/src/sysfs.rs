//! The files that libibverbs, UCX and hwloc look for: `/sys/class/infiniband*` and
//! `/dev/infiniband`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::abi::DEVICE_PREFIX;
use crate::control;
use crate::knobs::PKEYS;
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
    let lid = Settings::lid(at);
    let is_ethernet = settings.knobs.is_ethernet();
    let guid = colons(&Settings::guid(lid));
    ib.put("node_type", settings.knobs.link_layer.node_type())?;
    ib.put("node_guid", &guid)?;
    ib.put("sys_image_guid", &guid)?;
    ib.put("fw_ver", "16.35.4030")?;
    ib.put("hw_rev", "0")?;
    ib.put("hca_type", "MT4121")?;
    ib.put("board_id", "TMHCA0000001")?;
    ib.put("node_desc", "a ConnectX in software")?;
    let port = [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "100 Gb/sec (4X EDR)"),
        ("lid", &if is_ethernet { "0x0".to_owned() } else { format!("{lid:#x}") }),
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
    let none = colons(&[0; 16]);
    for (index, row) in settings.gids(lid, 0).iter().enumerate() {
        let name = row.map_or_else(|| none.clone(), |row| colons(&row.gid));
        ib.put(&format!("ports/1/gids/{index}"), &name)?;
        if let Some(row) = row {
            ib.put(&format!("ports/1/gid_attrs/types/{index}"), row.kind.name())?;
            if let Some(port) = settings.ports.get(at) {
                ib.put(&format!("ports/1/gid_attrs/ndevs/{index}"), &port.interface)?;
            }
        }
    }
    for index in 0..PKEYS as u16 {
        let key = format!("{:#06x}", settings.pkey(lid, index));
        ib.put(&format!("ports/1/pkeys/{index}"), &key)?;
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
