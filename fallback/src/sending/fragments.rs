//! Messages in fragments: each a message of the device, one behind the other.

use tagmatch_device::{Device, Outgoing};

use super::Sending;
use super::backlog::SendOutcome;
use crate::credit::Amount;
use crate::peers::peer::BacklogSend;
use crate::requests::request::Send;
use crate::slices;
use crate::state::ProtocolState;
use crate::wire::Fragment;

/// Most bytes of payload in a fragment. A shorter one costs more for each byte.
const FRAGMENT_BYTES_MAX: usize = 8192;
/// Fewest fragments of a message. The receiver takes one while the sender writes the next one.
const FRAGMENTS_MIN: usize = 3;

/// The payload of each fragment but the last, for a message of `length` bytes to a peer that takes
/// messages of up to `eager_max` bytes. All fragments are about equally long.
fn fragment_bytes(length: usize, eager_max: usize) -> usize {
    // A fragment has a longer header than an eager message.
    let longest = eager_max.saturating_sub(Fragment::BYTES).clamp(1, FRAGMENT_BYTES_MAX);
    let count = length.div_ceil(longest).max(FRAGMENTS_MIN);
    length.div_ceil(count).next_multiple_of(64).min(longest)
}

impl Sending {
    /// Sends the fragments of a message that are left, as far as there is room. The first one is
    /// charged for the whole message.
    pub(super) fn send_fragments<D: Device>(
        &mut self,
        state: &mut ProtocolState,
        device: &mut D,
        mut send: BacklogSend,
        cost: Amount,
    ) -> SendOutcome {
        let Send { peer: id, tag, immediate, .. } = send.message;
        let payload = self.scratch.bytes(&send.message.payload);
        let peer = state.peer_mut(id);
        let part_max = fragment_bytes(payload.len(), peer.eager_max);
        while send.sent < payload.len() {
            let end = payload.len().min(send.sent + part_max);
            let length = payload.len() as u64;
            let offset = send.sent as u64;
            let (fragment, immediate) = match offset {
                0 => (Fragment::First { tag, length }, immediate),
                _ => (Fragment::Next { offset }, None),
            };
            let header = fragment.emit();
            let part = &payload[send.sent..end];
            let message = Outgoing { header: &header, payload: part, immediate };
            if let Err(refused) = device.send(id, message) {
                return Err((send, refused.into()));
            }
            if send.sent == 0 {
                peer.allowance.spend(cost);
            }
            send.sent = end;
        }
        let status = send.message.status();
        state.counters.eager_sent += 1;
        state.counters.fragmented_sent += 1;
        let buffer = slices::of_owner(send.message.payload);
        state.requests.complete(send.request, Ok(status), buffer);
        Ok(())
    }
}
