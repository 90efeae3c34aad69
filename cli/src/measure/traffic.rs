//! The measured loops: ping-pong and stream, each from both ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::side::{Batch, MeasureError, Side};
use crate::link::Buffer;
use crate::payload::Direction;

/// Room for a batch, kept from one to the next.
pub(super) struct Buffers {
    outgoing: Vec<Buffer>,
    incoming: Vec<Buffer>,
    /// Round trips of the last batch.
    pub(super) round_trips_ns: Vec<u64>,
}

impl Buffers {
    pub(super) fn new(outgoing: Vec<Buffer>, incoming: Vec<Buffer>) -> Self {
        Self { outgoing, incoming, round_trips_ns: Vec::new() }
    }
}

fn count(batch: Batch) -> usize {
    usize::try_from(batch.messages).unwrap_or(usize::MAX)
}

/// One there, one back, as the client sees it. The clock is read once a round trip, and once more
/// for the batch; payloads are written before and checked after.
pub(super) fn ping(
    side: &mut Side<'_>,
    batch: Batch,
    buffers: &mut Buffers,
) -> Result<Duration, MeasureError> {
    let outgoing = &mut buffers.outgoing[..count(batch)];
    let incoming = &mut buffers.incoming[..count(batch)];
    let times = &mut buffers.round_trips_ns;
    times.clear();
    times.reserve(outgoing.len());
    side.fill(outgoing, Direction::Ping);
    side.begin(batch)?;
    let start = Instant::now();
    let mut last = start;
    for (ping, pong) in outgoing.iter_mut().zip(incoming.iter_mut()) {
        let receiving = side.receive_data(pong);
        let sending = side.send_data(ping);
        let received = side.finish(receiving)?;
        *ping = side.finish_send(sending)?;
        let now = Instant::now();
        times.push(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
        last = now;
        side.check_length(received.status.length)?;
        *pong = received.buffer;
    }
    side.end_batch(batch);
    side.check(incoming, Direction::Pong)?;
    Ok(last - start)
}

/// The same from the other end. The next receive is posted before the answer goes out, so that it
/// always finds its message later.
pub(super) fn pong(
    side: &mut Side<'_>,
    batch: Batch,
    buffers: &mut Buffers,
) -> Result<(), MeasureError> {
    let outgoing = &mut buffers.outgoing[..count(batch)];
    let incoming = &mut buffers.incoming[..count(batch)];
    side.fill(outgoing, Direction::Pong);
    let mut next = Some(side.receive_data(&mut incoming[0]));
    side.go(batch)?;
    let mut sending = None;
    for at in 0..incoming.len() {
        let Some(receiving) = next.take() else { break };
        let received = side.finish(receiving)?;
        next = incoming.get_mut(at + 1).map(|buffer| side.receive_data(buffer));
        let sent = sending.replace(side.send_data(&mut outgoing[at]));
        // The ping says that the pong before it was taken.
        if let Some(before) = sent {
            outgoing[at - 1] = side.finish_send(before)?;
        }
        side.check_length(received.status.length)?;
        incoming[at] = received.buffer;
    }
    if let (Some(last), Some(slot)) = (sending, outgoing.last_mut()) {
        *slot = side.finish_send(last)?;
    }
    side.end_batch(batch);
    side.check(incoming, Direction::Ping)
}

/// Windows of messages, each answered by an empty one, as the client sees it.
pub(super) fn stream_out(
    side: &mut Side<'_>,
    batch: Batch,
    buffers: &mut Buffers,
) -> Result<Duration, MeasureError> {
    let outgoing = &mut buffers.outgoing[..count(batch)];
    let window = usize::try_from(side.leg.window).unwrap_or(usize::MAX);
    let mut sending = Vec::with_capacity(window.min(outgoing.len()));
    side.fill(outgoing, Direction::Ping);
    side.begin(batch)?;
    let start = Instant::now();
    for window in outgoing.chunks_mut(window) {
        let answer = side.receive_answer();
        sending.extend(window.iter_mut().map(|buffer| side.send_data(buffer)));
        for (request, slot) in sending.drain(..).zip(window) {
            *slot = side.finish_send(request)?;
        }
        side.finish(answer)?;
    }
    let took = start.elapsed();
    // What this side received were answers: none of them is measured.
    side.end_batch(Batch { counts: false, ..batch });
    Ok(took)
}

/// The same from the other end: a window of receives is always posted, also at the seams.
pub(super) fn stream_in(
    side: &mut Side<'_>,
    batch: Batch,
    buffers: &mut Buffers,
) -> Result<(), MeasureError> {
    let incoming = &mut buffers.incoming[..count(batch)];
    let window = usize::try_from(side.leg.window).unwrap_or(usize::MAX).min(incoming.len());
    let first = incoming[..window].iter_mut().map(|buffer| side.receive_data(buffer));
    let mut posted: VecDeque<_> = first.collect();
    side.go(batch)?;
    let mut answers = Vec::with_capacity(incoming.len() / window + 1);
    for at in 0..incoming.len() {
        let Some(receiving) = posted.pop_front() else { break };
        let received = side.finish(receiving)?;
        if let Some(buffer) = incoming.get_mut(at + window) {
            posted.push_back(side.receive_data(buffer));
        }
        if (at + 1).is_multiple_of(window) || at + 1 == incoming.len() {
            answers.push(side.send_answer());
        }
        side.check_length(received.status.length)?;
        incoming[at] = received.buffer;
    }
    for answer in answers {
        side.finish_send(answer)?;
    }
    side.end_batch(batch);
    side.check(incoming, Direction::Ping)
}
