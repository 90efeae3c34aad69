//! Control messages: what processes tell each other outside of any communicator's messages.

use std::sync::Arc;

use super::agree::AgreeMessage;
use super::doubts::Doubt;
use crate::group::Group;
use crate::life::Key;
use crate::mailbox::Letter;
use crate::settings::Difference;

/// A message of one process's service to that of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The communicator with these members is revoked.
    Revoke {
        key: Key,
        group: Group,
    },
    /// The sender has left an allocation after it had begun this many rounds.
    Left {
        key: Key,
        rounds: u32,
    },
    /// A message of an agreement.
    Agree {
        key: Key,
        number: u64,
        message: AgreeMessage,
    },
    Join(JoinMessage),
    /// Asks whether the receiver is done with these context ids.
    Ask {
        number: u64,
        asked: Vec<Asked>,
    },
    /// Answers the question with that number: a bit for each id, set if the sender is done with it.
    Answer {
        number: u64,
        done: Vec<u64>,
    },
    /// The sender has freed the context ids of these uses, and has sent its last messages in them.
    Closing {
        uses: Vec<u64>,
    },
    /// A letter to a mailbox of the receiver.
    Letter(Letter),
    /// The sender's settings that must be equal in all processes.
    Settings(Vec<u64>),
    /// Two processes of the job have different settings.
    Unequal(Difference),
    /// About a process that some process has lost.
    Doubt(Doubt),
}

/// A message of the agreement on an intercommunicator, with an invitation to take part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinMessage {
    pub(crate) key: Key,
    pub(crate) invitation: Invitation,
    pub(crate) message: AgreeMessage,
}

/// A context id of the process that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) prefix: u32,
    /// Names the creation that may have given the receiver the communicator with this id.
    pub(crate) creation: u64,
}

/// The most ids that one message asks about or closes.
pub(crate) const ASK_MAX: usize = 256;

/// The facts that a process which does not know the other group needs for its part in the
/// agreement on an intercommunicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invitation {
    /// The attempts of both groups to create it.
    pub(crate) attempts: [Key; 2],
    /// The members of both groups: the first group, then the second one.
    pub(crate) members: Arc<Group>,
    /// The size of the first group.
    pub(crate) split: u32,
}

impl Invitation {
    /// The attempt of the group that a member belongs to.
    pub(crate) fn attempt(&self, rank: u32) -> Key {
        self.attempts[usize::from(rank >= self.split)]
    }
}
