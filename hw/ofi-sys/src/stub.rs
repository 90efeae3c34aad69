//! Functions that a provider doesn't have. Each answers `-FI_ENOSYS`: libfabric's inline functions
//! call through a table without asking whether the function is there.

use std::ffi::c_int;

use crate::calls::{Answer, Errno};
use crate::head::{fi_ops, fid};

/// A function that answers `-FI_ENOSYS`, of any type that a table has.
pub trait Stub {
    /// The function.
    const STUB: Self;
}

macro_rules! stubs {
    ($abi:literal: $(($($argument:ident)*))*) => {
        $(
            impl<$($argument,)* R: Answer> Stub for Option<unsafe extern $abi fn($($argument),*) -> R> {
                const STUB: Self = {
                    unsafe extern $abi fn stub<$($argument,)* R: Answer>($(_: $argument),*) -> R {
                        R::of(Err(Errno::NO_SYSTEM_CALL))
                    }
                    Some(stub::<$($argument,)* R>)
                };
            }
        )*
    };
}

stubs! {
    "C":
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
    (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
    (A B C D E F G H I J K L M) (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O)
    (A B C D E F G H I J K L M N O P)
}
// Functions that sleep.
stubs! { "C-unwind": (A B C) (A B C D E) (A B C D E F) }

/// The functions that all objects have, for an object that has `close` alone.
pub const fn closable(close: unsafe extern "C" fn(*mut fid) -> c_int) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind: Stub::STUB,
        control: Stub::STUB,
        ops_open: Stub::STUB,
        tostr: Stub::STUB,
        ops_set: Stub::STUB,
    }
}
