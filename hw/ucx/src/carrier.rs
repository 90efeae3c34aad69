//! Tags on UCX's wire: 64 bits that carry the application's tag, the sender and immediate data.
//!
//! The sender is in the source field of the application's layout. There are two ways. The device
//! uses the field: the receiver gives each peer a number in the handshake, and the peer puts this
//! number there. Or the runtime puts its own number there, as Open MPI does, and announces it in
//! the handshake. In both cases UCX's `tag_sender_mask` is the field, so that UCX's offload can
//! tell senders apart.
//!
//! Immediate data needs 33 free bits above all fields: the top bit marks a message with immediate
//! data, the next 32 bits are the data.

use tagmatch_device::DeviceError;
use tagmatch_device::matching::Unfit;
use tagmatch_fabric::settings::check_layout;

/// The bit that marks a message with immediate data.
const PRESENT: u64 = 1 << 63;
/// The position of the immediate data.
const SHIFT: u32 = 31;
const VALUE: u64 = 0xffff_ffff << SHIFT;

/// How tags are encoded. Both sides of a connection must encode them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TagCodec {
    /// All bits of the tag layout.
    pub(super) used: u64,
    /// The bits of the source field.
    pub(super) source: u64,
    /// The number of this worker, if the application's tags have it.
    pub(super) own_source: Option<u64>,
    has_immediate: bool,
}

/// The contents of a tag on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// The value of the source field.
    pub(super) number: u64,
    /// The application's tag.
    pub(super) tag: u64,
    pub(super) immediate: Option<u32>,
}

impl TagCodec {
    pub(super) fn new(
        used: u64,
        source: u64,
        own_source: Option<u64>,
    ) -> Result<Self, DeviceError> {
        check_layout(used, source)?;
        let carrier =
            TagCodec { used, source, own_source, has_immediate: used.leading_zeros() >= 33 };
        match own_source {
            Some(own) if own > carrier.number_max() => {
                let range = "a number that fits into the source field";
                Err(DeviceError::BadSetting { setting: "own_source", value: own, range })
            }
            _ => Ok(carrier),
        }
    }

    /// The largest number that fits into the source field.
    pub(super) fn number_max(&self) -> u64 {
        self.source >> self.source.trailing_zeros()
    }

    fn field(&self, number: u64) -> u64 {
        number << self.source.trailing_zeros() & self.source
    }

    /// Whether a message can be carried.
    pub(super) fn check_send(&self, tag: u64, immediate: Option<u32>) -> Result<(), Unfit> {
        if immediate.is_some() && !self.has_immediate {
            return Err(Unfit::NotCarried(
                "the tag layout leaves no 33 bits free above its fields for immediate data; use a \
                 narrower layout",
            ));
        }
        if tag & !self.used != 0 {
            return Err(OUTSIDE);
        }
        match self.own_source {
            None if tag & self.source != 0 => Err(IN_FIELD),
            Some(own) if tag & self.source != self.field(own) => Err(Unfit::NotCarried(
                "the tag's source field isn't the number that UcxConfig::own_source announces",
            )),
            _ => Ok(()),
        }
    }

    /// The tag on the wire of a message that can be carried. `number` is the number that the
    /// receiver gave this worker.
    #[inline]
    pub(super) fn send(&self, tag: u64, immediate: Option<u32>, number: u64) -> u64 {
        let field = if self.own_source.is_some() { 0 } else { self.field(number) };
        let immediate = immediate.map_or(0, |value| PRESENT | u64::from(value) << SHIFT);
        tag | field | immediate
    }

    /// Tag and mask on the wire for a pattern. `sender` is the source number of the peer that the
    /// receive names, if it names one.
    #[inline]
    pub(super) fn pattern(
        &self,
        tag: u64,
        mask: u64,
        sender: Option<u64>,
    ) -> Result<(u64, u64), Unfit> {
        let tag = tag & mask;
        if tag & !self.used != 0 {
            return Err(OUTSIDE);
        }
        // Bits that are always zero are compared, too: UCX finds a receive that compares all bits
        // by its hash.
        let immediate = if self.has_immediate { PRESENT | VALUE } else { 0 };
        let mask = mask | !self.used & !immediate;
        let named = sender.map(|number| self.field(number));
        if self.own_source.is_none() {
            if tag & self.source != 0 {
                return Err(IN_FIELD);
            }
            let compared = if named.is_some() { self.source } else { 0 };
            return Ok((tag | named.unwrap_or(0), mask & !immediate & !self.source | compared));
        }
        let mask = mask & !immediate;
        match named {
            None => Ok((tag, mask)),
            Some(field) if (tag ^ field) & mask & self.source != 0 => Err(Unfit::NotCarried(
                "the tag's source field asks for another than the peer that is named; no message \
                 can match",
            )),
            Some(field) => Ok((tag & !self.source | field, mask | self.source)),
        }
    }

    /// The contents of a tag on the wire.
    #[inline]
    pub(super) fn read(&self, wire: u64) -> Carried {
        let number = (wire & self.source) >> self.source.trailing_zeros();
        let keep = if self.own_source.is_some() { self.used } else { self.used & !self.source };
        let has_immediate = self.has_immediate && wire & PRESENT != 0;
        // The mask leaves 32 bits.
        #[allow(clippy::cast_possible_truncation)]
        let value = ((wire & VALUE) >> SHIFT) as u32;
        Carried { number, tag: wire & keep, immediate: has_immediate.then_some(value) }
    }
}

const OUTSIDE: Unfit =
    Unfit::NotCarried("the tag has bits outside of the layout's fields; widen the tag layout");
const IN_FIELD: Unfit = Unfit::NotCarried(
    "the tag has bits in the source field, which this device fills in; name the peer instead, or set \
     UcxConfig::own_source",
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOURCE: u64 = 0xff << 8;
    const USED: u64 = 0xff_ffff;

    fn ours() -> TagCodec {
        TagCodec::new(USED, SOURCE, None).unwrap()
    }

    fn theirs(own: u64) -> TagCodec {
        TagCodec::new(USED, SOURCE, Some(own)).unwrap()
    }

    fn matches(wire: u64, pattern: (u64, u64)) -> bool {
        (wire ^ pattern.0) & pattern.1 == 0
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        let wrong = |used, source, own| match TagCodec::new(used, source, own) {
            Err(DeviceError::BadSetting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        };
        assert_eq!(wrong(0xff, SOURCE, None), "used");
        assert_eq!(wrong(USED, SOURCE, Some(256)), "own_source");
        assert!(TagCodec::new(!0, !0, None).is_ok());
        assert!(TagCodec::new(!0, 1 << 63, Some(1)).is_ok());
    }

    #[test]
    fn what_has_no_bits_is_refused() {
        let is_refused = |result: Result<(), Unfit>| matches!(result, Err(Unfit::NotCarried(_)));
        let wide = TagCodec::new(u64::MAX >> 32, SOURCE, None).unwrap();
        assert!(is_refused(wide.check_send(0, Some(1))) && wide.check_send(0, None).is_ok());
        assert!(is_refused(ours().check_send(1 << 8, None)));
        assert!(is_refused(ours().check_send(1 << 24, None)));
        assert!(is_refused(theirs(3).check_send(4 << 8, None)));
        assert!(theirs(3).check_send(3 << 8, Some(9)).is_ok());
        assert!(ours().pattern(1 << 8, !0, None).is_err());
        assert!(ours().pattern(1 << 8, 0xff, None).is_ok());
        assert!(ours().pattern(1 << 30, !0, None).is_err());
        assert!(theirs(3).pattern(4 << 8, SOURCE, Some(5)).is_err());
    }

    #[test]
    fn a_full_pattern_of_one_sender_compares_every_bit_where_none_is_for_immediate_data() {
        let wide = TagCodec::new(!0, SOURCE, None).unwrap();
        assert_eq!(wide.pattern(7, !0, Some(2)).unwrap(), (7 | 2 << 8, !0));
        assert_eq!(wide.pattern(7, !SOURCE, Some(2)).unwrap().1, !0);
        assert_eq!(wide.pattern(7, !0, None).unwrap().1, !SOURCE);
    }

    proptest! {
        #[test]
        fn the_wire_matches_where_the_pattern_does(
            tag in 0u64..=USED, from in 0u64..256, immediate: Option<u32>,
            wanted in 0u64..=USED, mask: u64, named in prop::option::of(0u64..256), close: bool,
        ) {
            let tag = tag & !SOURCE;
            let wanted = if close { tag } else { wanted & !SOURCE };
            let wire = ours().send(tag, immediate, from);
            prop_assert_eq!(ours().read(wire), Carried { number: from, tag, immediate });
            let pattern = ours().pattern(wanted, mask, named).unwrap();
            let expected = (tag ^ wanted) & mask == 0 && named.is_none_or(|named| named == from);
            prop_assert_eq!(matches(wire, pattern), expected);
        }

        #[test]
        fn a_tag_of_the_runtimes_own_goes_as_it_is(
            tag in 0u64..=USED, immediate: Option<u32>, wanted in 0u64..=USED, mask: u64,
            named in prop::option::of(0u64..256), close: bool,
        ) {
            let own = (tag & SOURCE) >> 8;
            let wanted = if close { tag } else { wanted };
            theirs(own).check_send(tag, immediate).unwrap();
            let wire = theirs(own).send(tag, immediate, 77);
            prop_assert_eq!(theirs(0).read(wire), Carried { number: own, tag, immediate });
            let expected = (tag ^ wanted) & mask == 0 && named.is_none_or(|named| named == own);
            match theirs(0).pattern(wanted, mask, named) {
                Ok(pattern) => prop_assert_eq!(matches(wire, pattern), expected),
                Err(_) => prop_assert!(!expected),
            }
        }

        #[test]
        fn any_bits_can_be_read(wire: u64) {
            prop_assert!(ours().read(wire).number <= ours().number_max());
            prop_assert_eq!(ours().read(wire).tag & !USED, 0);
        }
    }
}
