//! What a worker waits for at a moment: to find out why a program doesn't go on.
//!
//! A snapshot is made of what the worker keeps anyway, so nothing on the way of a message pays for
//! it. Peers are numbers here, and an address tells which worker a number stands for; requests have
//! numbers that stay the same from one snapshot to the next.
//!
//! ```
//! use tagmatch::{Config, Match, Worker};
//!
//! let worker = Worker::new(Config::default())?;
//! let receive = worker.recv(Match::tag(7), vec![0; 8]);
//! let waiting = worker.snapshot(100);
//! assert_eq!(waiting.posted.first[0].pattern.tag().0, 7);
//! assert!(waiting.unexpected.is_empty() && waiting.sends.is_empty());
//! # drop(receive);
//! # Ok::<(), tagmatch::Error>(())
//! ```

pub use tagmatch_device::PeerId;
pub use tagmatch_fallback::{
    Amount, ArrivingReceive, ConnectionState, Excerpt, PeerSnapshot, PendingSend, PostedReceive,
    RequestId, SendWait, Snapshot, UnexpectedEnvelope,
};

use crate::access::Access;
use crate::worker::WorkerOf;

impl<A: Access> WorkerOf<A> {
    /// What the worker waits for: peers, both lists, and sends that have not ended; of each at most
    /// `most`, the oldest ones. Takes time linear in all that there is, and sorts the posted
    /// receives; the worker is locked meanwhile.
    ///
    /// UCX and libfabric match by themselves: of such a device's requests only the number is told.
    pub fn snapshot(&self, most: usize) -> Snapshot {
        self.access.with(|state| state.engine.as_dyn().snapshot(most))
    }
}
