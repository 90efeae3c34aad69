//! One measurement, run by the side that asks for it: from the parameters to the figures.

use std::time::{Duration, Instant};

use tagmatch_results::show::one_line;
use tagmatch_results::{Blocks, Matching, PlannedRate, Samples};

use super::batch::{Batch, PhaseLimits};
use super::drain::Drain;
use super::error::MeasureError;
use super::one_sided::Initiator;
use super::open_loop::{PlannedResult, PlannedSender};
use super::participant::Participant;
use super::thread::Role;
use super::threads::RunThreads;
use crate::control::message::{Answer, Ask};
use crate::control::{Control, ControlError};
use crate::failure::Failure;
use crate::link::{Link, LinkError, Local, Shared, UnlinkedOf};
use crate::spec::{Case, DeviceArg, Limits, Traffic};

/// The time that the other side has to be ready: it makes a worker and allocates buffers.
const READY_TIME: Duration = Duration::from_secs(30);
/// The time that the other side has to say how the measurement ended.
const DONE_TIME: Duration = Duration::from_secs(10);
/// The time that the other side has to close the channel after `Bye`.
const BYE_TIME: Duration = Duration::from_secs(2);
/// When the link breaks, the reason may still be on its way over the control channel.
const REASON_TIME: Duration = Duration::from_millis(300);

/// The figures of one measurement. `iters` is 0 if it was interrupted early.
pub(crate) struct Measured {
    /// Round trips of a ping-pong, one-sided operations, or messages. If messages go both ways at
    /// once: those of one way.
    pub(crate) iters: u64,
    /// Messages in each of `iters`.
    pub(crate) ways: u64,
    /// Times of round trips and of single trips; empty for a stream.
    pub(crate) samples: Samples,
    /// The figure in stretches of time.
    pub(crate) blocks: Blocks,
    /// The sum of the measured intervals.
    pub(crate) took: Duration,
    /// Matches on both sides.
    pub(crate) matching: Matching,
    /// How large messages were transferred.
    pub(crate) large_messages: String,
    /// The device of the other side, if there is another side.
    pub(crate) device_there: Option<DeviceArg>,
    /// The share of each thread, if there are several.
    pub(crate) threads: Vec<PerThread>,
    /// How many messages had every byte checked, where not all had.
    pub(crate) checked: Option<u64>,
    /// The rounds of a drain.
    pub(crate) rounds: Option<Rounds>,
    pub(crate) pace: Option<PlannedRate>,
    /// Whether it ended before its limits.
    pub(crate) interrupted: bool,
}

/// The share of one thread.
pub(crate) struct PerThread {
    pub(crate) iters: u64,
    pub(crate) took: Duration,
    pub(crate) samples: Samples,
}

/// Rounds of a drain, with the least and the most time in ns a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: u64,
    pub(crate) least_ns: f64,
    pub(crate) most_ns: f64,
}

/// Runs one case on `device` with the side at the other end of `control`. `tick` is called during
/// set-up and between batches, and returns whether to go on. After an interrupted set-up the other
/// side can't be used again.
pub(crate) fn run(
    control: &mut Control,
    device: &DeviceArg,
    case: &mut Case,
    limits: Limits,
    tick: impl FnMut() -> bool,
) -> Result<Measured, Failure> {
    case.check().map_err(Failure::Usage)?;
    match case.threads {
        None => run_with::<Local>(control, device, case, limits, tick),
        Some(_) => run_with::<Shared>(control, device, case, limits, tick),
    }
}

fn run_with<A: RunThreads>(
    control: &mut Control,
    device: &DeviceArg,
    case: &mut Case,
    limits: Limits,
    mut tick: impl FnMut() -> bool,
) -> Result<Measured, Failure> {
    let [ours, _] = case.matchers();
    let unlinked = UnlinkedOf::<A>::new(device, case.needs(), ours);
    let unlinked = unlinked.map_err(|e| explain(control, e.into()))?;
    case.address = unlinked.address();
    control.send(&Ask::Case(case.clone())).map_err(|error| gone(&error))?;
    let (address, there) = match control.receive(READY_TIME).map_err(|error| gone(&error))? {
        Answer::Ready { address, device } => (address, device),
        other => return Err(ended(other)),
    };
    let link = unlinked.connect(&address, control.attention()).map_err(MeasureError::from);
    let measured = link.and_then(|link| measure(control, case, link, limits, &mut tick));
    let mut measured = match measured {
        Ok(measured) => measured,
        Err(error) => return Err(explain(control, error)),
    };
    match control.receive(DONE_TIME).map_err(|error| gone(&error))? {
        Answer::Done { matching } => measured.matching.add(&matching),
        other => return Err(ended(other)),
    }
    measured.device_there = Some(there);
    Ok(measured)
}

/// Runs one case within this process, which sends to itself.
pub(crate) fn run_alone(
    case: &Case,
    limits: Limits,
    tick: impl FnMut() -> bool,
) -> Result<Measured, Failure> {
    case.check().map_err(Failure::Usage)?;
    let measured = match case.threads {
        None => alone::<Local>(case, limits, tick),
        Some(_) => alone::<Shared>(case, limits, tick),
    };
    measured.map_err(|error| match error {
        MeasureError::Link(LinkError::Interrupted) => Failure::Interrupted,
        error => Failure::Measurement(one_line(error)),
    })
}

fn alone<A: RunThreads>(
    case: &Case,
    limits: Limits,
    mut tick: impl FnMut() -> bool,
) -> Result<Measured, MeasureError> {
    let link = UnlinkedOf::<A>::new(&case.device, case.needs(), case.hw_tags)?.oneself();
    let mut participant = Participant::new(link, case, Role::Alone, &mut tick)?;
    phases(&mut participant, limits, &mut tick)
}

fn measure<A: RunThreads>(
    control: &mut Control,
    case: &Case,
    link: Link<A>,
    limits: Limits,
    tick: &mut impl FnMut() -> bool,
) -> Result<Measured, MeasureError> {
    let mut go_on = || {
        let goes_on = tick();
        if !goes_on {
            // Sent before the link is dropped: the other side would take that for a failure.
            let _ = control.send(&Ask::Bye).and_then(|()| control.receive::<Answer>(BYE_TIME));
        }
        goes_on
    };
    link.await_peer(&mut go_on)?;
    let mut participant = Participant::new(link, case, Role::Client, &mut go_on)?;
    let measured = phases(&mut participant, limits, tick)?;
    participant.end()?;
    Ok(measured)
}

/// The warm-up, then the part that counts.
fn phases<A: RunThreads>(
    participant: &mut Participant<'_, A>,
    limits: Limits,
    tick: &mut impl FnMut() -> bool,
) -> Result<Measured, MeasureError> {
    let mut loops = OtherLoops {
        drain: Drain::new(participant.case),
        out: PlannedSender::new(participant.case),
        initiator: Initiator::new(participant),
    };
    let mut measured = Measured::new(participant);
    let Limits { iters, time, warmup_iters, warmup_time } = limits;
    let warmup = PhaseLimits { iters: warmup_iters, time: warmup_time, counts: false };
    phase(participant, &mut loops, warmup, &mut measured, tick)?;
    if !measured.interrupted {
        measured = Measured::new(participant);
        let counted = PhaseLimits { iters, time, counts: true };
        phase(participant, &mut loops, counted, &mut measured, tick)?;
    } else {
        measured.iters = 0;
    }
    participant.check_fillers("after the measurement")?;
    measured.matching = participant.matched();
    measured.large_messages = participant.link.large_messages()?;
    Ok(measured)
}

/// Loops of traffic that is not run by a thread's part.
struct OtherLoops<A: RunThreads> {
    drain: Option<Drain>,
    out: PlannedSender,
    initiator: Option<Initiator<A>>,
}

fn phase<A: RunThreads>(
    participant: &mut Participant<'_, A>,
    loops: &mut OtherLoops<A>,
    phase: PhaseLimits,
    measured: &mut Measured,
    tick: &mut impl FnMut() -> bool,
) -> Result<(), MeasureError> {
    let PhaseLimits { iters, time, counts } = phase;
    if matches!(participant.case.traffic, Traffic::Planned { .. }) {
        if iters > 0 {
            measured.add_planned(loops.out.phase(participant, phase, tick)?);
        }
        return Ok(());
    }
    let start = Instant::now();
    let mut done = 0;
    while done < iters && (start.elapsed() < time || (counts && done == 0)) {
        // A round of a drain can't be cut short.
        let left = if loops.drain.is_some() { participant.case.batch } else { iters - done };
        let batch = Batch::of(participant.case.batch.min(left), counts);
        match (&mut loops.drain, &mut loops.initiator) {
            (Some(drain), _) => measured.add_round(batch, drain.batch(participant, batch)?.took()),
            (None, Some(initiator)) => {
                let span = initiator.batch(participant, batch)?;
                measured.add_one_sided(batch, &initiator.times_ns, span.took());
            }
            (None, None) => {
                let (whole, parts) = participant.batch(batch)?;
                measured.add_batch(participant.case, batch, whole.took());
                for (at, (part, span)) in participant.parts.iter().zip(parts).enumerate() {
                    let times_ns: Vec<_> = part.times_ns().collect();
                    measured.add_part(at, batch, &times_ns, span.took());
                }
            }
        }
        done += batch.messages;
        if !tick() {
            measured.interrupted = true;
            break;
        }
    }
    Ok(())
}

impl Measured {
    fn new<A: RunThreads>(participant: &Participant<'_, A>) -> Self {
        let case = participant.case;
        let ways = match case.traffic {
            Traffic::PingPong if participant.role == Role::Alone => 1,
            Traffic::PingPong | Traffic::Both => 2,
            _ => 1,
        };
        let threads = case.threads.filter(|&threads| threads > 1).unwrap_or(0);
        let per_thread =
            |_| PerThread { iters: 0, took: Duration::ZERO, samples: Samples::default() };
        Self {
            iters: 0,
            ways,
            samples: Samples::default(),
            blocks: Blocks::new(),
            took: Duration::ZERO,
            matching: Matching::default(),
            large_messages: String::new(),
            device_there: None,
            threads: (0..threads).map(per_thread).collect(),
            checked: (case.single_buffer && case.validate).then_some(0),
            rounds: None,
            pace: None,
            interrupted: false,
        }
    }

    fn add_batch(&mut self, case: &Case, batch: Batch, took: Duration) {
        self.iters += batch.messages * case.thread_count();
        self.took += took;
        if case.traffic != Traffic::PingPong {
            self.blocks.stream(batch.messages * case.thread_count() * self.ways, took);
        }
        if let Some(checked) = &mut self.checked {
            // Messages of the batch that are still in buffers on either side.
            let each = match case.traffic {
                Traffic::PingPong => 1,
                _ => case.ahead().min(batch.messages),
            };
            *checked += each * case.thread_count();
        }
    }

    fn add_part(&mut self, at: usize, batch: Batch, times_ns: &[u64], took: Duration) {
        times_ns.iter().for_each(|&ns| self.samples.record(ns));
        self.blocks.round_trips(times_ns.iter().copied());
        if let Some(thread) = self.threads.get_mut(at) {
            thread.iters += batch.messages;
            thread.took += took;
            times_ns.iter().for_each(|&ns| thread.samples.record(ns));
        }
    }

    /// Adds operations, with the time of each if these were taken.
    fn add_one_sided(&mut self, batch: Batch, times_ns: &[u64], took: Duration) {
        self.iters += batch.messages;
        self.took += took;
        if times_ns.is_empty() {
            self.blocks.stream(batch.messages, took);
        }
        times_ns.iter().for_each(|&ns| self.samples.record_one_way(ns));
        self.blocks.round_trips(times_ns.iter().map(|ns| ns.saturating_mul(2)));
    }

    fn add_round(&mut self, batch: Batch, took: Duration) {
        self.iters += batch.messages;
        self.took += took;
        self.blocks.stream(batch.messages, took);
        let ns = took.as_secs_f64() * 1e9 / batch.messages.max(1) as f64;
        let rounds = self.rounds.get_or_insert(Rounds { count: 0, least_ns: ns, most_ns: ns });
        rounds.count += 1;
        rounds.least_ns = rounds.least_ns.min(ns);
        rounds.most_ns = rounds.most_ns.max(ns);
    }

    fn add_planned(&mut self, planned: PlannedResult) {
        self.iters = planned.sent;
        self.took = planned.took;
        self.samples = planned.samples;
        self.pace = Some(planned.pace);
        self.interrupted = planned.interrupted;
    }
}

/// The reason why a measurement broke, from the side that knows it best.
fn explain(control: &mut Control, error: MeasureError) -> Failure {
    match &error {
        MeasureError::Link(LinkError::Interrupted) => Failure::Interrupted,
        MeasureError::Link(LinkError::Attention | LinkError::PeerDown(_)) => {
            match control.receive(REASON_TIME) {
                Ok(answer) => ended(answer),
                Err(ControlError::Silent(_)) => Failure::Measurement(one_line(error)),
                Err(reason) => gone(&reason),
            }
        }
        _ => Failure::Measurement(one_line(error)),
    }
}

/// The failure behind an answer that ends a measurement early.
fn ended(answer: Answer) -> Failure {
    match answer {
        Answer::Refused { why } => {
            Failure::Usage(format!("the other side refuses: {}", one_line(why)))
        }
        Answer::Failed { why } => {
            Failure::Measurement(format!("on the other side: {}", one_line(why)))
        }
        Answer::Hello(_) | Answer::Ready { .. } | Answer::Done { .. } => {
            Failure::Measurement("the other side sent an answer out of turn".into())
        }
    }
}

pub(super) fn gone(error: &ControlError) -> Failure {
    Failure::Measurement(one_line(error))
}

#[cfg(test)]
mod tests;
