//! Values of options: lists of depths, percentages and numbers of threads, and a rate.

use tagmatch_results::show::invalid;

use crate::spec::bounds::{DEPTH_MAX, THREADS_MAX};
use crate::units::{Sizes, decimal};

/// Entries of a list of percentages, or of numbers of threads.
const LIST_MAX: usize = 16;

/// A list of percentages, or of numbers of threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

fn list<T>(
    text: &str,
    what: &str,
    entry: impl Fn(&str) -> Result<T, String>,
) -> Result<List<T>, String> {
    let entries = text.split(',').map(entry).collect::<Result<Vec<_>, _>>()?;
    let count = entries.len();
    if count > LIST_MAX {
        return Err(format!("{count} {what}: expected at most {LIST_MAX}"));
    }
    Ok(List(entries))
}

/// A list of percentages: `0,50,100`.
pub(super) fn percents(text: &str) -> Result<List<u8>, String> {
    list(text, "percentages", percent)
}

/// A list of numbers of threads: `1,2,4`.
pub(super) fn threads(text: &str) -> Result<List<u64>, String> {
    list(text, "numbers of threads", |text| {
        let count = text.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
        count.ok_or_else(|| invalid("number of threads", text, format_args!("1 to {THREADS_MAX}")))
    })
}

/// A list of depths: `0..16K` (powers of two) or `16,1000`.
pub(super) fn depths(text: &str) -> Result<Sizes, String> {
    let depths = text.parse::<Sizes>().ok();
    depths
        .filter(|Sizes(all)| all.iter().all(|&depth| depth <= DEPTH_MAX))
        .ok_or_else(|| invalid("list of depths", text, "one such as 0..16K or 16,1000, at most 1M"))
}

/// Messages a second: `250000`, `250k`, `1.5M`; decimal, unlike sizes. Returns the ps between two
/// messages.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let rate = decimal(text, &[("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6)]);
    #[expect(clippy::cast_possible_truncation, reason = "between 1e3 and 1e12")]
    let interval_ps =
        rate.filter(|rate| (1.0..=1e9).contains(rate)).map(|r| (1e12 / r).round() as u64);
    interval_ps.ok_or_else(|| {
        let expected = "messages a second such as 1000, 250k or 1.5M, from 1 to 1000M";
        invalid("rate", text, expected)
    })
}

/// A percentage: `50` or `50%`.
pub(super) fn percent(text: &str) -> Result<u8, String> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    digits
        .parse()
        .ok()
        .filter(|&percent| percent <= 100)
        .ok_or_else(|| invalid("percentage", text, "0 to 100"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(depths("0..8"), Ok(Sizes(vec![0, 1, 2, 4, 8])));
        assert_eq!(depths("16,1000,1M"), Ok(Sizes(vec![16, 1000, 1 << 20])));
        assert_eq!(percents("0,50%,100"), Ok(List(vec![0, 50, 100])));
        assert_eq!(threads("1,2"), Ok(List(vec![1, 2])));
        for wrong in ["", "x", "2M", "8..0", "1,,2"] {
            assert!(depths(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
        for wrong in ["", "101", "1,,2", "-1", "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"] {
            assert!(percents(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
        for wrong in ["", "0", "65", "1,,2", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"] {
            assert!(threads(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate("1"), Ok(1_000_000_000_000));
        assert_eq!(rate("1k"), Ok(1_000_000_000));
        assert_eq!(rate("2.5M"), Ok(400_000));
        assert_eq!(rate("1000M"), Ok(1000));
        for wrong in ["", "0", "0.5", "1001M", "1m", "1G", "-1", "1e3", "nan", "inf", "1k2"] {
            assert!(rate(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }
}
