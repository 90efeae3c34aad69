//! How a peer ends.

use std::time::{Duration, Instant};

use tagmatch_device::matching::MatchingEvent;
use tagmatch_device::{Bug, DownReason, OrBug, PeerId};

use super::host::MeetingHost;
use super::peers::{PeerState, Sent};

/// How long messages of a peer that is gone are still received: at least the first time, then until
/// the transport finds nothing for this many polls, at most the second time.
const LINGER_MIN: Duration = Duration::from_millis(5);
const LINGER_MAX: Duration = Duration::from_millis(500);
const LINGER_POLLS: u32 = 64;
/// How long messages that were sent may take to leave this process.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// How long the transport's own acknowledgements may take to leave when no message was sent. A way
/// that was never used may not be connected yet, and then drains only with the peer's help.
const DRAIN_MAX_UNUSED: Duration = Duration::from_millis(10);

/// Begins a peer's end.
pub fn break_with<H: MeetingHost>(host: &mut H, peer: PeerId, reason: DownReason) {
    let meeting = host.meeting_mut();
    let entry = match meeting.peers.find_mut(peer).or_bug("the device has numbered the peer") {
        Ok(entry) => entry,
        Err(bug) => return report_unknown(host, peer, bug),
    };
    if entry.is_leaving() {
        return;
    }
    let is_in_order = reason == DownReason::Gone && entry.says_bye;
    let reason = if is_in_order { DownReason::Left } else { reason };
    let was_connected = entry.is_adopted && peer != PeerId::ONESELF;
    let has_sent = entry.sent != Sent::Nothing;
    let connection = entry.connection;
    meeting.peers.leaving.push(peer);
    if reason == DownReason::Disconnected {
        // Sent first: the peer may notice the end of the transport's way before the end of the
        // connection.
        meeting.say_bye(connection);
    }
    let now = Instant::now();
    let until = match reason {
        DownReason::Gone | DownReason::Left => now + LINGER_MIN,
        DownReason::Disconnected if has_sent => now + DRAIN_MAX,
        DownReason::Disconnected => now + DRAIN_MAX_UNUSED,
        _ => now,
    };
    if was_connected && until > now {
        meeting.peers.set_state(peer, PeerState::Leaving { reason, until, quiet: 0 });
    } else {
        cut_off(host, peer, reason);
    }
}

/// Reports a peer that this device doesn't know as down, so that nothing waits for it. That it
/// doesn't know the peer is a bug.
pub(crate) fn report_unknown<H: MeetingHost>(host: &mut H, peer: PeerId, bug: Bug) {
    host.meeting_mut().peers.connecting.retain(|other| *other != peer);
    host.tell(MatchingEvent::PeerDown { peer, reason: DownReason::Bug(bug) });
}

/// Ends all operations that depend on a peer.
fn cut_off<H: MeetingHost>(host: &mut H, peer: PeerId, reason: DownReason) {
    host.meeting_mut().peers.set_state(peer, PeerState::Ending { reason });
    host.cut_off(peer);
}

/// Makes progress with peers that are ending. `was_busy`: the transport below has just done
/// something.
#[cold]
pub fn tend_leaving<H: MeetingHost>(host: &mut H, was_busy: bool) {
    let now = Instant::now();
    for peer in host.meeting().peers.leaving.clone() {
        tend_end_of(host, peer, was_busy, now);
    }
    let peers = &mut host.meeting_mut().peers;
    let mut leaving = std::mem::take(&mut peers.leaving);
    leaving.retain(|peer| peers.find(*peer).is_some_and(|entry| entry.state != PeerState::Down));
    peers.leaving = leaving;
}

fn tend_end_of<H: MeetingHost>(host: &mut H, peer: PeerId, was_busy: bool, now: Instant) {
    let state = match host.meeting().peers.find(peer).or_bug("the device has numbered the peer") {
        Ok(entry) => entry.state,
        Err(bug) => return report_unknown(host, peer, bug),
    };
    match state {
        PeerState::Leaving {
            reason: reason @ (DownReason::Gone | DownReason::Left),
            until,
            quiet,
        } => {
            let quiet = if was_busy { 0 } else { quiet + 1 };
            let state = PeerState::Leaving { reason, until, quiet };
            host.meeting_mut().peers.set_state(peer, state);
            if now >= until && quiet >= LINGER_POLLS || now >= until + LINGER_MAX {
                cut_off(host, peer, reason);
            }
        }
        PeerState::Leaving { reason, until, .. } => {
            let is_due = now >= until || host.is_drained(peer);
            if is_due {
                cut_off(host, peer, reason);
            }
        }
        PeerState::Ending { reason } if host.is_let_go(peer) => end(host, peer, reason),
        _ => {}
    }
}

/// Reports a peer as down, once no operation depends on it. The connection is closed last, after
/// the transport has let go of the peer.
fn end<H: MeetingHost>(host: &mut H, peer: PeerId, reason: DownReason) {
    let meeting = host.meeting_mut();
    meeting.peers.set_state(peer, PeerState::Down);
    if let Ok(entry) = meeting.peers.find_mut(peer).or_bug("the device has numbered the peer") {
        // A peer that left in order takes no messages any more, so none is missed there.
        if entry.sent == Sent::Unflushed && reason != DownReason::Left {
            entry.lost = entry.lost.max(1);
        }
        if let Some(id) = entry.connection.take() {
            meeting.hang_up(id);
        }
    }
    host.tell(MatchingEvent::PeerDown { peer, reason });
}
