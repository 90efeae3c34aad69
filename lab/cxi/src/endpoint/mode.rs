//! Where an endpoint matches, and how that changes when the NIC has no free list entry.
//!
//! ```text
//!              no entry, hardware          after some rounds        after some rounds
//!   Hardware ─────────────────────> Onload ─────────────────> FlowControl ──> Hardware
//!       │                             │ the receives alone take all entries
//!       │                             └──────────────────────> abort(3)
//!       │      no entry, hybrid            after some rounds
//!       └─────────────────────────> ToSoftware ─────────────> Software, for ever
//! ```
//!
//! After `cxip_recv_pte_cb` and what it calls, in `prov/cxi/src/cxip_msg_hpc.c`. Its further
//! reasons for flow control (a full event queue, no overflow buffer) look the same to a program.

use crate::settings::Mode;

/// Where an endpoint matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In the NIC.
    Hardware,
    /// Unexpected messages move from the NIC to software.
    Onload,
    /// The peers are told to send again.
    FlowControl,
    /// Everything moves from the NIC to software.
    ToSoftware,
    /// In software.
    Software,
}

/// A reason to change the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// There was no list entry for a receive or a message.
    Exhausted,
    /// So many rounds have passed as the change takes.
    Elapsed,
}

impl State {
    /// Where an endpoint of this mode begins.
    pub(crate) fn first(mode: Mode) -> Self {
        if mode == Mode::Software { State::Software } else { State::Hardware }
    }

    /// Whether receives can be posted, and messages are matched.
    pub(crate) fn is_enabled(self) -> bool {
        matches!(self, State::Hardware | State::Software)
    }

    /// The state after an event.
    pub(crate) fn after(self, event: Event, mode: Mode) -> Self {
        match (self, event) {
            (State::Hardware, Event::Exhausted) if mode == Mode::Hybrid => State::ToSoftware,
            (State::Hardware, Event::Exhausted) => State::Onload,
            (State::Onload, Event::Elapsed) => State::FlowControl,
            (State::FlowControl, Event::Elapsed) => State::Hardware,
            (State::ToSoftware, Event::Elapsed) => State::Software,
            (same, _) => same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_in_every_state_in_every_mode() {
        use State::{FlowControl, Hardware, Onload, Software, ToSoftware};
        for mode in [Mode::Hardware, Mode::Hybrid, Mode::Software] {
            let full = if mode == Mode::Hybrid { ToSoftware } else { Onload };
            let table = [
                (Hardware, full, Hardware),
                (Onload, Onload, FlowControl),
                (FlowControl, FlowControl, Hardware),
                (ToSoftware, ToSoftware, Software),
                (Software, Software, Software),
            ];
            for (from, exhausted, elapsed) in table {
                assert_eq!(from.after(Event::Exhausted, mode), exhausted);
                assert_eq!(from.after(Event::Elapsed, mode), elapsed);
                assert_eq!(from.is_enabled(), [Hardware, Software].contains(&from));
            }
        }
        assert_eq!(State::first(Mode::Software), Software);
        assert_eq!(State::first(Mode::Hybrid), Hardware);
    }
}
