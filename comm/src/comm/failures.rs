//! The calls of a communicator about failures, except shrinking.

use super::collective::Collective;
use super::communicator::Comm;
use crate::driver::{Agree, DriverState, Machine, MachineIo};
use crate::error::Error;
use crate::ft::Agreed;
use crate::group::Group;
use crate::net::Net;

impl<N: Net> Comm<N> {
    /// The members that this process knows to have failed, in the order in which that became known.
    /// Does not block. The result is not the same at all members.
    pub fn failed(&self) -> Group {
        self.driver().progress();
        {
            let DriverState { net, ft, .. } = &mut *self.driver().lock();
            ft.look(net);
        }
        self.members(&self.inner.life.failed())
    }

    /// Acknowledges the first `count` failures in [`failed`](Self::failed): receives from any
    /// source no longer report them, and neither do agreements. Returns how many failures are
    /// acknowledged now, which is never fewer than before.
    pub fn acknowledge(&self, count: u32) -> u32 {
        self.inner.life.acknowledge(count)
    }

    /// The failed members whose failure was acknowledged.
    pub fn acknowledged(&self) -> Group {
        self.members(&self.inner.life.acknowledged())
    }

    fn members(&self, ranks: &[u32]) -> Group {
        let group = &self.inner.life.group;
        Group::new(ranks.iter().filter_map(|rank| group.process(*rank)))
    }

    /// Revokes the communicator. All its operations, those under way and later ones, end with
    /// [`Error::Revoked`], here and, in the end, at all living members. Only agreements and shrinks
    /// go on. One member calls this; the others need not do anything. Messages that were not
    /// received are discarded, even if their sends were complete. A synchronous send is complete if
    /// its message is discarded before the sender learns of the revocation.
    ///
    /// The revocation is a reliable broadcast: a process that hears of it for the first time passes
    /// it on, and does so again when a neighbour dies.
    pub fn revoke(&self) {
        let mut state = self.driver().lock();
        let DriverState { net, ft, .. } = &mut *state;
        let life = &self.inner.life;
        ft.revoke(net, life.key, Group::clone(&life.group));
        self.driver().wake_all(state);
    }

    /// Whether this process knows that the communicator is revoked.
    pub fn is_revoked(&self) -> bool {
        self.inner.life.is_revoked()
    }

    /// Agrees on the bitwise AND of flags, and on which members have failed. The result is the same
    /// at all living members, even if members die during the call. Also works on a revoked
    /// communicator. Without failures, the time grows with the logarithm of the size.
    ///
    /// A member that dies as soon as it has the result may have had another result than the living
    /// members.
    ///
    /// # Errors
    /// A failure is no error: see [`Agreed::unacknowledged`].
    pub fn agree(&self, flags: u64) -> Collective<'_, N, Agreed> {
        Collective::of_machine(self, move || Ok(Agreeing(Agree::new(&self.inner.life, flags))))
    }
}

struct Agreeing(Agree);

impl<N: Net> Machine<N> for Agreeing {
    type Output = Agreed;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<Agreed, Error>> {
        Some(self.0.step(io)?.map(|decision| {
            let unacknowledged = decision.unacknowledged();
            Agreed { flags: decision.flags, unacknowledged }
        }))
    }
}
