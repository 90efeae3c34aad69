//! How much later figures differ from earlier ones, and how sure that is.
//!
//! The shift between two samples after Hodges and Lehmann (the median of all pairwise
//! differences), with the interval that inverts the Mann-Whitney test (Moses): nothing is assumed
//! about how the figures are distributed, an outlier moves little, and nothing is random. It is
//! taken on logarithms, so that it is a ratio.

/// Confidence of the intervals, in percent. A sweep has two dozen results: at 95 % one of them
/// would be an accident in every run.
pub(crate) const CONFIDENCE_PERCENT: u32 = 99;
/// The normal quantile of it, both sides.
const Z: f64 = 2.575_829;

/// `new / old`, and between what it lies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ratio {
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// `None` where there are too few figures for any such interval. All must be above 0.
pub(crate) fn ratio(old: &[f64], new: &[f64]) -> Option<Ratio> {
    let (n, m) = (old.len() as f64, new.len() as f64);
    // Of all orders that n + m figures can come in, two are the most extreme.
    let orders = (1..=old.len()).map(|k| (m + k as f64) / k as f64).product::<f64>();
    if 2.0 / orders > 1.0 - f64::from(CONFIDENCE_PERCENT) / 100.0 {
        return None;
    }
    let logs = |figures: &[f64]| figures.iter().map(|figure| figure.ln()).collect::<Vec<_>>();
    let (old, new) = (logs(old), logs(new));
    let pairs = old.iter().flat_map(|old| new.iter().map(move |new| new - old));
    let mut differences: Vec<f64> = pairs.collect();
    differences.sort_by(f64::total_cmp);
    let below = n * m / 2.0 - Z * (n * m * (n + m + 1.0) / 12.0).sqrt();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most n * m / 2"
    )]
    let skip = below.floor().max(0.0) as usize;
    let last = differences.len() - 1;
    let median = f64::midpoint(differences[last / 2], differences[last.div_ceil(2)]);
    Some(Ratio {
        estimate: median.exp(),
        low: differences[skip].exp(),
        high: differences[last - skip].exp(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures around 1000 that vary by some percent, the same at every run.
    fn figures(seed: u64, count: usize, factor: f64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut unit = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
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
                    let (old, new) = (figures(seed, 30, 1.0), figures(seed + 7777, 40, truth));
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
    fn outliers_move_little() {
        let (old, mut new) = (figures(1, 40, 1.0), figures(2, 40, 1.0));
        new[..3].fill(1e9);
        let Ratio { low, high, .. } = ratio(&old, &new).unwrap();
        assert!(low < 1.0 && high < 1.05, "{low} {high}");
    }

    #[test]
    fn the_published_example() {
        // Differences of {1, 2, 4, 8, 16} and the same doubled: the median is ln 2, and with five
        // and five the interval is of all differences but none.
        let old = [1.0, 2.0, 4.0, 8.0, 16.0];
        let new = old.map(|figure| 2.0 * figure);
        let Ratio { estimate, low, high } = ratio(&old, &new).unwrap();
        assert!((estimate - 2.0).abs() < 1e-9);
        assert!((low - 0.125).abs() < 1e-9 && (high - 32.0).abs() < 1e-9, "{low} {high}");
    }
}
