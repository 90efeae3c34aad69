//! The ids of a trace: messages, receives and matched probes share one id space.
//!
//! Whether an id is defined, and whether a matched probe has been received or dropped, does not
//! depend on what matches what. So all of it is checked while the file is read.

use std::collections::HashMap;

use crate::error::{IdKind, Mistake};
use crate::format::Id;

/// The matching lists hold no more entries than this. A trace with as many ids is a file of 20 GB.
const IDS_MAX: u32 = 1 << 30;

/// The ids that are defined so far.
#[derive(Default)]
pub(super) struct Ids {
    known: Known,
    /// The file's own ids, and the lengths of what they name.
    pub(super) names: Vec<u64>,
    pub(super) lens: Vec<u64>,
}

/// The definition of each id. Most recorders count their ids up, so ids that are small, given how
/// many there are, stand in an array. All others are in a map, whose hash is seeded: no choice of
/// ids makes it slow.
#[derive(Default)]
struct Known {
    small: Vec<Option<Definition>>,
    others: HashMap<u64, Definition>,
}

#[derive(Clone, Copy)]
struct Definition {
    id: Id,
    kind: IdKind,
    /// Whether the message of a matched probe has been received or dropped.
    used_up: bool,
}

impl Known {
    fn find(&mut self, id: u64) -> Option<&mut Definition> {
        match usize::try_from(id).ok().and_then(|id| self.small.get_mut(id)) {
            // The array may have grown past an id that went into the map before.
            Some(Some(known)) => Some(known),
            _ if self.others.is_empty() => None,
            _ => self.others.get_mut(&id),
        }
    }

    /// Adds an id that is not known, as the next one after `defined` others.
    fn add(&mut self, id: u64, known: Definition, defined: usize) {
        match usize::try_from(id) {
            Ok(id) if id < 4 * (defined + 256) => {
                if id >= self.small.len() {
                    self.small.resize(id + 1, None);
                }
                self.small[id] = Some(known);
            }
            _ => drop(self.others.insert(id, known)),
        }
    }
}

impl Ids {
    /// A new id, of something with a length in bytes.
    pub(super) fn define(&mut self, id: u64, kind: IdKind, len: u64) -> Result<Id, Box<Mistake>> {
        let defined = self.names.len();
        if let Some(first) = self.known.find(id) {
            return Err(Box::new(Mistake::Reused { id, kind: first.kind }));
        }
        let next = self.next(len).ok_or(Mistake::TooManyIds)?;
        self.known.add(id, Definition { id: next, kind, used_up: false }, defined);
        self.names.push(id);
        Ok(next)
    }

    /// A new id, of something that the file has no name for. `None`: there are too many.
    pub(super) fn next(&mut self, len: u64) -> Option<Id> {
        let next = u32::try_from(self.lens.len()).ok().filter(|next| *next < IDS_MAX)?;
        self.lens.push(len);
        Some(Id(next))
    }

    /// The id of a receive, or of a matched probe, which is used up by this.
    pub(super) fn refer(&mut self, id: u64, kind: IdKind) -> Result<Id, Box<Mistake>> {
        let found = match self.known.find(id) {
            None => "unknown".to_owned(),
            Some(known) if known.kind != kind => format!("a {}", known.kind),
            Some(known) if known.used_up => "used up by an mrecv or mcancel".to_owned(),
            Some(known) => {
                known.used_up = kind == IdKind::Mprobe;
                return Ok(known.id);
            }
        };
        let wanted = if kind == IdKind::Mprobe { "an unused mprobe" } else { "a recv" };
        Err(Box::new(Mistake::Unknown { id, found, wanted }))
    }
}
