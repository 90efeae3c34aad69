//! Communicators.

mod allocating;
mod attributes;
mod children;
mod create;
mod envelope;
mod handler;
mod message;
mod p2p;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::alloc::OwnedId;
use crate::coll::{Bound, Kept, Numbers, Tables, Turn};
use crate::error::Error;
use crate::ft::Life;
use crate::group::{Group, Likeness};
use crate::ids::ContextId;
use crate::inter::Remote;
use crate::net::Net;
use crate::port::{Channel, numbers};
use crate::request::Request;
use crate::runtime::{Machine, Shared, Slot};

pub(crate) use allocating::{conclude, round};
pub(crate) use attributes::Attributes;
pub use attributes::Keyval;
use children::Children;
pub(crate) use create::Created;
pub use create::{CommRequest, Creation, DupRequest, Duplication};
pub use envelope::{Destination, Received, Source, Status, TagChoice};
pub use handler::ErrorHandler;
pub(crate) use handler::Handler;
pub use message::Message;
pub use p2p::{Receiving, RecvRequest, SendRequest, Sending};

/// What a communicator is: by which it differs from all others that this process has had or will have at
/// the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommInfo {
    /// Its context id. Other communicators, of other processes, may have the same.
    pub id: ContextId,
    /// Its members.
    pub group: Arc<Group>,
    /// This process among them.
    pub rank: u32,
}

/// What the handles of one communicator share.
pub(crate) struct Inner<N: Net> {
    pub(crate) info: CommInfo,
    pub(crate) life: Arc<Life>,
    name: Mutex<String>,
    /// Of collective operations, alike in all members.
    numbers: Arc<Numbers>,
    pub(crate) kept: Mutex<Kept<N>>,
    /// The other group, of an intercommunicator.
    pub(crate) remote: Option<Arc<Remote>>,
    handler: Mutex<Handler<N>>,
    // In the order in which they go: what the program has of a communicator, what layers have, and then the id,
    // which can be another one's.
    attributes: Mutex<Attributes>,
    children: Children<N>,
    pub(crate) bound: Bound<N>,
    pub(crate) owned: Option<Arc<OwnedId>>,
}

impl<N: Net> Inner<N> {
    pub(crate) fn new(
        info: CommInfo,
        life: Arc<Life>,
        owned: Option<Arc<OwnedId>>,
        tables: &Tables<N>,
        name: &str,
    ) -> Result<Self, Error> {
        let bound = tables.bind(&info)?;
        let inner = Inner::bare(info, life, owned, bound, None);
        *inner.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_owned();
        Ok(inner)
    }

    pub(crate) fn bare(
        info: CommInfo,
        life: Arc<Life>,
        owned: Option<Arc<OwnedId>>,
        bound: Bound<N>,
        remote: Option<Arc<Remote>>,
    ) -> Self {
        // Messages that were left over in the same context, of one that was revoked, have other numbers.
        let numbers = Numbers::new(u32::try_from(life.key.epoch >> 32).unwrap_or(0));
        let attributes = Mutex::new(Attributes::new(info.clone()));
        Inner {
            info,
            life,
            name: Mutex::default(),
            numbers: Arc::new(numbers),
            kept: Mutex::default(),
            remote,
            handler: Mutex::default(),
            attributes,
            children: Children::default(),
            bound,
            owned,
        }
    }

    /// To whom it sends, and of whom it receives.
    pub(crate) fn peers(&self) -> &Arc<Group> {
        self.remote.as_ref().map_or(&self.info.group, |remote| &remote.group)
    }

    /// The context in which they receive.
    pub(crate) fn sends_in(&self) -> ContextId {
        self.remote.as_ref().map_or(self.info.id, |remote| remote.id)
    }
}

/// A communicator: an ordered group of processes whose messages meet no others. Clones are the same.
///
/// It is freed when the last of its clones, requests and held messages is gone; its context id is given
/// out again once all members have freed it and nothing that was sent in it can still come. What nobody has received
/// by then is discarded. Predefined ones are never freed.
///
/// Collective calls are made by all members, in the same order.
pub struct Comm<N: Net> {
    pub(crate) shared: Arc<Shared<N>>,
    pub(crate) inner: Arc<Inner<N>>,
}

impl<N: Net> Comm<N> {
    pub(crate) fn new(shared: &Arc<Shared<N>>, inner: Arc<Inner<N>>) -> Self {
        Comm { shared: Arc::clone(shared), inner }
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.inner.info.rank
    }

    /// How many members.
    pub fn size(&self) -> u32 {
        self.inner.info.group.size()
    }

    /// The members.
    pub fn group(&self) -> &Group {
        &self.inner.info.group
    }

    /// Id, members and rank.
    pub fn info(&self) -> &CommInfo {
        &self.inner.info
    }

    /// The context id.
    pub fn id(&self) -> ContextId {
        self.inner.info.id
    }

    /// The name, for people; empty if none was given.
    pub fn name(&self) -> String {
        self.inner.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives it a name, in this process. Duplicates don't inherit it (MPI-4.1 section 7.8).
    pub fn set_name(&self, name: impl Into<String>) {
        *self.inner.name.lock().unwrap_or_else(PoisonError::into_inner) = name.into();
    }

    /// Whether both are handles of one communicator.
    pub fn is(&self, other: &Comm<N>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// How its members are like another's. Different communicators of identical groups are what MPI calls
    /// congruent.
    pub fn compare(&self, other: &Comm<N>) -> Likeness {
        self.group().compare(other.group())
    }

    /// Lets go of this handle. The communicator is freed with its last one.
    pub fn free(self) {}

    /// A number for the messages of the next collective operation; all members take it at the same call. The
    /// number is in use until all clones of the channel are dropped. See [`Channel::has_turn`].
    pub fn channel(&self) -> Channel {
        self.numbered(self.outside(0))
    }

    /// This channel with the number of the next collective operation.
    pub(crate) fn numbered(&self, channel: Channel) -> Channel {
        let turn = Turn::next(&self.inner.numbers, self.shared.sleeper.clone());
        Channel { tag: self.tag_of(&turn), turn: Some(Arc::new(turn)), ..channel }
    }

    /// The number of the next collective operation, for a channel whose operation has ended.
    pub(crate) fn renumber(&self, channel: &mut Channel) {
        if let Some(turn) = &channel.turn {
            turn.renew();
            channel.tag = self.tag_of(turn);
        }
    }

    fn tag_of(&self, turn: &Turn) -> u32 {
        turn.number() & (numbers(self.shared.tags) - 1)
    }

    /// For messages that no collective operation's number tells apart.
    pub(crate) fn outside(&self, tag: u32) -> Channel {
        let Shared { ids, tags, .. } = *self.shared;
        let info = &self.inner.info;
        let collective = ids.collective(info.id);
        Channel {
            group: Arc::clone(&info.group),
            own: info.rank,
            context: collective,
            tag,
            tags,
            life: Some(Arc::clone(&self.inner.life)),
            abroad: None,
            turn: None,
        }
    }

    /// Begins a state machine, such as a layer's own form of a collective operation.
    pub fn start<M>(&self, machine: M) -> Request<N, Running<N, M::Output>>
    where
        M: Machine<N> + 'static,
        M::Output: 'static,
    {
        let slot = self.shared.start(machine);
        Request::new(&self.shared, Running { slot, inner: Arc::clone(&self.inner) })
    }

    /// A request that is over.
    pub fn ended<T>(&self, result: Result<T, Error>) -> Request<N, Running<N, T>> {
        let slot = Arc::new(Slot::over(result));
        Request::new(&self.shared, Running { slot, inner: Arc::clone(&self.inner) })
    }

    /// Drives a state machine until it is over. Blocks.
    ///
    /// # Errors
    /// What the machine ends with.
    pub fn run<M: Machine<N>>(&self, machine: M) -> Result<M::Output, Error> {
        self.raise(self.shared.run(machine))
    }
}

/// A state machine under way.
pub struct Running<N: Net, T> {
    slot: Arc<Slot<T>>,
    inner: Arc<Inner<N>>,
}

impl<N: Net, T> crate::request::Pending<N> for Running<N, T> {
    type Output = Result<T, Error>;

    fn test(&mut self, shared: &Arc<Shared<N>>) -> Option<Self::Output> {
        let result = self.slot.take()?;
        Some(self.inner.raise(shared, result))
    }
}

impl<N: Net> Clone for Comm<N> {
    fn clone(&self) -> Self {
        Comm::new(&self.shared, Arc::clone(&self.inner))
    }
}

impl<N: Net> fmt::Debug for Comm<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({} {:?}, rank {} of {})", self.id(), self.name(), self.rank(), self.size())
    }
}
