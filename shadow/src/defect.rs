//! Bugs that tests plant, to see that their checks find them: each breaks one rule where it is kept.

/// A rule to break. Only with the feature `defects`.
#[cfg_attr(not(feature = "defects"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// An entry whose ADD is answered counts as active, whatever came up meanwhile.
    IgnorePhases,
    /// An entry counts as active before its ADD is answered.
    ActivateEarly,
    /// A slot is used again as soon as its message matched.
    FreeAtFirstCompletion,
    /// A delete that lost counts as one that won.
    LostIsCancelled,
    /// No receive is in another's way.
    SkipC1,
    /// Receives are in each other's way only if a hash of their tags is the same.
    C1ByBucket,
    /// An entry that missed its phase is in nobody's way.
    C1BlindToInactive,
    /// A message that came up elsewhere takes an entry without asking the NIC.
    DeliverOtherDeviceAtOnce,
    /// A withdrawing delete carries the count that its message has raised.
    CountBeforeWithdraw,
    /// Entries are added before others are withdrawn.
    AddBeforeWithdraw,
    /// The NIC isn't told the count where no other operation tells it.
    ForgetSync,
    /// No operation is kept back for deletes.
    NoReserve,
    /// An ADD carries the count that was told last.
    StaleCountInAdd,
    /// Of entries that missed their phase, the oldest is deleted first.
    AgainOldestFirst,
    /// Messages that came up and wait to be searched for don't count in the phase.
    PhaseBySearched,
    /// A message of the list takes an entry that is being deleted for somebody else.
    TakeWhileCancelled,
    /// Who waits on a receive isn't looked at when it leaves.
    ForgetToPromote,
}

#[cfg(feature = "defects")]
impl Defect {
    /// All of them.
    pub const ALL: [Defect; 17] = [
        Defect::IgnorePhases,
        Defect::ActivateEarly,
        Defect::FreeAtFirstCompletion,
        Defect::LostIsCancelled,
        Defect::SkipC1,
        Defect::C1ByBucket,
        Defect::C1BlindToInactive,
        Defect::DeliverOtherDeviceAtOnce,
        Defect::CountBeforeWithdraw,
        Defect::AddBeforeWithdraw,
        Defect::ForgetSync,
        Defect::NoReserve,
        Defect::StaleCountInAdd,
        Defect::AgainOldestFirst,
        Defect::PhaseBySearched,
        Defect::TakeWhileCancelled,
        Defect::ForgetToPromote,
    ];
}

/// The one that is planted, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "defects")]
    pub(crate) defect: Option<Defect>,
}

impl Planted {
    #[cfg(feature = "defects")]
    pub(crate) fn is(self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    #[cfg(not(feature = "defects"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(crate) const fn is(self, _: Defect) -> bool {
        false
    }
}
