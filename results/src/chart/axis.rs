//! Places of values on an axis, and its ticks.

use crate::show::{show_count, show_size};

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Linear from 0, with space above.
    FromZero,
    /// Linear from 0, with space above; ticks at whole numbers.
    Counts,
    /// Linear from 0 to the last value; ticks at whole numbers.
    CountsToLast,
    /// 0 to 100.
    Percent,
    /// Powers of ten, for values above 0.
    Log,
    /// Powers of two; 0 is one step before 1.
    Sizes,
    /// Shares between 0 and 1, the wider the nearer to 1.
    Quantiles,
}

/// A tick and its label; a minor tick has none.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: Option<String>,
}

/// The places of quantiles. The last one would be infinitely far.
const QUANTILES: [(f64, f64, &str); 6] = [
    (0.0, 0.0, "min"),
    (0.5, 1.0, "50 %"),
    (0.9, 2.0, "90 %"),
    (0.99, 3.0, "99 %"),
    (0.999, 4.0, "99.9 %"),
    (1.0, 5.0, "max"),
];
/// Labels that fit beside one another.
const SIZE_LABELS_MAX: f64 = 13.0;

impl Scale {
    /// The place of `value`, or `None` if it has none on this axis.
    pub(super) fn place(self, value: f64) -> Option<f64> {
        let place = match self {
            Self::FromZero | Self::Counts | Self::CountsToLast | Self::Percent => value,
            Self::Log if value > 0.0 => value.log10(),
            Self::Log => return None,
            Self::Sizes if value < 1.0 => -1.0,
            Self::Sizes => value.log2(),
            Self::Quantiles => QUANTILES.iter().rev().find(|(quantile, ..)| *quantile <= value)?.1,
        };
        place.is_finite().then_some(place)
    }

    /// The ends of the axis for places between `low` and `high`.
    pub(super) fn range(self, low: f64, high: f64) -> (f64, f64) {
        match self {
            Self::FromZero | Self::Counts => (0.0, if high > 0.0 { high * 1.1 } else { 1.0 }),
            Self::CountsToLast => (0.0, if high > 0.0 { high } else { 1.0 }),
            Self::Percent => (0.0, 100.0),
            Self::Quantiles => (-0.2, 5.2),
            Self::Sizes => (low - 0.4, high.max(low + 1.0) + 0.4),
            Self::Log => {
                // At least three quarters of a decade, so that noise does not look like a cliff.
                let low = low - 0.05;
                let high = high + 0.05;
                let more = ((0.75 - (high - low)) / 2.0).max(0.0);
                (low - more, high + more)
            }
        }
    }

    pub(super) fn ticks(self, low: f64, high: f64) -> Vec<Tick> {
        let tick = |at: f64, label: String| Tick { at, label: Some(label) };
        let inside = |tick: &Tick| (low..=high).contains(&tick.at);
        let ticks: Vec<_> = match self {
            Self::FromZero | Self::Counts | Self::CountsToLast | Self::Percent => {
                let least = if self == Self::FromZero { 0.0 } else { 1.0 };
                let step = even_step(high - low).max(least);
                steps(0.0, high / step).map(|n| tick(n * step, number(n * step, step))).collect()
            }
            Self::Log => log_ticks(low, high),
            Self::Quantiles => {
                QUANTILES.iter().map(|(_, at, label)| tick(*at, (*label).to_owned())).collect()
            }
            Self::Sizes => {
                let every = ((high - low) / SIZE_LABELS_MAX).ceil().max(1.0);
                let powers = steps(0.0, high).map(|exponent| Tick {
                    at: exponent,
                    label: (exponent % every == 0.0).then(|| power_of_two(exponent)),
                });
                std::iter::once(tick(-1.0, "0".into())).chain(powers).collect()
            }
        };
        ticks.into_iter().filter(inside).collect()
    }
}

fn steps(from: f64, to: f64) -> impl Iterator<Item = f64> {
    #[expect(clippy::cast_possible_truncation, reason = "ranges of axes are small")]
    let from = from.ceil() as i64;
    #[expect(clippy::cast_possible_truncation, reason = "ranges of axes are small")]
    let to = to.floor() as i64;
    (from..=to.min(from + 1000)).map(|n| n as f64)
}

/// About six steps of 1, 2 or 5 times a power of ten.
fn even_step(range: f64) -> f64 {
    let rough = range / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough);
    step.unwrap_or(10.0) * power
}

/// Lines at 1 to 9 of each decade; labels at 1, 2 and 5 on a short axis, at powers of ten on a long
/// one.
fn log_ticks(low: f64, high: f64) -> Vec<Tick> {
    let decades = high - low;
    let labelled: &[f64] = match decades {
        d if d < 3.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let every = (decades / 9.0).ceil().max(1.0);
    let decade = |decade: f64| {
        (1..10).map(move |n| {
            let digit = f64::from(n);
            let value = f64::from(n) * 10f64.powf(decade);
            let shown = labelled.contains(&digit) && decade.rem_euclid(every) == 0.0;
            Tick { at: value.log10(), label: shown.then(|| number(value, value)) }
        })
    };
    steps(low.floor(), high).flat_map(decade).collect()
}

/// A number with enough decimals to differ from a neighbour `step` away.
fn number(value: f64, step: f64) -> String {
    if step >= 1.0 && value < 1e15 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        return show_count(value.round() as u64);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 12")]
    let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 12.0) as usize;
    format!("{value:.decimals$}")
}

fn power_of_two(exponent: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 63")]
    let shown = show_size(1 << (exponent as u32).min(63));
    // `4 KiB` is written 4K, as on the command line.
    shown.replace(" B", "").replace(" KiB", "K").replace(" MiB", "M").replace(" GiB", "G")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, low: f64, high: f64) -> Vec<String> {
        scale.ticks(low, high).into_iter().filter_map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(labels(Scale::FromZero, 0.0, 0.47), ["0.0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(labels(Scale::FromZero, 0.0, 4200.0), ["0", "1 000", "2 000", "3 000", "4 000"]);
        assert_eq!(labels(Scale::Counts, 0.0, 2.2), ["0", "1", "2"]);
        assert_eq!(labels(Scale::Counts, 0.0, 17.6), ["0", "5", "10", "15"]);
        assert_eq!(labels(Scale::Log, -1.1, 0.4), ["0.1", "0.2", "0.5", "1", "2"]);
        assert_eq!(labels(Scale::Log, -1.1, 3.2), ["0.1", "1", "10", "100", "1 000"]);
        assert_eq!(labels(Scale::Sizes, -1.4, 3.4), ["0", "1", "2", "4", "8"]);
        let sweep = labels(Scale::Sizes, -1.4, 22.4);
        assert_eq!(
            (sweep.len(), &sweep[..3], &sweep[12..]),
            (13, &["0", "1", "4"].map(String::from)[..], &["4M".to_owned()][..])
        );
        for (scale, low, high) in [(Scale::Log, -12.0, 30.0), (Scale::Sizes, -1.4, 62.0)] {
            assert!(labels(scale, low, high).len() <= 15, "{scale:?}");
        }
    }

    #[test]
    fn places() {
        assert_eq!(Scale::Log.place(0.0), None);
        assert_eq!(Scale::Log.place(f64::NAN), None);
        assert_eq!(Scale::Sizes.place(0.0), Some(-1.0));
        assert_eq!(Scale::Sizes.place(1024.0), Some(10.0));
        assert_eq!(Scale::Quantiles.place(0.99), Some(3.0));
        let (low, high) = Scale::Log.range(0.0, 0.0);
        assert!((high - low - 0.75).abs() < 1e-9);
    }
}
