//! What one provider has and another one has not: all that the tables of functions ask for.

use std::ffi::{CStr, c_int, c_void};
use std::hash::Hash;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::hints::Hints;
use crate::messages::{Incoming, Injected, Outgoing, Pattern};
use crate::objects::{Bindings, Sinks};
use crate::offer::{Constants, Offers};
use crate::remote::{AtomicForm, AtomicLimits, RemoteCall, RemoteUse, SharedRegion};

/// A provider. All its methods but those of its endpoints are called rarely.
pub trait Provider: Sized + 'static {
    /// The name, for `FI_PROVIDER`.
    const NAME: &'static CStr;
    /// What all its offers have alike.
    const CONSTANTS: Constants;
    /// There are tagged messages, and nothing else: no untagged messages, counters, event queues,
    /// registered memory, options of endpoints and blocking reads.
    const IS_TAGGED_ALONE: bool;
    /// Only a read of a completion queue makes progress: fi_trywait(3) doesn't.
    const READS_ALONE_PROGRESS: bool;
    /// After many reads in a row that gave no entry, each further one gives the processor to other
    /// threads.
    const READS_GIVE_WAY: bool;
    /// A domain has commands of fi_control(3): [`Provider::control`].
    const CONTROLS_DOMAINS: bool = false;
    /// Flags that the sends of an endpoint may have as a default.
    const SEND_FLAGS: u64;
    /// Flags that the receives of an endpoint may have as a default.
    const RECEIVE_FLAGS: u64;
    /// Flags that a call to send may have.
    const CALL_SEND_FLAGS: u64;
    /// Flags that a call to receive tagged messages may have.
    const CALL_RECEIVE_FLAGS: u64;
    /// The functions for remote memory access of an endpoint without it, of which each refuses.
    const RMA: Option<&'static sys::fi_ops_rma> = None;
    /// The functions for atomic operations of an endpoint without them, of which each refuses.
    const ATOMIC: Option<&'static sys::fi_ops_atomic> = None;
    /// The functions for collective operations, of which each refuses.
    const COLLECTIVE: Option<&'static sys::fi_ops_collective> = None;

    /// The settings of a fabric.
    type Settings: Send + Sync;
    /// What a domain has of its own.
    type Domain: Send + Sync;
    /// An address in a vector.
    type Address: Copy + Eq + Hash + Send;
    /// An endpoint.
    type Endpoint: ProviderEndpoint<Self::Address>;

    /// The settings of this process.
    ///
    /// # Errors
    /// The provider isn't there, or the settings are wrong.
    fn settings() -> Result<Arc<Self::Settings>>;
    /// What a program gets, the best offer first.
    ///
    /// # Errors
    /// There is no offer; the words say why.
    fn negotiate(settings: &Self::Settings, hints: &Hints) -> Offers;
    /// The name of an endpoint that is asked for by the name of its node.
    ///
    /// # Errors
    /// There is none.
    fn destination(node: &str) -> Result<Vec<u8>>;
    /// A new domain.
    fn domain(settings: &Self::Settings) -> Self::Domain;
    /// Commands of fi_control(3) on a domain.
    ///
    /// # Errors
    /// There is no such command, or its argument is wrong.
    ///
    /// # Safety
    /// The argument is what the command asks for.
    unsafe fn control(
        _settings: &Self::Settings,
        _domain: &Self::Domain,
        _command: c_int,
        _argument: *mut c_void,
    ) -> Result<()> {
        Err(Errno::NO_SYSTEM_CALL)
    }
    /// Opens an endpoint, which is bound to nothing yet.
    ///
    /// # Errors
    /// What is asked for is not offered, or the system refuses.
    fn endpoint(
        settings: &Self::Settings,
        domain: &Self::Domain,
        wanted: &Hints,
    ) -> Result<Self::Endpoint>;
    /// The address that a name tells, which has the bytes of one.
    fn address(name: &[u8]) -> Option<Self::Address>;
    /// The name of an address.
    fn name(address: &Self::Address) -> Option<Vec<u8>>;
    /// A name's text, if names have one.
    fn text(name: &[u8]) -> Option<String>;
    /// Checks the tag of a message.
    ///
    /// # Errors
    /// A tag doesn't have as many bits.
    fn tag(tag: u64) -> Result<u64>;
    /// The tagged messages that a receive takes. Bits that are set in `ignore` don't count.
    ///
    /// # Errors
    /// A tag doesn't have as many bits.
    fn pattern(source: u64, tag: u64, ignore: u64) -> Result<Pattern>;
    /// Whether endpoints have one-sided operations, if they are opened for them.
    fn has_one_sided(_settings: &Self::Settings) -> bool {
        false
    }
    /// What the provider can do with this operation on elements of this type.
    fn atomic(
        _datatype: sys::fi_datatype,
        _op: sys::fi_op,
        _form: AtomicForm,
    ) -> Option<AtomicLimits> {
        None
    }
    /// The words for the provider's number in an error entry.
    fn words(reason: c_int) -> &'static CStr;
    /// What libfabric calls at the end of the process, after the endpoints are gone.
    fn cleanup() {}
}

/// An endpoint, whose address vectors have addresses of the type `A`. One call at a time uses it.
pub trait ProviderEndpoint<A>: Sized + Send + 'static {
    /// What the endpoint is bound to.
    fn bound(&self) -> &Bindings;
    /// What the endpoint is bound to, to be changed.
    fn bound_mut(&mut self) -> &mut Bindings;
    /// The endpoint's own address.
    fn address(&self) -> A;
    /// The descriptor that is readable when the endpoint has something to do.
    fn event_descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Whether the descriptor wakes for all that the endpoint may have to do.
    fn may_sleep(&self) -> bool;
    /// Makes the descriptor readable at the next event. False: there is something to do now.
    fn arm(&mut self) -> bool {
        true
    }
    /// Nobody waits for the descriptor any more.
    fn disarm(&mut self) {}
    /// Makes progress, and puts what has ended into completion queues and counters.
    fn progress(&mut self, sinks: &mut Sinks<'_, A>);
    /// How often the endpoint has made progress; the number wraps around.
    fn rounds(&self) -> u32 {
        0
    }
    /// The vector no longer has an address.
    fn forget(&mut self, _address: u64) {}
    /// Whether fi_close(3), which has waited for so long, may close the endpoint. Dropping the
    /// endpoint may block.
    fn may_close(&mut self, _sinks: &mut Sinks<'_, A>, _waited: Duration) -> bool {
        true
    }
    /// Sends a message.
    ///
    /// # Errors
    /// The call is refused. All other failures are entries.
    ///
    /// # Safety
    /// The caller keeps the promises of fi_msg(3) and fi_tagged(3).
    unsafe fn send(&mut self, sinks: &mut Sinks<'_, A>, message: &Outgoing) -> Result<()>;
    /// Sends a copy of a message; there is no entry.
    ///
    /// # Errors
    /// The call is refused.
    ///
    /// # Safety
    /// As for [`ProviderEndpoint::send`].
    unsafe fn inject(&mut self, sinks: &mut Sinks<'_, A>, message: Injected) -> Result<()>;
    /// Posts a receive.
    ///
    /// # Errors
    /// As for [`ProviderEndpoint::send`].
    ///
    /// # Safety
    /// As for [`ProviderEndpoint::send`].
    unsafe fn post(&mut self, sinks: &mut Sinks<'_, A>, incoming: &Incoming) -> Result<()>;
    /// Posts a multi-receive buffer.
    ///
    /// # Errors
    /// As for [`ProviderEndpoint::send`].
    ///
    /// # Safety
    /// As for [`ProviderEndpoint::send`].
    unsafe fn post_multi(&mut self, _sinks: &mut Sinks<'_, A>, _incoming: &Incoming) -> Result<()> {
        Err(Errno::NO_SYSTEM_CALL)
    }
    /// Looks for a message that waits.
    ///
    /// # Errors
    /// As for [`ProviderEndpoint::send`].
    fn peek(&mut self, sinks: &mut Sinks<'_, A>, incoming: &Incoming) -> Result<()>;
    /// Receives, or drops, a message that was claimed with this context.
    ///
    /// # Errors
    /// As for [`ProviderEndpoint::send`].
    ///
    /// # Safety
    /// As for [`ProviderEndpoint::send`].
    unsafe fn claim(&mut self, sinks: &mut Sinks<'_, A>, incoming: &Incoming) -> Result<()>;
    /// Lets peers use a memory region, until [`ProviderEndpoint::conceal`].
    ///
    /// # Errors
    /// The endpoint can't.
    fn expose(&mut self, _region: &SharedRegion) -> Result<()> {
        Ok(())
    }
    /// Peers no longer use the region with this key.
    ///
    /// # Errors
    /// A peer may still write there. The call is to be repeated, or the endpoint to be dropped,
    /// which waits.
    fn conceal(&mut self, _key: u64) -> Result<()> {
        Ok(())
    }
    /// Begins a one-sided operation.
    ///
    /// # Errors
    /// As for [`ProviderEndpoint::send`].
    fn begin_remote(
        &mut self,
        _sinks: &mut Sinks<'_, A>,
        _call: RemoteCall,
        _what: RemoteUse,
    ) -> Result<()> {
        Err(Errno::NO_SYSTEM_CALL)
    }
    /// Cancels the receive with this context that was posted first. Its entry tells the outcome.
    ///
    /// # Errors
    /// There is no such receive, and the provider says so.
    fn cancel(&mut self, sinks: &mut Sinks<'_, A>, context: usize) -> Result<()>;
}
