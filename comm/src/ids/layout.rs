//! The fields of a context id.

use crate::context_id::ContextId;
use crate::error::{Error, in_range};

/// Bits of the field X.
const BIT_BITS: u32 = 5;
/// Bits of [`Sub`].
const SUB_BITS: u32 = 2;
/// The position of [`Sub`], above the suffix.
const SUB_SHIFT: u32 = 1;
/// The position of the bit L, above the suffix and [`Sub`].
const LOCAL_SHIFT: u32 = SUB_SHIFT + SUB_BITS;
/// The suffix of the context of collective operations.
const COLLECTIVE: u32 = 1;

/// The field Y: it tells communicators apart that share one allocated id.
///
/// MPICH uses the code 3 for two things, the id that a merge borrows and the leaders of the parts
/// of a node, which can clash. Here only the merge uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sub {
    /// The communicator itself.
    Whole,
    /// The members on one node.
    Intranode,
    /// One member of each node.
    Internode,
    /// The id that a merge of an intercommunicator borrows until it has an id of its own.
    Merging,
}

impl Sub {
    const ALL: [Sub; 4] = [Sub::Whole, Sub::Intranode, Sub::Internode, Sub::Merging];
}

/// The widths of the fields of a context id, from the highest bit down: `V WWWWWW XXXXX L YY Z`.
///
/// | field | bits | meaning |
/// |---|---|---|
/// | V | 1 | 1 for an id of processes that met at run time, which no mask has |
/// | W | settable | the word of the mask |
/// | X | 5 | the bit in the word |
/// | L | 0 or 1 | 1 for the local communicator of an intercommunicator |
/// | Y | 2 | [`Sub`] |
/// | Z | 1 | 0 for point to point, 1 for collective operations |
///
/// W and X together are the *prefix*. A prefix is allocated and freed; the ids with bits set below
/// it are derived from it. These are the fields of MPICH (`src/mpi/comm/contextid.c`), whose widths
/// changed over time.
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
    /// 16 bits as in MPICH today: 2048 ids, of which 2 are predefined.
    pub const BITS_16: IdLayout = IdLayout { word_bits: 6, has_local: true, predefined: 2 };
    /// 16 bits as in MPICH in 2009, before the bit L: 4096 ids, of which 3 are predefined.
    pub const HISTORICAL: IdLayout = IdLayout { word_bits: 7, has_local: false, predefined: 3 };
    /// 20 bits: 32768 ids, of which 2 are predefined (MPICH's `HAVE_EXTENDED_CONTEXT_BITS`).
    pub const BITS_20: IdLayout = IdLayout { word_bits: 10, has_local: true, predefined: 2 };

    /// A layout with `1 << word_bits` words (`word_bits` from 1 to 12). The first `predefined` ids
    /// (2 to 31) are never allocated.
    ///
    /// # Errors
    /// A width is out of range.
    pub fn new(word_bits: u32, has_local: bool, predefined: u32) -> Result<Self, Error> {
        in_range("word_bits", word_bits.into(), 1, 12)?;
        in_range("predefined", predefined.into(), 2, 31)?;
        Ok(IdLayout { word_bits, has_local, predefined })
    }

    /// The number of bits of an id: the width of the context in a message's tag.
    pub const fn bits(&self) -> u32 {
        1 + self.word_bits + BIT_BITS + self.shift()
    }

    /// The number of words of the mask.
    pub const fn words(&self) -> usize {
        1 << self.word_bits
    }

    /// The number of ids, with the predefined ones.
    pub const fn ids(&self) -> u32 {
        1 << (self.word_bits + BIT_BITS)
    }

    /// The number of ids, from the first on, that are never allocated.
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

    /// Takes bits that another process has sent as an id.
    ///
    /// # Errors
    /// A bit above the width of this layout is set.
    pub fn parse(&self, bits: u32) -> Result<ContextId, Error> {
        if bits >> self.bits() == 0 {
            Ok(ContextId(bits))
        } else {
            Err(Error::NotAnId { bits, width: self.bits() })
        }
    }

    /// The position in the mask of an id, or of the id that it is derived from.
    pub fn prefix(&self, id: ContextId) -> u32 {
        (id.0 >> self.shift()) & (self.ids() - 1)
    }

    /// The context for collective operations of the communicator with this id.
    #[must_use]
    pub fn collective(&self, id: ContextId) -> ContextId {
        ContextId(id.0 | COLLECTIVE)
    }

    /// The id of a part of the communicator with this id.
    #[must_use]
    pub fn sub(&self, id: ContextId, sub: Sub) -> ContextId {
        ContextId(id.0 & !(((1 << SUB_BITS) - 1) << SUB_SHIFT) | (sub as u32) << SUB_SHIFT)
    }

    /// The part that an id belongs to.
    pub fn sub_of(&self, id: ContextId) -> Sub {
        Sub::ALL[(id.0 >> SUB_SHIFT & ((1 << SUB_BITS) - 1)) as usize]
    }

    /// The id of the local communicator of an intercommunicator.
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

    /// Whether this is the id of the local communicator of an intercommunicator.
    pub fn is_localcomm(&self, id: ContextId) -> bool {
        self.has_local && id.0 >> LOCAL_SHIFT & 1 == 1
    }

    /// An id for processes that meet at run time. No mask has it.
    ///
    /// # Errors
    /// `number` is not below `ids() - 1`.
    pub fn dynamic(&self, number: u32) -> Result<ContextId, Error> {
        let id = self.id(number).filter(|_| number < self.ids() - 1);
        let id = id.ok_or(Error::NotAnId { bits: number, width: self.word_bits + BIT_BITS })?;
        Ok(ContextId(id.0 | 1 << (self.bits() - 1)))
    }

    /// The last id of processes that met at run time. No communicator has it: heartbeats have it,
    /// and an id that is derived from it is the context of control messages.
    pub(crate) fn control(&self) -> ContextId {
        ContextId((self.ids() - 1) << self.shift() | 1 << (self.bits() - 1))
    }

    /// Whether this is an id of processes that met at run time.
    pub fn is_dynamic(&self, id: ContextId) -> bool {
        id.0 >> (self.bits() - 1) & 1 == 1
    }

    /// Whether no mask has this id, so that freeing it frees nothing.
    pub fn is_derived(&self, id: ContextId) -> bool {
        self.is_dynamic(id) || id.0 & ((1 << self.shift()) - 1) != 0
    }

    /// The bits in which the ids derived from one id differ.
    pub(crate) fn derived_bits(&self) -> u32 {
        (1 << self.shift()) - 1
    }

    /// The number of bits below the prefix.
    const fn shift(&self) -> u32 {
        LOCAL_SHIFT + self.has_local as u32
    }
}
