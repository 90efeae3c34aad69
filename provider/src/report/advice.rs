//! What the numbers of a report mean, and what to do about them.

use super::row::Row;

/// For each reason why software matched a receive that was posted before its message came: the
/// column, what it means, and what to do.
const REASONS: [(&str, &str, &str); 8] = [
    (
        "off",
        "there is no NIC that matches tags, or it is switched off",
        "A NIC that matches tags (tagperf info) is used for messages over verbs, unless \
         TAGMATCH_FI_HW_TAGS is off; TAGMATCH_FI_DEVICE=verbs sends over verbs within a machine, too. \
         `tagperf replay` shows what such a NIC would match of a trace (TAGMATCH_FI_TRACE)",
    ),
    (
        "too_small",
        "the buffer is smaller than the bound below which software is faster",
        "Nothing to do: below that size software is faster",
    ),
    (
        "source",
        "the receive names its source beside the tag, or its source sends by another way, too",
        "Let the MPI library put the source into the tag: Open MPI with --mca mtl_ofi_tag_mode \
         ofi_tag_1, MPICH with MPIR_CVAR_CH4_OFI_ENABLE_DATA=0",
    ),
    (
        "order",
        "an older receive that takes the same messages was in software",
        "See why that one was: the other reasons here",
    ),
    (
        "list_full",
        "the NIC's list was full",
        "Post fewer receives at a time; receives that match soon go first if they are posted first",
    ),
    (
        "memory",
        "the buffer could not be registered with the NIC",
        "Raise the limit on locked memory (ulimit -l)",
    ),
    (
        "slices",
        "the buffer has several pieces",
        "Use contiguous types, or let the MPI library pack",
    ),
    (
        "phase",
        "the message came while the receive was on its way to the NIC",
        "Post receives earlier",
    ),
];

/// What the columns mean.
const COLUMNS: &str = "\
Columns: received = nic (matched by a NIC) + posted (by software, the receive was there first) + unexpected
(the message was there first). off to phase: why software matched the posted ones. sent_eager went out with
their data, sent_rendezvous are read by their receivers. peer_faults: peers that ended without leaving.
posted_max and unexpected_max: the most receives and messages that waited at one time in one process.
bugs: states that can't be, which one process has met; 0 unless tagmatch has a bug.";

/// Lines about the sum of a report.
pub(crate) fn of(sum: &Row) -> Vec<String> {
    let received = sum.get("received");
    let posted = sum.get("posted");
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
    if sum.get("bugs") > 0 {
        lines.push(format!(
            "Please report it: tagmatch met states that can't be, {} at one process.",
            sum.get("bugs")
        ));
    }
    lines.extend(COLUMNS.lines().map(str::to_owned));
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

    #[test]
    fn a_bug_is_told() {
        let mut counters = tagmatch::Counters::default();
        (counters.bugs, counters.hardware) = (2, 1);
        let mut row = Row::of(&counters, 0, 0);
        row.add(&Row::of(&counters, 0, 0));
        let lines = of(&row).join("\n");
        assert!(
            lines.contains("Please report it: tagmatch met states that can't be, 2 at one"),
            "{lines}"
        );
    }

    #[test]
    fn each_column_is_explained() {
        for column in COLUMNS {
            let is_reason = REASONS.iter().any(|(name, ..)| *name == column);
            let is_plain = ["truncated", "cancelled"].contains(&column);
            assert!(is_reason || is_plain || super::COLUMNS.contains(column), "{column}");
        }
    }

    #[test]
    fn a_user_of_an_mpi_library_reads_what_to_type() {
        let mut row = Row::default();
        for name in ["received", "posted", "source", "off"] {
            row.0[COLUMNS.iter().position(|other| *other == name).unwrap()] = 4;
        }
        let lines = of(&row).join("\n");
        for words in ["ofi_tag_1", "ENABLE_DATA=0"] {
            assert!(lines.contains(words), "{words}: {lines}");
        }
        // The default isn't advice.
        assert!(!lines.contains("HW_TAGS=auto"), "{lines}");
    }
}
