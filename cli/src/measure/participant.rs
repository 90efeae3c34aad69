//! The part of a measurement that both sides have in common: fillers first, then batches that a
//! token begins.
//!
//! 1. Both sides post the receives that never match, and send the messages that no receive takes
//!    (fillers).
//! 2. The client sends a token that asks for nothing. The other side returns it when all of the
//!    client's fillers have arrived. Until then the client can be interrupted.
//! 3. The client sends a token with the number of messages of the next batch, and whether they
//!    count. The other side posts its first receives and returns the token.
//! 4. The batch runs on all threads at once. Only messages are exchanged in it, and only the client
//!    reads the clock.
//! 5. Both sides check the payloads. Step 3 follows, until a token says that there are no more
//!    batches.
//!
//! Tokens, fillers and answers have tags of their own. Matches are counted from token to token, so
//! the sum has the matches of batches only.

use std::time::Duration;

use tagmatch_results::Matching;

use super::batch::{ANSWER, Batch, IDLE, POSTED_FILLER, TOKEN, TOKEN_BYTES, UNEXPECTED_FILLER};
use super::error::MeasureError;
use super::thread::{Role, Span, ThreadPart};
use super::threads::RunThreads;
use super::traffic;
use crate::link::{Buffer, Link, LinkError, Received, Receiving, Sending};
use crate::spec::{Case, Traffic};

/// Fillers between two calls of `go_on`.
const FILLERS_PER_LOOK: u64 = 1024;
/// The time limit of the set-up: enough for a million fillers and a connection.
const SETUP_TIME: Duration = Duration::from_secs(20);

/// One side of a measurement.
pub(crate) struct Participant<'a, A: RunThreads> {
    pub(super) link: Link<A>,
    pub(crate) case: &'a Case,
    pub(super) role: Role,
    pub(super) parts: Vec<ThreadPart<A>>,
    /// Matches of the batches that count.
    matched: Matching,
    before: Matching,
    /// Fillers; they stay posted until the participant is dropped.
    fillers: Vec<Receiving<A>>,
    /// Connected and silent until the participant is dropped.
    _idle: Vec<tagmatch::Worker>,
}

/// Whether receive number `n` of a list takes any source. These are spread evenly: among the first
/// n receives the share is right for every n.
pub(super) fn takes_any(case: &Case, n: u64) -> bool {
    let percent = u64::from(case.wildcard_percent);
    (n + 1) * percent / 100 > n * percent / 100
}

impl<'a, A: RunThreads> Participant<'a, A> {
    /// Connects idle peers, posts and sends the fillers, and waits for those of the other side, as
    /// long as `go_on` returns true.
    pub(crate) fn new(
        mut link: Link<A>,
        case: &'a Case,
        role: Role,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<Self, MeasureError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let sides = if role == Role::Alone { 1 } else { 2 };
        if case.thread_count() > 1 && case.thread_count() * sides > cores as u64 {
            link.crowded();
        }
        let idle = link.meet_idle_peers(case.idle_peers, IDLE, go_on)?;
        let parts = match case.traffic {
            Traffic::PingPong | Traffic::Stream | Traffic::Both => case.thread_count(),
            // These have buffers of their own.
            Traffic::Planned { .. } | Traffic::Drain { .. } | Traffic::OneSided { .. } => 0,
        };
        let mut participant = Self {
            case,
            role,
            parts: (0..parts).map(|number| ThreadPart::new(&link, case, role, number)).collect(),
            matched: Matching::default(),
            before: Matching::default(),
            fillers: Vec::new(),
            link,
            _idle: idle,
        };
        participant.fill(go_on)?;
        participant.meet(go_on)?;
        Ok(participant)
    }

    fn fill(&mut self, go_on: &mut impl FnMut() -> bool) -> Result<(), MeasureError> {
        let mut pause = |n: u64| {
            if n.is_multiple_of(FILLERS_PER_LOOK) && !go_on() {
                Err(LinkError::Interrupted)
            } else {
                Ok(())
            }
        };
        for n in 0..self.case.posted_depth {
            pause(n)?;
            let any = takes_any(self.case, n);
            let tag = POSTED_FILLER | n;
            self.fillers.push(self.link.receive_from(any, tag, Buffer::default()));
        }
        let mut sends = Vec::new();
        for n in 0..self.case.unexpected_depth {
            pause(n)?;
            sends.push(self.link.send(UNEXPECTED_FILLER | n, Buffer::default()));
        }
        for send in sends {
            self.link.finish_while(send, &mut *go_on)?;
        }
        Ok(())
    }

    /// Waits until the fillers of both sides have arrived. The other side waits for its own when a
    /// token asks for it.
    fn meet(&mut self, go_on: &mut impl FnMut() -> bool) -> Result<(), MeasureError> {
        if self.role == Role::Peer {
            return Ok(());
        }
        self.await_fillers(go_on)?;
        if self.role == Role::Client {
            let back = self.ask(Self::READY)?;
            self.link.finish_while(back, go_on)?;
        }
        Ok(())
    }

    /// Waits until all fillers of the other side are here.
    fn await_fillers(&self, go_on: &mut impl FnMut() -> bool) -> Result<(), MeasureError> {
        let wanted = self.case.unexpected_depth;
        let mut going = true;
        let waited = self.link.progress_until(SETUP_TIME, |link| {
            going = go_on();
            !going || link.are_waiting(wanted, UNEXPECTED_FILLER | wanted.saturating_sub(1))
        });
        match waited {
            _ if !going => Err(LinkError::Interrupted.into()),
            Err(LinkError::Stuck(_)) | Ok(()) => self.check_fillers("after set-up"),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until `count` messages are unexpected beside the fillers. `last` is the tag of the one
    /// sent last.
    pub(super) fn await_unexpected(&self, count: u64, last: u64) -> Result<(), MeasureError> {
        let wanted = self.case.unexpected_depth + count;
        Ok(self.link.progress_until(SETUP_TIME, |link| link.are_waiting(wanted, last))?)
    }

    /// Runs a batch as the client, or alone: prepares it, runs it on all threads, counts the
    /// matches and checks the payloads. Returns the measured interval, and that of each thread.
    pub(crate) fn batch(&mut self, batch: Batch) -> Result<(Span, Vec<Span>), MeasureError> {
        self.parts.iter_mut().try_for_each(|part| part.prepare(&self.link, batch))?;
        if self.role == Role::Alone {
            self.before = self.link.matching();
        } else {
            self.begin(batch)?;
        }
        let spans = A::run_on_all(&self.link, &mut self.parts, |part, link| {
            traffic::run(part, link, batch)
        })?;
        // In a stream the client receives answers only, which are not measured.
        let receives = self.role != Role::Client || self.case.traffic != Traffic::Stream;
        self.end_batch(Batch { counts: batch.counts && receives, ..batch });
        let start = spans.iter().map(|span| span.start).min();
        let mut end = spans.iter().map(|span| span.end).max();
        if self.case.traffic == Traffic::Both {
            // All messages from the other side are here. Only the other side knows whether ours
            // have arrived there.
            self.finish(self.link.receive(ANSWER, Buffer::default()))?;
            end = Some(std::time::Instant::now());
        }
        self.parts.iter_mut().try_for_each(|part| part.check(batch))?;
        let (Some(start), Some(end)) = (start, end) else { return Err(MeasureError::Token) };
        Ok((Span { start, end }, spans))
    }

    /// Runs a batch as the other side, after its token.
    pub(crate) fn answer(&mut self, batch: Batch) -> Result<(), MeasureError> {
        self.parts.iter_mut().try_for_each(|part| part.prepare(&self.link, batch))?;
        self.go(batch)?;
        A::run_on_all(&self.link, &mut self.parts, |part, link| traffic::run(part, link, batch))?;
        self.end_batch(batch);
        if self.case.traffic == Traffic::Both {
            self.finish_send(self.link.send(ANSWER, Buffer::default()))?;
        }
        self.parts.iter_mut().try_for_each(|part| part.check(batch))
    }

    /// Checks that no filler was matched.
    pub(crate) fn check_fillers(&self, when: &'static str) -> Result<(), MeasureError> {
        let wanted = (self.case.posted_depth, self.case.unexpected_depth);
        let (posted, unexpected) = self.link.depths();
        let found = (posted, unexpected.unwrap_or(wanted.1));
        if found == wanted {
            return Ok(());
        }
        Err(MeasureError::Fillers { when, found, wanted })
    }

    /// Begins a batch as the client. When this returns, everything sent before has arrived on the
    /// other side.
    pub(crate) fn begin(&mut self, batch: Batch) -> Result<(), MeasureError> {
        let back = self.ask(batch)?;
        self.finish(back)?;
        self.before = self.link.matching();
        Ok(())
    }

    /// The token that says that there are no more batches.
    const LAST: Batch = Batch { messages: 0, counts: false, base_ns: 0 };
    /// The token that asks whether the fillers have arrived.
    const READY: Batch = Batch { counts: true, ..Self::LAST };

    /// Says, as the client, that there are no more batches, and waits until the other side has
    /// checked its fillers: fillers that name this side would end when it leaves.
    pub(crate) fn end(&mut self) -> Result<(), MeasureError> {
        let back = self.ask(Self::LAST)?;
        self.finish(back).map(drop)
    }

    /// Sends a token as the client; returns the receive of the token that comes back.
    fn ask(&self, token: Batch) -> Result<Receiving<A>, MeasureError> {
        let back = self.link.receive(TOKEN, Buffer::zeroed(TOKEN_BYTES));
        self.finish_send(self.link.send(TOKEN, token.emit()))?;
        Ok(back)
    }

    /// Tells the client, as the other side, that the fillers are checked and it may leave.
    pub(crate) fn let_go(&mut self) -> Result<(), MeasureError> {
        self.finish_send(self.link.send(TOKEN, Self::LAST.emit())).map(drop)
    }

    /// Waits for a batch as the other side; `None` when there are no more.
    pub(crate) fn await_batch(&mut self) -> Result<Option<Batch>, MeasureError> {
        loop {
            let token = self.finish(self.link.receive(TOKEN, Buffer::zeroed(TOKEN_BYTES)))?;
            let batch = Batch::parse(token.data(), self.case.batch).ok_or(MeasureError::Token)?;
            if batch == Self::READY {
                self.await_fillers(&mut || true)?;
                self.go(batch)?;
            } else {
                return Ok((batch.messages > 0).then_some(batch));
            }
        }
    }

    /// Tells the client, as the other side, that the first receives are posted and the batch may
    /// begin.
    pub(crate) fn go(&mut self, batch: Batch) -> Result<(), MeasureError> {
        self.before = self.link.matching();
        self.finish_send(self.link.send(TOKEN, batch.emit())).map(drop)
    }

    /// Counts the matches of a batch whose messages have all been received here.
    pub(crate) fn end_batch(&mut self, batch: Batch) {
        if batch.counts {
            self.matched.add(&self.link.matching().since(&self.before));
        }
    }

    /// How the receives of all batches that count were matched.
    pub(crate) fn matched(&self) -> Matching {
        // A bug, or a fault of the NIC's list, counts whenever it happened, outside of batches too.
        let Matching { list_faults, bugs, .. } = self.link.matching();
        Matching { list_faults, bugs, ..self.matched }
    }

    #[inline]
    pub(crate) fn finish(&self, request: Receiving<A>) -> Result<Received, MeasureError> {
        Ok(self.link.finish(request)?)
    }

    #[inline]
    pub(crate) fn finish_send(&self, request: Sending<A>) -> Result<Buffer, MeasureError> {
        Ok(self.link.finish(request)?.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_source_has_its_share_of_every_part_of_a_list() {
        for percent in [0, 1, 30, 50, 99, 100] {
            let case = Case { wildcard_percent: percent, ..Case::sample() };
            let mut any = 0;
            for n in 0..1000 {
                any += u64::from(takes_any(&case, n));
                assert_eq!(any, (n + 1) * u64::from(percent) / 100);
            }
        }
    }
}
