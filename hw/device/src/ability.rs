//! What differs between the devices, in one table. Tests ask it what to expect of the device that
//! they run on, and pages and documentation show it.

use std::fmt::Write;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Shared memory.
    Shm,
    /// RDMA by libibverbs.
    Verbs,
    /// TCP.
    Tcp,
    /// UCX.
    Ucx,
    /// A provider of libfabric.
    Ofi,
}

impl DeviceKind {
    /// All of them, in the order of the table's columns.
    pub const ALL: [DeviceKind; 5] =
        [DeviceKind::Shm, DeviceKind::Verbs, DeviceKind::Tcp, DeviceKind::Ucx, DeviceKind::Ofi];

    /// The name by which settings and pages call it.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Shm => "shm",
            DeviceKind::Verbs => "verbs",
            DeviceKind::Tcp => "tcp",
            DeviceKind::Ucx => "ucx",
            DeviceKind::Ofi => "ofi",
        }
    }

    /// Whether the device matches messages by itself
    /// (`MatchingDevice`); otherwise tagmatch matches them.
    pub const fn matches(self) -> bool {
        matches!(self, DeviceKind::Ucx | DeviceKind::Ofi)
    }
}

/// Something that not every device can do.
///
#[doc = include_str!("abilities.md")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Counts unexpected messages, and how receives were matched.
    Counts,
    /// Tells an observer of its matching lists, as recording a trace needs it.
    Observes,
    /// Bounds the memory that unexpected messages take.
    Bounds,
    /// Matches in constant time, whatever waits.
    ConstantTime,
    /// Sends that are complete once their bytes are in the receiver's buffer.
    Delivered,
    /// Delivers the first bytes of a message that doesn't fit.
    FirstBytes,
    /// Carries tags of 64 bits, whatever the layout.
    AllTags,
    /// Carries immediate data, whatever the layout.
    WideImmediate,
    /// Receives messages of a peer by their tags however many others of it wait.
    ManyWaiting,
    /// Sends a slice at once, or says that it can't.
    AtOnce,
    /// Forgets peers that went down long ago.
    Forgets,
    /// Puts, gets and atomic operations on memory that a peer has exposed.
    OneSided,
}

impl Ability {
    /// All of them, in the order of the table's rows.
    pub const ALL: [Ability; 12] = [
        Ability::Counts,
        Ability::Observes,
        Ability::Bounds,
        Ability::ConstantTime,
        Ability::Delivered,
        Ability::FirstBytes,
        Ability::AllTags,
        Ability::WideImmediate,
        Ability::ManyWaiting,
        Ability::AtOnce,
        Ability::Forgets,
        Ability::OneSided,
    ];

    /// What it is, in the words of the table.
    pub const fn meaning(self) -> &'static str {
        match self {
            Ability::Counts => "counts unexpected messages, and how receives were matched",
            Ability::Observes => "shows its matching lists to an observer, so records traces",
            Ability::Bounds => "bounds the memory of unexpected messages",
            Ability::ConstantTime => "matches in constant time: wildcards, and any depth",
            Ability::Delivered => "sends that are complete once delivered",
            Ability::FirstBytes => "delivers the first bytes of a message longer than its buffer",
            Ability::AllTags => "tags of 64 bits, whatever the layout",
            Ability::WideImmediate => "immediate data, whatever the layout",
            Ability::ManyWaiting => "finds a message behind any number of others of its peer",
            Ability::AtOnce => "sends a slice at once or not at all (`inject_at_once`)",
            Ability::Forgets => "forgets peers that went down, so meets any number of them",
            Ability::OneSided => "puts, gets and atomic operations on a peer's memory",
        }
    }

    /// Why a kind of device lacks the ability; `None` if it has it. Of libfabric's providers, some
    /// have [`Ability::ManyWaiting`].
    pub const fn lacking(self, kind: DeviceKind) -> Option<&'static str> {
        match (self, kind) {
            (Ability::Forgets, DeviceKind::Verbs) => {
                Some("a number that a NIC's completions name is not given again")
            }
            (Ability::Forgets, DeviceKind::Ucx | DeviceKind::Ofi) => {
                Some("a number that tags carry is not given again")
            }
            (_, DeviceKind::Shm | DeviceKind::Verbs | DeviceKind::Tcp) => None,
            (Ability::Counts, DeviceKind::Ucx) => Some("UCX doesn't tell the lengths of its lists"),
            (Ability::Counts, DeviceKind::Ofi) => {
                Some("a provider doesn't tell the lengths of its lists")
            }
            (Ability::Observes, _) => Some("it matches by itself, and shows no lists"),
            (Ability::Bounds, DeviceKind::Ucx) => Some("UCX takes eager messages as they arrive"),
            (Ability::Bounds, DeviceKind::Ofi) => {
                Some("a provider takes eager messages as they arrive")
            }
            (Ability::ConstantTime, DeviceKind::Ucx) => {
                Some("UCX walks one list for all receives that don't compare every bit")
            }
            (Ability::ConstantTime, DeviceKind::Ofi) => Some("most providers walk a list"),
            (Ability::Delivered, DeviceKind::Ucx) => {
                Some("UCX acknowledges a message when it is matched, not when it is copied")
            }
            (Ability::FirstBytes, DeviceKind::Ucx) => {
                Some("UCX drops it, tells its length, and the buffer is set to zeros")
            }
            (Ability::AllTags, DeviceKind::Ucx) => {
                Some("UCX carries the sender and immediate data in the 64 bits, too")
            }
            (Ability::AllTags, DeviceKind::Ofi) => Some("the 64 bits carry the sender, too"),
            (Ability::WideImmediate, DeviceKind::Ucx) => {
                Some("it is refused unless the layout leaves 33 bits free")
            }
            (Ability::ManyWaiting, DeviceKind::Ofi) => {
                Some("the providers `tcp` and `net` stop reading behind 64 that wait; others don't")
            }
            (Ability::OneSided, _) => Some("not written yet for devices that match by themselves"),
            (Ability::AtOnce, _) => Some("it doesn't say beforehand whether a message can leave"),
            (
                Ability::Delivered | Ability::FirstBytes | Ability::WideImmediate,
                DeviceKind::Ofi,
            )
            | (Ability::ManyWaiting, DeviceKind::Ucx) => None,
        }
    }

    /// The table: a row for each ability, a column for each kind of device, in Markdown.
    pub fn table() -> String {
        let mut text = String::from("| |");
        for kind in DeviceKind::ALL {
            let _ = write!(text, " `{}` |", kind.name());
        }
        text += "\n|---|---|---|---|---|---|\n";
        for ability in Ability::ALL {
            let _ = write!(text, "| {} |", ability.meaning());
            for kind in DeviceKind::ALL {
                let _ = match ability.lacking(kind) {
                    None => write!(text, " yes |"),
                    Some(why) => write!(text, " **no**: {why} |"),
                };
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_the_table() {
        assert_eq!(include_str!("abilities.md"), Ability::table());
    }

    #[test]
    fn a_device_that_matches_by_itself_shows_no_lists() {
        for kind in DeviceKind::ALL {
            assert_eq!(kind.matches(), Ability::Observes.lacking(kind).is_some(), "{kind:?}");
        }
    }
}
