//! The asking side: one measurement from its parameters to its figures.

use std::time::{Duration, Instant};

use super::side::{Batch, MeasureError, Side};
use super::traffic::{self, Buffers};
use crate::blocks::{self, Blocks};
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
    /// The same in stretches of time.
    pub(crate) blocks: Option<blocks::Figures>,
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
        let mut blocks = Blocks::new();
        let start = Instant::now();
        while done < iters && (start.elapsed() < time || (counts && done == 0)) {
            let batch = Batch { messages: leg.batch.min(iters - done), counts };
            match leg.traffic {
                Traffic::PingPong => {
                    took += traffic::ping(side, batch, &mut buffers)?;
                    buffers.round_trips_ns.iter().for_each(|&ns| samples.record(ns));
                    blocks.round_trips(buffers.round_trips_ns.iter().copied());
                }
                Traffic::Stream => {
                    let batch_took = traffic::stream_out(side, batch, &mut buffers)?;
                    blocks.stream(batch.messages, batch_took);
                    took += batch_took;
                }
            }
            done += batch.messages;
            tick();
        }
        Ok::<_, MeasureError>((done, took, samples, blocks.figures()))
    };
    phase(&mut side, false, limits.warmup_iters, limits.warmup_time)?;
    let (iters, took, samples, blocks) = phase(&mut side, true, limits.iters, limits.time)?;
    side.check_fillers("after the measurement")?;
    side.end()?;
    let (matching, large_messages) = (side.matched(), side.large_messages());
    Ok(Measured { iters, samples, blocks, took, matching, large_messages })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Buffer;
    use crate::payload::{Corrupt, Direction};
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;

    const LIMITS: Limits = Limits {
        iters: 100,
        time: Duration::from_secs(20),
        warmup_iters: 10,
        warmup_time: Duration::from_secs(20),
    };

    fn leg(traffic: Traffic) -> Leg {
        Leg {
            traffic,
            size: 1000,
            window: 8,
            batch: 32,
            posted_depth: 5,
            unexpected_depth: 7,
            wildcard_percent: 40,
            wildcard_recv: false,
            validate: true,
            pin: None,
            device: None,
            address: String::new(),
        }
    }

    /// A side that is asked for one leg, which `play` then plays.
    fn other(
        play: impl FnOnce(&Control, &Leg, Unlinked) -> Answer + Send + 'static,
    ) -> (Control, JoinHandle<()>) {
        let control =
            |stream: UnixStream| Control::new(stream.try_clone().unwrap(), stream, || ()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let other = std::thread::spawn(move || {
            let mut control = control(theirs);
            let Ok(Ask::Leg(leg)) = control.receive(READY_TIME) else { panic!("no leg") };
            let unlinked = Unlinked::new(leg.unexpected_depth).unwrap();
            control.send(&Answer::Ready { address: unlinked.address() }).unwrap();
            let answer = play(&control, &leg, unlinked);
            control.send(&answer).unwrap();
        });
        (control(ours), other)
    }

    #[test]
    fn a_leg_from_both_ends() {
        for (traffic, receives) in [(Traffic::PingPong, 200), (Traffic::Stream, 100)] {
            let (mut control, other) = other(|control, leg, unlinked| {
                let matching = super::super::peer::run(control, leg, unlinked).unwrap();
                Answer::Done { matching }
            });
            let measured = run(&mut control, &mut leg(traffic), LIMITS, || ()).unwrap();
            other.join().unwrap();
            let Matching { hardware, posted, unexpected, not_offloaded } = measured.matching;
            assert_eq!(hardware + posted + unexpected, receives, "{traffic:?}");
            assert_eq!(not_offloaded.off, posted, "{traffic:?}");
            assert_eq!(measured.iters, 100);
            let samples = if traffic == Traffic::PingPong { 100 } else { 0 };
            assert_eq!(measured.samples.count(), samples);
        }
    }

    #[test]
    fn wrong_bytes_are_found_on_this_side() {
        // The other side believes that nothing is checked, and sends zeros.
        let (mut control, other) = other(|control, leg, unlinked| {
            let leg = Leg { validate: false, ..leg.clone() };
            // It is left alone in the midst of it; that must not matter here.
            let ended = super::super::peer::run(control, &leg, unlinked);
            assert!(ended.is_err());
            Answer::Failed { why: "left alone".into() }
        });
        let mut leg = leg(Traffic::PingPong);
        let unlinked = Unlinked::new(leg.unexpected_depth).unwrap();
        leg.address = unlinked.address();
        control.send(&Ask::Leg(leg.clone())).unwrap();
        let Ok(Answer::Ready { address }) = control.receive(READY_TIME) else { panic!() };
        let error = measure(&control, &leg, unlinked, &address, LIMITS, &mut || ()).map(drop);
        let error = error.unwrap_err();
        assert!(matches!(&error, MeasureError::Corrupt(Corrupt { .. })), "{error}");
        drop(control);
        drop(other.join());
    }

    #[test]
    fn wrong_bytes_are_found_on_the_other_side() {
        let (mut control, other) = other(|control, leg, unlinked| {
            let error = super::super::peer::run(control, leg, unlinked).unwrap_err();
            assert!(matches!(&error, MeasureError::Corrupt(_)), "{error}");
            Answer::Failed { why: error.to_string() }
        });
        let mut told = leg(Traffic::Stream);
        let unlinked = Unlinked::new(told.unexpected_depth).unwrap();
        told.address = unlinked.address();
        control.send(&Ask::Leg(told.clone())).unwrap();
        let Ok(Answer::Ready { address }) = control.receive(READY_TIME) else { panic!() };
        let lazy = Leg { validate: false, ..told };
        let error = measure(&control, &lazy, unlinked, &address, LIMITS, &mut || ()).map(drop);
        let failure = explain(&mut control, error.unwrap_err());
        assert!(failure.to_string().contains("verification failed: message 0"), "{failure}");
        other.join().unwrap();
    }

    #[test]
    fn a_message_of_another_length_is_found() {
        let (mut control, other) = other(|control, leg, unlinked| {
            let mut side =
                Side::new(unlinked.connect(&leg.address).unwrap(), control, leg).unwrap();
            let batch = side.await_batch().unwrap().unwrap();
            let ping = side.receive_data(&mut Buffer::zeroed(1000));
            side.go(batch).unwrap();
            side.finish(ping).unwrap();
            let mut short = Buffer::zeroed(999);
            side.fill(std::slice::from_mut(&mut short), Direction::Pong);
            let sending = side.send_data(&mut short);
            side.finish_send(sending).unwrap();
            let left = side.await_batch();
            assert!(left.is_err());
            Answer::Failed { why: "left alone".into() }
        });
        let mut leg = leg(Traffic::PingPong);
        let failure = run(&mut control, &mut leg, LIMITS, || ()).map(drop).unwrap_err();
        assert!(failure.to_string().contains("a message of 999 bytes came"), "{failure}");
        drop(control);
        drop(other.join());
    }
}
