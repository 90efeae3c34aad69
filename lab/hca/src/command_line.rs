//! The command's options.

use std::ffi::OsString;

use clap::Parser;
use tagmatch_model::{KnobError, Knobs, ModelConfig};

use crate::fault::{self, FaultError, TimedFault};
use crate::knobs::{DEVICE_KNOBS, DeviceKnobs, LinkLayer};
use crate::roce::port::{PortError, PortPlace, RocePort};
use crate::settings::{Location, Settings};
use crate::sysfs;

/// Runs a program, which sees a ConnectX in software: an mlx5 device that matches tags.
///
/// The program and all that it starts find the device through unmodified libibverbs and UCX.
/// Nothing has to be installed but these libraries, and root is not needed where the system allows
/// user namespaces.
#[derive(Debug, Parser)]
#[command(name = "tagmatch-hca", version)]
pub(crate) struct Options {
    /// The number of devices.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) devices: u32,

    /// The NUMA node of a device and the processors near it, as 1:8-15; for the first device, and
    /// so on. Without it, all processors are near.
    #[arg(long = "place", value_name = "NODE:PROCESSORS")]
    pub(crate) places: Vec<Location>,

    /// The number of subnets. The first device is in the first one, and so on by turns.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) subnets: u32,

    /// What a device's port is connected to; for the first device, and so on. `ib`: the InfiniBand
    /// of this command. `roce:INTERFACE` or `roce:ADDRESS`: Ethernet, with packets of RoCE version
    /// 2 on UDP port 4791, to another tagmatch-hca or soft-RoCE. All ports are of one kind.
    #[arg(long = "port", value_name = "ib|roce:PLACE")]
    pub(crate) ports: Vec<PortPlace>,

    /// Entries in the list of tags: one less than a power of two.
    #[arg(long, default_value_t = 127, value_name = "N")]
    pub(crate) tags: u32,

    /// The seed of all random choices.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// How the list behaves where hardware may choose; may be repeated. A tick is a turn of the
    /// device, 20 us or more. `random` draws all from the seed; names: see `--knob help`.
    #[arg(long = "knob", value_name = "NAME=VALUE")]
    pub(crate) knobs: Vec<String>,

    /// A fault, and how long after the program's start, as `500ms:outage 2s`; may be
    /// repeated. `tagmatch-hca ctl outage 2s` asks for the same while the device runs, and so does
    /// a program by a line `outage 2s` in the file /sys/class/tagmatch-hca/control. All faults:
    /// `--fault help`.
    #[arg(long = "fault", value_name = "TIME:FAULT")]
    pub(crate) faults: Vec<String>,

    /// Write a JSON report of each process to a file, or to standard error (-).
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<String>,

    /// Any signal interrupts a command that waits, as on Linux before 5.19.
    #[arg(long)]
    pub(crate) interruptible: bool,

    /// Which process of the command this is.
    #[arg(long, hide = true)]
    pub(crate) stage: Option<String>,

    /// The descriptor of the wire to the process that has started this one.
    #[arg(long, hide = true)]
    pub(crate) wire: Option<i32>,

    /// The program and its arguments.
    #[arg(required_unless_present_any = ["knobs", "faults"], trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

/// Why options are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("--tags {0}: 1, 3, 7 and so on up to 32767, one less than a power of two")]
    Tags(u32),
    #[error("--knob {text}: NAME=VALUE or `random`; names: {}", names())]
    NoKnob { text: String },
    #[error("a program is missing: tagmatch-hca [OPTIONS] -- PROGRAM")]
    NoProgram,
    #[error("--fault: {0}")]
    Fault(#[from] FaultError),
    #[error("--fault: there is no mlx5_{0}")]
    NoDevice(u32),
    #[error("--port was given {0} times, for {1} devices: roce needs one for each device")]
    Ports(usize, u32),
    #[error("{0}")]
    Port(#[from] PortError),
    #[error("--place was given {0} times, for {1} devices")]
    Places(usize, u32),
    #[error("--knob first_count: libmlx5 begins at 0, and so does the device")]
    FirstCount,
    #[error("--knob {name}: invalid value `{value}`: expected {right}")]
    Value { name: String, value: String, right: &'static str },
    #[error("--knob: {0}")]
    Knob(#[from] KnobError),
    #[error("{0}")]
    Model(#[from] tagmatch_device::DeviceError),
}

/// All knobs: name, values that are right, meaning. (libmlx5 begins to count at 0.)
fn described() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let device = DEVICE_KNOBS.iter().map(|knob| (knob.name, knob.right, knob.meaning.to_owned()));
    device.chain(Knobs::described().filter(|(name, ..)| *name != "first_count"))
}

/// The names of all knobs.
fn names() -> String {
    described().map(|(name, ..)| name).collect::<Vec<_>>().join(", ")
}

/// The table of knobs that the crate's page includes.
fn page() -> String {
    let mut text = String::from("| knob | value | meaning |\n|---|---|---|\n");
    for (name, right, meaning) in described() {
        text += &format!("| `{name}` | {right} | {meaning} |\n");
    }
    text
}

/// All knobs with their meanings, for a terminal.
fn help() -> String {
    let head =
        "--knob NAME=VALUE; --knob random: all that tells of the list of tags, drawn from --seed\n";
    let named = |(name, right, meaning)| (format!("{name}: {right}"), meaning);
    folded(head, described().map(named))
}

/// All faults with their meanings, for a terminal.
fn help_on_faults() -> String {
    let head = "--fault TIME:FAULT; while it runs: tagmatch-hca ctl FAULT; behind a fault, mlx5_1 \
                says that this device alone is meant\n";
    folded(head, fault::help())
}

/// A list of things with their meanings, in lines for a terminal.
fn folded(head: &str, described: impl Iterator<Item = (String, String)>) -> String {
    const WIDTH: usize = 90;
    let mut text = head.to_owned();
    for (name, meaning) in described {
        text += &format!("\n{name}\n   ");
        let mut width = 0;
        for word in meaning.split(' ') {
            if width + word.len() > WIDTH {
                text += "\n   ";
                width = 0;
            }
            text += &format!(" {word}");
            width += word.len() + 1;
        }
        text.push('\n');
    }
    text
}

impl Options {
    /// The answer to `--knob help` and `--fault help`.
    pub(crate) fn help(&self) -> Option<String> {
        let on_faults = self.faults.iter().find_map(|fault| match fault.as_str() {
            "help" => Some(help_on_faults()),
            "help=page" => Some(fault::page()),
            _ => None,
        });
        on_faults.or_else(|| self.help_on_knobs())
    }

    fn help_on_knobs(&self) -> Option<String> {
        self.knobs.iter().find_map(|knob| match knob.as_str() {
            "help" => Some(help()),
            "help=page" => Some(page()),
            _ => None,
        })
    }

    pub(crate) fn settings(&self) -> Result<Settings, OptionError> {
        if self.program.is_empty() {
            return Err(OptionError::NoProgram);
        }
        let is_size = (self.tags + 1).is_power_of_two() && (1..=32767).contains(&self.tags);
        if !is_size {
            return Err(OptionError::Tags(self.tags));
        }
        let mut knobs = Knobs::default();
        let mut device_knobs = DeviceKnobs::default();
        for knob in &self.knobs {
            match knob.split_once('=') {
                Some(("first_count", _)) => return Err(OptionError::FirstCount),
                Some((name, value)) => match device_knobs.set(name, value) {
                    Some(set) => set.map_err(|right| OptionError::Value {
                        name: name.to_owned(),
                        value: value.to_owned(),
                        right,
                    })?,
                    None => knobs.set(name, value)?,
                },
                None if knob == "random" => {
                    knobs = Knobs::random(self.seed).first_count(0);
                }
                None => return Err(OptionError::NoKnob { text: knob.clone() }),
            }
        }
        let model = ModelConfig::default().slots(self.tags).seed(self.seed).knobs(knobs);
        model.check()?;
        if self.places.len() > self.devices as usize {
            return Err(OptionError::Places(self.places.len(), self.devices));
        }
        let first = sysfs::first_free();
        let devices: Vec<u32> = (first..first + self.devices).collect();
        let faults: Vec<TimedFault> =
            self.faults.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        let mut named = faults.iter().filter_map(|timed| timed.fault.device);
        if let Some(missing) = named.find(|device| !devices.contains(device)) {
            return Err(OptionError::NoDevice(missing));
        }
        let places = self.places.clone();
        let subnets = self.subnets;
        let is_interruptible = self.interruptible || !waits_are_killable();
        let ports = self.roce_ports()?;
        let mut knobs = device_knobs;
        if let Some(mtu) = ports.iter().map(|port| port.mtu).min() {
            knobs.link_layer = LinkLayer::Ethernet;
            knobs.mtu = Some(knobs.mtu.map_or(mtu, |wanted| wanted.min(mtu)));
        }
        Ok(Settings { devices, places, subnets, is_interruptible, model, knobs, ports, faults })
    }

    /// The ports that a network is connected to: those of all devices, or none.
    fn roce_ports(&self) -> Result<Vec<RocePort>, OptionError> {
        let roce: Vec<&str> = (self.ports.iter())
            .filter_map(|port| match port {
                PortPlace::Roce(place) => Some(place.as_str()),
                PortPlace::InfiniBand => None,
            })
            .collect();
        let devices = self.devices as usize;
        let is_mixed = !roce.is_empty() && roce.len() != devices;
        if is_mixed || self.ports.len() > devices {
            return Err(OptionError::Ports(self.ports.len(), self.devices));
        }
        Ok(RocePort::find_all(&roce)?)
    }
}

/// Whether a command that waits for its answer is interrupted by deadly signals alone: since Linux
/// 5.19.
fn waits_are_killable() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(19))
}

#[cfg(test)]
mod tests {
    use tagmatch_model::Wake;

    use super::*;

    fn settings(options: &str) -> Result<Settings, String> {
        let words = ["tagmatch-hca"].into_iter().chain(options.split(' ')).chain(["--", "true"]);
        let options = Options::try_parse_from(words).map_err(|error| error.to_string())?;
        options.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn the_list_behaves_as_its_options_say() {
        let model = settings("--tags 15 --seed 3 --knob wake=never").unwrap().model;
        assert_eq!((model.slots, model.seed, model.knobs.wake), (15, 3, Wake::Never));
        // A later option changes what an earlier one has drawn.
        let drawn = settings("--seed 9 --knob random --knob wake=never").unwrap().model.knobs;
        let expected = Knobs::random(9).first_count(0).wake(Wake::Never);
        assert_eq!(drawn, expected);
    }

    #[test]
    fn devices_have_the_places_and_subnets_that_are_given() {
        let settings = settings("--devices 3 --subnets 2 --place 1:8-15,24 --place 0:0").unwrap();
        let place = |node, processors: &str| Location { node, processors: processors.into() };
        assert_eq!(settings.places, [place(1, "8-15,24"), place(0, "0")]);
        let prefixes = [0, 1, 2].map(|at| settings.gid(at)[..8].to_vec());
        assert_eq!(prefixes[0], [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        assert_eq!(prefixes[1], [0xfe, 0xc0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(prefixes[2], prefixes[0]);
        assert!(settings.are_connected(1, 3) && !settings.are_connected(1, 2));
    }

    /// `tagmatch-hca --knob help=page > lab/hca/knobs.md` writes it anew, and `--fault help=page`
    /// the other one.
    #[test]
    fn the_page_lists_every_knob_and_every_fault() {
        assert_eq!(include_str!("../knobs.md"), page());
        assert_eq!(include_str!("../faults.md"), fault::page());
    }

    #[test]
    fn help_says_what_each_knob_means() {
        let help = |words: &str| {
            let words = ["tagmatch-hca"].into_iter().chain(words.split(' '));
            Options::try_parse_from(words).unwrap().help()
        };
        let text = help("--knob help").unwrap();
        for (name, right, meaning) in described() {
            assert!(text.contains(&format!("\n{name}: {right}\n    ")), "{name}");
            assert!(meaning.contains("Default: "), "{name}");
        }
        assert!(text.lines().all(|line| line.len() < 140), "{text}");
        let text = help("--fault help").unwrap();
        for (name, _) in fault::help() {
            assert!(text.contains(&format!("\n{name}\n    ")), "{name}");
        }
        assert!(text.lines().all(|line| line.len() < 140), "{text}");
        assert_eq!(help("--knob wake=never --fault 1s:outage -- true"), None);
        assert_eq!(settings("--knob wake=never").map(drop), Ok(()));
    }

    #[test]
    fn options_that_are_wrong_are_named() {
        for (options, why) in [
            ("--tags 0", "--tags 0: 1, 3, 7"),
            ("--tags 16", "--tags 16"),
            ("--tags 65535", "--tags 65535"),
            ("--knob wake", "--knob wake: NAME=VALUE or `random`; names: link_layer, roce"),
            (
                "--knob max_srq=x",
                "--knob max_srq: invalid value `x`: expected a number from 0 to 4096",
            ),
            ("--knob speed=1", "--knob: unknown setting `speed`: expected one of"),
            ("--knob wake=1", "invalid value `1` of wake: expected always, never or sometimes"),
            ("--knob first_count=1", "libmlx5 begins at 0"),
            ("--knob sync_limit=0", "sync_limit = 0 is out of range"),
            ("--place 0:0 --place 0:1", "--place was given 2 times, for 1 devices"),
            ("--place 0", "invalid place `0`: expected NODE:PROCESSORS such as"),
            ("--place x:0", "NODE:PROCESSORS"),
            ("--place 0:", "NODE:PROCESSORS"),
            ("--place 0:5-3", "NODE:PROCESSORS"),
            ("--fault 1:outage", "invalid time `1`"),
            ("--fault 1s:outage", "no such fault"),
            ("--subnets 0", "invalid value '0'"),
            ("--devices 0", "invalid value '0'"),
        ] {
            let error = settings(options).unwrap_err();
            assert!(error.contains(why), "{options}: {error}");
        }
    }
}
