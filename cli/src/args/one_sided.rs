//! Options of `put`, `get` and `fadd`.

use clap::Args;

use super::common::Common;
use super::effort::Effort;
use crate::spec::Host;
use crate::spec::bounds::WINDOW_MAX;
use crate::units::{self, Sizes};

/// Options of all one-sided operations.
#[derive(Args, Clone, Debug)]
pub(crate) struct OneSidedArgs {
    /// Where `tagperf serve` runs (port 13338); without it both sides run here
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: Option<Host>,
    #[command(flatten)]
    pub(crate) effort: Effort,
    /// Messages (operations) under way at a time: bandwidth and rate [one, and its time]
    #[arg(long, value_name = "N", value_parser = units::count(1..=WINDOW_MAX))]
    pub(crate) window: Option<u64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of operations on any number of bytes.
#[derive(Args, Clone, Debug)]
pub(crate) struct OneSidedBulk {
    /// Bytes a message (operation): 1..4M (powers of two) or 8,4K,1M [1..4M]
    #[arg(long, alias = "size", value_name = "SIZES")]
    pub(crate) sizes: Option<Sizes>,
    #[command(flatten)]
    pub(crate) one_sided: OneSidedArgs,
}
