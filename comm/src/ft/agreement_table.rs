//! The agreements of one process, of all its communicators.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::agree::{AgreeMessage, Agreement, Value};
use super::control::{Control, Invitation, JoinMessage};
use super::registry::Registry;
use super::service_io::ServiceIo;
use crate::group::Group;
use crate::life::Key;
use crate::net::{Net, ProcessId};

/// The most agreements that are kept. Agreements of communicators that are not freed are always
/// kept while another member may ask for them.
const KEPT_MAX: usize = 1024;

/// Names an agreement: the communicator, and the number of the agreement on it.
pub(super) type AgreementName = (Key, u64);

/// This process's part of an agreement.
#[derive(Clone, Copy)]
pub(crate) struct Vote {
    /// The number of the agreement on its communicator.
    pub(crate) number: u64,
    /// The number of the oldest agreement that has not ended here.
    pub(crate) low: u64,
    pub(crate) flags: u64,
}

#[derive(Debug)]
struct KeptAgreement {
    group: Arc<Group>,
    agreement: Agreement,
    /// Set for the agreement on an intercommunicator.
    invitation: Option<Invitation>,
    /// The place in the order in which the agreements began.
    began: u64,
}

#[derive(Debug, Default)]
pub(super) struct Agreements {
    kept: BTreeMap<AgreementName, Box<KeptAgreement>>,
    /// How many have begun.
    begun: u64,
}

impl Agreements {
    pub(super) fn count(&self) -> usize {
        self.kept.len()
    }

    /// How many agreements that are decided are kept beyond the most. Those that are not decided
    /// may be more.
    pub(super) fn surplus(&self) -> usize {
        let decided = self.kept.values().filter(|kept| kept.agreement.decision().is_some());
        decided.count().saturating_sub(KEPT_MAX)
    }

    pub(super) fn contains(&self, name: AgreementName) -> bool {
        self.kept.contains_key(&name)
    }

    /// Creates the agreement if it does not exist.
    pub(super) fn ensure<N: Net>(
        &mut self,
        io: &mut ServiceIo<'_, N>,
        name: AgreementName,
        group: &Arc<Group>,
        invitation: Option<Invitation>,
    ) {
        if self.contains(name) {
            return;
        }
        let Some(own) = group.rank(io.registry.own) else { return };
        if self.kept.len() >= KEPT_MAX {
            self.drop_oldest(io.registry);
        }
        let group = Arc::clone(group);
        let mut agreement = Agreement::new(group.size(), own);
        let down = io.registry.down().iter().filter_map(|process| group.rank(*process));
        down.for_each(|rank| agreement.die(rank));
        if invitation.is_some() {
            agreement = agreement.asking();
        }
        self.begun += 1;
        let kept = Box::new(KeptAgreement { group, agreement, invitation, began: self.begun });
        self.kept.insert(name, kept);
        self.flush(io, name);
    }

    /// Drops the oldest agreement that is decided and belongs to a communicator that is freed.
    fn drop_oldest(&mut self, registry: &Registry) {
        let over = self.kept.iter().filter(|((key, _), kept)| {
            registry.is_freed(*key) && kept.agreement.decision().is_some()
        });
        if let Some(name) = over.min_by_key(|(_, kept)| kept.began).map(|(name, _)| *name) {
            self.kept.remove(&name);
        }
    }

    /// Contributes this process's value.
    pub(super) fn vote<N: Net>(
        &mut self,
        io: &mut ServiceIo<'_, N>,
        key: Key,
        vote: Vote,
        acknowledged: &[u32],
    ) {
        let name = (key, vote.number);
        if let Some(kept) = self.kept.get_mut(&name) {
            kept.agreement.vote(vote.flags, vote.low, acknowledged);
        }
        self.flush(io, name);
    }

    /// Whether some agreement is not decided yet.
    pub(super) fn is_open(&self) -> bool {
        self.kept.values().any(|kept| kept.agreement.decision().is_none())
    }

    /// The processes that are dead according to a message; `None` if the message is not from a
    /// member, or is about another number of members.
    pub(super) fn dead_in(
        &self,
        name: AgreementName,
        from: ProcessId,
        message: &AgreeMessage,
    ) -> Option<Vec<ProcessId>> {
        let group = &self.kept.get(&name)?.group;
        group.rank(from).filter(|_| message.dead.size() == group.size())?;
        Some(
            (0..group.size())
                .filter(|rank| message.says_dead(*rank))
                .filter_map(|rank| group.process(rank))
                .collect(),
        )
    }

    /// Takes in a message that [`dead_in`](Self::dead_in) has accepted.
    pub(super) fn receive<N: Net>(
        &mut self,
        io: &mut ServiceIo<'_, N>,
        name: AgreementName,
        from: ProcessId,
        message: &AgreeMessage,
    ) {
        if let Some(kept) = self.kept.get_mut(&name)
            && let Some(rank) = kept.group.rank(from)
        {
            kept.agreement.receive(rank, message);
        }
        self.flush(io, name);
    }

    /// Tells all agreements that a process is down.
    pub(super) fn die<N: Net>(&mut self, io: &mut ServiceIo<'_, N>, process: ProcessId) {
        for name in self.kept.keys().copied().collect::<Vec<_>>() {
            if let Some(kept) = self.kept.get_mut(&name)
                && let Some(rank) = kept.group.rank(process)
            {
                kept.agreement.die(rank);
                self.flush(io, name);
            }
        }
    }

    pub(super) fn decision(&self, name: AgreementName) -> Option<Value> {
        self.kept.get(&name)?.agreement.decision().cloned()
    }

    /// Drops the agreements of a communicator below this number: all members have seen their end.
    pub(super) fn drop_below(&mut self, key: Key, number: u64) {
        let over = (key, 0)..(key, number);
        while let Some(name) = self.kept.range(over.clone()).next().map(|(name, _)| *name) {
            self.kept.remove(&name);
        }
    }

    /// Sends the messages that an agreement has produced.
    fn flush<N: Net>(&mut self, io: &mut ServiceIo<'_, N>, name: AgreementName) {
        let Some(kept) = self.kept.get_mut(&name) else { return };
        let (key, number) = name;
        for (rank, message) in kept.agreement.take_messages() {
            let control = match kept.invitation.clone() {
                Some(invitation) => Control::Join(JoinMessage { key, invitation, message }),
                None => Control::Agree { key, number, message },
            };
            if let Some(process) = kept.group.process(rank) {
                io.send(process, &control);
            }
        }
    }
}
