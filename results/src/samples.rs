//! The samples of a measurement, and their percentiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Round trips in ns; none is left out. Minimum, maximum and mean are exact; percentiles are exact
/// to the ns below 20 us and to four digits above.
pub struct Samples {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u128,
}

/// A percentile that is reported; the least and the most are two of them.
#[derive(Clone, Copy)]
pub(crate) struct Percentile {
    /// Its name in JSON.
    pub(crate) json: &'static str,
    /// Its name for people.
    pub(crate) shown: &'static str,
    /// Its place among the samples.
    pub(crate) quantile: f64,
    /// With fewer samples it is not shown to people. A tail has ten samples above it. A median has
    /// five samples in all: it lies between the least and the most of them with a probability of 94
    /// %.
    pub(crate) samples_min: u64,
}

/// All percentiles that are reported, ascending.
pub(crate) const PERCENTILES: [Percentile; 6] = [
    Percentile { json: "min", shown: "min", quantile: 0.0, samples_min: 0 },
    Percentile { json: "p50", shown: "p50", quantile: 0.5, samples_min: 5 },
    Percentile { json: "p90", shown: "p90", quantile: 0.9, samples_min: 100 },
    Percentile { json: "p99", shown: "p99", quantile: 0.99, samples_min: 1000 },
    Percentile { json: "p999", shown: "p99.9", quantile: 0.999, samples_min: 10_000 },
    Percentile { json: "max", shown: "max", quantile: 1.0, samples_min: 0 },
];

impl Default for Samples {
    fn default() -> Self {
        let histogram = Histogram::new(4).expect("4 digits are in range");
        Self { histogram, min: u64::MAX, max: 0, sum: 0 }
    }
}

impl Samples {
    /// Adds a round trip. Allocates when it is longer than all before, so not for the measured
    /// loop.
    pub fn record(&mut self, ns: u64) {
        // The histogram grows as needed. If it can't, the sample counts as the longest that it
        // holds.
        if self.histogram.record(ns).is_err() {
            self.histogram.saturating_record(ns);
        }
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum += u128::from(ns);
    }

    /// Adds a time of one way, as a round trip of twice the time.
    pub fn record_one_way(&mut self, ns: u64) {
        self.record(ns.saturating_mul(2));
    }

    /// All samples in bytes, for the other side.
    pub fn emit(&self) -> Vec<u8> {
        let sum = self.sum.to_le_bytes();
        let head = [self.min.to_le_bytes(), self.max.to_le_bytes()].concat();
        let each = self.histogram.iter_recorded();
        let each = each.flat_map(|at| [at.value_iterated_to(), at.count_at_value()]);
        [head, sum.to_vec(), each.flat_map(u64::to_le_bytes).collect()].concat()
    }

    /// Reads samples that were emitted; `None` if the bytes are malformed. `most` bounds their
    /// number.
    pub fn parse(bytes: &[u8], most: u64) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let (head, each) = words.split_at_checked(4)?;
        let [min, max, low, high] = [0, 1, 2, 3].map(|at| u64::from_le_bytes(head[at]));
        let (pairs, odd) = each.as_chunks::<2>();
        let mut samples = Self::default();
        for pair in pairs {
            let [value, count] = pair.map(u64::from_le_bytes);
            if count > most.checked_sub(samples.count())? {
                return None;
            }
            if samples.histogram.record_n(value, count).is_err() {
                samples.histogram.saturating_record_n(value, count);
            }
        }
        let empty = samples.count() == 0;
        if !rest.is_empty() || !odd.is_empty() || (min > max && !empty) {
            return None;
        }
        (samples.min, samples.max) = (min, max);
        samples.sum = u128::from(low) | u128::from(high) << 64;
        Some(samples)
    }

    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Latencies one way in ns, ascending, each with its count.
    pub fn spread(&self) -> impl Iterator<Item = (f64, u64)> {
        let recorded = self.histogram.iter_recorded();
        recorded.map(|step| (half(step.value_iterated_to()), step.count_at_value()))
    }

    /// Percentiles of half of each round trip, the latency one way. `None` without samples.
    pub fn halved(&self) -> Option<Latency> {
        if self.count() == 0 {
            return None;
        }
        let at = |quantile| {
            let ns = self.histogram.value_at_quantile(quantile);
            half(ns.clamp(self.min, self.max))
        };
        let [_, p50, p90, p99, p999, _] = PERCENTILES.map(|rung| at(rung.quantile));
        let mean = self.sum as f64 / self.count() as f64 / 2.0;
        Some(Latency {
            min: half(self.min),
            p50,
            p90,
            p99,
            p999,
            max: half(self.max),
            mean: (mean * 10.0).round() / 10.0,
        })
    }
}

fn half(ns: u64) -> f64 {
    ns as f64 / 2.0
}

/// Percentiles of the latency in ns, as in JSON.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// The least.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// 99.9 % are at most this.
    pub p999: f64,
    /// The most.
    pub max: f64,
    /// The mean.
    #[serde(default)]
    pub mean: f64,
}

impl Latency {
    /// One for each of [`PERCENTILES`].
    pub(crate) fn percentiles(self) -> [f64; 6] {
        [self.min, self.p50, self.p90, self.p99, self.p999, self.max]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_are_exact() {
        let mut samples = Samples::default();
        assert_eq!(samples.halved(), None);
        (1..=1000).rev().for_each(|ns| samples.record(2 * ns));
        let want = Latency {
            min: 1.0,
            p50: 500.0,
            p90: 900.0,
            p99: 990.0,
            p999: 999.0,
            max: 1000.0,
            mean: 500.5,
        };
        assert_eq!(samples.halved(), Some(want));
        assert_eq!(samples.count(), 1000);
    }

    #[test]
    fn samples_are_read_as_they_were_written_and_bounded() {
        let mut samples = Samples::default();
        for ns in (0..5000).map(|n| n * n).chain([u64::MAX / 3]) {
            samples.record_one_way(ns);
        }
        let bytes = samples.emit();
        let again = Samples::parse(&bytes, 5001).unwrap();
        assert_eq!((again.count(), again.halved()), (5001, samples.halved()));
        assert_eq!(again.halved().unwrap().max, (u64::MAX / 3) as f64);
        assert!(Samples::parse(&bytes, 5000).is_none(), "more than there can be");
        assert!(Samples::parse(&bytes[..bytes.len() - 1], 5001).is_none());
        assert!(Samples::parse(&bytes[..bytes.len() - 8], 5001).is_none());
        assert!(Samples::parse(&bytes[..24], 5001).is_none());
        let none = Samples::parse(&Samples::default().emit(), 0).unwrap();
        assert_eq!(none.halved(), None);
        assert!(Samples::parse(&[0xff; 64], u64::MAX).is_none());
    }

    #[test]
    fn extremes_are_exact_whatever_their_size() {
        let mut samples = Samples::default();
        for ns in [123_456_789_123, 3, 987_654_321, u64::MAX / 4] {
            samples.record(ns);
        }
        let latency = samples.halved().unwrap();
        assert_eq!(latency.min, 1.5);
        assert_eq!(latency.max, (u64::MAX / 4) as f64 / 2.0);
        assert!((latency.p50 / 493_827_160.5 - 1.0).abs() < 1e-4);
        assert!(latency.p999 <= latency.max);
    }
}
