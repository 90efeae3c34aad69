//! An open loop: each message is sent at its planned time, even while earlier ones are delayed, and
//! its latency counts from the planned time. So a stall shows in every message that it delayed,
//! also in those that a closed loop would not have sent meanwhile (coordinated omission).
//!
//! Both sides read the same clock, so the receiver takes the times, one way. It keeps the samples
//! until the last message, which carries their number, and sends them then.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tagmatch_results::show::tenths;
use tagmatch_results::{PlannedRate, Samples};

use super::batch::{ANSWER, Batch, DATA, END, PhaseLimits};
use super::error::MeasureError;
use super::participant::Participant;
use super::threads::RunThreads;
use crate::link::{Buffer, LinkError, Receiving, Sending};
use crate::payload::{Direction, Stamp};
use crate::spec::bounds::ITERS_MAX;
use crate::spec::{Case, Traffic};

/// The time from the announcement of a batch to its first planned message, at least.
const LEAD_NS: u64 = 20_000;
/// The time between two calls of `tick`.
const TICK_NS: u64 = 5_000_000;
/// Samples that are collected before they go into the histogram, which happens when no message is
/// there.
const RECENT_MAX: usize = 8192;
/// Polls without a message between two probes for the last message.
const POLLS_PER_LOOK: u32 = 64;
/// Bytes of samples that are accepted from the other side.
const RESULT_BYTES_MAX: u64 = 64 << 20;
/// A rate counts as held if at least this share of the plan was sent.
const HELD: f64 = 0.99;

/// The result of a warm-up, or of the part that counts.
pub(super) struct PlannedResult {
    pub(super) sent: u64,
    pub(super) took: Duration,
    pub(super) samples: Samples,
    pub(super) pace: PlannedRate,
    pub(super) interrupted: bool,
}

/// The clock that both sides read, in ns.
fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

/// The planned times in order, counted from the first.
struct Schedule {
    interval_ps: u64,
    next_ps: u64,
}

impl Schedule {
    fn new(case: &Case) -> Self {
        let interval_ps = match case.traffic {
            Traffic::Planned { interval_ps } => interval_ps,
            _ => 0,
        };
        Self { interval_ps, next_ps: 0 }
    }

    /// The next planned time, in ns from the first.
    #[inline]
    fn next(&mut self) -> u64 {
        let ns = self.next_ps / 1000;
        self.next_ps = self.next_ps.saturating_add(self.interval_ps);
        ns
    }
}

/// The sender's buffers, and the number of messages so far.
pub(super) struct PlannedSender {
    free: Vec<Buffer>,
    done: u64,
}

impl PlannedSender {
    pub(super) fn new(case: &Case) -> Self {
        let size = usize::try_from(case.size).unwrap_or(usize::MAX);
        Self { free: (0..case.window).map(|_| Buffer::zeroed(size)).collect(), done: 0 }
    }

    /// Sends as planned until a limit is reached or `tick` returns false. If the phase counts, at
    /// least one message is sent.
    pub(super) fn phase<A: RunThreads>(
        &mut self,
        participant: &mut Participant<'_, A>,
        phase: PhaseLimits,
        tick: &mut impl FnMut() -> bool,
    ) -> Result<PlannedResult, MeasureError> {
        let PhaseLimits { iters, time, counts } = phase;
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut schedule = Schedule::new(participant.case);
        let mut sending: VecDeque<Sending<A>> = VecDeque::with_capacity(self.free.len());
        let mut sent = 0u64;
        let mut late_max_ns = 0;
        let mut interrupted = false;
        let base_ns = clock_ns();
        participant.begin(Batch { messages: 1, counts, base_ns })?;
        let (start, offset) = start_after(base_ns, clock_ns())?;
        let mut now = start;
        let mut ticked = start;
        let mut last_planned = start;
        while sent < iters {
            let buffer = match self.free.pop() {
                Some(buffer) => buffer,
                None => match sending.pop_front() {
                    Some(oldest) => participant.finish_send(oldest)?,
                    None => break,
                },
            };
            let buffer = self.stamped(participant.case, buffer, sent);
            let after = schedule.next();
            if after >= time_ns && !(counts && sent == 0) {
                self.free.push(buffer);
                break;
            }
            let planned = start + after;
            let mut polls = 0;
            loop {
                now = clock_ns();
                if now.saturating_sub(ticked) > TICK_NS {
                    ticked = now;
                    interrupted = !tick();
                }
                if now >= planned || interrupted {
                    break;
                }
                participant.link.progress();
                participant.link.pause(&mut polls)?;
            }
            // The time limit holds even if the plan can't be kept.
            if interrupted || (now.saturating_sub(start) >= time_ns && sent > 0) {
                self.free.push(buffer);
                break;
            }
            late_max_ns = late_max_ns.max(now - planned);
            let request = match sent {
                0 => participant.link.send_with(DATA, buffer, offset),
                _ => participant.link.send(DATA, buffer),
            };
            sending.push_back(request);
            last_planned = planned;
            sent += 1;
            while let Some(result) = sending.front_mut().and_then(Sending::test) {
                sending.pop_front();
                self.free.push(result.map_err(LinkError::from)?.buffer);
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "compared in 32 bits")]
        let end = participant.link.send_with(END, Buffer::default(), sent as u32);
        participant.finish_send(end)?;
        for request in sending {
            self.free.push(participant.finish_send(request)?);
        }
        self.done += sent;
        let samples = receive_samples(participant, sent)?;
        let planned_ns = last_planned - start;
        let took_ns = now.saturating_sub(start);
        let pace = planned_rate(participant.case, sent, planned_ns, took_ns, late_max_ns);
        let took = Duration::from_nanos(took_ns);
        Ok(PlannedResult { sent, took, samples, pace, interrupted })
    }

    fn stamped(&self, case: &Case, mut buffer: Buffer, sent: u64) -> Buffer {
        if case.validate
            && let Some(bytes) = buffer.as_mut_slice()
        {
            stamp(self.done + sent).fill(bytes);
        }
        buffer
    }
}

/// The first planned time of a batch that was announced at `base_ns`, and how many us after that it
/// is. Whole us, since 32 bits of ns would not last until the other side has posted a million
/// receives.
fn start_after(base_ns: u64, now_ns: u64) -> Result<(u64, u32), LinkError> {
    let after_us = (now_ns.saturating_sub(base_ns) + LEAD_NS).div_ceil(1000);
    let after =
        u32::try_from(after_us).map_err(|_| LinkError::Stuck(Duration::from_micros(after_us)))?;
    Ok((start_ns(base_ns, after), after))
}

/// The first planned time, as both sides compute it.
fn start_ns(base_ns: u64, after_us: u32) -> u64 {
    base_ns.saturating_add(u64::from(after_us) * 1000)
}

fn stamp(iteration: u64) -> Stamp {
    Stamp { iteration, direction: Direction::Ping, thread: 0 }
}

/// How well the plan was kept. `planned_ns` is the time from the first planned time to the last
/// one, `took_ns` the time to when the last message was sent.
fn planned_rate(
    case: &Case,
    sent: u64,
    planned_ns: u64,
    took_ns: u64,
    late_max_ns: u64,
) -> PlannedRate {
    let Traffic::Planned { interval_ps } = case.traffic else {
        unreachable!("only paced cases come here")
    };
    let planned_per_s = 1e12 / interval_ps.max(1) as f64;
    // Each message has an interval of its own, the last one as well.
    let interval_ns = interval_ps as f64 / 1e3;
    let took = planned_ns.max(took_ns) as f64 + interval_ns;
    let share = (planned_ns as f64 + interval_ns) / took;
    let sent_per_s = if sent == 0 { 0.0 } else { planned_per_s * share };
    PlannedRate {
        planned_per_s: tenths(planned_per_s),
        sent_per_s: tenths(sent_per_s),
        held: share >= HELD,
        late_max_ns,
    }
}

/// The receiver's buffers and receives.
pub(super) struct PlannedReceiver<A: RunThreads> {
    free: Vec<Buffer>,
    posted: VecDeque<Receiving<A>>,
    done: u64,
}

impl<A: RunThreads> PlannedReceiver<A> {
    pub(super) fn new(case: &Case) -> Self {
        Self { free: PlannedSender::new(case).free, posted: VecDeque::new(), done: 0 }
    }

    /// Receives until the end of a phase, then sends the samples to the other side.
    pub(super) fn answer(
        &mut self,
        participant: &mut Participant<'_, A>,
        batch: Batch,
    ) -> Result<(), MeasureError> {
        for buffer in self.free.drain(..) {
            self.posted.push_back(receive(participant, buffer));
        }
        let mut schedule = Schedule::new(participant.case);
        let mut samples = Samples::default();
        let mut recent_ns: Vec<u64> = Vec::with_capacity(RECENT_MAX);
        let mut start = None;
        let mut arrivals = 0u64;
        let mut polls = 0u32;
        let mut sent: Option<u32> = None;
        participant.go(batch)?;
        #[expect(clippy::cast_possible_truncation, reason = "compared in 32 bits")]
        while sent != Some(arrivals as u32) {
            let Some(result) = self.posted.front_mut().and_then(Receiving::test) else {
                if recent_ns.len() >= RECENT_MAX / 8 {
                    recent_ns.drain(..).for_each(|ns| samples.record_one_way(ns));
                }
                participant.link.pause(&mut polls)?;
                if polls.is_multiple_of(POLLS_PER_LOOK) && sent.is_none() {
                    let last = participant.link.waiting(END)?;
                    sent = last.map(|sent| sent.ok_or(MeasureError::Token)).transpose()?;
                }
                continue;
            };
            let now = clock_ns();
            self.posted.pop_front();
            let received = result.map_err(LinkError::from)?;
            let start = match start {
                Some(start) => start,
                None => {
                    let offset = received.status.immediate.ok_or(MeasureError::Token)?;
                    *start.insert(start_ns(batch.base_ns, offset))
                }
            };
            recent_ns.push(now.saturating_sub(start.saturating_add(schedule.next())));
            if recent_ns.len() == RECENT_MAX {
                recent_ns.drain(..).for_each(|ns| samples.record_one_way(ns));
            }
            let found = received.status.length as u64;
            let wanted = participant.case.size;
            if found != wanted {
                return Err(MeasureError::Length { found, wanted });
            }
            if participant.case.validate {
                stamp(self.done + arrivals).check(&received.buffer)?;
            }
            self.posted.push_back(receive(participant, received.buffer));
            (arrivals, polls) = (arrivals + 1, 0);
        }
        // The last message is received after the matches are counted: it is not a measured one.
        participant.end_batch(batch);
        self.done += arrivals;
        for ns in recent_ns {
            samples.record_one_way(ns);
        }
        for receiving in self.posted.drain(..) {
            // A message beyond the announced number is an error.
            let buffer = participant.link.take_back(receiving)?.ok_or(MeasureError::Token)?;
            self.free.push(buffer);
        }
        participant.finish(participant.link.receive(END, Buffer::default()))?;
        send_samples(participant, &samples)
    }
}

fn receive<A: RunThreads>(participant: &Participant<'_, A>, buffer: Buffer) -> Receiving<A> {
    participant.link.receive_from(participant.case.wildcard_recv, DATA, buffer)
}

/// Sends the length of the samples, then the samples.
fn send_samples<A: RunThreads>(
    participant: &Participant<'_, A>,
    samples: &Samples,
) -> Result<(), MeasureError> {
    let bytes = samples.emit();
    let length = Buffer::from((bytes.len() as u64).to_le_bytes().to_vec());
    participant.finish_send(participant.link.send(ANSWER, length))?;
    participant.finish_send(participant.link.send(ANSWER, Buffer::from(bytes))).map(drop)
}

fn receive_samples<A: RunThreads>(
    participant: &Participant<'_, A>,
    sent: u64,
) -> Result<Samples, MeasureError> {
    let length = participant.finish(participant.link.receive(ANSWER, Buffer::zeroed(8)))?;
    let length = length.data().try_into().map(u64::from_le_bytes);
    let length = length.ok().filter(|&length| length <= RESULT_BYTES_MAX);
    let length = length.and_then(|length| usize::try_from(length).ok());
    let length = length.ok_or(MeasureError::Samples)?;
    let bytes = participant.finish(participant.link.receive(ANSWER, Buffer::zeroed(length)))?;
    let samples = Samples::parse(bytes.data(), ITERS_MAX).ok_or(MeasureError::Samples)?;
    if samples.count() == sent { Ok(samples) } else { Err(MeasureError::Samples) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(interval_ps: u64) -> Case {
        Case { traffic: Traffic::Planned { interval_ps }, ..Case::sample() }
    }

    #[test]
    fn planned_times_do_not_drift() {
        let mut schedule = Schedule::new(&case(333_333));
        let times: Vec<_> = (0..3_000_001).map(|_| schedule.next()).collect();
        assert_eq!(times[..4], [0, 333, 666, 999]);
        assert_eq!(times[3_000_000], 999_999_000);
    }

    #[test]
    fn both_sides_know_the_first_planned_time() {
        let hour = 3_600_000_000_000;
        for (base, now) in [(0, 0), (999, 12_345_678), (7, 8_000_000_001), (hour, hour + hour)] {
            let (start, after) = start_after(base, now).unwrap();
            assert_eq!(start, start_ns(base, after));
            assert!((LEAD_NS..LEAD_NS + 1000).contains(&(start - now)), "{base} {now}");
        }
        assert!(start_after(0, 2 * hour).is_err());
    }

    #[test]
    fn a_plan_is_held_or_it_is_not() {
        // 1000 messages a second for one second.
        let held = planned_rate(&case(1_000_000_000), 1000, 999_000_000, 999_000_100, 7);
        let want =
            PlannedRate { planned_per_s: 1000.0, sent_per_s: 1000.0, held: true, late_max_ns: 7 };
        assert_eq!(held, want);
        let slow = planned_rate(&case(1_000_000_000), 500, 499_000_000, 999_000_000, 500_000_000);
        assert_eq!((slow.sent_per_s, slow.held), (500.0, false));
        assert!(!planned_rate(&case(1000), 100, 99, 200, 101).held);
    }

    #[test]
    fn the_clock_goes_on() {
        let first = clock_ns();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock_ns() - first >= 2_000_000);
    }
}
