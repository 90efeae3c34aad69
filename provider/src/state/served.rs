//! Memory regions that peers may use.

use tagmatch::{Local, Region};

/// A memory region that peers may use.
pub(crate) struct ServedRegion {
    /// The worker's region.
    pub(crate) region: Region<Local>,
    /// How often peers had changed it when that was counted last.
    pub(crate) changes: u64,
}
