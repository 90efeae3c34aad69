//! Patterns in a space so small that the tests try every one.

use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

/// Three bits of the tag, far apart, and two sources besides any.
fn patterns() -> Vec<Pattern> {
    let place = |bits: u64| bits & 1 | (bits & 2) << 20 | (bits & 4) << 61;
    let mut all = Vec::new();
    for tag in 0..8 {
        for mask in 0..8 {
            let pattern = Pattern::new(Tag(place(tag)), TagMask(place(mask)));
            all.push(pattern);
            all.extend([0, u32::MAX].map(|source| pattern.from_source(SourceId(source))));
        }
    }
    all
}

fn messages() -> Vec<(Tag, SourceId)> {
    let place = |bits: u64| bits & 1 | (bits & 2) << 20 | (bits & 4) << 61;
    let sources = [0, 1, u32::MAX].map(SourceId);
    (0..8).flat_map(|tag| sources.map(|source| (Tag(place(tag)), source))).collect()
}

#[test]
fn patterns_overlap_iff_some_message_matches_both() {
    let messages = messages();
    for a in patterns() {
        for b in patterns() {
            let both = messages.iter().any(|&(t, s)| a.matches(t, s) && b.matches(t, s));
            assert_eq!(a.overlaps(&b), both, "{a:?} and {b:?}");
        }
    }
}

#[test]
fn patterns_are_equal_iff_they_match_the_same_messages() {
    let messages = messages();
    for a in patterns() {
        for b in patterns() {
            let same = messages.iter().all(|&(t, s)| a.matches(t, s) == b.matches(t, s));
            assert_eq!(a == b, same, "{a:?} and {b:?}");
        }
    }
}

#[test]
fn bits_outside_the_mask_are_dropped() {
    let pattern = Pattern::new(Tag(0xffff), TagMask(0x0ff0)).from_source(SourceId(9));
    assert_eq!(pattern.tag(), Tag(0x0ff0));
    assert_eq!(pattern.mask(), TagMask(0x0ff0));
    assert_eq!(pattern.source(), Some(SourceId(9)));
}

#[test]
fn display_is_readable() {
    assert_eq!(Tag(0x2a).to_string(), "0x000000000000002a");
    assert_eq!(TagMask::EXACT.to_string(), "exact");
    assert_eq!(TagMask::ANY.to_string(), "any");
    assert_eq!(TagMask(0xff).to_string(), "0x00000000000000ff");
    assert_eq!(SourceId(3).to_string(), "source 3");
}
