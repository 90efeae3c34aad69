//! The way of a message between two endpoints of the provider, for a client without libfabric above
//! it: what `benches/peers/ofi.c` does, through the same tables of functions.

#[path = "../../../provider/tests/client/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::cast_possible_truncation,
    reason = "the client of the provider's tests, of which this is a part"
)]
mod client;

use libc as _;
use tagmatch_fi as _;
use tagmatch_ofi_sys as sys;

use client::{Call, Hints, Memory, World, at};

const TAG: u64 = 7;
/// Entries that the client reads at once.
const ENTRIES: usize = 16;

/// Two endpoints in domains of their own.
pub(crate) struct ProviderPair {
    world: World,
    memory: Memory,
    entries: [sys::fi_cq_tagged_entry; ENTRIES],
}

impl ProviderPair {
    pub(crate) fn new() -> Self {
        let caps = sys::FI_TAGGED | sys::FI_DIRECTED_RECV;
        let hints = Hints { caps, threading: sys::FI_THREAD_DOMAIN, ..Hints::default() };
        let world = World::of(2, &hints, sys::FI_TRANSMIT | sys::FI_RECV);
        let memory = Memory::new(8);
        let entries = [sys::fi_cq_tagged_entry::zeroed(); ENTRIES];
        let pair = ProviderPair { world, memory, entries };
        // The endpoints are connected before anything is counted.
        pair.post(1);
        pair.inject();
        pair.world.success(1, 0);
        pair
    }

    /// Posts receives, whose contexts count from 0.
    fn post(&self, count: usize) {
        let from: Call<'_> = at(self.world.address(0), TAG);
        for context in 0..count {
            let posted = self.world.endpoint(1).trecv_from(self.memory, from, context);
            posted.expect("a receive is posted");
        }
    }

    fn inject(&self) {
        let sent = self.world.endpoint(0).tinject(&[0; 8], self.world.address(1), TAG);
        sent.expect("a short message leaves at once");
    }

    /// A window of posted receives and of injected messages, whose entries are read.
    pub(crate) fn window(&mut self, window: usize) -> usize {
        self.post(window);
        for _ in 0..window {
            self.inject();
        }
        let mut received = 0;
        while received < window {
            received += self.world.queue(1).read(&mut self.entries).unwrap_or(0);
        }
        self.world.queue(0).progress();
        window
    }
}
