//! Ends of operations.

use tagmatch_device::slab::Key;
use tagmatch_fabric::Canceller;
use tagmatch_ofi_sys as sys;

use super::OfiTransport;
use super::endpoint::{Completion, Lane};
use super::operations::Kind;

impl OfiTransport {
    /// Makes progress, and handles what has ended; `false` if nothing has.
    #[inline]
    pub(super) fn progress(&mut self) -> bool {
        let batch = self.endpoint.read();
        for completion in batch.iter() {
            if let Some(key) = self.core.operations.key_at(completion.index) {
                self.completed(key, &completion);
            }
        }
        !batch.is_empty()
    }

    /// An operation has ended.
    #[inline]
    pub(super) fn completed(&mut self, key: Key, completion: &Completion) {
        let Some(operation) = self.core.operations.at(key) else { return };
        operation.is_begun = false;
        if operation.is_told {
            // Nobody waits for it any more.
            if !operation.is_held() {
                self.core.operations.remove(key);
            }
            return;
        }
        match operation.kind {
            Kind::Send => self.head_sent(key, completion),
            Kind::Receive => self.head_received(key, completion),
            Kind::Discard => self.dropped(key, completion),
            Kind::PieceOut => self.piece_sent(key, completion),
            Kind::PieceIn => self.piece_received(key, completion),
            Kind::ControlOut => self.packet_sent(key, completion),
            Kind::ControlIn => self.control_received(key, completion),
            Kind::Look => self.look_ended(key, completion),
        }
    }

    /// Cancels a receive because the peer that it depends on has ended.
    pub(super) fn cancel_with_peer(&mut self, key: Key) {
        let Some((operation, context)) = self.core.operations.with_context(key) else { return };
        operation.canceller = Canceller::PeersEnd;
        if operation.is_begun {
            self.endpoint.cancel(Lane::Messages, context);
        } else if operation.long.is_none() {
            self.take_unposted(key);
            let index = key.index;
            let ended = Completion { index, errno: sys::FI_ECANCELED, ..Completion::default() };
            self.completed(key, &ended);
        }
    }
}
