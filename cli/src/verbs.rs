//! `--verbs NAME=VALUE`: settings of RDMA for the workers of this side.

use std::str::FromStr;
use std::sync::OnceLock;

use tagmatch::verbs::{SETTINGS, Setting, VerbsConfig};

/// One setting, of which the value was checked.
#[derive(Clone)]
pub(crate) struct VerbsArg {
    setting: &'static Setting,
    value: String,
}

/// The settings of the command line.
static GIVEN: OnceLock<Vec<VerbsArg>> = OnceLock::new();

impl FromStr for VerbsArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let names = || SETTINGS.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", ");
        let setting = SETTINGS.iter().find(|setting| setting.name == name);
        let setting =
            setting.ok_or_else(|| format!("expected NAME=VALUE, NAME one of {}", names()))?;
        let parsed = setting.set(&mut VerbsConfig::default(), value, setting.name);
        parsed.map_err(|error| error.to_string())?;
        Ok(VerbsArg { setting, value: value.to_owned() })
    }
}

impl std::fmt::Debug for VerbsArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.setting.name, self.value)
    }
}

/// Takes the settings of the command line. To be called before [`config`].
pub(crate) fn adopt(given: Vec<VerbsArg>) {
    let _ = GIVEN.set(given);
}

fn given() -> &'static [VerbsArg] {
    GIVEN.get().map_or(&[], Vec::as_slice)
}

/// The settings of verbs, without those that the environment gives.
pub(crate) fn config() -> VerbsConfig {
    let mut config = VerbsConfig::default();
    for VerbsArg { setting, value } in given() {
        // The value was checked when it was read.
        let _ = setting.set(&mut config, value, setting.name);
    }
    config
}

/// The variables by which a process that this one starts has the same settings.
pub(crate) fn for_child() -> impl Iterator<Item = (&'static str, &'static str)> {
    given().iter().map(|VerbsArg { setting, value }| (setting.variable, value.as_str()))
}

/// Name, value and origin of each setting, for people. `values`: those that were given.
pub(crate) fn lines(values: &[(&'static str, String)]) -> Vec<String> {
    let line = |setting: &Setting| {
        let value = values.iter().find(|(name, _)| *name == setting.name);
        let is_option = given().iter().any(|given| given.setting.name == setting.name);
        let (value, by) = match value {
            None => (setting.default, String::new()),
            Some((_, value)) if is_option => (&**value, " by --verbs".to_owned()),
            Some((_, value)) if std::env::var_os(setting.variable).is_some() => {
                (&**value, format!(" by {}", setting.variable))
            }
            Some((_, value)) => (&**value, " by --device".to_owned()),
        };
        format!("  {:<13} {value}{by}", setting.name)
    };
    let head = "settings: --verbs NAME=VALUE, or variables such as TAGMATCH_VERBS_GID_INDEX";
    std::iter::once(head.to_owned()).chain(SETTINGS.iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_named_and_a_wrong_one_is_refused_with_what_is_expected() {
        for text in ["gid_index=3", "device=mlx5_0", "partition_key=0x8001", "mtu=4096"] {
            assert_eq!(format!("{:?}", text.parse::<VerbsArg>().unwrap()), text);
        }
        let wrong = |text: &str| text.parse::<VerbsArg>().unwrap_err();
        for text in ["gid", "gid=3", "=3", ""] {
            let error = wrong(text);
            assert!(error.starts_with("expected NAME=VALUE") && error.contains("gid_index"));
        }
        for text in ["gid_index", "gid_index=", "gid_index=256", "gid_index=x"] {
            assert!(wrong(text).ends_with("expected a number from 0 to 255"), "{text}");
        }
    }

    #[test]
    fn each_setting_is_shown_with_its_value_and_where_it_comes_from() {
        let shown = lines(&[("gid_index", "3".to_owned())]);
        assert_eq!(shown.len(), SETTINGS.len() + 1);
        let find = |name: &str| shown.iter().find(|line| line.trim().starts_with(name)).unwrap();
        assert!(find("gid_index").starts_with("  gid_index     3 by "));
        assert_eq!(find("ack_timeout"), "  ack_timeout   18 (1.07 s)");
    }
}
