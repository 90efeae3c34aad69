//! Small scopes, completely: every interleaving of a few receives, messages and cancels.
//!
//! The code under test is what ships: the engine, its shadow, and the model NIC, which is
//! [driven by the simulation](tagmatch_model::Nic::set_manual). What is chosen, in every order:
//!
//! - which receive is posted (exact, any source, any tag), which message is sent by whom, what is
//!   cancelled, and when;
//! - when the NIC takes up each operation, and whether an agreeing count wakes inactive entries;
//! - when each completion is shown: answers, matches with unexpected messages, and data, each in the
//!   order that the [contract](tagmatch_device::TagList) gives them. Software takes each when it is shown: one
//!   that lies there unseen is one that was not shown;
//! - in another scope, messages of one sender that come past the list.
//!
//! Delays are bounded by [`Scope::held_max`]: while that many completions are outstanding, nothing new is
//! begun. Without that bound a completion may come after everything else. No step does nothing, and a program
//! ends, so every path does; the length of the longest is reported.
//!
//! # The search
//! Depth first, each state visited once, from copies of engine and NIC. States are the same if a digest of
//! all that later behaviour depends on is; [`Scope::is_thorough`] checks that: what can follow the same
//! digest must be the same. Senders and tags that were not named yet are alike, and only the first is
//! tried. Orders that come to the same are left out.
//!
//! # What is checked
//! In each state: no fault of the NIC, no event that the shadow calls impossible, and receives ended only
//! as MPI allows ([`spec`]). Whenever nothing moves any more: nothing lost, no pair that
//! matches is left, no slot is lost, and the NIC holds what it has room for.

mod fold;
mod scope;
mod search;
mod spec;
mod wire;
mod world;

use std::panic::resume_unwind;
use std::sync::PoisonError;
use std::thread;

pub use scope::{Explored, Failure, Scope};
use search::{Search, Shared};

impl Scope {
    /// Visits every state, with so many threads.
    ///
    /// # Errors
    /// The first rule that is broken, and how.
    pub fn explore(&self, threads: usize) -> Result<Explored, Box<Failure>> {
        let shared = Shared::new();
        let found: Vec<_> = thread::scope(|scope| {
            let shared = &shared;
            let search = |turn| scope.spawn(move || Search::run(*self, turn, shared));
            let threads: Vec<_> = (0..threads.max(1)).map(search).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let mut explored = Explored::default();
        for found in found {
            explored.add(&found?);
        }
        let ends = shared.ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        explored.ends = ends.len() as u64;
        Ok(explored)
    }
}
