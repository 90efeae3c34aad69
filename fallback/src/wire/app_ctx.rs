//! The bits of a tag-matching header that are for software.

use std::fmt;

/// The 32 bits that a NIC hands through: operation index and generation, and flags.
///
/// | bits | meaning |
/// |---|---|
/// | 31 | *ack wanted*: the receiver answers with FIN once the bytes are in its buffer |
/// | 30 | *companion*: of a rendezvous; a `Control::Companion` follows with what a NIC drops |
/// | 29 | *rendezvous*: a NIC that has matched does not say whether it was one |
/// | 20..29 | generation of the operation |
/// | 0..20 | index of the operation |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct AppCtx(pub u32);

impl AppCtx {
    /// Operations that can be under way at once.
    pub const OPERATIONS_MAX: u32 = 1 << 20;
    /// Generations before they repeat.
    pub const GENERATIONS: u32 = 1 << 9;

    const ACK_WANTED: u32 = 1 << 31;
    const COMPANION: u32 = 1 << 30;
    const RENDEZVOUS: u32 = 1 << 29;
    pub(super) const NOT_EAGER: u32 = Self::COMPANION | Self::RENDEZVOUS;
    pub(super) const FLAGS: u32 = Self::ACK_WANTED | Self::NOT_EAGER;

    /// Names an operation. The arguments are taken modulo their ranges.
    pub fn new(index: u32, generation: u32) -> Self {
        let generation = generation % Self::GENERATIONS;
        AppCtx((generation << 20) | (index % Self::OPERATIONS_MAX))
    }

    /// This operation with *ack wanted*.
    pub fn with_ack(self) -> Self {
        AppCtx(self.0 | Self::ACK_WANTED)
    }

    /// This operation with *rendezvous*, and *companion* if one follows.
    pub fn of_rendezvous(self, companion: bool) -> Self {
        let companion = if companion { Self::COMPANION } else { 0 };
        AppCtx(self.0 | Self::RENDEZVOUS | companion)
    }

    /// Whether a FIN is wanted for an eager message.
    pub fn ack_wanted(self) -> bool {
        self.0 & Self::ACK_WANTED != 0
    }

    /// Whether it is of a rendezvous.
    pub fn is_rendezvous(self) -> bool {
        self.0 & Self::RENDEZVOUS != 0
    }

    /// Whether a `Control::Companion` follows.
    pub fn has_companion(self) -> bool {
        self.0 & Self::COMPANION != 0
    }

    /// Without flags: what a FIN is compared by.
    pub fn operation(self) -> Self {
        AppCtx(self.0 & !Self::FLAGS)
    }

    /// Index of the operation.
    pub fn index(self) -> u32 {
        self.0 % Self::OPERATIONS_MAX
    }

    /// Generation of the operation.
    pub fn generation(self) -> u32 {
        (self.0 >> 20) & (Self::GENERATIONS - 1)
    }
}

impl fmt::Debug for AppCtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppCtx({self})")
    }
}

impl fmt::Display for AppCtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index(), self.generation())?;
        if self.ack_wanted() { f.write_str("+ack") } else { Ok(()) }
    }
}
