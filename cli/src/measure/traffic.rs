//! The measured loops: ping-pong, stream, and both ways at once, for either side and for a process
//! that sends to itself.
//!
//! With a single buffer the loops differ only in which buffer comes next. The loops of windows are
//! written for both ways to learn that an operation has ended (`completions`).

use std::ops::Range;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::completions::{Arrived, Queue, Requests, Selector, UnderWay};
use super::error::MeasureError;
use super::sends::SingleSend;
use super::thread::{Role, Span, ThreadPart};
use crate::link::{Access, Buffer, Link, LinkError};
use crate::spec::{Completions, Traffic};

type Ran = Result<Span, MeasureError>;

/// Runs a batch that was prepared.
pub(super) fn run<A: Access>(part: &mut ThreadPart<A>, link: &Link<A>, batch: Batch) -> Ran {
    let count = batch.count();
    match (part.case.traffic, part.role) {
        (Traffic::PingPong, Role::Peer) => pong(part, link, count),
        (Traffic::PingPong, _) => ping(part, link, count),
        _ => match part.case.completions {
            Completions::Requests => windows::<A, Requests<A>>(part, link, count),
            Completions::Queue => windows::<A, Queue>(part, link, count),
        },
    }
}

/// Runs a batch of windows.
fn windows<A: Access, U: UnderWay<A>>(
    part: &mut ThreadPart<A>,
    link: &Link<A>,
    count: usize,
) -> Ran {
    let under_way = std::mem::take(U::of(&mut part.operations));
    let traffic = part.case.traffic;
    let role = part.role;
    let window = part.window().min(count);
    let mut windows = Windows { part, link, under_way, count, window, here: 0 };
    let span = match (traffic, role) {
        (Traffic::Both, _) => windows.both(),
        (_, Role::Client) => windows.stream_out(),
        (_, Role::Peer) => windows.stream_in(),
        (_, Role::Alone) => windows.stream_to_oneself(),
    }?;
    let Windows { part, under_way, .. } = windows;
    *U::of(&mut part.operations) = under_way;
    Ok(span)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Ping-pong as the client, or to itself. The clock is read once a round trip, and once more for
/// the batch. Payloads are written before and checked after.
fn ping<A: Access>(part: &mut ThreadPart<A>, link: &Link<A>, count: usize) -> Ran {
    let step = usize::from(!part.case.single_buffer);
    part.times_ns.reserve(count);
    let start = Instant::now();
    let mut last = start;
    for at in (0..count).map(|at| at * step) {
        let receiving = part.receive_into(link, at);
        let mut sending = SingleSend::UnderWay(part.send_from(link, at));
        let received = link.finish_beside(receiving, || sending.look())?;
        part.outgoing[at] = sending.finish(link)?;
        let now = Instant::now();
        part.times_ns.push(ns(now - last));
        last = now;
        part.check_length(received.status.length)?;
        part.incoming[at] = received.buffer;
    }
    Ok(Span { start, end: last })
}

/// Ping-pong as the other side. The next receive is posted before the answer is sent, so its
/// message always finds it.
fn pong<A: Access>(part: &mut ThreadPart<A>, link: &Link<A>, count: usize) -> Ran {
    let start = Instant::now();
    let single = part.case.single_buffer;
    let mut sending: Option<SingleSend<A>> = None;
    let first = part.operations.requests.receives.pop_front();
    let mut next = first.map(|(_, receiving)| receiving);
    for at in 0..count {
        let Some(receiving) = next.take() else { break };
        let look = || sending.as_mut().map_or(Ok(()), SingleSend::look);
        let mut received = link.finish_beside(receiving, look)?;
        if at + 1 < count {
            next = Some(if single {
                part.receive(link, std::mem::take(&mut received.buffer))
            } else {
                part.receive_into(link, at + 1)
            });
        }
        // The next ping says that the pong before it was received. Only a single buffer has to be
        // waited for.
        if single && let Some(before) = sending.take() {
            part.outgoing[0] = before.finish(link)?;
        }
        let slot = if single { 0 } else { at };
        let answer = SingleSend::UnderWay(part.send_from(link, slot));
        if let Some(before) = sending.replace(answer) {
            part.outgoing[at - 1] = before.finish(link)?;
        }
        part.check_length(received.status.length)?;
        if !single || at + 1 == count {
            part.incoming[slot] = received.buffer;
        }
    }
    if let (Some(last), Some(at)) = (sending, count.checked_sub(1)) {
        part.outgoing[if single { 0 } else { at }] = last.finish(link)?;
    }
    Ok(Span::since(start))
}

/// A batch of windows that is run.
struct Windows<'a, A: Access, U> {
    part: &'a mut ThreadPart<A>,
    link: &'a Link<A>,
    under_way: U,
    /// Messages of the batch, and of a window.
    count: usize,
    window: usize,
    /// How many messages of the batch have arrived.
    here: usize,
}

impl<A: Access, U: UnderWay<A>> Windows<'_, A, U> {
    /// Sends windows of messages, each answered by an empty one, as the client.
    fn stream_out(&mut self) -> Ran {
        let start = Instant::now();
        for from in (0..self.count).step_by(self.window) {
            let answer = Selector { any: false, tag: self.part.answer_tag() };
            self.under_way.receive(self.link, answer, 0, Buffer::default())?;
            self.send(self.slots(from))?;
            self.finish_sends()?;
            self.under_way.take_in(self.link, |_, _| Ok(()))?;
        }
        Ok(Span::since(start))
    }

    /// Receives windows of messages as the other side. A window of receives is always posted, also
    /// while one window follows another.
    fn stream_in(&mut self) -> Ran {
        let link = self.link;
        let window = self.window;
        let count = self.count;
        let answer = self.part.answer_tag();
        let start = Instant::now();
        self.take_in(count, |under_way, here| {
            if here.is_multiple_of(window) || here == count {
                under_way.send(link, answer, 0, &mut Buffer::default())
            } else {
                Ok(())
            }
        })?;
        self.under_way.finish_sends(link, |_, _| ())?;
        Ok(Span::since(start))
    }

    /// Sends and receives windows at the same time, on either side: a window is sent, a window is
    /// received. Two windows of receives are posted, since the other side may be one ahead. The
    /// side without the clock begins with the first message that arrives, so no message is under
    /// way before the clock runs.
    fn both(&mut self) -> Ran {
        let start = Instant::now();
        if self.part.role == Role::Peer {
            self.take_in(1, |_, _| Ok(()))?;
        }
        for from in (0..self.count).step_by(self.window) {
            self.send(self.slots(from))?;
            self.take_in((from + self.window).min(self.count), |_, _| Ok(()))?;
            self.finish_sends()?;
        }
        Ok(Span::since(start))
    }

    /// Sends to itself: posts a window of receives, sends their messages, then finishes all.
    fn stream_to_oneself(&mut self) -> Ran {
        let single = self.part.case.single_buffer;
        let start = Instant::now();
        for from in (0..self.count).step_by(self.window) {
            let slots = self.slots(from);
            for at in slots.clone() {
                self.part.post_into(self.link, &mut self.under_way, at)?;
            }
            self.send(slots.clone())?;
            let mut left = slots.len();
            while left > 0 {
                self.under_way.take_in(self.link, |_, Arrived { number, length, buffer }| {
                    left -= 1;
                    self.part.incoming[number] = buffer;
                    self.part.check_length(length)
                })?;
            }
            self.finish_sends()?;
            self.part.fresh = if single { slots } else { 0..self.count };
        }
        Ok(Span::since(start))
    }

    /// The buffers of the window that begins with message number `from`.
    fn slots(&self, from: usize) -> Range<usize> {
        let length = self.window.min(self.count - from);
        if self.part.case.single_buffer { 0..length } else { from..from + length }
    }

    /// Sends from these buffers.
    #[inline]
    fn send(&mut self, slots: Range<usize>) -> Result<(), LinkError> {
        for at in slots {
            self.part.start(self.link, &mut self.under_way, at)?;
        }
        Ok(())
    }

    /// Waits until all sends have ended.
    #[inline]
    fn finish_sends(&mut self) -> Result<(), LinkError> {
        self.under_way.finish_sends(self.link, |at, buffer| self.part.outgoing[at] = buffer)
    }

    /// Waits until `until` messages of the batch have arrived or more, and posts the receive of a
    /// later message for each. `each` is called with the number of those that have arrived so far.
    #[inline]
    fn take_in(
        &mut self,
        until: usize,
        mut each: impl FnMut(&mut U, usize) -> Result<(), LinkError>,
    ) -> Result<(), MeasureError> {
        let Self { part, link, under_way, count, here, .. } = self;
        let ahead = part.ahead();
        while *here < until {
            under_way.take_in(link, |under_way, Arrived { number, length, buffer }| {
                let next = Some(*here + ahead).filter(|next| next < count);
                *here += 1;
                match (next, part.case.single_buffer) {
                    (Some(next), true) => part.post(link, under_way, next, buffer)?,
                    (None, true) => part.incoming.push(buffer),
                    (next, false) => {
                        if let Some(next) = next {
                            part.post_into(link, under_way, next)?;
                        }
                        part.incoming[number] = buffer;
                    }
                }
                each(under_way, *here)?;
                part.check_length(length)
            })?;
        }
        Ok(())
    }
}
