//! A process's part in a job.

use std::sync::Arc;

use tagmatch::{ProgressThread, TagLayout};

use crate::alloc::Allocator;
use crate::coll::SharedLayer;
use crate::comm::{CollLayer, Comm, CommInfo, CommOrigin, Tables};
use crate::driver::{BUFFER_OVERHEAD, Driver, Settings};
use crate::error::{Error, check_carried, in_range};
use crate::ft::Service;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};
use crate::life::Life;
use crate::mailbox::Mailboxes;
use crate::net::{Net, ProcessId};
use crate::settings::{Algorithms, CommonSettings};

/// Fewest bits that a tag can have: two marks, and a number that tells operations under way apart.
const TAG_BITS_MIN: u32 = 10;

tagmatch::settings! {
    /// Settings of a [`Runtime`], the same in all processes of a job, and in jobs that meet. Only
    /// the layers may differ, if they don't change the messages of an operation.
    ///
    /// A setting that is out of its range makes [`Runtime::new`] fail with [`Error::BadSetting`],
    /// which names it. Processes compare their settings before they use each other's messages. If a
    /// setting differs between two processes of a job, operations end with
    /// [`Error::UnequalSetting`], which names it, at all processes that communicate. Between two
    /// jobs, calls at ports end so.
    ///
    /// Fields may be added: begin with `Config::default()`, and set fields by the methods named
    /// after them.
    pub struct Config<N: Net> {
        /// The fields of context ids: as many bits as the context has in `tags`, or fewer. Default:
        /// [`IdLayout::BITS_16`].
        pub ids: IdLayout,
        /// How many words of the mask of free ids the first round of an allocation exchanges: 0 to
        /// one fewer than the mask has. Default: 2.
        pub eager_words: usize,
        /// Which of a message's 64 bits are the context, the source and the tag. The tag has 10 to
        /// 32 bits, and the source enough to number the processes of the job. Default:
        /// [`TagLayout::MPI`].
        ///
        /// Over UCX and libfabric, which keep a peer's number in bits of the tag, these three
        /// fields have to fit beside it: `TagLayout::new(16, 12, 19)`, with `TagLayout::new(0, 12,
        /// 47)` as the worker's layout, fits every provider and 4096 processes. The default
        /// doesn't: [`Runtime::new`] refuses it there with [`Error::NotCarried`].
        ///
        /// With `b` bits, a communicator carries out up to `2^(b - 2)` collective operations at the
        /// same time, and later ones wait. If the members may map memory together, up to half as
        /// many at the same time are operations that can go through shared memory, and up to half
        /// as many are others. Each kind has numbers of its own: a member learns at its own time
        /// that the shared memory is there, and from then on operations in shared memory take no
        /// number. Tags of messages between two members are not affected.
        pub tags: TagLayout,
        /// Where collective operations change from one algorithm to another. Default:
        /// [`Algorithms::default`].
        pub algorithms: Algorithms,
        /// Layers over the collective operations. Their order here doesn't matter: each layer has
        /// its level, which no other layer has. Default: none.
        pub layers: Vec<Arc<dyn CollLayer<N>>>,
        /// Whether the members of a communicator that are all on one machine map memory together
        /// for its barriers, broadcasts, reductions, allreduces, allgathers and alltoalls. The
        /// memory is made at the first such call, and is used for up to 1024 members. It is 1.2 KiB
        /// for each member, and up to 128 KiB more as the member's values get longer. If members
        /// are on several machines, one leader of each machine exchanges messages in the first four
        /// of these operations, and the members of a machine use memory among themselves. Where the
        /// memory can't be had, and with `false`, these operations are done by messages. Default:
        /// `true`.
        pub shared_memory: bool,
    }
}

impl<N: Net> Default for Config<N> {
    fn default() -> Self {
        Config {
            ids: IdLayout::BITS_16,
            eager_words: 2,
            tags: TagLayout::MPI,
            algorithms: Algorithms::default(),
            layers: Vec::new(),
            shared_memory: true,
        }
    }
}

/// A process's part in a job: where its communicators come from. Clones are the same runtime.
///
/// Operations move only while something makes progress: every test, wait and poll of a request
/// makes progress for all operations of the process, and so do [`progress`](Self::progress),
/// [`block_on`](Self::block_on) and a [`progress_thread`](Self::progress_thread).
pub struct Runtime<N: Net> {
    world: Comm<N>,
    oneself: Comm<N>,
}

impl<N: Net> Runtime<N> {
    /// Bytes of the attached buffer that a buffered send takes in addition to its message.
    pub const BUFFER_OVERHEAD: usize = BUFFER_OVERHEAD;

    /// Joins the job that the transport knows.
    ///
    /// # Errors
    /// The layouts don't fit each other or the job ([`Error::BadSetting`]), the transport can't
    /// carry tags of the layout ([`Error::NotCarried`]), two layers have the same level, or a layer
    /// refused one of the predefined communicators.
    pub fn new(net: N, config: Config<N>) -> Result<Self, Error> {
        let Config { ids, eager_words, tags, algorithms, layers, shared_memory } = config;
        let size = net.processes();
        let own = net.own();
        in_range("bits of ids", ids.bits().into(), 1, tags.context_bits().into())?;
        in_range("tag_bits of tags", tags.tag_bits().into(), TAG_BITS_MIN.into(), 32)?;
        in_range("processes of the job", size.into(), 1, 1 << tags.source_bits().min(32))?;
        in_range("number of this process", own.0.into(), 0, u64::from(size) - 1)?;
        check_carried(net.free_tag_bits(), tags)?;
        let start = Arc::new(|comm: &Comm<N>, call| comm.start_planned(call));
        let run = Arc::new(|comm: &Comm<N>, call| comm.run_planned(call));
        let shared = (shared_memory && net.shares_memory()).then(|| SharedLayer::new(&net));
        let shared = shared.map(|layer| Arc::new(layer) as Arc<dyn CollLayer<N>>);
        let tables = Arc::new(Tables::new(shared, layers, start, run)?);
        let allocator = Allocator::new(ids, eager_words)?;
        let mailboxes = Arc::new(Mailboxes::new(net.sleeper()));
        let common = CommonSettings::new(ids, eager_words, tags, &algorithms, shared_memory);
        let ft = Service::new(&net, common, (ids, tags), &allocator, &mailboxes);
        let settings = Settings { ids, tags, algorithms };
        let driver = Arc::new(Driver::new(net, ft, allocator, mailboxes, settings));
        let predefined = |id: ContextId, group: Group, name: &str| {
            let rank = group.rank(own).unwrap_or(0);
            let info = CommInfo { id, group: Arc::new(group), rank };
            let life = Arc::new(Life::new(id, id.bits().into(), &info.group, rank));
            driver.register(&life);
            let bound = tables.bind(&info)?;
            let origin = CommOrigin { info, life, owned: None, bound, remote: None };
            let comm = Comm::new(&driver, origin);
            comm.set_name(name);
            Ok::<_, Error>(comm)
        };
        let world = predefined(ids.world(), Group::new((0..size).map(ProcessId)), "world")?;
        let oneself = predefined(ids.oneself(), Group::new([own]), "self")?;
        Ok(Runtime { world, oneself })
    }

    pub(crate) fn driver(&self) -> &Arc<Driver<N>> {
        self.world.driver()
    }

    /// The communicator of all processes of the job.
    pub fn world(&self) -> Comm<N> {
        self.world.clone()
    }

    /// The communicator of this process alone.
    pub fn oneself(&self) -> Comm<N> {
        self.oneself.clone()
    }

    /// Takes in what has arrived, and moves everything that is under way.
    pub fn progress(&self) {
        self.driver().progress();
    }

    /// Calls `look` with the transport, which no other thread uses meanwhile: for what the
    /// transport counts. `look` must use neither this runtime nor its communicators.
    pub fn with_net<R>(&self, look: impl FnOnce(&N) -> R) -> R {
        look(&self.driver().lock().net)
    }

    /// Runs a future to its end on this thread, and makes progress meanwhile; the thread sleeps
    /// while there is nothing to do. The future may use many requests at once. Blocks.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.driver().block_on(future)
    }

    /// How many context ids no communicator of this process has. A new communicator gets one of
    /// them as soon as no other process sends in it any more.
    pub fn free_ids(&self) -> u32 {
        self.driver().allocator.free_count()
    }

    /// How many agreements this process keeps: those under way, and those that another member may
    /// still ask about. Agreements of communicators that are freed are kept, too, up to 1024.
    pub fn kept_agreements(&self) -> usize {
        self.driver().lock().ft.kept_agreements()
    }

    /// Gives room for buffered sends, in bytes: each takes its length and
    /// [`Self::BUFFER_OVERHEAD`].
    ///
    /// # Errors
    /// [`Error::BufferAttached`]: there is room already.
    pub fn attach_buffer(&self, bytes: usize) -> Result<(), Error> {
        self.driver().lock().buffered.attach(bytes)
    }

    /// Blocks until all buffered sends have left, and takes their room back: how many bytes that
    /// was.
    pub fn detach_buffer(&self) -> usize {
        self.driver().detach_buffer()
    }

    /// How many tables of collective operations are in use. Communicators that were patched alike
    /// share one.
    pub fn tables(&self) -> usize {
        self.world.inner.bound.tables.count()
    }
}

impl<N: Net + Send> Runtime<N>
where
    Driver<N>: Send + Sync,
{
    /// A thread that makes progress until it is dropped, and sleeps while there is nothing to do.
    /// Futures on any other executor need it, and so do programs that compute for long while other
    /// processes wait for them.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn progress_thread(&self) -> std::io::Result<ProgressThread> {
        self.driver().progress_thread()
    }
}

impl<N: Net> Clone for Runtime<N> {
    fn clone(&self) -> Self {
        Runtime { world: self.world.clone(), oneself: self.oneself.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Channel;
    use crate::net::worker::WorkerNet;

    #[test]
    fn an_operation_has_its_turn_when_the_one_with_the_same_tag_has_ended() {
        let tags = TagLayout::new(16, 8, 10).unwrap();
        let worker = tagmatch::Worker::new(tagmatch::Config::default()).unwrap();
        let addresses = vec![worker.address()];
        let net = WorkerNet::new(worker, addresses, 0).unwrap();
        let runtime = Runtime::new(net, Config::default().tags(tags)).unwrap();
        let mut channels: Vec<Channel> = (0..257).map(|_| runtime.world().channel()).collect();
        let last = channels.pop().unwrap();
        assert!(channels.iter().all(Channel::has_turn) && !last.has_turn());
        assert_eq!(channels[0].tag, last.tag);
        drop(channels.remove(0));
        assert!(last.has_turn());
    }
}
