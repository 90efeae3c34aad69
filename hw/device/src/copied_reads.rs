//! Copied reads: reading a peer's memory by messages of the device, where neither the kernel nor a
//! NIC can read it.
//!
//! The reader sends a request. The owner of the memory looks up the span in its table of exposed
//! buffers, sends the bytes in fragments, and then an end. These messages share the way to the peer
//! with the messages of the engine and use at most half of its room. A peer answers reads in the
//! order in which they were requested, so a fragment of another read breaks the rules.

use std::collections::VecDeque;

use super::buffer::Buffer;
use super::bytes::Bytes;
use super::device::{ReadError, RemoteSpan};
use super::read_message::ReadMessage;

/// The way to a peer, as copied reads use it.
pub trait CopyPath {
    /// Why a message can't be sent: there is no room now, or the peer can't be sent to any more.
    type Error;

    /// Whether half of the room is free, so that messages of the engine find the other half.
    ///
    /// # Errors
    /// The peer can't be sent to any more.
    fn has_half_free(&mut self) -> Result<bool, Self::Error>;

    /// Most bytes that a message can carry behind the header.
    fn part_max(&self) -> usize;

    /// Sends one message, which is marked so that the peer's engine doesn't see it.
    ///
    /// # Errors
    /// There is no room, or the peer can't be sent to any more. Nothing was sent.
    fn send(&mut self, header: &[u8], part: &[u8]) -> Result<(), Self::Error>;
}

/// Most reads that a peer is asked for at a time. Further reads wait in the reader.
const REQUESTS_MAX: usize = 64;

/// A read of this worker: its request was sent, or will be.
#[derive(Debug)]
struct OwnRead {
    id: u32,
    remote: RemoteSpan,
    into: Buffer,
    token: u64,
    received: usize,
}

/// A read that the peer has requested.
#[derive(Debug)]
struct PeerRead {
    id: u32,
    span: RemoteSpan,
    sent: u64,
}

/// The copied reads on one connection, in both directions.
#[derive(Debug, Default)]
pub struct CopiedReads {
    /// In the order of their requests.
    own_reads: VecDeque<OwnRead>,
    /// How many requests were sent: those of the first reads in `own_reads`.
    requested: usize,
    next_id: u32,
    peer_reads: VecDeque<PeerRead>,
    /// How often in a row less than half of the room was free.
    waited: u32,
}

/// Token, buffer and result of a read that has ended.
pub type EndedRead = (u64, Buffer, Result<(), ReadError>);

impl CopiedReads {
    /// Begins a read. The caller has checked that the bytes fit into the buffer.
    pub fn start(&mut self, remote: RemoteSpan, into: Buffer, token: u64) {
        self.own_reads.push_back(OwnRead { id: self.next_id, remote, into, token, received: 0 });
        self.next_id = self.next_id.wrapping_add(1);
    }

    /// Whether requests, fragments or ends are to be sent.
    pub fn has_to_send(&self) -> bool {
        !self.peer_reads.is_empty() || self.requested < self.own_reads.len().min(REQUESTS_MAX)
    }

    /// Takes back the reads of this worker, with token and buffer, when the peer is down.
    pub fn take_reads(&mut self) -> impl Iterator<Item = (u64, Buffer)> + use<> {
        let own_reads = std::mem::take(&mut self.own_reads);
        own_reads.into_iter().map(|read| (read.token, read.into))
    }

    /// Takes a message from the peer; returns the read that it ended, if any. `check` looks at the
    /// span of a request, whose bytes are only asked for when they are sent.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub fn receive(
        &mut self,
        bytes: &Bytes<'_>,
        check: impl FnOnce(RemoteSpan) -> Result<(), &'static str>,
    ) -> Result<Option<EndedRead>, &'static str> {
        match ReadMessage::parse(bytes)? {
            ReadMessage::Request { id, span } => {
                check(span)?;
                if self.peer_reads.len() >= REQUESTS_MAX {
                    return Err("a peer requests more reads at a time than allowed");
                }
                self.peer_reads.push_back(PeerRead { id, span, sent: 0 });
                Ok(None)
            }
            ReadMessage::Offer { .. } => Err("an offer where none can be taken"),
            ReadMessage::Fragment { id, offset } => {
                let read = self.current(id)?;
                let count = bytes.len() - ReadMessage::HEADER_BYTES;
                let start = read.received;
                if offset != start as u64 {
                    return Err("a fragment of a read is out of order");
                }
                let length = usize::try_from(read.remote.length).unwrap_or(0);
                if count > length - start {
                    return Err("a read was sent more bytes than requested");
                }
                let into = read.into.room().and_then(|all| all.part(start..start + count));
                bytes.copy_to_room(ReadMessage::HEADER_BYTES, into.unwrap_or_default());
                read.received += count;
                Ok(None)
            }
            ReadMessage::End { id, is_good } => {
                let read = self.current(id)?;
                if is_good && read.received as u64 != read.remote.length {
                    return Err("a read was sent fewer bytes than requested");
                }
                self.requested -= 1;
                let read = self.own_reads.pop_front();
                let result = if is_good { Ok(()) } else { Err(ReadError::BadSpan) };
                Ok(read.map(|read| (read.token, read.into, result)))
            }
        }
    }

    /// The oldest requested read, if `id` is its number.
    fn current(&mut self, id: u32) -> Result<&mut OwnRead, &'static str> {
        let requested = self.requested;
        self.own_reads
            .front_mut()
            .filter(|read| requested > 0 && read.id == id)
            .ok_or("a read was answered that was not requested")
    }

    /// Sends requests, and one fragment or end, as far as half of the room is free. `exposed` gives
    /// the bytes of a span, if all of them are exposed to the peer.
    ///
    /// # Errors
    /// That of the way to the peer.
    pub fn push<'a, P: CopyPath>(
        &mut self,
        path: &mut P,
        exposed: impl Fn(RemoteSpan) -> Option<&'a [u8]>,
    ) -> Result<(), P::Error> {
        while self.requested < REQUESTS_MAX
            && let Some(read) = self.own_reads.get(self.requested)
            && may_push(path, &mut self.waited)?
        {
            let id = read.id;
            let span = read.remote;
            let request = ReadMessage::Request { id, span };
            path.send(&request.emit(), &[])?;
            self.requested += 1;
        }
        if let Some(read) = self.peer_reads.front_mut()
            && may_push(path, &mut self.waited)?
        {
            let id = read.id;
            let bytes = exposed(read.span);
            let rest = bytes.map(|all| {
                // `sent` counts bytes of this span.
                all.get(usize::try_from(read.sent).unwrap_or(usize::MAX)..).unwrap_or(&[])
            });
            match rest {
                Some(rest) if !rest.is_empty() => {
                    let most = path.part_max();
                    let part = &rest[..rest.len().min(most)];
                    let offset = read.sent;
                    let header = ReadMessage::Fragment { id, offset }.emit();
                    path.send(&header, part)?;
                    read.sent += part.len() as u64;
                }
                rest => {
                    let is_good = rest.is_some();
                    let header = ReadMessage::End { id, is_good }.emit();
                    path.send(&header, &[])?;
                    self.peer_reads.pop_front();
                }
            }
        }
        Ok(())
    }
}

/// After so many attempts without half of the room free, any room is used: an engine that keeps the
/// way full must not keep reads from ending.
const WAITS_MAX: u32 = 64;

fn may_push<P: CopyPath>(path: &mut P, waited: &mut u32) -> Result<bool, P::Error> {
    if path.has_half_free()? {
        *waited = 0;
        return Ok(true);
    }
    *waited = (*waited + 1) % WAITS_MAX;
    Ok(*waited == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exposures, PeerId};

    /// A way that holds so many messages.
    #[derive(Default)]
    struct Queue {
        messages: VecDeque<Vec<u8>>,
        capacity: usize,
    }

    impl CopyPath for Queue {
        type Error = ();

        fn has_half_free(&mut self) -> Result<bool, ()> {
            Ok(self.messages.len() < self.capacity / 2)
        }

        fn part_max(&self) -> usize {
            100
        }

        fn send(&mut self, header: &[u8], part: &[u8]) -> Result<(), ()> {
            if self.messages.len() == self.capacity {
                return Err(());
            }
            self.messages.push_back([header, part].concat());
            Ok(())
        }
    }

    fn nothing_is_exposed<'a>(_: RemoteSpan) -> Option<&'a [u8]> {
        None
    }

    #[test]
    fn a_read_is_answered_in_parts_and_one_of_memory_that_is_not_exposed_fails() {
        let mut reader = CopiedReads::default();
        let mut owner = CopiedReads::default();
        let bytes: Vec<u8> = (0..250).collect();
        let span = RemoteSpan { address: 1000, key: 2, length: 250 };
        let exposed = |asked: RemoteSpan| (asked == span).then_some(&bytes[..]);
        reader.start(span, Buffer::zeroed(300), 7);
        reader.start(RemoteSpan { key: 3, ..span }, Buffer::zeroed(250), 8);
        let [mut there, mut back] = [(); 2].map(|()| Queue { capacity: 8, ..Queue::default() });
        let mut ended = Vec::new();
        let mut parts = 0;
        while reader.has_to_send() || ended.len() < 2 {
            reader.push(&mut there, nothing_is_exposed).unwrap();
            for message in there.messages.drain(..) {
                let result = owner.receive(&Bytes::from_slice(&message), |_| Ok(()));
                assert!(result.unwrap().is_none());
            }
            assert!(owner.has_to_send());
            owner.push(&mut back, exposed).unwrap();
            for message in back.messages.drain(..) {
                parts += usize::from(message.len() > ReadMessage::HEADER_BYTES);
                let result = reader.receive(&Bytes::from_slice(&message), |_| Ok(()));
                ended.extend(result.unwrap());
            }
        }
        assert!(!owner.has_to_send() && parts == 3);
        let (token, into, result) = &ended[0];
        assert_eq!((*token, result), (7, &Ok(())));
        assert_eq!((&into[..250], &into[250..]), (&bytes[..], &[0; 50][..]));
        assert_eq!((ended[1].0, ended[1].2), (8, Err(ReadError::BadSpan)));
    }

    /// Half of the room is left to the engine, but not for ever.
    #[test]
    fn a_way_that_stays_half_full_is_used_after_a_while() {
        let mut reader = CopiedReads::default();
        let span = RemoteSpan { address: 1, key: 2, length: 3 };
        reader.start(span, Buffer::zeroed(3), 7);
        let engine = VecDeque::from(vec![vec![0]; 4]);
        let mut path = Queue { messages: engine, capacity: 8 };
        for attempt in 1..=WAITS_MAX {
            assert_eq!(path.messages.len(), 4, "{attempt}");
            reader.push(&mut path, nothing_is_exposed).unwrap();
        }
        assert_eq!(path.messages.len(), 5);
        assert!(!reader.has_to_send());
        assert_eq!(reader.take_reads().map(|(token, _)| token).collect::<Vec<_>>(), [7]);
        // A full one takes nothing, and says so.
        let mut reader = CopiedReads::default();
        reader.start(span, Buffer::zeroed(3), 8);
        path.capacity = 5;
        let results = (0..WAITS_MAX).map(|_| reader.push(&mut path, nothing_is_exposed));
        assert_eq!(results.filter(Result::is_err).count(), 1);
        assert!(reader.has_to_send());
    }

    #[test]
    fn a_peer_requests_64_reads_at_a_time_and_no_more() {
        let mut copied = CopiedReads::default();
        let exposures = Exposures::default();
        let span = RemoteSpan { address: 1, key: 2, length: 3 };
        let mut ask = |id| {
            let request = ReadMessage::Request { id, span }.emit();
            let readable = exposures.readable_by(PeerId(1));
            copied
                .receive(&Bytes::from_slice(&request), |span| readable.check(span))
                .map(|ended| assert!(ended.is_none()))
        };
        for id in 0..64 {
            assert_eq!(ask(id), Ok(()));
        }
        assert!(ask(64).is_err());
    }

    #[test]
    fn an_answer_that_was_not_asked_for_breaks_the_rules() {
        let span = RemoteSpan { address: 1, key: 2, length: 3 };
        let fragment = |id, offset, count: usize| {
            let header = ReadMessage::Fragment { id, offset }.emit();
            [&header[..], &vec![9; count]].concat()
        };
        let end = |id, is_good| ReadMessage::End { id, is_good }.emit().to_vec();
        let offer = [&ReadMessage::Offer { number: 1, span }.emit()[..], &[0; 8]].concat();
        let bad = [
            fragment(1, 0, 1),
            fragment(0, 1, 1),
            fragment(0, 0, 4),
            end(1, true),
            end(0, true),
            offer,
        ];
        for (at, message) in bad.into_iter().enumerate() {
            let mut reads = CopiedReads::default();
            let mut tell = |message: &[u8]| reads.receive(&Bytes::from_slice(message), |_| Ok(()));
            assert!(tell(&message).is_err(), "{at}: without any read");
            reads.start(span, Buffer::zeroed(3), 7);
            let mut path = Queue { capacity: 8, ..Queue::default() };
            reads.push(&mut path, nothing_is_exposed).unwrap();
            let result = reads.receive(&Bytes::from_slice(&message), |_| Ok(()));
            assert!(result.is_err(), "{at}");
        }
    }
}
