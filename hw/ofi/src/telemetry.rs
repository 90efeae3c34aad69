//! The counters of matching of a Slingshot NIC, which its driver shows as files.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tagmatch_sys::load;

/// Messages by the list in which a NIC of `cxi` found their receives, of **all processes that use
/// the NIC**, since its counters began. They are no part of any worker's counters.
///
/// Packets of this library and of others count as well: where a program sees one message, the NIC
/// may count several. The driver reads its NIC's counters once in [a period](Self::period), so
/// counts may be that old.
///
/// They are the sums of `lpe_net_match_{priority,overflow,request}_N` in the folder
/// `/sys/class/cxi/NIC/device/telemetry`, of which libfabric's `prov/cxi/src/cxip_telemetry.c` has
/// the format. `TAGMATCH_CXI_SYSFS` names another folder than `/sys/class/cxi`, for tests; programs
/// that run with more rights than their caller ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicMatches {
    /// Messages that met a posted receive (`priority`).
    pub posted: u64,
    /// Messages that came before their receive (`overflow`).
    pub unexpected: u64,
    /// Messages that the NIC left to software to match (`request`).
    pub in_software: u64,
}

/// The counters' names, in the order of the fields.
const NAMES: [&str; 3] = ["priority", "overflow", "request"];
/// List processing engines of a NIC, each with counters of its own.
const ENGINES: u32 = 4;
/// `value@seconds.nanoseconds` is shorter.
const BYTES_MAX: u64 = 64;
/// The longest period that is believed.
const PERIOD_MAX: Duration = Duration::from_secs(10);

impl NicMatches {
    /// Reads the counts of the NIC `nic`, such as `cxi0`: twelve short files. `None` if one of them
    /// is missing, can't be read or holds no count, or if `nic` is no name of a NIC.
    pub fn read(nic: &str) -> Option<Self> {
        Self::below(&sysfs()?, nic)
    }

    fn below(sysfs: &Path, nic: &str) -> Option<Self> {
        // One component, so that the files are below the folder.
        if Path::new(nic).file_name()? != nic {
            return None;
        }
        let telemetry = sysfs.join(nic).join("device/telemetry");
        let [posted, unexpected, in_software] = NAMES.map(|name| {
            (0..ENGINES).try_fold(0u64, |sum, engine| {
                let text = text(&telemetry.join(format!("lpe_net_match_{name}_{engine}"))).ok()?;
                let (count, _time) = text.split_once('@')?;
                Some(sum.saturating_add(count.parse().ok()?))
            })
        });
        Some(Self { posted: posted?, unexpected: unexpected?, in_software: in_software? })
    }

    /// The matches since `earlier`. `None` if a counter has begun anew.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            posted: self.posted.checked_sub(earlier.posted)?,
            unexpected: self.unexpected.checked_sub(earlier.unexpected)?,
            in_software: self.in_software.checked_sub(earlier.in_software)?,
        })
    }

    /// How old counts may be: whoever wants those of all messages so far waits for so long before
    /// it reads them, as libfabric does. At most ten seconds; zero where the driver names no period
    /// (`/sys/module/cxi_core/parameters/cntr_refresh_interval`).
    pub fn period() -> Duration {
        sysfs().map_or(Duration::ZERO, |sysfs| Self::period_below(&sysfs))
    }

    fn period_below(sysfs: &Path) -> Duration {
        // `/sys/module`, where `sysfs` is `/sys/class/cxi`.
        let file = sysfs.join("../../module/cxi_core/parameters/cntr_refresh_interval");
        let interval_ms = text(&file).ok().and_then(|text| text.trim().parse().ok());
        interval_ms.map_or(Duration::ZERO, Duration::from_millis).min(PERIOD_MAX)
    }
}

/// The folder of all NICs of `cxi`.
fn sysfs() -> Option<PathBuf> {
    let path = load::path("TAGMATCH_CXI_SYSFS", c"/sys/class/cxi")?;
    Some(OsString::from_vec(path.into_bytes()).into())
}

/// The first bytes of a file. A pipe is not waited for.
fn text(path: &Path) -> io::Result<String> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use tagmatch_testkit::scratch::Scratch;

    use super::*;

    /// A folder like `/sys`, with a NIC whose counters are 1 to 12.
    struct Sys(Scratch);

    impl Sys {
        fn new(test: &str) -> Self {
            let sys = Sys(Scratch::new(&format!("ofi-telemetry-{test}")));
            fs::create_dir_all(sys.0.join("class/cxi/cxi0/device/telemetry")).unwrap();
            fs::create_dir_all(sys.0.join("module/cxi_core/parameters")).unwrap();
            for (place, name) in NAMES.iter().enumerate() {
                for engine in 0..4 {
                    let count = place * 4 + engine + 1;
                    sys.count(&format!("{name}_{engine}"), format!("{count}@1700000000.000000042"));
                }
            }
            sys
        }

        fn count(&self, counter: &str, text: impl AsRef<[u8]>) {
            fs::write(self.counter(counter), text).unwrap();
        }

        fn counter(&self, counter: &str) -> PathBuf {
            self.0.join(format!("class/cxi/cxi0/device/telemetry/lpe_net_match_{counter}"))
        }

        fn read(&self) -> Option<NicMatches> {
            NicMatches::below(&self.0.join("class/cxi"), "cxi0")
        }
    }

    const ALL: NicMatches = NicMatches { posted: 10, unexpected: 26, in_software: 42 };

    #[test]
    fn the_engines_of_a_nic_are_summed() {
        let sys = Sys::new("sums");
        assert_eq!(sys.read(), Some(ALL));
        sys.count("priority_3", "1004@1700000001.000000000\n");
        let since = sys.read().unwrap().since(&ALL);
        assert_eq!(since, Some(NicMatches { posted: 1000, ..NicMatches::default() }));
        // A counter that has begun anew.
        assert_eq!(ALL.since(&sys.read().unwrap()), None);
    }

    #[test]
    fn each_counter_has_to_be_there_and_to_be_a_count() {
        let sys = Sys::new("hostile");
        let long = format!("{}1@1.0", "0".repeat(100));
        for counter in NAMES.iter().flat_map(|name| (0..4).map(move |n| format!("{name}_{n}"))) {
            let before = fs::read(sys.counter(&counter)).unwrap();
            for text in ["", "@", "7", "-7@1.0", "x@1.0", "7 @1.0", "7\0@1.0", &long] {
                sys.count(&counter, text);
                assert_eq!(sys.read(), None, "{counter}: {text:?}");
            }
            // One more than the largest that fits.
            sys.count(&counter, "18446744073709551616@1.0");
            assert_eq!(sys.read(), None, "{counter}");
            sys.count(&counter, b"7@\xff");
            assert_eq!(sys.read(), None, "{counter}");
            fs::remove_file(sys.counter(&counter)).unwrap();
            assert_eq!(sys.read(), None, "{counter} is missing");
            // Opened as other files are, it would be waited for.
            let pipe = Command::new("mkfifo").arg(sys.counter(&counter)).status().unwrap();
            assert!(pipe.success() && sys.read().is_none(), "{counter} is a pipe");
            fs::remove_file(sys.counter(&counter)).unwrap();
            sys.count(&counter, before);
            assert_eq!(sys.read(), Some(ALL));
        }
        for engine in 0..4 {
            sys.count(&format!("overflow_{engine}"), "18446744073709551615@1.0");
        }
        assert_eq!(sys.read(), Some(NicMatches { unexpected: u64::MAX, ..ALL }));
    }

    #[test]
    fn a_nic_is_named_by_one_component() {
        let sys = Sys::new("names");
        let folder = sys.0.join("class/cxi");
        fs::rename(folder.join("cxi0/device"), folder.join("device")).unwrap();
        for name in ["", ".", "..", "cxi0/", "/", "cxi0/..", "../cxi", "a/b", "cxi0\0"] {
            assert_eq!(NicMatches::below(&folder, name), None, "{name:?}");
        }
        let absolute = folder.to_str().unwrap();
        assert_eq!(NicMatches::below(&folder, absolute), None);
        assert_eq!(NicMatches::below(&folder.join(".."), "cxi"), Some(ALL), "the files are there");
    }

    #[test]
    fn the_period_of_the_driver_is_known() {
        let sys = Sys::new("period");
        let period = || NicMatches::period_below(&sys.0.join("class/cxi"));
        assert_eq!(period(), Duration::ZERO);
        let file = "module/cxi_core/parameters/cntr_refresh_interval";
        for (text, period_ms) in [
            ("1000\n", 1000),
            ("1", 1),
            ("never", 0),
            ("-1", 0),
            ("18446744073709551615", 10_000),
            ("99999999999999999999", 0),
        ] {
            sys.0.file(file, text);
            assert_eq!(period(), Duration::from_millis(period_ms), "{text}");
        }
    }
}
