//! Companions: what a NIC drops of a rendezvous request, in a message behind it.

use tagmatch_device::PeerId;

use super::{Data, Landing};
use crate::core::{Core, Todo};
use crate::request::Status;
use crate::slab::Key;
use crate::wire::{AppCtx, Kind, WireError};

impl Core {
    /// A rendezvous request with a companion has come; `landing` if the NIC has matched it.
    pub(crate) fn await_companion(
        &mut self,
        peer: PeerId,
        operation: AppCtx,
        landing: Option<Key>,
    ) {
        let awaited = self.peer_mut(peer).awaited.replace((operation, landing));
        if let Some((late, _)) = awaited {
            let error = WireError::NoSuchOperation { kind: Kind::Companion, operation: late };
            self.todo.push(Todo::Break(peer, error));
        }
    }

    /// A companion has come; of a request that software has seen whole, nothing is new.
    pub(crate) fn companion(
        &mut self,
        peer: PeerId,
        operation: AppCtx,
        is_last: bool,
        note: impl FnOnce(&mut Status),
    ) -> Result<(), WireError> {
        let awaited = &mut self.peer_mut(peer).awaited;
        let landing = match *awaited {
            Some((expected, landing)) if expected == operation => landing,
            _ => return Err(WireError::NoSuchOperation { kind: Kind::Companion, operation }),
        };
        if is_last {
            *awaited = None;
        }
        if let Some(key) = landing
            && let Some(landing) = self.nic.as_mut().and_then(|nic| nic.landings.get_mut(key))
        {
            note(&mut landing.status);
            landing.lacks_companion &= !is_last;
            self.conclude(key);
        }
        Ok(())
    }

    /// A peer is down: of what the NIC matched, nothing more will be known. There may be several: companions
    /// of a peer that was broken with are not taken in any more.
    pub(crate) fn lose_companion(&mut self, peer: PeerId) {
        self.peer_mut(peer).awaited = None;
        let Some(nic) = &self.nic else { return };
        let is_lost = |landing: &Landing| {
            landing.status.source == peer && landing.lacks_companion && landing.data != Data::Due
        };
        for key in nic.landings.keys_where(is_lost) {
            self.fail_landing(key);
        }
    }
}
