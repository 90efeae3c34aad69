//! Options of `depth`.

use clap::Args;

use super::common::Common;
use super::effort::Effort;
use super::lists::{List, depths, percents};
use crate::spec::bounds::IDLE_MAX;
use crate::spec::{Host, Order, Queue};
use crate::units::{self, Sizes};

#[derive(Args, Clone, Debug)]
pub(crate) struct Depth {
    /// Where `tagperf serve` runs (port 13338); without it both sides run here
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: Option<Host>,
    /// Entries in the queue: 0..16K (powers of two) or 16,1000 [0..16K; --drain: 16..16K]
    #[arg(long, value_name = "LIST", value_parser = depths)]
    pub(crate) depths: Option<Sizes>,
    /// Which queue is deep: posted or unexpected [one after the other]
    #[arg(long, value_name = "QUEUE", value_enum, hide_possible_values = true)]
    pub(crate) queue: Option<Queue>,
    /// Shares of the posted receives (--drain: of all) that take any source, in percent [0,50,100;
    /// --drain: 0]
    #[arg(long, value_name = "LIST", value_parser = percents)]
    pub(crate) wildcard: Option<List<u8>>,
    /// Let the measured receives take any source (not --drain: there it is --wildcard)
    #[arg(long, conflicts_with = "drain")]
    pub(crate) wildcard_recv: bool,
    /// Fill the queue, then match all of it: ns a message; --iters are messages
    #[arg(long)]
    pub(crate) drain: bool,
    /// Orders to drain in: forward (the queue's own), reverse, random, adversarial (reverse, tags
    /// of one bucket modulo the usual table sizes) [forward]
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', requires = "drain")]
    #[arg(hide_possible_values = true)]
    pub(crate) order: Vec<Order>,
    /// Which shuffles --order random deals, any number [1]
    #[arg(long, value_name = "N", requires = "drain")]
    pub(crate) seed: Option<u64>,
    /// Bytes a message, one size: 8, 4K [8]
    #[arg(long = "sizes", alias = "size", value_name = "SIZE", value_parser = units::size)]
    pub(crate) size: Option<u64>,
    #[command(flatten)]
    pub(crate) effort: Effort,
    /// Peers that are connected to each side and stay silent
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = units::count(0..=IDLE_MAX))]
    pub(crate) idle_peers: u64,
    #[command(flatten)]
    pub(crate) common: Common,
}
