//! Options of `lat`, `bw`, `bibw` and `rate`.

use clap::Args;

use super::common::Common;
use super::effort::Effort;
use super::lists::{List, percent, rate, threads};
use crate::spec::bounds::{DEPTH_MAX, IDLE_MAX, WINDOW_MAX};
use crate::spec::{Completions, Host};
use crate::units::{self, Sizes};

#[derive(Args, Clone, Debug)]
pub(crate) struct Measure {
    /// Where `tagperf serve` runs (port 13338); without it both sides run here
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: Option<Host>,
    /// Bytes a message: 0..4M (powers of two) or 8,4K,1M [0..4M; bw, bibw: 1..4M; rate, --rate: 8]
    #[arg(long, alias = "size", value_name = "SIZES")]
    pub(crate) sizes: Option<Sizes>,
    #[command(flatten)]
    pub(crate) effort: Effort,
    /// Messages sent before an answer; lat --rate: in flight at most [64, at most 1 MiB]
    #[arg(long, value_name = "N", value_parser = units::count(1..=WINDOW_MAX))]
    pub(crate) window: Option<u64>,
    /// Receives posted first on both sides that never match
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = units::count(0..=DEPTH_MAX))]
    pub(crate) posted_depth: u64,
    /// Messages sent first by both sides that no receive takes
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = units::count(0..=DEPTH_MAX))]
    pub(crate) unexpected_depth: u64,
    /// Share of the posted receives that take any source, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = percent)]
    pub(crate) wildcard: u8,
    /// Let the measured receives take any source
    #[arg(long)]
    pub(crate) wildcard_recv: bool,
    /// Peers that are connected to each side and stay silent
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = units::count(0..=IDLE_MAX))]
    pub(crate) idle_peers: u64,
    /// Threads a side that share its worker, each with its tag; a list: one row each
    #[arg(long, value_name = "N[,N]", value_parser = threads)]
    pub(crate) threads: Option<List<u64>>,
    /// Send one buffer again and again, as UCX and OSU do; checks the last messages only
    #[arg(long)]
    pub(crate) single_buffer: bool,
    /// bw, bibw, rate: operations end by requests or queue [requests]
    #[arg(long, value_name = "WAY", value_enum, hide_possible_values = true)]
    pub(crate) completions: Option<Completions>,
    /// lat: messages a second at planned times, latency one way from those (1000, 250k, 1M)
    #[arg(long, value_name = "R", value_parser = rate)]
    #[arg(conflicts_with_all = ["threads", "single_buffer", "oneself"])]
    pub(crate) rate: Option<u64>,
    /// One process that sends to itself (not bibw)
    #[arg(long = "self", conflicts_with = "host")]
    pub(crate) oneself: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}
