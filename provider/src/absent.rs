//! Operations that an endpoint doesn't have: collective ones, and remote memory access and atomic
//! operations where it wasn't opened for them.
//!
//! A program that asks for one although `fi_getinfo` offers none gets `-FI_ENOSYS`. Some MPI
//! libraries drop that answer and wait for ever, so the first such call of each operation is told
//! on standard error, with the setting of the library that does without the operation.

use std::sync::atomic::{AtomicBool, Ordering};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Answer, Errno, count};
use tagmatch_ofi_sys::stub::Stub;
use tagmatch_os::notice;

/// What people can set so that their MPI library does without these operations.
const REMEDY: &str = "The MPI library may wait for it for ever. MPICH does without it unless \
    MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL is read or write: leave that at auto. Intel MPI needs it for \
    one-sided operations of more than some 12,000 bytes. The provider has remote memory access \
    and atomic operations with TAGMATCH_FI_ONE_SIDED=on. See \
    docs/provider.md, What is not supported.";

/// An operation that there is not.
trait AbsentOperation {
    /// Says that a program has asked for it, at the first call.
    fn tell();
}

/// A function that tells of the operation `Op` and answers `-FI_ENOSYS`, of any type that a table
/// has.
trait Absent<Op> {
    /// The function.
    const ABSENT: Self;
}

macro_rules! absent {
    ($(($($argument:ident)*))*) => {
        $(
            impl<Op: AbsentOperation, $($argument,)* R: Answer> Absent<Op>
                for Option<unsafe extern "C" fn($($argument),*) -> R>
            {
                const ABSENT: Self = {
                    unsafe extern "C" fn absent<Op: AbsentOperation, $($argument,)* R: Answer>(
                        $(_: $argument),*
                    ) -> R {
                        count(|| {
                            Op::tell();
                            Err(Errno::NO_SYSTEM_CALL)
                        })
                    }
                    Some(absent::<Op, $($argument,)* R>)
                };
            }
        )*
    };
}

absent! {
    (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
    (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
    (A B C D E F G H I J K L M) (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O)
    (A B C D E F G H I J K L M N O P)
}

#[cold]
fn tell(name: &str) {
    notice::tell(&format!(
        "tagmatch: the program has called {name}, which this endpoint doesn't have. {REMEDY}"
    ));
}

/// The table of a kind of operations that there are none of. Each function stands before its name
/// in libfabric's interface; one without a name is a question, whose answer says enough.
macro_rules! none {
    ($(#[$meta:meta])* $table:ident: $type:ident {
        $($field:ident $name:literal,)* $(? $question:ident,)*
    }) => {
        $(#[$meta])*
        pub(crate) static $table: sys::$type = sys::$type {
            size: size_of::<sys::$type>(),
            $($field: {
                struct Named;
                impl AbsentOperation for Named {
                    fn tell() {
                        static IS_TOLD: AtomicBool = AtomicBool::new(false);
                        if !IS_TOLD.swap(true, Ordering::Relaxed) {
                            tell($name);
                        }
                    }
                }
                Absent::<Named>::ABSENT
            },)*
            $($question: Stub::STUB,)*
        };
    };
}

none! {
    /// Remote memory access: fi_rma(3).
    RMA: fi_ops_rma {
        read "fi_read", readv "fi_readv", readmsg "fi_readmsg", write "fi_write", writev "fi_writev",
        writemsg "fi_writemsg", inject "fi_inject_write", writedata "fi_writedata",
        injectdata "fi_inject_writedata",
    }
}
none! {
    /// Atomic operations: fi_atomic(3).
    ATOMIC: fi_ops_atomic {
        write "fi_atomic", writev "fi_atomicv", writemsg "fi_atomicmsg", inject "fi_inject_atomic",
        readwrite "fi_fetch_atomic", readwritev "fi_fetch_atomicv",
        readwritemsg "fi_fetch_atomicmsg", compwrite "fi_compare_atomic",
        compwritev "fi_compare_atomicv", compwritemsg "fi_compare_atomicmsg",
        ? writevalid, ? readwritevalid, ? compwritevalid,
    }
}
none! {
    /// Collective operations: fi_collective(3).
    COLLECTIVE: fi_ops_collective {
        barrier "fi_barrier", broadcast "fi_broadcast", alltoall "fi_alltoall",
        allreduce "fi_allreduce", allgather "fi_allgather",
        reduce_scatter "fi_reduce_scatter", reduce "fi_reduce", scatter "fi_scatter",
        gather "fi_gather", msg "fi_collective", barrier2 "fi_barrier2",
    }
}
