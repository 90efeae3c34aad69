//! Sizes, counts and durations, as people type and read them.
//!
//! Sizes are binary: `4K` is 4096 bytes. An error names the value and what is expected.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use tagmatch_results::show::invalid;

/// The largest message.
pub(crate) const SIZE_MAX: u64 = 1 << 30;
/// Sizes of a list.
const SIZES_MAX: usize = 64;

/// A list of message sizes: `0..4M` (powers of two) or `8,4K,1M`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sizes(pub(crate) Vec<u64>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((from, to)) = text.split_once("..") {
            let from = size(from)?;
            let to = size(to)?;
            if from > to {
                return Err(invalid("range", text, format_args!("{to}..{from}")));
            }
            return Ok(Self::powers(from, to));
        }
        let sizes = text.split(',').map(size).collect::<Result<Vec<_>, _>>()?;
        if sizes.len() > SIZES_MAX {
            return Err(format!("{} sizes: expected at most {SIZES_MAX}", sizes.len()));
        }
        Ok(Self(sizes))
    }
}

impl Sizes {
    /// Powers of two up to 4 MiB, from 0 B or from 1 B on.
    pub(crate) fn sweep(from: u64) -> Self {
        Self::powers(from, 4 << 20)
    }

    /// Both ends, and the powers of two between them.
    pub(crate) fn powers(from: u64, to: u64) -> Self {
        let powers = (0..u64::BITS).map(|bit| 1 << bit).filter(|&size| from < size && size < to);
        let last = Some(to).filter(|_| to != from);
        Self(std::iter::once(from).chain(powers).chain(last).collect())
    }
}

/// A whole number with a unit behind it, which stands for so many bits. A number that doesn't fit
/// becomes the largest one.
fn binary(text: &str, units: &[(&str, u32)]) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let (_, shift) = units.iter().find(|(name, _)| *name == unit)?;
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| digits.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1 << shift))
}

/// A number with a unit behind it, which stands for a factor: no sign, no exponent.
pub(crate) fn decimal(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit() && c != '.');
    let (_, factor) = units.iter().find(|(name, _)| *name == &text[digits.len()..])?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    digits.parse::<f64>().ok().filter(|_| is_plain).map(|number| number * factor)
}

/// One size: `8`, `4K`, `1M`, `1G`, or with `KiB` and so on.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let units = [("k", 10), ("kib", 10), ("m", 20), ("mib", 20), ("g", 30), ("gib", 30)];
    let size = binary(text, &[&[("", 0), ("b", 0)], &units[..]].concat());
    size.filter(|&size| size <= SIZE_MAX).ok_or_else(|| {
        let expected = "a number such as 8, 4K or 1M, at most 1G (K, M and G are binary)";
        invalid("size", text, expected)
    })
}

/// Reads a count within `bounds`: `64`, `4K`, `1M`, binary like sizes.
pub(crate) fn count(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let count = binary(text, &[("", 0), ("k", 10), ("m", 20), ("g", 30)]);
        count.filter(|count| bounds.contains(count)).ok_or_else(|| {
            let from = bounds.start();
            let to = bounds.end();
            let such_as = "such as 64, 4K or 1M (K, M and G are binary)";
            invalid("number", text, format_args!("one from {from} to {to}, {such_as}"))
        })
    }
}

/// A duration: `1s`, `500ms`, `1.5s`, `2m`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let minutes = [("m", 60.0), ("min", 60.0), ("h", 3600.0)];
    let seconds = [("us", 1e-6), ("ms", 1e-3), ("", 1.0), ("s", 1.0)];
    let seconds = decimal(text, &[&seconds[..], &minutes].concat());
    let seconds = seconds.filter(|seconds| (0.001..=3600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| invalid("duration", text, "one such as 500ms, 1s or 2m, from 1ms to 1h"))
}

/// A duration for a sentence: `1 s`, `500 ms`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1e3;
    if millis >= 1000.0 {
        format!("{} s", trimmed(millis / 1000.0))
    } else {
        format!("{} ms", trimmed(millis))
    }
}

/// The word of an enumeration, as on the command line.
pub(crate) fn name<V: ValueEnum>(value: &V) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// Up to three decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_each_form() {
        let sizes = |text: &str| text.parse::<Sizes>().unwrap().0;
        assert_eq!(sizes("8"), [8]);
        assert_eq!(sizes("8,4K,1M"), [8, 4096, 1 << 20]);
        assert_eq!(sizes("0..8"), [0, 1, 2, 4, 8]);
        assert_eq!(sizes("3..20"), [3, 4, 8, 16, 20]);
        assert_eq!(sizes("4K..4K"), [4096]);
        assert_eq!(sizes("0..4M").len(), 24);
        assert_eq!(sizes("0..4M"), Sizes::sweep(0).0);
        assert_eq!(sizes("1..4MiB"), Sizes::sweep(1).0);
    }

    #[test]
    fn sizes_that_are_none() {
        for wrong in [
            "",
            "K",
            "4X",
            "-1",
            "8,",
            ",8",
            "8..",
            "..8",
            "2G",
            "1 K",
            "+8",
            "1.5K",
            "99999999999999999999",
            "4KB",
            "8..4",
            "\u{664}",
        ] {
            let error = wrong.parse::<Sizes>().unwrap_err();
            assert!(error.contains("expected"), "{wrong}: {error}");
        }
        assert_eq!(
            "4X".parse::<Sizes>().unwrap_err(),
            "invalid size `4X`: expected a number such as 8, 4K or 1M, at most 1G (K, M and G are binary)"
        );
        assert!(vec!["1"; 65].join(",").parse::<Sizes>().is_err());
    }

    #[test]
    fn counts() {
        let most = count(1..=1 << 40);
        for (text, want) in
            [("7", 7), ("4K", 4096), ("4k", 4096), ("1M", 1 << 20), ("1024G", 1 << 40)]
        {
            assert_eq!(most(text), Ok(want));
        }
        for wrong in
            ["", "K", "0", "-1", "+1", "1.5K", "4KK", "4KB", "1 K", "1025G", "1e3", "\u{664}"]
        {
            assert!(most(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
        assert!(count(0..=8)("9").unwrap_err().contains("from 0 to 8"));
        assert!(most("99999999999999999999G").is_err());
    }

    #[test]
    fn durations() {
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "1d", "-1s", "0s", "2h", "1us", "1e3s", "inf", "nan", "1..5s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shown() {
        assert_eq!(show_duration(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(show_duration(Duration::from_millis(500)), "500 ms");
    }
}
