//! Makes a failing plan small.
//!
//! Whole workers and ever smaller chunks of steps are removed (delta debugging, Zeller and
//! Hildebrandt 2002). A smaller plan is kept if it still breaks the same rule. The seed of the
//! wires stays.

use crate::program::{Op, SendCall};
use crate::run::Plan;
use crate::violation::Rule;

/// The most runs that shrinking may take.
const RUNS_MAX: u32 = 4000;

struct Shrinker {
    rule: Rule,
    runs: u32,
}

/// A smaller plan that breaks the same rule; the plan itself, if it breaks none.
#[must_use]
pub fn shrink(plan: &Plan) -> Plan {
    let report = plan.run(false);
    let Some(violation) = report.violation else { return plan.clone() };
    let mut shrinker = Shrinker { rule: violation.rule, runs: 0 };
    let mut best = plan.clone();
    best.program.truncate(report.steps);
    if !shrinker.fails(&best) {
        best = plan.clone();
    }
    loop {
        let before = best.program.len();
        shrinker.drop_workers(&mut best);
        shrinker.drop_steps(&mut best);
        shrinker.simplify(&mut best);
        if best.program.len() == before || shrinker.runs >= RUNS_MAX {
            return best;
        }
    }
}

impl Shrinker {
    fn fails(&mut self, plan: &Plan) -> bool {
        self.runs += 1;
        let violation = plan.run(false).violation;
        violation.is_some_and(|violation| violation.rule == self.rule)
    }

    /// Replaces the plan's program if the plan still fails.
    fn accept(&mut self, best: &mut Plan, program: Vec<Op>) -> bool {
        let candidate = Plan { program, ..best.clone() };
        let fails = self.fails(&candidate);
        if fails {
            *best = candidate;
        }
        fails
    }

    fn drop_steps(&mut self, best: &mut Plan) {
        let mut chunk = best.program.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < best.program.len() && self.runs < RUNS_MAX {
                let to = (from + chunk).min(best.program.len());
                let kept = [&best.program[..from], &best.program[to..]].concat();
                if !self.accept(best, kept) {
                    from = to;
                }
            }
            if chunk == 1 || self.runs >= RUNS_MAX {
                return;
            }
            chunk = chunk.div_ceil(2);
        }
    }

    /// Removes all steps of one worker after another, and then the last workers if no step needs
    /// them.
    fn drop_workers(&mut self, best: &mut Plan) {
        for worker in (0..u8::try_from(best.setup.workers).unwrap_or(u8::MAX)).rev() {
            let without: Vec<Op> =
                best.program.iter().copied().filter(|op| !op.concerns(worker)).collect();
            if without.len() < best.program.len() {
                self.accept(best, without);
            }
        }
        while best.setup.workers > 1 && self.runs < RUNS_MAX {
            let mut candidate = best.clone();
            candidate.setup.workers -= 1;
            if !self.fails(&candidate) {
                return;
            }
            *best = candidate;
        }
    }

    /// Shorter messages, and wires without delay.
    fn simplify(&mut self, best: &mut Plan) {
        let mut candidate = best.clone();
        candidate.setup.wire.delay_max = 0;
        candidate.setup.wire.refused_per_mille = 0;
        if self.fails(&candidate) {
            *best = candidate;
        }
        for index in 0..best.program.len() {
            if self.runs >= RUNS_MAX {
                return;
            }
            let mut program = best.program.clone();
            match &mut program[index] {
                Op::Send(SendCall { length, .. }) if *length > 8 => *length = 8,
                Op::Receive { room, .. } if *room > 8 => *room = 8,
                _ => continue,
            }
            self.accept(best, program);
        }
    }
}
