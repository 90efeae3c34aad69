//! How the bits of a context id are used.

use std::fmt;

use crate::error::Error;

/// Bits of the place of an id in its word of the mask.
const BIT_BITS: u32 = 5;
/// Bits of [`Sub`].
const SUB_BITS: u32 = 2;
/// Above the suffix.
const SUB_SHIFT: u32 = 1;
/// Above suffix and sub-communicator.
const LOCAL_SHIFT: u32 = SUB_SHIFT + SUB_BITS;
/// The collective context's suffix.
const COLLECTIVE: u32 = 1;

/// What tells the messages of one communicator from those of all others that a process has.
///
/// It is not unique over a job: after a split all colours share one. Whatever is keyed by it must be
/// keyed by the group too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(u32);

impl ContextId {
    /// The bits, as they stand in a message's tag.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContextId({:#x})", self.0)
    }
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Which of the communicators that share one allocated id: the field Y.
///
/// MPICH uses code 3 for two things, the id that a merge borrows and the leaders of a node's parts, which
/// can clash. Here it is the merge's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sub {
    /// The communicator itself.
    Whole,
    /// Its members on one node.
    Intranode,
    /// One member of each node.
    Internode,
    /// What a merge of an intercommunicator borrows until it has an id of its own.
    Merging,
}

impl Sub {
    const ALL: [Sub; 4] = [Sub::Whole, Sub::Intranode, Sub::Internode, Sub::Merging];
}

/// Widths of a context id's fields, highest first: `V WWWWWW XXXXX L YY Z`.
///
/// | field | bits | meaning |
/// |---|---|---|
/// | V | 1 | of processes that met at run time, outside of any mask |
/// | W | settable | word of the mask |
/// | X | 5 | bit in the word |
/// | L | 0 or 1 | the local communicator of an intercommunicator |
/// | Y | 2 | [`Sub`] |
/// | Z | 1 | 0 for point to point, 1 for collective operations |
///
/// W and X together are the *prefix*: what is allocated and freed. Everything below is derived from it.
/// The fields are those of MPICH (src/mpi/comm/contextid.c), whose widths changed over time.
///
/// ```
/// use tagmatch_comm::ids::{IdLayout, IdMask};
/// let mut mask = IdMask::new(IdLayout::BITS_16);
/// assert_eq!(mask.allocate().map(|id| id.bits()), Some(496));
/// assert_eq!(mask.allocate().map(|id| id.bits()), Some(480));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdLayout {
    word_bits: u32,
    has_local: bool,
    predefined: u32,
}

impl IdLayout {
    /// 16 bits as MPICH has them today: 2048 ids, of which 2 are predefined.
    pub const BITS_16: IdLayout = IdLayout { word_bits: 6, has_local: true, predefined: 2 };
    /// 16 bits as MPICH had them in 2009, before the bit L: 4096 ids, of which 3 are predefined.
    pub const HISTORICAL: IdLayout = IdLayout { word_bits: 7, has_local: false, predefined: 3 };
    /// 20 bits: 32768 ids, of which 2 are predefined (MPICH's `HAVE_EXTENDED_CONTEXT_BITS`).
    pub const BITS_20: IdLayout = IdLayout { word_bits: 10, has_local: true, predefined: 2 };

    /// A layout with `1 << word_bits` words (`word_bits` from 1 to 12), of whose ids the first
    /// `predefined` (2 to 31) are never allocated.
    ///
    /// # Errors
    /// A width is out of range.
    pub fn new(word_bits: u32, has_local: bool, predefined: u32) -> Result<Self, Error> {
        if !(1..=12).contains(&word_bits) {
            return Err(Error::Layout { what: "words of the mask, as a power of two", max: 12 });
        }
        if !(2..=31).contains(&predefined) {
            return Err(Error::Layout {
                what: "predefined ids, of which there are 2 at least",
                max: 31,
            });
        }
        Ok(IdLayout { word_bits, has_local, predefined })
    }

    /// Bits of a whole id: the width that the context needs in a message's tag.
    pub const fn bits(&self) -> u32 {
        1 + self.word_bits + BIT_BITS + self.shift()
    }

    /// Words of the mask.
    pub const fn words(&self) -> usize {
        1 << self.word_bits
    }

    /// Ids that there are, predefined ones included.
    pub const fn ids(&self) -> u32 {
        1 << (self.word_bits + BIT_BITS)
    }

    /// Ids, from the first on, that are never allocated.
    pub const fn predefined(&self) -> u32 {
        self.predefined
    }

    /// The id of the communicator of all processes.
    pub fn world(&self) -> ContextId {
        ContextId(0)
    }

    /// The id of the communicator of a process alone.
    pub fn oneself(&self) -> ContextId {
        ContextId(1 << self.shift())
    }

    /// The id with this prefix, if there is one.
    pub fn id(&self, prefix: u32) -> Option<ContextId> {
        (prefix < self.ids()).then(|| ContextId(prefix << self.shift()))
    }

    /// Bits from elsewhere as an id.
    ///
    /// # Errors
    /// There are more bits than this layout has.
    pub fn parse(&self, bits: u32) -> Result<ContextId, Error> {
        if bits >> self.bits() == 0 {
            Ok(ContextId(bits))
        } else {
            Err(Error::NotAnId { bits, width: self.bits() })
        }
    }

    /// The place in the mask of the id, or of what it was derived from.
    pub fn prefix(&self, id: ContextId) -> u32 {
        (id.0 >> self.shift()) & (self.ids() - 1)
    }

    /// The same communicator's context for collective operations.
    #[must_use]
    pub fn collective(&self, id: ContextId) -> ContextId {
        ContextId(id.0 | COLLECTIVE)
    }

    /// The id of a part of the communicator.
    #[must_use]
    pub fn sub(&self, id: ContextId, sub: Sub) -> ContextId {
        ContextId(id.0 & !(((1 << SUB_BITS) - 1) << SUB_SHIFT) | (sub as u32) << SUB_SHIFT)
    }

    /// Which part an id names.
    pub fn sub_of(&self, id: ContextId) -> Sub {
        Sub::ALL[(id.0 >> SUB_SHIFT & ((1 << SUB_BITS) - 1)) as usize]
    }

    /// The id of an intercommunicator's local communicator.
    ///
    /// # Errors
    /// The layout has no bit L.
    pub fn localcomm(&self, id: ContextId) -> Result<ContextId, Error> {
        if self.has_local {
            Ok(ContextId(id.0 | 1 << LOCAL_SHIFT))
        } else {
            Err(Error::NoLocalcomm)
        }
    }

    /// Whether it is the id of an intercommunicator's local communicator.
    pub fn is_localcomm(&self, id: ContextId) -> bool {
        self.has_local && id.0 >> LOCAL_SHIFT & 1 == 1
    }

    /// An id for processes that meet at run time, outside of any mask.
    ///
    /// # Errors
    /// `number` is not below [`ids`](Self::ids), or the last one.
    pub fn dynamic(&self, number: u32) -> Result<ContextId, Error> {
        let id = self.id(number).filter(|_| number < self.ids() - 1);
        let id = id.ok_or(Error::NotAnId { bits: number, width: self.word_bits + BIT_BITS })?;
        Ok(ContextId(id.0 | 1 << (self.bits() - 1)))
    }

    /// The last of those: what processes tell each other of failures, and no communicator has.
    pub(crate) fn control(&self) -> ContextId {
        ContextId((self.ids() - 1) << self.shift() | 1 << (self.bits() - 1))
    }

    /// Whether it is an id of processes that met at run time.
    pub fn is_dynamic(&self, id: ContextId) -> bool {
        id.0 >> (self.bits() - 1) & 1 == 1
    }

    /// Whether no mask holds it: freeing it frees nothing.
    pub fn is_derived(&self, id: ContextId) -> bool {
        self.is_dynamic(id) || id.0 & ((1 << self.shift()) - 1) != 0
    }

    /// The bits of a context in which all that is derived from one id differs.
    pub(crate) fn derived_bits(&self) -> u32 {
        (1 << self.shift()) - 1
    }

    /// Bits below the prefix.
    const fn shift(&self) -> u32 {
        LOCAL_SHIFT + self.has_local as u32
    }
}
