//! Probes: looking for unexpected messages, and waiting for them.
//!
//! A message that arrives ends no request, so nothing tells who waits for it. So each wait is noted
//! with its pattern (`State::watch_message`), and every call that lets go of the worker looks for
//! the messages that are waited for. That costs a probe for each wait, and nothing without one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, mem};

use tagmatch_fallback::Fault;

use crate::access::{Access, Local, found_or_fault};
use crate::awaited::Awaited;
use crate::engine::WorkerEngine;
use crate::envelope::{Match, Status};
use crate::error::Error;
use crate::message::Message;
use crate::wait::{Limit, wait_within};
use crate::worker::WorkerOf;

impl<A: Access> WorkerOf<A> {
    /// The envelope of the oldest waiting message that matches, if one is there. The message stays
    /// where it is: on a [`SharedWorker`](crate::SharedWorker) another thread may take it before
    /// you do. Makes progress first.
    ///
    /// # Errors
    /// No message matches, and none will: the peer that is named is down or belongs to another
    /// worker, or the device can't carry a message that matches. A message of a peer that is down
    /// is found as long as one is there.
    pub fn probe(&self, which: impl Into<Match>) -> Result<Option<Status>, Error> {
        let which = which.into();
        let found = self.look(&which, |engine| engine.as_dyn_mut().probe(which.pattern()))?;
        Ok(found.map(|status| self.status(status)))
    }

    /// Takes the oldest waiting message that matches, if one is there: no other probe or receive,
    /// of whatever thread, finds the message any more (MPI-4.1 section 3.8.2). It is to be received
    /// or dropped. Makes progress first.
    ///
    /// # Errors
    /// As for [`probe`](Self::probe).
    pub fn mprobe(&self, which: impl Into<Match>) -> Result<Option<Message<A>>, Error> {
        let which = which.into();
        let found =
            self.look(&which, |engine| engine.as_dyn_mut().matched_probe(which.pattern()))?;
        Ok(found.map(|(id, status)| Message::new(&self.access, id, self.status(status))))
    }

    /// Blocks until the oldest message that matches is there; it stays where it is.
    ///
    /// # Errors
    /// The peer that is named is down, or the device carries no message that would match.
    pub fn probe_blocking(&self, which: impl Into<Match>) -> Result<Status, Error> {
        let which = which.into();
        loop {
            if let Some(status) = self.probe_within(which, &Limit::NONE)? {
                return Ok(status);
            }
        }
    }

    /// As [`probe_blocking`](Self::probe_blocking), for a limited time. `None`: no such message was
    /// there when the time was over, or when the worker was interrupted
    /// ([`Interrupter`](crate::Interrupter)).
    ///
    /// # Errors
    /// As for [`probe_blocking`](Self::probe_blocking).
    pub fn probe_timeout(
        &self,
        which: impl Into<Match>,
        timeout: Duration,
    ) -> Result<Option<Status>, Error> {
        self.probe_within(which.into(), &self.limit(timeout))
    }

    /// Blocks until the oldest message that matches is there, and takes it.
    ///
    /// # Errors
    /// The peer that is named is down, or the device carries no message that would match.
    pub fn mprobe_blocking(&self, which: impl Into<Match>) -> Result<Message<A>, Error> {
        let which = which.into();
        loop {
            if let Some(message) = self.mprobe_within(which, &Limit::NONE)? {
                return Ok(message);
            }
        }
    }

    /// As [`mprobe_blocking`](Self::mprobe_blocking), for a limited time. `None`: no such message
    /// was there when the time was over, or when the worker was interrupted
    /// ([`Interrupter`](crate::Interrupter)); none was taken.
    ///
    /// # Errors
    /// As for [`mprobe_blocking`](Self::mprobe_blocking).
    pub fn mprobe_timeout(
        &self,
        which: impl Into<Match>,
        timeout: Duration,
    ) -> Result<Option<Message<A>>, Error> {
        self.mprobe_within(which.into(), &self.limit(timeout))
    }

    /// The oldest message that matches, as a future: it takes the message once there is one. For
    /// tasks that receive messages of unknown length; [`Message::recv_whole`] receives all of it.
    /// As for a [`Request`](crate::Request), something else has to make progress meanwhile. Several
    /// tasks may wait for the same messages: each message goes to one of them. Dropping the future
    /// ends the wait, and takes no message.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tagmatch::{Config, Match, SharedWorker};
    ///
    /// async fn exchange() -> Result<(), Box<dyn std::error::Error>> {
    ///     let (server, client) =
    ///         (SharedWorker::new(Config::default())?, SharedWorker::new(Config::default())?);
    ///     let address = server.address();
    ///     let _progress = (server.progress_thread()?, client.progress_thread()?);
    ///     let serving = tokio::spawn(async move {
    ///         let request = server.mprobe_async(Match::tag(1)).await?.recv_whole().await?;
    ///         server.send(request.status.source, 2, request.buffer).await?;
    ///         Ok::<_, tagmatch::Error>(())
    ///     });
    ///     let peer = client.connect(&address)?;
    ///     client.send(peer, 1, b"a request of any length".to_vec()).await?;
    ///     let answer = client.mprobe_async(Match::tag(2).from(peer)).await?.recv_whole().await?;
    ///     assert_eq!(answer.data(), b"a request of any length");
    ///     serving.await??;
    ///     Ok(())
    /// }
    ///
    /// tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?.block_on(exchange())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`mprobe_blocking`](Self::mprobe_blocking), when it is awaited.
    pub fn mprobe_async(&self, which: impl Into<Match>) -> MprobeFuture<A> {
        let which = which.into();
        let ended = self.check(&which).err();
        MprobeFuture { access: self.access.clone(), which, watched: None, ended }
    }

    fn probe_within(&self, which: Match, limit: &Limit<'_>) -> Result<Option<Status>, Error> {
        let find = |engine: &mut WorkerEngine| engine.as_dyn_mut().probe(which.pattern());
        let status = self.wait_for_message(&which, limit, find)?;
        Ok(status.map(|status| self.status(status)))
    }

    fn mprobe_within(&self, which: Match, limit: &Limit<'_>) -> Result<Option<Message<A>>, Error> {
        let find = |engine: &mut WorkerEngine| engine.as_dyn_mut().matched_probe(which.pattern());
        let found = self.wait_for_message(&which, limit, find)?;
        Ok(found.map(|(id, status)| Message::new(&self.access, id, self.status(status))))
    }

    fn status(&self, status: tagmatch_fallback::Status) -> Status {
        Status::new(status, self.access.fixed().worker)
    }

    fn look<R>(
        &self,
        which: &Match,
        find: impl FnOnce(&mut WorkerEngine) -> Result<Option<R>, Fault>,
    ) -> Result<Option<R>, Error> {
        self.check(which)?;
        let found = self.access.with(|state| {
            state.progress();
            found_or_fault(&mut state.engine, which.pattern(), find).transpose()
        });
        found.map_err(|fault| self.error(fault))
    }

    fn wait_for_message<R>(
        &self,
        which: &Match,
        limit: &Limit<'_>,
        mut find: impl FnMut(&mut WorkerEngine) -> Result<Option<R>, Fault>,
    ) -> Result<Option<R>, Error> {
        self.check(which)?;
        let pattern = which.pattern();
        let awaited = Awaited::Message(*which.pattern());
        let found = wait_within(&self.access, awaited, limit, |state| {
            (state.progress(), found_or_fault(&mut state.engine, pattern, &mut find))
        });
        found.transpose().map_err(|fault| self.error(fault))
    }
}

/// A wait for a message, which takes it: see [`mprobe_async`](WorkerOf::mprobe_async).
#[must_use = "it waits for a message only while it is awaited"]
pub struct MprobeFuture<A: Access = Local> {
    access: A,
    which: Match,
    /// The number of the wait, from a poll that has found nothing on.
    watched: Option<u64>,
    /// The result of further polls.
    ended: Option<Error>,
}

impl<A: Access> Future for MprobeFuture<A> {
    type Output = Result<Message<A>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let MprobeFuture { access, which, watched, ended } = &mut *self;
        if let Some(error) = ended {
            return Poll::Ready(Err(mem::replace(error, Error::AlreadyTaken)));
        }
        let pattern = which.pattern();
        let waker = context.waker().clone();
        let mut replaced = None;
        let found = access.with(|state| {
            state.progress();
            replaced = watched.take().and_then(|number| state.unwatch_message(number));
            let engine = &mut state.engine;
            let found = found_or_fault(engine, pattern, |engine| {
                engine.as_dyn_mut().matched_probe(pattern)
            });
            if found.is_none() {
                *watched = Some(state.watch_message(*pattern, waker));
            }
            found
        });
        // Dropped outside of the lock, since its drop is code that this crate does not know.
        drop(replaced);
        let Some(found) = found else { return Poll::Pending };
        *ended = Some(Error::AlreadyTaken);
        let worker = access.fixed().worker;
        Poll::Ready(match found {
            Ok((id, status)) => Ok(Message::new(access, id, Status::new(status, worker))),
            Err(fault) => Err(Error::from_fault(fault, worker)),
        })
    }
}

impl<A: Access> Drop for MprobeFuture<A> {
    fn drop(&mut self) {
        let Some(number) = self.watched else { return };
        let mut waker = None;
        self.access.with_unless_forked(|state| waker = state.unwatch_message(number));
        // Dropped outside of the lock.
        drop(waker);
    }
}

impl<A: Access> fmt::Debug for MprobeFuture<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MprobeFuture").field(&self.which).finish()
    }
}
