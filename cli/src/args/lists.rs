//! Values of options: lists of depths, percentages and numbers of threads, and a rate.

use std::str::FromStr;

use crate::spec::bounds::{DEPTH_MAX, THREADS_MAX};
use crate::units::Sizes;

/// Entries of a list of percentages, or of numbers of threads.
const LIST_MAX: usize = 16;

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
        if percents.len() > LIST_MAX {
            let count = percents.len();
            return Err(format!("{count} percentages; at most {LIST_MAX} would be right"));
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
        let count = |text: &str| {
            let count = text.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
            count.ok_or_else(|| {
                format!("`{text}` is no number of threads; 1 to {THREADS_MAX} would be right")
            })
        };
        let counts = text.split(',').map(count).collect::<Result<Vec<_>, _>>()?;
        if counts.len() > LIST_MAX {
            let found = counts.len();
            return Err(format!("{found} numbers of threads; at most {LIST_MAX} would be right"));
        }
        Ok(Self(counts))
    }
}

/// Messages a second: `250000`, `250k`, `1.5M`; decimal, unlike sizes. Returns the ps between two
/// messages.
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

/// A percentage: `50` or `50%`.
pub(super) fn percent(text: &str) -> Result<u8, String> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    digits
        .parse()
        .ok()
        .filter(|&percent| percent <= 100)
        .ok_or_else(|| format!("`{text}` is no percentage; 0 to 100 would be right"))
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
