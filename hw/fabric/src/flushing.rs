//! How peers are flushed, and how the device ends.

use std::time::{Duration, Instant};

use tagmatch_device::{DownReason, Flush, PeerId};

use crate::audit;
use crate::handshake::{PeerState, Sent, break_with};
use crate::operations::Operation;
use crate::polling::next_event;
use crate::transport::TagTransport;

/// How long a device that is dropped makes progress until no operation is under way.
const DROP_MAX: Duration = Duration::from_secs(3);

/// See [`MatchingDevice::flush`](tagmatch_device::matching::MatchingDevice::flush).
pub(crate) fn flush_peer<T: TagTransport>(transport: &mut T, peer: PeerId) -> Flush {
    let is_unflushed = |transport: &T| {
        let entry = transport.core().meeting.peers.find(peer);
        entry.is_some_and(|entry| entry.sent == Sent::Unflushed)
    };
    if peer == PeerId::ONESELF {
        return Flush::Done;
    }
    // A peer that is asked although sends are under way is flushed meanwhile.
    if transport.core().is_up(peer)
        && is_unflushed(transport)
        && transport.is_drained(peer)
        && is_unflushed(transport)
    {
        // Its endpoint has failed: nothing is sent to it any more.
        break_with(transport, peer, DownReason::Gone);
    }
    let sends = transport.core().sends_of(peer);
    let Some(entry) = transport.core().meeting.peers.find(peer) else { return Flush::Done };
    let is_pending = match entry.state {
        PeerState::Down if entry.lost > 0 => return Flush::Lost { messages: entry.lost },
        PeerState::Down => false,
        // Its end tells which messages are lost.
        PeerState::Leaving { .. } | PeerState::Ending { .. } if entry.live > 0 => true,
        PeerState::Leaving { .. } | PeerState::Ending { .. } if entry.lost > 0 => true,
        _ => sends > 0 || entry.sent == Sent::Unflushed,
    };
    if is_pending { Flush::Pending { messages: sends.max(1) } } else { Flush::Done }
}

/// See [`MatchingDevice::has_unsent`](tagmatch_device::matching::MatchingDevice::has_unsent).
pub(crate) fn holds_messages<T: TagTransport>(transport: &mut T) -> bool {
    // Every peer is asked, also after one that has messages left: so all of them are flushed at the
    // same time.
    let mut holds = transport.holds_packets();
    for peer in transport.core().meeting.peers.ids().filter(|peer| *peer != PeerId::ONESELF) {
        let core = transport.core();
        let entry = core.meeting.peers.find(peer);
        let has_sent = entry.is_some_and(|entry| entry.sent != Sent::Nothing) && core.is_up(peer);
        holds |= core.sends_of(peer) > 0 || has_sent && !transport.is_drained(peer);
    }
    if cfg!(debug_assertions) && !holds {
        audit::report::<T>(&audit::errors_of_sent(transport));
    }
    holds
}

/// See [`MatchingDevice::close`](tagmatch_device::matching::MatchingDevice::close).
pub(crate) fn close_all<T: TagTransport>(transport: &mut T) {
    let meeting = &mut transport.core_mut().meeting;
    if meeting.is_closed {
        return;
    }
    meeting.close();
    for key in transport.core().operations.keys(T::Operation::is_receive) {
        transport.cancel(key);
    }
    for peer in transport.core().meeting.peers.ids() {
        break_with(transport, peer, DownReason::Disconnected);
    }
}

/// Ends a device that is dropped. What the library may still use is left to it for good.
pub(crate) fn end<T: TagTransport>(transport: &mut T) {
    let audits = cfg!(debug_assertions) && transport.is_own_process();
    let mut wrong = if audits { audit::errors(transport) } else { Vec::new() };
    // A forked child must not touch its copy of the library's memory.
    let has_let_go = transport.is_own_process() && {
        close_all(transport);
        for taken in std::mem::take(&mut transport.core_mut().held).into_entries() {
            transport.discard(taken);
        }
        let deadline = Instant::now() + DROP_MAX;
        while !is_over(transport) && Instant::now() < deadline {
            if next_event(transport).is_none() {
                std::thread::yield_now();
            }
        }
        let is_over = is_over(transport);
        if audits && is_over {
            wrong.extend(audit::errors_at_end(transport));
        }
        transport.shut(is_over)
    };
    if !has_let_go {
        transport.core_mut().operations.leak();
    }
    // At last: the library has let go of everything by now.
    audit::report::<T>(&wrong);
}

/// Whether nothing is left that the caller or the library waits for.
fn is_over<T: TagTransport>(transport: &T) -> bool {
    transport.core().meeting.peers.leaving.is_empty() && transport.is_over()
}
