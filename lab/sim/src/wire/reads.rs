//! Exposed buffers, and the READs that read them.

use tagmatch_device::{Buffer, Network, ReadError, ReadRequest};

use super::net::{Exposed, LinkState, Net, Note, ReadOutcome, Reading, Ready, UNTAGGED, number};
use super::wire_fault::WireFault;

impl Net {
    /// The key of a buffer that is exposed to the peers of a network, or the buffer, if there are
    /// too many.
    pub(super) fn expose(
        &mut self,
        at: u32,
        network: Network,
        buffer: Buffer,
    ) -> Result<u32, Buffer> {
        let limit = (self.config.exposures_max as usize).min(0xffff);
        let me = &mut self.nodes[at as usize];
        let slot = match me.free.pop() {
            Some(slot) => slot as usize,
            None if me.exposed.len() >= limit => return Err(buffer),
            None => {
                me.exposed.push(Exposed::default());
                me.exposed.len() - 1
            }
        };
        let exposed = &mut me.exposed[slot];
        exposed.buffer = Some(buffer);
        exposed.network = Some(network);
        Ok(number(slot) | (exposed.generation << 16))
    }

    fn exposure(&mut self, of: u32, network: Network, key: u32) -> Option<&mut Exposed> {
        let exposed = self.nodes[of as usize].exposed.get_mut(slot_of(key))?;
        let is_it = exposed.generation & 0xffff == key >> 16 && exposed.buffer.is_some();
        (is_it && exposed.network == Some(network)).then_some(exposed)
    }

    pub(super) fn withdraw(&mut self, at: u32, network: Network, key: u32) -> Option<Buffer> {
        let exposed = self.exposure(at, network, key)?;
        exposed.generation += 1;
        let buffer = exposed.buffer.take();
        self.nodes[at as usize].free.push(number(slot_of(key)));
        buffer
    }

    pub(super) fn read(&mut self, at: u32, request: ReadRequest) {
        let tick = self.tick();
        let ready = self.clock + self.delay();
        let me = &mut self.nodes[at as usize];
        let end = &mut me.peers[request.peer.index()];
        let known = end.keys.iter().rfind(|&&(key, _)| key == request.remote.key);
        let ordinal = known.map_or(UNTAGGED, |&(_, ordinal)| ordinal);
        self.notes.push(Note::ReadBegan { at, from: end.node, ordinal, tick });
        me.reads.push(Reading { request, ordinal, ready });
    }

    /// Ends a READ.
    pub(super) fn end_read(&mut self, at: u32, index: usize) -> Ready {
        let me = &mut self.nodes[at as usize];
        let Reading { mut request, ordinal, .. } = me.reads.swap_remove(index);
        let end = &me.peers[request.peer.index()];
        let from = end.node;
        let network = end.network;
        let is_down = end.ends.is_some() || end.link == LinkState::Down;
        let fails = !is_down && me.fail_reads > 0;
        me.fail_reads -= u32::from(fails);
        let outcome = if is_down {
            ReadOutcome::PeerDown
        } else if fails {
            // Each failure has a number of its own, so that the reports of both sides can be told
            // apart.
            self.reads_failed += 1;
            ReadOutcome::Failed(self.reads_failed)
        } else if self.copy(from, network, &mut request) {
            ReadOutcome::Done
        } else {
            ReadOutcome::BadSpan
        };
        self.notes.push(Note::ReadEnded { at, from, ordinal, outcome });
        let result = match outcome {
            ReadOutcome::Done => Ok(()),
            ReadOutcome::Failed(_) if self.wire_fault == Some(WireFault::SilentRead) => Ok(()),
            ReadOutcome::Failed(errno) => Err(ReadError::Failed { errno }),
            ReadOutcome::PeerDown => Err(ReadError::PeerDown),
            ReadOutcome::BadSpan => Err(ReadError::BadSpan),
        };
        Ready::Read(request, result)
    }

    fn copy(&mut self, from: u32, network: Network, request: &mut ReadRequest) -> bool {
        let wire_fault = self.wire_fault;
        let Some(exposed) = self.exposure(from, network, request.remote.key) else { return false };
        let bytes: &[u8] = exposed.buffer.as_deref().unwrap_or_default();
        let length = usize::try_from(request.remote.length).unwrap_or(usize::MAX);
        let room = request.into.room().and_then(|into| into.part(0..length));
        let (Some(room), Some(bytes)) = (room, bytes.get(..length)) else { return false };
        match wire_fault {
            Some(WireFault::ShortRead) => room.fill(&bytes[..length.saturating_sub(1)]),
            _ => room.fill(bytes),
        };
        if wire_fault == Some(WireFault::LongRead)
            && let Some(beyond) = request.into.as_mut_slice().and_then(|into| into.get_mut(length))
        {
            *beyond = 0;
        }
        true
    }
}

fn slot_of(key: u32) -> usize {
    (key & 0xffff) as usize
}
