//! Fills a queue and drains it: the cost of matching all of a deep queue in a chosen order. The
//! queue is the client's.

use std::time::Instant;

use super::batch::{ANSWER, Batch, DATA};
use super::error::MeasureError;
use super::participant::{Participant, takes_any};
use super::sends::Sends;
use super::thread::Span;
use super::threads::RunThreads;
use crate::link::{Buffer, Receiving};
use crate::payload::{Direction, Stamp};
use crate::spec::{Case, Order, Queue, Traffic};

/// The distance between two adversarial tags: a multiple of 1021, the prime size of UCX's hash
/// table of posted receives, which is the most widespread one, and of each power of two that other
/// tables have as their size.
const ADVERSARIAL_STEP: u64 = 1021 << 20;

/// One side of a drain.
pub(super) struct Drain {
    queue: Queue,
    order: Order,
    seed: u64,
    /// By the message's number in the queue.
    buffers: Vec<Buffer>,
    /// Messages of all rounds so far.
    done: u64,
}

impl Drain {
    /// `None` if the case is not a drain.
    pub(super) fn new(case: &Case) -> Option<Self> {
        let Traffic::Drain { queue, order, seed } = case.traffic else { return None };
        let size = usize::try_from(case.size).unwrap_or(usize::MAX);
        let buffers = (0..case.batch).map(|_| Buffer::zeroed(size)).collect();
        Some(Self { queue, order, seed, buffers, done: 0 })
    }

    /// Runs a round as the client: fills its queue, then drains it.
    pub(super) fn batch<A: RunThreads>(
        &mut self,
        participant: &mut Participant<'_, A>,
        batch: Batch,
    ) -> Result<Span, MeasureError> {
        let order = self.order(batch);
        let mut posted: Vec<Option<Receiving<A>>> = Vec::with_capacity(order.len());
        let span = match self.queue {
            Queue::Posted => {
                posted.extend((0..order.len()).map(|n| Some(self.receive(participant, n, n))));
                participant.begin(batch)?;
                let start = Instant::now();
                let go = participant.link.send(ANSWER, Buffer::default());
                for &n in &order {
                    let Some(receiving) = posted[n].take() else { continue };
                    self.buffers[n] = finish(participant, receiving)?;
                }
                let span = Span::since(start);
                participant.finish_send(go)?;
                span
            }
            Queue::Unexpected => {
                participant.begin(batch)?;
                participant
                    .await_unexpected(batch.messages, self.tag(order.len().saturating_sub(1)))?;
                let start = Instant::now();
                let numbered = order.iter().enumerate();
                posted.extend(numbered.map(|(at, &n)| Some(self.receive(participant, n, at))));
                for (&n, receiving) in order.iter().zip(posted) {
                    let Some(receiving) = receiving else { continue };
                    self.buffers[n] = finish(participant, receiving)?;
                }
                Span::since(start)
            }
        };
        participant.end_batch(batch);
        self.check(participant.case, batch)?;
        Ok(span)
    }

    /// Runs a round as the other side, which sends the messages.
    pub(super) fn answer<A: RunThreads>(
        &mut self,
        participant: &mut Participant<'_, A>,
        batch: Batch,
    ) -> Result<(), MeasureError> {
        let order = self.sending_order(batch);
        self.fill(participant.case, &order);
        let go = (self.queue == Queue::Posted)
            .then(|| participant.link.receive(ANSWER, Buffer::default()));
        participant.go(batch)?;
        go.map(|go| participant.finish(go)).transpose()?;
        let mut sends = Sends::default();
        for &n in &order {
            let buffer = std::mem::take(&mut self.buffers[n]);
            sends.push(n, participant.link.send(self.tag(n), buffer));
        }
        sends.finish(&participant.link, |n, buffer| self.buffers[n] = buffer)?;
        self.done += batch.messages;
        participant.end_batch(Batch { counts: false, ..batch });
        Ok(())
    }

    /// Posts the receive of message number `n`. It is the `at`th receive of the round.
    fn receive<A: RunThreads>(
        &mut self,
        participant: &Participant<'_, A>,
        n: usize,
        at: usize,
    ) -> Receiving<A> {
        let tag = self.tag(n);
        let buffer = std::mem::take(&mut self.buffers[n]);
        participant.link.receive_from(takes_any(participant.case, at as u64), tag, buffer)
    }

    fn tag(&self, n: usize) -> u64 {
        let step = if self.order == Order::Adversarial { ADVERSARIAL_STEP } else { 1 };
        DATA | (n as u64 * step)
    }

    /// The order of a round. Both sides compute the same.
    fn order(&self, batch: Batch) -> Vec<usize> {
        let mut order: Vec<_> = (0..batch.count()).collect();
        match self.order {
            Order::Forward => {}
            Order::Reverse | Order::Adversarial => order.reverse(),
            Order::Random => shuffle(&mut order, self.seed ^ self.done.rotate_left(32)),
        }
        order
    }

    /// The order in which messages are sent. Those that are to wait are sent in the queue's order;
    /// the receives are then posted in the order of the round.
    fn sending_order(&self, batch: Batch) -> Vec<usize> {
        match self.queue {
            Queue::Posted => self.order(batch),
            Queue::Unexpected => (0..batch.count()).collect(),
        }
    }

    /// A payload has the message's place in the order of sending, so a message that was matched out
    /// of order is noticed.
    fn stamp(&self, place: usize) -> Stamp {
        Stamp { iteration: self.done + place as u64, direction: Direction::Pong, thread: 0 }
    }

    fn fill(&mut self, case: &Case, order: &[usize]) {
        for (place, &n) in order.iter().enumerate().filter(|_| case.validate) {
            let stamp = self.stamp(place);
            if let Some(bytes) = self.buffers[n].as_mut_slice() {
                stamp.fill(bytes);
            }
        }
    }

    fn check(&mut self, case: &Case, batch: Batch) -> Result<(), MeasureError> {
        if case.validate {
            for (place, &n) in self.sending_order(batch).iter().enumerate() {
                self.stamp(place).check(&self.buffers[n])?;
            }
        }
        self.done += batch.messages;
        Ok(())
    }
}

fn finish<A: RunThreads>(
    participant: &Participant<'_, A>,
    request: Receiving<A>,
) -> Result<Buffer, MeasureError> {
    let received = participant.finish(request)?;
    let found = received.status.length as u64;
    let wanted = participant.case.size;
    if found != wanted {
        return Err(MeasureError::Length { found, wanted });
    }
    Ok(received.buffer)
}

/// The shuffle of Fisher and Yates with numbers from SplitMix64. It must not change: figures are
/// compared across versions.
fn shuffle(order: &mut [usize], seed: u64) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for last in (1..order.len()).rev() {
        let place = (u128::from(next()) * (last as u128 + 1)) >> 64;
        order.swap(last, usize::try_from(place).unwrap_or(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(order: Order, seed: u64) -> Drain {
        let traffic = Traffic::Drain { queue: Queue::Posted, order, seed };
        Drain::new(&Case { traffic, batch: 100, ..Case::sample() }).unwrap()
    }

    #[test]
    fn each_order_has_every_message_once() {
        let batch = Batch::of(100, true);
        for order in [Order::Forward, Order::Reverse, Order::Random, Order::Adversarial] {
            let mut numbers = drain(order, 1).order(batch);
            let shuffled = !numbers.is_sorted() && !numbers.iter().rev().is_sorted();
            assert_eq!(shuffled, order == Order::Random);
            assert_eq!(numbers[0] == 0, order == Order::Forward);
            numbers.sort_unstable();
            assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_seed_says_the_order_of_every_round() {
        let batch = Batch::of(100, true);
        let random = |seed| drain(Order::Random, seed);
        assert_eq!(random(1).order(batch), random(1).order(batch));
        assert_ne!(random(1).order(batch), random(2).order(batch));
        let second = Drain { done: 100, ..random(1) };
        assert_ne!(random(1).order(batch), second.order(batch));
        // The shuffle does not change: figures are compared across versions.
        let mut few = [0, 1, 2, 3, 4, 5, 6, 7];
        shuffle(&mut few, 42);
        assert_eq!(few, [4, 3, 2, 0, 7, 6, 1, 5]);
    }

    #[test]
    fn adversarial_tags_share_a_bucket_and_stay_tags() {
        let drain = drain(Order::Adversarial, 0);
        let deepest = usize::try_from(crate::spec::bounds::DEPTH_MAX).unwrap();
        for n in [1, 2, 99, deepest] {
            let number = drain.tag(n) - DATA;
            assert!(number.is_multiple_of(1021) && number.is_multiple_of(1 << 20));
            assert!(number < 1 << 56);
        }
    }
}
