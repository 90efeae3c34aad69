//! Bugs that tests plant, to see that their checks find them: each breaks one rule where it is kept.

/// A rule to break. Only with the feature `defects`.
#[cfg_attr(not(feature = "defects"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// Freeing a derived id frees what it was derived from.
    FreeDerived,
    /// A first round offers the eager words although another allocation holds them.
    ShareEager,
    /// A later round offers the mask although another allocation holds it.
    ShareBase,
    /// Whoever comes first gets the mask, whatever its place in the list.
    NoOrder,
    /// An allocation that ends early keeps what it holds.
    KeepClaims,
    /// An allocation that ends early stays in the list.
    StayListed,
    /// A rank that is to be ignored takes the id too.
    IgnoredTakes,
    /// Ids run out although other allocations hold the eager words just then.
    HastyExhaustion,
}

#[cfg(feature = "defects")]
impl Defect {
    /// All of them.
    pub const ALL: [Defect; 8] = [
        Defect::FreeDerived,
        Defect::ShareEager,
        Defect::ShareBase,
        Defect::NoOrder,
        Defect::KeepClaims,
        Defect::StayListed,
        Defect::IgnoredTakes,
        Defect::HastyExhaustion,
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
