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

/// The rows by state and step.
const NEXT: [[Option<State>; Step::ALL.len()]; State::ALL.len()] = {
    let mut table = [[None; Step::ALL.len()]; State::ALL.len()];
    let mut row = 0;
    while row < ROWS.len() {
        let (from, by, to) = ROWS[row];
        assert!(table[from as usize][by as usize].is_none(), "two rows for one step");
        table[from as usize][by as usize] = Some(to);
        row += 1;
    }
    table
};

impl Step {
    /// All of them, in order of appearance.
    pub const ALL: [Step; 10] =
        [Add, AddedInPhase, AddedLate, Match, Landed, Remove, Withdraw, Take, Deleted, DeleteLost];
}

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
    #[inline]
    #[must_use]
    pub const fn next(self, step: Step) -> Option<State> {
        NEXT[self as usize][step as usize]
    }

    /// Whether the entry may yet want a delete, for which an operation is kept.
    pub(crate) const fn may_be_deleted(self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_is_what_the_table_says() {
        let page = include_str!("../STATES.md");
        let drawn = page.split("```mermaid\n").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(drawn, Some(drawing().as_str()), "STATES.md, beside src, should hold this");
    }

    #[test]
    fn states_and_steps_are_listed_in_their_order() {
        assert!(State::ALL.iter().zip(0..).all(|(state, place)| *state as usize == place));
        assert!(Step::ALL.iter().zip(0..).all(|(step, place)| *step as usize == place));
    }

    /// Every way through the table takes each answer once and ends with a free slot.
    #[test]
    fn every_life_takes_each_answer_once_and_ends_free() {
        fn walk(state: State, life: &mut Vec<Step>, lives: &mut u32) {
            if state == Free && !life.is_empty() {
                let count = |steps: &[Step]| life.iter().filter(|s| steps.contains(s)).count();
                assert_eq!(count(&[AddedInPhase, AddedLate]), 1, "{life:?}");
                assert_eq!(count(&[Remove]), count(&[Deleted, DeleteLost]), "{life:?}");
                assert_eq!(count(&[Match]), count(&[Landed]), "{life:?}");
                // The NIC or software gives it one message, or a delete removes it, or both of the last.
                let ends = count(&[Match]) + count(&[Deleted, Withdraw]);
                assert_eq!(ends, 1, "{life:?}");
                *lives += 1;
                return;
            }
            assert!(life.len() < 8, "no end: {life:?}");
            for step in Step::ALL {
                if let Some(next) = state.next(step) {
                    life.push(step);
                    walk(next, life, lives);
                    life.pop();
                }
            }
        }
        let mut lives = 0;
        walk(Free, &mut vec![], &mut lives);
        assert!(lives > 40, "{lives}");
    }
}
