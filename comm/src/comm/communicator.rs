//! A communicator, and the state that its handles share.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::attributes::Attributes;
use super::error_handler::ErrorHandler;
use super::info::CommInfo;
use super::table::Bound;
use crate::alloc::OwnedId;
use crate::context_id::ContextId;
use crate::driver::{Channel, Driver, DriverState, Machine, Numbers, Pending, Request, TagPart};
use crate::driver::{ResultSlot, Turn};
use crate::error::{Error, HasError};
use crate::group::{Group, Likeness};
use crate::life::Life;
use crate::net::Net;
use crate::plans::Repeats;
use crate::remote::RemoteGroup;
use crate::shared_memory::SharedMembers;

/// The state that all handles of one communicator share.
pub(crate) struct Inner<N: Net> {
    pub(crate) info: CommInfo,
    pub(crate) life: Arc<Life>,
    name: Mutex<String>,
    /// The numbers of collective operations, the same at all members.
    numbers: Arc<Numbers>,
    /// The numbers of the operations that go through shared memory where the members have some.
    /// Such operations need none once they do, and not all members know at the same call that they
    /// do. So these numbers are apart from the others.
    shared_numbers: Option<Arc<Numbers>>,
    /// This member's part in operations in shared memory, which the lowest layer has attached: each
    /// operation needs it.
    pub(crate) shared: Option<Arc<SharedMembers>>,
    pub(crate) repeats: Mutex<Repeats<N>>,
    /// The remote group, if this is an intercommunicator.
    pub(crate) remote: Option<Arc<RemoteGroup>>,
    pub(super) handler: Mutex<ErrorHandler<Comm<N>>>,
    // The order of these fields is the order in which they are dropped: first the values of the
    // program, then those of the layers, and then the context id, which another communicator may
    // get.
    pub(super) attributes: Mutex<Attributes>,
    pub(super) intranode: Mutex<Option<Comm<N>>>,
    pub(super) internode: Mutex<Option<Comm<N>>>,
    /// The communicator of the local group, if this is an intercommunicator.
    pub(crate) local: OnceLock<Comm<N>>,
    pub(crate) bound: Bound<N>,
    pub(crate) owned: Option<Arc<OwnedId>>,
    pub(super) driver: Arc<Driver<N>>,
}

/// A communicator: an ordered group of processes whose messages meet no others. Clones are the same
/// communicator.
///
/// It is freed when the last of its clones, requests and held messages is gone. Its context id is
/// given out again once all members have freed it and nothing that was sent in it can still arrive.
/// Messages that were not received by then are discarded. The predefined communicators live as
/// long as their runtime.
///
/// Collective calls are made by all members, in the same order.
pub struct Comm<N: Net> {
    pub(crate) inner: Arc<Inner<N>>,
}

/// The parts of a new communicator.
pub(crate) struct CommOrigin<N: Net> {
    pub(crate) info: CommInfo,
    pub(crate) life: Arc<Life>,
    pub(crate) owned: Option<Arc<OwnedId>>,
    /// The communicator's table, as the layers have patched it.
    pub(crate) bound: Bound<N>,
    /// The remote group of an intercommunicator.
    pub(crate) remote: Option<Arc<RemoteGroup>>,
}

impl<N: Net> Comm<N> {
    pub(crate) fn new(driver: &Arc<Driver<N>>, origin: CommOrigin<N>) -> Self {
        let CommOrigin { info, life, owned, bound, remote } = origin;
        // The first number depends on the epoch. So messages that a revoked communicator has left
        // in the same context have other numbers, and are not received here.
        let first = u32::try_from(life.key.epoch >> 32).unwrap_or(0);
        let numbers = |part| Arc::new(Numbers::new(first, part));
        let shared = bound.attached::<Arc<SharedMembers>>().cloned();
        let (numbers, shared_numbers) = if shared.is_some() {
            let [even, odd] = [false, true].map(|is_odd| numbers(TagPart::Half { is_odd }));
            (even, Some(odd))
        } else {
            (numbers(TagPart::All), None)
        };
        let attributes = Mutex::new(Attributes::new(info.clone()));
        let inner = Inner {
            info,
            life,
            name: Mutex::default(),
            numbers,
            shared_numbers,
            shared,
            repeats: Mutex::default(),
            remote,
            handler: Mutex::default(),
            attributes,
            intranode: Mutex::new(None),
            internode: Mutex::new(None),
            local: OnceLock::new(),
            bound,
            owned,
            driver: Arc::clone(driver),
        };
        Comm { inner: Arc::new(inner) }
    }

    /// Makes a communicator with this one's layers, and registers it with the service for failures.
    pub(crate) fn make(
        &self,
        info: CommInfo,
        life: Life,
        owned: Option<Arc<OwnedId>>,
    ) -> Result<Self, Error> {
        let life = Arc::new(life);
        let bound = self.inner.bound.tables.bind(&info)?;
        self.driver().register(&life);
        Ok(Comm::new(self.driver(), CommOrigin { info, life, owned, bound, remote: None }))
    }

    pub(crate) fn driver(&self) -> &Arc<Driver<N>> {
        &self.inner.driver
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.inner.info.rank
    }

    /// The number of members.
    pub fn size(&self) -> u32 {
        self.inner.info.group.size()
    }

    /// The members.
    pub fn group(&self) -> &Group {
        &self.inner.info.group
    }

    /// Context id, members and this process's rank.
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

    /// Gives the communicator a name, in this process. Duplicates don't inherit it (MPI-4.1 section
    /// 7.8).
    pub fn set_name(&self, name: impl Into<String>) {
        *self.inner.name.lock().unwrap_or_else(PoisonError::into_inner) = name.into();
    }

    /// Whether both handles belong to the same communicator.
    pub fn is(&self, other: &Comm<N>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Compares the members with another communicator's. MPI calls two different communicators of
    /// identical groups congruent.
    pub fn compare(&self, other: &Comm<N>) -> Likeness {
        self.group().compare(other.group())
    }

    /// Drops this handle. The communicator is freed with its last handle.
    pub fn free(self) {}

    /// The processes that it sends to and receives from: the members, or the other group of an
    /// intercommunicator.
    pub(crate) fn peers(&self) -> &Arc<Group> {
        self.inner.remote.as_ref().map_or(&self.inner.info.group, |remote| &remote.group)
    }

    /// The context in which those processes receive.
    pub(super) fn sends_in(&self) -> ContextId {
        self.inner.remote.as_ref().map_or(self.inner.info.id, |remote| remote.id)
    }

    /// The channel of the next collective operation. All members take its number at the same call.
    /// The number is in use until all clones of the channel are dropped.
    pub(crate) fn channel(&self) -> Channel {
        self.numbered(self.outside(0))
    }

    /// This channel with the number of the next collective operation.
    pub(crate) fn numbered(&self, channel: Channel) -> Channel {
        self.numbered_by(&self.inner.numbers, channel)
    }

    /// This channel with the number of the next operation that goes through shared memory where the
    /// members have some.
    pub(crate) fn shared_numbered(&self, channel: Channel) -> Channel {
        let numbers = self.inner.shared_numbers.as_ref();
        self.numbered_by(numbers.unwrap_or(&self.inner.numbers), channel)
    }

    fn numbered_by(&self, numbers: &Arc<Numbers>, channel: Channel) -> Channel {
        let turn = Turn::next(numbers, self.driver().sleeper.clone());
        let tag = turn.tag(channel.tags);
        Channel { tag, turn: Some(Arc::new(turn)), ..channel }
    }

    /// Gives a channel whose operation has ended the number of the next collective operation.
    pub(crate) fn renumber(&self, channel: &mut Channel) {
        if let Some(turn) = &channel.turn {
            turn.renew();
            channel.tag = turn.tag(channel.tags);
        }
    }

    /// A channel in the collective context for messages without the number of a collective
    /// operation.
    pub(crate) fn outside(&self, tag: u32) -> Channel {
        let settings = &self.driver().settings;
        let info = &self.inner.info;
        Channel {
            group: Arc::clone(&info.group),
            own: info.rank,
            context: settings.ids.collective(info.id),
            tag,
            tags: settings.tags,
            life: Some(Arc::clone(&self.inner.life)),
            remote: None,
            turn: None,
        }
    }

    /// Begins a state machine.
    pub(crate) fn start<M>(&self, machine: M) -> Request<N, Running<N, M::Output>>
    where
        M: Machine<N> + 'static,
        M::Output: 'static,
    {
        self.request(Outcome::Slot(self.driver().start(machine)))
    }

    /// Begins a state machine. `finish` makes the result of its output, in the thread that takes
    /// the result. It may call the program's functions, which a machine must not.
    pub(crate) fn start_then<M, T>(
        &self,
        machine: M,
        finish: impl FnOnce(&Comm<N>, M::Output) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Request<N, Running<N, T>>
    where
        M: Machine<N> + 'static,
        M::Output: 'static,
    {
        self.request(Outcome::Slot(self.driver().start(machine)).then(finish))
    }

    /// A request that has ended with this result. It is for layers that carry out an operation at
    /// once.
    pub fn ended<T>(&self, result: Result<T, Error>) -> Request<N, Running<N, T>> {
        self.request(Outcome::Slot(ResultSlot::new(Some(result))))
    }

    fn request<T>(&self, outcome: Outcome<N, T>) -> Request<N, Running<N, T>> {
        Request::new(Running { outcome, comm: self.clone(), _peer: None })
    }

    /// Passes an error to the error handler, and returns the result. The handler is not called for
    /// a cancelled operation.
    pub(crate) fn raise<T, E: HasError>(&self, result: Result<T, E>) -> Result<T, E> {
        result.map_err(|mut error| {
            self.handle(error.error_mut());
            error
        })
    }

    #[cold]
    fn handle(&self, error: &mut Error) {
        {
            // Another process may have told, before it failed here, that settings differ.
            let DriverState { net, ft, .. } = &mut *self.driver().lock();
            ft.look(net);
            if let Some(fault) = ft.fault() {
                error.clone_from(fault);
            }
        }
        if *error != Error::Cancelled {
            let handler = self.inner.handler.lock().unwrap_or_else(PoisonError::into_inner).clone();
            handler.hear(self, error);
        }
    }
}

/// A collective operation under way.
pub struct Running<N: Net, T> {
    outcome: Outcome<N, T>,
    comm: Comm<N>,
    /// Another communicator that must not be freed meanwhile.
    _peer: Option<Comm<N>>,
}

/// Makes the result of an operation, once it has ended.
type Make<N, T> = dyn FnMut(&Comm<N>) -> Option<Result<T, Error>> + Send + Sync;

/// The place of an operation's result.
enum Outcome<N: Net, T> {
    /// A state machine leaves it here.
    Slot(Arc<ResultSlot<T>>),
    /// This function makes it of a state machine's output.
    Made(Box<Make<N, T>>),
}

impl<N: Net, T> Outcome<N, T> {
    fn take(&mut self, comm: &Comm<N>) -> Option<Result<T, Error>> {
        match self {
            Outcome::Slot(slot) => slot.take(),
            Outcome::Made(make) => make(comm),
        }
    }

    fn then<R>(
        mut self,
        finish: impl FnOnce(&Comm<N>, T) -> Result<R, Error> + Send + Sync + 'static,
    ) -> Outcome<N, R>
    where
        T: Send + 'static,
    {
        let mut finish = Some(finish);
        Outcome::Made(Box::new(move |comm| {
            let result = self.take(comm)?;
            let finish = finish.take()?;
            Some(result.and_then(|output| finish(comm, output)))
        }))
    }
}

impl<N: Net, T> Pending<N> for Running<N, T> {
    type Output = Result<T, Error>;

    fn driver(&self) -> &Arc<Driver<N>> {
        self.comm.driver()
    }

    fn test(&mut self) -> Option<Self::Output> {
        let result = self.outcome.take(&self.comm)?;
        Some(self.comm.raise(result))
    }
}

impl<N: Net, T: Send + 'static> Request<N, Running<N, T>> {
    /// This request with another result.
    pub(crate) fn map<R: 'static>(self, result: fn(T) -> R) -> Request<N, Running<N, R>> {
        let Running { outcome, comm, _peer } = self.pending;
        let outcome = outcome.then(move |_, output| Ok(result(output)));
        Request::new(Running { outcome, comm, _peer })
    }
}

impl<N: Net, T> Request<N, Running<N, T>> {
    /// This request, which keeps another communicator from being freed.
    pub(crate) fn keeping(mut self, peer: Option<Comm<N>>) -> Self {
        self.pending._peer = peer;
        self
    }
}

impl<N: Net> Clone for Comm<N> {
    fn clone(&self) -> Self {
        Comm { inner: Arc::clone(&self.inner) }
    }
}

impl<N: Net> fmt::Debug for Comm<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({} {:?}, rank {} of {})", self.id(), self.name(), self.rank(), self.size())
    }
}
