//! The CPUs that this process may run on, and keeping it on one.

use crate::failure::Failure;
use crate::spec::{Pin, PinChoice};

/// The CPUs that this process may run on.
pub(crate) fn cpus() -> Vec<u32> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
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
    let (open, mut set) = (cpus(), CpuSet::new());
    if let (true, Ok(at)) = (open.contains(&cpu), usize::try_from(cpu)) {
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
    fn a_cpu_that_is_not_open_is_refused() {
        assert!(!cpus().is_empty());
        assert!(pin(999_999).unwrap_err().to_string().contains("would be right"));
    }

    #[test]
    fn where_pinning_is_refused_only_a_choice_of_the_user_stays() {
        let (pin, free) = (Pin { here: 0, there: 1 }, Some(PinChoice::Free));
        let (ours, wanted) = (Some(PinChoice::Ours(pin)), Some(PinChoice::Wanted(pin)));
        for (choice, then) in [(ours, free), (None, free), (free, free), (wanted, wanted)] {
            assert_eq!(possible(choice, || true), then);
            assert_eq!(possible(choice, || false), choice);
        }
    }
}
