//! Making communicators out of others.
//!
//! | file | contents |
//! |---|---|
//! | `create` | the calls `dup`, `split`, `create` and `create_group` |
//! | `shrink` | the call that makes a communicator of the living members |
//! | `allocating` | the rounds of an allocation of a context id over a channel |
//! | `choices` | the arguments that the members pass to a split |

mod allocating;
mod choices;
mod create;
mod shrink;

pub(crate) use allocating::{conclude, round};
pub(crate) use choices::{SplitChoice, chosen};
pub(crate) use create::Created;
pub(crate) use shrink::number;
