//! Sends that are under way. While anything else is waited for they are looked at, too: the other
//! side waits for the message of a send that has failed, and sends nothing until it has come.

use std::collections::VecDeque;

use crate::link::{Access, Buffer, Link, LinkError, Sending, Sent};

/// The sends of one thread that are under way, the oldest first. Each has a number, which the
/// caller gives and gets back with the buffer.
pub(super) struct Sends<A: Access> {
    under_way: VecDeque<(usize, Sending<A>)>,
    /// Sends whose end was seen while something else was waited for.
    ended: Vec<(usize, Buffer)>,
}

impl<A: Access> Default for Sends<A> {
    fn default() -> Self {
        Self { under_way: VecDeque::new(), ended: Vec::new() }
    }
}

impl<A: Access> Sends<A> {
    #[inline]
    pub(super) fn push(&mut self, number: usize, sending: Sending<A>) {
        self.under_way.push_back((number, sending));
    }

    /// Takes the ends of all sends that have ended.
    ///
    /// # Errors
    /// The error of the oldest send that has failed.
    #[cold]
    pub(super) fn look(&mut self) -> Result<(), LinkError> {
        for (number, mut sending) in std::mem::take(&mut self.under_way) {
            match sending.test() {
                Some(ended) => self.ended.push((number, ended?.buffer)),
                None => self.under_way.push_back((number, sending)),
            }
        }
        Ok(())
    }

    /// Waits until all sends have ended, and calls `sent` with the buffer of each.
    ///
    /// # Errors
    /// The error of the first send that fails, while earlier ones may still be under way.
    #[inline]
    pub(super) fn finish(
        &mut self,
        link: &Link<A>,
        mut sent: impl FnMut(usize, Buffer),
    ) -> Result<(), LinkError> {
        while let Some((number, sending)) = self.under_way.pop_front() {
            let Sent { buffer, .. } = link.finish_beside(sending, || self.look())?;
            sent(number, buffer);
        }
        self.ended.drain(..).for_each(|(number, buffer)| sent(number, buffer));
        Ok(())
    }
}

/// A single send, which is looked at while its answer is waited for.
pub(super) enum SingleSend<A: Access> {
    UnderWay(Sending<A>),
    Ended(Sent),
}

impl<A: Access> SingleSend<A> {
    /// As [`Sends::look`].
    #[cold]
    pub(super) fn look(&mut self) -> Result<(), LinkError> {
        if let SingleSend::UnderWay(sending) = self
            && let Some(ended) = sending.test()
        {
            *self = SingleSend::Ended(ended?);
        }
        Ok(())
    }

    /// Waits until the send has ended.
    #[inline]
    pub(super) fn finish(self, link: &Link<A>) -> Result<Buffer, LinkError> {
        match self {
            SingleSend::UnderWay(sending) => Ok(link.finish(sending)?.buffer),
            SingleSend::Ended(sent) => Ok(sent.buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Attention;
    use crate::link::{Local, Unlinked};
    use crate::spec::{DeviceArg, HwTagsArg, WorkerNeeds};

    const TAG: u64 = 7;

    fn unlinked() -> Unlinked {
        Unlinked::new(&DeviceArg::Shm, WorkerNeeds::default(), HwTagsArg::Off).unwrap()
    }

    /// A link whose sends fail: its peer doesn't exist any more.
    fn broken() -> Link<Local> {
        let gone = unlinked().address();
        unlinked().connect(&gone, Attention::default()).unwrap()
    }

    #[test]
    fn a_send_that_fails_ends_the_wait_for_its_answer_with_its_reason() {
        let link = unlinked().oneself();
        let broken = broken();
        let mut send = SingleSend::UnderWay(broken.send(TAG, Buffer::zeroed(8)));
        let answer = link.receive(TAG, Buffer::zeroed(8));
        let error = link.finish_beside(answer, || send.look()).map(drop).unwrap_err();
        assert!(error.to_string().contains("is down"), "{error}");
    }

    #[test]
    fn a_send_that_fails_ends_the_wait_for_earlier_ones_with_its_reason() {
        let link = unlinked().oneself();
        let broken = broken();
        let mut sends = Sends::default();
        // Nobody receives it, and it is too long to be sent at once.
        sends.push(0, link.send(TAG, Buffer::zeroed(1 << 20)));
        sends.push(1, broken.send(TAG, Buffer::zeroed(8)));
        let error = sends.finish(&link, |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("is down"), "{error}");
    }

    #[test]
    fn an_end_that_was_seen_early_gives_its_buffer_back() {
        let link = unlinked().oneself();
        let mut sends = Sends::default();
        let mut single = SingleSend::UnderWay(link.send(TAG, Buffer::from(vec![3; 3])));
        for length in [1usize, 2] {
            sends.push(length, link.send(TAG, Buffer::zeroed(length)));
        }
        single.look().unwrap();
        single.look().unwrap();
        assert_eq!(&*single.finish(&link).unwrap(), [3; 3]);
        sends.look().unwrap();
        let mut lengths = Vec::new();
        sends.finish(&link, |number, buffer| lengths.push((number, buffer.len()))).unwrap();
        assert_eq!(lengths, [(1, 1), (2, 2)]);
    }
}
