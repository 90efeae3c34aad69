//! The environment of a measurement: the facts above each table, and the same facts for JSON.

use serde::{Deserialize, Serialize};

use crate::Distance;

/// Facts about this machine and this run that a reader needs in order to judge the figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// The model of the processor.
    pub cpu: String,
    /// CPUs that this process could run on before it was pinned.
    pub cores: usize,
    /// The release of Linux.
    pub kernel: String,
    /// The cost of one reading of the clock; each round trip has one.
    pub clock_ns: f64,
    /// The kernel's clock source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// The CPU governor, where the kernel tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The CPU of this side, and that of the other side if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<Vec<u32>>,
    /// Whether the user didn't say which CPUs.
    #[serde(skip)]
    pub pin_is_ours: bool,
    /// The distance of both sides' CPUs at the beginning, if both sides are pinned on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance_ns: Option<Distance>,
    /// The distance in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<String>,
    /// Conditions that may distort the figures.
    pub warnings: Vec<String>,
}

impl Environment {
    /// Notes the distance of both sides' CPUs.
    pub fn note_distance(&mut self, distance: Option<Distance>) {
        self.distance_ns = distance;
        self.distance = distance.map(|distance| distance.name().to_owned());
    }

    /// The facts about the machine for two sides, warnings last.
    pub fn facts(&self) -> String {
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
    pub fn facts_of_ranks(&self) -> String {
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
    pub fn machine(&self) -> String {
        let governor =
            self.governor.as_deref().map_or(String::new(), |g| format!(", governor {g}"));
        let cpu = &self.cpu;
        let cores = show_cores(self.cores);
        let kernel = &self.kernel;
        let source = self.clock_source.as_deref().unwrap_or("unknown");
        lines(&[
            ("machine", format!("{cpu}, {cores}, Linux {kernel}{governor}")),
            ("clock", format!("{:.1} ns a reading ({source})", self.clock_ns)),
        ])
    }
}

/// The title of a table, and the facts about the run.
pub fn heading(title: &str, facts: &[(&str, String)]) -> String {
    format!("# {title}\n{}", lines(facts))
}

/// Facts, one a line, as comments.
pub fn lines(facts: &[(&str, String)]) -> String {
    facts.iter().map(|(name, what)| format!("# {name:<11} {what}\n")).collect()
}

/// A number of cores, in words.
pub fn show_cores(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block() {
        let environment = Environment {
            cpu: "Some CPU".into(),
            cores: 4,
            kernel: "6.1".into(),
            clock_ns: 21.04,
            clock_source: Some("tsc".into()),
            governor: Some("performance".into()),
            pin: Some(vec![0, 2]),
            warnings: vec!["beware".into()],
            ..Environment::default()
        };
        let block = heading("title", &[("device", "shm".into())]) + &environment.facts();
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
}
