//! The receive of Open MPI that names a wrong source.
//!
//! Open MPI acknowledges a synchronous send by an empty message. Before it sends, it posts the
//! receive of that. If its tags name the sender (`ofi_tag_1`, `ofi_tag_2`), `MPI_Ssend` names
//! address 0 as the source, whoever the peer is (`src_addr` in `ompi_mtl_ofi_send_generic` of
//! `ompi/mca/mtl/ofi/mtl_ofi.h`, 4.1 to 5.0), and would wait for ever. The right source is the
//! destination of the send that follows.
//!
//! So such a receive is held back until the next call on its endpoint. If that call sends the
//! message of which the receive awaits the acknowledgement, the receive names its destination.
//! Otherwise it names what the program named. It takes messages of one source in either case.

use tagmatch::Buffer;
use tagmatch_ofi_provider::Pattern;

use super::operation::Receive;
use crate::library;

/// The address that Open MPI names.
const NAMED: u64 = 0;
/// Where the two bits of Open MPI's protocol are in a tag, in `ofi_tag_1` and in `ofi_tag_2`: the
/// lower one marks a send that wants an acknowledgement, the upper one the acknowledgement.
const PROTOCOL_SHIFTS: [u32; 2] = [32, 20];

/// A receive that is held back.
pub(crate) struct HeldReceive {
    pub(crate) pattern: Pattern,
    pub(crate) buffer: Buffer,
    pub(crate) receive: Receive,
}

/// Whether a receive without room may be one of those that name a wrong source.
#[cold]
#[inline(never)]
pub(crate) fn is_suspect(pattern: Pattern) -> bool {
    pattern.source == NAMED
        && pattern.mask == u64::MAX
        && !pattern.is_untagged()
        && library::is_open_mpi()
}

/// Whether a receive with the first tag awaits the acknowledgement of a message with the second.
fn acknowledges(tag: u64, sent: u64) -> bool {
    PROTOCOL_SHIFTS.iter().any(|shift| tag ^ sent == 3 << shift && tag >> shift & 3 == 2)
}

impl HeldReceive {
    /// What the receive takes. `sent`: the address and the tag of the message that is about to be
    /// sent, if the call sends one.
    pub(crate) fn pattern(&self, sent: Option<(u64, u64)>) -> Pattern {
        match sent {
            Some((source, tag)) if acknowledges(self.pattern.tag, tag) => {
                Pattern { source, ..self.pattern }
            }
            _ => self.pattern,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_has_the_tag_of_its_message() {
        for shift in PROTOCOL_SHIFTS {
            let tag = 5 << 40 | 9;
            let wanted = tag | 1 << shift;
            let acknowledged = tag | 2 << shift;
            assert!(acknowledges(acknowledged, wanted));
            for other in [tag, wanted ^ 1, acknowledged, wanted | 1 << 50] {
                assert!(!acknowledges(acknowledged, other), "{other:x}");
            }
            assert!(!acknowledges(wanted, acknowledged));
        }
    }
}
