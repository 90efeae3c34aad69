//! Counters, each named after what it counts.

use tagmatch_shadow::Why;

/// Receives that software matched although a NIC might have, by the reason why it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotOffloaded {
    /// Smaller than the threshold from which a NIC is worth it.
    pub too_small: u64,
    /// The NIC's list was full.
    pub list_full: u64,
    /// An earlier overlapping receive was in software.
    pub order: u64,
    /// The receive names its sender apart from the tag; or its sender's messages may come past the
    /// NIC.
    pub source: u64,
    /// The buffer can't be registered.
    pub memory: u64,
    /// The buffer is one of several slices.
    pub slices: u64,
    /// The NIC held the receive, but not active yet.
    pub phase: u64,
    /// There is no NIC that matches, or its use is switched off.
    pub off: u64,
}

impl NotOffloaded {
    /// Counts a receive.
    pub(crate) fn count(&mut self, why: Why) {
        *match why {
            Why::TooSmall => &mut self.too_small,
            Why::ListFull => &mut self.list_full,
            Why::Order => &mut self.order,
            Why::Source => &mut self.source,
            Why::Memory => &mut self.memory,
            Why::Slices => &mut self.slices,
            Why::Phase => &mut self.phase,
            Why::Off => &mut self.off,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        let NotOffloaded { too_small, list_full, order, source, memory, slices, phase, off } =
            *self;
        too_small + list_full + order + source + memory + slices + phase + off
    }
}

/// What a worker did since it was made. Counters only grow, except the gauges that say *now*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Receives matched by a NIC.
    pub hardware: u64,
    /// Receives that were posted before their message came, matched in software.
    pub posted: u64,
    /// Receives that found their message waiting, those of matched probes included.
    pub unexpected: u64,
    /// Receives matched by a device that does not tell where it matched them (UCX, libfabric): in
    /// hardware, on its posted list, or when they were posted.
    pub by_device: u64,
    /// Why the receives counted in `posted` were not matched by a NIC; the sum is `posted`.
    pub not_offloaded: NotOffloaded,
    /// Messages sent with their payload at once.
    pub eager_sent: u64,
    /// Of the messages counted in `eager_sent`, those that were sent in several fragments.
    pub fragmented_sent: u64,
    /// Messages sent as a request that the receiver answers by reading.
    pub rendezvous_sent: u64,
    /// Messages counted in `rendezvous_sent` that would have been eager if the byte credit had been
    /// enough.
    pub eager_turned: u64,
    /// Messages handed to a device that chooses between eager and rendezvous by itself (UCX,
    /// libfabric).
    pub sent_by_device: u64,
    /// Reads of senders' memory that were started.
    pub reads: u64,
    /// Of the reads counted in `reads`, those whose bytes went through the devices' own buffers,
    /// since memory could not be registered for them (RLIMIT_MEMLOCK, `ulimit -l`). They cost the
    /// processors two copies.
    pub unregistered: u64,
    /// Messages of the protocol, credits and the like included, that went out over a network, from
    /// a worker that has shared memory beside it. 0 for other workers.
    pub sent_beyond: u64,
    /// Puts and gets that the device has done by itself, without a message: see `Remote`.
    pub direct_remote: u64,
    /// One-sided operations that peers have carried out by messages, or refused.
    pub remote_by_messages: u64,
    /// Receives whose message was longer than their buffer.
    pub truncated: u64,
    /// Receives that were cancelled before they matched.
    pub cancelled: u64,
    /// Cancels that came too late.
    pub cancelled_late: u64,
    /// Messages that were matched by a probe and then dropped.
    pub discarded: u64,
    /// Rendezvous requests that left the unexpected list because their sender went down.
    pub lost_rendezvous: u64,
    /// Messages whose senders were down, and that were dropped to make room for others: see
    /// `CreditConfig::pool`.
    pub lost_messages: u64,
    /// Credit messages sent.
    pub credits_sent: u64,
    /// Times that sends to a peer began to wait for its credit.
    pub credit_stalls: u64,
    /// Times that sends to a peer began to wait for room on the way to it.
    pub room_stalls: u64,
    /// Peers that went down without leaving in order ([`PeerFault::Left`](crate::PeerFault::Left))
    /// and without being disconnected by this worker.
    pub peer_faults: u64,
    /// Peers that went down and were forgotten: see
    /// `EngineConfig::departed_max`.
    pub peers_forgotten: u64,
    /// Events of the NIC's list that its rules don't allow; the list is not used any more then.
    pub list_faults: u64,
    /// States that can't be, which this process has met in any of its workers: bugs of tagmatch.
    /// Each has ended the connection or the operation that it belonged to, if there was one.
    pub bugs: u64,
    /// Receives posted *now*.
    pub posted_now: u64,
    /// Unexpected messages waiting *now*, without those held by a matched probe. 0 where the device
    /// knows them and does not tell (UCX, libfabric).
    pub unexpected_now: u64,
    /// Bytes that unexpected messages take in the store *now*, those held by matched probes
    /// included.
    pub unexpected_bytes_now: u64,
}
