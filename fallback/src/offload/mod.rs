//! The NIC's side: receives that a NIC may match, between the posted list, the NIC's list and the
//! shadow of it.
//!
//! Every posted receive stays on the posted list until it is known whether software or the NIC
//! matched it; the shadow decides which of them the NIC holds as well. A message that the NIC
//! reports as unexpected, or that came without the NIC, is searched for on the posted list like any
//! other. The shadow says what a hit means:
//!
//! ```text
//!                          not in the NIC ----------------------------> delivered
//! unexpected here --hit--> in the NIC, through its list: reclaimed ---> delivered, delete without answer
//!                          in the NIC, another way: waits for a delete
//!                                                   \--> deleted: delivered
//!                                                    \-> matched before: searches on
//! ```
//!
//! A message that waits holds up the later ones of its sender, and is found by no probe.
//!
//! # Receives whose tag has one sender
//! The NIC compares tags alone. Of receives that name their sender it gets those for which the
//! caller promises that nobody else sends messages with their tag. Software matches them by tag and
//! sender. When the NIC reports a match:
//!
//! 1. The receive leaves the posted list, as any; messages that waited for it search on.
//! 2. Once the data is there, sender and name are compared. If they differ, the receive fails with
//!    [`Fault::WrongSender`](crate::Fault::WrongSender), and its buffer goes back to its owner. The
//!    message is dropped and its credit given back. A sender that waits has its FIN if the NIC has
//!    read the message; otherwise it gets an abort.
//! 3. The sender is not broken with: its tag may be a mistake of either program, and means nothing
//!    to this protocol.
//!
//! When the named peer goes down, receives in the NIC are asked back as by a cancel. A receive that
//! the delete finds fails with the peer's fault; one that was matched before ends as its message
//! does.
//!
//! | file | what it knows |
//! |---|---|
//! | `state` | [`Offload`], which the protocol's core calls |
//! | `list` | the device's list: carries out what the shadow has decided |
//! | `entries` | receives in the NIC, and the buffers that it has |
//! | `landings` | receives that the NIC has matched, until everything about them is known |
//! | `waiting` | messages that wait for what the NIC says |
//!
//! # Decisions
//! - **Bounce buffers.** A receive shorter than the eager bound goes to the NIC with a bounce
//!   buffer that is long enough, so that a longer message can be matched there as well and is
//!   truncated when it is copied.
//! - **Companions.** A NIC that matches a rendezvous drops everything beside the RVH. So immediate
//!   data, and the part of a length beyond 32 bits, follow the request in a *companion* message
//!   without a tag. The receive ends when data and companion are both in. Software sees the whole
//!   request and drops the companion. At most one companion per peer is awaited.
//! - **Credit** returns when the data is there, since an eager message's length is known only then.
//!   A MATCH doesn't say whether the message was eager or a rendezvous; a flag in `app_ctx` does.

mod entries;
mod landings;
mod list;
mod state;
mod waiting;

use std::collections::VecDeque;

use tagmatch_device::slab::Key;
use tagmatch_device::{Limits, TagCaps};
use tagmatch_shadow::{Shadow, ShadowConfig, Why};

use self::entries::Entries;
use self::landings::Landings;
use self::waiting::WaitingMessages;
use crate::config::EngineConfig;

/// The state of a NIC's list, as software knows it.
#[derive(Clone, Debug)]
pub(crate) struct Offload {
    shadow: Shadow,
    entries: Entries,
    landings: Landings,
    waiting: WaitingMessages,
    reclaims: VecDeque<Reclaim>,
    /// [`Todo::Offload`] is under way.
    is_due: bool,
    is_closing: bool,
}

/// A message for a receive whose buffer the NIC still has, though it can't use it.
#[derive(Clone, Copy, Debug)]
struct Reclaim {
    handle: u32,
    slot: u32,
    why: Why,
    message: Key,
}

impl Offload {
    pub(crate) fn new(caps: TagCaps, limits: Limits, config: &EngineConfig) -> Self {
        let TagCaps { slots, operations, read_max, sync_every, first_count } = caps;
        let shadow = Shadow::new(&ShadowConfig {
            slots,
            operations,
            sync_every,
            first_count,
            threshold: config.nic_threshold,
            read_max,
            source_bits: config.source_bits,
        });
        Offload {
            shadow,
            entries: Entries::new(limits),
            landings: Landings::default(),
            waiting: WaitingMessages::default(),
            reclaims: VecDeque::new(),
            is_due: false,
            is_closing: false,
        }
    }
}
