//! The life of an entry: which event may come in which state, and what follows.
//!
//! A state says what is still to come for the entry, so the name of a state lists it: `Adding`, ADD's
//! answer; `Removing`, the answer of a signalled delete; `Matched`, the data. The slot is free when
//! nothing is. What isn't a row of [`ROWS`] can't happen with a NIC that keeps its contract.

use std::fmt;
use std::fmt::Write as _;

use State::{
    Active, Adding, AddingDropping, AddingLanded, AddingMatched, AddingRemoving,
    AddingRemovingLanded, AddingRemovingMatched, AddingTaken, AddingWithdrawn, Dropping, Free,
    Inactive, Lost, Matched, Removing, RemovingLanded, RemovingMatched, Taken,
};
use Step::{
    Add, AddedInPhase, AddedLate, DeleteLost, Deleted, Landed, Match, Remove, Take, Withdraw,
};

/// What an entry of the NIC's list waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing: the slot can be used.
    Free,
    /// ADD's answer.
    Adding,
    /// A message; the NIC looks for one.
    Active,
    /// A message, for which the NIC may not be looking: the entry missed its phase.
    Inactive,
    /// ADD's answer and the data.
    AddingMatched,
    /// The data.
    Matched,
    /// ADD's answer; the data is there.
    AddingLanded,
    /// ADD's answer and the delete's.
    AddingRemoving,
    /// The delete's answer.
    Removing,
    /// ADD's answer, the delete's, which will be that it lost, and the data.
    AddingRemovingMatched,
    /// The delete's answer, which will be that it lost, and the data.
    RemovingMatched,
    /// ADD's answer and the delete's, which will be that it lost.
    AddingRemovingLanded,
    /// The delete's answer, which will be that it lost.
    RemovingLanded,
    /// ADD's answer, and to be deleted: software has taken the receive.
    AddingDropping,
    /// To be deleted: software has taken the receive.
    Dropping,
    /// ADD's answer and the delete's, of a receive that software has taken.
    AddingTaken,
    /// The delete's answer, of a receive that software has taken.
    Taken,
    /// ADD's answer, of an entry deleted without one.
    AddingWithdrawn,
    /// The match that won against a delete.
    Lost,
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// ADD was handed to the NIC.
    Add,
    /// ADD's answer, with no message come up since: the entry is active.
    AddedInPhase,
    /// ADD's answer, after a message came up: the entry may be inactive.
    AddedLate,
    /// The NIC gave it a message.
    Match,
    /// The message's data is there, or will never be.
    Landed,
    /// A delete that will be answered was handed to the NIC.
    Remove,
    /// A delete without an answer was handed to the NIC.
    Withdraw,
    /// Software gave the receive a message that came up through the list.
    Take,
    /// The delete found the entry.
    Deleted,
    /// The delete came after a match.
    DeleteLost,
}

/// State, what happens, next state.
pub const ROWS: &[(State, Step, State)] = &[
    (Free, Add, Adding),
    (Adding, AddedInPhase, Active),
    (Adding, AddedLate, Inactive),
    (Adding, Match, AddingMatched),
    (Adding, Remove, AddingRemoving),
    (Adding, Take, AddingDropping),
    (Active, Match, Matched),
    (Active, Remove, Removing),
    // A later operation may have woken it: the contract leaves that open.
    (Inactive, Match, Matched),
    (Inactive, Remove, Removing),
    (Inactive, Take, Dropping),
    (AddingMatched, AddedInPhase, Matched),
    (AddingMatched, AddedLate, Matched),
    (AddingMatched, Landed, AddingLanded),
    (Matched, Landed, Free),
    (AddingLanded, AddedInPhase, Free),
    (AddingLanded, AddedLate, Free),
    (AddingRemoving, AddedInPhase, Removing),
    (AddingRemoving, AddedLate, Removing),
    (AddingRemoving, Match, AddingRemovingMatched),
    (AddingRemoving, Take, AddingTaken),
    (Removing, Match, RemovingMatched),
    (Removing, Take, Taken),
    (Removing, Deleted, Free),
    (Removing, DeleteLost, Lost),
    (AddingRemovingMatched, AddedInPhase, RemovingMatched),
    (AddingRemovingMatched, AddedLate, RemovingMatched),
    (AddingRemovingMatched, Landed, AddingRemovingLanded),
    (RemovingMatched, Landed, RemovingLanded),
    (RemovingMatched, DeleteLost, Matched),
    (AddingRemovingLanded, AddedInPhase, RemovingLanded),
    (AddingRemovingLanded, AddedLate, RemovingLanded),
    (RemovingLanded, DeleteLost, Free),
    (AddingDropping, AddedInPhase, Dropping),
    (AddingDropping, AddedLate, Dropping),
    (AddingDropping, Withdraw, AddingWithdrawn),
    (AddingDropping, Remove, AddingTaken),
    (Dropping, Withdraw, Free),
    (Dropping, Remove, Taken),
    (AddingTaken, AddedInPhase, Taken),
    (AddingTaken, AddedLate, Taken),
    (Taken, Deleted, Free),
    (AddingWithdrawn, AddedInPhase, Free),
    (AddingWithdrawn, AddedLate, Free),
    (Lost, Match, Matched),
];

impl State {
    /// All of them, in order of appearance.
    pub const ALL: [State; 19] = [
        Free,
        Adding,
        Active,
        Inactive,
        AddingMatched,
        Matched,
        AddingLanded,
        AddingRemoving,
        Removing,
        AddingRemovingMatched,
        RemovingMatched,
        AddingRemovingLanded,
        RemovingLanded,
        AddingDropping,
        Dropping,
        AddingTaken,
        Taken,
        AddingWithdrawn,
        Lost,
    ];

    /// The state after `step`, or `None` where that can't happen.
    #[must_use]
    pub fn next(self, step: Step) -> Option<State> {
        ROWS.iter().find(|(from, by, _)| (*from, *by) == (self, step)).map(|(_, _, to)| *to)
    }

    /// Whether the entry may yet want a delete, for which an operation is kept.
    pub(crate) fn may_be_deleted(self) -> bool {
        self.next(Remove).is_some()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The table as a Mermaid state diagram.
#[must_use]
pub fn drawing() -> String {
    let mut out = String::from("stateDiagram-v2\n    [*] --> Free\n");
    for state in State::ALL {
        for next in State::ALL {
            let steps: Vec<String> = ROWS
                .iter()
                .filter(|(from, _, to)| (*from, *to) == (state, next))
                .map(|(_, by, _)| by.to_string())
                .collect();
            if !steps.is_empty() {
                let _ = writeln!(out, "    {state} --> {next}: {}", steps.join(", "));
            }
        }
    }
    out
}
