//! The atomics of memory that two workers share: those of the standard library, or those of a model
//! checker in this crate's tests with `--cfg loom`. The model checker goes through all
//! interleavings of the threads, and all values that the memory model lets a load return. It checks
//! the code that ships.

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
    pub(crate) use loom::sync::atomic::fence;

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
    pub(crate) fn light_fence() {
        if HAS_BARRIERS.get() {
            fence(SeqCst);
        }
    }

    /// An atomic with `SeqCst` accesses. loom orders a `SeqCst` access as `AcqRel`, and only fences
    /// more strongly. So a store or an exchange is followed by a full fence here, which is what an
    /// x86-64 processor does. loom also doesn't know that no store can come between the load and
    /// the store of an exchange. So stores to the words of 32 bits, which one side stores and the
    /// other exchanges, are exchanges here.
    macro_rules! atomic {
        ($name:ident, $of:ty) => {
            #[derive(Default)]
            pub(crate) struct $name(atomic::$name);

            impl $name {
                pub(crate) fn new(value: $of) -> Self {
                    $name(atomic::$name::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $of {
                    self.0.load(if order == SeqCst { Acquire } else { order })
                }

                pub(crate) fn store(&self, value: $of, order: Ordering) {
                    let weaker = if order == SeqCst { Release } else { order };
                    if <$of>::BITS == 32 {
                        self.0.swap(value, weaker);
                    } else {
                        self.0.store(value, weaker);
                    }
                    after(order);
                }

                pub(crate) fn swap(&self, value: $of, order: Ordering) -> $of {
                    let before = self.0.swap(value, if order == SeqCst { AcqRel } else { order });
                    after(order);
                    before
                }

                #[allow(dead_code, reason = "not of both sizes")]
                pub(crate) fn compare_exchange(
                    &self,
                    before: $of,
                    after: $of,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$of, $of> {
                    self.0.compare_exchange(before, after, success, failure)
                }

                #[allow(dead_code, reason = "not of both sizes")]
                pub(crate) fn fetch_or(&self, value: $of, order: Ordering) -> $of {
                    let before =
                        self.0.fetch_or(value, if order == SeqCst { AcqRel } else { order });
                    after(order);
                    before
                }
            }
        };
    }

    fn after(order: Ordering) {
        if order == SeqCst {
            fence(SeqCst);
        }
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
