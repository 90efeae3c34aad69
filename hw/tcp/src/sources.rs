//! Where the bytes of a stream come from: memory that a peer may read, or a buffer that this worker
//! puts into a region of the peer.

use tagmatch_device::{Buffer, Exposures, PeerId, Readable, RemoteSpan};

use super::frame::RegionBytes;
use super::regions::PublishedRegions;

/// The bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamSource {
    /// A read of a buffer that was exposed to the peer.
    Exposed(RemoteSpan),
    /// A get from a region of this worker.
    Region(RegionBytes),
    /// A put of this worker, to these bytes of a region of the peer.
    Put(RegionBytes),
}

impl StreamSource {
    /// The number of bytes.
    pub(crate) fn length(self) -> u64 {
        match self {
            StreamSource::Exposed(span) => span.length,
            StreamSource::Region(bytes) | StreamSource::Put(bytes) => bytes.length,
        }
    }

    /// Whether it is a put of this worker.
    pub(crate) fn is_put(self) -> bool {
        matches!(self, StreamSource::Put(_))
    }
}

/// The memory of this worker that peers read.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    pub(crate) exposures: Exposures,
    pub(crate) regions: PublishedRegions,
}

impl SharedMemory {
    /// The memory for streams to one peer, beside the buffer that is being put.
    pub(crate) fn for_peer<'a>(&'a self, peer: PeerId, put: Option<&'a Buffer>) -> Sources<'a> {
        Sources { readable: self.exposures.readable_by(peer), regions: &self.regions, put }
    }
}

/// The memory for the streams to one peer.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    readable: Readable<'a>,
    regions: &'a PublishedRegions,
    put: Option<&'a Buffer>,
}

impl<'a> Sources<'a> {
    /// The bytes of a stream; `None` if the peer may not read all of them, or no longer.
    pub(crate) fn bytes(self, source: StreamSource) -> Option<&'a [u8]> {
        match source {
            StreamSource::Exposed(span) => self.readable.bytes(span),
            StreamSource::Region(bytes) => self.regions.bytes(bytes),
            StreamSource::Put(_) => self.put.map(|buffer| &buffer[..]),
        }
    }
}
