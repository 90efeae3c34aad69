//! An audit of the routes, for tests: the device of a peer is the one that both addresses give.

use tagmatch_device::Join;

use super::Routed;

impl<L: Join, N: Join + ?Sized, S> Routed<L, N, S> {
    /// In a build with debug assertions: panics if the books are wrong. To be asked between calls.
    /// Linear in the peers.
    pub(crate) fn audit(&self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            let wrong = self.errors();
            assert!(wrong.is_empty(), "an audit of several devices: {}", wrong.join("; "));
        }
    }

    fn errors(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for peer in self.networks.peers() {
            let Some(device) = self.networks.of(peer) else {
                wrong.push(format!("{peer:?} is up, and has no route"));
                continue;
            };
            let network = device.network();
            if self.network_of(peer) != Some(network) {
                wrong.push(format!("{peer:?} is on {network:?}, which isn't its network"));
            }
            if self.local.peer_address(peer).is_some() {
                wrong.push(format!("{peer:?} is on {network:?} and on the local device"));
            }
        }
        wrong
    }
}
