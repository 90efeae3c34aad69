//! Sleeping until a counter changes (fi_cntr(3)).
//!
//! All threads of a domain that wait for a counter sleep on one descriptor. It becomes readable
//! once an endpoint of the domain has an event, and once a thread that is awake has changed a
//! counter.

use std::sync::Arc;

use tagmatch_ofi_sys::calls::{Errno, Result};

use super::State;
use crate::objects::{CounterSleep, Waiter};
use crate::policy::{Provider, ProviderEndpoint};

impl<P: Provider> State<P> {
    /// A thread that has found its counter unchanged is about to sleep on this descriptor. `None`:
    /// there is something to do, or an endpoint has no descriptor that wakes.
    ///
    /// # Errors
    /// The system has no descriptors or no memory.
    pub(crate) fn begin_counter_sleep(&mut self) -> Result<Option<Arc<Waiter>>> {
        let endpoints = self.endpoints.keys_where(|endpoint| endpoint.bound().is_enabled());
        let mut enabled = endpoints.iter().filter_map(|key| self.endpoints.get(*key));
        if !enabled.all(|endpoint| endpoint.may_sleep() && endpoint.event_descriptor().is_some()) {
            return Ok(None);
        }
        let waiter = self.begin_sleeping()?;
        let is_armed = endpoints.iter().all(|key| {
            self.endpoints.get_mut(*key).is_none_or(|endpoint| {
                endpoint.bound_mut().is_armed = true;
                endpoint.arm()
            })
        });
        if !is_armed {
            // Threads that sleep have not seen what there is to do.
            self.tables.wake_counter_waits();
            self.end_counter_sleep();
        }
        Ok(is_armed.then_some(waiter))
    }

    /// One more thread sleeps. The first one makes the descriptor.
    fn begin_sleeping(&mut self) -> Result<Arc<Waiter>> {
        if let Some(sleep) = &mut self.tables.counter_sleep {
            if sleep.sleepers == 0 {
                sleep.waiter.clear();
            }
            sleep.sleepers += 1;
            return Ok(Arc::clone(&sleep.waiter));
        }
        let waiter = Arc::new(Waiter::new().map_err(|_| Errno::NO_MEMORY)?);
        let all = self.endpoints.keys_where(|_| true);
        for endpoint in all.iter().filter_map(|key| self.endpoints.get(*key)) {
            if let Some(descriptor) = endpoint.event_descriptor() {
                waiter.watch(descriptor).map_err(|_| Errno::NO_MEMORY)?;
            }
        }
        let sleep = CounterSleep { waiter: Arc::clone(&waiter), sleepers: 1 };
        self.tables.counter_sleep = Some(sleep);
        Ok(waiter)
    }

    /// A thread has slept.
    pub(crate) fn end_counter_sleep(&mut self) {
        let Some(sleep) = &mut self.tables.counter_sleep else { return };
        sleep.sleepers -= 1;
        if sleep.sleepers == 0 {
            for key in self.endpoints.keys_where(|endpoint| endpoint.bound().is_armed) {
                self.disarm_endpoint(key);
            }
        }
    }
}
