use proptest::prelude::*;

use super::*;

const PRESETS: [IdLayout; 3] = [IdLayout::BITS_16, IdLayout::HISTORICAL, IdLayout::BITS_20];

/// The ids that a new mask gives, in order.
fn sequence(layout: IdLayout) -> Vec<u32> {
    let mut mask = IdMask::new(layout);
    std::iter::from_fn(|| mask.allocate().map(ContextId::bits)).collect()
}

#[test]
fn ids_of_today() {
    let layout = IdLayout::BITS_16;
    assert_eq!((layout.bits(), layout.words(), layout.ids()), (16, 64, 2048));
    assert_eq!((layout.world().bits(), layout.oneself().bits()), (0, 16));
    let ids = sequence(layout);
    assert_eq!(ids.len(), 2046);
    assert_eq!(ids[..4], [496, 480, 464, 448]);
    assert_eq!(ids[28..33], [48, 32, 1008, 992, 976]);
    assert_eq!(ids[61..64], [512, 1520, 1504]);
    assert_eq!(ids[2045], 0x7e00);
}

#[test]
fn ids_of_2009() {
    let layout = IdLayout::HISTORICAL;
    assert_eq!((layout.bits(), layout.words(), layout.ids()), (16, 128, 4096));
    assert_eq!((layout.world().bits(), layout.oneself().bits()), (0, 8));
    let ids = sequence(layout);
    assert_eq!(ids.len(), 4093);
    assert_eq!(ids[..4], [248, 240, 232, 224]);
    assert_eq!(ids[27..31], [32, 24, 504, 496]);
    assert_eq!(ids[4092], 0x7f00);
}

#[test]
fn ids_of_20_bits() {
    let layout = IdLayout::BITS_20;
    assert_eq!((layout.bits(), layout.words(), layout.ids()), (20, 1024, 32768));
    let ids = sequence(layout);
    assert_eq!(ids.len(), 32766);
    assert_eq!(ids[..3], [496, 480, 464]);
    assert_eq!(ids[32765], 0x7fe00);
}

#[test]
fn six_ids_taken_from_a_mask_of_2009() {
    let mut mask = IdMask::new(IdLayout::HISTORICAL);
    for _ in 0..6 {
        mask.allocate();
    }
    assert_eq!(mask.words()[0], 0x03ff_fff8);
}

#[test]
fn derived_ids_free_nothing() {
    for layout in PRESETS {
        let mut mask = IdMask::new(layout);
        let id = mask.allocate().unwrap();
        let before = mask.clone();
        let mut derived = vec![layout.collective(id), layout.dynamic(5).unwrap()];
        derived.extend([Sub::Intranode, Sub::Internode, Sub::Merging].map(|s| layout.sub(id, s)));
        derived.extend(layout.localcomm(id));
        for id in derived {
            assert!(layout.is_derived(id));
            mask.free(id).unwrap();
        }
        assert_eq!(mask, before);
        assert_eq!(layout.localcomm(id).is_ok(), layout != IdLayout::HISTORICAL);
        assert_eq!(mask.free(id), Ok(()));
        assert_eq!(mask.free(id), Err(crate::Error::DoubleFree { id }));
        let id = layout.oneself();
        assert_eq!(mask.free(id), Err(crate::Error::FreePredefined { id }));
    }
}

#[test]
fn widths_out_of_range_are_refused() {
    assert!(IdLayout::new(0, true, 2).is_err());
    assert!(IdLayout::new(13, true, 2).is_err());
    assert!(IdLayout::new(6, true, 1).is_err());
    assert!(IdLayout::new(6, true, 32).is_err());
    assert_eq!(IdLayout::new(6, true, 2), Ok(IdLayout::BITS_16));
    assert!(IdLayout::BITS_16.parse(1 << 16).is_err());
    assert!(IdLayout::BITS_16.dynamic(2048).is_err());
}

proptest! {
    /// Compares a mask with a set: whatever was taken and freed, the next id is the same.
    #[test]
    fn a_mask_is_a_set(preset in 0usize..3, steps in prop::collection::vec((any::<bool>(), any::<u16>()), 1..400)) {
        let layout = PRESETS[preset];
        let mut mask = IdMask::new(layout);
        let order = |prefix: u32| (prefix / 32, 31 - prefix % 32);
        let mut free: std::collections::BTreeMap<_, u32> =
            (layout.predefined()..layout.ids()).map(|prefix| (order(prefix), prefix)).collect();
        let mut taken = Vec::new();
        for (take, which) in steps {
            if take || taken.is_empty() {
                let (_, prefix) = free.pop_first().unwrap();
                let id = mask.allocate().unwrap();
                prop_assert_eq!(layout.prefix(id), prefix);
                prop_assert!(!layout.is_derived(id));
                taken.push(id);
            } else {
                let id = taken.swap_remove(usize::from(which) % taken.len());
                free.insert(order(layout.prefix(id)), layout.prefix(id));
                mask.free(id).unwrap();
            }
            prop_assert_eq!(mask.free_count() as usize, free.len());
        }
    }

    /// No two fields share a bit.
    #[test]
    fn fields_are_apart(preset in 0usize..3, prefix in any::<u32>(), sub in 0usize..4, local: bool, suffix: bool) {
        let layout = PRESETS[preset];
        let prefix = prefix % layout.ids();
        let sub = [Sub::Whole, Sub::Intranode, Sub::Internode, Sub::Merging][sub];
        let mut id = layout.sub(layout.id(prefix).unwrap(), sub);
        if local && let Ok(of_local) = layout.localcomm(id) {
            id = of_local;
        }
        if suffix {
            id = layout.collective(id);
        }
        prop_assert_eq!(layout.prefix(id), prefix);
        prop_assert_eq!(layout.sub_of(id), sub);
        prop_assert_eq!(layout.is_localcomm(id), local && layout != IdLayout::HISTORICAL);
        prop_assert!(!layout.is_dynamic(id));
        prop_assert_eq!(id.bits() & 1 == 1, suffix);
        prop_assert_eq!(layout.parse(id.bits()), Ok(id));
    }
}
