//! `tagperf info`: the devices, what each can do, and what to do about missing ones.

use std::net::IpAddr;
use std::path::Path;

use tagmatch::Finding;
use tagmatch::ofi::OfiInfo;
use tagmatch::ucx::UcxInfo;
use tagmatch::verbs::VerbsInfo;
use tagmatch::{AutoConfig, Config, HwTags, TagMatching};
use tagmatch_results::Style;
use tagmatch_results::show::{one_line, show_size};

use crate::device::{MissingDevice, ofi_usable, ucx_usable, usable};
use crate::environment;
use crate::failure::Failure;
use crate::link::{Unlinked, settings};
use crate::nic;
use crate::output::Output;
use crate::reasons::{reasons, threshold};
use crate::secret;
use crate::spec::hw_tags::{SLOTS, SLOTS_MAX};
use crate::spec::{DeviceArg, HwTagsArg, WorkerNeeds};
use crate::style;
use crate::{isolated_trial, measure};

/// The kernel's list of RDMA devices, and the setting that may keep one process from reading
/// another's memory.
const RDMA_DEVICES: &str = "/sys/class/infiniband";
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// How to make a secret.
const NEW_SECRET: &str = "next: (umask 077; head -c 32 /dev/urandom | base64 > secret); export \
                          TAGMATCH_SECRET_FILE=secret";

/// The command.
pub(crate) fn command() -> Result<(), Failure> {
    let style = style::stdout();
    let mut out = style.heading(format!("tagperf {}", env!("CARGO_PKG_VERSION"))) + "\n\n";
    out += &shm(style);
    out += &model(style);
    out += &verbs(style);
    out += &tcp(style);
    out += &auto(style);
    out += &ucx(style);
    out += &ofi(style);
    out += "\n";
    out += &style.block(&environment::gather(2, None).machine());
    Output::stdout().print(&out)
}

/// The entry of shared memory. A second process is started and a message exchanged, to see that it
/// works.
fn shm(style: Style) -> String {
    if let Err(error) = Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), HwTagsArg::Off) {
        let lines = [
            format!("no shared-memory worker can be made: {}", one_line(error)),
            "next: grep Seccomp /proc/self/status; ls -l /proc/self/fd; ulimit -a".into(),
        ];
        return entry(style, "shm", false, &lines);
    }
    let mut lines = vec!["processes of one machine and one user; matching in software".to_owned()];
    lines.extend(settings());
    let tried = measure::large_messages(DeviceArg::Shm);
    let usable = tried.is_ok();
    match tried {
        Ok(how) => {
            lines.push(format!("large messages: {how}"));
            if !how.contains("one copy") {
                lines.push(copied_because());
            }
        }
        Err(failure) => {
            lines.push(format!("a second process can't be reached: {}", one_line(failure)));
            lines.push("next: tagperf lat --sizes 8".into());
        }
    }
    entry(style, "shm", usable, &lines)
}

/// The entry of the model NIC, which needs no hardware, and the reasons that keep receives out of
/// any NIC.
fn model(style: Style) -> String {
    let nic = HwTagsArg::Model { slots: SLOTS };
    if let Err(error) = Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), nic) {
        let lines = [
            format!("no worker with a model NIC can be made: {}", one_line(error)),
            "next: tagperf lat --sizes 4K --hw-tags model".into(),
        ];
        return entry(style, "model", false, &lines);
    }
    let mut lines = vec![
        "a tag-matching NIC in software, on any device, to see offload without the hardware"
            .to_owned(),
        format!("entries: {SLOTS}, or 1 to {SLOTS_MAX} by model:SLOTS"),
        format!("receives: offered from {} on", show_size(threshold())),
    ];
    lines.extend(settings().into_iter().take(1));
    lines.push("next: tagperf lat --sizes 4K --hw-tags model".into());
    lines.push("a receive stays in software, counted in matching.not_offloaded, because".into());
    for reason in reasons() {
        lines.push(format!("  {:<10} {}", reason.name, reason.meaning));
        lines.push(format!("  {:<10} -> {}", "", reason.remedy));
    }
    entry(style, "model", true, &lines)
}

fn copied_because() -> String {
    match std::fs::read_to_string(YAMA).map(|scope| scope.trim().to_owned()) {
        Ok(scope) if scope != "0" => {
            format!("because {YAMA} is {scope}; next: sudo sysctl kernel.yama.ptrace_scope=0")
        }
        _ => "because the kernel refuses process_vm_readv; next: grep Seccomp /proc/self/status"
            .into(),
    }
}

/// The entry of RDMA. If a device can be used, a message is exchanged.
fn verbs(style: Style) -> String {
    let device = DeviceArg::Verbs { name: None };
    let info = VerbsInfo::probe(&device.verbs());
    let tried = usable(&info).is_ok().then(|| measure::large_messages(device));
    verbs_entry(style, &info, tried, &rdma_devices())
}

fn verbs_entry(
    style: Style,
    info: &VerbsInfo,
    tried: Option<Result<String, Failure>>,
    kernel_has: &str,
) -> String {
    let found = usable(info).map(|(name, port)| format!("{name}, port {port}"));
    let mut lines = first_lines(found, &tried, ["", "verbs"]);
    lines.extend(info.choice.iter().map(|choice| format!("chosen: {}", one_line(choice))));
    lines.extend(info.left_out.iter().map(|port| format!("left out: {}", one_line(port))));
    if let Some(tag_matching) = &info.tag_matching {
        lines.extend(matching_by_nic(tag_matching));
    }
    if info.library.is_available {
        lines.push(format!("libibverbs: {}", one_line(&info.library.reason)));
    }
    lines.push(kernel_has.to_owned());
    lines.push(match info.locked_memory {
        Some(bytes) => {
            let next = "if registering memory fails, next: ulimit -l unlimited";
            format!("locked memory: at most {}; {next}", show_size(bytes))
        }
        None => "locked memory: unlimited".into(),
    });
    lines.extend(crate::verbs::lines(&info.settings));
    entry(style, "verbs", tried.is_some_and(|tried| tried.is_ok()), &lines)
}

/// The entry of all networks together: those that a worker has here.
fn auto(style: Style) -> String {
    let secret = secret::known().ok().flatten();
    let config = Config::default().secret(secret).hw_tags(HwTags::Auto);
    let auto = AutoConfig::default().verbs(crate::verbs::config());
    let found = auto.probe(&config);
    let networks = found.into_iter().map(|(network, found)| match found {
        Ok(()) => format!("{network} with other machines that have it"),
        Err(why) => format!("{network} is left out: {}", one_line(why)),
    });
    let lines: Vec<_> =
        std::iter::once("shm with peers of this machine".into()).chain(networks).collect();
    entry(style, "auto", true, &lines)
}

/// The entry of TCP. A second process is started and a message exchanged.
fn tcp(style: Style) -> String {
    let hosts = tagmatch_os::stream::own_addresses().unwrap_or_default();
    let (loopback, hosts): (Vec<IpAddr>, _) = hosts.into_iter().partition(IpAddr::is_loopback);
    let is_alone = hosts.is_empty();
    let hosts = if is_alone { loopback } else { hosts };
    let names: Vec<_> = hosts.iter().map(ToString::to_string).collect();
    let secret = match (secret::known(), secret::source()) {
        (Err(why), _) => {
            let lines = [format!("the secret can't be used: {}", one_line(why)), NEW_SECRET.into()];
            return entry(style, "tcp", false, &lines);
        }
        (Ok(_), Some(source)) => format!("secret: {source}"),
        (Ok(_), None) => "secret: none; tagperf serve, tagperf run and a measurement within this \
                          machine make one"
            .into(),
    };
    // In processes of its own, since the trial makes a secret where there is none.
    let tried = isolated_trial::large_messages(&DeviceArg::Tcp { place: None });
    let (works, lines) = match tried {
        Ok(how) => {
            let [reach, next] = tcp_reach(is_alone).map(str::to_owned);
            (true, vec![reach, next, format!("large messages: {how}")])
        }
        Err(failure) => {
            let why = format!("no message gets across: {}", one_line(failure));
            (false, vec![why, "next: tagperf lat --sizes 8 --device tcp".into()])
        }
    };
    let more = [
        secret,
        format!("listens on all addresses, and tells peers: {}", names.join(" ")),
        "next: tagperf lat --device tcp:INTERFACE or tcp:ADDRESS for fewer".into(),
    ];
    entry(style, "tcp", works, &[lines, more.to_vec()].concat())
}

/// Which machines TCP reaches, and what to type next. `is_alone`: no interface has an address that
/// other machines could be told.
fn tcp_reach(is_alone: bool) -> [&'static str; 2] {
    if is_alone {
        return [
            "within this machine alone: its interfaces have no addresses but those of loopback and \
             link-local ones (fe80::), which mean nothing to other machines; not encrypted",
            "next: ip address add ADDRESS/LENGTH dev INTERFACE",
        ];
    }
    [
        "between machines and within one; not encrypted; matching in software",
        "next: tagperf serve --bind ADDRESS",
    ]
}

fn rdma_devices() -> String {
    let entries = std::fs::read_dir(Path::new(RDMA_DEVICES)).ok().into_iter().flatten().flatten();
    let names: Vec<_> = entries.map(|entry| one_line(entry.file_name().display())).collect();
    let names = if names.is_empty() { "none".into() } else { names.join(", ") };
    format!("devices of the kernel ({RDMA_DEVICES}): {names}")
}

/// The entry of UCX. If it can be used, a message is exchanged.
fn ucx(style: Style) -> String {
    let device = DeviceArg::Ucx { transports: None };
    let info = UcxInfo::probe(&device.ucx().hw_tags(TagMatching::Auto));
    let tried = ucx_usable(&info).is_ok().then(|| isolated_trial::large_messages(&device));
    ucx_entry(style, &info, tried)
}

fn ucx_entry(style: Style, info: &UcxInfo, tried: Option<Result<String, Failure>>) -> String {
    let found = ucx_usable(info).map(|library| format!("UCX {library}"));
    let choice = ["; UCX matches", "ucx, or ucx:tcp,self to choose transports (UCX_TLS)"];
    let mut lines = first_lines(found, &tried, choice);
    if info.device.is_available {
        lines.push(format!("transports here: {}", one_line(info.transports.join(" "))));
        lines.push(format!("asleep: {}", one_line(&info.wakeup.reason)));
        lines.extend(info.wakeup.next.map(|next| format!("next: {next}")));
    }
    lines.extend(matching_by_nic(&info.tag_offload));
    entry(style, "ucx", tried.is_some_and(|tried| tried.is_ok()), &lines)
}

/// The entry of libfabric. If it can be used, a message is exchanged.
fn ofi(style: Style) -> String {
    let device = DeviceArg::Ofi { provider: None };
    let info = OfiInfo::probe(&device.ofi(HwTagsArg::Auto));
    let tried = ofi_usable(&info).is_ok().then(|| isolated_trial::large_messages(&device));
    ofi_entry(style, &info, tried)
}

fn ofi_entry(style: Style, info: &OfiInfo, tried: Option<Result<String, Failure>>) -> String {
    let found = ofi_usable(info).map(|library| format!("libfabric {library}"));
    let choice = ["; its provider matches", "ofi, or 'ofi:tcp;ofi_rxm' to choose a provider"];
    let mut lines = first_lines(found, &tried, choice);
    if info.device.is_available {
        lines.push(format!("taken: {}", one_line(&info.device.reason)));
        for finding in [&info.wakeup, &info.probes].into_iter().filter(|is| !is.is_available) {
            lines.push(one_line(&finding.reason));
            lines.extend(finding.next.map(|next| format!("next: {next}")));
        }
    }
    let others = info.others.iter();
    lines.extend(others.map(|(name, why)| one_line(format!("not taken: {name}: {why}"))));
    lines.extend(matching_by_nic(&info.tag_offload));
    if let Some(nic) = info.nic.as_deref().map(one_line) {
        lines.push(match &info.nic_matches {
            Some(matches) => nic::in_words(&nic, *matches, "since its start"),
            None => format!(
                "what {nic} counts can't be read; next: ls -l /sys/class/cxi/{nic}/device/telemetry"
            ),
        });
    }
    entry(style, "ofi", tried.is_some_and(|tried| tried.is_ok()), &lines)
}

/// The lines about the device that was found, and about the message that was exchanged over it.
/// `more` has what else is to be said of it, and the value of `--device`.
fn first_lines(
    found: Result<String, MissingDevice>,
    tried: &Option<Result<String, Failure>>,
    [more, device]: [&str; 2],
) -> Vec<String> {
    let name = match found {
        Ok(name) => name,
        Err(MissingDevice { why, next }) => return vec![why, format!("next: {next}")],
    };
    let works = format!("{name}; between machines and within one{more}");
    let next = format!("next: tagperf lat --device {device}");
    match tried {
        None => vec![works, next],
        Some(Ok(how)) => vec![works, next, format!("large messages: {how}")],
        Some(Err(failure)) => {
            let device = device.split(',').next().unwrap_or_default();
            vec![
                format!("{name}: no message gets across: {}", one_line(failure)),
                format!("next: tagperf lat --sizes 8 --device {device}"),
            ]
        }
    }
}

fn matching_by_nic(finding: &Finding) -> impl Iterator<Item = String> {
    let answer = if finding.is_available { "yes" } else { "no" };
    let line = format!("matching by the NIC: {answer}, {}", one_line(&finding.reason));
    std::iter::once(line).chain(finding.next.map(|next| format!("next: {next}")))
}

fn entry(style: Style, name: &str, usable: bool, lines: &[String]) -> String {
    let mut out = String::new();
    for (at, line) in lines.iter().enumerate() {
        // Padded before it is coloured, since escapes have no width.
        let (name, usable) = match (at, usable) {
            (0, true) => (name, style.good("yes ")),
            (0, false) => (name, style.bad("no  ")),
            _ => ("", "    ".into()),
        };
        out += &format!("{name:<7} {usable} {line}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use tagmatch::Finding;
    use tagmatch::ofi::NicMatches;

    use super::*;

    /// A description of UCX as usable, whether it is on this machine or not.
    fn with_ucx() -> UcxInfo {
        let found = |what, reason: &str| Finding {
            what,
            is_available: true,
            reason: reason.into(),
            next: None,
        };
        UcxInfo {
            version: Some("1.13.1".into()),
            transports: vec!["self/memory0".into(), "tcp/lo".into()],
            library: found("UCX", "1.13.1 in /lib/libucp.so.0"),
            device: found("ucx device", "to oneself by self/memory0"),
            wakeup: found("ucx wakeup", "by its descriptor"),
            tag_offload: Finding {
                is_available: false,
                next: Some("ls /sys/class/infiniband"),
                ..found("ucx tag offload", "no mlx5 device")
            },
        }
    }

    #[test]
    fn ucx_says_what_it_uses_or_what_is_missing() {
        let text = ucx_entry(Style::new(false), &with_ucx(), Some(Ok("by posix".into())));
        assert_eq!(
            text,
            "ucx     yes  UCX 1.13.1 in /lib/libucp.so.0; between machines and within one; UCX \
             matches\n             next: tagperf lat --device ucx, or ucx:tcp,self to choose transports \
             (UCX_TLS)\n             large messages: by posix\n             transports here: \
             self/memory0 tcp/lo\n             asleep: by its descriptor\n             matching by the NIC: no, \
             no mlx5 device\n             next: ls /sys/class/infiniband\n"
        );
        let begins = |info: &UcxInfo, tried, with: &str| {
            let text = ucx_entry(Style::new(false), info, tried);
            let lines: Vec<_> = text.lines().collect();
            assert!(lines[0].starts_with(&format!("ucx     no   {with}")), "{text}");
            assert!(lines[1].starts_with("             next: "), "{text}");
        };
        let failed = Some(Err(Failure::Measurement("it broke".into())));
        begins(&with_ucx(), failed, "UCX 1.13.1 in /lib/libucp.so.0: no message gets across: ");
        let mut info = with_ucx();
        info.device.is_available = false;
        begins(&info, None, "ucx device: to oneself");
        info.library.is_available = false;
        begins(&info, None, "UCX: 1.13.1");
    }

    #[test]
    fn libfabric_says_which_provider_it_takes_and_why_not_the_others() {
        let found = |what| Finding {
            what,
            is_available: true,
            reason: format!("{what} is there"),
            next: None,
        };
        let mut info = OfiInfo {
            version: Some("1.17".into()),
            taken: Some("tcp on eth0".into()),
            others: vec![("shm".into(), "only by its name: it is slow".into())],
            library: found("libfabric"),
            device: found("ofi device"),
            wakeup: found("ofi wakeup"),
            probes: found("ofi probes"),
            tag_offload: Finding { is_available: false, ..found("ofi tag offload") },
            nic: None,
            nic_matches: None,
            receives_max: None,
        };
        info.wakeup.is_available = false;
        let text = ofi_entry(Style::new(false), &info, Some(Ok("by tcp".into())));
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert!(lines[0].starts_with("ofi     yes  libfabric libfabric is there;"), "{text}");
        for line in [
            "taken: ofi device is there",
            "ofi wakeup is there",
            "not taken: shm: only by its name: it is slow",
            "matching by the NIC: no, ofi tag offload is there",
        ] {
            assert!(lines.contains(&line), "{text}");
        }
        info.nic = Some("cxi7".into());
        let text = ofi_entry(Style::new(false), &info, None);
        assert!(text.ends_with("next: ls -l /sys/class/cxi/cxi7/device/telemetry\n"), "{text}");
        info.nic_matches = Some(NicMatches { posted: 5, unexpected: 1000, in_software: 2 });
        let text = ofi_entry(Style::new(false), &info, None);
        let counts = "since its start: 5 posted, 1 000 unexpected, 2 in software\n";
        let all = format!("cxi7 counted 1 007 messages of all processes on it, {counts}");
        assert!(text.ends_with(&all), "{text}");
        (info.nic, info.nic_matches) = (None, None);
        info.device.is_available = false;
        let text = ofi_entry(Style::new(false), &info, None);
        assert!(text.starts_with("ofi     no   ofi device: ofi device is there\n"), "{text}");
    }

    /// A description of a device as usable, whether this machine has one or not.
    fn with_device() -> VerbsInfo {
        let nobody = DeviceArg::Verbs { name: Some("nosuchdevice".into()) };
        let mut info = VerbsInfo::probe(&nobody.verbs());
        info.library.is_available = true;
        info.library.reason = "libibverbs.so.1".into();
        info.library.next = None;
        info.device.is_available = true;
        info.device.reason = "rxe0".into();
        info.port = Some(info.library.clone());
        info.port.as_mut().unwrap().reason = "1, RoCE v2".into();
        info.tag_matching = Some(info.library.clone());
        info.tag_matching.as_mut().unwrap().is_available = false;
        info.tag_matching.as_mut().unwrap().reason = "tm_caps is zero".into();
        info
    }

    #[test]
    fn a_device_that_can_be_used_says_what_it_is() {
        let mut info = with_device();
        info.locked_memory = Some(64 << 10);
        let text =
            verbs_entry(Style::new(false), &info, Some(Ok("read by RDMA".into())), "kernel: rxe0");
        assert!(text.contains("\n               ack_timeout   18 (1.07 s)\n"), "{text}");
        assert_eq!(
            text.split("             settings: ").next().unwrap(),
            "verbs   yes  rxe0, port 1, RoCE v2; between machines and within one\n             \
             next: tagperf lat --device verbs\n             large messages: read by RDMA\n             \
             matching by the NIC: no, tm_caps is zero\n             libibverbs: libibverbs.so.1\n             \
             kernel: rxe0\n             locked memory: at most 64 KiB; if registering memory fails, \
             next: ulimit -l unlimited\n"
        );
    }

    #[test]
    fn ports_that_are_not_used_are_named_with_their_reasons() {
        let mut info = with_device();
        info.choice = Some("the fastest there".into());
        info.left_out = vec!["mana_0, port 1: it has no queues".into()];
        let text = verbs_entry(Style::new(false), &info, None, "kernel: rxe0, mana_0");
        let line = "\n             left out: mana_0, port 1: it has no queues\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let begins = |info: &VerbsInfo, tried, with: &str| {
            let text = verbs_entry(Style::new(false), info, tried, "kernel: none");
            let lines: Vec<_> = text.lines().collect();
            assert!(lines[0].starts_with(&format!("verbs   no   {with}")), "{text}");
            assert!(lines[1].starts_with("             next: "), "{text}");
        };
        let failed = || Some(Err(Failure::Measurement("it broke".into())));
        begins(&with_device(), failed(), "rxe0, port 1, RoCE v2: no message gets across: ");
        let mut info = with_device();
        info.port.as_mut().unwrap().is_available = false;
        begins(&info, None, "libibverbs: 1, RoCE v2");
        info.device.is_available = false;
        begins(&info, None, "RDMA device: rxe0");
        info.library.is_available = false;
        begins(&info, None, "libibverbs: libibverbs.so.1");
        // This machine's own description, with or without a device.
        let nobody = DeviceArg::Verbs { name: Some("nosuchdevice".into()) };
        begins(&VerbsInfo::probe(&nobody.verbs()), None, "");
    }
}
