//! The atomics of memory that two workers share: those of the standard library, or those of a model
//! checker in this crate's tests with `--cfg loom`. The model checker goes through all
//! interleavings of the threads, and all values that the memory model lets a load return. It checks
//! the code that ships.
//!
//! # What orders what
//! A processor of AArch64 reorders whatever is not ordered. Here is what each order is for. If one
//! of them is left out, a program of the model checker fails, but for those behind the table.
//!
//! | stored | loaded | so that |
//! |---|---|---|
//! | the word of a slot: `Release`, after the bytes of the message | `Acquire`, before the bytes are read | the reader sees the whole message; the writer, whose lines the word gives back (`piggyback`), writes them after they were read |
//! | `consumed`: `Release`, after the lines were read | `Acquire`, before they are written again | the same, where no message goes back |
//! | `consumed`, then `space_wanted` loaded | `space_wanted`, then `consumed` loaded | one of both sides sees the other's store: a `SeqCst` fence in between, at both |
//! | the word of a slot, then `polled` loaded | `polled`, then the word loaded | the same: a `SeqCst` fence at both, or the reader's barrier on all its writers |
//! | the bit of a ring: `Release`, after the message | exchanged: `Acquire`, before the ring is looked at | a bit that was taken has a message that is seen |
//! | the bell's `summary`, then `sleeping` loaded | `sleeping`, then `summary` loaded | one of both sides sees the other's store: all four are `SeqCst` |
//! | `released` of a piece: `Release`, after its bytes | `Acquire`, before the message is delivered | the receiver sees the bytes that its sender has written |
//! | the word of a peer that writes a region, then the region's record read | the record erased, then the word loaded | one of both sides sees the other's store: a `SeqCst` fence at both, or the owner's barrier on all its peers (`region_words`) |
//! | the word of a peer that writes a region, then the seal loaded | the seal taken away at the end of a connection, then the word loaded | the same |
//! | the word of a peer that writes a region: `Release`, after its bytes | `Acquire`, before the region's memory is used for something else | the write is over |
//! | the key of a region's record: erased before a `SeqCst` fence and what is written to its bytes then | after an `Acquire` fence, behind the bytes of a get in mapped memory | bytes of a later use are noticed |
//! | the stamp of a segment's slot: `Release`, after the contents | `Acquire`, before they are read | the reader sees the contents |
//! | `finished` of a segment: `Release`, after the contents were read | `Acquire`, before they are written again; before a slot is looked at for the last time | contents stay until they were read; what a member has published is seen, if it has ended |
//! | the generation of a connection: before a `Release` fence and what is written to its buffers | after an `Acquire` fence, behind what was read | bytes of a later use are noticed |
//!
//! The model checker runs exchanges in the order of the program, and takes a light fence for a full
//! one. So two orders of the doorbell rest on this: the summary is taken with `Acquire`, so that
//! the words are taken after it; and a bit is set with `Release`, because a light fence doesn't
//! order it after the message. No program notices a weaker store of a `finished` that is restored
//! (`segment`), which needs the order of every other store there.
//!
//! Four orders no model has, since one side is the kernel:
//! - A nonce is erased before a `Release` fence and what is written to buffers then. The peer's
//!   kernel reads buffer and nonce in one call, part by part, in the order of the parts.
//!   Between two of them it gives back the pages of one by an atomic exchange that orders all
//!   before it and all after it.
//! - A sender writes a piece by a call of its kernel, on the processor on which the thread goes
//!   on: the `Release` that follows orders these bytes as those that the thread has stored
//!   itself.
//! - The record of a region is read as a nonce is, behind the bytes of a get. A peer that puts
//!   reads the record, and writes the bytes, by calls of its kernel on its own processor. Mapped
//!   records and bytes have the orders of the table.
//! - A process that has ended has stored everything before its end is seen. The thread that
//!   sees it says so by `has_ended`, with `Release` and `Acquire`, so its worker still finds
//!   the last messages.
//!
//! All this orders ordinary memory, for processors: `dmb ish`, and accesses that acquire or
//! release. Memory that a NIC writes needs other orders, for which its driver cares (`hw/verbs`).

/// Bytes in the body of a slot: those of a message that lie in its slot, if it has no immediate
/// data.
pub(crate) const INLINE_BYTES: usize = 56;

#[cfg(all(loom, test))]
pub(crate) use model::{AtomicU32, AtomicU64, Body, Wakes, fence, light_fence, set_barriers};
#[cfg(not(all(loom, test)))]
pub(crate) use real::{AtomicU32, AtomicU64, Body, fence, light_fence};

#[cfg(not(all(loom, test)))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};
    use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

    use super::INLINE_BYTES;

    /// This side's half of a fence. The peer puts a barrier on both sides (membarrier), so the
    /// processor may reorder here; the compiler must not.
    #[inline]
    pub(crate) fn light_fence() {
        compiler_fence(SeqCst);
    }

    /// The body of a slot.
    #[repr(transparent)]
    pub(crate) struct Body(pub(crate) [AtomicU64; INLINE_BYTES / 8]);

    impl Body {
        /// For writing the bytes. Only the writer of the ring calls this, while the slot is free.
        #[inline]
        pub(crate) fn writable(&self) -> *mut u8 {
            self.0.as_ptr().cast_mut().cast()
        }
    }
}

#[cfg(all(loom, test))]
mod model {
    use std::cell::Cell;
    use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Release, SeqCst};

    use loom::cell::UnsafeCell;
    use loom::sync::Notify;
    use loom::sync::atomic;
    use tagmatch_testkit::weakened::{self, AccessKind};

    use super::INLINE_BYTES;

    thread_local! {
        /// Whether the reader of a ring can put a barrier on its writer. All threads of a model run
        /// on one thread of the operating system.
        static HAS_BARRIERS: Cell<bool> = const { Cell::new(true) };
    }

    /// Sets whether readers can put barriers on writers, in the model that this thread runs from
    /// now on.
    pub(crate) fn set_barriers(has: bool) {
        HAS_BARRIERS.set(has);
    }

    /// With the other side's barrier, a light fence orders as a full fence does, which the model
    /// checker knows. Without that barrier a light fence orders nothing.
    #[track_caller]
    pub(crate) fn light_fence() {
        if HAS_BARRIERS.get() {
            fence(SeqCst);
        }
    }

    #[track_caller]
    pub(crate) fn fence(order: Ordering) {
        if let Some(order) = weakened::fence_order(order) {
            atomic::fence(order);
        }
    }

    loom::thread_local! {
        /// Whether this thread has stored with `SeqCst` since its last `SeqCst` load.
        static STORED: Cell<bool> = Cell::new(false);
    }

    fn note_store(order: Ordering) {
        if order == SeqCst {
            STORED.with(|stored| stored.set(true));
        }
    }

    /// An atomic with `SeqCst` accesses. loom orders a `SeqCst` access as `AcqRel`, and only fences
    /// more strongly. So a full fence comes before a `SeqCst` load that follows a `SeqCst` store or
    /// exchange of its thread. It comes no earlier: on AArch64 a `SeqCst` store may be overtaken by
    /// what follows, up to the next such load. loom also doesn't know that no store can come
    /// between the load and the store of an exchange. So stores to the words of 32 bits, which one
    /// side stores and the other exchanges, are exchanges here. Each order may be weakened, by
    /// `ci/orders`.
    macro_rules! atomic {
        ($name:ident, $of:ty) => {
            #[derive(Default)]
            pub(crate) struct $name(atomic::$name);

            impl $name {
                pub(crate) fn new(value: $of) -> Self {
                    $name(atomic::$name::new(value))
                }

                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $of {
                    let order = weakened::order(order, AccessKind::Load);
                    if order == SeqCst && STORED.with(|stored| stored.replace(false)) {
                        atomic::fence(SeqCst);
                    }
                    self.0.load(if order == SeqCst { Acquire } else { order })
                }

                #[track_caller]
                pub(crate) fn store(&self, value: $of, order: Ordering) {
                    let order = weakened::order(order, AccessKind::Store);
                    let weaker = if order == SeqCst { Release } else { order };
                    if <$of>::BITS == 32 {
                        self.0.swap(value, weaker);
                    } else {
                        self.0.store(value, weaker);
                    }
                    note_store(order);
                }

                #[track_caller]
                pub(crate) fn swap(&self, value: $of, order: Ordering) -> $of {
                    let order = weakened::order(order, AccessKind::Exchange);
                    note_store(order);
                    self.0.swap(value, if order == SeqCst { AcqRel } else { order })
                }

                #[allow(dead_code, reason = "not of both sizes")]
                #[track_caller]
                pub(crate) fn compare_exchange(
                    &self,
                    before: $of,
                    after: $of,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$of, $of> {
                    let success = weakened::order(success, AccessKind::Exchange);
                    self.0.compare_exchange(before, after, success, failure)
                }

                #[allow(dead_code, reason = "not of both sizes")]
                #[track_caller]
                pub(crate) fn fetch_or(&self, value: $of, order: Ordering) -> $of {
                    let order = weakened::order(order, AccessKind::Exchange);
                    note_store(order);
                    self.0.fetch_or(value, if order == SeqCst { AcqRel } else { order })
                }
            }
        };
    }

    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);

    /// The body of a slot. A read at the same time as a write is an error of the model.
    pub(crate) struct Body(UnsafeCell<[u8; INLINE_BYTES]>);

    impl Body {
        pub(crate) fn new() -> Self {
            Body(UnsafeCell::new([0; INLINE_BYTES]))
        }

        pub(crate) fn read(&self) -> [u8; INLINE_BYTES] {
            // SAFETY: loom runs one thread at a time, and panics if another may be writing.
            self.0.with(|bytes| unsafe { *bytes })
        }

        /// The caller's write counts as done here. No access of another thread comes between.
        pub(crate) fn writable(&self) -> *mut u8 {
            self.0.with_mut(|bytes| bytes.cast())
        }
    }

    /// Stands for the packet on a socket that wakes the owner of a doorbell.
    pub(crate) struct Wakes(Notify);

    impl Wakes {
        pub(crate) fn new() -> Self {
            Wakes(Notify::new())
        }

        pub(crate) fn send(&self) {
            self.0.notify();
        }

        /// Blocks until there is one. If none ever comes, the model ends in a deadlock: a lost
        /// wake-up.
        pub(crate) fn wait(&self) {
            self.0.wait();
        }
    }
}
