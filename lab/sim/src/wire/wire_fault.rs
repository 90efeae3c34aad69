//! Faults of the simulated wires, which show that the oracle notices them.

/// A fault that the wires apply to some of the messages with a tag. No device may behave like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFault {
    /// A message overtakes the one before it of the same sender.
    Reorder,
    /// A message is delivered twice.
    Duplicate,
    /// A message is lost.
    Drop,
    /// A byte of the payload is changed.
    Corrupt,
    /// The immediate data is changed.
    Immediate,
    /// The tag is changed.
    Tag,
    /// A READ doesn't copy the last byte.
    ShortRead,
    /// A READ writes one byte behind its range.
    LongRead,
    /// A READ that failed is reported as done.
    SilentRead,
}

impl WireFault {
    /// All faults.
    pub const ALL: [WireFault; 9] = [
        WireFault::Reorder,
        WireFault::Duplicate,
        WireFault::Drop,
        WireFault::Corrupt,
        WireFault::Immediate,
        WireFault::Tag,
        WireFault::ShortRead,
        WireFault::LongRead,
        WireFault::SilentRead,
    ];
}
