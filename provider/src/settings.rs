//! The provider's settings, which the environment gives. `docs/provider.md` is their page.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tagmatch::model::ModelConfig;
use tagmatch::shm::{SenderWrites, ShmConfig};
use tagmatch::tcp::TcpConfig;
use tagmatch::verbs::VerbsConfig;
use tagmatch::{AutoConfig, Config, DeviceConfig, HwTags, TagLayout};
use tagmatch_os::notice;

use crate::library::TagModes;

/// The device that carries messages, in the words of `tagperf --device`.
const DEVICE: &str = "TAGMATCH_FI_DEVICE";
/// What matches posted receives, in the words of `tagperf --hw-tags`.
const HW_TAGS: &str = "TAGMATCH_FI_HW_TAGS";
/// The bytes that unexpected messages may take in a process.
const UNEXPECTED_BYTES: &str = "TAGMATCH_FI_UNEXPECTED_BYTES";
/// The unexpected messages that a process may have.
const UNEXPECTED_MESSAGES: &str = "TAGMATCH_FI_UNEXPECTED_MESSAGES";
/// How long closing an endpoint waits for its peers, in seconds.
const DRAIN_SECONDS: &str = "TAGMATCH_FI_DRAIN_SECONDS";
/// Whether senders on this machine may write a part of a long message into the program's memory.
const SENDER_WRITES: &str = "TAGMATCH_FI_SENDER_WRITES";
/// Whether endpoints have one-sided operations.
const ONE_SIDED: &str = "TAGMATCH_FI_ONE_SIDED";
/// Where the report goes.
const REPORT: &str = "TAGMATCH_FI_REPORT";
/// The folder for traces.
const TRACE: &str = "TAGMATCH_FI_TRACE";

/// The fewest bytes for unexpected messages.
const UNEXPECTED_BYTES_MIN: u64 = 64 << 10;
/// The bytes that the shortest unexpected message counts with, if it has any.
const MESSAGE_BYTES_MIN: u64 = 16;
/// The most unexpected messages.
const UNEXPECTED_MESSAGES_MAX: u64 = 1 << 30;

/// Entries of the model's list, unless told: as many as ConnectX-5 and 6 have.
const SLOTS: u32 = 127;
/// The longest list of the model.
const SLOTS_MAX: u32 = 65535;

/// The settings of the environment.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    device_name: String,
    device: DeviceConfig,
    hw_tags: HwTags,
    tag_modes: TagModes,
    unexpected_bytes: u64,
    unexpected_messages: u64,
    drain_timeout: Duration,
    has_one_sided: bool,
    report: Option<PathBuf>,
    trace: Option<PathBuf>,
}

impl Settings {
    /// The device, as it was asked for.
    pub(crate) fn device_name(&self) -> &str {
        &self.device_name
    }

    /// Where MPI libraries put the sender into their tags.
    pub(crate) fn tag_modes(&self) -> &TagModes {
        &self.tag_modes
    }

    /// Whether endpoints have one-sided operations.
    pub(crate) fn has_one_sided(&self) -> bool {
        self.has_one_sided
    }

    /// Where the report goes; `-` is standard error.
    pub(crate) fn report(&self) -> Option<&Path> {
        self.report.as_deref()
    }

    /// The folder for traces.
    pub(crate) fn trace(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// The settings of a worker. `is_directed`: its endpoint was opened with `FI_DIRECTED_RECV`.
    pub(crate) fn config(&self, is_directed: bool) -> Config {
        // All bits are the context if tags don't name their sender.
        let none = || TagLayout::new(64, 0, 0).unwrap_or(TagLayout::MPI);
        Config::default()
            .device(self.device.clone())
            .hw_tags(self.hw_tags.clone())
            .layout(self.tag_modes.layout(is_directed).unwrap_or_else(none))
            .unexpected_bytes(self.unexpected_bytes)
            .unexpected_messages(self.unexpected_messages)
            .drain_timeout(self.drain_timeout)
    }

    /// Reads the settings. `get` gives the value of a variable. `is_privileged`: the program has
    /// more rights than its caller, at whose word it must not write files.
    ///
    /// # Errors
    /// A value is wrong. The text names the variable, the value and what is allowed.
    fn read(is_privileged: bool, get: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let tag_modes = TagModes::read(&get);
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let text = |name| get(name).map(|value| value.to_string_lossy().into_owned());
        let path = |name| get(name).filter(|_| !is_privileged).map(PathBuf::from);
        let device_name = text(DEVICE).unwrap_or_else(|| "auto".to_owned());
        let defaults = Config::default();
        let bytes = parsed(UNEXPECTED_BYTES, text(UNEXPECTED_BYTES), unexpected_bytes)?;
        let unexpected_bytes = bytes.unwrap_or(defaults.unexpected_bytes);
        // MPI has no bound of messages (MPI-4.1 section 3.5), so bytes are the bound: unless told,
        // there may be as many messages as the bytes have room for.
        let most = (unexpected_bytes / MESSAGE_BYTES_MIN).min(UNEXPECTED_MESSAGES_MAX);
        let messages = parsed(UNEXPECTED_MESSAGES, text(UNEXPECTED_MESSAGES), unexpected_messages)?;
        let drain = parsed(DRAIN_SECONDS, text(DRAIN_SECONDS), seconds)?;
        let is_written = parsed(SENDER_WRITES, text(SENDER_WRITES), on_or_off)?.unwrap_or(false);
        let one_sided = parsed(ONE_SIDED, text(ONE_SIDED), on_off_or_auto)?.flatten();
        let mut device =
            device(&device_name).map_err(|expected| wrong(DEVICE, &device_name, expected))?;
        if let Some(verbs) = verbs(&mut device) {
            let with_environment = verbs.clone().with_environment(get);
            *verbs = with_environment.map_err(|error| error.to_string())?;
        }
        if is_written && let Some(shm) = shared_memory(&mut device) {
            shm.sender_writes = SenderWrites::AllBuffers;
        }
        Ok(Settings {
            unexpected_bytes,
            unexpected_messages: messages.unwrap_or(most),
            drain_timeout: drain.unwrap_or(defaults.drain_timeout),
            has_one_sided: one_sided.unwrap_or_else(|| is_measured(&device)),
            device,
            device_name,
            hw_tags: parsed(HW_TAGS, text(HW_TAGS), hw_tags)?.unwrap_or(HwTags::Auto),
            tag_modes,
            report: path(REPORT),
            trace: path(TRACE),
        })
    }
}

/// The settings that the environment had at the first call; `None` if one of them is wrong, which
/// is said on standard error once.
pub(crate) fn of_environment() -> Option<Arc<Settings>> {
    static SETTINGS: OnceLock<Option<Arc<Settings>>> = OnceLock::new();
    // SAFETY: the call has no pointers.
    let is_privileged = || unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let read = || match Settings::read(is_privileged(), |name| std::env::var_os(name)) {
        Ok(settings) => Some(Arc::new(settings)),
        Err(error) => {
            notice::tell(&format!("tagmatch: {error}"));
            None
        }
    };
    SETTINGS.get_or_init(read).clone()
}

fn wrong(name: &str, value: &str, expected: &str) -> String {
    // The value may hold anything, even what a terminal takes for commands.
    format!("invalid {name} `{}`: expected {expected}", value.escape_debug())
}

fn parsed<T>(
    name: &str,
    value: Option<String>,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, String> {
    let parse = |value: String| parse(&value).map_err(|expected| wrong(name, &value, expected));
    value.map(parse).transpose()
}

/// The device that a text asks for. An error names what is expected.
fn device(text: &str) -> Result<DeviceConfig, &'static str> {
    let (kind, place) = match text.split_once(':') {
        None => (text, None),
        Some((kind, place)) => (kind, Some(place)),
    };
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic());
    match (kind, place) {
        ("auto", None) => Ok(DeviceConfig::Auto(AutoConfig::default())),
        ("shm", None) => Ok(DeviceConfig::Shm(ShmConfig::default())),
        ("verbs", None) => Ok(DeviceConfig::Verbs(VerbsConfig::default())),
        ("verbs", Some(name)) if is_name(name) => {
            let device = Some(name.to_owned());
            Ok(DeviceConfig::Verbs(VerbsConfig::default().device(device)))
        }
        ("tcp", None) => Ok(DeviceConfig::Tcp(TcpConfig::default())),
        ("tcp", Some(place)) if is_name(place) => {
            let mut tcp = TcpConfig::default();
            match place.parse::<IpAddr>() {
                Ok(address) => tcp.listen = vec![address],
                Err(_) => tcp.interfaces = vec![place.to_owned()],
            }
            Ok(DeviceConfig::Tcp(tcp))
        }
        ("ucx", _) => {
            Err("auto, shm, verbs or tcp: UCX's tags have no room for MPI's tags, senders \
             and immediate data")
        }
        _ => Err("auto, shm, verbs, verbs:NAME, tcp or tcp:PLACE"),
    }
}

/// The settings of shared memory, if the device is or has that.
fn shared_memory(device: &mut DeviceConfig) -> Option<&mut ShmConfig> {
    match device {
        DeviceConfig::Shm(shm) => Some(shm),
        DeviceConfig::Auto(auto) => Some(&mut auto.shm),
        _ => None,
    }
}

/// The settings of verbs, if the device is or has that.
fn verbs(device: &mut DeviceConfig) -> Option<&mut VerbsConfig> {
    match device {
        DeviceConfig::Verbs(verbs) => Some(verbs),
        DeviceConfig::Auto(auto) => Some(&mut auto.verbs),
        _ => None,
    }
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off"),
    }
}

/// `None`: as the device asks for it.
fn on_off_or_auto(text: &str) -> Result<Option<bool>, &'static str> {
    match text {
        "auto" => Ok(None),
        _ => on_or_off(text).map(Some).map_err(|_| "on, off or auto"),
    }
}

/// Whether MPI libraries were measured to be no slower over the one-sided operations of this device
/// than over their own messages (docs/provider.md).
fn is_measured(device: &DeviceConfig) -> bool {
    !matches!(device, DeviceConfig::Verbs(_))
}

/// The matcher that a text asks for.
fn hw_tags(text: &str) -> Result<HwTags, &'static str> {
    let slots = match text.split_once(':') {
        None if text == "off" => return Ok(HwTags::Off),
        None if text == "auto" => return Ok(HwTags::Auto),
        None if text == "emu" => return Ok(HwTags::Emu),
        None if text == "model" => Some(SLOTS),
        Some(("model", slots)) => slots.parse().ok().filter(|n| (1..=SLOTS_MAX).contains(n)),
        _ => None,
    };
    let slots = slots.ok_or("off, auto, emu, model or model:SLOTS with 1 to 65535 slots")?;
    // As in UCX: an add and a delete of each entry, and two more.
    let operations = (2 * slots + 2).min(65536);
    Ok(HwTags::Model(ModelConfig::default().slots(slots).operations(operations)))
}

/// A number of bytes for unexpected messages.
fn unexpected_bytes(text: &str) -> Result<u64, &'static str> {
    let number = text.parse().ok().filter(|bytes| *bytes >= UNEXPECTED_BYTES_MIN);
    number.ok_or("a number of bytes, at least 65536,")
}

/// A number of unexpected messages.
fn unexpected_messages(text: &str) -> Result<u64, &'static str> {
    let number = text.parse().ok().filter(|n| (1..=UNEXPECTED_MESSAGES_MAX).contains(n));
    number.ok_or("a number of messages, 1 to 1073741824,")
}

/// A number of whole seconds.
fn seconds(text: &str) -> Result<Duration, &'static str> {
    text.parse::<u32>().map(|s| Duration::from_secs(s.into())).map_err(|_| "a number of seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        read_as(false, variables)
    }

    fn read_as(is_privileged: bool, variables: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(is_privileged, |name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn without_variables_the_device_is_auto_and_a_nic_may_match() {
        for variables in [&[][..], &[(DEVICE, ""), (HW_TAGS, ""), (REPORT, "")]] {
            let settings = read(variables).unwrap();
            assert_eq!(settings.device_name(), "auto");
            assert!(!settings.tag_modes().hides_directed());
            assert_eq!((settings.report(), settings.trace()), (None, None));
            let config = settings.config(true);
            assert!(matches!(config.device, DeviceConfig::Auto(_)));
            assert!(matches!(config.hw_tags, HwTags::Auto));
            assert_eq!(config.layout.source_mask().0, 0);
            assert!(!config.peer_events);
        }
    }

    #[test]
    fn senders_write_into_the_programs_memory_only_if_that_is_on() {
        for (device, value, writes) in [
            ("shm", "", SenderWrites::OwnedBuffers),
            ("shm", "off", SenderWrites::OwnedBuffers),
            ("shm", "on", SenderWrites::AllBuffers),
            ("auto", "on", SenderWrites::AllBuffers),
        ] {
            let settings = read(&[(DEVICE, device), (SENDER_WRITES, value)]).unwrap();
            let mut device = settings.config(true).device;
            assert_eq!(shared_memory(&mut device).unwrap().sender_writes, writes);
        }
        assert!(read(&[(DEVICE, "tcp"), (SENDER_WRITES, "on")]).is_ok());
    }

    #[test]
    fn one_sided_operations_are_offered_where_they_were_measured_unless_told() {
        for (device, by_default) in
            [("auto", true), ("shm", true), ("tcp:lo", true), ("verbs", false)]
        {
            let offers =
                |value| read(&[(DEVICE, device), (ONE_SIDED, value)]).unwrap().has_one_sided();
            assert_eq!(
                ["on", "off", "auto", ""].map(offers),
                [true, false, by_default, by_default]
            );
        }
    }

    #[test]
    fn a_device_is_named_as_for_tagperf() {
        let config = |text| read(&[(DEVICE, text)]).unwrap().config(true).device;
        assert!(matches!(config("auto"), DeviceConfig::Auto(_)));
        assert!(matches!(config("shm"), DeviceConfig::Shm(_)));
        for (text, name) in [("verbs", None), ("verbs:rxe0", Some("rxe0"))] {
            let DeviceConfig::Verbs(verbs) = config(text) else { panic!("{text}") };
            assert_eq!(verbs.device.as_deref(), name);
        }
        let tcp = |text| match config(text) {
            DeviceConfig::Tcp(tcp) => (tcp.listen, tcp.interfaces),
            other => panic!("{other:?}"),
        };
        assert_eq!(tcp("tcp"), (vec![], vec![]));
        assert_eq!(tcp("tcp:eth0"), (vec![], vec!["eth0".to_owned()]));
        assert_eq!(tcp("tcp:::1"), (vec!["::1".parse().unwrap()], vec![]));
        assert_eq!(read(&[(DEVICE, "verbs:rxe0")]).unwrap().device_name(), "verbs:rxe0");
    }

    #[test]
    fn settings_of_verbs_are_read_where_verbs_may_carry_messages() {
        const GID_INDEX: &str = "TAGMATCH_VERBS_GID_INDEX";
        for device in ["auto", "verbs", "verbs:rxe0"] {
            let mut device =
                read(&[(DEVICE, device), (GID_INDEX, "3")]).unwrap().config(true).device;
            assert_eq!(verbs(&mut device).unwrap().gid_index, Some(3));
        }
        let error = read(&[(GID_INDEX, "x")]).unwrap_err();
        assert_eq!(error, "invalid TAGMATCH_VERBS_GID_INDEX `x`: expected a number from 0 to 255");
        assert!(read(&[(DEVICE, "shm"), (GID_INDEX, "x")]).is_ok());
    }

    #[test]
    fn a_matcher_is_named_as_for_tagperf() {
        let config = |text| read(&[(HW_TAGS, text)]).unwrap().config(true).hw_tags;
        assert!(matches!(config("off"), HwTags::Off));
        assert!(matches!(config("auto"), HwTags::Auto));
        assert!(matches!(config("emu"), HwTags::Emu));
        for (text, slots, operations) in
            [("model", 127, 256), ("model:9", 9, 20), ("model:65535", 65535, 65536)]
        {
            let HwTags::Model(model) = config(text) else { panic!("{text}") };
            assert_eq!((model.slots, model.operations), (slots, operations));
        }
    }

    #[test]
    fn bytes_bound_unexpected_messages_unless_a_number_is_told() {
        let bounds = |variables: &[_]| {
            let config = read(variables).unwrap().config(true);
            (config.unexpected_bytes, config.unexpected_messages, config.drain_timeout.as_secs())
        };
        // Half of them may be of one peer: a million messages and more.
        assert_eq!(bounds(&[]), (64 << 20, 1 << 22, 5));
        assert_eq!(bounds(&[(UNEXPECTED_BYTES, "65536"), (DRAIN_SECONDS, "0")]), (65536, 4096, 0));
        assert_eq!(bounds(&[(UNEXPECTED_BYTES, "18446744073709551615")]).1, 1 << 30);
        assert_eq!(bounds(&[(UNEXPECTED_MESSAGES, "1"), (DRAIN_SECONDS, "60")]), (64 << 20, 1, 60));
    }

    #[test]
    fn a_program_with_more_rights_than_its_caller_writes_no_file_for_it() {
        let settings = read_as(true, &[(REPORT, "a"), (TRACE, "b"), (DEVICE, "tcp")]).unwrap();
        assert_eq!((settings.report(), settings.trace()), (None, None));
        assert_eq!(settings.device_name(), "tcp");
    }

    #[test]
    fn paths_are_taken_as_they_are() {
        let settings = read(&[(REPORT, "-"), (TRACE, "a b")]).unwrap();
        assert_eq!(settings.report(), Some(Path::new("-")));
        assert_eq!(settings.trace(), Some(Path::new("a b")));
    }

    #[test]
    fn a_wrong_value_is_named_with_what_is_right() {
        let wrong = [
            (DEVICE, "Shm", "auto, shm"),
            (DEVICE, "shm:", "auto, shm"),
            (DEVICE, "verbs:", "verbs:NAME"),
            (DEVICE, "tcp:a b", "tcp:PLACE"),
            (DEVICE, "ucx", "UCX's tags have no room"),
            (DEVICE, "ucx:tcp", "UCX's tags have no room"),
            (HW_TAGS, "on", "off, auto, emu, model"),
            (HW_TAGS, "model:0", "1 to 65535"),
            (HW_TAGS, "model:65536", "1 to 65535"),
            (UNEXPECTED_BYTES, "65535", "at least 65536"),
            (UNEXPECTED_BYTES, "64M", "a number of bytes"),
            (UNEXPECTED_MESSAGES, "0", "1 to 1073741824"),
            (UNEXPECTED_MESSAGES, "1073741825", "1 to 1073741824"),
            (DRAIN_SECONDS, "-1", "a number of seconds"),
            (SENDER_WRITES, "yes", "on or off"),
            (ONE_SIDED, "1", "on, off or auto"),
        ];
        for (name, value, right) in wrong {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(&format!("invalid {name} `{value}`: expected ")), "{error}");
            assert!(error.contains(right), "{error}");
        }
        let error = read(&[(DEVICE, "\u{1b}[2J")]).unwrap_err();
        assert!(!error.contains('\u{1b}'), "{error}");
    }
}
