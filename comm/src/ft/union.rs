//! The agreement of two groups on whether they have an intercommunicator.
//!
//! The groups can't begin it as one, as the members of a communicator do: a group of which the other one
//! knows may itself know nothing, because its leader died before it was told. So the agreement's
//! messages carry an [`Invitation`]. A process that is asked about an attempt of its own group
//!
//! - contributes a 1, if it knows the other group: it *joins*, whether or not it is asked;
//! - contributes a 0, if its attempt is over and it knows no other group: it has *refused*;
//! - answers later, if its attempt is under way, or it has not come to it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::net::{Net, ProcessId};

use super::agree::Message;
use super::life::{Key, Life};
use super::service::Service;
use super::wire::{Control, Invitation};

/// Most attempts whose end is remembered, for those who ask about them.
const ATTEMPTS_MAX: usize = 1024;

/// Attempts that are over in this process, each with the agreement in which that was said: none for one that
/// was refused and that nobody has asked about.
#[derive(Debug, Default)]
pub(super) struct Attempts(VecDeque<(Key, Option<Key>)>);

impl Attempts {
    fn end(&mut self, attempt: Key, said_in: Option<Key>) {
        if self.0.len() == ATTEMPTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((attempt, said_in));
    }

    fn find(&mut self, attempt: Key) -> Option<&mut Option<Key>> {
        self.0.iter_mut().find(|(of, _)| *of == attempt).map(|(_, said_in)| said_in)
    }
}

impl<N: Net> Service<N> {
    /// This process knows the other group: it takes part in their agreement.
    pub(crate) fn join(&mut self, net: &mut N, life: &Arc<Life>, invitation: Invitation) {
        let attempt = invitation.attempt(life.own);
        self.attempts.end(attempt, Some(life.key));
        self.hold(net, (life.key, 0), &life.group, Some(invitation));
        self.deliver_invitations(net, attempt);
    }

    /// This process knows no other group: whoever of one asks is told.
    pub(crate) fn refuse(&mut self, net: &mut N, attempt: Key) {
        self.attempts.end(attempt, None);
        self.deliver_invitations(net, attempt);
    }

    fn deliver_invitations(&mut self, net: &mut N, attempt: Key) {
        self.deliver_early(net, |control| {
            matches!(control, Control::Join { invitation, .. } if invitation.attempts.contains(&attempt))
        });
    }

    pub(super) fn hear_join(
        &mut self,
        net: &mut N,
        from: ProcessId,
        key: Key,
        invitation: Invitation,
        message: Message,
    ) {
        let members = Arc::clone(&invitation.members);
        let (Some(own), Some(_)) = (members.rank(self.own), members.rank(from)) else { return };
        if !self.agreements.contains_key(&(key, 0)) {
            match self.attempts.find(invitation.attempt(own)) {
                None => return self.keep_early(from, Control::Join { key, invitation, message }),
                // An attempt is known to one other group, which has one agreement about it.
                Some(Some(_)) => return,
                Some(said_in) => *said_in = Some(key),
            }
            self.answer(net, key, invitation);
        }
        self.receive(net, from, (key, 0), &message);
    }

    /// Contributes a 0.
    fn answer(&mut self, net: &mut N, key: Key, invitation: Invitation) {
        let members = Arc::clone(&invitation.members);
        self.hold(net, (key, 0), &members, Some(invitation));
        members.processes().iter().for_each(|process| net.watch(*process));
        if let Some(held) = self.agreements.get_mut(&(key, 0)) {
            held.agreement.vote(0, 0, &[]);
        }
        self.flush(net, (key, 0));
    }
}
