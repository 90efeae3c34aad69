//! Values that can't be missing, unless this program has a bug.

/// A value that must be there.
pub trait Expected: Sized {
    /// The value itself. If it is not there, that is a bug of this program: a debug build stops
    /// with `why`, the reason why the value must be there. Any other build goes on with `None`, and
    /// so leaves out what the value was for.
    #[must_use]
    fn expected(self, why: &str) -> Self;
}

impl<T> Expected for Option<T> {
    #[inline(always)]
    #[track_caller]
    fn expected(self, why: &str) -> Self {
        debug_assert!(self.is_some(), "{why}");
        self
    }
}
