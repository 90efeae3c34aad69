//! The calls of one-sided operations, which both engines have.

use tagmatch_device::{Buffer, PeerId, QuickAccess, RegionPlace, RegionSpan};

use crate::error::Fault;
use crate::requests::request::{Posted, refuse};
use crate::rma::EngineNotice;
use crate::rma::initiator::RemoteOperation;
use crate::rma::regions::{NamedRegion, RegionKey, RegionUse, Rights};
use crate::wire::FetchInto;

/// Why an engine without one-sided operations refuses them.
const NOT_CARRIED: Fault = Fault::NotCarried {
    why: "one-sided operations; use shared memory, verbs or TCP instead of UCX or libfabric",
};

/// One-sided operations: regions of memory that peers use without a receive, and operations on
/// those of peers. No call blocks.
pub trait RmaEngine {
    /// Exposes memory to all peers that know the key. The memory belongs to the engine until
    /// [`RmaEngine::close_region`].
    ///
    /// # Errors
    /// The memory, with the reason: it can't be written and the rights are to write it, or it is
    /// one of several slices.
    fn expose_region(
        &mut self,
        memory: Buffer,
        rights: Rights,
    ) -> Result<RegionKey, (Buffer, Fault)> {
        let _ = rights;
        Err((memory, NOT_CARRIED))
    }

    /// As [`RmaEngine::expose_region`], under a name that the caller has chosen. The caller keeps
    /// the memory until [`RmaEngine::close_named`] returns `true`.
    ///
    /// # Errors
    /// As for [`RmaEngine::expose_region`]; or there is a region with this name.
    fn expose_named(&mut self, memory: Buffer, region: NamedRegion) -> Result<(), (Buffer, Fault)> {
        let _ = region;
        Err((memory, NOT_CARRIED))
    }

    /// Where peers find a region that they access by themselves; for its token.
    fn region_place(&self, key: RegionKey) -> RegionPlace {
        let _ = key;
        RegionPlace::default()
    }

    /// Takes a region's memory back; nobody changes it any more. If a peer that accesses it by
    /// itself may still do so, because it is stopped in the middle, this gives a copy, and the
    /// memory is never used again. Operations on the region that are under way fail. `None`: there
    /// is no such region.
    fn close_region(&mut self, key: RegionKey) -> Option<Buffer> {
        let _ = key;
        None
    }

    /// Closes a region that has a name. `false`: a peer that accesses it by itself may still write,
    /// because it is stopped in the middle. Then the region stays closed to peers, and the call is
    /// to be repeated.
    ///
    /// It may block for a tenth of a second.
    fn close_named(&mut self, key: RegionKey) -> bool {
        let _ = key;
        true
    }

    /// The memory of a region, for its owner.
    fn region_memory(&mut self, key: RegionKey) -> Option<&mut Buffer> {
        let _ = key;
        None
    }

    /// What peers have done on a region, or on all regions.
    fn region_use(&self, key: Option<RegionKey>) -> RegionUse {
        let _ = key;
        RegionUse::default()
    }

    /// Begins an operation on a peer's region. Its request ends once the operation is done there,
    /// and visible to the owner's processors.
    fn begin_remote(&mut self, operation: RemoteOperation) -> Posted {
        refuse(NOT_CARRIED, operation.action.into_buffer())
    }

    /// Does an operation in this call, if none to this peer is under way and the device can.
    /// `false`: it is to [begin](RmaEngine::begin_remote). `true`: it has ended, without a request.
    fn do_at_once(&mut self, operation: &mut RemoteOperation) -> bool {
        let _ = operation;
        false
    }

    /// As [`RmaEngine::do_at_once`], of a put or a get.
    fn access_at_once(&mut self, peer: PeerId, of: RegionSpan, access: QuickAccess<'_>) -> bool {
        let _ = (peer, of, access);
        false
    }

    /// As [`RmaEngine::do_at_once`], of an atomic operation that gives old values back.
    fn fetch_at_once(&mut self, peer: PeerId, of: RegionSpan, fetch: FetchInto<'_>) -> bool {
        let _ = (peer, of, fetch);
        false
    }

    /// Operations to this peer that begin later take effect after all that have begun.
    fn fence(&mut self, peer: PeerId) {
        let _ = peer;
    }

    /// One-sided operations to a peer that have not ended.
    fn remote_under_way(&self, peer: PeerId) -> usize {
        let _ = peer;
        0
    }

    /// The oldest notice of a peer ([`RemoteAction::Put`]) that was not taken. The bytes that it
    /// tells of are there.
    ///
    /// [`RemoteAction::Put`]: crate::RemoteAction::Put
    fn take_notice(&mut self) -> Option<EngineNotice> {
        None
    }
}
