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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_there_is_returned() {
        assert_eq!(Some(7).expected("it was just made"), Some(7));
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "the table has it")]
    fn a_debug_build_says_why_the_value_must_be_there() {
        let _ = None::<u8>.expected("the table has it");
    }
}
