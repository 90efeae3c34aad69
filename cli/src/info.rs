//! `tagperf info`: which devices there are, what each can do, and what to do about those missing.

use std::path::Path;

use crate::args::hw_tags::{HwTagsArg, SLOTS, SLOTS_MAX};
use crate::failure::{Failure, one_line};
use crate::link::{DEVICE, Unlinked, settings};
use crate::measure;
use crate::output::Output;
use crate::reasons::{reasons, threshold};
use crate::style::Style;
use crate::trust::Trust;
use crate::units::show_size;

/// Where the kernel lists RDMA devices, and what keeps one process from reading another.
const RDMA_DEVICES: &str = "/sys/class/infiniband";
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// The command.
pub(crate) fn command() -> Result<(), Failure> {
    let style = Style::stdout();
    let mut out = style.heading(format!("tagperf {}", env!("CARGO_PKG_VERSION"))) + "\n\n";
    out += &shm(style);
    out += &model(style);
    out += &missing(style, "verbs", &rdma_devices(), "rdma link show");
    out += &missing(style, "ucx", "", "ucx_info -d");
    out += "\n";
    out += &style.block(&Trust::gather(None).machine());
    Output::stdout().print(&out)
}

/// Not only that it is there: a second process is started and a message exchanged.
fn shm(style: Style) -> String {
    if let Err(error) = Unlinked::new(0, HwTagsArg::Off) {
        return entry(
            style,
            DEVICE,
            false,
            &[
                format!("no shared-memory worker can be made: {}", one_line(error)),
                "next: ls -l /proc/self/fd; ulimit -a".into(),
            ],
        );
    }
    let mut lines = vec!["processes of one machine and one user; matching in software".to_owned()];
    lines.extend(settings());
    let tried = measure::large_messages();
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
    entry(style, DEVICE, usable, &lines)
}

/// The NIC that everyone has, and what keeps receives out of any.
fn model(style: Style) -> String {
    let nic = HwTagsArg::Model { slots: SLOTS };
    if let Err(error) = Unlinked::new(0, nic) {
        let lines = [
            format!("no worker with a model NIC can be made: {}", one_line(error)),
            "next: tagperf lat --sizes 4K --hw-tags model".into(),
        ];
        return entry(style, "model", false, &lines);
    }
    let mut lines = vec![
        "a tag-matching NIC in software, on shm, to see offload without the hardware".to_owned(),
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

fn rdma_devices() -> String {
    let entries = std::fs::read_dir(Path::new(RDMA_DEVICES)).ok().into_iter().flatten().flatten();
    let names: Vec<_> = entries.map(|entry| one_line(entry.file_name().display())).collect();
    if names.is_empty() {
        format!("; {RDMA_DEVICES} lists none either")
    } else {
        format!("; the kernel has {}", names.join(", "))
    }
}

/// A device that is planned: the reason is always this version, the command shows what there is.
fn missing(style: Style, name: &str, more: &str, next: &str) -> String {
    entry(
        style,
        name,
        false,
        &[
            format!("tagperf {} has no {name} device yet{more}", env!("CARGO_PKG_VERSION")),
            format!("next: {next} shows what a later version could use"),
        ],
    )
}

fn entry(style: Style, name: &str, usable: bool, lines: &[String]) -> String {
    let mut out = String::new();
    for (at, line) in lines.iter().enumerate() {
        // Padded before it is coloured: escapes have no width.
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
    use super::*;

    #[test]
    fn every_no_ends_with_the_next_command() {
        let text = missing(Style::plain(), "verbs", "; so it is", "rdma link show");
        assert_eq!(
            text,
            format!(
                "verbs   no   tagperf {} has no verbs device yet; so it is\n             next: rdma \
                 link show shows what a later version could use\n",
                env!("CARGO_PKG_VERSION")
            )
        );
    }
}
