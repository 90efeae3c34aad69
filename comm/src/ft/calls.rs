//! The calls of a communicator about failures, but for shrinking.

use crate::comm::{Comm, Running};
use crate::driver::{DriverState, Machine, Port, Request};
use crate::error::Error;
use crate::group::Group;
use crate::net::Net;

use super::agreeing::Agree;

/// What an agreement gave, the same at all members that live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The bitwise AND of what the contributors gave.
    pub flags: u64,
    /// Ranks of members that failed before they contributed, and whose failure not every
    /// contributor had acknowledged before. Where there are any, MPI's call returns an error of
    /// class process-failed.
    pub unacknowledged: Vec<u32>,
}

/// An agreement under way.
pub type AgreeRequest<N> = Request<N, Running<N, Agreed>>;

impl<N: Net> Comm<N> {
    /// The members that this process knows to have failed, in the order in which that became known.
    /// Does not block, and is not the same at all members.
    pub fn failed(&self) -> Group {
        self.driver().progress();
        {
            let DriverState { net, ft, .. } = &mut *self.driver().lock();
            ft.look(net);
        }
        self.members(&self.inner.life.failed())
    }

    /// Acknowledges the first `count` of [`failed`](Self::failed): receives from any source no
    /// longer end because of them, and agreements no longer report them. How many are acknowledged
    /// then; never fewer than before.
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

    /// Ends all that is under way on it with [`Error::Revoked`], here and, in the end, at all
    /// members that live, and all that will be begun; but not agreements and shrinks. One member
    /// calls it; the others need do nothing. Messages that nobody has received are discarded: also
    /// those whose sends were complete, and a synchronous send is complete when its message is
    /// discarded before its sender learns of the revocation.
    ///
    /// It is a reliable broadcast: whoever hears of it first passes it on, and again when a
    /// neighbour dies.
    pub fn revoke(&self) {
        let mut state = self.driver().lock();
        let DriverState { net, ft, .. } = &mut *state;
        let life = &self.inner.life;
        ft.revoke(net, life.key, Group::clone(&life.group));
        self.driver().wake_all(state);
    }

    /// Whether this process knows that it is revoked.
    pub fn is_revoked(&self) -> bool {
        self.inner.life.is_revoked()
    }

    /// Agrees on the bitwise AND of flags, and on who has failed: the same result at all members
    /// that live, whoever dies meanwhile. Revocation does not touch it. Collective; blocks. In the
    /// failure-free case it takes time in proportion to the logarithm of the size.
    ///
    /// A member that dies as soon as it has the result may have had another one than those who
    /// live.
    ///
    /// # Errors
    /// None of failures: see [`Agreed::unacknowledged`].
    pub fn agree(&self, flags: u64) -> Result<Agreed, Error> {
        self.run(Agreeing(Agree::new(&self.inner.life, flags)))
    }

    /// The same, without blocking.
    pub fn iagree(&self, flags: u64) -> AgreeRequest<N> {
        self.start(Agreeing(Agree::new(&self.inner.life, flags)))
    }
}

struct Agreeing(Agree);

impl<N: Net> Machine<N> for Agreeing {
    type Output = Agreed;

    fn step(&mut self, port: &mut Port<'_, N>) -> Option<Result<Agreed, Error>> {
        let decision = self.0.step(port)?;
        let unacknowledged = decision.unacknowledged();
        Some(Ok(Agreed { flags: decision.flags, unacknowledged }))
    }
}
