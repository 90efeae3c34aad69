//! Says in a patched copy of tagmatch which slip is to be made: the one that `TAGMATCH_PLANTED`
//! names.

use std::env;
use std::sync::OnceLock;

/// Whether this slip is to be made. The environment is read once.
pub fn is(slip: &str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| env::var("TAGMATCH_PLANTED").ok()).as_deref() == Some(slip)
}
