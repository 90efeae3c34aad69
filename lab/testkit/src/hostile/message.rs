//! The description of a message: its fields, and what each of them may be.

use std::ops::{Range, RangeInclusive};

/// Whether a receiver may take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legality {
    /// The receiver takes it.
    Legal,
    /// The receiver refuses it, and nothing changes.
    Illegal,
    /// The description doesn't say. The receiver survives it.
    Open,
}

impl Legality {
    /// The legality of a message for which both of these hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Illegal, _) | (_, Self::Illegal) => Self::Illegal,
            (Self::Legal, Self::Legal) => Self::Legal,
            _ => Self::Open,
        }
    }
}

/// What a field may be.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// The value of the good message alone: a mark, a version, reserved bits, an id that the
    /// receiver compares.
    Fixed,
    /// One of these values. Which message the other ones make is open.
    OneOf(Vec<u64>),
    /// A number between these limits.
    Within(RangeInclusive<u64>),
    /// How many units of so many bytes follow in the [`Rest`].
    Counts(u64),
    /// Every value is legal.
    Free,
    /// The receiver's other knowledge decides.
    Open,
}

/// What follows behind the fields.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The length of a unit in bytes.
    pub unit: usize,
    /// How many units there may be.
    pub count: RangeInclusive<usize>,
    /// The legality of another number of units between these limits.
    pub legality: Legality,
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) at: Range<usize>,
    pub(super) is_big_endian: bool,
    pub(super) meaning: Meaning,
}

/// A good message, and its description.
#[derive(Clone, Debug)]
pub struct Message {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) fields: Vec<Field>,
    pub(super) rest: Option<Rest>,
    /// The lengths at which the message is another one.
    pub(super) other_lengths: Option<RangeInclusive<usize>>,
}

impl Field {
    /// The field's value in a message.
    pub(super) fn value(&self, bytes: &[u8]) -> u64 {
        let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let of = &bytes[self.at.clone()];
        if self.is_big_endian { of.iter().fold(0, fold) } else { of.iter().rev().fold(0, fold) }
    }

    /// Writes a value, of which the lowest bytes are kept.
    pub(super) fn put(&self, bytes: &mut [u8], value: u64) {
        let width = self.at.len();
        let place = &mut bytes[self.at.clone()];
        place.copy_from_slice(&value.to_le_bytes()[..width]);
        if self.is_big_endian {
            place.reverse();
        }
    }

    /// The largest value that the field has room for.
    pub(super) fn value_max(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.at.len())
    }
}

impl Message {
    /// A good message without a description so far.
    #[must_use]
    pub fn new(name: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        Message { name, bytes: bytes.into(), fields: Vec::new(), rest: None, other_lengths: None }
    }

    /// Its name in the protocol.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The good message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Describes the next `width` bytes, lowest byte first.
    #[must_use]
    pub fn le(self, width: usize, name: &'static str, meaning: Meaning) -> Self {
        self.field(width, name, meaning, false)
    }

    /// Describes the next `width` bytes, highest byte first.
    #[must_use]
    pub fn be(self, width: usize, name: &'static str, meaning: Meaning) -> Self {
        self.field(width, name, meaning, true)
    }

    /// Describes the bytes that a parser's constant names, lowest byte first.
    ///
    /// # Panics
    /// They don't follow the field before: bytes between the two have no description.
    #[must_use]
    pub fn le_at(self, at: Range<usize>, name: &'static str, meaning: Meaning) -> Self {
        assert_eq!(at.start, self.described_bytes(), "`{name}` of {} doesn't follow", self.name);
        self.le(at.len(), name, meaning)
    }

    /// Describes bytes without limits: text, addresses, payload of one length.
    #[must_use]
    pub fn bytes_of(self, length: usize, name: &'static str, meaning: &Meaning) -> Self {
        (0..length).fold(self, |message, _| message.le(1, name, meaning.clone()))
    }

    /// Describes what follows behind the fields.
    #[must_use]
    pub fn rest(mut self, rest: Rest) -> Self {
        self.rest = Some(rest);
        self
    }

    /// Of these lengths it is another message of the protocol, whose legality is open.
    #[must_use]
    pub fn or_of_length(mut self, lengths: RangeInclusive<usize>) -> Self {
        self.other_lengths = Some(lengths);
        self
    }

    fn field(
        mut self,
        width: usize,
        name: &'static str,
        meaning: Meaning,
        is_big_endian: bool,
    ) -> Self {
        let start = self.described_bytes();
        assert!((1..=8).contains(&width) && start + width <= self.bytes.len(), "{name}");
        self.fields.push(Field { name, at: start..start + width, is_big_endian, meaning });
        self
    }

    /// How many bytes the fields describe so far.
    #[must_use]
    pub fn described_bytes(&self) -> usize {
        self.fields.last().map_or(0, |field| field.at.end)
    }
}
