//! `tagperf info`: which devices there are.

use crate::failure::Failure;

pub(crate) fn command() -> Result<(), Failure> {
    Ok(())
}
