//! Settings as text, for command lines.

use crate::knobs::{Chance, Delay, InTwo, Knobs, Wake};

/// Why a setting cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// There is no such setting.
    #[error("there is no {name}; there are {}", Knobs::NAMES.join(", "))]
    Name {
        /// The name that was given.
        name: String,
    },
    /// The setting has no such value.
    #[error("{name} is {right}, not {value:?}")]
    Value {
        /// The setting.
        name: String,
        /// The value that was given.
        value: String,
        /// The values that are right.
        right: &'static str,
    },
}

/// A value that can be read from text.
trait KnobValue: Sized {
    /// The values that are right, for an error.
    const RIGHT: &'static str;

    fn read(text: &str) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl KnobValue for $number {
            const RIGHT: &'static str = concat!("a number of ", stringify!($number));

            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

numbers!(u16 u32 u64);

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

macro_rules! knobs {
    ($($field:ident)*) => {
        impl Knobs {
            /// The names of all settings.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// Sets one setting from text: a number, `true`, a probability (`50%`), or for a delay
            /// a probability and the most ticks (`50%:20`). Its range is checked by
            /// [`ModelConfig::check`](crate::ModelConfig::check).
            ///
            /// # Errors
            /// [`KnobError`] if there is no such setting, or its value is of another kind.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
                fn read<T: KnobValue>(name: &str, value: &str) -> Result<T, KnobError> {
                    let (name, right) = (name.to_owned(), T::RIGHT);
                    T::read(value).ok_or(KnobError::Value { name, value: value.to_owned(), right })
                }
                match name {
                    $(stringify!($field) => self.$field = read(name, value)?,)*
                    _ => return Err(KnobError::Name { name: name.to_owned() }),
                }
                // A field that is missing above does not compile here.
                let Knobs { $($field: _),* } = self;
                Ok(())
            }
        }
    };
}

knobs! {
    operation answer deletes_in_order receive data read fin wake first_count sync_limit
    spurious_sync_request missing_sync_request packet_bytes eager_in_two matches_without_buffers
    data_before_fin counts_at_answer reads_nothing incomplete_in_two short_fin buffers_min
    read_failure queue_pair_error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_setting_is_read() {
        let mut knobs = Knobs::default();
        for (name, value) in [
            ("read", "50%:20"),
            ("short_fin", "100%"),
            ("deletes_in_order", "true"),
            ("wake", "sometimes"),
            ("eager_in_two", "always"),
            ("first_count", "65535"),
            ("packet_bytes", "256"),
            ("buffers_min", "1"),
        ] {
            knobs.set(name, value).unwrap();
        }
        let expected = Knobs {
            read: Delay { chance: Chance::percent(50), ticks_max: 20 },
            short_fin: Chance::ALWAYS,
            deletes_in_order: true,
            wake: Wake::Sometimes,
            eager_in_two: InTwo::Always,
            first_count: 65535,
            packet_bytes: 256,
            buffers_min: 1,
            ..Knobs::default()
        };
        assert_eq!(knobs, expected);
        for (text, wake) in [("always", Wake::Always), ("never", Wake::Never)] {
            knobs.set("wake", text).unwrap();
            assert_eq!(knobs.wake, wake);
        }
        for (text, in_two) in [("packet", InTwo::BeyondAPacket), ("never", InTwo::Never)] {
            knobs.set("eager_in_two", text).unwrap();
            assert_eq!(knobs.eager_in_two, in_two);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let mut knobs = Knobs::default();
        let mut wrong = |name, value| knobs.set(name, value).unwrap_err().to_string();
        assert!(wrong("speed", "1").starts_with("there is no speed; there are operation, answer"));
        assert_eq!(wrong("wake", "1"), "wake is always, never or sometimes, not \"1\"");
        for (name, value) in [
            ("read", "50%"),
            ("read", "50%:x"),
            ("read", "101%:1"),
            ("short_fin", "101%"),
            ("short_fin", "50"),
            ("first_count", "65536"),
            ("deletes_in_order", "1"),
            ("eager_in_two", "two"),
        ] {
            assert!(wrong(name, value).starts_with(&format!("{name} is ")), "{name}={value}");
        }
        assert_eq!(knobs, Knobs::default());
    }
}
