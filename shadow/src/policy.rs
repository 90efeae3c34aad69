//! Which receives are worth giving to a NIC, and may be: all that doesn't depend on other receives.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use tagmatch_soft::{Pattern, Tag, TagMask};

use crate::config::{ShadowConfig, Why};

/// Sources of which is known where their messages come up.
const SOURCES_MAX: usize = 1 << 16;

/// What the source of a receive's messages says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// All its messages come up through the list.
    Listed,
    /// Nothing came from this source yet.
    Unknown(u64),
    /// Its messages may come up elsewhere.
    Elsewhere,
}

#[derive(Clone, Debug)]
pub(crate) struct Policy {
    threshold: u64,
    read_max: u64,
    source_bits: u64,
    /// Whether messages come up elsewhere than through the list.
    others: bool,
    /// By source: whether all of its messages have come up through the list.
    listed: BTreeMap<u64, bool>,
}

impl Policy {
    pub(crate) fn new(config: &ShadowConfig) -> Self {
        let TagMask(source_bits) = config.source_bits;
        Policy {
            threshold: config.threshold,
            read_max: config.read_max,
            source_bits,
            others: false,
            listed: BTreeMap::new(),
        }
    }

    /// Why a receive can never go into the NIC, if so.
    pub(crate) fn refuses(&self, pattern: &Pattern, length: u64, usable: bool) -> Option<Why> {
        if length < self.threshold {
            Some(Why::TooSmall)
        } else if !usable || length > self.read_max {
            Some(Why::Memory)
        } else if pattern.source().is_some() {
            // The list knows tags only. See `Shadow::post` for receives whose tag has one sender.
            Some(Why::Source)
        } else {
            None
        }
    }

    /// Where the messages of a receive come up.
    pub(crate) fn source(&self, pattern: &Pattern) -> Source {
        if !self.others {
            return Source::Listed;
        }
        // Without bits for the source, no tag pins one.
        let pinned =
            self.source_bits != 0 && pattern.mask().0 & self.source_bits == self.source_bits;
        let source = pattern.tag().0 & self.source_bits;
        match self.listed.get(&source) {
            _ if !pinned => Source::Elsewhere,
            None => Source::Unknown(source),
            Some(true) => Source::Listed,
            Some(false) => Source::Elsewhere,
        }
    }

    pub(crate) fn other_device(&mut self) {
        self.others = true;
    }

    /// See [`Shadow::hash_state`](crate::Shadow::hash_state).
    pub(crate) fn hash_state(&self, state: &mut impl Hasher) {
        (self.others, &self.listed).hash(state);
    }

    /// Learns where a message of this tag came up. The source, if it is now known to be listed.
    pub(crate) fn seen(&mut self, tag: Tag, through_list: bool) -> Option<u64> {
        let source = tag.0 & self.source_bits;
        if let Some(listed) = self.listed.get_mut(&source) {
            *listed &= through_list;
            return None;
        }
        // Receives of sources beyond the bound stay in software.
        if self.listed.len() >= SOURCES_MAX {
            return None;
        }
        self.listed.insert(source, through_list);
        through_list.then_some(source)
    }
}
