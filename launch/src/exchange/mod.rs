//! How the processes of a job give each other their bytes.
//!
//! A launcher's key-value store is one process, and each get is a message to it and one back. If
//! each of n processes got the values of all, there would be n² of them. So each machine has one
//! process that asks for all others of the machine: its *leader*.
//!
//! 1. Each process asks the launcher which processes are on its machine (PMI-1:
//!    `PMI_process_mapping`, PMIx: `PMIX_LOCAL_PEERS`). The leader is the one of the lowest rank.
//!    It makes memory that the others can open, the *board*, and puts where the board is. Barrier.
//! 2. The others open the board, and write their bytes to it. Barrier.
//! 3. Each leader puts the bytes of its machine, as one *bundle*. In PMI-1 a value ends at 1024
//!    bytes, so a bundle goes in pieces. Barrier.
//! 4. Each leader gets the bundles of all machines, and writes them to its board. Barrier.
//! 5. The others read the bundles from the board.
//!
//! docs/scale.md says how many messages that is.
//!
//! - **Only barriers wait**, and how long, the launcher decides. It knows best which processes have
//!   died, and a process that is stopped holds up the others until it goes on or is killed. Every
//!   process passes all barriers, whatever it finds between them, so that no other process waits
//!   in vain. PMIx is the exception: after a death its servers let some processes wait for ever, so
//!   a process that waits in a fence looks by itself which processes of its machine have ended.
//!   Nothing is left behind: a board is memory without a name, which goes with the last
//!   process that has it open.
//! - **A process that can't open the board is its own leader**: it runs in another container, or
//!   the kernel has no memory for a board, or the leader has died. Then the exchange costs more
//!   messages, and brings the same. So it is, too, where the launcher doesn't say which processes
//!   are on a machine.
//! - **Nobody needs to know the leaders.** The process of the lowest rank that no bundle so far has
//!   brought is a leader: its leader has a lower rank otherwise, and the bundle of that one would
//!   have brought it.
//! - **A bundle is checked**: it begins with the bytes of the process that has put it, goes on in
//!   the order of ranks, and brings no process twice. A process can give nonsense as its own bytes,
//!   and a leader in the names of its machine's processes. They could before: any process of a job
//!   can put values in the name of any other one (PMI-1).
//! - **If a leader dies**, the processes of its machine get the bundles from the launcher
//!   themselves. If the leader had put none, all processes of the job are told that it has died.
//!
//! Why are there no connections between the leaders, as a tree? A launcher of many machines
//! (MPICH's hydra, Slurm, PMIx) has a process on each, and these hand the values on at a barrier,
//! so a leader's gets don't leave its machine. The helpers of `tagperf run` do the same.

mod board;
pub(crate) mod bundle;
mod mapping;
mod pieces;
mod store;
#[cfg(test)]
mod tests;

use crate::error::{BYTES_MAX, Error};
pub(crate) use board::MemoryBoard;
use board::{Board, read_record, write_record};
use store::Reach;
pub(crate) use store::ValueStore;

/// Exchanges bytes with all processes of the job. `number`: how many exchanges this process has had
/// before.
///
/// # Errors
/// A process gave no bytes, or the connection to the launcher has ended.
pub(crate) fn exchange(
    store: &mut impl ValueStore,
    number: u32,
    own: &[u8],
) -> Result<Vec<Vec<u8>>, Error> {
    let mut part = Part::<MemoryBoard>::begin(store, number, own);
    store.barrier(Reach::Machine, false)?;
    part.contribute(store);
    store.barrier(Reach::Machine, false)?;
    part.bundle(store);
    store.barrier(Reach::Job, false)?;
    part.collect(store);
    store.barrier(Reach::Machine, true)?;
    part.end(store)
}

/// A process's part in an exchange: what it does between the barriers.
struct Part<B> {
    number: u32,
    rank: u32,
    own: Vec<u8>,
    /// A leader's bundle.
    bundle: Vec<u8>,
    /// The ranks of the processes that write to one board, in ascending order. This process's is
    /// among them.
    neighbours: Vec<u32>,
    board: Option<B>,
    /// What a leader has collected.
    collected: Option<Collected>,
    /// The first reason why this process can't take part as it should.
    failure: Option<Error>,
}

impl<B: Board> Part<B> {
    /// Before the first barrier: a leader makes its board.
    fn begin(store: &mut impl ValueStore, number: u32, own: &[u8]) -> Self {
        let rank = store.rank();
        let mut part = Part {
            number,
            rank,
            own: own.to_vec(),
            bundle: Vec::new(),
            neighbours: store.neighbours().unwrap_or_default(),
            board: None,
            collected: None,
            failure: None,
        };
        if !part.neighbours.contains(&rank) {
            part.neighbours = vec![rank];
        }
        if part.is_leader() && part.neighbours.len() > 1 {
            part.board = B::make(number).ok().and_then(|(board, place)| {
                let put = store.put(&part.board_key(rank), &place, Reach::Machine);
                put.map_err(|error| part.fail(error)).ok().map(|()| board)
            });
        }
        part
    }

    /// After the first barrier: this process writes its bytes to its leader's board.
    fn contribute(&mut self, store: &mut impl ValueStore) {
        if self.is_leader() {
            return;
        }
        let at = self.neighbours.partition_point(|other| *other < self.rank);
        let place = store.get(self.neighbours[0], &self.board_key(self.neighbours[0]));
        let board = place.ok().flatten().and_then(|place| B::open(&place, self.number));
        self.board = board.filter(|board| write_record(board, at, &self.own).is_ok());
        if self.board.is_none() {
            self.neighbours = vec![self.rank];
        }
    }

    /// After the second barrier: a leader puts what its machine's processes have written.
    fn bundle(&mut self, store: &mut impl ValueStore) {
        if !self.is_leader() {
            return;
        }
        let of_board = |at| read_record(self.board.as_ref()?, at, BYTES_MAX);
        let others = self.neighbours.iter().enumerate().skip(1);
        let others = others.filter_map(|(at, rank)| Some((*rank, of_board(at)?)));
        let own = (self.rank, std::mem::take(&mut self.own));
        self.bundle = bundle::encode(std::iter::once(own).chain(others));
        if let Err(error) = pieces::put(store, self.number, &self.bundle) {
            self.fail(error);
        }
    }

    /// After the third barrier: a leader gets the bundles of all machines, and passes them on.
    fn collect(&mut self, store: &mut impl ValueStore) {
        if !self.is_leader() {
            return;
        }
        let mut collected = Collected::new(store.size());
        if let Err(error) = collected.complete(store, self.number, &self.bundle) {
            self.fail(error);
        }
        if let Some(board) = self.board.take() {
            // Without them, the others get the bundles from the launcher.
            let _ = write_record(&board, self.neighbours.len(), &collected.bundles);
        }
        self.collected = Some(collected);
    }

    /// After the last barrier: the bytes of all processes.
    fn end(self, store: &mut impl ValueStore) -> Result<Vec<Vec<u8>>, Error> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let mut collected = self.collected.unwrap_or_else(|| Collected::new(store.size()));
        if let Some(board) = &self.board {
            let max = bundle::bytes_max(store.size()).saturating_mul(2);
            let read = read_record(board, self.neighbours.len(), max).unwrap_or_default();
            collected.take(&read);
        }
        // What a leader has left out, or has garbled, comes from the launcher.
        collected.complete(store, self.number, &[])?;
        Ok(collected.all.into_iter().flatten().collect())
    }

    fn is_leader(&self) -> bool {
        self.neighbours[0] == self.rank
    }

    fn board_key(&self, leader: u32) -> String {
        format!("tagmatch-{}-{leader}-board", self.number)
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }
}

/// The bytes that have been collected so far.
struct Collected {
    /// The bytes of each process, by rank.
    all: Vec<Option<Vec<u8>>>,
    /// All processes of lower ranks have been collected.
    first_missing: usize,
    /// The bundles that were collected: of each its length (8 bytes), and the bundle.
    bundles: Vec<u8>,
}

impl Collected {
    fn new(size: u32) -> Self {
        Collected { all: vec![None; size as usize], first_missing: 0, bundles: Vec::new() }
    }

    /// The lowest rank that was not collected.
    fn missing(&mut self) -> Option<u32> {
        while self.all.get(self.first_missing).is_some_and(Option::is_some) {
            self.first_missing += 1;
        }
        u32::try_from(self.first_missing).ok().filter(|rank| (*rank as usize) < self.all.len())
    }

    /// Takes the bundle of the process with the lowest rank that was not collected. Returns whether
    /// the bundle was valid.
    fn add(&mut self, bundle: &[u8]) -> bool {
        let size = self.all.len();
        let Some(entries) = bundle::decode(bundle, size) else { return false };
        let first = entries.first().map(|(rank, _)| *rank);
        let is_new = entries.iter().all(|(rank, _)| self.all[*rank as usize].is_none());
        if !is_new || first.is_none() || first != self.missing() {
            return false;
        }
        for (rank, bytes) in entries {
            self.all[rank as usize] = Some(bytes);
        }
        self.bundles.extend((bundle.len() as u64).to_le_bytes());
        self.bundles.extend(bundle);
        true
    }

    /// Takes bundles of a board, up to the first that isn't valid.
    fn take(&mut self, mut bundles: &[u8]) {
        while let Some((length, rest)) = bundles.split_first_chunk() {
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let Some((bundle, rest)) = rest.split_at_checked(length) else { return };
            if !self.add(bundle) {
                return;
            }
            bundles = rest;
        }
    }

    /// Gets from the launcher what is still missing. `own`: the bundle of this process, if it is a
    /// leader.
    fn complete(
        &mut self,
        store: &mut impl ValueStore,
        number: u32,
        own: &[u8],
    ) -> Result<(), Error> {
        while let Some(rank) = self.missing() {
            let is_own = rank == store.rank() && !own.is_empty();
            let got = if is_own { Some(own.to_vec()) } else { pieces::get(store, number, rank)? };
            let bundle = match got {
                Some(bundle) => bundle,
                None if store.is_dead(rank)? => return Err(Error::Dead { rank }),
                None => {
                    return Err(Error::Garbled {
                        rank,
                        what: "is missing; it has died, or has broken the protocol",
                    });
                }
            };
            if !self.add(&bundle) {
                return Err(Error::Garbled { rank, what: "is invalid" });
            }
        }
        Ok(())
    }
}
