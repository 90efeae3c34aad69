//! Statuses, and pointers that may hold a status.

use std::ffi::c_void;

use tagmatch_sys::constants;

constants! {
    STATUSES as i64, from "ucp/api/ucp.h":

    /// the result of a call or an operation: errors are negative. A packed enumeration in C.
    ucs_status_t: i8 {
        UCS_OK = 0,
        UCS_INPROGRESS = 1,
        UCS_ERR_NO_MESSAGE = -1,
        UCS_ERR_NO_MEMORY = -4,
        UCS_ERR_UNREACHABLE = -6,
        UCS_ERR_INVALID_ADDR = -7,
        UCS_ERR_MESSAGE_TRUNCATED = -9,
        UCS_ERR_CANCELED = -16,
        UCS_ERR_NOT_CONNECTED = -24,
        UCS_ERR_CONNECTION_RESET = -25,
        UCS_ERR_ENDPOINT_TIMEOUT = -80,
        UCS_ERR_LAST = -100,
    }
}

/// The result of starting an operation: null if the operation is complete, a status in the form of
/// a pointer if it failed, or else a request.
pub type ucs_status_ptr_t = *mut c_void;

/// The meaning of a [`ucs_status_ptr_t`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The operation is complete.
    Complete,
    /// The operation is under way. The request must be freed when it is complete.
    Request(*mut c_void),
    /// The operation wasn't started.
    Failed(ucs_status_t),
}

impl Started {
    /// Does the tests of the header's `UCS_PTR_IS_ERR` and `UCS_PTR_IS_PTR`.
    #[inline]
    pub fn of(pointer: ucs_status_ptr_t) -> Self {
        let value = pointer.addr();
        if value == 0 {
            return Started::Complete;
        }
        if value < isize::from(UCS_ERR_LAST).cast_unsigned() {
            return Started::Request(pointer);
        }
        // The test above leaves -100 to -1, which fit.
        Started::Failed(ucs_status_t::try_from(value.cast_signed()).unwrap_or(UCS_ERR_LAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_and_statuses_are_told_apart() {
        let pointer = |value: isize| std::ptr::without_provenance_mut(value.cast_unsigned());
        assert_eq!(Started::of(pointer(0)), Started::Complete);
        assert_eq!(Started::of(pointer(-1)), Started::Failed(UCS_ERR_NO_MESSAGE));
        assert_eq!(Started::of(pointer(-16)), Started::Failed(UCS_ERR_CANCELED));
        assert_eq!(Started::of(pointer(-100)), Started::Failed(UCS_ERR_LAST));
        assert_eq!(Started::of(pointer(-101)), Started::Request(pointer(-101)));
        assert_eq!(Started::of(pointer(8)), Started::Request(pointer(8)));
    }
}
