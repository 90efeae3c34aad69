//! The program's ordinary buffers, from their posting to the polling of their completion.

use libc::ENOMEM;

use super::wire::Segment;

#[derive(Clone, Debug, Default)]
struct OrdinaryBuffer {
    wr_id: u64,
    segments: Vec<Segment>,
    /// The NIC has not used this buffer.
    is_posted: bool,
    is_denied: bool,
}

/// Ordinary buffers. The NIC's number of a buffer is its place here.
#[derive(Debug)]
pub(super) struct OrdinaryBuffers {
    places: Vec<OrdinaryBuffer>,
    free: Vec<usize>,
    limit: u32,
    unconsumed: u32,
}

impl OrdinaryBuffers {
    pub(super) fn new(limit: u32) -> Self {
        OrdinaryBuffers { places: Vec::new(), free: Vec::new(), limit, unconsumed: 0 }
    }

    /// Posts a buffer. `Ok`: its place, and its length in bytes. `Err`: an error number.
    pub(super) fn post(
        &mut self,
        wr_id: u64,
        segments: impl Iterator<Item = Segment>,
    ) -> Result<(u64, u64), i32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() >= self.limit as usize => return Err(ENOMEM),
            None => {
                self.places.push(OrdinaryBuffer::default());
                self.places.len() - 1
            }
        };
        let receive = &mut self.places[place];
        receive.wr_id = wr_id;
        receive.segments.clear();
        receive.segments.extend(segments);
        receive.is_posted = true;
        receive.is_denied = false;
        self.unconsumed += 1;
        let length = receive.segments.iter().map(|segment| u64::from(segment.length)).sum();
        Ok((place as u64, length))
    }

    /// The number of buffers that the NIC has not used.
    pub(super) fn unconsumed(&self) -> u32 {
        self.unconsumed
    }

    fn at(&mut self, id: u64) -> Option<&mut OrdinaryBuffer> {
        usize::try_from(id).ok().and_then(|place| self.places.get_mut(place))
    }

    /// Marks a buffer as used by the NIC, and returns its segments.
    pub(super) fn consume(&mut self, id: u64) -> &[Segment] {
        self.unconsumed -= 1;
        self.at(id).map_or(&[], |receive| {
            receive.is_posted = false;
            &receive.segments
        })
    }

    /// Records that a buffer's memory may not be written.
    pub(super) fn deny(&mut self, id: u64) {
        if let Some(receive) = self.at(id) {
            receive.is_denied = true;
        }
    }

    /// Removes a buffer whose completion the program gets: its `wr_id`, and whether its memory
    /// could not be written.
    pub(super) fn take(&mut self, id: u64) -> Option<(u64, bool)> {
        let receive = self.at(id).filter(|receive| !receive.is_posted)?;
        let taken = (receive.wr_id, receive.is_denied);
        self.free.extend(usize::try_from(id));
        Some(taken)
    }
}
