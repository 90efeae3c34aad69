//! The distance between two CPUs: how long a cache line takes from one to the other.
//!
//! A virtual machine's CPUs are moved while it runs, so that two of them are threads of one core
//! now and far apart a minute later. Latencies differ by a factor of three and more between the
//! two.

use serde::{Deserialize, Serialize};

use crate::show::tenths;

/// Below this time, in ns, two CPUs are threads of one core.
pub const ONE_CORE_BELOW_NS: f64 = 33.0;
/// Below this time, in ns, two CPUs share a cache.
pub const ONE_CACHE_BELOW_NS: f64 = 90.0;

/// The time of a cache line one way, in ns.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Distance(pub(crate) f64);

impl Distance {
    /// A distance of so many ns, rounded to tenths.
    pub fn new(ns: f64) -> Self {
        Self(tenths(ns))
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self.0 {
            ns if ns < ONE_CORE_BELOW_NS => "one core",
            ns if ns < ONE_CACHE_BELOW_NS => "one cache",
            _ => "apart",
        }
    }

    /// A fact about a run.
    pub fn show(self) -> String {
        format!("{}: a cache line takes {:.0} ns each way", self.name(), self.0)
    }

    /// A warning if the distance changed from `self` to `after`.
    pub fn change(self, after: Self) -> Option<String> {
        (self.name() != after.name()).then(|| {
            let before = self.name();
            let now = after.name();
            format!(
                "the CPUs' distance changed within this row: {before} ({:.0} ns), then {now} ({:.0} ns)",
                self.0, after.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_names_and_changes_are_said() {
        let names = [18.2, 47.0, 134.0].map(|ns| Distance(ns).name());
        assert_eq!(names, ["one core", "one cache", "apart"]);
        assert_eq!(Distance(110.0).change(Distance(150.0)), None);
        let change = Distance(18.2).change(Distance(134.0)).unwrap();
        assert!(change.ends_with("one core (18 ns), then apart (134 ns)"), "{change}");
        assert_eq!(Distance(134.4).show(), "apart: a cache line takes 134 ns each way");
    }
}
