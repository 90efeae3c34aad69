//! Polling and sleeping: ends of operations, the library's progress, and every few polls the
//! handshake.

use std::time::{Duration, Instant};

use tagmatch_device::matching::MatchingEvent;

use crate::audit::audit;
use crate::handshake::{look, tend_leaving};
use crate::transport::TagTransport;

/// Polls between two looks at the sockets of the handshake, while a handshake is under way; the
/// second constant holds otherwise.
const LOOK_PERIOD_GREETING: u32 = 8;
const LOOK_PERIOD: u32 = 2048;
/// Time between two polls of a sleeping thread while something waits that no descriptor reports.
const PERIOD: Duration = Duration::from_millis(1);

/// See [`MatchingDevice::poll`](tagmatch_device::matching::MatchingDevice::poll).
#[inline]
pub(crate) fn next_event<T: TagTransport>(transport: &mut T) -> Option<MatchingEvent> {
    if let Some(event) = ready_event(transport) {
        return Some(event);
    }
    let was_busy = transport.advance();
    let core = transport.core_mut();
    core.polls = core.polls.wrapping_add(1);
    // A thread that waits polls again and again, so this way is kept short: nothing was done,
    // nothing is due.
    let is_due = core.polls.is_multiple_of(LOOK_PERIOD_GREETING);
    if !was_busy && !is_due && !is_ending(transport) {
        return None;
    }
    follow_progress(transport, was_busy, is_due)
}

/// Handles the results of progress, and deadlines that have passed.
#[inline(never)]
fn follow_progress<T: TagTransport>(
    transport: &mut T,
    was_busy: bool,
    is_due: bool,
) -> Option<MatchingEvent> {
    let core = transport.core();
    if is_due && (core.polls.is_multiple_of(LOOK_PERIOD) || core.meeting.has_handshakes()) {
        look(transport, Instant::now());
        transport.sweep();
    }
    transport.tend(is_due);
    if !transport.core().meeting.peers.leaving.is_empty() {
        tend_leaving(transport, was_busy);
    }
    ready_event(transport)
}

/// The next event that needs no progress.
#[inline]
fn ready_event<T: TagTransport>(transport: &mut T) -> Option<MatchingEvent> {
    if let Some(event) = transport.core_mut().events.pop_front() {
        return Some(event);
    }
    transport.next_end()
}

/// Whether each poll has something to look after: a peer that is ending, or what waits in the
/// transport.
#[inline]
fn is_ending<T: TagTransport>(transport: &T) -> bool {
    !transport.core().meeting.peers.leaving.is_empty() || transport.waits()
}

fn is_ready<T: TagTransport>(transport: &T) -> bool {
    !transport.core().events.is_empty() || transport.has_ends()
}

/// See [`MatchingDevice::arm`](tagmatch_device::matching::MatchingDevice::arm).
pub(crate) fn fall_asleep<T: TagTransport>(transport: &mut T) -> bool {
    audit(transport);
    look(transport, Instant::now());
    transport.sweep();
    transport.tend(true);
    if is_ready(transport) || transport.advance() || is_ready(transport) {
        return false;
    }
    if transport.descriptor().is_some() && !transport.arm() {
        return false;
    }
    let due = transport.core().meeting.next_due().into_iter().chain(transport.next_due()).min();
    let due = due.map(|due| due.saturating_duration_since(Instant::now()));
    let looks = transport.core().awaits_messages && !transport.reports_messages();
    let is_polled = looks || is_ending(transport);
    let period = if is_polled { Some(PERIOD) } else { transport.sleep_max() };
    transport.core_mut().alarm.arm(due.into_iter().chain(period).min());
    true
}

/// See [`MatchingDevice::has_work`](tagmatch_device::matching::MatchingDevice::has_work). A thread
/// that does not sleep also learns whether something waits; a sleeping thread is woken by the timer
/// for that.
pub(crate) fn is_busy<T: TagTransport>(transport: &T) -> bool {
    let has_begun = transport.core().alarm.has_begun();
    has_begun.unwrap_or_else(|| is_ending(transport)) || is_ready(transport)
}
