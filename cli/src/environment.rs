//! Gathers the environment of a measurement.

use std::time::Instant;

use tagmatch_results::Environment;
use tagmatch_results::environment::show_cores;

use crate::cpus;
use crate::spec::PinChoice;

/// Collects the facts of `processes` on this machine: two sides, or one process that sends to
/// itself. Takes some 50 us. Pinning to `choice` is done elsewhere.
pub(crate) fn gather(processes: usize, choice: Option<PinChoice>) -> Environment {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let pin = choice.and_then(PinChoice::pin);
    let pin = pin.map(|pin| [pin.here, pin.there].into_iter().take(processes).collect());
    Environment { pin_is_ours: is_ours(choice), ..gather_ranks(processes, cores, pin) }
}

/// Collects the facts of two sides, of which `processes` are on this machine and may use
/// `cores` CPUs together.
pub(crate) fn gather_pair(
    processes: usize,
    cores: usize,
    choice: Option<PinChoice>,
) -> Environment {
    let pin = choice.and_then(PinChoice::pin).map(|pin| vec![pin.here, pin.there]);
    Environment { pin_is_ours: is_ours(choice), ..gather_ranks(processes, cores, pin) }
}

/// Collects the facts of `processes` that may use `cores` CPUs. `pin` has the CPU of each, if
/// each has one.
pub(crate) fn gather_ranks(processes: usize, cores: usize, pin: Option<Vec<u32>>) -> Environment {
    let governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let clock_source =
        first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let mut environment = Environment {
        cpu: cpu_model().unwrap_or_else(|| std::env::consts::ARCH.into()),
        cores,
        kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        clock_ns: clock_cost_ns(),
        clock_source,
        governor,
        pin,
        ..Environment::default()
    };
    environment.warnings = warn(&environment, processes, load_average());
    environment
}

/// Warnings for `processes` that measure: one that sends to itself, two, or the ranks of a job.
fn warn(environment: &Environment, processes: usize, load: Option<f64>) -> Vec<String> {
    let mut warnings = Vec::new();
    if environment.cores < processes {
        let cores = show_cores(environment.cores);
        warnings
            .push(format!("{cores} for {processes} processes: figures depend on the scheduler"));
    }
    match environment.pin.as_deref() {
        None if cpus::is_pinning_refused() => {
            warnings.push("not pinned: the system refuses sched_setaffinity(2)".into());
        }
        None if environment.cores > 1 && environment.cores >= processes => {
            warnings.push("not pinned: --pin CPU,CPU makes the tail steadier".into())
        }
        Some([here, there]) if here == there && processes > 1 => {
            warnings.push(format!("both sides on CPU {here}: each waits for the other"));
        }
        None | Some(_) => {}
    }
    // Other processes that use half a core are enough to spoil a tail.
    let spare = environment.cores as f64 - (processes as f64 - 0.5);
    if let Some(load) = load.filter(|load| spare > 0.0 && *load > spare) {
        let cores = show_cores(environment.cores);
        warnings.push(format!("load average {load:.1} on {cores}: other processes run"));
    }
    if let Some(governor) = environment.governor.as_deref().filter(|name| *name != "performance") {
        warnings.push(format!("CPU governor {governor}: performance would be steadier"));
    }
    if let Some(source) = environment.clock_source.as_deref()
        && environment.clock_ns > 200.0
    {
        warnings
            .push(format!("clock source {source} takes {:.0} ns a reading", environment.clock_ns));
    }
    if cfg!(debug_assertions) {
        let faster = "cargo run --release -p tagperf is many times faster";
        warnings.push(format!("debug build: {faster}"));
    }
    warnings
}

fn is_ours(choice: Option<PinChoice>) -> bool {
    matches!(choice, Some(PinChoice::Ours(_)))
}

fn first_line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn load_average() -> Option<f64> {
    first_line("/proc/loadavg")?.split(' ').next()?.parse().ok()
}

/// The cost of reading the clock: the median of blocks of readings.
fn clock_cost_ns() -> f64 {
    const BLOCKS: usize = 101;
    const READINGS: u32 = 20;
    let reading_ns = |_| {
        let start = Instant::now();
        for _ in 1..READINGS {
            std::hint::black_box(Instant::now());
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
    };
    let mut costs: Vec<f64> = (0..BLOCKS).map(reading_ns).collect();
    costs.sort_by(f64::total_cmp);
    (costs[BLOCKS / 2] * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment {
            cpu: "Some CPU".into(),
            cores: 4,
            kernel: "6.1".into(),
            clock_ns: 21.04,
            clock_source: Some("tsc".into()),
            governor: Some("performance".into()),
            pin: Some(vec![0, 2]),
            pin_is_ours: false,
            distance_ns: None,
            distance: None,
            warnings: vec!["beware".into()],
        }
    }

    #[test]
    fn warnings() {
        let debug = usize::from(cfg!(debug_assertions));
        let on =
            |pin: Option<&[u32]>| Environment { pin: pin.map(<[u32]>::to_vec), ..environment() };
        assert_eq!(warn(&environment(), 2, Some(1.0)).len(), debug);
        assert!(warn(&on(None), 2, None)[0].starts_with("not pinned"));
        assert!(warn(&on(Some(&[1, 1])), 2, None)[0].contains("CPU 1"));
        let one_cpu = |pin: &[u32]| Environment { cores: 1, ..on(Some(pin)) };
        assert_eq!(warn(&one_cpu(&[0]), 1, Some(0.0)).len(), debug, "nobody to wait for");
        let unpinned = Environment { cores: 1, ..on(None) };
        assert_eq!(warn(&unpinned, 1, None).len(), debug, "nor anywhere else to run");
        assert_eq!(warn(&one_cpu(&[0, 0]), 2, None).len(), 2 + debug);
        assert!(warn(&environment(), 2, Some(3.0))[0].starts_with("load average"));
        let slow = Environment { governor: Some("powersave".into()), ..one_cpu(&[0, 1]) };
        assert_eq!(warn(&slow, 2, Some(9.0)).len(), 2 + debug, "others run in any case");
        let many = warn(&on(None), 5, None);
        assert!(many[0].starts_with("4 cores for 5 processes") && many.len() == 1 + debug);
    }

    #[test]
    fn a_machine_is_found() {
        let environment = gather(2, None);
        assert!(environment.cores > 0 && environment.clock_ns > 0.0 && !environment.cpu.is_empty());
    }
}
