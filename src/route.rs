//! How a worker reaches its peers.

use tagmatch_device::Network;
use tagmatch_device::contents::route;
use tagmatch_soft::{Tag, TagMask};

use crate::access::Access;
use crate::envelope::Peer;
use crate::error::Error;
use crate::worker::WorkerOf;

impl<A: Access> WorkerOf<A> {
    /// The network over which this peer is reached. `None` over UCX and libfabric:
    /// see [`transports`](Self::transports).
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn network(&self, peer: Peer) -> Result<Option<Network>, Error> {
        let id = self.own(peer)?;
        let addresses = self.access.with(|state| {
            Some((state.engine.as_dyn().address(), state.engine.as_dyn().peer_address(id)?))
        });
        Ok(addresses.and_then(|(own, peer)| route(&own, &peer).ok()))
    }

    /// The bits of a tag that a sender chooses, and the values that the other bits must have. Over
    /// UCX and libfabric the bits of the layout's source field are no free ones (`ucx::UcxConfig`,
    /// `ofi::OfiConfig`), nor are those outside of the layout; over all other devices every bit is
    /// free. Doesn't block.
    pub fn free_tag_bits(&self) -> (TagMask, Tag) {
        self.access.fixed().free_tag_bits
    }

    /// The peers to which sends wait now because the peer holds as many unexpected messages as it
    /// keeps ([`Config::unexpected_bytes`](crate::Config::unexpected_bytes)). With each of them the
    /// number of sends that have gone on since they had to wait: as long as that is the same, the
    /// same send waits. [`Counters::credit_stalls`](crate::Counters::credit_stalls) counts how
    /// often that began. Empty over UCX and libfabric. Doesn't block, allocates, and is linear in
    /// the peers.
    pub fn credit_waits(&self) -> Vec<(Peer, u64)> {
        let waits = self.access.with(|state| state.engine.as_dyn().credit_waits());
        let worker = self.access.fixed().worker;
        waits.into_iter().map(|(id, gone)| (Peer { id, worker }, gone)).collect()
    }
}
