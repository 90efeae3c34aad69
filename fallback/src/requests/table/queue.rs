//! The completion queue, as callers and engines use it.

use tagmatch_device::PeerId;

use super::{Ended, Requests};
use crate::error::{Fault, PeerFault};
use crate::requests::ends::EndList;
use crate::requests::line::{Line, RequestOwner, RequestPhase};
use crate::requests::request::{Completion, End, RequestId, Status};

impl Requests {
    /// Has the request's end told by [`Requests::take_ends`], with `context`, and by nothing else.
    /// A request that is over already has its end at once.
    #[inline(always)]
    pub fn queue(&mut self, request: RequestId, context: u64) {
        let index = request.index();
        let Some(line) = self.lines.get_mut(index as usize) else { return };
        if line.generation != request.generation() {
            return;
        }
        let is_over = line.is_over();
        if line.phase == RequestPhase::Posted {
            line.queue(context);
        } else {
            line.owner = RequestOwner::Queue;
            self.ends.set_context(index, context);
        }
        if is_over {
            self.push_end(index);
        }
    }

    /// A receive is no longer posted, or about to be: its context is kept where its envelope
    /// doesn't take its place.
    #[inline(always)]
    pub(crate) fn keep_context(&mut self, index: u32) {
        let line = self.lines.get(index as usize);
        if let Some(context) = line.and_then(Line::context) {
            self.ends.set_context(index, context);
        }
    }

    /// Whether the request is under way and its end goes to the completion queue.
    pub fn is_queued(&self, request: RequestId) -> bool {
        self.get(request).is_some_and(|line| line.owner == RequestOwner::Queue && !line.is_over())
    }

    /// Takes the oldest ends, as many as the list has room for, in the order in which they came.
    #[inline]
    pub fn take_ends(&mut self, list: &mut impl EndList) {
        while list.has_room()
            && let Some(index) = self.ends.pop(&self.lines)
        {
            let line = &mut self.lines[index as usize];
            if line.phase == RequestPhase::Done {
                let ended = Ended { line, index, free: &mut self.free, len: &mut self.len };
                let (status, buffer) = ended.take();
                list.done(self.ends.context(index), status, buffer);
            } else {
                list.rare(self.take_rare_end(index));
            }
        }
    }

    /// Whether [`Requests::take_ends`] would take any.
    #[inline(always)]
    pub fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Asks that [`Requests::take_woken`] name [`RequestId::NONE`] once there is an end. `false` if
    /// there is one already.
    pub fn watch_ends(&mut self) -> bool {
        self.ends.is_watched = self.ends.is_empty();
        self.ends.is_watched
    }

    /// From now on, the completion queue tells once of each peer that it is connected, and once
    /// that it is down.
    pub fn tell_peers(&mut self) {
        self.tells_peers = true;
    }

    #[cold]
    #[inline(never)]
    fn take_rare_end(&mut self, index: u32) -> End {
        let line = &self.lines[index as usize];
        let phase = line.phase;
        let peer = line.status().source;
        let fault = self.faults.remove(&index);
        let buffer = self.free_line(index);
        match (phase, fault) {
            (RequestPhase::PeerDown, Some(Fault::PeerDown { peer, fault })) => {
                End::PeerDown { peer, fault }
            }
            (_, Some(fault)) => {
                let context = self.ends.context(index);
                End::Operation { context, completion: Completion { result: Err(fault), buffer } }
            }
            (_, None) => End::PeerUp { peer },
        }
    }

    /// Ends a queued receive, whose line has its message, with success.
    #[inline(always)]
    pub(crate) fn end_later(&mut self, index: u32, status: &Status) {
        self.keep_context(index);
        self.lines[index as usize].finish(status);
        self.push_end(index);
    }

    /// Adds the line of a request that is over to the completion queue.
    #[inline(always)]
    pub(crate) fn push_end(&mut self, index: u32) {
        self.ends.push(&mut self.lines, index);
        if self.ends.is_watched {
            self.wake_for_ends();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_for_ends(&mut self) {
        self.ends.is_watched = false;
        self.woken.push(RequestId::NONE);
    }

    /// A peer is connected.
    pub(crate) fn peer_up(&mut self, peer: PeerId) {
        self.push_peer(RequestPhase::PeerUp, peer);
    }

    /// A peer is down, and everything that depends on it has ended.
    pub(crate) fn peer_down(&mut self, peer: PeerId, fault: PeerFault) {
        if let Some(index) = self.push_peer(RequestPhase::PeerDown, peer) {
            self.faults.insert(index, Fault::PeerDown { peer, fault });
        }
    }

    /// `None`: nobody wants to know, or the table is full.
    fn push_peer(&mut self, phase: RequestPhase, peer: PeerId) -> Option<u32> {
        if !self.tells_peers || peer == PeerId::ONESELF {
            return None;
        }
        let (request, line) = self.vacant()?.take();
        line.set_peer(phase, peer);
        self.push_end(request.index());
        Some(request.index())
    }
}
