//! Small programs in every order: what each worker's caller does, and when each worker takes its
//! next event.

use std::ops::AddAssign;

use tagmatch_device::Device;
use tagmatch_fallback::Rights;

use super::engine_config;
use super::plan::{OwnUse, PlannedAction};
use super::region::SHARED;
use super::world::OneSidedWorld;
use crate::adapter::Bare;
use crate::violation::{Verdict, Violation, ensure};
use crate::wire::{Wire, WireConfig};

/// The worker whose region the others use.
const OWNER: usize = 2;

/// How many programs were run, and in how many orders all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneSidedScopes {
    /// Programs.
    pub programs: u64,
    /// Runs, each in another order.
    pub orders: u64,
    /// Operations that wires have done without messages.
    pub direct: u64,
}

impl AddAssign for OneSidedScopes {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.orders += other.orders;
        self.direct += other.direct;
    }
}

/// A step of a caller.
#[derive(Clone, Copy, Debug)]
enum CallerStep {
    Begin(PlannedAction),
    /// A fence, then an operation.
    Fenced(PlannedAction),
    Close,
}

/// A program of two initiators and the region's owner.
#[derive(Clone, Debug)]
struct SmallProgram {
    steps: [Vec<CallerStep>; 3],
    is_direct: bool,
}

/// The choices of one run. The next run makes the last choice that has alternatives left in another
/// way, and all later ones anew.
#[derive(Debug, Default)]
struct OrderChoices {
    /// Each choice that was made, and how many there were.
    made: Vec<(usize, usize)>,
    next: usize,
}

impl OrderChoices {
    fn choose(&mut self, count: usize) -> usize {
        if self.next == self.made.len() {
            self.made.push((0, count));
        }
        self.next += 1;
        self.made[self.next - 1].0
    }

    /// Makes the choices those of the next run. `false`: there is none.
    fn advance(&mut self) -> bool {
        self.next = 0;
        while let Some((made, count)) = self.made.pop() {
            if made + 1 < count {
                self.made.push((made + 1, count));
                return true;
            }
        }
        false
    }
}

const WHOLE: PlannedAction = PlannedAction::Put { at: SHARED, length: 40, has_notice: false };
const PART: PlannedAction = PlannedAction::Put { at: SHARED + 30, length: 20, has_notice: true };
const GET: PlannedAction = PlannedAction::Get { at: SHARED - 8, length: 50 };
const ADD: PlannedAction = PlannedAction::Add { first: 0, count: 1, fetches: true };

/// The operation of the second initiator.
const SECOND: [PlannedAction; 6] =
    [WHOLE, PART, GET, ADD, PlannedAction::Swap { counter: 0 }, own(OwnUse::Fetch)];

/// What the first initiator does.
const FIRST: [[CallerStep; 2]; 8] = [
    [CallerStep::Begin(WHOLE), CallerStep::Begin(GET)],
    [CallerStep::Begin(PART), CallerStep::Begin(WHOLE)],
    [CallerStep::Begin(GET), CallerStep::Fenced(WHOLE)],
    [CallerStep::Begin(GET), CallerStep::Begin(PART)],
    [CallerStep::Begin(ADD), CallerStep::Begin(PlannedAction::Swap { counter: 0 })],
    [CallerStep::Begin(PlannedAction::Own(OwnUse::Put)), CallerStep::Begin(own(OwnUse::Fetch))],
    [CallerStep::Begin(own(OwnUse::Add)), CallerStep::Begin(PART)],
    [
        CallerStep::Begin(ADD),
        CallerStep::Begin(PlannedAction::Beyond { offset: u64::MAX, length: 2, puts: true }),
    ],
];

const fn own(kind: OwnUse) -> PlannedAction {
    PlannedAction::Own(kind)
}

/// Runs all small programs in every order, by messages and with wires that do puts and gets
/// themselves.
///
/// # Errors
/// A rule was broken. The text has the program.
pub fn run_one_sided_scopes() -> Result<OneSidedScopes, Violation> {
    let mut all = OneSidedScopes::default();
    for first in &FIRST {
        for second in SECOND {
            for is_direct in [false, true] {
                for owner in [vec![], vec![CallerStep::Close]] {
                    let second = vec![CallerStep::Begin(second)];
                    let steps = [first.to_vec(), second, owner];
                    all += SmallProgram { steps, is_direct }.explore()?;
                }
            }
        }
    }
    Ok(all)
}

impl SmallProgram {
    fn explore(&self) -> Result<OneSidedScopes, Violation> {
        let mut choices = OrderChoices::default();
        let mut orders = 0;
        let mut direct = 0;
        loop {
            direct += self.run(&mut choices).map_err(|violation| {
                let what = format!("{} in order {:?} of {self:?}", violation.what, choices.made);
                Violation::new(violation.rule, what)
            })?;
            orders += 1;
            if !choices.advance() {
                return Ok(OneSidedScopes { programs: 1, orders, direct });
            }
        }
    }

    fn run(&self, choices: &mut OrderChoices) -> Result<u64, Violation> {
        let wire = WireConfig {
            message_max: 128,
            fragments: false,
            capacity: 8,
            delay_max: 0,
            delayed_per_mille: 0,
            refused_per_mille: 0,
            exposures_max: 4,
            machines: 0,
            accesses_per_mille: if self.is_direct { 1000 } else { 0 },
            calls_per_mille: 0,
            accesses_at_once: 1,
            seed: 1,
        };
        let config = engine_config(64, 1);
        let mut world = OneSidedWorld::new(&Bare::default(), wire, &config, OWNER + 1)?;
        let region = world.expose(OWNER, Rights::ALL)?;
        world.meet();
        for at in [0, 1, OWNER, 0, 1, OWNER] {
            world.work(at, 16, || false)?;
        }
        let mut begun = [0; OWNER + 1];
        while let Some(choice) = self.next(&world, begun, choices) {
            match choice {
                NextStep::Call(at) => {
                    self.call(&mut world, at, begun[at], region)?;
                    begun[at] += 1;
                }
                NextStep::Work(at) => world.work(at, 1, || false)?,
            }
        }
        let is_over = world.members.iter().all(|member| member.requests.is_empty());
        ensure!(is_over, Lost, "nothing moves any more, and not all operations have ended");
        world.finish()?;
        Ok(world.counts.direct)
    }

    /// The next step: of a caller that has one left, or of a worker that has an event.
    fn next(
        &self,
        world: &OneSidedWorld<Wire>,
        begun: [usize; OWNER + 1],
        choices: &mut OrderChoices,
    ) -> Option<NextStep> {
        let mut steps = Vec::with_capacity(2 * begun.len());
        for (at, member) in world.members.iter().enumerate() {
            if begun[at] < self.steps[at].len() {
                steps.push(NextStep::Call(at));
            }
            let has_work = member.engine.as_ref().is_some_and(|engine| engine.device().has_work());
            if has_work {
                steps.push(NextStep::Work(at));
            }
        }
        match steps.len() {
            0 => None,
            1 => Some(steps[0]),
            count => Some(steps[choices.choose(count)]),
        }
    }

    fn call(
        &self,
        world: &mut OneSidedWorld<Wire>,
        at: usize,
        step: usize,
        region: usize,
    ) -> Verdict {
        match self.steps[at][step] {
            CallerStep::Begin(planned) => world.begin(at, region, planned),
            CallerStep::Fenced(planned) => {
                world.fence(at, OWNER);
                world.begin(at, region, planned)
            }
            CallerStep::Close => world.close(region),
        }
    }
}

/// What happens next in a run.
#[derive(Clone, Copy, Debug)]
enum NextStep {
    /// The caller of a worker takes its next step.
    Call(usize),
    /// A worker takes its next event.
    Work(usize),
}
