//! An audit of what a device of this kind has written down twice: operations, slots and peers.

use std::collections::HashMap;

use tagmatch_device::PeerId;

use crate::operations::Operation;
use crate::transport::{FabricCore, TagTransport};

/// In a build with debug assertions: panics if the books are wrong. To be asked between calls.
/// Linear in everything.
pub(crate) fn audit<T: TagTransport>(transport: &T) {
    if cfg!(debug_assertions) {
        report::<T>(&errors(transport));
    }
}

/// Panics if there are errors, unless the thread panics already.
pub(crate) fn report<T: TagTransport>(wrong: &[String]) {
    let is_right = wrong.is_empty() || std::thread::panicking();
    assert!(is_right, "an audit of {}: {}", T::NAME, wrong.join("; "));
}

/// The errors in the books, one line each; none in a device without a bug.
pub(crate) fn errors<T: TagTransport>(transport: &T) -> Vec<String> {
    let core = transport.core();
    let mut wrong = core.meeting.audit();
    wrong.extend(live(core));
    wrong.extend(tokens(core));
    wrong.extend(packets(transport));
    wrong.extend(transport.audit());
    wrong
}

/// The errors in the books of a device that is closed, and whose library has ended everything.
pub(crate) fn errors_at_end<T: TagTransport>(transport: &T) -> Vec<String> {
    let mut wrong = errors(transport);
    let core = transport.core();
    let left = [
        (core.tokens.len(), "receives"),
        (core.held.len(), "messages that probes took"),
        (core.meeting.connections.len(), "connections"),
        (core.meeting.peers.connecting.len(), "attempts"),
        (core.meeting.peers.ids().filter(|peer| !core.meeting.is_down(*peer)).count(), "peers"),
    ];
    let left = left.iter().filter(|(count, _)| *count > 0);
    wrong.extend(left.map(|(count, what)| format!("a closed device has {count} {what}")));
    wrong
}

/// The errors of a device that has just said that nothing is unsent.
pub(crate) fn errors_of_sent<T: TagTransport>(transport: &T) -> Vec<String> {
    let operations = transport.core().operations.iter();
    let out = operations.filter(|operation| operation.goes_out());
    let out = out.filter(|operation| operation.peer() != Some(PeerId::ONESELF)).count();
    let wrong = (out > 0).then(|| format!("nothing is unsent, and {out} operations go out"));
    wrong.into_iter().collect()
}

/// A transport with packets that go out doesn't say that it holds none: the process would end, and
/// they would be lost.
fn packets<T: TagTransport>(transport: &T) -> Option<String> {
    let operations = transport.core().operations.iter();
    let out = operations.filter(|operation| operation.goes_out() && !operation.is_send()).count();
    let is_forgotten = out > 0 && !transport.holds_packets();
    is_forgotten.then(|| format!("{out} packets go out, and the transport says that none do"))
}

/// Each peer counts the operations that depend on it.
fn live<T: TagTransport>(core: &FabricCore<T>) -> Vec<String> {
    let mut depend: HashMap<PeerId, u32> = HashMap::new();
    for operation in core.operations.iter() {
        if let Some(peer) = operation.peer()
            && (operation.is_send() || operation.is_receive())
        {
            *depend.entry(peer).or_default() += 1;
        }
    }
    let peers = core.meeting.peers.ids().filter_map(|id| Some((id, core.meeting.peers.find(id)?)));
    let wrong = peers.filter_map(|(id, peer)| {
        let found = depend.get(&id).copied().unwrap_or(0);
        let live = peer.live;
        (found != live).then(|| format!("{found} operations depend on {id:?}, {live} are counted"))
    });
    wrong.collect()
}

/// Each receive is found by its token, and no token names anything else.
fn tokens<T: TagTransport>(core: &FabricCore<T>) -> Vec<String> {
    let is_named = |operation: &&T::Operation| core.tokens.contains_key(&operation.token());
    let receives = core.operations.iter().filter(|operation| operation.is_receive());
    let unnamed = receives.filter(|operation| !is_named(operation)).count();
    let is_receive = |operation: &T::Operation| operation.is_receive();
    let stale = core.tokens.iter().filter(|(token, key)| {
        let operation = core.operations.get(**key);
        !operation.is_some_and(|found| is_receive(found) && found.token() == **token)
    });
    let stale = stale.count();
    let wrong = (unnamed + stale > 0)
        .then(|| format!("{unnamed} receives have no token, {stale} tokens have no receive"));
    wrong.into_iter().collect()
}
