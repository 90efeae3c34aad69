//! The calls of an intercommunicator about failures of either group, except shrinking.

use crate::coll::Collective;
use crate::driver::{Machine, MachineIo};
use crate::error::Error;
use crate::ft::Agree;
use crate::group::Group;
use crate::net::Net;

use super::intercomm::InterComm;

/// The result of an agreement of both groups. `flags` is the same at all living members of a group,
/// `unacknowledged` at all living members of both groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterAgreed {
    /// The bitwise AND of the flags that the remote processes have contributed.
    pub flags: u32,
    /// The processes of both groups that failed before they contributed, and whose failure some
    /// contributor had not acknowledged before.
    pub unacknowledged: Group,
}

impl<N: Net> InterComm<N> {
    /// The processes of both groups that this process knows to have failed, in the order in which
    /// that became known.
    pub fn failed(&self) -> Group {
        self.comm.failed()
    }

    /// As [`Comm::acknowledge`](crate::Comm::acknowledge).
    pub fn acknowledge(&self, count: u32) -> u32 {
        self.comm.acknowledge(count)
    }

    /// The failed processes whose failure was acknowledged.
    pub fn acknowledged(&self) -> Group {
        self.comm.acknowledged()
    }

    /// As [`Comm::revoke`](crate::Comm::revoke), at all members of both groups.
    pub fn revoke(&self) {
        self.comm.revoke();
    }

    /// Whether this process knows that the intercommunicator is revoked.
    pub fn is_revoked(&self) -> bool {
        self.comm.is_revoked()
    }

    /// As [`Comm::agree`](crate::Comm::agree), for both groups: each group gets the flags of the
    /// other one (ULFM).
    ///
    /// # Errors
    /// A failure is no error: see [`InterAgreed::unacknowledged`].
    pub fn agree(&self, flags: u32) -> Collective<'_, N, InterAgreed> {
        let (own, others) = if self.is_first() { (0, u32::BITS) } else { (u32::BITS, 0) };
        let flags = u64::from(flags) << own | u64::from(u32::MAX) << others;
        Collective::of_machine(&self.comm, move || {
            let agree = Agree::new(self.life(), flags);
            Ok(Agreeing { agree, own, group: Group::clone(&self.life().group) })
        })
    }
}

struct Agreeing {
    agree: Agree,
    /// The position of the local group's flags. The other half has the remote group's flags.
    own: u32,
    group: Group,
}

impl<N: Net> Machine<N> for Agreeing {
    type Output = InterAgreed;

    fn step(&mut self, io: &mut MachineIo<'_, N>) -> Option<Result<InterAgreed, Error>> {
        let value = self.agree.step(io)?;
        let flags = (value.flags << self.own >> u32::BITS) as u32;
        let unacknowledged = value.unacknowledged();
        let unacknowledged = unacknowledged.iter().filter_map(|rank| self.group.process(*rank));
        Some(Ok(InterAgreed { flags, unacknowledged: Group::new(unacknowledged) }))
    }
}
