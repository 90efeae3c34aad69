//! Agreements of both groups of an intercommunicator.

use super::intercomm::InterComm;
use crate::comm::Collective;
use crate::driver::{Agree, Machine, MachineIo};
use crate::error::Error;
use crate::group::Group;
use crate::net::Net;

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
        Some(self.agree.step(io)?.map(|value| {
            let flags = (value.flags << self.own >> u32::BITS) as u32;
            let unacknowledged = value.unacknowledged();
            let unacknowledged = unacknowledged.iter().filter_map(|rank| self.group.process(*rank));
            InterAgreed { flags, unacknowledged: Group::new(unacknowledged) }
        }))
    }
}
