//! Messages that were received and wait: for a receive, or for the rest of their fragments.

pub(crate) mod arriving;
pub(crate) mod unexpected;
