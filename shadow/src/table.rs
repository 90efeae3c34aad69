//! The life cycle of an entry: the steps that each state allows, and the state that follows.
//!
//! The name of a state lists the events that are still to come: `Adding`, the answer to the ADD;
//! `Removing`, the answer to a delete; `Matched`, the data of the message. When nothing is to come,
//! the slot is free. A NIC that keeps its contract never causes a step that isn't in [`ROWS`].

use State::*;
use Step::*;

/// The state of an entry of the NIC's list, described by what the entry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing. The slot can be used.
    Free,
    /// The answer to the ADD.
    Adding,
    /// A message. The NIC compares the entry with messages.
    Active,
    /// A message. The entry missed its phase, so the NIC may not compare it with messages.
    Inactive,
    /// The answer to the ADD, and the data of the matched message.
    AddingMatched,
    /// The data of the matched message.
    Matched,
    /// The answer to the ADD. The data is in place.
    AddingLanded,
    /// The answers to the ADD and to the delete.
    AddingRemoving,
    /// The answer to the delete.
    Removing,
    /// The answer to the ADD, the data of the matched message, and the answer that the delete came
    /// too late.
    AddingRemovingMatched,
    /// The data of the matched message, and the answer that the delete came too late.
    RemovingMatched,
    /// The answer to the ADD, and the answer that the delete came too late.
    AddingRemovingLanded,
    /// The answer that the delete came too late.
    RemovingLanded,
    /// The answer to the ADD, and the sending of a delete. Software has taken the receive.
    AddingDropping,
    /// The sending of a delete. Software has taken the receive.
    Dropping,
    /// The answers to the ADD and to the delete. Software has taken the receive.
    AddingTaken,
    /// The answer to the delete. Software has taken the receive.
    Taken,
    /// The answer to the ADD. A delete without an answer was sent.
    AddingWithdrawn,
    /// The report of the match. The NIC has answered that the delete came too late.
    Lost,
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The ADD was handed to the NIC.
    Add,
    /// The NIC answered the ADD, and no unexpected message was reported since: the entry is active.
    AddedInPhase,
    /// The NIC answered the ADD after an unexpected message was reported: the entry may be
    /// inactive.
    AddedLate,
    /// The NIC matched the entry with a message.
    Match,
    /// The data of the message is in place, or will never be.
    Landed,
    /// A delete that will be answered was handed to the NIC.
    Remove,
    /// A delete without an answer was handed to the NIC.
    Withdraw,
    /// Software gave the receive an unexpected message of the list.
    Take,
    /// The delete removed the entry.
    Deleted,
    /// The delete came too late: the entry had matched.
    DeleteLost,
}

/// The transitions: state, step, next state.
pub const ROWS: &[(State, Step, State)] = &[
    (Free, Add, Adding),
    (Adding, AddedInPhase, Active),
    (Adding, AddedLate, Inactive),
    (Adding, Match, AddingMatched),
    (Adding, Remove, AddingRemoving),
    (Adding, Take, AddingDropping),
    (Active, Match, Matched),
    (Active, Remove, Removing),
    // A later operation may activate the entry: the contract leaves that open.
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

const STATES: usize = Lost as usize + 1;
const STEPS: usize = DeleteLost as usize + 1;

/// [`ROWS`], indexed by state and step.
const NEXT: [[Option<State>; STEPS]; STATES] = {
    let mut table = [[None; STEPS]; STATES];
    let mut row = 0;
    while row < ROWS.len() {
        let (from, by, to) = ROWS[row];
        assert!(table[from as usize][by as usize].is_none(), "two rows for one step");
        table[from as usize][by as usize] = Some(to);
        row += 1;
    }
    table
};

impl State {
    /// The state after `step`; `None` if the step can't happen in this state.
    #[inline]
    #[must_use]
    pub const fn next(self, step: Step) -> Option<State> {
        NEXT[self as usize][step as usize]
    }

    /// Whether a delete with an answer may still be sent for the entry. An operation is kept back
    /// for it.
    pub(crate) const fn may_be_deleted(self) -> bool {
        self.next(Remove).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as a Mermaid state diagram.
    fn drawing() -> String {
        let mut states: Vec<State> = ROWS.iter().map(|(from, ..)| *from).collect();
        states.dedup();
        assert_eq!(states.len(), STATES, "the rows are sorted, and each state has one");
        let mut out = String::from("stateDiagram-v2\n    [*] --> Free\n");
        for (&state, &next) in
            states.iter().flat_map(|state| states.iter().map(move |n| (state, n)))
        {
            let rows = ROWS.iter().filter(|(from, _, to)| (*from, *to) == (state, next));
            let steps: Vec<String> = rows.map(|(_, by, _)| format!("{by:?}")).collect();
            if !steps.is_empty() {
                out += &format!("    {state:?} --> {next:?}: {}\n", steps.join(", "));
            }
        }
        out
    }

    #[test]
    fn the_drawing_is_what_the_table_says() {
        let page = include_str!("../STATES.md");
        let drawn = page.split("```mermaid\n").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(
            drawn,
            Some(drawing().as_str()),
            "shadow/STATES.md differs from the table: put this drawing there"
        );
    }

    #[test]
    fn every_life_takes_each_answer_once_and_ends_free() {
        fn walk(state: State, life: &mut Vec<Step>, lives: &mut u32) {
            if state == Free && !life.is_empty() {
                let count = |steps: &[Step]| life.iter().filter(|s| steps.contains(s)).count();
                assert_eq!(count(&[AddedInPhase, AddedLate]), 1, "{life:?}");
                assert_eq!(count(&[Remove]), count(&[Deleted, DeleteLost]), "{life:?}");
                assert_eq!(count(&[Match]), count(&[Landed]), "{life:?}");
                // Each entry ends once: by a match of the NIC, or by a delete that removes it.
                let ends = count(&[Match]) + count(&[Deleted, Withdraw]);
                assert_eq!(ends, 1, "{life:?}");
                *lives += 1;
                return;
            }
            assert!(life.len() < 8, "no end: {life:?}");
            for &(_, step, next) in ROWS.iter().filter(|(from, ..)| *from == state) {
                life.push(step);
                walk(next, life, lives);
                life.pop();
            }
        }
        let mut lives = 0;
        walk(Free, &mut vec![], &mut lives);
        assert!(lives > 40, "{lives}");
    }
}
