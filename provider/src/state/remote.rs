//! One-sided operations: fi_rma(3), fi_atomic(3).

use tagmatch::raw::{self, RegionName};
use tagmatch::{AtomicAction, Buffer, Failed, Peer, Rights};
use tagmatch_device::OrBug;
use tagmatch_device::slab::Key;
use tagmatch_ofi_provider::{
    AtomicForm, Entry, Failure, Memory, RemoteAtomic, RemoteCall, RemotePlace, RemoteUse,
    SharedRegion,
};
use tagmatch_ofi_sys as sys;

use super::endpoint::{Endpoint, Sinks};
use super::operation::{OPERATIONS_MAX, OperationUnderWay, Receive, WholeOperation};
use super::send::immediate;
use super::served::ServedRegion;
use crate::elements;
use crate::errno::{self, Errno, Reason, Result};
use crate::info::{INJECT_MAX, MANY};
use crate::memory::buffer;

/// A buffer of all pieces.
fn buffer_of(pieces: &[Memory]) -> Buffer {
    match pieces {
        [] => Buffer::default(),
        [only] => buffer(*only),
        _ => Buffer::from_slices(pieces.iter().copied().map(buffer)),
    }
}

/// A copy of the bytes of these pieces, at most [`INJECT_MAX`].
fn copy_of(pieces: &[Memory]) -> Result<Buffer> {
    if pieces.iter().map(Memory::len).sum::<usize>() > INJECT_MAX {
        return Err(Errno::TOO_LONG);
    }
    // SAFETY: the caller of the provider lends the memory for the call at least, to be read.
    let bytes = pieces.iter().map(|piece| unsafe { piece.bytes() });
    Ok(bytes.collect::<Vec<_>>().concat().into())
}

/// The flags of an operation's entry, but `FI_COMPLETION`.
fn kind_of(what: &RemoteUse) -> u64 {
    match what {
        RemoteUse::Read(_) => sys::FI_RMA | sys::FI_READ,
        RemoteUse::Write(..) => sys::FI_RMA | sys::FI_WRITE,
        RemoteUse::Atomic(RemoteAtomic { old: Some(_), .. }) => sys::FI_ATOMIC | sys::FI_READ,
        RemoteUse::Atomic(_) => sys::FI_ATOMIC | sys::FI_WRITE,
    }
}

/// An operation for the worker.
enum OneSidedAction {
    Get(Buffer),
    Put(Buffer, Option<u64>),
    Atomic(AtomicAction),
}

impl OneSidedAction {
    fn new(what: &RemoteUse, is_injected: bool) -> Result<Self> {
        let sent = |pieces: &[Memory]| {
            if is_injected { copy_of(pieces) } else { Ok(buffer_of(pieces)) }
        };
        Ok(match what {
            RemoteUse::Read(into) => OneSidedAction::Get(buffer_of(into)),
            RemoteUse::Write(from, data) => {
                OneSidedAction::Put(sent(from)?, immediate(*data).map(u64::from))
            }
            RemoteUse::Atomic(atomic) => {
                let RemoteAtomic { op, datatype, operands, compare, old } = atomic;
                let form = match (old, &compare[..]) {
                    (None, _) => AtomicForm::Base,
                    (Some(_), []) => AtomicForm::Fetch,
                    (Some(_), _) => AtomicForm::Compare,
                };
                let (op, of) = elements::of(*datatype, *op, form).ok_or(Errno::NOT_SUPPORTED)?;
                // First all values to compare with.
                let operands = [&compare[..], &operands[..]].concat();
                let old = old.as_ref().map(|old| buffer_of(old));
                OneSidedAction::Atomic(AtomicAction { op, of, operands: sent(&operands)?, old })
            }
        })
    }
}

impl Endpoint {
    /// Lets peers use a memory region.
    pub(super) fn expose_region(&mut self, region: &SharedRegion) -> Result<()> {
        let SharedRegion { memory, key, base, access } = *region;
        let has = |cap: u64| access & self.bound.opened.caps & cap != 0;
        let mut rights = Rights::default();
        if has(sys::FI_REMOTE_READ) {
            rights = rights | Rights::READ;
        }
        if has(sys::FI_REMOTE_WRITE) {
            rights = rights | Rights::WRITE;
        }
        if rights == Rights::default() {
            return Ok(());
        }
        let is_counted = self.counts_peers();
        let name = RegionName { key, base, rights, is_counted };
        // SAFETY: the program registers memory that it keeps until it closes the region, and keeps
        // apart from operations of peers what it does there itself (fi_mr(3)). The region is closed
        // by `conceal`, before `fi_close` returns.
        let exposed = unsafe { raw::expose(&self.worker, memory.as_ptr(), memory.len(), name) };
        let exposed = exposed.map_err(|error| errno::of_error(&error).errno())?;
        self.regions.insert(key, ServedRegion { region: exposed, changes: 0 });
        self.serves_peers = true;
        Ok(())
    }

    /// Peers no longer use a region.
    ///
    /// # Errors
    /// `-FI_EBUSY`: a peer that is stopped in the middle of a write may still write.
    pub(super) fn conceal_region(&mut self, key: u64) -> Result<()> {
        let Some(ServedRegion { region, changes }) = self.regions.remove(&key) else {
            return Ok(());
        };
        raw::close(region).map_err(|region| {
            self.regions.insert(key, ServedRegion { region, changes });
            Errno::BUSY
        })
    }

    /// Whether operations of peers are counted here.
    fn counts_peers(&self) -> bool {
        self.bound.opened.caps & sys::FI_RMA_EVENT != 0
    }

    /// Begins a one-sided operation. As for a send, a peer that is down is an error entry.
    pub(super) fn access(
        &mut self,
        sinks: &mut Sinks<'_>,
        call: RemoteCall,
        what: &RemoteUse,
    ) -> Result<()> {
        if self.held.is_some() {
            self.release(sinks, None);
        }
        let kind = kind_of(what);
        if !self.bound.may_begin_remote() || !self.has_caps_for(what, kind) {
            return Err(Errno::BAD_STATE);
        }
        let flags = call.flags.unwrap_or(self.bound.opened.send_flags);
        let peer = self.peer(sinks, call.peer)?;
        let is_fenced = flags & sys::FI_FENCE != 0;
        // The worker holds back what follows on its own one-sided operations, and not on sends.
        if self.remote_under_way + call.more.len() >= MANY || is_fenced && self.has_sends() {
            return Err(Errno::AGAIN);
        }
        if is_fenced {
            self.worker.fence(peer).map_err(|error| errno::of_error(&error).errno())?;
        }
        let is_injected = call.is_injected || flags & sys::FI_INJECT != 0;
        let tells = !call.is_injected && self.bound.send_tells(flags);
        let context = call.context;
        let receive = Receive { context, kind, start: 0, room: 0, tells, multi: None };
        if !call.more.is_empty() {
            return self.access_several(sinks, (peer, &call, receive), what, is_injected);
        }
        let action = OneSidedAction::new(what, is_injected)?;
        match self.begin_action(peer, call.place, action, receive)? {
            Some(failure) if call.is_injected => Err(failure.errno()),
            Some(failure) => {
                self.bound.tell(sinks, Entry::failed(context, kind, failure), true);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Begins an operation for the worker. Gives the failure if it has ended at once.
    fn begin_action(
        &mut self,
        peer: Peer,
        place: RemotePlace,
        action: OneSidedAction,
        receive: Receive,
    ) -> Result<Option<Failure>> {
        let RemotePlace { key: region, address, .. } = place;
        let key = self.vacant()?;
        let remote = self
            .worker
            .attach_key(peer, region, self.counts_peers())
            .map_err(|error| errno::of_error(&error).errno())?;
        let word = key.to_bits();
        let posted = match action {
            OneSidedAction::Get(into) => remote.get_queued(address, into, word),
            OneSidedAction::Put(from, notice) => remote.put_queued(address, from, notice, word),
            OneSidedAction::Atomic(atomic) => remote.atomic_queued(address, atomic, word),
        };
        match posted {
            Ok(request) => {
                self.operations.fill(key, OperationUnderWay { receive, request });
                self.remote_under_way += 1;
                Ok(None)
            }
            Err(Failed { error, .. }) => Ok(Some(errno::of_error(&error))),
        }
    }

    /// Begins an operation on several places: one operation of the worker for each, and one entry
    /// when all have ended.
    fn access_several(
        &mut self,
        sinks: &mut Sinks<'_>,
        (peer, call, receive): (Peer, &RemoteCall, Receive),
        what: &RemoteUse,
        is_injected: bool,
    ) -> Result<()> {
        let mut after = 0;
        let mut actions = Vec::new();
        for (index, place) in std::iter::once(&call.place).chain(&call.more).enumerate() {
            let part = what.part(after, place.length, index == call.more.len());
            after += place.length;
            actions.push((*place, OneSidedAction::new(&part, is_injected)?));
        }
        if is_injected && after > INJECT_MAX {
            return Err(Errno::TOO_LONG);
        }
        let whole = WholeOperation { receive, left: actions.len(), failure: None };
        let whole = self.wholes.insert(whole, OPERATIONS_MAX).map_err(|_| Errno::AGAIN)?;
        let receive = Receive { multi: Some(whole.to_bits()), ..receive };
        for (place, action) in actions {
            let begun = self.begin_action(peer, place, action, receive);
            let failure = begun.unwrap_or_else(|errno| Some(errno::failure(errno, Reason::Other)));
            if failure.is_some() {
                self.end_part(sinks, whole, failure);
            }
        }
        Ok(())
    }

    /// A part of an operation has ended.
    #[cold]
    pub(super) fn end_part(&mut self, sinks: &mut Sinks<'_>, key: Key, failure: Option<Failure>) {
        let Ok(whole) = self.wholes.get_mut(key).or_bug("a part names its operation") else {
            return;
        };
        whole.left -= 1;
        whole.failure = whole.failure.or(failure);
        if whole.left > 0 {
            return;
        }
        let WholeOperation { receive, failure, .. } = *whole;
        self.wholes.remove(key);
        let Receive { context, kind, tells, .. } = receive;
        let entry = match failure {
            Some(failure) => Entry::failed(context, kind, failure),
            None => Entry::new(context, kind),
        };
        self.bound.tell(sinks, entry, tells);
    }

    /// Whether the endpoint was opened for such an operation.
    fn has_caps_for(&self, what: &RemoteUse, kind: u64) -> bool {
        let needed = match what {
            RemoteUse::Atomic(_) => sys::FI_ATOMIC,
            _ => sys::FI_RMA,
        };
        let needed = needed | kind & (sys::FI_READ | sys::FI_WRITE);
        self.bound.opened.caps & needed == needed
    }

    /// Whether a send is under way.
    pub(super) fn has_sends(&self) -> bool {
        let is_send = |operation: &OperationUnderWay| operation.receive.kind & sys::FI_SEND != 0;
        !self.operations.keys_where(is_send).is_empty()
    }

    /// Puts what peers tell with their writes into the completion queue of receives, and counts
    /// what peers have done.
    #[inline(never)]
    pub(super) fn tell_of_peers(&mut self, sinks: &mut Sinks<'_>) {
        while let Some(notice) = self.worker.next_notice() {
            let kind = sys::FI_RMA | sys::FI_REMOTE_WRITE | sys::FI_REMOTE_CQ_DATA;
            let source = self.source(sinks.vectors(), notice.peer);
            let length = usize::try_from(notice.length).unwrap_or(usize::MAX);
            let entry = Entry { data: notice.value, source, length, ..Entry::new(0, kind) };
            self.bound.put(sinks, entry, true);
        }
        if self.counts_peers() {
            self.count_peers(sinks);
        }
    }

    /// Counts what peers have done since the last time.
    fn count_peers(&mut self, sinks: &mut Sinks<'_>) {
        let done = self.worker.regions_done();
        if done == self.counted {
            return;
        }
        self.bound.count_all(sinks, sys::FI_REMOTE_READ, done.reads - self.counted.reads);
        self.bound.count_all(sinks, sys::FI_REMOTE_WRITE, done.writes - self.counted.writes);
        self.counted = done;
        for (key, served) in &mut self.regions {
            let changes = served.region.done().changes;
            sinks.count_changes(*key, changes - served.changes);
            served.changes = changes;
        }
    }
}
