//! Fabrics and domains.

use std::ffi::c_int;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::lock::{Guard, Lock};
use crate::objects::Waiter;
use crate::per_process::PerProcess;
use crate::policy::Provider;
use crate::progress::{DomainThread, NextTurn};
use crate::state::{RegionServers, State};

/// A fabric: what its domains and event queues have in common.
pub(crate) struct Fabric<P: Provider> {
    /// The version of libfabric's interface that the program asked for.
    pub(crate) api_version: u32,
    pub(crate) settings: Arc<P::Settings>,
    /// Domains and event queues that are open.
    pub(crate) children: AtomicUsize,
    pub(crate) is_closed: AtomicBool,
}

/// How the memory regions of a domain are named (`mr_mode`, fi_mr(3)).
pub(crate) struct RegionKeys {
    /// Peers name a region's bytes by their addresses; otherwise they count from 0.
    pub(crate) by_address: bool,
    /// The provider chooses the keys.
    pub(crate) are_given: bool,
    /// A region serves the endpoint alone to which it is bound, once it is enabled.
    of_endpoints: bool,
    /// A region that tells of what peers do is bound to counters before it is enabled.
    wait_with_events: bool,
    /// Makes keys that nobody can guess.
    hashes: RandomState,
    given: AtomicU64,
}

impl RegionKeys {
    pub(crate) fn new(mode: c_int) -> Self {
        let has = |bit: c_int| mode & (bit | sys::FI_MR_BASIC) != 0;
        RegionKeys {
            by_address: has(sys::FI_MR_VIRT_ADDR),
            are_given: has(sys::FI_MR_PROV_KEY),
            of_endpoints: mode & sys::FI_MR_ENDPOINT != 0,
            wait_with_events: mode & sys::FI_MR_RMA_EVENT != 0,
            hashes: RandomState::new(),
            given: AtomicU64::new(0),
        }
    }

    /// Which endpoints serve a new region with these flags.
    pub(crate) fn servers(&self, flags: u64) -> RegionServers {
        if self.of_endpoints {
            RegionServers::Unbound
        } else if self.wait_with_events && flags & sys::FI_RMA_EVENT != 0 {
            RegionServers::AllOnceEnabled
        } else {
            RegionServers::All
        }
    }

    /// A key, which another region may have.
    pub(crate) fn next(&self) -> u64 {
        self.hashes.hash_one(self.given.fetch_add(1, Ordering::Relaxed))
    }
}

/// A domain.
pub(crate) struct Domain<P: Provider> {
    pub(crate) fabric: Arc<Fabric<P>>,
    pub(crate) own: P::Domain,
    /// How regions are named, if peers may use them.
    pub(crate) keys: Option<RegionKeys>,
    state: Lock<State<P>>,
    /// The thread that makes progress, if the program has asked for one.
    progress: OnceLock<DomainThread>,
    /// Memory regions that are open.
    pub(crate) regions: AtomicUsize,
    /// Event queues that are bound to the domain. They have no events of it.
    pub(crate) events: Mutex<Vec<Arc<()>>>,
    pub(crate) is_closed: AtomicBool,
}

/// A domain of any provider.
trait AnyDomain: Send + Sync {
    /// Drops the endpoints.
    fn drop_endpoints(&self);
}

/// The domains that are open, for the end of the process.
static DOMAINS: PerProcess<Vec<Weak<dyn AnyDomain>>> = PerProcess::new(Vec::new());

impl<P: Provider> Domain<P> {
    /// A domain without objects. `is_shared`: several threads may call at the same time.
    pub(crate) fn new(
        fabric: Arc<Fabric<P>>,
        keys: Option<RegionKeys>,
        is_shared: bool,
    ) -> Arc<Self> {
        let domain = Arc::new(Domain {
            keys,
            own: P::domain(&fabric.settings),
            fabric,
            state: Lock::new(State::default(), is_shared),
            progress: OnceLock::new(),
            regions: AtomicUsize::new(0),
            events: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        let any: Weak<dyn AnyDomain> = Arc::<Self>::downgrade(&domain);
        DOMAINS.change(|domains| {
            domains.retain(|domain| domain.strong_count() > 0);
            domains.push(any);
        });
        domain
    }

    /// The objects. One thread has them at a time.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, State<P>> {
        self.state.lock()
    }

    /// Has a thread make progress from now on. The domain's lock is one that threads share.
    ///
    /// # Errors
    /// The system refuses a descriptor or a thread.
    pub(crate) fn start_progress(self: &Arc<Self>) -> Result<()> {
        let waiter = Arc::new(Waiter::new().map_err(|_| Errno::NO_MEMORY)?);
        self.lock().set_thread(waiter.clone());
        let domain = Arc::clone(self);
        let thread = DomainThread::start(waiter, move || {
            domain.state.try_lock().map_or(NextTurn::Now, |mut state| state.turn())
        })?;
        self.progress.get_or_init(|| thread);
        Ok(())
    }

    /// Ends the thread that makes progress, if there is one.
    pub(crate) fn end_progress(&self) {
        if let Some(thread) = self.progress.get() {
            thread.stop();
            thread.join();
        }
    }
}

impl<P: Provider> AnyDomain for Domain<P> {
    fn drop_endpoints(&self) {
        // The thread itself goes on to its end: whoever unloads a library may wait for it in vain.
        if let Some(thread) = self.progress.get() {
            thread.stop();
        }
        // A call that was interrupted by a signal handler, or whose thread was stopped, never ends.
        let Some(mut state) = self.state.try_lock() else { return };
        let endpoints = state.take_endpoints();
        drop(state);
        drop(endpoints);
    }
}

/// Delivers what the endpoints that are still open have accepted, at the end of the process that
/// has opened them.
pub(crate) fn close_all() {
    let domains = DOMAINS.take().unwrap_or_default();
    domains.iter().filter_map(Weak::upgrade).for_each(|domain| domain.drop_endpoints());
}
