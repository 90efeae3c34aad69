//! Values of settings, and how they are read from text.

use crate::random::Random;

/// A probability, in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(pub u32);

impl Chance {
    /// Never.
    pub const NEVER: Chance = Chance(0);
    /// Always.
    pub const ALWAYS: Chance = Chance(1_000_000);

    /// A probability in percent.
    pub const fn percent(percent: u32) -> Self {
        Chance(percent * 10_000)
    }

    pub(crate) fn draw(self, random: &mut Random) -> bool {
        self.0 > 0 && random.below(Self::ALWAYS.0) < self.0
    }
}

/// A random delay, in ticks (`Nic::tick`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// The probability of a delay.
    pub chance: Chance,
    /// The longest delay; each length from 1 to this is equally likely.
    pub ticks_max: u32,
}

impl Delay {
    /// Never a delay.
    pub const NONE: Delay = Delay { chance: Chance::NEVER, ticks_max: 0 };

    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        if self.ticks_max == 0 || !self.chance.draw(random) {
            return 0;
        }
        1 + u64::from(random.below(self.ticks_max))
    }
}

/// What an operation does to inactive entries when its count agrees with the NIC's.
///
/// `Documentation/tag_matching.md` says that matching of new tags is disabled "until SW and HW
/// synchronize" and then "resumes normally"; no public source shows what hardware does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// They become active.
    #[default]
    Always,
    /// They stay inactive: an entry that missed its phase never matches.
    Never,
    /// They become active or not, all alike, as the seed chooses each time.
    Sometimes,
}

/// Which matched eager messages have two completions: one of the match, and one of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InTwo {
    /// Messages that are longer than a packet.
    #[default]
    BeyondAPacket,
    /// All messages.
    Always,
    /// No message.
    Never,
}

/// A value that can be read from text.
pub(crate) trait KnobValue: Sized {
    /// The values that are right, for an error.
    const RIGHT: &'static str;

    fn read(text: &str) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty: $right:literal,)*) => {$(
        impl KnobValue for $number {
            const RIGHT: &'static str = $right;

            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

numbers! {
    u16: "a number from 0 to 65535",
    u32: "a number below 2^32",
    u64: "a number below 2^64",
}

impl KnobValue for bool {
    const RIGHT: &'static str = "true or false";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl KnobValue for Chance {
    const RIGHT: &'static str = "a probability: 0% to 100%";

    fn read(text: &str) -> Option<Self> {
        let percent: u32 = text.strip_suffix('%')?.parse().ok()?;
        (percent <= 100).then_some(Chance::percent(percent))
    }
}

impl KnobValue for Delay {
    const RIGHT: &'static str = "a probability and the most ticks, as 50%:20";

    fn read(text: &str) -> Option<Self> {
        let (chance, ticks) = text.split_once(':')?;
        Some(Delay { chance: Chance::read(chance)?, ticks_max: ticks.parse().ok()? })
    }
}

impl KnobValue for Wake {
    const RIGHT: &'static str = "always, never or sometimes";

    fn read(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Wake::Always),
            "never" => Some(Wake::Never),
            "sometimes" => Some(Wake::Sometimes),
            _ => None,
        }
    }
}

impl KnobValue for InTwo {
    const RIGHT: &'static str = "packet, always or never";

    fn read(text: &str) -> Option<Self> {
        match text {
            "packet" => Some(InTwo::BeyondAPacket),
            "always" => Some(InTwo::Always),
            "never" => Some(InTwo::Never),
            _ => None,
        }
    }
}
