//! The ratio of later figures to earlier ones, with a confidence interval.
//!
//! The estimate is the shift between two samples after Hodges and Lehmann (the median of all
//! pairwise differences), the interval inverts the Mann-Whitney test (Moses). They assume nothing
//! about the distribution of the figures, outliers move them little, and they draw no random
//! numbers. They are computed on logarithms, so that a difference is a ratio.

/// Confidence of the intervals, in percent. A sweep has two dozen results: at 95 % about one of
/// them would differ by chance in every run.
pub(crate) const CONFIDENCE_PERCENT: u32 = 99;
/// The two-sided normal quantile of that confidence.
const Z: f64 = 2.575_829;

/// `new / old`, and its interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ratio {
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The ratio; `None` if there are too few figures for an interval. All figures must be above 0.
pub(crate) fn ratio(old: &[f64], new: &[f64]) -> Option<Ratio> {
    let n = old.len() as f64;
    let m = new.len() as f64;
    // Among all orders of n + m figures two are the most extreme.
    let orders = (1..=old.len()).map(|k| (m + k as f64) / k as f64).product::<f64>();
    if 2.0 / orders > 1.0 - f64::from(CONFIDENCE_PERCENT) / 100.0 {
        return None;
    }
    let logs = |figures: &[f64]| {
        let mut logs: Vec<_> = figures.iter().map(|figure| figure.ln()).collect();
        logs.sort_by(f64::total_cmp);
        logs
    };
    let old = logs(old);
    let new = logs(new);
    let below = n * m / 2.0 - Z * (n * m * (n + m + 1.0) / 12.0).sqrt();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most n * m / 2"
    )]
    let skip = below.floor().max(0.0) as usize;
    let last = old.len() * new.len() - 1;
    let [low, below, above, high] =
        [skip, last / 2, last.div_ceil(2), last - skip].map(|nth| difference(&old, &new, nth));
    let estimate = f64::midpoint(below, above).exp();
    Some(Ratio { estimate, low: low.exp(), high: high.exp() })
}

/// Precision of a difference of logarithms: far beyond the digits that are printed.
const EXACT: f64 = 1e-11;

/// The `nth` smallest of all differences `new - old`; both are sorted and not empty. Bisects the
/// value, since long runs have too many pairs to sort.
fn difference(old: &[f64], new: &[f64], nth: usize) -> f64 {
    let mut low = new[0] - old[old.len() - 1];
    let mut high = new[new.len() - 1] - old[0];
    while high - low > EXACT {
        let middle = f64::midpoint(low, high);
        if up_to(old, new, middle) > nth {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// How many of all differences `new - old` are at most `most`.
fn up_to(old: &[f64], new: &[f64], most: f64) -> usize {
    let mut within = 0;
    let counts = old.iter().map(|old| {
        // As `old` grows, more of `new` are within.
        within += new[within..].iter().take_while(|new| **new - old <= most).count();
        within
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use tagmatch_testkit::random::Random;

    use super::*;

    /// Figures around 1000 that vary by some percent, the same at every run.
    fn figures(seed: u64, count: usize, factor: f64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut unit = || (random.bits() >> 11) as f64 / (1u64 << 53) as f64;
        (0..count).map(|_| 1000.0 * factor * (0.97 + 0.06 * unit())).collect()
    }

    #[test]
    fn too_few_say_nothing() {
        assert_eq!(ratio(&[], &[]), None);
        assert_eq!(ratio(&[1.0; 4], &[1.0; 4]), None);
        assert!(ratio(&[1.0; 5], &[1.0; 5]).is_some());
        assert_eq!(ratio(&[1.0; 64], &[1.0]), None);
        assert!(ratio(&[1.0; 64], &[1.0; 2]).is_some());
    }

    #[test]
    fn an_interval_holds_the_truth_as_often_as_it_says() {
        for truth in [1.0, 1.02, 0.5] {
            let holds = (0..500)
                .filter(|&seed| {
                    let old = figures(seed, 30, 1.0);
                    let new = figures(seed + 7777, 40, truth);
                    let Ratio { estimate, low, high } = ratio(&old, &new).unwrap();
                    assert!(low <= estimate && estimate <= high);
                    assert!((estimate / truth - 1.0).abs() < 0.05);
                    low <= truth && truth <= high
                })
                .count();
            assert!((485..500).contains(&holds), "{truth}: {holds} of 500");
        }
    }

    #[test]
    fn any_difference_is_that_of_all_pairs_sorted() {
        for (seed, n, m) in [(1, 1, 1), (2, 1, 9), (3, 9, 1), (4, 13, 7), (5, 40, 41)] {
            let sorted = |seed, count| {
                // Few different figures, so that there are ties.
                let mut figures: Vec<_> =
                    figures(seed, count, 1.0).iter().map(|f| (f / 5.0).round()).collect();
                figures.sort_by(f64::total_cmp);
                figures
            };
            let old = sorted(seed, n);
            let new = sorted(seed + 7777, m);
            let mut pairs: Vec<_> =
                old.iter().flat_map(|old| new.iter().map(move |new| new - old)).collect();
            pairs.sort_by(f64::total_cmp);
            for (nth, want) in pairs.iter().enumerate() {
                let found = difference(&old, &new, nth);
                assert!((found - want).abs() <= 2.0 * EXACT, "{n} {m} {nth}: {found}, not {want}");
            }
        }
    }

    #[test]
    fn outliers_move_little() {
        let old = figures(1, 40, 1.0);
        let mut new = figures(2, 40, 1.0);
        new[..3].fill(1e9);
        let Ratio { low, high, .. } = ratio(&old, &new).unwrap();
        assert!(low < 1.0 && high < 1.05, "{low} {high}");
    }

    #[test]
    fn the_published_example() {
        // The differences of {1, 2, 4, 8, 16} and its double: the median is ln 2, and with five and
        // five figures the interval spans all differences.
        let old = [1.0, 2.0, 4.0, 8.0, 16.0];
        let new = old.map(|figure| 2.0 * figure);
        let Ratio { estimate, low, high } = ratio(&old, &new).unwrap();
        assert!((estimate - 2.0).abs() < 1e-9);
        assert!((low - 0.125).abs() < 1e-9 && (high - 32.0).abs() < 1e-9, "{low} {high}");
    }
}
