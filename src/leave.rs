//! Leaving without loss: what has not left this process, and waiting until it has.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tagmatch_fallback::WhyUnsent;

use crate::access::{Access, State};
use crate::awaited::Awaited;
use crate::envelope::Peer;
use crate::wait::{Limit, wait_within};
use crate::worker::WorkerOf;

/// Messages to one peer that have not left this process, or never will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsent {
    /// The peer.
    pub peer: Peer,
    /// How many messages, at least 1. Exact over shared memory. Over verbs, messages count until
    /// their acknowledgement is known. UCX and libfabric don't tell the number of small messages
    /// that they hold: these count as one.
    pub messages: usize,
    /// Why the messages have not left, or why they are lost.
    pub why: WhyUnsent,
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unsent { peer, messages, why } = self;
        let plural = if *messages == 1 { "" } else { "s" };
        write!(f, "{messages} message{plural} to {peer} ({why})")
    }
}

/// A [`flush`](WorkerOf::flush) that did not succeed for all peers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotFlushed {
    /// The peers that it failed for, with what they miss, and why.
    pub peers: Vec<Unsent>,
}

impl NotFlushed {
    /// The peers of this list that live. `Ok`: there is none, so all messages have left but those
    /// to peers that are down, which are lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tagmatch::{Config, NotFlushed, Worker};
    ///
    /// let worker = Worker::new(Config::default())?;
    /// worker.flush(Duration::from_secs(10)).or_else(NotFlushed::only_living)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Some messages have not left for peers that live.
    pub fn only_living(mut self) -> Result<(), Self> {
        self.peers.retain(|unsent| !matches!(unsent.why, WhyUnsent::Down(_)));
        if self.peers.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for NotFlushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not flushed: ")?;
        for (at, unsent) in self.peers.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            unsent.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for NotFlushed {}

impl<A: Access> WorkerOf<A> {
    /// Blocks until every message that sends and [`inject`](Self::inject) have accepted so far is
    /// its peer's transport's: it reaches the peer, if the peer lives, whatever this process does
    /// next, `_exit` or SIGKILL included. Makes progress meanwhile, and ends at the latest after
    /// `timeout`, or when the worker is interrupted ([`Interrupter`](crate::Interrupter)). What
    /// that means for the devices:
    ///
    /// | device | a small message | a large message (rendezvous) |
    /// |---|---|---|
    /// | shared memory | is in a ring in the peer's memory | was read by the peer |
    /// | verbs | was acknowledged by the peer's NIC, into a buffer of the peer | was read by the peer, with the NIC's READ or by copies, and the FIN has come |
    /// | TCP | was acknowledged by the peer's machine, whose kernel keeps it for the peer | was read by the peer, and the FIN has come |
    /// | libfabric | the provider has ended its send, and that of a packet behind it | its send has ended |
    /// | UCX | was flushed by UCX (`ucp_ep_flush_nbx`): it is in memory of the peer, or was acknowledged by the peer's NIC; over TCP by the peer's UCX, for which the peer has to make progress | its send has ended |
    ///
    /// The promise ends there: the message may still wait for a receive.
    /// [`send_sync`](Self::send_sync) is the call to learn of its match. A connection that isn't
    /// made yet, and credit that is used up, need the peer's progress with every device.
    ///
    /// Messages to [oneself](Self::oneself) are not waited for, and requests don't end by this
    /// call: the request of a large message is over soon after, a synchronous one when it was
    /// matched.
    ///
    /// # Errors
    /// Names the peers that some messages have not left for, or never will:
    /// - A peer that is down: what it has not taken is lost, and verbs, TCP, UCX and libfabric
    ///   can't tell whether a message arrived that was not acknowledged before. Each such peer is
    ///   named by one call, also if it went down before that; later calls say nothing of it. A
    ///   program that learns of deaths in another way asks for the living peers alone:
    ///   [`NotFlushed::only_living`].
    /// - A peer that is not connected when the time is over, because it makes no progress, for
    ///   instance. Its messages go on waiting.
    /// - A peer that does not take its messages: it receives too few of them to give credit for
    ///   more, or has not received a large one. Its messages go on waiting, too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tagmatch::{Config, Match, Worker};
    ///
    /// let a = Worker::new(Config::default())?;
    /// let b = Worker::new(Config::default())?;
    /// let to_b = a.connect(&b.address())?;
    /// a.inject(to_b, 1, b"last words")?;
    /// // `b` belongs to this thread, and makes no progress by itself: the connection isn't made.
    /// let error = a.flush(Duration::from_millis(5)).unwrap_err();
    /// assert_eq!((error.peers[0].peer, error.peers[0].messages), (to_b, 1));
    /// while b.probe(Match::tag(1))?.is_none() {
    ///     a.progress();
    /// }
    /// a.flush(Duration::from_secs(5)).unwrap();
    /// assert!(a.unsent().is_empty());
    /// # Ok::<(), tagmatch::Error>(())
    /// ```
    pub fn flush(&self, timeout: Duration) -> Result<(), NotFlushed> {
        let limit = Limit::of_call(timeout, &self.access.fixed().interrupter);
        let mut flushing = self.access.with(|state| state.engine.as_dyn_mut().begin_flush());
        let look = |state: &mut State| {
            let events = state.progress();
            (events, state.engine.as_dyn_mut().is_flushed(&mut flushing).then_some(()))
        };
        let is_flushed = wait_within(&self.access, Awaited::Nothing, &limit, look).is_some();
        let peers = self.access.with(|state| {
            let mut peers = state.engine.as_dyn_mut().take_lost();
            if !is_flushed {
                let count = peers.len();
                let unsent = state.engine.as_dyn_mut().unsent();
                let is_lost = |peer| peers[..count].iter().any(|lost| lost.peer == peer);
                let news: Vec<_> = unsent.into_iter().filter(|of| !is_lost(of.peer)).collect();
                peers.extend(news);
            }
            peers
        });
        let peers = self.of_this_worker(peers);
        if peers.is_empty() { Ok(()) } else { Err(NotFlushed { peers }) }
    }

    /// The messages that a [`flush`](Self::flush) would wait for now, by peer: each peer that has
    /// any is there once. Makes progress first. Looks at all peers, so it is for reports, and for
    /// runtimes that end when it is empty.
    pub fn unsent(&self) -> Vec<Unsent> {
        self.of_this_worker(self.access.with(|state| {
            state.progress();
            state.engine.as_dyn_mut().unsent()
        }))
    }

    /// Flushes as [`flush`](Self::flush) does, then ends the worker as dropping it does, without
    /// waiting for [`Config::drain_timeout`](crate::Config::drain_timeout). Blocks for the timeout,
    /// and then for the seconds that a device takes to part from its peers. Other handles of a
    /// [`SharedWorker`](crate::SharedWorker) keep the worker alive, which ends with the last one.
    ///
    /// # Errors
    /// The messages that are lost by that, or may be: those that [`flush`](Self::flush) names. In
    /// the case of other handles, the messages to peers that are not down go on waiting.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tagmatch::{Config, Worker};
    /// let worker = Worker::new(Config::default())?;
    /// if let Err(lost) = worker.close(Duration::from_secs(10)) {
    ///     eprintln!("{lost}");
    /// }
    /// # Ok::<(), tagmatch::Error>(())
    /// ```
    pub fn close(self, timeout: Duration) -> Result<(), NotFlushed> {
        let flushed = self.flush(timeout);
        let WorkerOf { handle, .. } = self;
        if let Some(mut last) = Arc::into_inner(handle) {
            last.drains = false;
        }
        flushed
    }

    fn of_this_worker(&self, unsent: Vec<tagmatch_fallback::Unsent>) -> Vec<Unsent> {
        let named = |of: tagmatch_fallback::Unsent| {
            let tagmatch_fallback::Unsent { peer, messages, why } = of;
            Unsent { peer: self.peer(peer), messages, why }
        };
        unsent.into_iter().map(named).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tagmatch_fallback::PeerFault;

    use super::*;

    #[test]
    fn each_peer_is_named_with_what_it_misses() {
        let of = |number, messages| {
            let peer = Peer { id: tagmatch_device::PeerId(number), worker: 1 };
            Unsent { peer, messages, why: WhyUnsent::NotTaken }
        };
        let [one, two] = [of(3, 1), of(4, 2)].map(|unsent| unsent.to_string());
        assert!(
            one.starts_with("1 message to peer 3 (") && two.starts_with("2 messages to peer 4")
        );
        let alone = NotFlushed { peers: vec![of(3, 1)] };
        assert_eq!(alone.to_string(), format!("not flushed: {one}"));
        let both = NotFlushed { peers: vec![of(3, 1), of(4, 2)] };
        assert_eq!(both.to_string(), format!("not flushed: {one}, {two}"));
        let mut dead = of(5, 7);
        dead.why = WhyUnsent::Down(PeerFault::Gone);
        assert_eq!(NotFlushed { peers: vec![dead] }.only_living(), Ok(()));
        let some = NotFlushed { peers: vec![dead, of(3, 1), dead] };
        assert_eq!(some.only_living(), Err(alone));
    }
}
