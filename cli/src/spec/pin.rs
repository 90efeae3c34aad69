//! The CPU that each side runs on.

use std::str::FromStr;

use tagmatch_results::show::invalid;

/// A CPU for each side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pin {
    pub(crate) here: u32,
    pub(crate) there: u32,
}

/// Where the CPUs come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PinChoice {
    /// The scheduler chooses.
    Free,
    /// The user has chosen.
    Wanted(Pin),
    /// Chosen here, since the user did not say.
    Ours(Pin),
}

impl PinChoice {
    pub(crate) fn pin(self) -> Option<Pin> {
        match self {
            PinChoice::Free => None,
            PinChoice::Wanted(pin) | PinChoice::Ours(pin) => Some(pin),
        }
    }
}

impl FromStr for PinChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(PinChoice::Free) } else { text.parse().map(PinChoice::Wanted) }
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || invalid("pair of CPUs", text, "two numbers such as 0,1, or none");
        let (here, there) = text.split_once(',').ok_or_else(wrong)?;
        let cpu = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        Ok(Self { here: cpu(here)?, there: cpu(there)? })
    }
}
