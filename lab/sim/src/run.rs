//! One run: a plan and its report.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::adapter::{Adapter, Bare, Devices, Several};
use crate::profile::{Profile, Setup};
use crate::program::{Generator, Op};
use crate::violation::{Rule, Verdict, Violation};
use crate::wire::WireFault;
use crate::world::{Counts, World};

/// For one seed in this many, the whole history is checked a second time, pair by pair.
pub const THOROUGH_EVERY: u64 = 1000;

/// Everything that decides a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of everything.
    pub seed: u64,
    /// The settings, which the seed drew.
    pub setup: Setup,
    /// What the engines run on.
    pub devices: Devices,
    /// The steps of the workers.
    pub program: Vec<Op>,
    /// A fault of the wires.
    pub wire_fault: Option<WireFault>,
    /// Check the whole history a second time at the end.
    pub thorough: bool,
}

impl Plan {
    /// The plan that a seed draws from a profile. `workers` overrides the drawn number.
    ///
    /// ```
    /// use tagmatch_sim::{Plan, Profile};
    /// let profile = Profile::named("mixed").ok_or("no such profile")?;
    /// let plan = Plan::new(profile, 7, 1000, None);
    /// let first = plan.run(false);
    /// assert_eq!(first.violation, None);
    /// assert_eq!(first.digest, plan.run(false).digest);
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn new(profile: &Profile, seed: u64, steps: u32, workers: Option<u32>) -> Self {
        let setup = Setup::new(profile, seed, workers);
        let program = Generator::new(profile, &setup, seed).program(steps);
        let thorough = seed.is_multiple_of(THOROUGH_EVERY);
        let devices = profile.devices();
        Plan { seed, setup, devices, program, wire_fault: None, thorough }
    }

    /// Runs the plan. With `keeps_lines` the report contains the history as text.
    #[must_use]
    pub fn run(&self, keeps_lines: bool) -> Report {
        // Here alone the simulator is compiled for each kind of device. Programs that were generic
        // over devices would each be compiled with a simulator of their own.
        match self.devices {
            Devices::Bare(bare) => self.run_on(&bare, keeps_lines),
            Devices::Nic(nic) => self.run_on(&nic, keeps_lines),
            Devices::Several => self.run_on(&Several(Bare::default()), keeps_lines),
            Devices::SeveralWithNic(nic) => self.run_on(&Several(nic), keeps_lines),
        }
    }

    fn run_on<A: Adapter>(&self, adapter: &A, keeps_lines: bool) -> Report {
        let Plan { setup, seed, wire_fault, .. } = self;
        let mut world = match World::new(setup, adapter, *seed, *wire_fault, keeps_lines) {
            Ok(world) => world,
            Err(violation) => return Report { violation: Some(violation), ..Report::default() },
        };
        let mut steps = 0;
        let verdict = catch_unwind(AssertUnwindSafe(|| self.play(&mut world, &mut steps)));
        let violation = match verdict {
            Ok(verdict) => verdict.err(),
            Err(panic) => Some(Violation::new(Rule::Panic, words_of(panic.as_ref()))),
        };
        let counts = world.counts;
        let digest = world.history.digest;
        let lines = world.history.lines.take().unwrap_or_default();
        Report { violation, steps, counts, digest, lines }
    }

    fn play<A: Adapter>(&self, world: &mut World<'_, A>, steps: &mut usize) -> Verdict {
        if self.thorough {
            world.be_thorough();
        }
        for op in &self.program {
            *steps += 1;
            world.step(op)?;
        }
        world.finish(self.thorough)
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a text")
        .to_owned()
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first violation, if there was one.
    pub violation: Option<Violation>,
    /// Steps of the program that were made.
    pub steps: usize,
    /// Event counts of the run.
    pub counts: Counts,
    /// A digest of the history. Equal plans have equal digests unless something is not
    /// deterministic.
    pub digest: u64,
    /// The history as text, if it was asked for.
    pub lines: Vec<String>,
}
