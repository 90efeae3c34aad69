//! The puts of a peer into regions of this worker: received straight into the regions' memory.

use tagmatch_device::Room;

use super::frame::RegionBytes;
use super::regions::PublishedRegions;
use super::send_half::SendHalf;

/// The puts of one peer, of which one arrives at a time.
#[derive(Default)]
pub(crate) struct PutsOfPeer {
    arriving: Option<IncomingPut>,
    /// Bytes of the current frame that are still to come.
    landing: usize,
    /// Bytes of a put may be among the next ones that are received: one arrives, or the last ones
    /// had a put.
    pub(crate) is_expected: bool,
}

/// A put of which not all bytes have come.
struct IncomingPut {
    bytes: RegionBytes,
    received: u64,
    /// Whether the peer may write there. If not, the bytes are dropped.
    is_allowed: bool,
}

impl PutsOfPeer {
    /// A put begins.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn begin(
        &mut self,
        bytes: RegionBytes,
        regions: &mut PublishedRegions,
    ) -> Result<(), &'static str> {
        if self.arriving.is_some() || bytes.length == 0 {
            return Err("a put that begins in another one, or has no bytes");
        }
        let is_allowed = regions.room(bytes).is_some();
        self.arriving = Some(IncomingPut { bytes, received: 0, is_allowed });
        self.is_expected = true;
        Ok(())
    }

    /// A frame begins with `length` bytes of the put.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn land(&mut self, length: usize) -> Result<(), &'static str> {
        let left = self.arriving.as_ref().map_or(0, |put| put.bytes.length - put.received);
        if length == 0 || length as u64 > left {
            return Err("bytes of no put, or none, or more than it has");
        }
        self.landing = length;
        Ok(())
    }

    /// Bytes of the current frame that are still to come.
    pub(crate) fn landing(&self) -> usize {
        self.landing
    }

    /// The place for the bytes that are still to come of the current frame. `None`: the peer may
    /// not write them, or the region was closed.
    pub(crate) fn room<'a>(&mut self, regions: &'a mut PublishedRegions) -> Option<Room<'a>> {
        let put = self.arriving.as_mut().filter(|put| put.is_allowed)?;
        let start = usize::try_from(put.received).ok()?;
        let room = regions.room(put.bytes).and_then(|room| room.part(start..start + self.landing));
        put.is_allowed = room.is_some();
        room
    }

    /// Notes that bytes of the current frame have come. `true`: they were the last ones, and the
    /// put is answered.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub(crate) fn advance(
        &mut self,
        count: usize,
        out: &mut SendHalf,
    ) -> Result<bool, &'static str> {
        self.landing -= count;
        let Some(put) = &mut self.arriving else { return Ok(false) };
        put.received += count as u64;
        if put.received < put.bytes.length {
            return Ok(false);
        }
        let is_done = put.is_allowed;
        self.arriving = None;
        out.answer_put(is_done)?;
        Ok(true)
    }

    /// Bytes are received: what comes next is expected anew.
    pub(crate) fn note_receive(&mut self) {
        self.is_expected = self.arriving.is_some();
    }
}
