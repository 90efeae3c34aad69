//! Tags and data on libfabric's wire.
//!
//! A provider matches a tag of at most 64 bits, of which some keep less. So the tag on the wire is
//! packed. From the top of the provider's tag downwards:
//!
//! | bits | content | compared by a receive |
//! |---|---|---|
//! | 1 | control: a message of this device's own | always |
//! | 1 | the message has a trailer | never |
//! | 1 | the message has immediate data | never |
//! | up to 20 | the number by which the receiver knows the sender; none where it names the sender beside the tag | if it names its source |
//! | the rest | the application's tag without its source field | where the mask says so |
//!
//! Beside the tag, each message has CQ data (`fi_tagged(3)`). A provider with 8 bytes of it carries
//! the message's full length in the upper half, and immediate data in the lower one. A provider
//! with 4 bytes carries one of the two: the length of a message with a trailer, which has the
//! immediate data then, or else the immediate data.
//!
//! A receive that names its sender beside the tag (`FI_DIRECTED_RECV`, only `cxi`) leaves all bits
//! to the application. The CQ data then has the sender's number as well, where the others have the
//! length: such a provider tells lengths itself.

use tagmatch_device::DeviceError;
use tagmatch_device::matching::Unfit;
use tagmatch_fabric::settings::check_layout;

/// Most bits of a peer's number.
const NUMBER_BITS_MAX: u32 = 20;
/// Bits at the top of a tag that are this device's.
const FLAGS: u32 = 3;
/// What CQ data of 8 bytes has in its upper half where peers are named beside the tag.
const NUMBER_IN_DATA: u64 = 0xff_ffff;
/// Set there if the message has immediate data.
const IMMEDIATE_IN_DATA: u64 = 1 << 24;

/// How tags and data are carried. Both sides of a connection must do it alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carrier {
    used: u64,
    source: u64,
    /// Position of the source field, and its width.
    shift: u32,
    width: u32,
    number_bits: u32,
    /// Bits of the application's tag without its source field.
    own_bits: u32,
    /// Bits of the provider's tag.
    tag_bits: u32,
    pub(super) data: CqData,
}

/// What CQ data has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CqData {
    /// 8 bytes: the full length, and immediate data.
    Both,
    /// 4 bytes: one of the two.
    One,
    /// 8 bytes: the sender's number, and immediate data. The provider tells lengths, and the
    /// message goes as it is.
    Sender,
}

/// The label of a message: its sender, its tag, its immediate data and its full length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Label {
    /// The number by which the receiver knows the sender.
    pub(super) number: u64,
    /// The application's tag.
    pub(super) tag: u64,
    pub(super) has_trailer: bool,
    /// `None` if it has none, or if only its trailer has it.
    pub(super) immediate: Option<u32>,
    /// The full length, if it isn't that of the message on the wire.
    pub(super) length: Option<u32>,
}

/// Tag and data of a message on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) tag: u64,
    pub(super) data: u64,
}

/// The tags on the wire that a receive matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TagBits {
    pub(super) tag: u64,
    /// Bits that are not compared.
    pub(super) ignored: u64,
}

impl Carrier {
    /// For a layout, and a provider with tags of so many bits.
    pub(super) fn new(
        used: u64,
        source: u64,
        tag_bits: u32,
        data: CqData,
    ) -> Result<Self, DeviceError> {
        check_layout(used, source)?;
        let shift = source.trailing_zeros();
        let width = source.count_ones();
        let own_bits = (64 - used.leading_zeros()) - width;
        let flags = if data == CqData::Sender { 1 } else { FLAGS };
        let least = u32::from(data != CqData::Sender);
        let Some(left) = tag_bits.checked_sub(flags + own_bits).filter(|left| *left >= least)
        else {
            let range = "a layout that leaves more of the provider's tag free: fewer bits beside the \
                         source field";
            return Err(DeviceError::BadSetting { setting: "used", value: used, range });
        };
        let number_bits = match data {
            CqData::Sender => 0,
            _ => left.min(width).min(NUMBER_BITS_MAX),
        };
        Ok(Carrier { used, source, shift, width, number_bits, own_bits, tag_bits, data })
    }

    /// The largest number that a peer can have.
    pub(super) fn number_max(&self) -> u64 {
        match self.data {
            CqData::Sender => NUMBER_IN_DATA.min(self.source >> self.shift),
            _ => (1 << self.number_bits) - 1,
        }
    }

    fn control(&self) -> u64 {
        1 << (self.tag_bits - 1)
    }

    fn trailer(&self) -> u64 {
        self.control() >> 1
    }

    fn immediate(&self) -> u64 {
        self.control() >> 2
    }

    /// The application's tag or mask without its source field.
    #[inline]
    fn pack(&self, tag: u64) -> u64 {
        let low = (1 << self.shift) - 1;
        tag & low | tag.checked_shr(self.shift + self.width).unwrap_or(0) << self.shift
    }

    #[inline]
    fn unpack(&self, packed: u64) -> u64 {
        let low = (1 << self.shift) - 1;
        let high = (packed & self.own()) >> self.shift;
        packed & low & self.own() | high.checked_shl(self.shift + self.width).unwrap_or(0)
    }

    /// The bits of a tag on the wire that are the application's.
    #[inline]
    fn own(&self) -> u64 {
        (1u64.checked_shl(self.own_bits).unwrap_or(0)).wrapping_sub(1)
    }

    /// Whether a message can be carried.
    #[inline]
    pub(super) fn check_send(&self, tag: u64) -> Result<(), Unfit> {
        if tag & !self.used != 0 {
            return Err(OUTSIDE);
        }
        if tag & self.source != 0 { Err(IN_FIELD) } else { Ok(()) }
    }

    /// Tag and data of a message that can be carried.
    #[inline]
    pub(super) fn send(&self, label: &Label) -> Wire {
        let Label { number, tag, has_trailer, immediate, length } = *label;
        let packed = self.pack(tag);
        let length = length.unwrap_or(0);
        let value = u64::from(immediate.unwrap_or(0));
        if self.data == CqData::Sender {
            let flag = if immediate.is_some() { IMMEDIATE_IN_DATA } else { 0 };
            return Wire { tag: packed, data: (number & NUMBER_IN_DATA | flag) << 32 | value };
        }
        let mut wire = packed | number << self.own_bits;
        if immediate.is_some() {
            wire |= self.immediate();
        }
        if has_trailer {
            wire |= self.trailer();
        }
        let data = match self.data {
            CqData::Both => u64::from(length) << 32 | value,
            _ if has_trailer => u64::from(length),
            _ => value,
        };
        Wire { tag: wire, data }
    }

    /// Tag and ignored bits on the wire for a pattern. `sender` is the number of the peer that the
    /// receive names, if it names one.
    #[inline]
    pub(super) fn pattern(
        &self,
        tag: u64,
        mask: u64,
        sender: Option<u64>,
    ) -> Result<TagBits, Unfit> {
        let tag = tag & mask;
        if tag & !self.used != 0 {
            return Err(OUTSIDE);
        }
        if tag & self.source != 0 {
            return Err(IN_FIELD);
        }
        // Bits that no message has are compared, too: providers find receives that compare all
        // bits faster.
        let ignored = self.pack(!mask & self.used);
        let numbers = ((1u64 << self.number_bits) - 1) << self.own_bits;
        let flags = if self.data == CqData::Sender { 0 } else { self.trailer() | self.immediate() };
        let (number, any) = match sender {
            Some(number) if self.data != CqData::Sender => (number << self.own_bits, 0),
            _ => (0, numbers),
        };
        Ok(TagBits { tag: self.pack(tag) | number, ignored: ignored | any | flags })
    }

    /// What a message of a peer says of itself.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes words apart")]
    pub(super) fn read(&self, wire: Wire) -> Label {
        let tag = self.unpack(wire.tag);
        let high = (wire.data >> 32) as u32;
        let low = wire.data as u32;
        if self.data == CqData::Sender {
            let has_immediate = u64::from(high) & IMMEDIATE_IN_DATA != 0;
            return Label {
                number: u64::from(high) & NUMBER_IN_DATA,
                tag,
                has_trailer: false,
                immediate: has_immediate.then_some(low),
                length: None,
            };
        }
        let number = wire.tag >> self.own_bits & ((1 << self.number_bits) - 1);
        let has_trailer = wire.tag & self.trailer() != 0;
        let has_immediate = wire.tag & self.immediate() != 0;
        let (immediate, length) = match self.data {
            CqData::Both => (Some(low), Some(high)),
            _ if has_trailer => (None, Some(low)),
            _ => (Some(low), None),
        };
        let immediate = immediate.filter(|_| has_immediate);
        Label { number, tag, has_trailer, immediate, length }
    }

    /// Whether a message with this tag has immediate data, in its CQ data or in its trailer.
    pub(super) fn has_immediate(&self, tag: u64) -> bool {
        tag & self.immediate() != 0
    }

    /// Tag and data of a control packet from the peer with this number at the receiver.
    pub(super) fn control_wire(&self, number: u64) -> Wire {
        match self.data {
            CqData::Sender => Wire { tag: self.control(), data: (number & NUMBER_IN_DATA) << 32 },
            _ => Wire { tag: self.control() | number << self.own_bits, data: 0 },
        }
    }

    /// Tag and ignored bits with which any control packet is received.
    pub(super) fn any_control(&self) -> TagBits {
        TagBits { tag: self.control(), ignored: (self.control() - 1) & !self.trailer() }
    }

    /// The number of the sender of a control packet.
    pub(super) fn control_number(&self, wire: Wire) -> u64 {
        match self.data {
            CqData::Sender => wire.data >> 32 & NUMBER_IN_DATA,
            _ => wire.tag >> self.own_bits & ((1 << self.number_bits) - 1),
        }
    }

    /// Tag of the pieces of a long message that go to the receive with this number.
    pub(super) fn piece_tag(&self, receive: u32) -> u64 {
        self.control() | self.trailer() | u64::from(receive)
    }

    /// The bytes by which peers compare how they carry tags.
    pub(super) fn fingerprint(&self) -> [u8; 2] {
        let data = match self.data {
            CqData::Both => 8,
            CqData::One => 4,
            CqData::Sender => 9,
        };
        [u8::try_from(self.tag_bits).unwrap_or(0), data]
    }
}

const OUTSIDE: Unfit =
    Unfit::NotCarried("the tag has bits outside of the layout's fields; widen the tag layout");
const IN_FIELD: Unfit = Unfit::NotCarried(
    "the tag has bits in the source field, which this device fills in; name the peer instead",
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The layout of MPI: 16 bits of context, 24 of source, 24 of tag.
    const SOURCE: u64 = 0xff_ffff << 24;

    fn carrier(tag_bits: u32, data: CqData) -> Carrier {
        Carrier::new(!0, SOURCE, tag_bits, data).unwrap()
    }

    #[test]
    fn the_layout_of_mpi_fits_every_provider() {
        assert_eq!(carrier(64, CqData::Both).number_max(), (1 << 20) - 1);
        assert_eq!(carrier(63, CqData::One).number_max(), (1 << 20) - 1);
        assert_eq!(carrier(60, CqData::One).number_max(), (1 << 17) - 1);
        assert_eq!(carrier(48, CqData::Sender).number_max(), 0xff_ffff);
    }

    #[test]
    fn a_layout_that_leaves_no_room_is_named() {
        for (used, source, tag_bits) in
            [(!0, 0, 64), (!0, 0b101, 64), (0xff, 0xf00, 64), (!0, 1 << 63, 64), (!0, SOURCE, 43)]
        {
            let refused = Carrier::new(used, source, tag_bits, CqData::Both);
            assert!(matches!(refused, Err(DeviceError::BadSetting { .. })), "{refused:?}");
        }
    }

    #[test]
    fn control_packets_and_pieces_match_no_receive_and_not_each_other() {
        for (tag_bits, data) in [(63, CqData::Both), (60, CqData::One), (48, CqData::Sender)] {
            let carrier = carrier(tag_bits, data);
            let any = carrier.pattern(0, 0, None).unwrap();
            let control = carrier.any_control();
            let matches = |wire: u64, bits: TagBits| (wire ^ bits.tag) & !bits.ignored == 0;
            for number in [0, 5, carrier.number_max()] {
                let packet = carrier.control_wire(number);
                assert!(matches(packet.tag, control) && !matches(packet.tag, any));
                assert_eq!(carrier.control_number(packet), number);
            }
            for receive in [0, 1, 1 << 20, u32::MAX] {
                let piece = carrier.piece_tag(receive);
                assert!(!matches(piece, control) && !matches(piece, any));
                // The lowest bits are the slot's, which other receives have had.
                let other = carrier.piece_tag(receive ^ 1 << 20);
                assert_ne!(piece, other);
            }
        }
    }

    #[test]
    fn what_has_no_bits_is_refused() {
        let carrier = Carrier::new(0xffff_ffff, 0xff00, 64, CqData::Both).unwrap();
        let is_refused = |result: Result<(), Unfit>| matches!(result, Err(Unfit::NotCarried(_)));
        assert!(is_refused(carrier.check_send(1 << 32)) && is_refused(carrier.check_send(1 << 8)));
        assert!(carrier.check_send(0xff).is_ok());
        assert!(carrier.pattern(1 << 8, !0, None).is_err());
        assert!(carrier.pattern(1 << 8, 0xff, None).is_ok());
        assert!(carrier.pattern(1 << 40, !0, None).is_err());
    }

    proptest! {
        #[test]
        fn the_wire_matches_where_the_pattern_does(
            tag: u64, from in 0u64..1 << 17, immediate: Option<u32>, length: u32, has_trailer: bool,
            wanted: u64, mask: u64, named in prop::option::of(0u64..1 << 17), close: bool,
            kind in 0usize..3,
        ) {
            let data = [CqData::Both, CqData::One, CqData::Sender][kind];
            let carrier = carrier([64, 60, 48][kind], data);
            let tag = tag & !SOURCE;
            let wanted = if close { tag } else { wanted & !SOURCE };
            let named = if close { named.map(|_| from) } else { named };
            let label =
                Label { number: from, tag, has_trailer, immediate, length: Some(length) };
            let wire = carrier.send(&label);
            let read = carrier.read(wire);
            prop_assert_eq!((read.number, read.tag), (from, tag));
            match data {
                CqData::Both => prop_assert_eq!(
                    read, Label { immediate, length: Some(length), has_trailer, ..read }),
                CqData::One if has_trailer => prop_assert_eq!(
                    read, Label { immediate: None, length: Some(length), has_trailer, ..read }),
                _ => prop_assert_eq!(
                    read, Label { immediate, length: None, has_trailer: false, ..read }),
            }
            let bits = carrier.pattern(wanted, mask, named).unwrap();
            // A provider whose receives name their sender compares that itself.
            let is_named = data == CqData::Sender || named.is_none_or(|named| named == from);
            let expected = (tag ^ wanted) & mask == 0 && is_named;
            prop_assert_eq!((wire.tag ^ bits.tag) & !bits.ignored == 0, expected);
        }

        #[test]
        fn any_bits_can_be_read(tag: u64, data: u64, kind in 0usize..3) {
            let which = [CqData::Both, CqData::One, CqData::Sender][kind];
            let carrier = carrier([64, 60, 48][kind], which);
            let read = carrier.read(Wire { tag, data });
            prop_assert!(read.number <= carrier.number_max());
            prop_assert_eq!(read.tag & SOURCE, 0);
        }
    }
}
