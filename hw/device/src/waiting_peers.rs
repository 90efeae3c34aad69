//! The peers that a device could not accept for want of something, and that try again.

use std::time::Duration;

use crate::Address;

/// Most peers that are noted. No device has more at a time.
const PEERS_MAX: usize = 4096;

/// Peers that connected and could not be accepted, since the process lacks something. A peer that
/// tries again for as long as connecting may take is to be reported. Times are those of one clock
/// of the device.
#[derive(Clone, Debug, Default)]
pub struct WaitingPeers(Vec<WaitingPeer>);

#[derive(Clone, Debug)]
struct WaitingPeer {
    address: Address,
    /// When it tried for the first time, and for the last time.
    first: Duration,
    last: Duration,
}

impl WaitingPeers {
    /// Notes an attempt that can't be accepted. Returns whether the peer has tried for `limit`; it
    /// is forgotten then. A peer that did not try again for so long is forgotten, too.
    pub fn note(&mut self, address: Address, now: Duration, limit: Duration) -> bool {
        self.0.retain(|peer| now.saturating_sub(peer.last) < limit);
        let Some(at) = self.0.iter().position(|peer| peer.address == address) else {
            if self.0.len() < PEERS_MAX {
                self.0.push(WaitingPeer { address, first: now, last: now });
            }
            return false;
        };
        self.0[at].last = now;
        let has_tried = now.saturating_sub(self.0[at].first) >= limit;
        if has_tried {
            self.0.swap_remove(at);
        }
        has_tried
    }

    /// Forgets a peer: it was accepted.
    pub fn forget(&mut self, address: &Address) {
        self.0.retain(|peer| peer.address != *address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_tries_for_long_enough_is_reported_once() {
        let [one, two] = [1, 2].map(|name| Address::from_bytes(&[name]).unwrap());
        let mut peers = WaitingPeers::default();
        let limit = Duration::from_secs(10);
        let mut note = |address, second| peers.note(address, Duration::from_secs(second), limit);
        assert!(!note(one, 0) && !note(two, 5) && !note(one, 9));
        assert!(note(one, 10) && !note(one, 11), "it begins anew");
        assert!(!note(two, 16), "it was silent for so long that it begins anew");
        assert!(note(two, 25) || note(two, 26));
        peers.forget(&one);
        assert!(!peers.note(one, Duration::from_secs(40), limit));
    }

    #[test]
    fn no_more_peers_are_noted_than_a_device_can_have() {
        let mut peers = WaitingPeers::default();
        for number in 0..5000u32 {
            let address = Address::from_bytes(&number.to_le_bytes()).unwrap();
            assert!(!peers.note(address, Duration::ZERO, Duration::from_secs(1)));
        }
        assert_eq!(peers.0.len(), PEERS_MAX);
    }

    #[test]
    fn a_peer_that_was_silent_for_the_whole_limit_begins_anew() {
        let one = Address::from_bytes(&[1]).unwrap();
        let mut peers = WaitingPeers::default();
        let mut note =
            |second| peers.note(one, Duration::from_secs(second), Duration::from_secs(10));
        assert!(!note(0) && !note(10) && !note(19));
        assert!(note(20), "it has tried since 10");
    }
}
