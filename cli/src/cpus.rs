//! The CPUs that this process may run on, and keeping it on one.

use crate::failure::Failure;
use crate::spec::{Pin, PinChoice};

/// The CPUs that this process may run on.
pub fn cpus() -> Vec<u32> {
    // The call fails on a machine with more processors than its set holds.
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        return allowed_in(&status);
    };
    let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

/// The CPUs that the text of /proc/PID/status allows.
fn allowed_in(status: &str) -> Vec<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = list.unwrap_or_default().trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// The first two CPUs, if there are two.
pub(crate) fn two_cpus() -> Option<Pin> {
    match cpus()[..] {
        [here, there, ..] => Some(Pin { here, there }),
        _ => None,
    }
}

/// Whether the system refuses to pin this process to any CPU, as a sandbox may.
pub(crate) fn is_pinning_refused() -> bool {
    use rustix::thread::{sched_getaffinity, sched_setaffinity};
    sched_getaffinity(None).is_ok_and(|own| sched_setaffinity(None, &own).is_err())
}

/// The choice of CPUs, if the system lets this process be pinned. What the user has chosen stays:
/// that the system refuses it is an error then.
pub(crate) fn possible(
    choice: Option<PinChoice>,
    is_refused: impl FnOnce() -> bool,
) -> Option<PinChoice> {
    match choice {
        Some(PinChoice::Wanted(_) | PinChoice::Free) => choice,
        Some(PinChoice::Ours(_)) | None => {
            if is_refused() {
                Some(PinChoice::Free)
            } else {
                choice
            }
        }
    }
}

/// Pins this process to one CPU, threads that it starts later too.
pub(crate) fn pin(cpu: u32) -> Result<(), Failure> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let open = cpus();
    let at = usize::try_from(cpu).unwrap_or(usize::MAX);
    if open.contains(&cpu) && at >= CpuSet::MAX_CPU {
        let right = format!("a CPU below {}", CpuSet::MAX_CPU);
        return Err(Failure::usage(
            format!("--pin: CPU {cpu} is beyond what tagperf can name"),
            right,
        ));
    }
    if open.contains(&cpu) {
        let mut set = CpuSet::new();
        set.set(at);
        if sched_setaffinity(None, &set).is_ok() {
            return Ok(());
        }
    }
    if is_pinning_refused() {
        let why = "the system refuses sched_setaffinity(2) to this process";
        return Err(Failure::usage(format!("--pin: {why}"), "--pin none"));
    }
    let open: Vec<_> = open.iter().map(u32::to_string).collect();
    Err(Failure::usage(format!("--pin: CPU {cpu} is not open to this process"), shorten(&open)))
}

fn shorten(cpus: &[String]) -> String {
    match cpus {
        [first, .., last] if cpus.len() > 8 => format!("one of {first} to {last}"),
        _ => format!("one of {}", cpus.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpus_of_a_machine_with_more_than_a_thousand_are_read_as_text() {
        let status =
            "Name:\ttagperf\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,7,1022-1025\nMems:\t0\n";
        assert_eq!(allowed_in(status), [0, 1, 2, 3, 7, 1022, 1023, 1024, 1025]);
        assert!(allowed_in("").is_empty() && allowed_in("Cpus_allowed_list:\tx-y,\n").is_empty());
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(allowed_in(&own), cpus());
    }

    #[test]
    fn a_cpu_that_is_not_open_is_refused() {
        assert!(!cpus().is_empty());
        assert!(pin(999_999).unwrap_err().to_string().contains("; use "));
    }

    #[test]
    fn where_pinning_is_refused_only_a_choice_of_the_user_stays() {
        let pin = Pin { here: 0, there: 1 };
        let free = Some(PinChoice::Free);
        let ours = Some(PinChoice::Ours(pin));
        let wanted = Some(PinChoice::Wanted(pin));
        for (choice, then) in [(ours, free), (None, free), (free, free), (wanted, wanted)] {
            assert_eq!(possible(choice, || true), then);
            assert_eq!(possible(choice, || false), choice);
        }
    }
}
