//! Why a connection has failed: at the peer's end, on the way, or at this worker's own end.

use std::io;

use tagmatch_device::DownReason;
use tagmatch_rdma_core_sys as sys;

use super::calls::errno;

/// Statuses of work requests that say that this worker's own end has failed.
const OWN: [(sys::ibv_wc_status, &str); 8] = [
    (sys::IBV_WC_LOC_LEN_ERR, "a work request was too long (IBV_WC_LOC_LEN_ERR)"),
    (sys::IBV_WC_LOC_QP_OP_ERR, "the device could not do a work request (IBV_WC_LOC_QP_OP_ERR)"),
    (sys::IBV_WC_LOC_PROT_ERR, "memory is not registered for an access (IBV_WC_LOC_PROT_ERR)"),
    (sys::IBV_WC_LOC_ACCESS_ERR, "memory is not registered for an access (IBV_WC_LOC_ACCESS_ERR)"),
    (
        sys::IBV_WC_WR_FLUSH_ERR,
        "its queue pair is in the error state, and the device has not said why \
         (IBV_WC_WR_FLUSH_ERR)",
    ),
    (sys::IBV_WC_MW_BIND_ERR, "the device could not do a work request (IBV_WC_MW_BIND_ERR)"),
    (sys::IBV_WC_FATAL_ERR, "the device has failed (IBV_WC_FATAL_ERR)"),
    (sys::IBV_WC_GENERAL_ERR, "the device has failed (IBV_WC_GENERAL_ERR)"),
];

/// The reason by the status of the first work request that failed. `silence_means`: why this end
/// hears no peer, if that is known.
pub(super) fn of_status(
    status: sys::ibv_wc_status,
    silence_means: Option<&'static str>,
) -> DownReason {
    if let Some(what) = silence_means
        && status == sys::IBV_WC_RETRY_EXC_ERR
    {
        return of_own_end(what);
    }
    if let Some((_, what)) = OWN.iter().find(|(own, _)| *own == status) {
        return of_own_end(what);
    }
    let errno = match status {
        sys::IBV_WC_RETRY_EXC_ERR => libc::ETIMEDOUT,
        sys::IBV_WC_RNR_RETRY_EXC_ERR => libc::ENOBUFS,
        sys::IBV_WC_REM_ACCESS_ERR => libc::EFAULT,
        _ => libc::EIO,
    };
    DownReason::Unreachable { errno }
}

/// This worker's own end has failed.
pub(super) fn of_own_end(what: &'static str) -> DownReason {
    DownReason::Failed { what, errno: 0 }
}

/// A call of this worker has failed on a connection that was up.
pub(super) fn of_call(call: &'static str, error: &io::Error) -> DownReason {
    DownReason::Failed { what: call, errno: errno(error) }
}

/// A call of this worker that makes a connection has failed. On RoCE, some of these calls ask the
/// network where the peer is.
pub(super) fn of_connecting_call(call: &'static str, error: &io::Error) -> DownReason {
    match errno(error) {
        errno @ (libc::ETIMEDOUT
        | libc::EHOSTUNREACH
        | libc::ENETUNREACH
        | libc::ENETDOWN
        | libc::EHOSTDOWN) => DownReason::Unreachable { errno },
        errno => match DownReason::of_failed_call(errno) {
            DownReason::Unreachable { errno } => DownReason::Failed { what: call, errno },
            shortage => shortage,
        },
    }
}

/// Why the device makes no connection any more.
#[derive(Default)]
pub(super) struct Impairment {
    /// What has failed for good.
    pub(super) failure: Option<&'static str>,
    /// What the worker's address says wrong of its port.
    pub(super) stale: Option<&'static str>,
    /// The device reports no completion any more.
    pub(super) is_mute: bool,
}

impl Impairment {
    pub(super) fn what(&self) -> Option<&'static str> {
        self.failure.or(self.stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_this_end_is_told_from_one_of_the_peer_or_of_the_way() {
        for status in sys::IBV_WC_LOC_LEN_ERR..=sys::IBV_WC_GENERAL_ERR {
            let is_own = matches!(
                status,
                sys::IBV_WC_LOC_LEN_ERR
                    | sys::IBV_WC_LOC_QP_OP_ERR
                    | sys::IBV_WC_LOC_PROT_ERR
                    | sys::IBV_WC_WR_FLUSH_ERR
                    | sys::IBV_WC_MW_BIND_ERR
                    | sys::IBV_WC_LOC_ACCESS_ERR
                    | sys::IBV_WC_FATAL_ERR
                    | sys::IBV_WC_GENERAL_ERR
            );
            let reason = of_status(status, None);
            let is_said = matches!(reason, DownReason::Failed { errno: 0, .. });
            assert_eq!(is_said, is_own, "{status}: {reason:?}");
        }
        let timeout = DownReason::Unreachable { errno: libc::ETIMEDOUT };
        assert_eq!(of_status(sys::IBV_WC_RETRY_EXC_ERR, None), timeout);
    }

    #[test]
    fn a_call_that_fails_is_named() {
        let error = io::Error::from_raw_os_error;
        let what = "ibv_modify_qp";
        let invalid = DownReason::Failed { what, errno: libc::EINVAL };
        assert_eq!(of_call(what, &error(libc::EINVAL)), invalid);
        assert_eq!(of_connecting_call(what, &error(libc::EINVAL)), invalid);
        let away = of_connecting_call(what, &error(libc::EHOSTUNREACH));
        assert_eq!(away, DownReason::Unreachable { errno: libc::EHOSTUNREACH });
        let lacks = of_connecting_call(what, &error(libc::ENOMEM));
        assert!(matches!(lacks, DownReason::Shortage(_)), "{lacks:?}");
    }
}
