//! The measured loops: ping-pong, stream, and both ways at once, for either side and for a process
//! that sends to itself.
//!
//! With a single buffer the loops differ only in which buffer comes next.

use std::time::{Duration, Instant};

use super::batch::Batch;
use super::error::MeasureError;
use super::thread::{Role, Span, ThreadPart};
use crate::link::{Access, Buffer, Link, Sending};
use crate::spec::Traffic;

type Ran = Result<Span, MeasureError>;

/// Runs a batch that was prepared.
pub(super) fn run<A: Access>(part: &mut ThreadPart<A>, link: &Link<A>, batch: Batch) -> Ran {
    let count = batch.count();
    match (part.case.traffic, part.role) {
        (Traffic::PingPong, Role::Peer) => pong(part, link, count),
        (Traffic::PingPong, _) => ping(part, link, count),
        (Traffic::Both, _) => both(part, link, count),
        (_, Role::Client) => stream_out(part, link, count),
        (_, Role::Peer) => stream_in(part, link, count),
        (_, Role::Alone) => stream_to_oneself(part, link, count),
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn finish_send<A: Access>(link: &Link<A>, send: Sending<A>) -> Result<Buffer, MeasureError> {
    Ok(link.finish(send)?.buffer)
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
        let sending = part.send_from(link, at);
        let received = link.finish(receiving)?;
        part.outgoing[at] = finish_send(link, sending)?;
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
    let mut sending: Option<Sending<A>> = None;
    for at in 0..count {
        let Some(receiving) = part.posted.pop_front() else { break };
        let mut received = link.finish(receiving)?;
        if at + 1 < count {
            let next = if single {
                part.receive(link, std::mem::take(&mut received.buffer))
            } else {
                part.receive_into(link, at + 1)
            };
            part.posted.push_back(next);
        }
        // The next ping says that the pong before it was received. Only a single buffer has to be
        // waited for.
        if single && let Some(before) = sending.take() {
            part.outgoing[0] = finish_send(link, before)?;
        }
        let slot = if single { 0 } else { at };
        let answer = part.send_from(link, slot);
        if let Some(before) = sending.replace(answer) {
            part.outgoing[at - 1] = finish_send(link, before)?;
        }
        part.check_length(received.status.length)?;
        if !single || at + 1 == count {
            part.incoming[slot] = received.buffer;
        }
    }
    if let (Some(last), Some(at)) = (sending, count.checked_sub(1)) {
        part.outgoing[if single { 0 } else { at }] = finish_send(link, last)?;
    }
    Ok(Span::since(start))
}

/// The buffers of a window that begins with message number `from`.
fn slots(single: bool, from: usize, length: usize) -> std::ops::Range<usize> {
    if single { 0..length } else { from..from + length }
}

/// Sends windows of messages, each answered by an empty one, as the client.
fn stream_out<A: Access>(part: &mut ThreadPart<A>, link: &Link<A>, count: usize) -> Ran {
    let (window, single) = (part.window().min(count), part.case.single_buffer);
    let mut sending = Vec::with_capacity(window);
    let start = Instant::now();
    for from in (0..count).step_by(window) {
        let slots = slots(single, from, window.min(count - from));
        let answer = part.receive_answer(link);
        for at in slots.clone() {
            sending.push(part.send_from(link, at));
        }
        for (at, request) in slots.zip(sending.drain(..)) {
            part.outgoing[at] = finish_send(link, request)?;
        }
        link.finish(answer)?;
    }
    Ok(Span::since(start))
}

/// Finishes the oldest posted receive, that of message number `at` of the batch, and posts the
/// receive of message number `next`, if there is one.
#[inline]
fn take_in<A: Access>(
    part: &mut ThreadPart<A>,
    link: &Link<A>,
    at: usize,
    next: Option<usize>,
) -> Result<(), MeasureError> {
    let Some(receiving) = part.posted.pop_front() else { return Ok(()) };
    let received = link.finish(receiving)?;
    if part.case.single_buffer {
        if next.is_some() {
            part.posted.push_back(part.receive(link, received.buffer));
        } else {
            part.incoming.push(received.buffer);
        }
    } else {
        if let Some(next) = next {
            let receiving = part.receive_into(link, next);
            part.posted.push_back(receiving);
        }
        part.incoming[at] = received.buffer;
    }
    part.check_length(received.status.length)
}

/// Receives windows of messages as the other side. A window of receives is always posted, also
/// while one window follows another.
fn stream_in<A: Access>(part: &mut ThreadPart<A>, link: &Link<A>, count: usize) -> Ran {
    let window = part.window().min(count);
    let start = Instant::now();
    let mut answers = Vec::with_capacity(count / window + 1);
    for at in 0..count {
        take_in(part, link, at, Some(at + window).filter(|&next| next < count))?;
        if (at + 1).is_multiple_of(window) || at + 1 == count {
            answers.push(part.send_answer(link));
        }
    }
    for answer in answers {
        finish_send(link, answer)?;
    }
    Ok(Span::since(start))
}

/// Sends and receives windows at the same time, on either side: a window is sent, a window is
/// received. Two windows of receives are posted, since the other side may be one ahead. The side
/// without the clock begins with the first message that arrives, so no message is under way before
/// the clock runs.
fn both<A: Access>(part: &mut ThreadPart<A>, link: &Link<A>, count: usize) -> Ran {
    let (window, single) = (part.window().min(count), part.case.single_buffer);
    let ahead = part.ahead().min(count);
    let mut sending = Vec::with_capacity(window);
    let start = Instant::now();
    for from in (0..count).step_by(window) {
        let length = window.min(count - from);
        let slots = slots(single, from, length);
        let next = |at| Some(at + ahead).filter(|&next| next < count);
        let first = from + usize::from(from == 0 && part.role == Role::Peer);
        for at in from..first {
            take_in(part, link, at, next(at))?;
        }
        for at in slots.clone() {
            sending.push(part.send_from(link, at));
        }
        for at in first..from + length {
            take_in(part, link, at, next(at))?;
        }
        for (at, request) in slots.zip(sending.drain(..)) {
            part.outgoing[at] = finish_send(link, request)?;
        }
    }
    Ok(Span::since(start))
}

/// Sends to itself: posts a window of receives, sends their messages, then finishes all.
fn stream_to_oneself<A: Access>(part: &mut ThreadPart<A>, link: &Link<A>, count: usize) -> Ran {
    let (window, single) = (part.window().min(count), part.case.single_buffer);
    let mut sending = Vec::with_capacity(window);
    let start = Instant::now();
    for from in (0..count).step_by(window) {
        let slots = slots(single, from, window.min(count - from));
        for at in slots.clone() {
            let receiving = part.receive_into(link, at);
            part.posted.push_back(receiving);
        }
        for at in slots.clone() {
            sending.push(part.send_from(link, at));
        }
        for at in slots.clone() {
            let Some(receiving) = part.posted.pop_front() else { break };
            let received = link.finish(receiving)?;
            part.check_length(received.status.length)?;
            part.incoming[at] = received.buffer;
        }
        for (at, request) in slots.clone().zip(sending.drain(..)) {
            part.outgoing[at] = finish_send(link, request)?;
        }
        part.fresh = if single { slots } else { 0..count };
    }
    Ok(Span::since(start))
}
