//! Wires that break their promises, to see that the oracle notices.

/// What a broken wire does to messages with a tag, now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Lets a message pass the one before it of the same sender.
    Reorder,
    /// Delivers a message twice.
    Duplicate,
    /// Loses a message.
    Drop,
    /// Changes a byte of the payload.
    Corrupt,
    /// Changes the immediate data.
    Immediate,
    /// Changes the tag.
    Tag,
    /// A READ that brings all bytes but the last.
    ShortRead,
    /// A READ that writes behind what it was asked for.
    LongRead,
    /// A READ that fails and says that it did not.
    SilentRead,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 9] = [
        Sabotage::Reorder,
        Sabotage::Duplicate,
        Sabotage::Drop,
        Sabotage::Corrupt,
        Sabotage::Immediate,
        Sabotage::Tag,
        Sabotage::ShortRead,
        Sabotage::LongRead,
        Sabotage::SilentRead,
    ];
}
