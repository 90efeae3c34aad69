//! The results of requests.

use tagmatch_device::Buffer;
use tagmatch_fallback::{Completion, Fault, MatchEngine, RequestId, Status};

use super::World;
use super::calls::joined;
use crate::adapter::Adapter;
use crate::violation::{Rule, Verdict, Violation, ensure};
use crate::worker::Purpose;

impl<A: Adapter> World<'_, A> {
    /// Takes the results of requests that have ended.
    pub(super) fn take(&mut self, at: usize, over: &[RequestId]) -> Verdict {
        let ended: Result<_, _> = over.iter().map(|&request| self.result(at, request)).collect();
        self.check_ends(at, ended?)
    }

    /// Checks how requests have ended.
    pub(super) fn check_ends(&mut self, at: usize, ended: Vec<(Purpose, Completion)>) -> Verdict {
        let now = self.net.borrow_mut().tick();
        let mut received = Vec::with_capacity(ended.len());
        let mut others = Vec::new();
        for (what, mut completion) in ended {
            completion.buffer = joined(completion.buffer)?;
            match (what, completion.result) {
                (Purpose::Receive(receive), Ok(status)) => {
                    let message = self.delivered(at, None, &status, completion.buffer)?;
                    received.push((receive, message));
                }
                _ => others.push((what, completion)),
            }
        }
        self.counts.received += received.len() as u64;
        self.oracle.received(&received, now)?;
        for &(receive, message) in &received {
            self.history.fact(u64::from(receive), 6 << 40 | u64::from(message));
            self.history.line(|| format!("    r{receive} got m{message} at {now}"));
        }
        for (what, completion) in others {
            self.history.line(|| format!("    {what:?}: {:?} at {now}", completion.result));
            match what {
                Purpose::Receive(receive) => self.receive_failed(at, receive, completion, now)?,
                Purpose::Message(message) => self.message_ended(at, message, completion)?,
                Purpose::Send(message) => self.send_ended(at, message, completion, now)?,
            }
        }
        Ok(())
    }

    pub(super) fn result(
        &mut self,
        at: usize,
        request: RequestId,
    ) -> Result<(Purpose, Completion), Violation> {
        let worker = &mut self.workers[at];
        let node = worker.node;
        let unknown = || Violation::new(Rule::Twice, format!("n{node}: {request:?} is over again"));
        let what = worker.requests.remove(request).ok_or_else(unknown)?;
        let lost =
            || Violation::new(Rule::Lost, format!("n{node}: {what:?} is over, has no result"));
        let engine = worker.engine.as_mut().ok_or_else(lost)?;
        let completion = engine.requests_mut().take(request).ok_or_else(lost)?;
        ensure!(
            !engine.requests().exists(request),
            Twice,
            "n{node}: {what:?} is there after its end"
        );
        self.counts.calls += 1;
        self.counts.completions += 1;
        Ok((what, completion))
    }

    /// Checks a received message: its envelope and its bytes.
    fn delivered(
        &mut self,
        at: usize,
        expected: Option<u32>,
        status: &Status,
        buffer: Buffer,
    ) -> Result<u32, Violation> {
        let from = self.node_of(at, status.source)?;
        // The message of a matched probe is known, and no other receive can find it any more.
        let message = match expected {
            Some(message) => {
                self.oracle.is_told(message, from, status)?;
                message
            }
            None => self.oracle.identify(self.workers[at].node, from, status)?,
        };
        let length = self.oracle.message(message).length;
        let truncated = length as usize > buffer.len();
        ensure!(status.truncated == truncated, Status, "m{message}: {status:?} in {buffer:?}");
        let is_right = self.buffers.holds(&buffer, message, length);
        ensure!(is_right, Payload, "m{message} of {length} bytes is wrong in {buffer:?}");
        self.buffers.recycle(buffer);
        Ok(message)
    }

    fn receive_failed(
        &mut self,
        at: usize,
        receive: u32,
        completion: Completion,
        now: u64,
    ) -> Verdict {
        self.history.fact(u64::from(receive), 7 << 40);
        let untouched = self.buffers.is_untouched(&completion.buffer);
        self.buffers.recycle(completion.buffer);
        match completion.result.err().unwrap_or(Fault::Closed) {
            Fault::Cancelled => {
                ensure!(untouched, Payload, "r{receive} was cancelled, its buffer written");
                self.oracle.cancelled(receive)
            }
            Fault::Closed => {
                let is_closing = self.ended.contains(&self.workers[at].node);
                ensure!(is_closing, Fault, "r{receive} ended with a worker that is open");
                self.oracle.closed(receive)
            }
            Fault::ReadFailed { errno, .. } => self.oracle.read_failed(receive, errno, now),
            Fault::PeerDown { peer, fault } => {
                self.is_explained(fault)?;
                let from = self.node_of(at, peer)?;
                let is_down = self.may_be_down(at, from);
                self.oracle.receive_down(receive, from, is_down)
            }
            Fault::WrongSender { named, sender } => {
                let named = self.node_of(at, named)?;
                let sender = self.node_of(at, sender)?;
                self.oracle.wrong_sender(receive, named, sender)
            }
            other => Err(Violation::new(Rule::Fault, format!("r{receive} ended with: {other}"))),
        }
    }

    /// Whether one of the two has ended, or broken with the other.
    pub(super) fn may_be_down(&self, at: usize, other: u32) -> bool {
        let node = self.workers[at].node;
        [node, other].iter().any(|node| self.ended.contains(node))
            || self.broken.contains(&(node, other))
            || self.broken.contains(&(other, node))
    }

    fn message_ended(&mut self, at: usize, message: u32, completion: Completion) -> Verdict {
        self.history.fact(u64::from(message), 8 << 40);
        match completion.result {
            Ok(status) => self.delivered(at, Some(message), &status, completion.buffer).map(|_| ()),
            Err(Fault::ReadFailed { errno, .. }) => self.oracle.message_failed(message, errno),
            Err(Fault::PeerDown { peer, fault }) => {
                self.is_explained(fault)?;
                let from = self.node_of(at, peer)?;
                let is_down = self.may_be_down(at, from);
                ensure!(is_down, Fault, "m{message} was lost with n{from}, which is up");
                Ok(())
            }
            Err(other) => {
                Err(Violation::new(Rule::Fault, format!("m{message} ended with: {other}")))
            }
        }
    }

    fn send_ended(&mut self, at: usize, message: u32, completion: Completion, now: u64) -> Verdict {
        self.history.fact(u64::from(message), 9 << 40);
        let length = self.oracle.message(message).length;
        self.returned(message, length, &completion.buffer)?;
        self.buffers.recycle(completion.buffer);
        match completion.result {
            Ok(status) => {
                let to = self.node_of(at, status.source)?;
                self.oracle.is_sent(message, to, &status)?;
                self.oracle.send_done(message, now)
            }
            Err(Fault::NotRead { errno: 0, .. }) if !self.adapter.software_decides() => {
                self.oracle.not_taken(message)
            }
            Err(Fault::NotRead { errno, .. }) => self.oracle.message_failed(message, errno),
            Err(Fault::PeerDown { peer, fault }) => {
                self.is_explained(fault)?;
                let to = self.node_of(at, peer)?;
                let is_down = self.may_be_down(at, to);
                ensure!(is_down, Fault, "the send of m{message} ended with n{to}, which is up");
                Ok(())
            }
            Err(other) => Err(Violation::new(
                Rule::Fault,
                format!("the send of m{message} ended with: {other}"),
            )),
        }
    }
}
