//! Receiving messages that wait, and telling an observer of what waits.

use tagmatch_device::Buffer;
use tagmatch_soft::Pattern;

use crate::core::Core;
use crate::error::Fault;
use crate::observer::{ListObserver, Observer};
use crate::receiving::unexpected::UnexpectedMessage;
use crate::requests::request::{MessageId, Posted, RequestId, refuse};
use crate::requests::table::REQUESTS_MAX;

impl Core {
    /// See [`MatchEngine::observe`](crate::MatchEngine::observe).
    pub(crate) fn observe(&mut self, mut observer: Box<dyn ListObserver>) {
        observer.source_bits(self.source_bits);
        let state = &mut self.state;
        for (_, pattern, receive) in state.posted.iter_in_order() {
            let line = state.requests.matched(receive).map(|matched| &*matched.line);
            let length = line.map_or(0, |line| line.buffer.total_len() as u64);
            observer.posted(receive, &pattern, length, false);
        }
        for (message, status) in state.unexpected.statuses() {
            observer.unexpected(message, &status);
        }
        state.observer = Observer(Some(observer));
        self.leaves_short_way = true;
    }

    /// A receive has found an unexpected message, of which an observer is told. `length`: of its
    /// buffer.
    #[inline(never)]
    pub(super) fn found_observed(
        &mut self,
        index: u32,
        pattern: &Pattern,
        length: usize,
        is_sole: bool,
    ) {
        let length = length as u64;
        self.state.observer.tell(|observer| observer.found(index, pattern, length, is_sole));
    }

    /// A receive was posted, of which an observer and the NIC's side are told.
    #[inline(never)]
    pub(super) fn posted_observed(&mut self, request: RequestId, pattern: &Pattern, is_sole: bool) {
        let Core { state, offload, .. } = self;
        let line = state.requests.get(request);
        let length = line.map_or(0, |line| line.buffer.total_len() as u64);
        let index = request.index();
        state.observer.tell(|observer| observer.posted(index, pattern, length, is_sole));
        if let Some(offload) = offload {
            offload.posted(state, request, pattern, is_sole);
        }
    }

    #[inline(never)]
    pub(crate) fn receive_unexpected(
        &mut self,
        index: u32,
        buffer: Buffer,
        context: Option<u64>,
    ) -> Posted {
        let posted = match self.state.unexpected.remove_index(index) {
            Some(message) => self.deliver(message, buffer),
            None => refuse(Fault::NoSuchMessage, buffer),
        };
        if let (Ok(request), Some(context)) = (&posted, context) {
            self.state.requests.queue(*request, context);
        }
        posted
    }

    /// Receives a message that a matched probe took.
    pub(crate) fn receive_message(&mut self, id: MessageId, buffer: Buffer) -> Posted {
        if !buffer.is_writable() {
            return refuse(Fault::ReadOnlyBuffer, buffer);
        }
        match self.state.unexpected.remove_probed(id.0) {
            Some(message) => {
                let length = buffer.total_len() as u64;
                self.state.observer.tell(|observer| observer.received(id.0.index, length));
                self.deliver(message, buffer)
            }
            None => refuse(Fault::NoSuchMessage, buffer),
        }
    }

    /// Puts an unexpected message into a buffer.
    #[inline]
    fn deliver(&mut self, message: UnexpectedMessage, buffer: Buffer) -> Posted {
        let state = &mut self.state;
        state.counters.unexpected += 1;
        if message.is_lost() {
            return refuse(state.down(message.source), buffer);
        }
        let Some(request) = state.requests.begin() else {
            state.discard(message);
            return refuse(Fault::TooMany { limit: REQUESTS_MAX }, buffer);
        };
        state.fill(request, message, buffer);
        Ok(request)
    }

    /// Drops a message that a matched probe took; `false` if there is no such message.
    pub(crate) fn discard_message(&mut self, id: MessageId) -> bool {
        let message = self.state.unexpected.remove_probed(id.0);
        let Some(message) = message else { return false };
        self.state.observer.tell(|observer| observer.discarded(id.0.index));
        self.state.discard(message);
        true
    }
}
