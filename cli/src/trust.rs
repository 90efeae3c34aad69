//! What a measurement rests on: the block above each table, and the same facts for JSON.

use std::time::Instant;

use serde::Serialize;

use crate::args::{Pin, PinChoice};
use crate::failure::Failure;

/// Facts about this machine and this run that a reader needs to trust the figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trust {
    pub(crate) cpu: String,
    /// CPUs that this process may run on, before it was pinned.
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// Cost of one reading of the clock; a round trip holds one.
    pub(crate) clock_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock_source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) governor: Option<String>,
    /// This side's CPU and the other's, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pin: Option<Vec<u32>>,
    #[serde(skip)]
    pub(crate) pin_is_ours: bool,
    pub(crate) warnings: Vec<String>,
}

impl Trust {
    /// Looks around; `pin` is what the user wants, and is done elsewhere. Takes some 50 us.
    pub(crate) fn gather(choice: Option<PinChoice>) -> Self {
        Self::gather_for(2, choice)
    }

    /// The same for a process that sends to itself: nothing is said of another side.
    pub(crate) fn gather_alone(choice: Option<PinChoice>) -> Self {
        Self::gather_for(1, choice)
    }

    fn gather_for(processes: usize, choice: Option<PinChoice>) -> Self {
        let pin = choice.and_then(PinChoice::pin);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let clock_source =
            first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let mut trust = Self {
            cpu: cpu_model().unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores,
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            clock_ns: clock_cost_ns(),
            clock_source,
            governor,
            pin: pin.map(|pin| [pin.here, pin.there].into_iter().take(processes).collect()),
            pin_is_ours: matches!(choice, Some(PinChoice::Ours(_))),
            warnings: Vec::new(),
        };
        trust.warnings = trust.warn(processes, pin, load_average());
        trust
    }

    /// `processes` measure: one that sends to itself, or two.
    fn warn(&self, processes: usize, pin: Option<Pin>, load: Option<f64>) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.cores < processes {
            warnings.push("1 core for 2 processes: figures are the scheduler's".into());
        }
        match pin {
            None if self.cores > 1 => {
                warnings.push("not pinned: --pin CPU,CPU steadies the tail".into())
            }
            Some(pin) if pin.here == pin.there && processes > 1 => {
                warnings.push(format!("both sides on CPU {}: each waits for the other", pin.here));
            }
            None | Some(_) => {}
        }
        // Half a core's worth of others is enough to spoil a tail.
        if let Some(load) = load.filter(|load| *load > self.cores as f64 - (processes as f64 - 0.5))
        {
            warnings.push(format!("load average {load:.1} on {} cores: others run", self.cores));
        }
        if let Some(governor) = self.governor.as_deref().filter(|name| *name != "performance") {
            warnings.push(format!("CPU governor {governor}: performance would be steadier"));
        }
        if let Some(source) = self.clock_source.as_deref()
            && self.clock_ns > 200.0
        {
            warnings.push(format!("clock source {source} takes {:.0} ns a reading", self.clock_ns));
        }
        if cfg!(debug_assertions) {
            warnings
                .push("debug build: cargo run --release -p tagperf is many times faster".into());
        }
        warnings
    }

    /// The machine's part of the block above a table, warnings last.
    pub(crate) fn facts(&self) -> String {
        let pinning = match self.pin.as_deref() {
            Some([here, there]) if self.pin_is_ours => {
                format!("CPU {here} here, CPU {there} there; --pin CPU,CPU or none for others")
            }
            Some([here, there]) => format!("CPU {here} here, CPU {there} there"),
            Some([here, ..]) => format!("CPU {here}"),
            Some([]) | None => "none".into(),
        };
        let mut facts = vec![("pinning", pinning)];
        facts.extend(self.warnings.iter().map(|warning| ("warning", warning.clone())));
        self.machine() + &lines(&facts)
    }

    /// What does not depend on the run.
    pub(crate) fn machine(&self) -> String {
        let governor =
            self.governor.as_deref().map_or(String::new(), |g| format!(", governor {g}"));
        let (cpu, cores, kernel) = (&self.cpu, self.cores, &self.kernel);
        let source = self.clock_source.as_deref().unwrap_or("unknown");
        lines(&[
            ("machine", format!("{cpu}, {cores} cores, Linux {kernel}{governor}")),
            ("clock", format!("{:.1} ns a reading ({source})", self.clock_ns)),
        ])
    }
}

/// The run's part of the block above a table.
pub(crate) fn heading(title: &str, facts: &[(&str, String)]) -> String {
    format!("# {title}\n{}", lines(facts))
}

pub(crate) fn lines(facts: &[(&str, String)]) -> String {
    facts.iter().map(|(name, what)| format!("# {name:<11} {what}\n")).collect()
}

/// The first two CPUs that are open to this process, if there are two.
pub(crate) fn two_cpus() -> Option<Pin> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let mut next = || u32::try_from(cpus.next()?).ok();
    Some(Pin { here: next()?, there: next()? })
}

/// Keeps this process on one CPU; new threads too.
pub(crate) fn pin(cpu: u32) -> Result<(), Failure> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let known = usize::try_from(cpu).ok().filter(|&cpu| cpu < CpuSet::MAX_CPU);
    let mut set = CpuSet::new();
    let pinned = known.filter(|&cpu| allowed.is_set(cpu)).is_some_and(|cpu| {
        set.set(cpu);
        sched_setaffinity(None, &set).is_ok()
    });
    if pinned {
        return Ok(());
    }
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let cpus: Vec<_> = cpus.map(|cpu| cpu.to_string()).collect();
    let right = format!("{} would be right", shorten(&cpus));
    Err(Failure::Usage(format!("--pin: CPU {cpu} is not open to this process; {right}")))
}

fn shorten(cpus: &[String]) -> String {
    match cpus {
        [first, .., last] if cpus.len() > 8 => format!("one of {first} to {last}"),
        _ => format!("one of {}", cpus.join(", ")),
    }
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

/// The median of many readings, each the difference of two neighbours.
fn clock_cost_ns() -> f64 {
    const BLOCKS: usize = 101;
    const READINGS: u32 = 20;
    let mut costs: Vec<f64> = (0..BLOCKS)
        .map(|_| {
            let start = Instant::now();
            for _ in 1..READINGS {
                std::hint::black_box(Instant::now());
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    (costs[BLOCKS / 2] * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust() -> Trust {
        Trust {
            cpu: "Some CPU".into(),
            cores: 4,
            kernel: "6.1".into(),
            clock_ns: 21.04,
            clock_source: Some("tsc".into()),
            governor: Some("performance".into()),
            pin: Some(vec![0, 2]),
            pin_is_ours: false,
            warnings: vec!["beware".into()],
        }
    }

    #[test]
    fn the_block() {
        let block = heading("title", &[("device", "shm".into())]) + &trust().facts();
        assert_eq!(
            block,
            "# title\n\
             # device      shm\n\
             # machine     Some CPU, 4 cores, Linux 6.1, governor performance\n\
             # clock       21.0 ns a reading (tsc)\n\
             # pinning     CPU 0 here, CPU 2 there\n\
             # warning     beware\n"
        );
    }

    #[test]
    fn warnings() {
        let pinned = Some(Pin { here: 0, there: 1 });
        let debug = usize::from(cfg!(debug_assertions));
        assert_eq!(trust().warn(2, pinned, Some(1.0)).len(), debug);
        assert!(trust().warn(2, None, None)[0].starts_with("not pinned"));
        assert!(trust().warn(2, Some(Pin { here: 1, there: 1 }), None)[0].contains("CPU 1"));
        let one_cpu = Trust { cores: 1, ..trust() };
        let both_on_it = Some(Pin { here: 0, there: 0 });
        assert_eq!(one_cpu.warn(1, both_on_it, Some(0.0)).len(), debug, "nobody to wait for");
        assert_eq!(one_cpu.warn(1, None, None).len(), debug, "nor anywhere else to run");
        assert_eq!(one_cpu.warn(2, both_on_it, None).len(), 2 + debug);
        assert!(trust().warn(2, pinned, Some(3.0))[0].starts_with("load average"));
        let one = Trust { cores: 1, governor: Some("powersave".into()), ..trust() };
        assert_eq!(one.warn(2, pinned, Some(0.0)).len(), 3 + debug);
    }

    #[test]
    fn a_machine_is_found() {
        let trust = Trust::gather(None);
        assert!(trust.cores > 0 && trust.clock_ns > 0.0 && !trust.cpu.is_empty());
        assert!(pin(999_999).unwrap_err().to_string().contains("would be right"));
    }
}
