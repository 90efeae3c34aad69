//! Bugs that tests plant, to see that their checks find them: each breaks one rule where it is kept.

/// A rule to break. Only with the feature `defects`.
#[cfg_attr(not(feature = "defects"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// Freeing a derived id frees what it was derived from.
    FreeDerived,
    /// A first round offers ids that another allocation holds.
    ShareEager,
    /// A later round offers ids that another allocation holds.
    ShareBase,
    /// Whoever comes first gets the mask, whatever its place in the list.
    NoOrder,
    /// An allocation that ends early keeps what it holds.
    KeepClaims,
    /// An allocation that ends early stays in the list.
    StayListed,
    /// A rank that is to be ignored takes the id too.
    IgnoredTakes,
    /// Ids run out although a later round of another allocation holds some just then.
    HastyExhaustion,
    /// A first round holds ids although few are left.
    HoldLast,
    /// Ids run out although nobody was asked whether those that rest can be given out.
    Unsettled,
    /// An id that was freed is given out at once.
    NoRest,
    /// A process that may still get a communicator says that it is done with its id.
    IgnoreNascent,
    /// An id of an intercommunicator is given out although members of the other group may send in it.
    ForgetRemote,
    /// What waits in an id that is given out again stays.
    NoPurge,
    /// Collective operations are in the context of the program's own messages.
    OneContext,
    /// All collective operations of a communicator have the same number.
    OneNumber,
    /// A process that knows of a failure doesn't mark what it sends.
    NoMark,
    /// A process that knows of a failure ends its operation at once.
    GiveUp,
    /// The left operand of a reduction is taken for the right one.
    SwapOperands,
    /// Layers lie in the order in which they were given.
    LayersAsGiven,
    /// What layers have attached is dropped from the lowest level to the highest.
    UndoUpwards,
    /// Patched tables are shared whatever is beneath them.
    ShareAcross,
    /// A split does not look at keys.
    NoKeys,
    /// A message that is too long is cut without a word.
    CutQuietly,
    /// A message is of the rank that it says.
    BelieveRank,
    /// An agreement takes a decision of an older ballot.
    AnyBallot,
    /// What was gathered at one ballot counts at the next one.
    KeepGathered,
    /// A process whose agreement is over doesn't tell a new leader what was decided.
    ForgetDecision,
    /// A process whose parent in an agreement died doesn't report to the next one.
    ReportOnce,
    /// A revocation is not passed on.
    NoForward,
    /// A revocation is taken for that of a later communicator with the same context id.
    IgnoreEpoch,
    /// A receive from any source waits although a member has failed.
    WaitForDead,
    /// A member whose round of an allocation has failed doesn't tell those who begin another one.
    LeaveQuietly,
    /// A shrink is over at a member once that one has a context id.
    NoConclusion,
    /// What two leaders have agreed on about an intercommunicator is taken for its opposite.
    InvertedFlag,
    /// Who was told of an intercommunicator by its leader takes it, whatever others were told.
    LeaderDecides,
    /// A group agrees on an intercommunicator without the other one.
    NoUnion,
    /// That a group's leader has died doesn't matter for what it has heard of the other group.
    LeaderLost,
    /// Who has refused an intercommunicator doesn't answer the other group.
    RefuseQuietly,
    /// Who takes part in the agreement of two groups doesn't ask those who know nothing of it.
    AskNobody,
    /// The leaders of two groups don't swap what they have of theirs: each group gets its own.
    KeepOwn,
    /// A stage of an operation of two groups begins as if the one before had not failed.
    StageQuietly,
    /// Who shrinks an intercommunicator takes those for dead of whom it knows that itself.
    OwnKnowledge,
}

#[cfg(feature = "defects")]
impl Defect {
    /// All of them.
    pub const ALL: [Defect; 43] = [
        Defect::FreeDerived,
        Defect::ShareEager,
        Defect::ShareBase,
        Defect::NoOrder,
        Defect::KeepClaims,
        Defect::StayListed,
        Defect::IgnoredTakes,
        Defect::HastyExhaustion,
        Defect::HoldLast,
        Defect::Unsettled,
        Defect::NoRest,
        Defect::IgnoreNascent,
        Defect::ForgetRemote,
        Defect::NoPurge,
        Defect::OneContext,
        Defect::OneNumber,
        Defect::NoMark,
        Defect::GiveUp,
        Defect::SwapOperands,
        Defect::LayersAsGiven,
        Defect::UndoUpwards,
        Defect::ShareAcross,
        Defect::NoKeys,
        Defect::CutQuietly,
        Defect::BelieveRank,
        Defect::AnyBallot,
        Defect::KeepGathered,
        Defect::ForgetDecision,
        Defect::ReportOnce,
        Defect::NoForward,
        Defect::IgnoreEpoch,
        Defect::WaitForDead,
        Defect::LeaveQuietly,
        Defect::NoConclusion,
        Defect::InvertedFlag,
        Defect::LeaderDecides,
        Defect::NoUnion,
        Defect::LeaderLost,
        Defect::RefuseQuietly,
        Defect::AskNobody,
        Defect::KeepOwn,
        Defect::StageQuietly,
        Defect::OwnKnowledge,
    ];
}

/// The one that is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
