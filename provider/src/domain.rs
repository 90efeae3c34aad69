//! Fabrics and domains.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::{Guard, Lock};
use crate::per_process::PerProcess;
use crate::settings::Settings;
use crate::state::State;

/// A fabric: what its domains and event queues have in common.
pub(crate) struct Fabric {
    /// The version of libfabric's interface that the program asked for.
    pub(crate) api_version: u32,
    pub(crate) settings: Arc<Settings>,
    /// Domains and event queues that are open.
    pub(crate) children: AtomicUsize,
    pub(crate) is_closed: AtomicBool,
}

/// A domain.
pub(crate) struct Domain {
    pub(crate) fabric: Arc<Fabric>,
    state: Lock<State>,
    /// Memory regions that are open.
    pub(crate) regions: AtomicUsize,
    /// Event queues that are bound to the domain. They have no events of it.
    pub(crate) events: Mutex<Vec<Arc<()>>>,
    pub(crate) is_closed: AtomicBool,
}

/// The domains that are open, for the end of the process.
static DOMAINS: PerProcess<Vec<Weak<Domain>>> = PerProcess::new(Vec::new());

impl Domain {
    /// A domain without objects. `is_shared`: several threads may call at the same time.
    pub(crate) fn new(fabric: Arc<Fabric>, is_shared: bool) -> Arc<Self> {
        let domain = Arc::new(Domain {
            fabric,
            state: Lock::new(State::default(), is_shared),
            regions: AtomicUsize::new(0),
            events: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        DOMAINS.change(|domains| {
            domains.retain(|domain| domain.strong_count() > 0);
            domains.push(Arc::downgrade(&domain));
        });
        domain
    }

    /// The objects. One thread has them at a time.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }
}

/// Delivers what the endpoints that are still open have accepted, at the end of the process that
/// has opened them.
pub(crate) fn close_all() {
    let domains = DOMAINS.take().unwrap_or_default();
    for domain in domains.iter().filter_map(Weak::upgrade) {
        // A call that was interrupted by a signal handler, or whose thread was stopped, never ends.
        let Some(mut state) = domain.state.try_lock() else { continue };
        let endpoints = std::mem::take(&mut state.endpoints);
        drop(state);
        endpoints.into_entries().for_each(drop);
    }
}
