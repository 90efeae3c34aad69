//! The part of one process in an agreement, as a step of another state machine.

use std::sync::Arc;

use crate::driver::MachineIo;
use crate::error::Error;
use crate::ft::{Value, Vote, senders};
use crate::life::Life;
use crate::net::Net;

pub(crate) struct Agree {
    life: Arc<Life>,
    vote: Vote,
    has_voted: bool,
    /// Whether only those members are watched that this one may wait for.
    watches_few: bool,
}

impl Agree {
    /// Takes the number of the agreement. All members must do this in the same order.
    pub(crate) fn new(life: &Arc<Life>, flags: u64) -> Self {
        let (number, low) = life.begin();
        let life = Arc::clone(life);
        let vote = Vote { number, low, flags };
        Agree { life, vote, has_voted: false, watches_few: false }
    }

    /// As [`new`](Self::new). A watch may cost a connection, so this process watches those members
    /// alone that it exchanges messages with in any case. It hears from them of other deaths.
    pub(crate) fn watching_few(life: &Arc<Life>, flags: u64) -> Self {
        Agree { watches_few: true, ..Agree::new(life, flags) }
    }

    /// Sets the flags that this process will contribute. To be called before the first step.
    pub(crate) fn set_flags(&mut self, flags: u64) {
        self.vote.flags = flags;
    }

    /// Goes on. The result is the decision.
    ///
    /// # Errors
    /// [`Error::Revoked`]: the agreement is part of an operation of a communicator that was
    /// revoked.
    pub(crate) fn step<N: Net>(
        &mut self,
        io: &mut MachineIo<'_, N>,
    ) -> Option<Result<Value, Error>> {
        let MachineIo { net, ft, .. } = io;
        if self.life.is_given_up() {
            return Some(Err(Error::Revoked));
        }
        if !std::mem::replace(&mut self.has_voted, true) {
            self.watch(*net);
            ft.vote(net, &self.life, self.vote);
        } else if net.progress() > 0 {
            // A machine that steps several times in a row must find the messages that decide.
            ft.look(net);
        }
        ft.expect();
        let decision = ft.decision(self.life.key, self.vote.number)?;
        self.life.end(self.vote.number);
        Some(Ok(decision))
    }

    fn watch<N: Net>(&self, net: &mut N) {
        let Life { group, own, .. } = &*self.life;
        if self.watches_few {
            let senders = senders(*own, group.size()).filter_map(|rank| group.process(rank));
            senders.for_each(|process| net.watch(process));
        } else {
            self.life.watch(net);
        }
    }
}
