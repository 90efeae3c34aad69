//! The settings that a user gives without a change of the program, by the environment: one table.
//! `tagperf --verbs` takes the same settings, and `docs/settings.md` lists them.
//!
//! A field of [`VerbsConfig`] that the program sets counts more than the environment.

use std::env;
use std::ffi::OsString;

use tagmatch_device::DeviceError;

use super::config::VerbsConfig;

/// A setting of [`VerbsConfig`] that the environment can give.
pub struct Setting {
    /// The field of [`VerbsConfig`], and the name for `tagperf --verbs NAME=VALUE`.
    pub name: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// What the value counts; empty if it is a name or a number without a unit.
    pub unit: &'static str,
    /// The values that are allowed.
    pub range: &'static str,
    /// The value if nobody gives one.
    pub default: &'static str,
    /// What the setting does.
    pub meaning: &'static str,
    value: SettingField,
}

/// A field of [`VerbsConfig`].
enum SettingField {
    Text(fn(&mut VerbsConfig) -> &mut Option<String>),
    Number {
        is_allowed: fn(u64) -> bool,
        get: fn(&VerbsConfig) -> Option<u64>,
        set: fn(&mut VerbsConfig, u64),
    },
}

/// The value of a numeric field.
macro_rules! number {
    ($field:ident, $allowed:pat) => {
        SettingField::Number {
            is_allowed: |number| matches!(number, $allowed),
            get: |config| config.$field.map(Into::into),
            // Only values that are allowed are set, and each of them fits.
            set: |config, number| config.$field = number.try_into().ok(),
        }
    };
}

/// The variable of the partition key, which the error of two workers in different partitions names.
pub(super) const PARTITION_KEY: &str = "TAGMATCH_VERBS_PARTITION_KEY";

/// All settings that the environment can give.
pub static SETTINGS: [Setting; 10] = [
    Setting {
        name: "device",
        variable: "TAGMATCH_VERBS_DEVICE",
        unit: "",
        range: "a name that ibv_devices lists",
        default: "a device with an active port",
        meaning: "the RDMA device",
        value: SettingField::Text(|config| &mut config.device),
    },
    Setting {
        name: "port",
        variable: "TAGMATCH_VERBS_PORT",
        unit: "",
        range: "a number from 1 to 255",
        default: "an active port",
        meaning: "the port of the device",
        value: number!(port, 1..=255),
    },
    Setting {
        name: "gid_index",
        variable: "TAGMATCH_VERBS_GID_INDEX",
        unit: "",
        range: "a number from 0 to 255",
        default: "on RoCE the best by version and address; 0 on InfiniBand",
        meaning: "the row of the port's GID table; on RoCE it chooses version, address and VLAN",
        value: number!(gid_index, 0..=255),
    },
    Setting {
        name: "partition_key",
        variable: PARTITION_KEY,
        unit: "",
        range: "a number from 0x1 to 0xffff",
        default: "the first of the port's keys with full membership",
        meaning: "the partition of the InfiniBand subnet; the highest bit of a key, membership, \
                  doesn't count",
        // Number 0 of both kinds of membership is no partition (InfiniBand 10.9.1).
        value: number!(partition_key, 1..=0x7fff | 0x8001..=0xffff),
    },
    Setting {
        name: "service_level",
        variable: "TAGMATCH_VERBS_SERVICE_LEVEL",
        unit: "",
        range: "a number from 0 to 15",
        default: "0",
        meaning: "the service level; on RoCE the lower three bits are the VLAN's priority",
        value: number!(service_level, 0..=15),
    },
    Setting {
        name: "traffic_class",
        variable: "TAGMATCH_VERBS_TRAFFIC_CLASS",
        unit: "",
        range: "a number from 0 to 255",
        default: "0",
        meaning: "the traffic class; on RoCE the byte of a packet with its DSCP (the upper six \
                  bits) and ECN",
        value: number!(traffic_class, 0..=255),
    },
    Setting {
        name: "ack_timeout",
        variable: "TAGMATCH_VERBS_ACK_TIMEOUT",
        unit: "exponent n of 4.096 µs × 2^n",
        range: "a number from 1 to 31",
        default: "18 (1.07 s)",
        meaning: "the time until a packet that isn't acknowledged is sent again",
        value: number!(ack_timeout, 1..=31),
    },
    Setting {
        name: "retry_count",
        variable: "TAGMATCH_VERBS_RETRY_COUNT",
        unit: "times",
        range: "a number from 0 to 7",
        default: "7 (6 on soft-RoCE, where 7 is for ever)",
        meaning: "how many times such a packet is sent again before the peer counts as lost",
        value: number!(retry_count, 0..=7),
    },
    Setting {
        name: "inline_max",
        variable: "TAGMATCH_VERBS_INLINE_MAX",
        unit: "bytes",
        range: "a number from 0 to 1024",
        default: "188",
        meaning: "the longest message that a work request carries itself; less where the device \
                  allows less",
        value: number!(inline_max, 0..=1024),
    },
    Setting {
        name: "mtu",
        variable: "TAGMATCH_VERBS_MTU",
        unit: "bytes",
        range: "256, 512, 1024, 2048 or 4096",
        default: "the port's",
        meaning: "the longest packet; less where this port or the peer's allows less",
        value: number!(mtu, 256 | 512 | 1024 | 2048 | 4096),
    },
];

impl Setting {
    /// Sets the field from text. A number is decimal, or hexadecimal after `0x`. `given_as` is the
    /// setting's name where the text comes from, for the error.
    ///
    /// # Errors
    /// [`DeviceError::InvalidValue`] if the text is no value of the setting.
    pub fn set(
        &self,
        config: &mut VerbsConfig,
        text: &str,
        given_as: &'static str,
    ) -> Result<(), DeviceError> {
        let invalid = || DeviceError::InvalidValue {
            setting: given_as,
            value: text.to_owned(),
            expected: self.range,
        };
        match self.value {
            SettingField::Text(field) => {
                let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
                *field(config) = Some(is_name.then(|| text.to_owned()).ok_or_else(invalid)?);
            }
            SettingField::Number { is_allowed, set, .. } => {
                let number = parse_number(text).filter(|number| is_allowed(*number));
                set(config, number.ok_or_else(invalid)?);
            }
        }
        Ok(())
    }

    /// Checks the field, which a program may have set to anything.
    fn check(&self, config: &VerbsConfig) -> Result<(), DeviceError> {
        match self.value {
            SettingField::Number { is_allowed, get, .. } => match get(config) {
                Some(value) if !is_allowed(value) => {
                    let setting = self.name;
                    let range = self.range;
                    Err(DeviceError::BadSetting { setting, value, range })
                }
                _ => Ok(()),
            },
            SettingField::Text(_) => Ok(()),
        }
    }

    /// The value of the field, if there is one.
    pub fn value(&self, config: &VerbsConfig) -> Option<String> {
        match self.value {
            SettingField::Text(field) => field(&mut config.clone()).clone(),
            SettingField::Number { get, .. } => get(config).map(|number| number.to_string()),
        }
    }
}

fn parse_number(text: &str) -> Option<u64> {
    let (digits, base) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // A sign is no digit.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u64::from_str_radix(digits, base).ok().filter(|_| is_number)
}

impl VerbsConfig {
    /// These settings, with those of the environment where a field is `None`. `get` gives the value
    /// of a variable; an empty value counts as none. A device does this itself when it is created;
    /// a program that wants to know of a wrong value earlier can do it before.
    ///
    /// # Errors
    /// [`DeviceError::InvalidValue`] names the variable whose value is wrong.
    pub fn with_environment(
        mut self,
        get: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, DeviceError> {
        for setting in &SETTINGS {
            if setting.value(&self).is_none()
                && let Some(text) = get(setting.variable).filter(|text| !text.is_empty())
            {
                setting.set(&mut self, &text.to_string_lossy(), setting.variable)?;
            }
        }
        Ok(self)
    }
}

/// The settings of a device: the program's, and those of the environment, all of them checked.
///
/// # Errors
/// A setting is out of its range, or a variable is wrong.
pub(super) fn resolve(config: VerbsConfig) -> Result<VerbsConfig, DeviceError> {
    let config = config.with_environment(|name| env::var_os(name))?;
    SETTINGS.iter().try_for_each(|setting| setting.check(&config))?;
    config.check().map(|()| config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<VerbsConfig, String> {
        let config = VerbsConfig::default().with_environment(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.into())
        });
        config.map_err(|error| error.to_string())
    }

    fn setting(name: &str) -> &'static Setting {
        SETTINGS.iter().find(|setting| setting.name == name).unwrap()
    }

    #[test]
    fn each_setting_has_a_variable_that_sets_it_and_nothing_else() {
        for setting in &SETTINGS {
            let name = setting.name.to_uppercase();
            assert_eq!(setting.variable, format!("TAGMATCH_VERBS_{name}"));
            let text = if setting.name == "mtu" { "1024" } else { "7" };
            let config = read(&[(setting.variable, text)]).unwrap();
            for other in &SETTINGS {
                let value = (other.name == setting.name).then(|| text.to_owned());
                assert_eq!(other.value(&config), value, "{} by {name}", other.name);
            }
            let config = read(&[(setting.variable, "")]).unwrap();
            assert_eq!(setting.value(&config), None, "an empty variable gives none");
        }
    }

    #[test]
    fn the_program_counts_more_than_the_environment() {
        let program = VerbsConfig { gid_index: Some(1), ..VerbsConfig::default() };
        let of_environment = |name: &str| (name == "TAGMATCH_VERBS_GID_INDEX").then(|| "3".into());
        assert_eq!(program.with_environment(of_environment).unwrap().gid_index, Some(1));
    }

    #[test]
    fn numbers_may_be_hexadecimal() {
        let config = read(&[(PARTITION_KEY, "0x8001"), ("TAGMATCH_VERBS_TRAFFIC_CLASS", "106")]);
        let config = config.unwrap();
        assert_eq!((config.partition_key, config.traffic_class), (Some(0x8001), Some(106)));
    }

    /// The ends of each range are as its text says, and wrong text is named.
    #[test]
    fn a_wrong_value_is_named_with_what_is_expected() {
        for setting in SETTINGS.iter().filter(|setting| setting.name != "device") {
            let words = setting.range.split([' ', ',']).filter_map(parse_number);
            let numbers: Vec<u64> = words.collect();
            let least = numbers[0];
            let most = numbers[numbers.len() - 1];
            let set = |number: u64| {
                let mut config = VerbsConfig::default();
                setting.set(&mut config, &number.to_string(), setting.name)
            };
            assert!(set(least).is_ok() && set(most).is_ok() && set(most + 1).is_err());
            assert!(least == 0 || set(least - 1).is_err(), "{}", setting.name);
            for text in ["x", "-1", "+1", "1 ", "0x", "0x-1", "99999999999999999999"] {
                let error = read(&[(setting.variable, text)]).unwrap_err();
                let expected = format!("expected {}", setting.range);
                assert!(error.contains(setting.variable) && error.ends_with(&expected), "{error}");
            }
        }
        for name in ["a b", "\u{1b}[2J"] {
            let error = read(&[("TAGMATCH_VERBS_DEVICE", name)]).unwrap_err();
            assert!(
                error.starts_with("invalid TAGMATCH_VERBS_DEVICE") && !error.contains('\u{1b}')
            );
        }
        for key in ["0", "0x8000"] {
            assert!(read(&[(PARTITION_KEY, key)]).is_err(), "{key} is no partition");
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        let wrong = [
            VerbsConfig { port: Some(0), ..VerbsConfig::default() },
            VerbsConfig { ack_timeout: Some(0), ..VerbsConfig::default() },
            VerbsConfig { service_level: Some(16), ..VerbsConfig::default() },
            VerbsConfig { mtu: Some(1000), ..VerbsConfig::default() },
            VerbsConfig { queue_depth: 15, ..VerbsConfig::default() },
        ];
        let names = wrong.map(|config| match resolve(config) {
            Err(DeviceError::BadSetting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        });
        assert_eq!(names, ["port", "ack_timeout", "service_level", "mtu", "queue_depth"]);
    }

    #[test]
    fn the_table_says_the_defaults() {
        let config = VerbsConfig::default();
        for (name, value) in [
            ("service_level", config.service_level_or_default().into()),
            ("traffic_class", config.traffic_class_or_default().into()),
            ("ack_timeout", config.ack_timeout_or_default().into()),
            ("retry_count", config.retry_count_or_default(false).into()),
            ("inline_max", config.inline_max_or_default()),
        ] {
            let first = setting(name).default.split(' ').next().unwrap();
            assert_eq!(first, value.to_string(), "{name}");
        }
        assert!(
            setting("retry_count")
                .default
                .contains(&config.retry_count_or_default(true).to_string())
        );
    }
}
