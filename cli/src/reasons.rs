//! Where receives were matched, in words; for those matched in software the reasons, and what to
//! do.

use tagmatch::{Config, NotOffloaded};
use tagmatch_results::Matching;
use tagmatch_results::show::{show_count, show_size};

use crate::spec::HwTagsArg;
use crate::spec::hw_tags::SLOTS_MAX;

/// A reason why a receive is matched in software although there is a NIC that matches.
pub(crate) struct Reason {
    /// Its name in JSON and in the library's counters.
    pub(crate) name: &'static str,
    /// Its meaning, to be read after "because".
    pub(crate) meaning: String,
    /// What a user can do about it.
    pub(crate) remedy: String,
    /// Its counter.
    pub(crate) count: fn(&NotOffloaded) -> u64,
}

/// Two reasons that one counter has. NICs compare tags only, so they can't tell sources apart.
pub(crate) const NAMES_SOURCE: &str = "it names its source apart from its tag";
/// Messages to oneself, and those over another device than the NIC's, pass the NIC by. Once there
/// is one, a receive is offered only if its tag names a source of which none has.
pub(crate) const PASSED_BY: &str = "messages that pass the NIC by could match it, as far as its tag \
                                    tells, as those to oneself do";
/// The advice for both of these reasons.
const SOURCE_IN_TAG: &str = "the source in the tag, in a program as Config::layout has it, with \
                             Match::sent_only_by; with an MPI library Open MPI's ofi_tag_1 or MPICH's \
                             ENABLE_DATA=0 (docs/provider.md)";

/// All reasons, in the order of the counters.
pub(crate) fn reasons() -> [Reason; 8] {
    let threshold = show_size(threshold());
    let reason = |name, meaning: &str, remedy: &str, count| Reason {
        name,
        meaning: meaning.to_owned(),
        remedy: remedy.to_owned(),
        count,
    };
    [
        reason(
            "too_small",
            &format!("its buffer is below {threshold}: not worth a NIC"),
            "nothing: below that size software is faster",
            |why| why.too_small,
        ),
        reason(
            "list_full",
            "the NIC's list was full",
            &format!("fewer receives posted at a time, or model:SLOTS, up to {SLOTS_MAX}"),
            |why| why.list_full,
        ),
        reason(
            "order",
            "an earlier receive that takes the same messages was in software",
            "small and any-source receives on other tags than large ones",
            |why| why.order,
        ),
        reason("source", &format!("{NAMES_SOURCE}, or {PASSED_BY}"), SOURCE_IN_TAG, |why| {
            why.source
        }),
        reason(
            "memory",
            "its buffer is longer than the NIC can fill, or the NIC refused it",
            "receives of at most 1 GiB, which is what the model can fill",
            |why| why.memory,
        ),
        reason(
            "slices",
            "its buffer is one of several slices, which a NIC's list can't fill",
            "a buffer of one slice (Buffer::from_slices makes one of several)",
            |why| why.slices,
        ),
        reason(
            "phase",
            "the NIC did not have it yet, or not active, when its message came",
            "receives posted earlier, fewer unexpected messages",
            |why| why.phase,
        ),
        reason(
            "off",
            "there is no NIC that matches, or its list is out of use",
            "--hw-tags model; in a program Config::hw_tags",
            |why| why.off,
        ),
    ]
}

/// Bytes from which a receive is offered to a NIC's list.
pub(crate) fn threshold() -> u64 {
    Config::default().hw_tags_threshold
}

/// The NIC of `--hw-tags`, in words.
pub(crate) fn nic(hw_tags: HwTagsArg) -> Option<String> {
    let which = match hw_tags {
        HwTagsArg::Off => return None,
        HwTagsArg::Auto => "the device's, if it can".to_owned(),
        HwTagsArg::Emu => "one in software, behind verbs".to_owned(),
        HwTagsArg::Model { slots } => {
            format!("a model of one, {} entries", show_count(slots.into()))
        }
    };
    Some(format!("{which}; receives of {} and more are offered", show_size(threshold())))
}

/// Where receives were matched: a line, and one for each reason that kept receives from a NIC.
/// Without a NIC there are no reasons.
pub(crate) fn where_matched(
    matching: &Matching,
    hw_tags: HwTagsArg,
) -> Vec<(&'static str, String)> {
    let Matching { hardware, posted, unexpected, by_device, not_offloaded, .. } = matching;
    let Matching { sent_beyond, unregistered, .. } = *matching;
    let mut all = format!(
        "{} receives: {} in hardware, {} posted, {} unexpected",
        show_count(hardware + posted + unexpected + by_device),
        show_count(*hardware),
        show_count(*posted),
        show_count(*unexpected),
    );
    if *by_device > 0 {
        all += &format!(", {} by the device, which doesn't tell how", show_count(*by_device));
    }
    let mut lines = vec![("matched", all)];
    for Reason { name, meaning, count, .. } in reasons() {
        let count = count(not_offloaded);
        if count > 0 && hw_tags != HwTagsArg::Off {
            let count = show_count(count);
            lines.push(("in software", format!("{count} because {meaning} ({name})")));
        }
    }
    if sent_beyond > 0 {
        let count = show_count(sent_beyond);
        lines.push(("beyond", format!("{count} messages, credits included, left over a network")));
    }
    if unregistered > 0 {
        let count = show_count(unregistered);
        let why = "through the device's own buffers: their memory can't be registered (ulimit -l)";
        lines.push(("slow", format!("{count} long messages went {why}")));
    }
    lines.extend(fault_of(matching).map(|fault| ("FAULT", fault)));
    lines
}

/// Why figures don't count, in words: tagmatch has met a bug of its own, or a NIC's list has broken
/// its rules.
pub(crate) fn fault_of(matching: &Matching) -> Option<String> {
    let Matching { bugs, list_faults, .. } = *matching;
    if bugs > 0 {
        let count = show_count(bugs);
        return Some(format!("tagmatch met states that can't be: bugs {count}; please report it"));
    }
    (list_faults > 0).then(|| {
        format!(
            "a NIC's list broke its rules: list_faults {}; it is out of use since, and the figures \
             are no NIC's",
            show_count(list_faults)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_reason() {
        let counts = r#"{"too_small":1,"list_full":2,"order":3,"source":4"#.to_owned()
            + r#","memory":5,"slices":6,"phase":7,"off":8}"#;
        let all = format!(r#"{{"hardware":0,"posted":0,"unexpected":0,"not_offloaded":{counts}}}"#);
        let not_offloaded = serde_json::from_str::<Matching>(&all).unwrap().not_offloaded;
        for (reason, want) in reasons().iter().zip(1..) {
            let name = reason.name;
            assert_eq!((reason.count)(&not_offloaded), want, "{name}");
            assert!(counts.contains(&format!("\"{name}\":{want}")), "{name}");
            assert!(!reason.meaning.is_empty() && !reason.remedy.is_empty());
        }
        let counts = Matching { hardware: 2, posted: 36, unexpected: 5, ..Matching::default() };
        let matching = Matching { not_offloaded, ..counts };
        let lines = where_matched(&matching, HwTagsArg::Auto);
        assert_eq!(lines[0].1, "43 receives: 2 in hardware, 36 posted, 5 unexpected");
        assert_eq!(lines.len(), 9);
        assert_eq!(where_matched(&matching, HwTagsArg::Off), lines[..1], "nobody asked for a NIC");
        let by_device = Matching { by_device: 4, ..Matching::default() };
        let line = &where_matched(&by_device, HwTagsArg::Off)[0].1;
        assert!(line.starts_with("4 receives: ") && line.contains(", 4 by the device"), "{line}");
        assert!(lines.iter().all(|(name, _)| *name != "FAULT"));
    }

    #[test]
    fn a_list_that_broke_its_rules_is_told() {
        let matching = Matching { hardware: 2, list_faults: 3, ..Matching::default() };
        let (name, line) = where_matched(&matching, HwTagsArg::Off).pop().unwrap();
        assert_eq!(name, "FAULT");
        assert!(line.contains("list_faults 3"), "{line}");
        assert_eq!(fault_of(&Matching::default()), None);
    }

    #[test]
    fn a_bug_of_tagmatch_is_told() {
        let matching = Matching { bugs: 2, ..Matching::default() };
        let (name, line) = where_matched(&matching, HwTagsArg::Off).pop().unwrap();
        assert!(name == "FAULT" && line.contains("bugs 2; please report it"), "{line}");
    }
}
