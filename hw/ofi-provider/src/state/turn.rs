//! What a domain's progress thread does (`FI_PROGRESS_AUTO`, fi_domain(3)).
//!
//! The thread sleeps on a descriptor that watches all endpoints of the domain, as a queue's
//! descriptor does, and makes progress when an endpoint has an event. Calls of the program make
//! progress as well, and are faster. So while they do, the thread leaves the endpoints to them, and
//! looks at intervals whether they still do.

use std::sync::Arc;

use tagmatch_ofi_sys::calls::{Errno, Result};

use super::{State, keep_armed};
use crate::objects::{Sinks, ThreadWatch, Waiter};
use crate::policy::{Provider, ProviderEndpoint};
use crate::progress::NextTurn;

impl<P: Provider> State<P> {
    /// A progress thread sleeps on this descriptor from now on.
    pub(crate) fn set_thread(&mut self, waiter: Arc<Waiter>) {
        self.tables.thread = Some(ThreadWatch { waiter, is_watching: false });
    }

    /// The progress thread, and threads that wait for a counter, watch this endpoint, too.
    pub(super) fn watch_endpoint(&self, endpoint: &P::Endpoint) -> Result<()> {
        let thread = self.tables.thread.as_ref().map(|thread| &thread.waiter);
        let counters = self.tables.counter_sleep.as_ref().map(|sleep| &sleep.waiter);
        for waiter in thread.into_iter().chain(counters) {
            if let Some(descriptor) = endpoint.event_descriptor() {
                waiter.watch(descriptor).map_err(|_| Errno::NO_MEMORY)?;
            }
        }
        Ok(())
    }

    /// A turn of the progress thread.
    pub(crate) fn turn(&mut self) -> NextTurn {
        let mut is_helped = false;
        let keys = self.endpoints.keys_where(|endpoint| endpoint.bound().is_enabled());
        for key in &keys {
            let State { endpoints, tables, .. } = self;
            let Some(endpoint) = endpoints.get_mut(*key) else { continue };
            is_helped |= endpoint.rounds() != endpoint.bound().thread_rounds;
            let mut sinks = Sinks { tables, output: None };
            endpoint.progress(&mut sinks);
            if endpoint.bound().is_armed {
                keep_armed(endpoint, &mut sinks);
            }
            endpoint.bound_mut().thread_rounds = endpoint.rounds();
        }
        if let Some(thread) = &mut self.tables.thread {
            thread.is_watching = !is_helped;
        }
        let mut next = if is_helped { NextTurn::Later } else { NextTurn::AtEvent };
        for key in keys {
            if is_helped {
                self.disarm_endpoint(key);
            } else if let Some(endpoint) = self.endpoints.get_mut(key) {
                endpoint.bound_mut().is_armed = true;
                if !endpoint.may_sleep() {
                    next = NextTurn::Later;
                } else if !endpoint.arm() && next == NextTurn::AtEvent {
                    next = NextTurn::Now;
                }
            }
        }
        next
    }
}
