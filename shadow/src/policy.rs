//! Which receives are worth adding to the NIC's list, as far as that doesn't depend on other
//! receives.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use tagmatch_soft::{Pattern, Tag, TagMask};

use crate::config::{ShadowConfig, Why};

/// The most sources that are remembered.
const SOURCES_MAX: usize = 1 << 16;

/// How the messages of a receive's source arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceRoute {
    /// All messages of the source arrive through the list.
    Listed,
    /// No message of this source has arrived yet.
    Unknown(u64),
    /// Messages of the source may arrive on another way.
    Elsewhere,
}

#[derive(Clone, Debug)]
pub(crate) struct Policy {
    config: ShadowConfig,
    /// Whether messages may arrive on other ways than through the list.
    others: bool,
    /// For each known source, whether all of its messages have arrived through the list.
    listed: BTreeMap<u64, bool>,
}

impl Policy {
    pub(crate) fn new(config: &ShadowConfig) -> Self {
        Policy { config: *config, others: false, listed: BTreeMap::new() }
    }

    /// Why a receive can never be added to the list; `None` if it can.
    pub(crate) fn refuses(&self, pattern: &Pattern, length: u64, usable: bool) -> Option<Why> {
        if length < self.config.threshold {
            Some(Why::TooSmall)
        } else if !usable || length > self.config.read_max {
            Some(Why::Memory)
        } else if pattern.source().is_some() {
            // The NIC compares tags only. `Shadow::post` tells how to post a receive whose tag has
            // one sender.
            Some(Why::Source)
        } else {
            None
        }
    }

    /// How the messages of a receive's source arrive.
    pub(crate) fn source(&self, pattern: &Pattern) -> SourceRoute {
        if !self.others {
            return SourceRoute::Listed;
        }
        // If tags don't name their sender, no receive is limited to one.
        let TagMask(bits) = self.config.source_bits;
        let pinned = bits != 0 && pattern.mask().0 & bits == bits;
        let source = pattern.tag().0 & bits;
        match self.listed.get(&source) {
            _ if !pinned => SourceRoute::Elsewhere,
            None => SourceRoute::Unknown(source),
            Some(true) => SourceRoute::Listed,
            Some(false) => SourceRoute::Elsewhere,
        }
    }

    pub(crate) fn other_device(&mut self) {
        self.others = true;
    }

    /// See [`Shadow::hash_state`](crate::Shadow::hash_state).
    pub(crate) fn hash_state(&self, state: &mut impl Hasher) {
        (self.others, &self.listed).hash(state);
    }

    /// Learns how a message of this tag arrived. Returns the source if it is new and listed.
    pub(crate) fn seen(&mut self, tag: Tag, through_list: bool) -> Option<u64> {
        let source = tag.0 & self.config.source_bits.0;
        if let Some(listed) = self.listed.get_mut(&source) {
            *listed &= through_list;
            return None;
        }
        // Receives of sources that are not remembered stay in software.
        if self.listed.len() >= SOURCES_MAX {
            return None;
        }
        self.listed.insert(source, through_list);
        through_list.then_some(source)
    }
}
