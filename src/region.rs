//! Memory that a worker exposes to one-sided operations of its peers.

use std::fmt;
use std::time::Duration;

use tagmatch_device::{Buffer, RegionPlace};
use tagmatch_fallback::{EngineNotice, NamedRegion, RegionKey, RegionUse, Rights};

use crate::access::{Access, State};
use crate::awaited::Awaited;
use crate::envelope::Peer;
use crate::error::{Error, Failed};
use crate::wait::wait_within;
use crate::worker::WorkerOf;

/// How long the owner of a region waits until it looks again whether a peer that was stopped in the
/// middle of a write has ended it.
const STOPPED_WRITER_PAUSE: Duration = Duration::from_millis(1);

/// Names a region, for peers that are to use it ([`WorkerOf::attach`]): 64 bytes of plain data,
/// sent in any way. Who has the token of a worker and is connected to it may use the region; the
/// key in it can't be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    pub(crate) key: RegionKey,
    /// Where the peers that can access the region by themselves find it.
    pub(crate) place: RegionPlace,
    length: u64,
    rights: Rights,
}

impl Token {
    /// Bytes of a token.
    pub const BYTES: usize = 64;
    const VERSION: u8 = 1;

    /// A token of a region of which nothing is known here but its key, and whether its owner counts
    /// what peers do.
    pub(crate) fn of_key(key: u64, is_counted: bool) -> Self {
        let place = if is_counted { RegionPlace::default() } else { RegionPlace::BY_KEY };
        Token { key: RegionKey(key), place, length: u64::MAX, rights: Rights::ALL }
    }

    /// The token as bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = Self::VERSION;
        bytes[1] = self.rights.bits();
        bytes[8..16].copy_from_slice(&self.key.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.place.record.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.place.address.to_be_bytes());
        bytes
    }

    /// A token of these bytes.
    ///
    /// # Errors
    /// [`Error::BadToken`]: they are of another version of this crate, or of something else.
    /// Whether the region exists is known to its owner alone: a wrong key fails each operation.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, Error> {
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| bytes[at + index]));
        let key = RegionKey(number(8));
        let length = number(16);
        let place = RegionPlace { record: number(24), address: number(32) };
        let rights = Rights::from_bits(bytes[1]);
        let token = rights.map(|rights| Token { key, place, length, rights });
        token.filter(|token| token.to_bytes() == *bytes).ok_or(Error::BadToken)
    }

    /// Bytes of the region, as the token says.
    pub fn region_len(&self) -> u64 {
        self.length
    }

    /// What peers may do to the region, as the token says.
    pub fn rights(&self) -> Rights {
        self.rights
    }
}

impl fmt::Debug for Token {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("length", &self.length).field("rights", &self.rights).finish()
    }
}

/// Memory of this worker that peers read, write and change without a receive here, as far as its
/// rights go. Made by [`WorkerOf::expose_region`].
///
/// Dropping it closes the region, and frees the memory; [`close`](Self::close) gives the memory
/// back. From then on no peer reaches it.
///
/// The memory is looked at and changed by [`read`](Self::read) and [`write`](Self::write)
/// meanwhile: peers change it at any time at which the worker makes progress, and over shared
/// memory at any time ([`Remote`](crate::Remote) has the ways).
pub struct Region<A: Access> {
    access: A,
    token: Token,
    memory: RegionMemory,
}

/// Whose the memory of a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegionMemory {
    OfWorker,
    /// The caller keeps it until the region is closed ([`raw::expose`](crate::raw::expose)).
    OfCaller,
    /// The region is closed.
    Closed,
}

impl<A: Access> Region<A> {
    /// A region that was exposed under a name.
    pub(crate) fn named(access: &A, region: NamedRegion, length: usize) -> Self {
        let NamedRegion { key, rights, is_counted, .. } = region;
        let length = length as u64;
        let token = Token { length, rights, ..Token::of_key(key.0, is_counted) };
        Region { access: access.clone(), token, memory: RegionMemory::OfCaller }
    }

    /// Closes the region, and drops its memory if that isn't the caller's. `false`: a peer may
    /// still write into the caller's memory.
    pub(crate) fn try_close(&mut self) -> bool {
        if self.memory != RegionMemory::OfCaller {
            drop(self.take());
            return true;
        }
        let key = self.token.key;
        let mut is_closed = true;
        self.access.with_unless_forked(|state| {
            is_closed = state.engine.as_dyn_mut().close_named(key);
        });
        if is_closed {
            self.memory = RegionMemory::Closed;
        }
        is_closed
    }

    /// Names the region for peers.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Bytes of the region.
    #[allow(clippy::len_without_is_empty, reason = "an empty region is of no use")]
    pub fn len(&self) -> usize {
        usize::try_from(self.token.length).unwrap_or(usize::MAX)
    }

    /// Copies bytes of the region, from `at` on. Makes no progress. Bytes of operations that have
    /// ended are there; of those that are under way, any part may be.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`]
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), Error> {
        let length = out.len();
        self.with(at, length, |memory| memory.copy_out(at, out))
    }

    /// Writes bytes into the region, from `at` on. Makes no progress. It is one step for the atomic
    /// operations and puts of peers that come by messages.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`], also if the region's memory can't be written.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let length = bytes.len();
        self.with(at, length, |memory| {
            let end = at.checked_add(length)?;
            memory.as_mut_slice()?.get_mut(at..end)?.copy_from_slice(bytes);
            Some(())
        })
    }

    fn with(
        &self,
        at: usize,
        length: usize,
        act: impl FnOnce(&mut Buffer) -> Option<()>,
    ) -> Result<(), Error> {
        let done = self.access.with(|state| {
            let memory = state.engine.as_dyn_mut().region_memory(self.token.key);
            memory.and_then(act)
        });
        done.ok_or(Error::OutOfRegion { at, length, region: self.len() })
    }

    /// What peers have done on this region.
    #[doc(hidden)]
    pub fn done(&self) -> RegionUse {
        self.access.with(|state| state.engine.as_dyn().region_use(Some(self.token.key)))
    }

    /// Closes the region and gives its memory back. Operations of peers that are under way fail
    /// there ([`RemoteFault`](crate::RemoteFault)); a put may have written a part of its bytes.
    ///
    /// Over shared memory, peers that are in the middle of a put are waited for, mostly for some
    /// microseconds. If one is stopped there, then after a tenth of a second this gives a copy of
    /// the memory, and the memory itself is never used again.
    pub fn close(mut self) -> Buffer {
        self.take().unwrap_or_default()
    }

    fn take(&mut self) -> Option<Buffer> {
        if self.memory == RegionMemory::OfCaller {
            while !self.try_close() {
                std::thread::sleep(STOPPED_WRITER_PAUSE);
            }
        }
        if self.memory == RegionMemory::Closed {
            return None;
        }
        self.memory = RegionMemory::Closed;
        let key = self.token.key;
        let mut memory = None;
        self.access.with_unless_forked(|state| {
            memory = state.engine.as_dyn_mut().close_region(key);
        });
        memory
    }
}

impl<A: Access> Drop for Region<A> {
    fn drop(&mut self) {
        self.take();
    }
}

impl<A: Access> fmt::Debug for Region<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Region").field(&self.token).finish()
    }
}

/// A peer has put bytes into a region and tells of it: see
/// [`Remote::put_with`](crate::Remote::put_with).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutNotice {
    /// The peer.
    pub peer: Peer,
    /// The number that the peer gave with its put.
    pub value: u64,
    /// How many bytes the put had.
    pub length: u64,
}

/// One-sided operations: memory that peers use without a receive. [`Remote`](crate::Remote) has the
/// operations, their order, and what their ends mean.
impl<A: Access> WorkerOf<A> {
    /// Exposes memory to one-sided operations of all peers that have the region's token.
    ///
    /// **Progress.** Operations by messages are carried out when this worker makes progress; a
    /// [`ProgressThread`](crate::ProgressThread) makes it without calls. Over shared memory, peers
    /// do most puts and gets by themselves ([`Remote`](crate::Remote) has the ways).
    ///
    /// # Errors
    /// The rights are to write memory that can only be read, the buffer is one of several slices,
    /// or the device has no one-sided operations (UCX and libfabric). [`Failed`] has the memory.
    pub fn expose_region(
        &self,
        memory: impl Into<Buffer>,
        rights: Rights,
    ) -> Result<Region<A>, Failed> {
        let memory = memory.into();
        let length = memory.len() as u64;
        let exposed =
            self.access.with(|state| state.engine.as_dyn_mut().expose_region(memory, rights));
        match exposed {
            Ok(key) => {
                let place = self.access.with(|state| state.engine.as_dyn().region_place(key));
                let token = Token { key, place, length, rights };
                let memory = RegionMemory::OfWorker;
                Ok(Region { access: self.access.clone(), token, memory })
            }
            Err((buffer, fault)) => Err(Failed { error: self.error(fault), buffer }),
        }
    }

    /// The one-sided operations to `peer` that begin later take effect after all that have begun.
    /// It blocks nothing, and has no effect on messages.
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn fence(&self, peer: Peer) -> Result<(), Error> {
        let peer = self.own(peer)?;
        self.access.with(|state| state.engine.as_dyn_mut().fence(peer));
        Ok(())
    }

    /// Blocks until all one-sided operations to `peer` that were begun have ended, with success or
    /// not: their requests tell. Makes progress meanwhile. `false`: the time is over, or the worker
    /// was interrupted ([`Interrupter`](crate::Interrupter)).
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn flush_remote(&self, peer: Peer, timeout: Duration) -> Result<bool, Error> {
        let peer = self.own(peer)?;
        let look = |state: &mut State| {
            let events = state.progress();
            let is_over = state.engine.as_dyn().remote_under_way(peer) == 0;
            (events, is_over.then_some(()))
        };
        let limit = self.limit(timeout);
        Ok(wait_within(&self.access, Awaited::Nothing, &limit, look).is_some())
    }

    /// The oldest notice of a peer that was not taken, if there is one; makes progress if there
    /// isn't. The bytes of its put are in the region. Notices of peers that are down are kept, too:
    /// 65,536 of all peers together, and puts with further ones end when some are taken.
    pub fn take_notice(&self) -> Option<PutNotice> {
        self.access.with(|state| {
            let engine = state.engine.as_dyn_mut();
            let notice = engine.take_notice();
            let notice = notice.or_else(|| {
                state.progress();
                state.engine.as_dyn_mut().take_notice()
            })?;
            Some(self.put_notice(notice))
        })
    }

    fn put_notice(&self, notice: EngineNotice) -> PutNotice {
        let EngineNotice { peer, value, length } = notice;
        PutNotice { peer: self.peer(peer), value, length }
    }

    /// What peers have done on all regions so far.
    #[doc(hidden)]
    pub fn regions_done(&self) -> RegionUse {
        self.access.with(|state| state.engine.as_dyn().region_use(None))
    }

    /// As [`take_notice`](Self::take_notice), without progress.
    #[doc(hidden)]
    pub fn next_notice(&self) -> Option<PutNotice> {
        let notice = self.access.with(|state| state.engine.as_dyn_mut().take_notice())?;
        Some(self.put_notice(notice))
    }

    /// Blocks until a peer gives notice, and takes it. `None`: the time is over, or the worker was
    /// interrupted.
    pub fn notice_timeout(&self, timeout: Duration) -> Option<PutNotice> {
        let look = |state: &mut State| {
            let events = state.progress();
            (events, state.engine.as_dyn_mut().take_notice())
        };
        let notice = wait_within(&self.access, Awaited::Nothing, &self.limit(timeout), look)?;
        Some(self.put_notice(notice))
    }
}
