//! What all queue pairs of a program share: memory, completion queues, shared receive queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::completion_queue::Cq;
use super::counts::Counts;
use super::fabric::{Fabric, Inbox};
use super::receive_queue::Srq;
use super::region::Regions;
use crate::boundary::Kept;
use crate::channel::Channel;
use crate::cqe::Cqe;
use crate::doorbells::Doorbells;
use crate::memory::{Memory, MemoryError};
use crate::settings::Settings;
use crate::wqe::Segment;

/// What a device knows of a program that has opened it.
#[derive(Debug)]
pub(crate) struct Context {
    /// The device, from 0.
    pub(crate) device: usize,
    /// How often the device had been lost when it was opened.
    pub(crate) losses: u32,
    /// The device was lost since it was opened.
    pub(crate) is_lost: bool,
    pub(crate) async_events: Option<Arc<Channel>>,
    pub(crate) kept: Option<Kept>,
    pub(crate) doorbells: Doorbells,
    /// A register was written to since all records were read.
    pub(crate) has_rung: bool,
    /// Something has happened in it, and more may follow soon: it is looked at in each turn.
    pub(crate) warm_until: Instant,
}

/// An asynchronous event that is about to be said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsyncNotice {
    pub(crate) context: i32,
    pub(crate) element: u64,
    pub(crate) event_type: u32,
}

/// Why a message could not be put into the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScatterError {
    /// The segments are too short.
    TooShort,
    /// A key doesn't allow it, or the memory is gone.
    Denied,
}

/// How long a context is looked at in each turn after something has happened in it.
const WARM: Duration = Duration::from_millis(1);

impl Context {
    pub(crate) fn warm(&mut self, now: Instant) {
        self.warm_until = now + WARM;
    }
}

pub(crate) struct Adapter<M> {
    pub(crate) memory: M,
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) inbox: Inbox,
    pub(crate) settings: Arc<Settings>,
    pub(crate) contexts: BTreeMap<i32, Context>,
    pub(crate) regions: Regions,
    pub(crate) cqs: BTreeMap<u32, Cq>,
    pub(crate) srqs: BTreeMap<u32, Srq>,
    pub(crate) counts: Counts,
    pub(crate) notices: Vec<AsyncNotice>,
    /// Completion queues that were overrun, whose queue pairs are to fail.
    pub(crate) overrun: Vec<u32>,
    /// The process has ended.
    pub(crate) is_gone: bool,
}

impl<M: Memory> Adapter<M> {
    pub(crate) fn new(
        memory: M,
        fabric: Arc<Fabric>,
        inbox: Inbox,
        settings: Arc<Settings>,
    ) -> Self {
        Adapter {
            memory,
            fabric,
            inbox,
            settings,
            contexts: BTreeMap::new(),
            regions: Regions::default(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            counts: Counts::default(),
            notices: Vec::new(),
            overrun: Vec::new(),
            is_gone: false,
        }
    }

    /// Adds a completion.
    pub(crate) fn complete(&mut self, cq: u32, cqe: &Cqe) {
        let Some(queue) = self.cqs.get_mut(&cq) else { return };
        self.counts.completions += 1;
        self.counts.errors += u64::from(cqe.is_error());
        if !queue.push(cqe, &self.memory) {
            self.counts.requested.overrun += 1;
            // mlx5_ib's handler of MLX5_EVENT_TYPE_CQ_ERROR.
            let context = queue.context;
            let element = queue.user_handle;
            let event_type = crate::abi::event::CQ_ERR;
            self.notices.push(AsyncNotice { context, element, event_type });
            self.overrun.push(cq);
        }
    }

    /// Shows the program all completions, and wakes it if it waits for them.
    pub(crate) fn flush(&mut self) -> bool {
        let mut was_busy = false;
        for queue in self.cqs.values_mut() {
            was_busy |= queue.flush(&self.memory);
            queue.fire();
        }
        was_busy
    }

    /// Whether the device of a context was lost since it was opened.
    pub(crate) fn is_lost_now(&self, context: i32) -> bool {
        let context = self.contexts.get(&context);
        context.is_some_and(|of| of.losses != self.fabric.ports.losses(of.device))
    }

    /// What the program's part learns from an error of its memory.
    pub(crate) fn note(&mut self, error: MemoryError) {
        self.is_gone |= error == MemoryError::Gone;
    }

    /// Reads bytes from segments.
    pub(crate) fn gather(
        &mut self,
        pd: u32,
        segments: &[Segment],
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ScatterError> {
        let bytes = offset..offset + into.len() as u64;
        let places = self.regions.locate(pd, segments, bytes, 0);
        let mut rest = into;
        for (at, length) in places.ok_or(ScatterError::Denied)? {
            let (now, later) = rest.split_at_mut(length);
            if let Err(error) = self.memory.read(at, now) {
                self.note(error);
                return Err(ScatterError::Denied);
            }
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(ScatterError::TooShort) }
    }

    /// Writes bytes into segments.
    pub(crate) fn scatter(
        &mut self,
        pd: u32,
        segments: &[Segment],
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ScatterError> {
        let wanted = crate::abi::access::LOCAL_WRITE;
        let length = bytes.len() as u64;
        let room: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
        if room.saturating_sub(offset) < length {
            return Err(ScatterError::TooShort);
        }
        let places = self.regions.locate(pd, segments, offset..offset + length, wanted);
        let mut rest = bytes;
        let mut pieces = Vec::new();
        for (at, length) in places.ok_or(ScatterError::Denied)? {
            let (now, later) = rest.split_at(length);
            pieces.push((at, now));
            rest = later;
        }
        self.memory.write(&pieces).map_err(|error| {
            self.note(error);
            ScatterError::Denied
        })
    }

    /// Says the asynchronous events that have come up; `count` is told of each that was said.
    pub(crate) fn say_notices(&mut self, mut count: impl FnMut(&AsyncNotice)) {
        for notice in std::mem::take(&mut self.notices) {
            let context = self.contexts.get(&notice.context);
            let Some(channel) = context.and_then(|context| context.async_events.as_ref()) else {
                continue;
            };
            if channel.say_event(notice.element, notice.event_type) {
                count(&notice);
            }
        }
    }
}
