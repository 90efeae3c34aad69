//! Numbers as the report shows them.

use tagmatch_results::show::{show_3, show_count, show_size};

/// `part / whole`, or 0 if `whole` is 0.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// `ratio` in percent.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    100.0 * ratio(part, whole)
}

/// A mean number of entries.
pub(super) fn show_entries(mean: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count's mean")]
    if mean < 1000.0 { show_3(mean) } else { show_count(mean.round() as u64) }
}

/// Bytes with three digits in the largest unit of which there is at least one, since a sum of
/// lengths is rarely round.
pub(super) fn show_bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift {
            return format!("{} {unit}", show_3(bytes as f64 / (1u64 << shift) as f64));
        }
    }
    show_size(bytes)
}

/// `3 msg, 1 recv`: the counts that are not zero, or `none`.
pub(super) fn listed(counts: &[(&str, u64)]) -> String {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    let words: Vec<_> =
        some.map(|(name, count)| format!("{} {name}", show_count(*count))).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}
