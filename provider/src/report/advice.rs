//! What the numbers of a report mean, and what to do about them.

use super::row::Row;

/// For each reason why software matched a receive that was posted before its message came: the
/// column, what it means, and what to do.
const REASONS: [(&str, &str, &str); 8] = [
    (
        "off",
        "there is no NIC that matches tags, or it is switched off",
        "TAGMATCH_FI_HW_TAGS=auto on a machine whose NIC matches tags (tagperf info); `tagperf replay` \
         shows what such a NIC would match of a trace (TAGMATCH_FI_TRACE)",
    ),
    (
        "too_small",
        "the buffer is smaller than the bound below which software is faster",
        "nothing: this is faster",
    ),
    (
        "source",
        "the receive names its source beside the tag, or its source sends by another way, too",
        "let the MPI library put the source into the tag, and say where it is: TAGMATCH_FI_TAG_SOURCE",
    ),
    (
        "order",
        "an older receive that takes the same messages was in software",
        "see why that one was: the other reasons here",
    ),
    (
        "list_full",
        "the NIC's list was full",
        "post fewer receives at a time; receives that match soon go first if they are posted first",
    ),
    (
        "memory",
        "the buffer could not be registered with the NIC",
        "raise the limit on locked memory (ulimit -l)",
    ),
    ("slices", "the buffer has several pieces", "contiguous types, or let the MPI library pack"),
    (
        "phase",
        "the message came while the receive was on its way to the NIC",
        "post receives earlier",
    ),
];

/// Lines about the sum of a report.
pub(crate) fn of(sum: &Row) -> Vec<String> {
    let (received, posted) = (sum.get("received"), sum.get("posted"));
    if received == 0 {
        return vec!["No message was received.".to_owned()];
    }
    let percent = |part: u64| 100.0 * part as f64 / received as f64;
    let mut lines = vec![format!(
        "Of {received} received messages, a NIC matched {:.1} %, software found {:.1} % on the list of \
         posted receives, and {:.1} % came before their receive was posted.",
        percent(sum.get("nic")),
        percent(posted),
        percent(sum.get("unexpected")),
    )];
    if sum.get("unexpected") * 2 > received {
        lines.push(
            "Most messages came before their receive. Neither a NIC nor any list helps there: post \
             receives earlier."
                .to_owned(),
        );
    }
    let mut reasons: Vec<_> = REASONS.iter().filter(|(column, ..)| sum.get(column) > 0).collect();
    reasons.sort_by_key(|(column, ..)| std::cmp::Reverse(sum.get(column)));
    if !reasons.is_empty() {
        lines.push("Why software matched posted receives, and what to do:".to_owned());
    }
    for (column, meaning, remedy) in reasons {
        lines.push(format!("  {column} {}: {meaning}. {remedy}.", sum.get(column)));
    }
    if sum.get("peer_faults") > 0 {
        lines.push(format!("{} peers went down without leaving in order.", sum.get("peer_faults")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::row::COLUMNS;
    use super::*;

    #[test]
    fn each_reason_is_a_column_and_is_told_with_its_number() {
        for (column, meaning, _) in REASONS {
            let mut row = Row::default();
            for (name, number) in [("received", 10), ("posted", 4), (column, 4)] {
                row.0[COLUMNS.iter().position(|other| *other == name).unwrap()] = number;
            }
            let lines = of(&row).join("\n");
            assert!(lines.contains(&format!("{column} 4: {meaning}")), "{lines}");
        }
    }
}
