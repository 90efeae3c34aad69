//! Attempts to create an intercommunicator, as far as the agreement of both groups needs to know
//! them.
//!
//! The two groups can't begin that agreement as the members of one communicator do. A group that
//! the other one knows may itself not know the other one, because its leader died before it told
//! its group. So the messages of the agreement carry an [`Invitation`](super::control::Invitation).
//! A process that is invited because of an attempt of its own group
//!
//! - contributes a 1 if it knows the other group: it *joins*, even if it is not invited;
//! - contributes a 0 if its attempt is over and it does not know the other group: it has *refused*;
//! - answers later if its attempt is under way, or has not begun.

use std::collections::VecDeque;

use crate::life::Key;

/// The most ended attempts that are remembered, in order to answer invitations.
const ATTEMPTS_MAX: usize = 1024;

/// Attempts that have ended in this process, each with the agreement that this process contributed
/// to; none for a refused attempt that no process has asked about.
#[derive(Debug, Default)]
pub(super) struct Attempts(VecDeque<(Key, Option<Key>)>);

/// How a process answers an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvitationAnswer {
    /// Its attempt has not ended: it answers later.
    Later,
    /// Its attempt was refused: it contributes a 0.
    Refuse,
    /// Its attempt belongs to another agreement: it ignores the invitation.
    Ignore,
}

impl Attempts {
    /// An attempt ends. `joined`: the agreement in which this process contributes a 1; none if it
    /// has refused.
    pub(super) fn end(&mut self, attempt: Key, joined: Option<Key>) {
        if self.0.len() == ATTEMPTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((attempt, joined));
    }

    /// The answer to an invitation of an agreement that this process has not entered. An attempt is
    /// told to one other group, and the two groups have one agreement. So an attempt answers
    /// invitations of one agreement only.
    pub(super) fn answer(&mut self, attempt: Key, agreement: Key) -> InvitationAnswer {
        let found = self.0.iter_mut().find(|(of, _)| *of == attempt);
        match found.map(|(_, answered)| answered) {
            None => InvitationAnswer::Later,
            Some(Some(_)) => InvitationAnswer::Ignore,
            Some(answered) => {
                *answered = Some(agreement);
                InvitationAnswer::Refuse
            }
        }
    }
}
