//! Probes.

use super::communicator::Comm;
use super::envelope::{Source, Status, TagChoice};
use super::message::{Message, MessageBody};
use crate::driver::{DriverState, Waiting};
use crate::error::Error;
use crate::net::{Envelope, Net, Pattern};

impl<N: Net> Comm<N> {
    /// The envelope of the oldest unexpected message that matches. The message stays where it is.
    ///
    /// # Errors
    /// No such rank or tag; the rank is down and has left no such message; or, from any source, a
    /// member has failed whose failure was not acknowledged.
    pub fn probe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Option<Status>, Error> {
        let found = self.look(from.into(), tag.into(), |net, pattern| {
            let envelope = net.probe(pattern)?;
            // A message with a forged rank is discarded. Otherwise every probe from now on would
            // find it.
            if self.status(&envelope).is_err() {
                drop(net.matched_probe(pattern));
            }
            Some(((), envelope))
        });
        self.raise(found).map(|found| found.map(|(_, status)| status))
    }

    /// Takes the oldest unexpected message that matches: no other call finds it any more. From
    /// [`Source::NoProcess`] there is always an empty message.
    ///
    /// # Errors
    /// As for [`probe`](Self::probe).
    pub fn mprobe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Option<Message<N>>, Error> {
        let found = self.raise(self.look(from.into(), tag.into(), N::matched_probe))?;
        Ok(found.map(|(message, status)| {
            let body = message.map_or(MessageBody::NoProcess, MessageBody::Net);
            Message::new(self.clone(), body, status)
        }))
    }

    /// Blocks until there is a message that matches, and gives its envelope.
    ///
    /// # Errors
    /// As for [`probe`](Self::probe).
    pub fn probe_blocking(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Status, Error> {
        let from = from.into();
        let tag = tag.into();
        self.until(|| self.probe(from, tag))
    }

    /// Blocks until there is a message that matches, and takes it.
    ///
    /// # Errors
    /// As for [`probe`](Self::probe).
    pub fn mprobe_blocking(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Message<N>, Error> {
        let from = from.into();
        let tag = tag.into();
        self.until(|| self.mprobe(from, tag))
    }

    fn until<R>(&self, look: impl Fn() -> Result<Option<R>, Error>) -> Result<R, Error> {
        let mut waiting = Waiting::new(self.driver());
        let reports_messages = self.driver().lock().net.reports_messages();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if !reports_messages {
                waiting.poll_soon();
            }
            waiting.rest();
        }
    }

    /// Makes progress, and looks among the unexpected messages.
    fn look<M>(
        &self,
        from: Source,
        tag: TagChoice,
        take: impl FnOnce(&mut N, Pattern) -> Option<(M, Envelope)>,
    ) -> Result<Option<(Option<M>, Status)>, Error> {
        self.usable()?;
        let Some(pattern) = self.pattern(from, tag)? else {
            return Ok(Some((None, Status::NO_PROCESS)));
        };
        self.driver().progress();
        self.usable()?;
        let DriverState { net, ft, .. } = &mut *self.driver().lock();
        self.watch(net, &pattern);
        if let Some(from) = pattern.from {
            ft.greet(net, from);
        }
        if let Some((found, envelope)) = take(net, pattern) {
            ft.compare(net, envelope.from)?;
            let status = self.status(&envelope)?;
            return Ok(Some((Some(found), status)));
        }
        if pattern.from.is_none() && self.inner.life.has_news() {
            return Err(Error::ProcessFailedPending);
        }
        let down = pattern.from.filter(|process| net.is_down(*process));
        down.map_or(Ok(None), |process| {
            Err(Error::ProcessFailed { rank: self.peers().rank(process) })
        })
    }
}
