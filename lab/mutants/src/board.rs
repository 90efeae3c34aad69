//! Asks the tests about each mutant, and counts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use crate::copy::Placed;
use crate::programs::{Ending, Program};

/// How many mutants are asked about at a time.
const AT_A_TIME: usize = 2;

/// What the tests of its room say about a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Noticed,
    /// A test did not end.
    Hung,
    /// Tests reach it, and all pass.
    Missed,
    /// No test reaches it.
    Unreached,
    /// The time was over.
    NotAsked,
}

/// Counts of one room.
#[derive(Debug, Default, Clone, Copy)]
pub struct Row {
    pub noticed: usize,
    pub hung: usize,
    pub missed: usize,
    pub unreached: usize,
    pub not_asked: usize,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { noticed, hung, missed, unreached, not_asked } = self;
        let asked = noticed + hung + missed + unreached;
        let share = 100 * (noticed + hung) / asked.max(1);
        write!(
            f,
            "{} of {asked} noticed ({share} %), {hung} of them by a test that did not end; ",
            noticed + hung
        )?;
        write!(f, "{missed} missed, {unreached} in code that no test runs, {not_asked} not asked")
    }
}

/// Asks the programs of each mutant's package about it, until the time is over.
#[must_use]
pub fn ask<'a>(
    mutants: &'a [Placed],
    programs: &[Program],
    deadline: Option<Instant>,
) -> Vec<(&'a Placed, Verdict)> {
    let next = Mutex::new(mutants.iter());
    let asked = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(placed) = next.lock().expect("no thread panics with it").next() else {
                        return;
                    };
                    let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                    let verdict =
                        if is_over { Verdict::NotAsked } else { verdict(placed, programs) };
                    if matches!(verdict, Verdict::Missed | Verdict::Unreached) {
                        println!("{verdict:?} {} {}", placed.package, placed.mutant.name);
                    }
                    asked.lock().expect("no thread panics with it").push((placed, verdict));
                }
            });
        }
    });
    asked.into_inner().expect("no thread has panicked")
}

fn verdict(placed: &Placed, programs: &[Program]) -> Verdict {
    let number = placed.number;
    let reaching = || {
        let of_room = programs.iter().filter(|program| program.built.package == placed.package);
        of_room.filter(move |program| program.reaches(number))
    };
    if reaching().next().is_none() {
        return Verdict::Unreached;
    }
    let named = reaching().map(|program| program.ask_named(number));
    let all = reaching().map(|program| program.ask_all(number));
    match named.chain(all).find(|ending| *ending != Ending::Passed) {
        None => Verdict::Missed,
        Some(Ending::TookTooLong) => Verdict::Hung,
        Some(_) => Verdict::Noticed,
    }
}

/// The counts by package.
#[must_use]
pub fn rows(asked: &[(&Placed, Verdict)]) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (placed, verdict) in asked {
        let row = rows.entry(placed.package.clone()).or_default();
        match verdict {
            Verdict::Noticed => row.noticed += 1,
            Verdict::Hung => row.hung += 1,
            Verdict::Missed => row.missed += 1,
            Verdict::Unreached => row.unreached += 1,
            Verdict::NotAsked => row.not_asked += 1,
        }
    }
    rows
}
