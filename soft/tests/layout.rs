//! Layouts with fields of every boundary width.

use tagmatch_soft::{LayoutError, Pattern, SourceId, Tag, TagLayout, TagMask};

fn ones(bits: u32) -> u64 {
    u64::MAX.checked_shr(64 - bits).unwrap_or(0)
}

/// Every layout whose widths are boundaries, full ones included.
fn layouts() -> Vec<TagLayout> {
    let widths = [0, 1, 2, 15, 16, 24, 31, 32, 33, 62, 63, 64];
    let mut all = Vec::new();
    for context in widths {
        for source in widths {
            for tag in widths {
                match TagLayout::new(context, source, tag) {
                    Ok(layout) => {
                        assert!(context + source + tag <= 64);
                        all.push(layout);
                    }
                    Err(error) => {
                        assert!(context + source + tag > 64);
                        assert_eq!(
                            error,
                            LayoutError::TooWide {
                                context_bits: context,
                                source_bits: source,
                                tag_bits: tag
                            }
                        );
                    }
                }
            }
        }
    }
    all
}

#[test]
fn widths_that_wrap_are_too_wide() {
    for width in [65, u32::MAX, u32::MAX - 23] {
        assert!(TagLayout::new(width, 0, 0).is_err());
        assert!(TagLayout::new(0, width, 24).is_err());
        assert!(TagLayout::new(u32::MAX, 1, width).is_err());
    }
}

#[test]
fn masks_are_disjoint_and_as_wide_as_their_fields() {
    for layout in layouts() {
        let masks = [layout.context_mask(), layout.source_mask(), layout.tag_mask()];
        let widths = [layout.context_bits(), layout.source_bits(), layout.tag_bits()];
        assert_eq!(masks.map(|mask| mask.0.count_ones()), widths);
        let [context, source, tag] = masks.map(|mask| mask.0);
        assert_eq!(context & source | context & tag | source & tag, 0);
        assert_eq!(context | source | tag, ones(widths.iter().sum()));
    }
}

#[test]
fn packing_and_unpacking_are_inverse_at_the_bounds() {
    for layout in layouts() {
        let most = [layout.context_bits(), layout.source_bits(), layout.tag_bits()].map(ones);
        for corner in 0..8 {
            let pick = |field: usize| {
                if corner >> field & 1 == 1 { most[field] } else { 0 }
            };
            let context = pick(0);
            let source = pick(1);
            let tag = pick(2);
            let packed = layout.pack(context, source, tag).expect("in range");
            assert_eq!(layout.unpack(packed), (context, source, tag), "{layout:?}");
        }
    }
}

#[test]
fn values_beyond_their_field_are_named() {
    for layout in layouts() {
        let widths = [layout.context_bits(), layout.source_bits(), layout.tag_bits()];
        for (at, field) in ["context", "source", "tag"].into_iter().enumerate() {
            let bits = widths[at];
            let Some(value) = ones(bits).checked_add(1) else {
                continue;
            };
            let mut values = [0; 3];
            values[at] = value;
            let expected = LayoutError::OutOfRange { field, value, bits };
            assert_eq!(layout.pack(values[0], values[1], values[2]), Err(expected));
            let pattern = layout.pattern(values[0], Some(values[1]), Some(values[2]));
            assert_eq!(pattern, Err(expected));
        }
    }
}

#[test]
fn patterns_compare_the_fields_that_they_name() {
    for layout in layouts() {
        let exact = layout.pattern(0, Some(0), Some(0)).expect("in range");
        assert_eq!(exact.mask(), TagMask::EXACT);
        assert_eq!(layout.pins_source(&exact), layout.source_bits() > 0);
        let any_source = layout.pattern(0, None, Some(0)).expect("in range");
        assert_eq!(any_source.mask().0, !layout.source_mask().0);
        assert!(!layout.pins_source(&any_source));
        let any_tag = layout.pattern(0, Some(0), None).expect("in range");
        assert_eq!(any_tag.mask().0, !layout.tag_mask().0);
        assert_eq!(layout.pins_source(&any_tag), layout.source_bits() > 0);
        assert_eq!(any_tag.source(), None);
    }
}

#[test]
fn mpi_envelopes_match_as_mpi_says() {
    let layout = TagLayout::MPI;
    assert_eq!(TagLayout::new(16, 24, 24), Ok(layout));
    assert_eq!(layout.source_mask(), TagMask(0x0000_ffff_ff00_0000));
    let message = layout.pack(0xffff, 0xff_ffff, 5).expect("in range");
    assert_eq!(message, Tag(0xffff_ffff_ff00_0005));
    let accepts = |pattern: Pattern| pattern.matches(message, SourceId(0));
    assert!(accepts(layout.pattern(0xffff, Some(0xff_ffff), Some(5)).expect("in range")));
    assert!(accepts(layout.pattern(0xffff, None, None).expect("in range")));
    assert!(!accepts(layout.pattern(0xfffe, None, None).expect("in range")));
    assert!(!accepts(layout.pattern(0xffff, Some(1), None).expect("in range")));
    assert!(!accepts(layout.pattern(0xffff, None, Some(4)).expect("in range")));
    let error = layout.pack(0, 1 << 24, 0).expect_err("too large");
    assert_eq!(error.to_string(), "source 16777216 doesn't fit in 24 bits");
}

/// A mask that leaves out one bit of the source accepts two senders.
#[test]
fn a_source_is_pinned_only_by_all_its_bits() {
    let layout = TagLayout::MPI;
    for bit in 0..64 {
        let pattern = Pattern::new(Tag(0), TagMask(!(1 << bit)));
        assert_eq!(layout.pins_source(&pattern), !(24..48).contains(&bit));
    }
}
