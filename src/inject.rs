//! Sends of slices, without a request.

use tagmatch_device::PeerId;
use tagmatch_fallback::Send;
use tagmatch_soft::Tag;

use crate::access::Access;
use crate::envelope::Peer;
use crate::error::Error;
use crate::worker::WorkerOf;

impl<A: Access> WorkerOf<A> {
    /// Sends a copy of `payload` and is done: the slice may be used again, and there is nothing to
    /// wait for. The fastest way for small messages. A message that can't go out at once waits in a
    /// copy; [`inject_with`](Self::inject_with) bounds the memory that such copies take.
    ///
    /// # Errors
    /// The peer is down, or not one of this worker, or the device can't carry the tag. A peer that
    /// goes down later is not reported here.
    #[inline]
    pub fn inject(&self, peer: Peer, tag: impl Into<Tag>, payload: &[u8]) -> Result<(), Error> {
        let id = self.own(peer)?;
        self.inject_own(id, tag.into(), payload).map_or(Ok(()), |error| Err(*error))
    }

    /// The error in a box, so that the result fits a register.
    #[inline(never)]
    fn inject_own(&self, id: PeerId, tag: Tag, payload: &[u8]) -> Option<Box<Error>> {
        let sent = self.access.with(|state| state.engine.inject(id, tag, payload));
        sent.err().map(|fault| Box::new(self.error(*fault)))
    }

    /// As [`inject`](Self::inject), with immediate data if wanted, and with a bound on the copies
    /// that wait: `Ok(false)` means that nothing was done, since the message can't go out at once
    /// and its copy would exceed [`Config::inject_bytes_max`](crate::Config::inject_bytes_max).
    /// Make progress, and try again.
    ///
    /// ```
    /// use tagmatch::{Config, Match, Worker};
    ///
    /// let worker = Worker::new(Config::default())?;
    /// let me = worker.oneself();
    /// while !worker.inject_with(me, 7, b"hello", Some(42))? {
    ///     worker.progress();
    /// }
    /// let received = worker.recv(Match::tag(7), vec![0; 5]).wait()?;
    /// assert_eq!((received.data(), received.status.immediate), (&b"hello"[..], Some(42)));
    /// # Ok::<(), tagmatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`inject`](Self::inject). The device can't carry immediate data.
    #[inline]
    pub fn inject_with(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        payload: &[u8],
        immediate: Option<u32>,
    ) -> Result<bool, Error> {
        let id = self.own(peer)?;
        let tag = tag.into();
        let message = Send { peer: id, tag, immediate, payload };
        let max = self.access.fixed().inject_bytes_max;
        let sent = self.access.with(|state| state.engine.inject_with(message, max));
        sent.map_err(|fault| self.error(*fault))
    }

    /// Sends a message if it can leave at once: if it is short, nothing waits for the peer, and
    /// there is room. `true`: the message is sent, in order with other sends, and the slice may be
    /// used again. `false`: nothing was done; [`inject_with`](Self::inject_with) or another
    /// function has to send the message. Doesn't block, and keeps no copy. Over UCX and
    /// libfabric the answer is always `false` ([`Ability::AtOnce`](crate::Ability)).
    ///
    /// # Errors
    /// The peer is one of another worker.
    // Always inlined: arguments and result of a call would go through memory.
    #[inline(always)]
    pub fn inject_at_once(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        payload: &[u8],
        immediate: Option<u32>,
    ) -> Result<bool, Error> {
        let id = self.own(peer)?;
        let message = Send { peer: id, tag: tag.into(), immediate, payload };
        // No closure: its captures would be stored in memory.
        let mut state = self.access.lock();
        let is_sent = state.engine.inject_at_once(message);
        A::unlock(state);
        Ok(is_sent)
    }
}
