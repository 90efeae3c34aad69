//! Bugs that tests plant, to see that their checks find them: each breaks one rule where it is kept.

/// A rule to break. Only with the feature `defects`.
#[cfg_attr(not(feature = "defects"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// The count is raised before the posted list was searched.
    CountBeforeSearch,
    /// A message that waits for the NIC counts as searched for.
    CountWhileWaiting,
    /// Messages don't wait behind an earlier one of their sender.
    PassTheLane,
    /// Messages that waited for a receive which was cancelled are forgotten.
    ForgetWaiters,
    /// Of posted receives that match, the youngest is taken.
    NewestFirst,
    /// A receive that the NIC has matched is done before its data is there.
    DoneAtMatch,
    /// A receive that was matched stays on the posted list.
    StayPosted,
    /// A short receive is done without the bytes that the NIC has put elsewhere for it.
    ForgetBounce,
    /// A receive does not wait for its companion.
    ForgetCompanion,
    /// A receive ends with the message that the NIC gave it, whoever sent that.
    BelieveTag,
    /// A message that the NIC has matched gives no credit back.
    KeepCredit,
    /// A sender whose message could not be read isn't told.
    DropAbort,
    /// A sender whose message software has read isn't told.
    DropFin,
}

#[cfg(feature = "defects")]
impl Defect {
    /// All of them.
    pub const ALL: [Defect; 13] = [
        Defect::CountBeforeSearch,
        Defect::CountWhileWaiting,
        Defect::PassTheLane,
        Defect::ForgetWaiters,
        Defect::NewestFirst,
        Defect::DoneAtMatch,
        Defect::StayPosted,
        Defect::ForgetBounce,
        Defect::ForgetCompanion,
        Defect::BelieveTag,
        Defect::KeepCredit,
        Defect::DropAbort,
        Defect::DropFin,
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
