//! What both sides of a measurement do alike: fillers first, then batches begun by a token.
//!
//! 1. Both sides post the receives that never match, and send the messages that none takes.
//! 2. The client sends a token that asks for nothing. When all these messages are here, the other side
//!    sends it back. Up to then, the client may be interrupted.
//! 3. The client sends a token: how many messages the next batch has, and whether they count. The
//!    other side posts its first receives and sends the token back.
//! 4. The batch runs, on all lanes at once; nothing but messages, and the clock on the client's side.
//! 5. Both sides check the payloads. Back to 3, until a token says that there is no more.
//!
//! Tokens, fillers and answers have tags of their own. Matches are counted from token to token, so
//! that only the batch's own are in the sum.

use std::time::Duration;

use super::batch::{ANSWER, Batch, IDLE, POSTED_FILLER, TOKEN, TOKEN_BYTES, UNEXPECTED_FILLER};
use super::error::MeasureError;
use super::thread::{Role, Span, ThreadPart};
use super::threads::RunThreads;
use super::traffic;
use crate::link::{Buffer, Link, LinkError, Received, Receiving, Sending};
use crate::result::Matching;
use crate::spec::{Case, Traffic};

/// Fillers between two looks whether to go on.
const FILLERS_PER_LOOK: u64 = 1024;
/// Setting up may take as long as a million fillers need, and a connection.
const SETUP_TIME: Duration = Duration::from_secs(20);

/// One side of a measurement.
pub(crate) struct Participant<'a, A: RunThreads> {
    pub(super) link: Link<A>,
    pub(crate) case: &'a Case,
    role: Role,
    pub(super) parts: Vec<ThreadPart<A>>,
    /// Matches of the batches that count.
    matched: Matching,
    before: Matching,
    /// They stay posted until the side goes.
    fillers: Vec<Receiving<A>>,
    /// Connected and silent until the side goes.
    _idle: Vec<tagmatch::Worker>,
}

/// Whether receive `n` of a list takes any source. Spread evenly over the list: the share among the
/// first n is right for every n.
pub(super) fn takes_any(case: &Case, n: u64) -> bool {
    let percent = u64::from(case.wildcard_percent);
    (n + 1) * percent / 100 > n * percent / 100
}

impl<'a, A: RunThreads> Participant<'a, A> {
    /// Meets idle peers; posts and sends the fillers, and waits for the other side's, while `go_on`.
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
            // They have buffers of their own.
            Traffic::Planned { .. } | Traffic::Drain { .. } => 0,
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
        let mut pause = |n: u64| match n.is_multiple_of(FILLERS_PER_LOOK) && !go_on() {
            true => Err(LinkError::Interrupted),
            false => Ok(()),
        };
        for n in 0..self.case.posted_depth {
            pause(n)?;
            let (tag, empty) = (POSTED_FILLER | n, Buffer::default());
            self.fillers.push(if takes_any(self.case, n) {
                self.link.receive_any(tag, empty)
            } else {
                self.link.receive(tag, empty)
            });
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

    /// Until the fillers of both sides are where they should be. The other side looks when it is asked.
    fn meet(&mut self, go_on: &mut impl FnMut() -> bool) -> Result<(), MeasureError> {
        if self.role == Role::Peer {
            return Ok(());
        }
        self.await_fillers(go_on)?;
        if self.role == Role::Client {
            let back = self.link.receive(TOKEN, Buffer::zeroed(TOKEN_BYTES));
            self.finish_send(self.link.send(TOKEN, Self::READY.emit()))?;
            self.link.finish_while(back, go_on)?;
        }
        Ok(())
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Until the other side's fillers are all here.
    fn await_fillers(&self, go_on: &mut impl FnMut() -> bool) -> Result<(), MeasureError> {
        let (wanted, mut going) = (self.case.unexpected_depth, true);
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

    /// Until `count` messages wait beside the fillers, of which the last sent has the tag `last`.
    pub(super) fn await_unexpected(&self, count: u64, last: u64) -> Result<(), MeasureError> {
        let wanted = self.case.unexpected_depth + count;
        Ok(self.link.progress_until(SETUP_TIME, |link| link.are_waiting(wanted, last))?)
    }

    /// A batch, as the client or alone: prepared, run on all lanes, counted, checked. Gives the
    /// measured interval, and that of each lane.
    pub(crate) fn batch(&mut self, batch: Batch) -> Result<(Span, Vec<Span>), MeasureError> {
        self.parts.iter_mut().for_each(|part| part.prepare(&self.link, batch));
        if self.role == Role::Alone {
            self.before = self.link.matching();
        } else {
            self.begin(batch)?;
        }
        let spans = A::run_on_all(&self.link, &mut self.parts, |part, link| {
            traffic::run(part, link, batch)
        })?;
        // What the client receives of a stream are answers: none of them is measured.
        let receives = self.role != Role::Client || self.case.traffic != Traffic::Stream;
        self.end_batch(Batch { counts: batch.counts && receives, ..batch });
        let start = spans.iter().map(|span| span.start).min();
        let mut end = spans.iter().map(|span| span.end).max();
        if self.case.traffic == Traffic::Both {
            // What came is here; whether what went has arrived, the other side says.
            self.finish(self.link.receive(ANSWER, Buffer::default()))?;
            end = Some(std::time::Instant::now());
        }
        self.parts.iter_mut().try_for_each(|part| part.check(batch))?;
        let (Some(start), Some(end)) = (start, end) else { return Err(MeasureError::Token) };
        Ok((Span { start, end }, spans))
    }

    /// The same batch from the other side, which waited for it.
    pub(crate) fn answer(&mut self, batch: Batch) -> Result<(), MeasureError> {
        self.parts.iter_mut().for_each(|part| part.prepare(&self.link, batch));
        self.go(batch)?;
        A::run_on_all(&self.link, &mut self.parts, |part, link| traffic::run(part, link, batch))?;
        self.end_batch(batch);
        if self.case.traffic == Traffic::Both {
            self.finish_send(self.link.send(ANSWER, Buffer::default()))?;
        }
        self.parts.iter_mut().try_for_each(|part| part.check(batch))
    }

    /// No filler may ever have matched.
    pub(crate) fn check_fillers(&self, when: &'static str) -> Result<(), MeasureError> {
        let wanted = (self.case.posted_depth, self.case.unexpected_depth);
        let (posted, unexpected) = self.link.depths();
        let found = (posted, unexpected.unwrap_or(wanted.1));
        if found == wanted {
            return Ok(());
        }
        Err(MeasureError::Fillers { when, found, wanted })
    }

    /// The client begins a batch. Everything before it has arrived on the other side then.
    pub(crate) fn begin(&mut self, batch: Batch) -> Result<(), MeasureError> {
        let back = self.link.receive(TOKEN, Buffer::zeroed(TOKEN_BYTES));
        self.finish_send(self.link.send(TOKEN, batch.emit()))?;
        self.finish(back)?;
        self.before = self.link.matching();
        Ok(())
    }

    /// What says that there is no more.
    const LAST: Batch = Batch { messages: 0, counts: false, base_ns: 0 };
    /// What asks whether the other side has its fillers.
    const READY: Batch = Batch { counts: true, ..Self::LAST };

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
    }

    /// How the receives of all batches that count were matched.
    pub(crate) fn matched(&self) -> Matching {
        // A list that broke its rules at any other time is no better.
        Matching { list_faults: self.link.matching().list_faults, ..self.matched }
    }

    pub(crate) fn large_messages(&self) -> String {
        self.link.large_messages()
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
