//! How the requests of a queue pair end: in their order, by the answers of the peer, or because the
//! queue pair ends.

use std::sync::Arc;
use std::time::Instant;

use super::adapter::{Adapter, ScatterError};
use super::packet::{Body, Request, has_right_lengths, is_up_to};
use super::queue_pair::{Ends, Qp, Receives, State, TagRequest, not_ready_time};
use super::send::TagNotice;
use crate::abi::event;
use crate::cqe::{Cqe, Opcode, Syndrome};
use crate::memory::Memory;

fn kind_of(end: &Ends) -> Option<TagNotice> {
    match *end {
        Ends::TagRead { handle, .. } => Some(TagNotice::ReadDone(handle, false)),
        Ends::TagFin { handle } => Some(TagNotice::FinDone(handle, false)),
        Ends::Wqe { .. } => None,
    }
}

impl Qp {
    /// Takes an answer of the peer.
    pub(crate) fn hear_answer<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        mtu: u16,
        body: Body,
    ) -> Vec<TagNotice> {
        match body {
            Body::Acknowledge { psn } => {
                let is_new = (self.outstanding.front()).is_some_and(|sent| is_up_to(sent.psn, psn));
                for sent in &mut self.outstanding {
                    sent.is_done |= is_up_to(sent.psn, psn) && !sent.request.is_answered();
                }
                if is_new {
                    self.progressed();
                }
            }
            Body::Data { psn, bytes } => return self.hear_data(adapter, mtu, psn, &bytes),
            Body::Missing { psn } => return self.hear_missing(adapter, psn),
            Body::NotReady { psn, timer } => {
                let Some(front) = self.outstanding.front() else { return Vec::new() };
                if !is_up_to(front.psn, psn) || self.resend_at.is_some() {
                    return Vec::new();
                }
                if self.rnr_retries == 0 {
                    return self.fail_at(adapter, psn, Syndrome::RnrRetriesExceeded);
                }
                // 7 is for ever.
                self.rnr_retries -= u8::from(self.rnr_retries < 7);
                self.resend_at = Some(Instant::now() + not_ready_time(timer));
                self.deadline = None;
            }
            Body::Refused { psn, why } => return self.fail_at(adapter, psn, why),
            Body::Request { .. } | Body::Datagram { .. } => {}
        }
        self.end_done(adapter)
    }

    /// The peer has answered: it lives, and has buffers.
    pub(super) fn progressed(&mut self) {
        self.retries = self.attributes.0.retry_cnt;
        self.rnr_retries = self.attributes.0.rnr_retry;
        self.wait_for_answer();
    }

    /// The peer lacks a request, and has carried out those before it. InfiniBand 9.9.2.4.1: to send
    /// again is one of the retries.
    fn hear_missing<M: Memory>(&mut self, adapter: &mut Adapter<M>, psn: u32) -> Vec<TagNotice> {
        let is_under_way = self.outstanding.iter().any(|sent| sent.psn == psn && !sent.is_done);
        if !is_under_way || self.resend_at.is_some() {
            return Vec::new();
        }
        let mut is_news = false;
        for sent in self.outstanding.iter_mut().take_while(|sent| sent.psn != psn) {
            is_news |= !sent.is_done && !sent.request.is_answered();
            sent.is_done |= !sent.request.is_answered();
        }
        if is_news {
            self.progressed();
        }
        let notices = self.end_done(adapter);
        if self.retries == 0 {
            return [notices, self.fail_at(adapter, psn, Syndrome::RetriesExceeded)].concat();
        }
        self.retries -= 1;
        self.resend(adapter);
        notices
    }

    fn hear_data<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        mtu: u16,
        psn: u32,
        bytes: &Arc<[u8]>,
    ) -> Vec<TagNotice> {
        // The answer of a READ acknowledges all requests before it.
        for sent in &mut self.outstanding {
            sent.is_done |=
                is_up_to(sent.psn, psn) && sent.psn != psn && !sent.request.is_answered();
        }
        let pd = self.facts.pd;
        let wanted = self.outstanding.iter_mut().find(|sent| sent.psn == psn && !sent.is_done);
        let Some(sent) = wanted.filter(|sent| sent.request.is_answered()) else {
            return Vec::new();
        };
        let expected = match sent.request {
            Request::Read { length, .. } => length as usize,
            _ => 8,
        };
        if bytes.len() != expected {
            return Vec::new();
        }
        if !has_right_lengths(bytes.len() as u64, mtu, self.attributes.mtu()) {
            return self.fail_at(adapter, psn, Syndrome::BadResponse);
        }
        sent.is_done = true;
        let landed = adapter.scatter(pd, &sent.into.segments, sent.into.offset, bytes);
        self.progressed();
        match landed {
            Ok(()) => self.end_done(adapter),
            Err(ScatterError::TooShort) => self.fail_at(adapter, psn, Syndrome::LocalLength),
            Err(ScatterError::Denied) => self.fail_at(adapter, psn, Syndrome::LocalProtection),
        }
    }

    /// Ends the requests that are done, in their order.
    pub(super) fn end_done<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> Vec<TagNotice> {
        let mut notices = Vec::new();
        while self.outstanding.front().is_some_and(|sent| sent.is_done) {
            let Some(sent) = self.outstanding.pop_front() else { break };
            match sent.ends {
                Ends::TagRead { handle, is_last: true } => {
                    notices.push(TagNotice::ReadDone(handle, true));
                }
                Ends::TagRead { .. } => {}
                Ends::TagFin { handle } => notices.push(TagNotice::FinDone(handle, true)),
                ends => self.succeed(adapter, &ends),
            }
        }
        if self.outstanding.is_empty() {
            self.deadline = None;
        }
        notices
    }

    /// A request of the program has succeeded.
    pub(super) fn succeed<M: Memory>(&self, adapter: &mut Adapter<M>, ends: &Ends) {
        if let Ends::Wqe { index, opcode, length, is_signalled: true, is_last: true } = *ends {
            let cqe = Cqe::new(Opcode::Request, self.facts.user_index)
                .queue_pair(opcode, self.facts.number)
                .counter(index)
                .length(length);
            adapter.complete(self.facts.send_cq, &cqe);
        }
    }

    /// The request with this number has failed.
    fn fail_at<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        psn: u32,
        why: Syndrome,
    ) -> Vec<TagNotice> {
        for sent in &mut self.outstanding {
            // Those before it were carried out.
            sent.is_done |= is_up_to(sent.psn, psn) && sent.psn != psn;
        }
        let mut notices = self.end_done(adapter);
        if self.outstanding.front().is_some_and(|front| front.psn == psn) {
            notices.extend(self.fail_front(adapter, why));
        }
        notices
    }

    /// The oldest request has failed.
    pub(super) fn fail_front<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        why: Syndrome,
    ) -> Vec<TagNotice> {
        let front = self.outstanding.pop_front();
        match front.as_ref().map(|front| front.ends) {
            Some(Ends::Wqe { index, opcode, .. }) => {
                self.drop_parts(index);
                self.fail(adapter, Some((index, opcode)), why)
            }
            Some(ends) => {
                let mut notices: Vec<_> = kind_of(&ends).into_iter().collect();
                notices.extend(self.fail(adapter, None, why));
                notices
            }
            None => Vec::new(),
        }
    }

    /// Other parts of a request that has failed are not reported.
    fn drop_parts(&mut self, index: u16) {
        self.parts = self.parts.take().filter(|parts| parts.index != index);
        self.outstanding
            .retain(|sent| !matches!(sent.ends, Ends::Wqe { index: of, .. } if of == index));
    }

    /// A request of the program has failed, or one of the device: the queue pair is in error.
    pub(crate) fn fail<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        wqe: Option<(u16, u8)>,
        why: Syndrome,
    ) -> Vec<TagNotice> {
        if let Some((index, opcode)) = wqe {
            let cqe = Cqe::error(Opcode::RequestError, self.facts.user_index, why)
                .queue_pair(opcode, self.facts.number)
                .counter(index);
            adapter.complete(self.facts.send_cq, &cqe);
            if self.sq.next == index {
                self.skip(adapter);
            }
        }
        self.enter_error(adapter)
    }

    /// Goes past the request that stands next in the queue.
    fn skip<M: Memory>(&mut self, adapter: &mut Adapter<M>) {
        let blocks = self.fetch(adapter).map_or(1, |(_, blocks)| blocks);
        self.sq.next = self.sq.next.wrapping_add(blocks);
    }

    fn flush_one<M: Memory>(&self, adapter: &mut Adapter<M>, index: u16, opcode: u8) {
        let cqe = Cqe::error(Opcode::RequestError, self.facts.user_index, Syndrome::Flushed)
            .queue_pair(opcode, self.facts.number)
            .counter(index);
        adapter.complete(self.facts.send_cq, &cqe);
    }

    fn flush_outstanding<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> Vec<TagNotice> {
        let mut notices = Vec::new();
        let mut last = None;
        for sent in std::mem::take(&mut self.outstanding) {
            match sent.ends {
                Ends::Wqe { index, opcode, .. } if last != Some(index) => {
                    last = Some(index);
                    self.flush_one(adapter, index, opcode);
                }
                Ends::Wqe { .. } => {}
                ends => notices.extend(kind_of(&ends)),
            }
        }
        if let Some(parts) = self.parts.take()
            && last != Some(parts.index)
        {
            self.flush_one(adapter, parts.index, parts.opcode);
        }
        notices
    }

    /// Puts the queue pair into error, if it isn't: nothing more is sent or received, and all that
    /// was posted is flushed.
    pub(crate) fn enter_error<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> Vec<TagNotice> {
        if self.state == State::Error {
            return Vec::new();
        }
        self.state = State::Error;
        let mut notices = self.flush_outstanding(adapter);
        for request in std::mem::take(&mut self.tag_requests) {
            notices.push(match request {
                TagRequest::Read { handle, .. } => TagNotice::ReadDone(handle, false),
                TagRequest::Fin { handle, .. } => TagNotice::FinDone(handle, false),
            });
        }
        (self.deadline, self.resend_at) = (None, None);
        if let Some(wire) = &mut self.wire {
            wire.stop();
        }
        self.flush(adapter);
        notices
    }

    /// Flushes what is posted to a queue pair in error.
    pub(super) fn flush<M: Memory>(&mut self, adapter: &mut Adapter<M>) -> bool {
        let mut was_busy = false;
        while self.sq.next != self.sq.posted {
            let index = self.sq.next;
            let waiting = self.sq.posted.wrapping_sub(index);
            let fetched = self.fetch(adapter);
            if adapter.is_gone || u32::from(waiting) > self.sq.size {
                break;
            }
            let opcode = fetched.as_ref().map_or(0, |(bytes, _)| bytes[3]);
            let blocks = fetched.map_or(1, |(_, blocks)| blocks).min(waiting);
            self.flush_one(adapter, index, opcode);
            self.sq.next = index.wrapping_add(blocks);
            was_busy = true;
        }
        if let Receives::Own(queue) = &mut self.receives {
            while let Some(index) = queue.flush() {
                let user_index = self.facts.user_index;
                let cqe = Cqe::error(Opcode::ReceiveError, user_index, Syndrome::Flushed)
                    .queue_pair(0, self.facts.number)
                    .counter(index);
                adapter.complete(self.facts.recv_cq, &cqe);
                was_busy = true;
            }
        } else if !self.is_flushed {
            // No receive of a shared queue is given to this queue pair any more.
            self.notice(adapter, event::QP_LAST_WQE_REACHED);
        }
        self.is_flushed = true;
        was_busy
    }
}
