//! A completion queue.

use std::sync::Arc;

use crate::channel::Channel;
use crate::cqe::{Cqe, Opcode};
use crate::memory::Memory;

/// What the arming word holds before the program has armed the queue for the first time. The
/// library never reads it; the first arming writes 0, which has to be told from nothing.
pub(crate) const NEVER_ARMED: u32 = u32::MAX;
/// `MLX5_CQ_DB_REQ_NOT_SOL`.
const SOLICITED_ONLY: u32 = 1 << 24;
const INDEX: u32 = 0xff_ffff;

/// Where a completion queue is, and of what size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqPlace {
    pub(crate) at: u64,
    pub(crate) record: u64,
    /// Completions: a power of two.
    pub(crate) size: u32,
    /// 64 or 128.
    pub(crate) entry_bytes: u32,
}

#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) place: CqPlace,
    pub(crate) user_handle: u64,
    pub(crate) context: i32,
    channel: Option<Arc<Channel>>,
    produced: u32,
    /// The number of completions that the program has taken, as its record says.
    consumed: u32,
    armed: u32,
    /// The sequence number of the arming that was answered by an event.
    answered: Option<u32>,
    /// The place after the last solicited completion.
    solicited: Option<u32>,
    /// The place after the last completion that there was at the last event
    /// (`last_notified_index` of `mlx5_ifc_cqc_bits`).
    notified: u32,
    /// Events that the program was given.
    pub(crate) events: u32,
    /// Asynchronous events that the program was given.
    pub(crate) async_events: u32,
    staged: Vec<(u64, [u8; 64])>,
    /// The next completion finds no room: a fault on request.
    pub(crate) overruns_next: bool,
    /// The queue was full when a completion came: it gets none any more.
    pub(crate) is_overrun: bool,
    /// Pages that the queue locks.
    pub(crate) pages: u64,
}

impl Cq {
    pub(crate) fn new(
        place: CqPlace,
        user_handle: u64,
        context: i32,
        channel: Option<Arc<Channel>>,
        pages: u64,
    ) -> Self {
        Cq {
            place,
            user_handle,
            context,
            channel,
            produced: 0,
            consumed: 0,
            armed: NEVER_ARMED,
            answered: None,
            solicited: None,
            notified: 0,
            events: 0,
            async_events: 0,
            staged: Vec::new(),
            overruns_next: false,
            is_overrun: false,
            pages,
        }
    }

    /// The program's record: completions taken, and the arming word, which counts once the program
    /// has rung.
    pub(crate) fn hear(&mut self, [consumed, armed]: [u32; 2], has_rung: bool) {
        self.consumed = consumed;
        if has_rung {
            self.armed = armed;
        }
    }

    /// Reads the program's record: it may have taken completions since the device looked.
    fn hear_now(&mut self, memory: &impl Memory) {
        let mut now = Vec::new();
        if memory.pairs(&[self.place.record], &mut now).is_ok()
            && let [Some(record)] = now[..]
        {
            self.hear(record, false);
        }
    }

    /// Goes on in another place. The old one ends with a mark, up to which libmlx5 copies what was
    /// not taken, each completion one place further on (`mlx5_cq_resize_copy_cqes`). `false`: there
    /// is no room for these, or for the mark.
    pub(crate) fn resize(&mut self, to: CqPlace, memory: &impl Memory) -> bool {
        self.hear_now(memory);
        if self.is_overrun || self.used() >= self.place.size.min(to.size) {
            return false;
        }
        let is_all_told = self.used() == 0 || self.notified == self.produced;
        self.push(&Cqe::new(Opcode::Resized, 0), memory);
        self.flush(memory);
        if is_all_told {
            // The mark is nothing to tell the program of.
            self.notified = self.produced;
        }
        self.place = to;
        true
    }

    fn used(&self) -> u32 {
        self.produced.wrapping_sub(self.consumed) & INDEX
    }

    /// Adds a completion, which the program sees after [`Cq::flush`]. `false`: there is no room,
    /// which breaks the queue.
    pub(crate) fn push(&mut self, cqe: &Cqe, memory: &impl Memory) -> bool {
        if self.is_overrun {
            return true;
        }
        if self.overruns_next {
            self.is_overrun = true;
            return false;
        }
        if self.used() >= self.place.size {
            self.hear_now(memory);
            if self.used() >= self.place.size {
                self.is_overrun = true;
                return false;
            }
        }
        let CqPlace { at, size, entry_bytes, .. } = self.place;
        let place = at + u64::from(self.produced & (size - 1)) * u64::from(entry_bytes);
        if let Some(before) = cqe.before {
            self.staged.push((place, before));
        }
        let is_wide = entry_bytes == 128;
        let owner = self.produced & size != 0;
        self.staged.push((place + if is_wide { 64 } else { 0 }, cqe.owned(owner)));
        self.produced = self.produced.wrapping_add(1);
        if cqe.is_solicited {
            self.solicited = Some(self.produced);
        }
        true
    }

    /// Shows the program all completions that were pushed: of each, the last byte last.
    pub(crate) fn flush(&mut self, memory: &impl Memory) -> bool {
        if self.staged.is_empty() {
            return false;
        }
        let pieces: Vec<(u64, &[u8])> = (self.staged.iter())
            .flat_map(|(at, bytes)| [(*at, &bytes[..63]), (at + 63, &bytes[63..])])
            .collect();
        // A program that has unmapped its queue sees nothing.
        let _ = memory.write(&pieces);
        self.staged.clear();
        true
    }

    /// Gives the program an event if it has armed the queue, and there is a completion that it had
    /// not taken then, and that came after the last event: perftest's `ib_send_lat -e` arms before
    /// it takes the completion of an event, and expects no second one.
    pub(crate) fn fire(&mut self) {
        let Some(channel) = &self.channel else { return };
        let sequence = self.armed >> 28 & 3;
        if self.armed == NEVER_ARMED || self.answered == Some(sequence) {
            return;
        }
        let taken = self.armed & INDEX;
        let is_after = |end: u32, place: u32| {
            let ahead = end.wrapping_sub(place) & INDEX;
            ahead != 0 && ahead < 1 << 23
        };
        let is_solicited = self.armed & SOLICITED_ONLY != 0;
        let end = if is_solicited { self.solicited } else { Some(self.produced) };
        let is_news = end.is_some_and(|end| is_after(end, taken) && is_after(end, self.notified));
        if is_news && channel.say_completion(self.user_handle) {
            self.events += 1;
            self.answered = Some(sequence);
            self.notified = self.produced;
        }
    }

    /// The numbers of completion events and of asynchronous ones that the program has read or will
    /// never read: events that it has not read are taken back.
    pub(crate) fn settle_events(&mut self) -> u32 {
        if let Some(channel) = &self.channel {
            self.events -= channel.take_back(8, self.user_handle).min(self.events);
        }
        self.events
    }
}
