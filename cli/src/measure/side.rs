//! What both sides of a measurement do alike: fillers first, then batches begun by a token.
//!
//! 1. Both sides post the receives that never match, and send the messages that none takes.
//! 2. The client sends a token: how many messages the next batch has, and whether they count. The
//!    other side posts its first receives and sends the token back.
//! 3. The batch runs; nothing but messages, and the clock on the client's side.
//! 4. Both sides check the payloads. Back to 2, until a token says 0.
//!
//! Tokens, fillers and answers have tags of their own. Matches are counted from token to token, so
//! that only the batch's own are in the sum.

use std::time::Duration;

use crate::control::Control;
use crate::control::message::Leg;
use crate::json::Matching;
use crate::link::{Buffer, Link, LinkError, Receiving};
use crate::payload::{Corrupt, Direction, Stamp};

/// Tags: the kind above, a number below.
const TOKEN: u64 = 1 << 56;
const DATA: u64 = 2 << 56;
const ANSWER: u64 = 3 << 56;
const POSTED_FILLER: u64 = 4 << 56;
const UNEXPECTED_FILLER: u64 = 5 << 56;

/// Setting up may take as long as a million fillers need, and a connection.
const SETUP_TIME: Duration = Duration::from_secs(20);
const TOKEN_BYTES: usize = 16;

/// Why a measurement came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("verification failed: {0}")]
    Corrupt(#[from] Corrupt),
    #[error("verification failed: a message of {found} bytes came, {wanted} would be right")]
    Length { found: u64, wanted: u64 },
    #[error(
        "{when}: {} receives posted and {} messages unexpected, {} and {} would be right",
        .found.0, .found.1, .wanted.0, .wanted.1
    )]
    Fillers { when: &'static str, found: (u64, u64), wanted: (u64, u64) },
    #[error("the other side's token is none")]
    Token,
}

/// A batch, as its token announces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub(crate) messages: u64,
    /// Whether it is more than warm-up.
    pub(crate) counts: bool,
}

impl Batch {
    fn emit(self) -> Buffer {
        let words = [self.messages, u64::from(self.counts)];
        Buffer::from(words.map(u64::to_le_bytes).concat())
    }

    /// `most` bounds what a peer may announce.
    fn parse(bytes: &[u8], most: u64) -> Option<Self> {
        let (messages, counts) = bytes.split_first_chunk::<8>()?;
        let messages = u64::from_le_bytes(*messages);
        let counts = u64::from_le_bytes(counts.try_into().ok()?);
        (messages <= most && counts <= 1).then_some(Self { messages, counts: counts == 1 })
    }
}

/// One side of a measurement.
pub(crate) struct Side<'a> {
    link: Link,
    pub(crate) control: &'a Control,
    pub(crate) leg: &'a Leg,
    /// Messages of all batches so far in one direction: what stamps a payload.
    done: u64,
    /// Matches of the batches that count.
    matched: Matching,
    before: Matching,
    /// They stay posted until the side goes.
    fillers: Vec<Receiving>,
}

impl<'a> Side<'a> {
    /// Posts and sends the fillers.
    pub(crate) fn new(
        link: Link,
        control: &'a Control,
        leg: &'a Leg,
    ) -> Result<Self, MeasureError> {
        let (matched, before) = (Matching::default(), Matching::default());
        let mut side = Self { link, control, leg, done: 0, matched, before, fillers: Vec::new() };
        let percent = u64::from(leg.wildcard_percent);
        // Spread evenly over the list: the share among the first n is right for every n.
        let any = |n: u64| (n + 1) * percent / 100 > n * percent / 100;
        let posted = (0..leg.posted_depth).map(|n| {
            let (tag, empty) = (POSTED_FILLER | n, Buffer::default());
            if any(n) { side.link.receive_any(tag, empty) } else { side.link.receive(tag, empty) }
        });
        side.fillers = posted.collect();
        let sends: Vec<_> = (0..leg.unexpected_depth)
            .map(|n| side.link.send(UNEXPECTED_FILLER | n, Buffer::default()))
            .collect();
        for send in sends {
            side.finish_send(send)?;
        }
        Ok(side)
    }

    /// Until the other side's fillers are all here.
    fn await_fillers(&self) -> Result<(), MeasureError> {
        let wanted = (self.leg.posted_depth, self.leg.unexpected_depth);
        let full = |link: &Link| link.depths().1 >= wanted.1;
        match self.link.progress_until(self.control, SETUP_TIME, full) {
            Err(LinkError::Stuck(_)) | Ok(()) => self.check_fillers("after set-up"),
            Err(error) => Err(error.into()),
        }
    }

    /// No filler may ever have matched.
    pub(crate) fn check_fillers(&self, when: &'static str) -> Result<(), MeasureError> {
        let (found, wanted) =
            (self.link.depths(), (self.leg.posted_depth, self.leg.unexpected_depth));
        if found == wanted {
            return Ok(());
        }
        Err(MeasureError::Fillers { when, found, wanted })
    }

    /// The client begins a batch. Everything before it has arrived on the other side then.
    pub(crate) fn begin(&mut self, batch: Batch) -> Result<(), MeasureError> {
        if self.done == 0 {
            self.await_fillers()?;
        }
        let back = self.link.receive(TOKEN, Buffer::zeroed(TOKEN_BYTES));
        self.finish_send(self.link.send(TOKEN, batch.emit()))?;
        self.finish(back)?;
        self.before = self.link.matching();
        Ok(())
    }

    /// What says that there is no more.
    const LAST: Batch = Batch { messages: 0, counts: false };

    /// The client says that there is no more, and waits for the other side to have looked at its
    /// fillers: those that name this side would end with it.
    pub(crate) fn end(&mut self) -> Result<(), MeasureError> {
        let back = self.link.receive(TOKEN, Buffer::zeroed(TOKEN_BYTES));
        self.finish_send(self.link.send(TOKEN, Self::LAST.emit()))?;
        self.finish(back).map(drop)
    }

    /// The other side has looked: the client may go.
    pub(crate) fn let_go(&mut self) -> Result<(), MeasureError> {
        self.finish_send(self.link.send(TOKEN, Self::LAST.emit())).map(drop)
    }

    /// The other side waits for a batch; `None` when there is no more.
    pub(crate) fn await_batch(&mut self) -> Result<Option<Batch>, MeasureError> {
        let token = self.finish(self.link.receive(TOKEN, Buffer::zeroed(TOKEN_BYTES)))?;
        let batch = Batch::parse(token.data(), self.leg.batch).ok_or(MeasureError::Token)?;
        if batch.messages == 0 {
            return Ok(None);
        }
        if self.done == 0 {
            self.await_fillers()?;
        }
        Ok(Some(batch))
    }

    /// The other side has posted its first receives: the batch may come.
    pub(crate) fn go(&mut self, batch: Batch) -> Result<(), MeasureError> {
        self.before = self.link.matching();
        self.finish_send(self.link.send(TOKEN, batch.emit())).map(drop)
    }

    /// All messages of the batch have been received here.
    pub(crate) fn end_batch(&mut self, batch: Batch) {
        if batch.counts {
            self.matched.add(&self.link.matching().since(&self.before));
        }
        self.done += batch.messages;
    }

    /// How the receives of all batches that count were matched.
    pub(crate) fn matched(&self) -> Matching {
        self.matched
    }

    pub(crate) fn large_messages(&self) -> &'static str {
        self.link.large_messages()
    }

    /// The measured receive.
    #[inline]
    pub(crate) fn receive_data(&self, buffer: &mut Buffer) -> Receiving {
        let buffer = std::mem::take(buffer);
        if self.leg.wildcard_recv {
            self.link.receive_any(DATA, buffer)
        } else {
            self.link.receive(DATA, buffer)
        }
    }

    /// The measured send.
    #[inline]
    pub(crate) fn send_data(&self, buffer: &mut Buffer) -> crate::link::Sending {
        self.link.send(DATA, std::mem::take(buffer))
    }

    pub(crate) fn receive_answer(&self) -> Receiving {
        self.link.receive(ANSWER, Buffer::default())
    }

    pub(crate) fn send_answer(&self) -> crate::link::Sending {
        self.link.send(ANSWER, Buffer::default())
    }

    #[inline]
    pub(crate) fn finish(&self, request: Receiving) -> Result<crate::link::Received, MeasureError> {
        Ok(self.link.finish(request, self.control)?)
    }

    #[inline]
    pub(crate) fn finish_send(
        &self,
        request: crate::link::Sending,
    ) -> Result<Buffer, MeasureError> {
        Ok(self.link.finish(request, self.control)?.buffer)
    }

    /// Buffers for a batch.
    pub(crate) fn buffers(&self) -> Vec<Buffer> {
        let size = usize::try_from(self.leg.size).unwrap_or(usize::MAX);
        (0..self.leg.batch).map(|_| Buffer::zeroed(size)).collect()
    }

    /// Writes what the next batch's messages are to say.
    pub(crate) fn fill(&self, buffers: &mut [Buffer], direction: Direction) {
        if !self.leg.validate {
            return;
        }
        for (iteration, buffer) in (self.done..).zip(buffers) {
            if let Some(bytes) = buffer.as_mut_slice() {
                Stamp { iteration, direction }.fill(bytes);
            }
        }
    }

    /// Checks what the last batch's messages said; [`Side::end_batch`] has been called.
    pub(crate) fn check(
        &self,
        buffers: &[Buffer],
        direction: Direction,
    ) -> Result<(), MeasureError> {
        if !self.leg.validate {
            return Ok(());
        }
        let first = self.done - buffers.len() as u64;
        for (iteration, buffer) in (first..).zip(buffers) {
            Stamp { iteration, direction }.check(buffer)?;
        }
        Ok(())
    }

    /// A message that is shorter or longer than it should be.
    #[inline]
    pub(crate) fn check_length(&self, found: u64) -> Result<(), MeasureError> {
        if found == self.leg.size {
            return Ok(());
        }
        Err(MeasureError::Length { found, wanted: self.leg.size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_bounded() {
        let batch = Batch { messages: 7, counts: true };
        assert_eq!(Batch::parse(&batch.emit(), 7), Some(batch));
        assert_eq!(Batch::parse(&batch.emit(), 6), None);
        assert_eq!(Batch::parse(&batch.emit()[..15], 7), None);
        assert_eq!(Batch::parse(&[0xff; 16], u64::MAX), None);
        assert_eq!(Batch::parse(&[], 7), None);
    }
}
