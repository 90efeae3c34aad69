//! The limit on descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most descriptors that are asked for: programs that close all descriptors up to the limit
/// take their time for more.
const DESCRIPTORS_MAX: u64 = 1 << 16;

/// Raises the soft limit on descriptors as far as the hard limit allows: it is 1024 on most
/// machines. A rank on shared memory takes some 26 whatever the number of ranks, but one over TCP
/// takes one for each peer. The ranks of `tagperf run` inherit the limit. The crate itself leaves
/// it alone, since select(2) of a program ends at 1024.
pub(crate) fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(DESCRIPTORS_MAX, |maximum| maximum.min(DESCRIPTORS_MAX));
    if current.is_some_and(|current| current < wanted) {
        // If the system refuses, the limit stays as it is, and the error of the call that reaches
        // it names it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
