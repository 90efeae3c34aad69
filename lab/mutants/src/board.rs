//! Asks the tests about each mutant, and counts.

use std::fmt;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use crate::copy::Placed;
use crate::programs::Program;
use crate::run::Ending;

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
    /// No test notices it, but not all tests could be asked.
    Unsure,
    /// The time was over.
    NotAsked,
}

/// The programs of tests of a room.
#[derive(Debug, Default)]
pub struct Asked {
    pub programs: Vec<Program>,
    /// Whether the room has no other programs of tests.
    pub is_complete: bool,
}

/// Counts of one room.
#[derive(Debug, Default, Clone, Copy)]
pub struct Row {
    pub noticed: usize,
    pub hung: usize,
    pub missed: usize,
    pub unreached: usize,
    /// Unsure ones are among them.
    pub not_asked: usize,
}

impl Row {
    /// How many have an answer.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.noticed + self.hung + self.missed + self.unreached
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { noticed, hung, missed, unreached, not_asked } = self;
        let asked = self.asked();
        let share = 100 * (noticed + hung) / asked.max(1);
        write!(
            f,
            "{} of {asked} noticed ({share} %), {hung} of them by a test that did not end; ",
            noticed + hung
        )?;
        write!(f, "{missed} missed, {unreached} in code that no test runs, {not_asked} not asked")
    }
}

/// Asks the programs of a room about its mutants, until the deadline. One that is missed is asked
/// about so many times in all.
#[must_use]
pub fn ask(mutants: &[&Placed], tests: &Asked, times: usize, deadline: Instant) -> Row {
    let next = Mutex::new(mutants.iter());
    let verdicts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(placed) = next.lock().expect("no thread panics with it").next() else {
                        return;
                    };
                    let verdict = (0..times.max(1))
                        .map(|_| verdict(placed.number, tests, deadline))
                        .find(|verdict| *verdict != Verdict::Missed)
                        .unwrap_or(Verdict::Missed);
                    if matches!(verdict, Verdict::Missed | Verdict::Unreached | Verdict::Unsure) {
                        println!("{verdict:?} {} {}", placed.package, placed.mutant.name);
                    }
                    verdicts.lock().expect("no thread panics with it").push(verdict);
                }
            });
        }
    });
    row(&verdicts.into_inner().expect("no thread has panicked"))
}

fn verdict(number: u32, tests: &Asked, deadline: Instant) -> Verdict {
    if Instant::now() >= deadline {
        return Verdict::NotAsked;
    }
    let reaching = || tests.programs.iter().filter(|program| program.reaches(number));
    let named = reaching().map(|program| program.ask_named(number, deadline));
    let all = reaching().map(|program| program.ask_all(number, deadline));
    let is_unsure =
        !tests.is_complete || tests.programs.iter().any(|program| program.fails_there(number));
    match named.chain(all).find(|ending| *ending != Ending::Passed) {
        Some(Ending::TookTooLong) => Verdict::Hung,
        Some(Ending::OutOfTime) => Verdict::NotAsked,
        Some(_) => Verdict::Noticed,
        None if is_unsure => Verdict::Unsure,
        None if reaching().next().is_none() => Verdict::Unreached,
        None => Verdict::Missed,
    }
}

fn row(verdicts: &[Verdict]) -> Row {
    let mut row = Row::default();
    for verdict in verdicts {
        match verdict {
            Verdict::Noticed => row.noticed += 1,
            Verdict::Hung => row.hung += 1,
            Verdict::Missed => row.missed += 1,
            Verdict::Unreached => row.unreached += 1,
            Verdict::Unsure | Verdict::NotAsked => row.not_asked += 1,
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Asked, Verdict, verdict};

    #[test]
    fn a_mutant_counts_as_unreached_only_if_all_programs_were_asked() {
        let deadline = Instant::now() + Duration::from_secs(100);
        let complete = Asked { programs: Vec::new(), is_complete: true };
        assert_eq!(verdict(1, &complete, deadline), Verdict::Unreached);
        assert_eq!(verdict(1, &Asked::default(), deadline), Verdict::Unsure);
        assert_eq!(verdict(1, &complete, Instant::now()), Verdict::NotAsked);
    }
}
