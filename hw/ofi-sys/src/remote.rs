//! Structures that tables of functions name, and that this crate only passes on.

use std::ffi::c_void;

/// Declares structures of the headers without their content, and lists their names.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])* pub type $name = c_void;)*
        /// The names of the structures whose content isn't declared.
        pub const OPAQUE: &[&str] = &[$(stringify!($name)),*];
    };
}

opaque! {
    /// From `rdma/fabric.h`: a NIC.
    fid_nic,
    /// From `rdma/fi_endpoint.h`: a passive endpoint.
    fid_pep,
    /// From `rdma/fi_endpoint.h`: a shared sending context.
    fid_stx,
    /// From `rdma/fi_domain.h`: a multicast group.
    fid_mc,
    /// From `rdma/fi_eq.h`: a wait set.
    fid_wait,
    /// From `rdma/fi_eq.h`: attributes of a wait set.
    fi_wait_attr,
    /// From `rdma/fi_eq.h`: a poll set.
    fid_poll,
    /// From `rdma/fi_eq.h`: attributes of a poll set.
    fi_poll_attr,
    /// From `rdma/fi_collective.h`: a set of addresses.
    fid_av_set,
    /// From `rdma/fi_collective.h`: attributes of a set of addresses.
    fi_av_set_attr,
    /// From `rdma/fi_collective.h`: what a collective operation can take.
    fi_collective_attr,
    /// From `rdma/fi_collective.h`: an operation of `fi_ops_collective.msg`.
    fi_msg_collective,
}
