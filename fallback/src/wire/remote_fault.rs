//! Why the owner of a region refused a one-sided operation.

/// Why the owner of a region refused a one-sided operation. Only the initiator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum RemoteFault {
    /// There is no region with the token's key: it was closed, or the token is of another worker.
    #[error("it has no region with this key: the region was closed, or the token is wrong")]
    NoRegion = 1,
    /// The region doesn't grant the right to do this.
    #[error("the region doesn't grant the right to do this")]
    NoRight = 2,
    /// Not all bytes lie in the region.
    #[error("not all of the bytes lie in the region")]
    OutOfBounds = 3,
    /// The region was closed while the operation was under way.
    #[error("the region was closed while the operation was under way")]
    Closed = 4,
}

impl RemoteFault {
    /// The reason in a message; 0 is none.
    pub(crate) fn from_byte(byte: u8) -> Result<Option<Self>, u8> {
        Ok(Some(match byte {
            0 => return Ok(None),
            1 => RemoteFault::NoRegion,
            2 => RemoteFault::NoRight,
            3 => RemoteFault::OutOfBounds,
            4 => RemoteFault::Closed,
            other => return Err(other),
        }))
    }
}
