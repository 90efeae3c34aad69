//! The record of a run of `ci/peers`, and the distance under which each result counts.
//!
//! Lines of fields that tabs separate:
//!
//! ```text
//! run     NAME VALUE                        parameters of the run
//! plan    GROUP PROGRAM ENOUGH CASE...      a turn, and the samples of each case that are enough
//! version PROGRAM VERSION
//! failed  PROGRAM GROUP REASON              from then on the turn is left out
//! result  PROGRAM GROUP CASE MIN P50 P90 BATCHES BEFORE AFTER
//! ```

use std::fmt;

use serde::Serialize;
use tagmatch_results::{ONE_CACHE_BELOW_NS, ONE_CORE_BELOW_NS};

use crate::case::{Case, Outcome};

/// Two probes of one distance differ by this factor at most.
pub(crate) const PROBES_DIFFER_MAX: f64 = 1.5;

/// How far apart both cores were while a case was measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) enum Distance {
    #[serde(rename = "one core")]
    OneCore,
    #[serde(rename = "one cache")]
    OneCache,
    #[serde(rename = "apart")]
    Apart,
    /// The case does not depend on the distance, so no probes stand around it.
    #[serde(rename = "any distance")]
    Any,
}

impl Distance {
    pub(crate) const ALL: [Distance; 4] =
        [Distance::OneCore, Distance::OneCache, Distance::Apart, Distance::Any];

    fn of_probe(nanoseconds: f64) -> Self {
        match nanoseconds {
            ns if ns < ONE_CORE_BELOW_NS => Distance::OneCore,
            ns if ns < ONE_CACHE_BELOW_NS => Distance::OneCache,
            _ => Distance::Apart,
        }
    }

    /// The distance that both probes saw; `None` if they do not agree.
    fn of_probes([before, after]: [f64; 2]) -> Option<Self> {
        if before == 0.0 && after == 0.0 {
            return Some(Distance::Any);
        }
        let distance = Distance::of_probe(before);
        let least = before.min(after);
        let most = before.max(after);
        let agree = distance == Distance::of_probe(after) && most <= PROBES_DIFFER_MAX * least;
        agree.then_some(distance)
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Distance::OneCore => "one core",
            Distance::OneCache => "one cache",
            Distance::Apart => "apart",
            Distance::Any => "any distance",
        })
    }
}

/// Cases that a program runs one after the other.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) group: String,
    pub(crate) program: String,
    /// Samples of a case, at one distance, that are enough.
    pub(crate) enough: usize,
    pub(crate) cases: Vec<Case>,
    /// Whether the turn was given up.
    pub(crate) failed: bool,
}

/// Figures of one case in one turn, in ns; of memory, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) program: String,
    pub(crate) group: String,
    pub(crate) case: String,
    /// `None`: the probes do not agree, and the sample counts nowhere.
    pub(crate) distance: Option<Distance>,
    #[serde(rename = "probes_ns")]
    pub(crate) probes: [f64; 2],
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) batches: u64,
}

/// All lines of a record.
#[derive(Default, Debug)]
pub(crate) struct Record {
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) versions: Vec<(String, String)>,
    /// In the order in which the tables show them.
    pub(crate) turns: Vec<Turn>,
    pub(crate) failures: Vec<[String; 3]>,
    pub(crate) samples: Vec<Sample>,
}

impl Record {
    pub(crate) fn parse(text: &str) -> Outcome<Self> {
        let mut record = Record::default();
        text.lines().try_for_each(|line| record.push(line))?;
        Ok(record)
    }

    /// Adds a line.
    pub(crate) fn push(&mut self, line: &str) -> Outcome<()> {
        let added = self.add(line);
        added.map_err(|why| format!("{why} in the record's line: {line}").into())
    }

    fn add(&mut self, line: &str) -> Outcome<()> {
        let fields: Vec<_> = line.split('\t').collect();
        let owned = |text: &str| text.to_owned();
        match fields[..] {
            ["run", name, value] => self.settings.push((owned(name), owned(value))),
            ["version", program, version] => self.versions.push((owned(program), owned(version))),
            ["plan", group, program, enough, ref cases @ ..] => self.turns.push(Turn {
                group: owned(group),
                program: owned(program),
                enough: enough.parse()?,
                cases: cases.iter().map(|case| case.parse()).collect::<Result<_, _>>()?,
                failed: self.is_failed(program, group),
            }),
            ["failed", program, group, reason] => {
                self.failures.push([program, group, reason].map(owned));
                let is_of = |turn: &&mut Turn| {
                    turn.program == program && (group == "all" || turn.group == group)
                };
                self.turns.iter_mut().filter(is_of).for_each(|turn| turn.failed = true);
            }
            ["result", program, group, case, min, p50, p90, batches, before, after] => {
                let probes = [before.parse()?, after.parse()?];
                self.samples.push(Sample {
                    program: owned(program),
                    group: owned(group),
                    case: owned(case),
                    min: min.parse()?,
                    p50: p50.parse()?,
                    p90: p90.parse()?,
                    batches: batches.parse()?,
                    probes,
                    distance: Distance::of_probes(probes),
                });
            }
            _ => return Err("no known fields".into()),
        }
        Ok(())
    }

    /// Whether `program` isn't run for `group` any more.
    pub(crate) fn is_failed(&self, program: &str, group: &str) -> bool {
        self.failures
            .iter()
            .any(|[failed, of, _]| failed == program && (of == "all" || of == group))
    }

    /// Samples of `case` by `program` at `distance`.
    pub(crate) fn samples_of<'a>(
        &'a self,
        distance: Distance,
        program: &'a str,
        group: &'a str,
        case: &'a str,
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |s| {
            s.distance == Some(distance)
                && s.program == program
                && s.group == group
                && s.case == case
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_probes_have_to_see_one_distance() {
        for (probes, distance) in [
            ([18.0, 19.0], Some(Distance::OneCore)),
            ([47.0, 52.0], Some(Distance::OneCache)),
            ([130.0, 110.0], Some(Distance::Apart)),
            ([0.0, 0.0], Some(Distance::Any)),
            ([18.0, 47.0], None),
            ([47.0, 130.0], None),
            ([130.0, 47.0], None),
            ([110.0, 210.0], None),
            ([35.0, 80.0], None),
        ] {
            assert_eq!(Distance::of_probes(probes), distance, "{probes:?}");
        }
    }

    #[test]
    fn a_line_that_nobody_writes_is_an_error() {
        for wrong in ["", "result\tucx", "plan\trate\tucx\tmany", "run\ta\tb\tc"] {
            let error = Record::parse(&format!("{wrong}\n")).unwrap_err().to_string();
            assert!(error.ends_with(wrong), "{error}");
        }
    }
}
