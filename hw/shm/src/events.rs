//! Events that wait for a poll to report them.

use std::collections::VecDeque;

use tagmatch_device::{Buffer, DownReason, Event, Limits, PeerId, ReadError};

/// The events to report before any message, oldest first.
pub(crate) type EventQueue = VecDeque<QueuedEvent>;

/// An event that borrows nothing. Unlike [`Event`], it can be sent to another thread.
pub(crate) enum QueuedEvent {
    Up(PeerId, Limits),
    Down(PeerId, DownReason),
    ReadDone(u64, Buffer, Result<(), ReadError>),
}

impl From<QueuedEvent> for Event<'_> {
    fn from(event: QueuedEvent) -> Self {
        match event {
            QueuedEvent::Up(peer, limits) => Event::PeerUp { peer, limits },
            QueuedEvent::Down(peer, reason) => Event::PeerDown { peer, reason },
            QueuedEvent::ReadDone(token, into, result) => Event::ReadDone { token, into, result },
        }
    }
}
