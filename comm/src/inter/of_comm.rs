//! The calls that are those of the communicator inside: sends, receives and probes, which reach the
//! remote group, and calls about the local group and about failures.

use tagmatch::Buffer;

use super::intercomm::InterComm;
use crate::comm::{Destination, Message, RecvRequest, SendRequest, Source, Status, TagChoice};
use crate::context_id::ContextId;
use crate::error::Error;
use crate::group::Group;
use crate::net::Net;

/// Methods that call the method of the same name of the communicator inside.
macro_rules! of_comm {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $end:ty)?;)*) => {
        impl<N: Net> InterComm<N> {
            $($(#[$doc])* pub fn $name(&self, $($argument: $type),*) $(-> $end)? {
                self.comm.$name($($argument),*)
            })*
        }
    };
}

of_comm! {
    /// This process's rank in the local group.
    fn rank() -> u32;

    /// The number of processes in the local group.
    fn size() -> u32;

    /// The local group.
    fn group() -> &Group;

    /// The context id in which this process receives.
    fn id() -> ContextId;

    /// The name, for people to read; empty if none was set.
    fn name() -> String;

    /// Sets the name, in this process only.
    fn set_name(name: impl Into<String>);

    /// The processes of both groups that this process knows to have failed, in the order in which
    /// that became known.
    fn failed() -> Group;

    /// As [`Comm::acknowledge`](crate::Comm::acknowledge).
    fn acknowledge(count: u32) -> u32;

    /// The failed processes whose failure was acknowledged.
    fn acknowledged() -> Group;

    /// As [`Comm::revoke`](crate::Comm::revoke), at all members of both groups.
    fn revoke();

    /// Whether this process knows that the intercommunicator is revoked.
    fn is_revoked() -> bool;

    /// As [`Comm::send`](crate::Comm::send), to a remote process.
    fn send(to: impl Into<Destination>, tag: u32, data: impl Into<Buffer>) -> SendRequest<N>;

    /// As [`Comm::send_sync`](crate::Comm::send_sync), to a remote process.
    fn send_sync(to: impl Into<Destination>, tag: u32, data: impl Into<Buffer>) -> SendRequest<N>;

    /// As [`Comm::send_ready`](crate::Comm::send_ready), to a remote process.
    fn send_ready(to: impl Into<Destination>, tag: u32, data: impl Into<Buffer>) -> SendRequest<N>;

    /// As [`Comm::send_buffered`](crate::Comm::send_buffered), to a remote process.
    ///
    /// # Errors
    /// [`Error::BufferFull`], or an invalid rank or tag.
    fn send_buffered(to: impl Into<Destination>, tag: u32, data: &[u8]) -> Result<(), Error>;

    /// As [`Comm::recv`](crate::Comm::recv), from remote processes. A receive from any source
    /// reports a failure in either group until the failure is [acknowledged](Self::acknowledge).
    fn recv(
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
        room: impl Into<Buffer>
    ) -> RecvRequest<N>;

    /// As [`Comm::probe`](crate::Comm::probe), from remote processes.
    ///
    /// # Errors
    /// As for [`Comm::probe`](crate::Comm::probe).
    fn probe(
        from: impl Into<Source>,
        tag: impl Into<TagChoice>
    ) -> Result<Option<Status>, Error>;

    /// As [`Comm::mprobe`](crate::Comm::mprobe), from remote processes.
    ///
    /// # Errors
    /// As for [`Comm::mprobe`](crate::Comm::mprobe).
    fn mprobe(
        from: impl Into<Source>,
        tag: impl Into<TagChoice>
    ) -> Result<Option<Message<N>>, Error>;

    /// As [`Comm::probe_blocking`](crate::Comm::probe_blocking), from remote processes.
    ///
    /// # Errors
    /// As for [`Comm::probe_blocking`](crate::Comm::probe_blocking).
    fn probe_blocking(
        from: impl Into<Source>,
        tag: impl Into<TagChoice>
    ) -> Result<Status, Error>;

    /// As [`Comm::mprobe_blocking`](crate::Comm::mprobe_blocking), from remote processes.
    ///
    /// # Errors
    /// As for [`Comm::mprobe_blocking`](crate::Comm::mprobe_blocking).
    fn mprobe_blocking(
        from: impl Into<Source>,
        tag: impl Into<TagChoice>
    ) -> Result<Message<N>, Error>;
}
