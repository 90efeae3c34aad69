//! `tagperf info --learned`: what two workers of this machine learn about each other while they
//! exchange messages.

use std::fmt::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tagmatch::{Buffer, LearnedChoice, LearnedWay};
use tagmatch_results::Style;
use tagmatch_results::show::show_size;

use crate::control::Attention;
use crate::cpus;
use crate::failure::Failure;
use crate::link::{Link, LinkError, Local, Unlinked};
use crate::output::Output;
use crate::secret;
use crate::spec::{DeviceArg, HwTagsArg, WorkerNeeds};
use crate::style;

/// The tags of messages that are measured, and of those that say whether more follow.
const DATA: u64 = 1;
const CONTROL: u64 = 2;
/// Exchanges between two looks at the clock.
const EXCHANGES: usize = 16;
/// One length of each class that shared memory learns, after a short one.
const LENGTHS: [usize; 10] = [
    1 << 10,
    12 << 10,
    24 << 10,
    48 << 10,
    96 << 10,
    192 << 10,
    384 << 10,
    768 << 10,
    1536 << 10,
    3072 << 10,
];
/// Messages of a window, which goes one way and comes back.
const WINDOWS: [usize; 2] = [1, 16];
/// The time for each length: some epochs of both ways.
const TIME: Duration = Duration::from_millis(200);
/// A side that waits longer for the other one gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The messages of a run.
#[derive(Clone, Copy)]
struct Workload<'a> {
    device: &'a DeviceArg,
    lengths: &'a [usize],
    window: usize,
    time: Duration,
}

/// The command.
pub(crate) fn command(device: &DeviceArg) -> Result<(), Failure> {
    if *device != DeviceArg::Shm {
        // Both workers are of this process, so a secret that is made now does.
        secret::known_or_new().map_err(Failure::Usage)?;
    }
    let style = style::stdout();
    let mut out = Output::stdout();
    for window in WINDOWS {
        let choices = run(Workload { device, lengths: &LENGTHS, window, time: TIME })?;
        if choices.is_empty() {
            return out.print(&nothing(device));
        }
        let title = if window == 1 {
            format!("learned over {device}, one message at a time:")
        } else {
            format!("learned over {device}, {window} messages at a time:")
        };
        out.print(&format!("{}\n{}", style.heading(title), table(style, &choices)))?;
    }
    Ok(())
}

fn nothing(device: &DeviceArg) -> String {
    format!(
        "{device} learns nothing: its messages of one length always take the same way\n\
         next: tagperf info --learned --device shm\n"
    )
}

/// The choices of the side that begins, once all messages were exchanged.
fn run(workload: Workload<'_>) -> Result<Vec<LearnedChoice>, Failure> {
    let pin = cpus::two_cpus().filter(|_| !cpus::is_pinning_refused());
    let (to_second, from_first) = channel();
    let (to_first, from_second) = channel();
    let ended = |what: &str, error: LinkError| Failure::Measurement(format!("{what}: {error}"));
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            pin.map_or(Ok(()), |pin| cpus::pin(pin.there))?;
            let link = link(workload.device, &to_first, &from_first);
            link.and_then(|link| answer(&link, workload)).map_err(|e| ended("the second worker", e))
        });
        let first = scope.spawn(move || {
            pin.map_or(Ok(()), |pin| cpus::pin(pin.here))?;
            let link = link(workload.device, &to_second, &from_second);
            link.and_then(|link| begin(&link, workload)).map_err(|e| ended("the first worker", e))
        });
        let panicked = || Failure::Measurement("a thread of the workload panicked".into());
        let choices = first.join().map_err(|_| panicked())?;
        second.join().map_err(|_| panicked())?.and(choices)
    })
}

/// A worker of this thread, connected to the one of the other thread.
fn link(
    device: &DeviceArg,
    to_other: &Sender<String>,
    from_other: &Receiver<String>,
) -> Result<Link<Local>, LinkError> {
    let worker = Unlinked::new(device, WorkerNeeds::default(), HwTagsArg::Off)?;
    let gone = |_| LinkError::Tagmatch("the other worker can't be made".into());
    to_other.send(worker.address()).map_err(|error| gone(error.to_string()))?;
    let address = from_other.recv().map_err(|error| gone(error.to_string()))?;
    let mut link = worker.connect(&address, Attention::default())?;
    link.set_wait_limit(PATIENCE);
    Ok(link)
}

/// The side that decides how many messages there are.
fn begin(link: &Link<Local>, workload: Workload<'_>) -> Result<Vec<LearnedChoice>, LinkError> {
    for (index, &length) in workload.lengths.iter().enumerate() {
        let mut buffers = buffers(workload.window, length);
        let start = Instant::now();
        let learns = index == 0 || !link.learned()?.is_empty();
        loop {
            let goes_on = learns && start.elapsed() < workload.time;
            link.finish(link.send(CONTROL, Buffer::from(vec![u8::from(goes_on)])))?;
            if !goes_on {
                break;
            }
            for _ in 0..EXCHANGES {
                buffers = send(link, buffers)?;
                buffers = receive(link, buffers)?;
            }
        }
    }
    link.learned()
}

/// The side that answers each window.
fn answer(link: &Link<Local>, workload: Workload<'_>) -> Result<(), LinkError> {
    for &length in workload.lengths {
        let mut buffers = buffers(workload.window, length);
        loop {
            let control = link.finish(link.receive(CONTROL, Buffer::zeroed(1)))?.buffer;
            if control.first() != Some(&1) {
                break;
            }
            for _ in 0..EXCHANGES {
                buffers = receive(link, buffers)?;
                buffers = send(link, buffers)?;
            }
        }
    }
    Ok(())
}

/// Buffers that own their memory: senders may write into those.
fn buffers(count: usize, length: usize) -> Vec<Buffer> {
    (0..count).map(|_| Buffer::zeroed(length)).collect()
}

fn send(link: &Link<Local>, buffers: Vec<Buffer>) -> Result<Vec<Buffer>, LinkError> {
    let sends: Vec<_> = buffers.into_iter().map(|buffer| link.send(DATA, buffer)).collect();
    sends.into_iter().map(|send| Ok(link.finish(send)?.buffer)).collect()
}

fn receive(link: &Link<Local>, buffers: Vec<Buffer>) -> Result<Vec<Buffer>, LinkError> {
    let receives: Vec<_> = buffers.into_iter().map(|buffer| link.receive(DATA, buffer)).collect();
    receives.into_iter().map(|receive| Ok(link.finish(receive)?.buffer)).collect()
}

fn table(style: Style, choices: &[LearnedChoice]) -> String {
    let header = format!(
        "{:<9} {:<18} {:<22} {:>7}  {:<22} {:>7} {:>8} {:>8}",
        "messages", "bytes", "way taken now", "ns/B", "other way", "ns/B", "samples", "changes"
    );
    let mut out = style.heading(header) + "\n";
    for choice in choices {
        let [first, second] = choice.ways;
        let [now, other] = if choice.preferred == 0 { [first, second] } else { [second, first] };
        let _ = writeln!(
            out,
            "{:<9} {:<18} {:<22} {:>7}  {:<22} {:>7} {:>8} {:>8}",
            choice.direction.to_string(),
            lengths(choice),
            now.name,
            cost(now),
            other.name,
            cost(other),
            choice.samples,
            choice.changes
        );
    }
    out + "\n"
}

fn lengths(choice: &LearnedChoice) -> String {
    let size = |bytes: usize| show_size(bytes as u64);
    let end = *choice.lengths.end();
    let first = size(*choice.lengths.start());
    match end.checked_add(1) {
        None => format!("{first} and more"),
        Some(next) if next.is_power_of_two() => format!("{first} to {}", size(next)),
        Some(_) => format!("{first} to {}", size(end)),
    }
}

fn cost(way: LearnedWay) -> String {
    way.ns_per_byte.map_or_else(|| "-".into(), |ns| format!("{ns:.3}"))
}

#[cfg(test)]
mod tests {
    use tagmatch::LearnedDirection;

    use super::*;

    #[test]
    fn each_class_of_lengths_has_a_line_with_both_ways_and_what_was_counted() {
        let direction = LearnedDirection::Received;
        let ways = ["both sides copy", "read alone"];
        let mut class = LearnedChoice::new(direction, 65536..=131_071, ways);
        class.ways[1].ns_per_byte = Some(0.0625);
        (class.preferred, class.samples, class.changes) = (1, 96, 3);
        let sent = LearnedDirection::Sent;
        let longest = LearnedChoice::new(sent, 1 << 20..=usize::MAX, ["in fragments", "read"]);
        let printed = table(Style::new(false), &[class, longest]);
        let lines: Vec<Vec<&str>> = printed
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        let of_class = ["received", "64 KiB to 128 KiB", "read alone", "0.062"];
        assert!(lines[1].join(" ").starts_with(&of_class.join(" ")), "{printed}");
        let counts = ["both sides copy", "-", "96", "3"];
        assert!(lines[1].join(" ").ends_with(&counts.join(" ")), "{printed}");
        assert!(
            lines[2].join(" ").contains("1 MiB and more in fragments - read - 0 0"),
            "{printed}"
        );
    }

    #[test]
    fn two_workers_report_what_they_have_learned_of_each_direction() {
        let workload = Workload {
            device: &DeviceArg::Shm,
            lengths: &[1 << 10, 64 << 10],
            window: 2,
            time: Duration::from_millis(1),
        };
        let choices = run(workload).unwrap();
        let has = |direction| choices.iter().any(|choice| choice.direction == direction);
        assert!(has(LearnedDirection::Sent) && has(LearnedDirection::Received), "{choices:?}");
    }
}
