//! Options of `replay`.

use std::path::PathBuf;

use clap::Args;

use crate::spec::HwTagsArg;

#[derive(Args, Clone, Debug)]
pub(crate) struct Replay {
    /// The recorded history; - is standard input. Several: one line each, and their sum
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,
    /// Print what matched what, one line each, to FILE; - is standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) matches: Option<PathBuf>,
    /// The report as one line of JSON (times in ns) to FILE; - is standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// A chart of both lists' depths (entries) over the trace (operations)
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Matching by software (off), or by a model NIC with this many entries (model[:SLOTS]) [off]
    #[arg(long, value_name = "off|model[:SLOTS]", default_value_t = HwTagsArg::Off)]
    #[arg(hide_default_value = true)]
    pub(crate) hw_tags: HwTagsArg,
    /// Let N draw the NIC's delays and how far it lags, any number [no delays, no lag]
    #[arg(long, value_name = "N", requires = "hw_tags")]
    pub(crate) seed: Option<u64>,
}
