//! `--hw-tags`: where posted receives are matched.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use tagmatch::HwTags;
use tagmatch::model::{Knobs, ModelConfig};

use super::text::text_in_json;

/// Entries of the model's list by default: as many as ConnectX-5 and 6 have.
pub(crate) const SLOTS: u32 = 127;
/// The longest list of the model.
pub(crate) const SLOTS_MAX: u32 = 65535;

/// The matcher that was asked for. On the control channel and in JSON it is text as on the command
/// line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HwTagsArg {
    /// Software.
    #[default]
    Off,
    /// The device's NIC, if it can.
    Auto,
    /// A NIC in software behind the interface of verbs.
    Emu,
    /// The model NIC.
    Model { slots: u32 },
}

impl FromStr for HwTagsArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let slots = match text.split_once(':') {
            None if text == "off" => return Ok(HwTagsArg::Off),
            None if text == "auto" => return Ok(HwTagsArg::Auto),
            None if text == "emu" => return Ok(HwTagsArg::Emu),
            None if text == "model" => SLOTS,
            Some(("model", slots)) => slots
                .parse()
                .ok()
                .filter(|slots| (1..=SLOTS_MAX).contains(slots))
                .ok_or_else(|| format!("model:SLOTS has 1 to {SLOTS_MAX} slots"))?,
            _ => return Err("expected off, auto, emu, model or model:SLOTS".into()),
        };
        Ok(HwTagsArg::Model { slots })
    }
}

impl Display for HwTagsArg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            HwTagsArg::Off => f.write_str("off"),
            HwTagsArg::Auto => f.write_str("auto"),
            HwTagsArg::Emu => f.write_str("emu"),
            HwTagsArg::Model { slots } => write!(f, "model:{slots}"),
        }
    }
}

text_in_json!(HwTagsArg);

impl HwTagsArg {
    /// The configuration of a worker. With a seed the model NIC has random delays, without it none.
    pub(crate) fn config(self, seed: Option<u64>) -> HwTags {
        let slots = match self {
            HwTagsArg::Off => return HwTags::Off,
            HwTagsArg::Auto => return HwTags::Auto,
            HwTagsArg::Emu => return HwTags::Emu,
            HwTagsArg::Model { slots } => slots,
        };
        let knobs = seed.map(Knobs::random).unwrap_or_default();
        let seed = seed.unwrap_or_default();
        // As in UCX: an add and a delete of each entry, and two more.
        let operations = (2 * slots + 2).min(65536);
        HwTags::Model(
            ModelConfig::default().slots(slots).operations(operations).seed(seed).knobs(knobs),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_matches_is_named() {
        let model = |slots| Ok(HwTagsArg::Model { slots });
        assert_eq!("off".parse(), Ok(HwTagsArg::Off));
        assert_eq!("auto".parse(), Ok(HwTagsArg::Auto));
        assert_eq!("emu".parse(), Ok(HwTagsArg::Emu));
        assert_eq!(serde_json::to_string(&HwTagsArg::Emu).unwrap(), "\"emu\"");
        assert_eq!("model".parse(), model(127));
        assert_eq!("model:1".parse(), model(1));
        assert_eq!("model:65535".parse(), model(65535));
        assert_eq!(serde_json::to_string(&model(127).unwrap()).unwrap(), "\"model:127\"");
        assert_eq!(serde_json::from_str::<HwTagsArg>("\"off\"").unwrap(), HwTagsArg::Off);
        assert!(serde_json::from_str::<HwTagsArg>("\"model:0\"").is_err());
        for wrong in
            ["", "on", "model:", "model:0", "model:65536", "model:-1", "off:1", "Model", "emu:5"]
        {
            assert!(wrong.parse::<HwTagsArg>().is_err(), "{wrong}");
        }
    }
}
