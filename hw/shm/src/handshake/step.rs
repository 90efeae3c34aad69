//! A step of a handshake.

use std::time::Instant;

use super::local::LocalEnd;
use crate::connections::Connections;

/// A step of a handshake: the parts of a worker that it uses, and its time.
pub(crate) struct HandshakeStep<'a> {
    pub(crate) local: &'a LocalEnd,
    pub(crate) connections: &'a mut Connections,
    pub(crate) now: Instant,
}
