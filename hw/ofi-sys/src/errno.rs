//! Errors: `fi_errno(3)`. Functions return them negated.

use std::ffi::c_int;

use tagmatch_sys::constants;

constants! {
    ERRORS as i64, from "rdma/fi_errno.h":

    /// errors. A name of our own.
    fi_errno: c_int {
        FI_ENOENT = libc::ENOENT,
        FI_EIO = libc::EIO,
        FI_EBADF = libc::EBADF,
        FI_EAGAIN = libc::EAGAIN,
        FI_ENOMEM = libc::ENOMEM,
        FI_EACCES = libc::EACCES,
        FI_EBUSY = libc::EBUSY,
        FI_EINVAL = libc::EINVAL,
        FI_ENOSYS = libc::ENOSYS,
        FI_ENOMSG = libc::ENOMSG,
        FI_ENODATA = libc::ENODATA,
        FI_EMSGSIZE = libc::EMSGSIZE,
        FI_ENOPROTOOPT = libc::ENOPROTOOPT,
        FI_EOPNOTSUPP = libc::EOPNOTSUPP,
        FI_ECONNABORTED = libc::ECONNABORTED,
        FI_ECONNRESET = libc::ECONNRESET,
        FI_ENOTCONN = libc::ENOTCONN,
        FI_ETIMEDOUT = libc::ETIMEDOUT,
        FI_EHOSTUNREACH = libc::EHOSTUNREACH,
        FI_ECANCELED = libc::ECANCELED,
        FI_EOTHER = 256,
        FI_ETOOSMALL = 257,
        FI_EOPBADSTATE = 258,
        FI_EAVAIL = 259,
        FI_EBADFLAGS = 260,
        FI_EDOMAIN = 262,
        FI_ENOCQ = 263,
        FI_ETRUNC = 265,
        FI_ENOKEY = 266,
        FI_ENOAV = 267,
    }
}
