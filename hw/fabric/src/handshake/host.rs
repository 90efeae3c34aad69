//! What the handshake needs of the device that it works for.

use tagmatch_device::PeerId;
use tagmatch_device::matching::MatchingEvent;

use super::hello::{Hello, Refusal};
use super::meeting::Meeting;

/// A device whose peers meet by this crate.
pub trait MeetingHost {
    /// What the device itself keeps of each peer.
    type Link: Default;

    /// The sockets, connections and peers.
    fn meeting(&self) -> &Meeting<Self::Link>;

    /// The same, to be changed.
    fn meeting_mut(&mut self) -> &mut Meeting<Self::Link>;

    /// Makes the way to a peer that has sent its hello.
    ///
    /// # Errors
    /// The transport below can't reach it.
    fn adopt(&mut self, peer: PeerId, hello: &Hello) -> Result<(), Refusal>;

    /// A peer is up: begins the sends that have waited for that.
    fn launch_waiting(&mut self, peer: PeerId);

    /// Keeps an event for the device's `poll`.
    fn tell(&mut self, event: MatchingEvent);

    /// Whether the transport below holds no message that was sent to the peer.
    fn is_drained(&mut self, peer: PeerId) -> bool;

    /// Begins to end all operations that depend on a peer.
    fn cut_off(&mut self, peer: PeerId);

    /// Whether all operations that depended on a peer have ended, and their ends were reported.
    /// Asked in each round until it is true.
    fn is_let_go(&mut self, peer: PeerId) -> bool;
}
