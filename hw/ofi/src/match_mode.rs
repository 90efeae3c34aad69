//! How the provider `cxi` matches.

use std::ffi::CStr;
use std::fmt;

/// A mode of matching of `cxi` that doesn't end the process where the NIC has no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchMode {
    Software,
    /// The NIC, and software where the NIC has no room.
    Hybrid,
}

impl MatchMode {
    /// As the provider spells it.
    pub(super) fn name(self) -> &'static CStr {
        match self {
            MatchMode::Software => c"software",
            MatchMode::Hybrid => c"hybrid",
        }
    }
}

impl fmt::Display for MatchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_string_lossy())
    }
}
