//! The operations of a window that are under way, and two ways to learn that they have ended: by
//! the request of each, or by the worker's completion queue.
//!
//! The measured loops are written for either way. The way is chosen once per batch.

use std::collections::VecDeque;

use super::error::MeasureError;
use super::sends::Sends;
use crate::link::{Access, Buffer, End, Link, LinkError, Received, Receiving};

/// Ends that are taken from the queue under one lock, at most.
const PORTION: usize = 64;

/// The messages that a receive takes: those with the tag, from any source or from the peer.
#[derive(Clone, Copy)]
pub(super) struct Selector {
    pub(super) any: bool,
    pub(super) tag: u64,
}

/// A measured message that was received.
pub(super) struct Arrived {
    /// The number that its receive was given.
    pub(super) number: usize,
    pub(super) length: usize,
    pub(super) buffer: Buffer,
}

/// The operations of one thread that are under way. Each has a number, which the caller gives and
/// gets back with its end.
pub(super) trait UnderWay<A: Access>: Default {
    /// The part of `operations` that ends in this way.
    fn of(operations: &mut Operations<A>) -> &mut Self;

    /// Posts a receive.
    fn receive(
        &mut self,
        link: &Link<A>,
        selector: Selector,
        number: usize,
        buffer: Buffer,
    ) -> Result<(), LinkError>;

    /// Sends `buffer`, which may come back at once.
    fn send(
        &mut self,
        link: &Link<A>,
        tag: u64,
        number: usize,
        buffer: &mut Buffer,
    ) -> Result<(), LinkError>;

    /// Waits until a receive has ended, and calls `arrived` for it and for others that have ended
    /// meanwhile. At least one receive has to be under way. A send that fails ends the wait.
    fn take_in(
        &mut self,
        link: &Link<A>,
        arrived: impl FnMut(&mut Self, Arrived) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError>;

    /// Waits until all sends have ended, and calls `sent` with the buffers that have not come back.
    /// Whichever operation fails first ends the wait.
    fn finish_sends(
        &mut self,
        link: &Link<A>,
        sent: impl FnMut(usize, Buffer),
    ) -> Result<(), LinkError>;
}

/// A thread's operations that are under way, of both ways. One of the two is empty.
pub(super) struct Operations<A: Access> {
    pub(super) requests: Requests<A>,
    queue: Queue,
}

impl<A: Access> Default for Operations<A> {
    fn default() -> Self {
        Self { requests: Requests::default(), queue: Queue::default() }
    }
}

/// Operations that end by their requests, which are tested one by one, the oldest first.
pub(super) struct Requests<A: Access> {
    pub(super) receives: VecDeque<(usize, Receiving<A>)>,
    sends: Sends<A>,
}

impl<A: Access> Default for Requests<A> {
    fn default() -> Self {
        Self { receives: VecDeque::new(), sends: Sends::default() }
    }
}

impl<A: Access> UnderWay<A> for Requests<A> {
    fn of(operations: &mut Operations<A>) -> &mut Self {
        &mut operations.requests
    }

    #[inline]
    fn receive(
        &mut self,
        link: &Link<A>,
        selector: Selector,
        number: usize,
        buffer: Buffer,
    ) -> Result<(), LinkError> {
        let Selector { any, tag } = selector;
        self.receives.push_back((number, link.receive_from(any, tag, buffer)));
        Ok(())
    }

    #[inline]
    fn send(
        &mut self,
        link: &Link<A>,
        tag: u64,
        number: usize,
        buffer: &mut Buffer,
    ) -> Result<(), LinkError> {
        self.sends.push(number, link.send(tag, std::mem::take(buffer)));
        Ok(())
    }

    #[inline]
    fn take_in(
        &mut self,
        link: &Link<A>,
        mut arrived: impl FnMut(&mut Self, Arrived) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        let (number, receiving) = self.receives.pop_front().expect("a receive is under way");
        let look = || self.sends.look();
        let Received { buffer, status } = link.finish_beside(receiving, look)?;
        arrived(self, Arrived { number, length: status.length, buffer })
    }

    #[inline]
    fn finish_sends(
        &mut self,
        link: &Link<A>,
        sent: impl FnMut(usize, Buffer),
    ) -> Result<(), LinkError> {
        self.sends.finish(link, sent)
    }
}

/// Operations whose ends come in the worker's completion queue.
#[derive(Default)]
pub(super) struct Queue {
    /// Ends of receives that came while sends were waited for. The list is kept from call to call,
    /// so that taking ends allocates nothing.
    ends: Vec<End>,
    /// How many sends are under way.
    sending: usize,
    /// Sends that have ended since their buffers were asked for.
    sent: Vec<(usize, Buffer)>,
}

/// The bit of a context that tells a send from a receive. The number is above it.
const SEND: u64 = 1;

fn context(number: usize, kind: u64) -> u64 {
    (number as u64) << 1 | kind
}

fn number(context: u64) -> usize {
    usize::try_from(context >> 1).unwrap_or(usize::MAX)
}

impl Queue {
    #[cold]
    fn note_sent(&mut self, number: usize, buffer: Buffer) {
        self.sending -= 1;
        self.sent.push((number, buffer));
    }
}

impl<A: Access> UnderWay<A> for Queue {
    fn of(operations: &mut Operations<A>) -> &mut Self {
        &mut operations.queue
    }

    #[inline]
    fn receive(
        &mut self,
        link: &Link<A>,
        selector: Selector,
        number: usize,
        buffer: Buffer,
    ) -> Result<(), LinkError> {
        link.receive_queued(selector.any, selector.tag, buffer, context(number, 0))
    }

    #[inline]
    fn send(
        &mut self,
        link: &Link<A>,
        tag: u64,
        number: usize,
        buffer: &mut Buffer,
    ) -> Result<(), LinkError> {
        match link.send_queued(tag, std::mem::take(buffer), context(number, SEND))? {
            Some(complete) => *buffer = complete,
            None => self.sending += 1,
        }
        Ok(())
    }

    #[inline]
    fn take_in(
        &mut self,
        link: &Link<A>,
        mut arrived: impl FnMut(&mut Self, Arrived) -> Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        let mut ends = std::mem::take(&mut self.ends);
        let mut is_one_here = false;
        while !is_one_here {
            if ends.is_empty() {
                link.await_ends(&mut ends, PORTION)?;
            }
            for end in ends.drain(..) {
                // Peer events are off.
                let End::Operation { context, result, buffer } = end else { continue };
                let number = number(context);
                let length = result.map_err(LinkError::from)?.length;
                if context & SEND == SEND {
                    self.note_sent(number, buffer);
                } else {
                    is_one_here = true;
                    arrived(self, Arrived { number, length, buffer })?;
                }
            }
        }
        self.ends = ends;
        Ok(())
    }

    #[inline]
    fn finish_sends(
        &mut self,
        link: &Link<A>,
        mut sent: impl FnMut(usize, Buffer),
    ) -> Result<(), LinkError> {
        while self.sending > 0 {
            link.await_ends(&mut self.ends, PORTION)?;
            // The end of a receive stays in the list, unless it has failed.
            let is_for_now = |end: &mut End| {
                let End::Operation { context, result, .. } = end else { return false };
                *context & SEND == SEND || result.is_err()
            };
            for end in self.ends.extract_if(.., is_for_now) {
                let End::Operation { context, result, buffer } = end else { continue };
                result?;
                self.sending -= 1;
                sent(number(context), buffer);
            }
        }
        self.sent.drain(..).for_each(|(number, buffer)| sent(number, buffer));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Local, Unlinked};
    use crate::spec::{DeviceArg, HwTagsArg, WorkerNeeds};

    const COUNT: usize = 100;
    const TAG: u64 = 7;

    fn byte(number: usize) -> u8 {
        u8::try_from(number).unwrap()
    }

    /// Messages of which each tells its number, longer than what is sent at once. Their sends wait
    /// until the receives are posted.
    fn all_end<U: UnderWay<Local>>(sends_first: bool) {
        let shm = DeviceArg::Shm;
        let needs = WorkerNeeds::default();
        let link = Unlinked::new(&shm, needs, HwTagsArg::Off).unwrap().oneself();
        let mut under_way = U::default();
        let mut outgoing: Vec<_> =
            (0..COUNT).map(|at| Buffer::from(vec![byte(at); 20_000 + at])).collect();
        for (at, buffer) in outgoing.iter_mut().enumerate() {
            under_way.send(&link, TAG, at, buffer).unwrap();
        }
        for at in 0..COUNT {
            let selector = Selector { any: false, tag: TAG };
            under_way.receive(&link, selector, at, Buffer::zeroed(20_000 + COUNT)).unwrap();
        }
        let mut here = [false; COUNT];
        let mut take_in = |under_way: &mut U| {
            while here.contains(&false) {
                let arrived = |_: &mut U, Arrived { number, length, buffer }: Arrived| {
                    assert!(!std::mem::replace(&mut here[number], true), "{number} twice");
                    assert_eq!((length, buffer[0]), (20_000 + number, byte(number)));
                    Ok(())
                };
                under_way.take_in(&link, arrived).unwrap();
            }
        };
        if !sends_first {
            take_in(&mut under_way);
        }
        under_way.finish_sends(&link, |at, buffer| outgoing[at] = buffer).unwrap();
        if sends_first {
            take_in(&mut under_way);
        }
        let is_back = |(at, buffer): (usize, &Buffer)| buffer.len() == 20_000 + at;
        assert!(outgoing.iter().enumerate().all(is_back));
    }

    #[test]
    fn every_operation_ends_once_with_its_number_and_its_buffer() {
        for sends_first in [false, true] {
            all_end::<Requests<Local>>(sends_first);
            all_end::<Queue>(sends_first);
        }
    }
}
