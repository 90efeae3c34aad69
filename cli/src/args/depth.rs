//! `tagperf depth`: its options, and the lists that they take.

use std::str::FromStr;

use clap::Args;

use super::{Common, DEPTH_MAX, Effort, Host, IDLE_MAX, percent};
use crate::control::message::{Order, Queue};
use crate::units::{self, Sizes};

/// Most entries of a list of percentages.
const PERCENTS_MAX: usize = 16;

#[derive(Args, Clone, Debug)]
pub(crate) struct Depth {
    /// Where `tagperf serve` runs (port 13338); without it both sides run here
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: Option<Host>,
    /// Entries in the queue: 0..16K (powers of two) or 16,1000 [0..16K; --drain: 16..16K]
    #[arg(long, value_name = "LIST")]
    pub(crate) depths: Option<Depths>,
    /// Which queue is deep: posted or unexpected [one after the other]
    #[arg(long, value_name = "QUEUE", value_enum, hide_possible_values = true)]
    pub(crate) queue: Option<Queue>,
    /// Shares of the posted receives (--drain: of all) that take any source, in percent [0,50,100;
    /// --drain: 0]
    #[arg(long, value_name = "LIST")]
    pub(crate) wildcard: Option<Percents>,
    /// Let the measured receives take any source (not --drain: there it is --wildcard)
    #[arg(long, conflicts_with = "drain")]
    pub(crate) wildcard_recv: bool,
    /// Fill the queue, then match all of it: ns a message; --iters are messages
    #[arg(long)]
    pub(crate) drain: bool,
    /// Orders to drain in: forward (the queue's own), reverse, random, adversarial (reverse, tags of
    /// one bucket modulo the usual table sizes) [forward]
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

/// A list of depths: `0..16K` (powers of two) or `16,1000`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Depths(pub(crate) Vec<u64>);

impl FromStr for Depths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let depths = text.parse::<Sizes>().ok().map(|Sizes(depths)| depths);
        let depths = depths.filter(|depths| depths.iter().all(|&depth| depth <= DEPTH_MAX));
        depths.map(Self).ok_or_else(|| {
            format!("`{text}` is no list of depths; 0..16K or 16,1000 (at most 1M) would be right")
        })
    }
}

/// A list of percentages: `0,50,100`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Percents(pub(crate) Vec<u8>);

impl FromStr for Percents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percents = text.split(',').map(percent).collect::<Result<Vec<_>, _>>()?;
        if percents.len() > PERCENTS_MAX {
            let count = percents.len();
            return Err(format!("{count} percentages; at most {PERCENTS_MAX} would be right"));
        }
        Ok(Self(percents))
    }
}

/// A list of numbers of threads: `1,2,4`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Threads(pub(crate) Vec<u64>);

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use super::THREADS_MAX;
        let count = |text: &str| {
            let count = text.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
            count.ok_or_else(|| {
                format!("`{text}` is no number of threads; 1 to {THREADS_MAX} would be right")
            })
        };
        let counts = text.split(',').map(count).collect::<Result<Vec<_>, _>>()?;
        if counts.len() > PERCENTS_MAX {
            let found = counts.len();
            return Err(format!(
                "{found} numbers of threads; at most {PERCENTS_MAX} would be right"
            ));
        }
        Ok(Self(counts))
    }
}

/// Messages a second: `250000`, `250k`, `1.5M`. Decimal, unlike sizes. As ps between two messages.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "`{text}` is no rate; messages a second such as 1000, 250k, 1.5M (1 to 1000M) \
                 would be right"
        )
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        _ => return Err(wrong()),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(wrong());
    }
    let rate = digits.parse::<f64>().map_err(|_| wrong())? * unit;
    if !(1.0..=1e9).contains(&rate) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, reason = "between 1e3 and 1e12")]
    Ok((1e12 / rate).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!("0..8".parse(), Ok(Depths(vec![0, 1, 2, 4, 8])));
        assert_eq!("16,1000,1M".parse(), Ok(Depths(vec![16, 1000, 1 << 20])));
        assert_eq!("0,50%,100".parse(), Ok(Percents(vec![0, 50, 100])));
        assert_eq!("1,2".parse(), Ok(Threads(vec![1, 2])));
        for wrong in ["", "x", "2M", "8..0", "1,,2"] {
            assert!(wrong.parse::<Depths>().unwrap_err().contains("would be right"), "{wrong}");
        }
        for wrong in ["", "101", "1,,2", "-1", "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"] {
            assert!(wrong.parse::<Percents>().unwrap_err().contains("would be right"), "{wrong}");
        }
        for wrong in ["", "0", "65", "1,,2", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"] {
            assert!(wrong.parse::<Threads>().unwrap_err().contains("would be right"), "{wrong}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate("1"), Ok(1_000_000_000_000));
        assert_eq!(rate("1k"), Ok(1_000_000_000));
        assert_eq!(rate("2.5M"), Ok(400_000));
        assert_eq!(rate("1000M"), Ok(1000));
        for wrong in ["", "0", "0.5", "1001M", "1m", "1G", "-1", "1e3", "nan", "inf", "1k2"] {
            assert!(rate(wrong).unwrap_err().contains("would be right"), "{wrong}");
        }
    }
}
