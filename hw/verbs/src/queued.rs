//! Events that wait to be reported by a poll.

use tagmatch_device::{Buffer, DownReason, Event, Limits, PeerId, ReadError, TagEvent};

pub(super) enum Queued {
    Up(PeerId, Limits),
    Down(PeerId, DownReason),
    ReadDone(u64, Buffer, Result<(), ReadError>),
    Tag(TagEvent),
}

impl Queued {
    pub(super) fn report(self) -> Event<'static> {
        match self {
            Queued::Up(peer, limits) => Event::PeerUp { peer, limits },
            Queued::Down(peer, reason) => Event::PeerDown { peer, reason },
            Queued::ReadDone(token, into, result) => Event::ReadDone { token, into, result },
            Queued::Tag(event) => Event::Tag(event),
        }
    }
}
