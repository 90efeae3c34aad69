//! How a worker reaches its peers.

use tagmatch_device::Network;
use tagmatch_device::contents::route;

use crate::access::Access;
use crate::envelope::Peer;
use crate::error::Error;
use crate::worker::WorkerOf;

impl<A: Access> WorkerOf<A> {
    /// The network over which this peer is reached. `None` over UCX: see
    /// [`transports`](Self::transports).
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn network(&self, peer: Peer) -> Result<Option<Network>, Error> {
        let id = self.own(peer)?;
        let addresses = self
            .access
            .with(|state| Some((state.engine.address(), state.engine.peer_address(id)?)));
        Ok(addresses.and_then(|(own, peer)| route(&own, &peer).ok()))
    }
}
