//! The environment of a measurement: the facts above each table, and the same facts for JSON.

use std::time::Instant;

use serde::Serialize;
use tagmatch_results::Distance;

use crate::cpus;
use crate::spec::PinChoice;

/// Facts about this machine and this run that a reader needs in order to judge the figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Environment {
    pub(crate) cpu: String,
    /// CPUs that this process could run on before it was pinned.
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// The cost of one reading of the clock; each round trip has one.
    pub(crate) clock_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock_source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) governor: Option<String>,
    /// The CPU of this side, and that of the other side if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pin: Option<Vec<u32>>,
    #[serde(skip)]
    pub(crate) pin_is_ours: bool,
    /// The distance of both sides' CPUs at the beginning, if both sides are pinned on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) distance_ns: Option<Distance>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) distance: Option<&'static str>,
    pub(crate) warnings: Vec<String>,
}

impl Environment {
    /// Collects the facts of `processes` on this machine: two sides, or one process that sends to
    /// itself. Takes some 50 us. Pinning to `choice` is done elsewhere.
    pub(crate) fn gather(processes: usize, choice: Option<PinChoice>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let pin = choice.and_then(PinChoice::pin);
        let pin = pin.map(|pin| [pin.here, pin.there].into_iter().take(processes).collect());
        Self { pin_is_ours: is_ours(choice), ..Self::gather_ranks(processes, cores, pin) }
    }

    /// Collects the facts of two sides, of which `processes` are on this machine and may use
    /// `cores` CPUs together.
    pub(crate) fn gather_pair(processes: usize, cores: usize, choice: Option<PinChoice>) -> Self {
        let pin = choice.and_then(PinChoice::pin).map(|pin| vec![pin.here, pin.there]);
        Self { pin_is_ours: is_ours(choice), ..Self::gather_ranks(processes, cores, pin) }
    }

    /// Collects the facts of `processes` that may use `cores` CPUs. `pin` has the CPU of each, if
    /// each has one.
    pub(crate) fn gather_ranks(processes: usize, cores: usize, pin: Option<Vec<u32>>) -> Self {
        let governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let clock_source =
            first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let mut environment = Self {
            cpu: cpu_model().unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores,
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            clock_ns: clock_cost_ns(),
            clock_source,
            governor,
            pin,
            pin_is_ours: false,
            distance_ns: None,
            distance: None,
            warnings: Vec::new(),
        };
        environment.warnings = environment.warn(processes, load_average());
        environment
    }

    /// Notes the distance of both sides' CPUs.
    pub(crate) fn note_distance(&mut self, distance: Option<Distance>) {
        self.distance_ns = distance;
        self.distance = distance.map(Distance::name);
    }

    /// Warnings for `processes` that measure: one that sends to itself, two, or the ranks of a job.
    fn warn(&self, processes: usize, load: Option<f64>) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.cores < processes {
            let cores = show_cores(self.cores);
            warnings.push(format!(
                "{cores} for {processes} processes: figures depend on the scheduler"
            ));
        }
        match self.pin.as_deref() {
            None if cpus::is_pinning_refused() => {
                warnings.push("not pinned: the system refuses sched_setaffinity(2)".into());
            }
            None if self.cores > 1 && self.cores >= processes => {
                warnings.push("not pinned: --pin CPU,CPU makes the tail steadier".into())
            }
            Some([here, there]) if here == there && processes > 1 => {
                warnings.push(format!("both sides on CPU {here}: each waits for the other"));
            }
            None | Some(_) => {}
        }
        // Other processes that use half a core are enough to spoil a tail.
        let spare = self.cores as f64 - (processes as f64 - 0.5);
        if let Some(load) = load.filter(|load| spare > 0.0 && *load > spare) {
            let cores = show_cores(self.cores);
            warnings.push(format!("load average {load:.1} on {cores}: other processes run"));
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
            let faster = "cargo run --release -p tagperf is many times faster";
            warnings.push(format!("debug build: {faster}"));
        }
        warnings
    }

    /// The facts about the machine for two sides, warnings last.
    pub(crate) fn facts(&self) -> String {
        self.facts_with(match self.pin.as_deref() {
            Some([here, there]) if self.pin_is_ours => {
                format!("CPU {here} here, CPU {there} there; --pin CPU,CPU or none for others")
            }
            Some([here, there]) => format!("CPU {here} here, CPU {there} there"),
            Some([here, ..]) => format!("CPU {here}"),
            Some([]) | None => "none".into(),
        })
    }

    /// The facts about the machine for the ranks of a job, warnings last.
    pub(crate) fn facts_of_ranks(&self) -> String {
        self.facts_with(self.pin.as_ref().map_or("none".into(), |cpus| {
            let cpus: Vec<_> = cpus.iter().map(u32::to_string).collect();
            format!("CPUs of the ranks: {}", cpus.join(" "))
        }))
    }

    fn facts_with(&self, pinning: String) -> String {
        let mut facts = vec![("pinning", pinning)];
        facts.extend(self.distance_ns.map(|distance| ("distance", distance.show())));
        facts.extend(self.warnings.iter().map(|warning| ("warning", warning.clone())));
        self.machine() + &lines(&facts)
    }

    /// The facts that don't depend on the run.
    pub(crate) fn machine(&self) -> String {
        let governor =
            self.governor.as_deref().map_or(String::new(), |g| format!(", governor {g}"));
        let (cpu, cores, kernel) = (&self.cpu, show_cores(self.cores), &self.kernel);
        let source = self.clock_source.as_deref().unwrap_or("unknown");
        lines(&[
            ("machine", format!("{cpu}, {cores}, Linux {kernel}{governor}")),
            ("clock", format!("{:.1} ns a reading ({source})", self.clock_ns)),
        ])
    }
}

fn is_ours(choice: Option<PinChoice>) -> bool {
    matches!(choice, Some(PinChoice::Ours(_)))
}

fn show_cores(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

/// The title of a table, and the facts about the run.
pub(crate) fn heading(title: &str, facts: &[(&str, String)]) -> String {
    format!("# {title}\n{}", lines(facts))
}

pub(crate) fn lines(facts: &[(&str, String)]) -> String {
    facts.iter().map(|(name, what)| format!("# {name:<11} {what}\n")).collect()
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
    fn the_block() {
        let block = heading("title", &[("device", "shm".into())]) + &environment().facts();
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
        let debug = usize::from(cfg!(debug_assertions));
        let on =
            |pin: Option<&[u32]>| Environment { pin: pin.map(<[u32]>::to_vec), ..environment() };
        assert_eq!(environment().warn(2, Some(1.0)).len(), debug);
        assert!(on(None).warn(2, None)[0].starts_with("not pinned"));
        assert!(on(Some(&[1, 1])).warn(2, None)[0].contains("CPU 1"));
        let one_cpu = |pin: &[u32]| Environment { cores: 1, ..on(Some(pin)) };
        assert_eq!(one_cpu(&[0]).warn(1, Some(0.0)).len(), debug, "nobody to wait for");
        let unpinned = Environment { cores: 1, ..on(None) };
        assert_eq!(unpinned.warn(1, None).len(), debug, "nor anywhere else to run");
        assert_eq!(one_cpu(&[0, 0]).warn(2, None).len(), 2 + debug);
        assert!(environment().warn(2, Some(3.0))[0].starts_with("load average"));
        let slow = Environment { governor: Some("powersave".into()), ..one_cpu(&[0, 1]) };
        assert_eq!(slow.warn(2, Some(9.0)).len(), 2 + debug, "others run in any case");
        let many = on(None).warn(5, None);
        assert!(many[0].starts_with("4 cores for 5 processes") && many.len() == 1 + debug);
    }

    #[test]
    fn a_machine_is_found() {
        let environment = Environment::gather(2, None);
        assert!(environment.cores > 0 && environment.clock_ns > 0.0 && !environment.cpu.is_empty());
    }
}
