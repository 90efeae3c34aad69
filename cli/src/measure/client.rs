//! The asking side: one measurement from its parameters to its figures.

use std::time::{Duration, Instant};

use super::side::{Batch, MeasureError, Side};
use super::traffic::{self, Buffers};
use crate::control::message::{Answer, Ask, Leg, Traffic};
use crate::control::{Control, ControlError};
use crate::failure::{Failure, one_line};
use crate::json::Matching;
use crate::link::{LinkError, Unlinked};
use crate::samples::Samples;

/// How long the other side may take to be ready: it makes a worker and allocates buffers.
const READY_TIME: Duration = Duration::from_secs(30);
/// How long it may take to say how it ended.
const DONE_TIME: Duration = Duration::from_secs(10);
/// When the link breaks, the reason may be on its way over the control channel.
const REASON_TIME: Duration = Duration::from_millis(300);

/// When a measurement is enough: at the first limit that is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) iters: u64,
    pub(crate) time: Duration,
    pub(crate) warmup_iters: u64,
    pub(crate) warmup_time: Duration,
}

/// What was measured.
pub(crate) struct Measured {
    pub(crate) iters: u64,
    /// Round trips; empty for a stream.
    pub(crate) samples: Samples,
    /// Time in measured intervals.
    pub(crate) took: Duration,
    /// Both sides.
    pub(crate) matching: Matching,
    /// How large messages got across.
    pub(crate) large_messages: &'static str,
}

/// Runs one leg with the side at the other end of `control`. `tick` is called between batches.
pub(crate) fn run(
    control: &mut Control,
    leg: &mut Leg,
    limits: Limits,
    mut tick: impl FnMut(),
) -> Result<Measured, Failure> {
    leg.check().map_err(Failure::Usage)?;
    let unlinked = Unlinked::new(leg.unexpected_depth).map_err(|e| explain(control, e.into()))?;
    leg.address = unlinked.address();
    control.send(&Ask::Leg(leg.clone())).map_err(|error| gone(&error))?;
    let address = match control.receive(READY_TIME).map_err(|error| gone(&error))? {
        Answer::Ready { address } => address,
        other => return Err(ended(other)),
    };
    let mut measured = match measure(control, leg, unlinked, &address, limits, &mut tick) {
        Ok(measured) => measured,
        Err(error) => return Err(explain(control, error)),
    };
    match control.receive(DONE_TIME).map_err(|error| gone(&error))? {
        Answer::Done { matching } => measured.matching.add(&matching),
        other => return Err(ended(other)),
    }
    Ok(measured)
}

fn measure(
    control: &Control,
    leg: &Leg,
    unlinked: Unlinked,
    address: &str,
    limits: Limits,
    tick: &mut impl FnMut(),
) -> Result<Measured, MeasureError> {
    let mut side = Side::new(unlinked.connect(address)?, control, leg)?;
    let incoming = match leg.traffic {
        Traffic::PingPong => side.buffers(),
        Traffic::Stream => Vec::new(),
    };
    let mut buffers = Buffers::new(side.buffers(), incoming);
    let mut phase = |side: &mut Side<'_>, counts: bool, iters: u64, time: Duration| {
        let (mut done, mut took, mut samples) = (0, Duration::ZERO, Samples::new());
        let start = Instant::now();
        while done < iters && (start.elapsed() < time || (counts && done == 0)) {
            let batch = Batch { messages: leg.batch.min(iters - done), counts };
            match leg.traffic {
                Traffic::PingPong => {
                    took += traffic::ping(side, batch, &mut buffers)?;
                    buffers.round_trips_ns.iter().for_each(|&ns| samples.record(ns));
                }
                Traffic::Stream => took += traffic::stream_out(side, batch, &mut buffers)?,
            }
            done += batch.messages;
            tick();
        }
        Ok::<_, MeasureError>((done, took, samples))
    };
    phase(&mut side, false, limits.warmup_iters, limits.warmup_time)?;
    let (iters, took, samples) = phase(&mut side, true, limits.iters, limits.time)?;
    side.check_fillers("after the measurement")?;
    side.end()?;
    let (matching, large_messages) = (side.matched(), side.large_messages());
    Ok(Measured { iters, samples, took, matching, large_messages })
}

/// Why a measurement broke, in the words of whoever knows best.
fn explain(control: &mut Control, error: MeasureError) -> Failure {
    match &error {
        MeasureError::Link(LinkError::Attention | LinkError::Tagmatch(_)) => {
            match control.receive(REASON_TIME) {
                Ok(answer) => ended(answer),
                Err(ControlError::Silent(_)) => Failure::Measurement(one_line(error)),
                Err(reason) => gone(&reason),
            }
        }
        _ => Failure::Measurement(one_line(error)),
    }
}

/// An answer that ends a measurement before its time.
fn ended(answer: Answer) -> Failure {
    match answer {
        Answer::Refused { why } => {
            Failure::Usage(format!("the other side refuses: {}", one_line(why)))
        }
        Answer::Failed { why } => {
            Failure::Measurement(format!("on the other side: {}", one_line(why)))
        }
        other => Failure::Measurement(format!("the other side says {other:?} out of turn")),
    }
}

pub(super) fn gone(error: &ControlError) -> Failure {
    Failure::Measurement(one_line(error))
}
