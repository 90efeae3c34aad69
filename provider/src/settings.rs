//! The provider's settings.

use std::path::PathBuf;
use std::sync::Arc;

use tagmatch::Config;

/// The settings of the environment.
pub(crate) struct Settings;

impl Settings {
    /// Whether workers are UCX's.
    #[expect(clippy::unused_self, reason = "the device is a setting")]
    pub(crate) fn is_ucx(&self) -> bool {
        false
    }

    /// Where the report goes: `TAGMATCH_FI_REPORT`.
    #[expect(clippy::unused_self, reason = "it will be read with the others")]
    pub(crate) fn report(&self) -> Option<PathBuf> {
        std::env::var_os("TAGMATCH_FI_REPORT").map(PathBuf::from)
    }

    /// The folder for traces: `TAGMATCH_FI_TRACE`.
    #[expect(clippy::unused_self, reason = "it will be read with the others")]
    pub(crate) fn trace(&self) -> Option<PathBuf> {
        std::env::var_os("TAGMATCH_FI_TRACE").map(PathBuf::from)
    }

    /// The settings of a worker.
    #[expect(clippy::unused_self, reason = "the device is a setting")]
    pub(crate) fn config(&self) -> Config {
        Config::default()
    }
}

/// The settings that the environment gives; `None` if one of them is wrong.
#[expect(clippy::unnecessary_wraps, reason = "a setting may be wrong")]
pub(crate) fn of_environment() -> Option<Arc<Settings>> {
    Some(Arc::new(Settings))
}
