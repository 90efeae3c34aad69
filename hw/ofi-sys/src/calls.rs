//! What the functions of a provider have in common: errors, answers to C, and the heads of objects.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cancel::Uncancelled;
use crate::head::{fi_ops, fid};

/// A positive error number of `rdma/fi_errno.h`. Calls return its negative value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The result of a call.
pub type Result<T> = std::result::Result<T, Errno>;

macro_rules! numbers {
    ($($name:ident = $value:ident,)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($value), "`.")]
                /// See fi_errno(3).
                pub const $name: Errno = Errno(crate::errno::$value);
            )*
        }
    };
}

numbers! {
    AGAIN = FI_EAGAIN,
    AVAIL = FI_EAVAIL,
    BAD_FLAGS = FI_EBADFLAGS,
    BAD_STATE = FI_EOPBADSTATE,
    BUSY = FI_EBUSY,
    CANCELED = FI_ECANCELED,
    CLOSED = FI_EBADF,
    CONNECTION_ABORTED = FI_ECONNABORTED,
    CONNECTION_RESET = FI_ECONNRESET,
    HOST_UNREACHABLE = FI_EHOSTUNREACH,
    INVALID = FI_EINVAL,
    IO = FI_EIO,
    DOMAIN = FI_EDOMAIN,
    NO_AV = FI_ENOAV,
    NO_CQ = FI_ENOCQ,
    NO_DATA = FI_ENODATA,
    NO_ACCESS = FI_EACCES,
    NO_ENTRY = FI_ENOENT,
    NO_KEY = FI_ENOKEY,
    NO_MEMORY = FI_ENOMEM,
    NO_MESSAGE = FI_ENOMSG,
    NO_PROTOCOL_OPTION = FI_ENOPROTOOPT,
    NO_SYSTEM_CALL = FI_ENOSYS,
    NOT_SUPPORTED = FI_EOPNOTSUPP,
    NOT_CONNECTED = FI_ENOTCONN,
    OTHER = FI_EOTHER,
    TIMED_OUT = FI_ETIMEDOUT,
    TOO_LONG = FI_EMSGSIZE,
    TOO_SMALL = FI_ETOOSMALL,
    TRUNCATED = FI_ETRUNC,
}

/// The type of a function's answer: a count, or a negative error number.
pub trait Answer: Sized {
    /// The answer for a result.
    fn of(result: Result<usize>) -> Self;
}

impl Answer for i32 {
    #[inline]
    fn of(result: Result<usize>) -> Self {
        result.map_or_else(|errno| -errno.0, |count| i32::try_from(count).unwrap_or(i32::MAX))
    }
}

impl Answer for isize {
    #[inline]
    fn of(result: Result<usize>) -> Self {
        result.map_or_else(|errno| -(errno.0 as isize), usize::cast_signed)
    }
}

/// Runs the body of a function. A panic is a defect of the provider; the caller gets an error
/// number, since unwinding into C is undefined. The thread can't be cancelled meanwhile.
pub fn count<A: Answer>(body: impl FnOnce() -> Result<usize>) -> A {
    let _uncancelled = Uncancelled::begin();
    count_at_once(body)
}

/// As [`count`], for a function that is called for each message. It doesn't sleep, and the two
/// calls of [`Uncancelled`] would cost it a tenth of its time. Where several threads call, the lock
/// of their domain makes these calls.
#[inline(always)]
pub fn count_at_once<A: Answer>(body: impl FnOnce() -> Result<usize>) -> A {
    A::of(caught(body))
}

/// As [`count_at_once`], for a function that has no error numbers.
pub fn number(body: impl FnOnce() -> Result<u64>) -> u64 {
    caught(body).unwrap_or(0)
}

/// As [`count`], for a function that gives 0.
#[inline]
pub fn enter<A: Answer>(body: impl FnOnce() -> Result<()>) -> A {
    count(|| body().map(|()| 0))
}

/// As [`count_at_once`], for a function that gives 0.
#[inline(always)]
pub fn enter_at_once<A: Answer>(body: impl FnOnce() -> Result<()>) -> A {
    count_at_once(|| body().map(|()| 0))
}

#[inline(always)]
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::OTHER))
}

/// The head of an object.
pub fn head(class: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass: class, context, ops: table(ops) }
}

/// A table as libfabric's structures refer to it. Nobody writes to tables.
pub fn table<T>(table: &'static T) -> *mut T {
    std::ptr::from_ref(table).cast_mut()
}

/// Copies a text with its terminating zero into a caller's memory of `length` bytes, as much as has
/// room.
///
/// # Safety
/// `to` points to `length` writable bytes.
pub unsafe fn copy_text(text: &[u8], to: *mut c_char, length: usize) {
    let Some(room) = length.checked_sub(1) else { return };
    let count = text.len().min(room);
    // SAFETY: `count` is less than `length`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), count);
        *to.add(count) = 0;
    }
}
