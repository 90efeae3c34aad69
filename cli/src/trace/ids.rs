//! The one id space of messages, receives and matched probes.
//!
//! Which ids are defined, and whether a matched probe is used up, depends on the file alone and
//! not on what matches what: so it is settled while reading, and a replay cannot fail.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::error::{Instead, Kind, Mistake};
use super::line::RawOp;
use super::{Index, Op};

/// Ids defined so far. The map's hash is seeded, so no choice of ids makes it slow.
#[derive(Default)]
pub(super) struct Ids {
    known: HashMap<u64, Known>,
    names: Vec<u64>,
}

struct Known {
    index: Index,
    kind: Kind,
    used_up: bool,
}

impl Ids {
    /// Defines the id that `raw` defines, looks up the one it refers to.
    pub(super) fn resolve(&mut self, raw: RawOp) -> Result<Op, Mistake> {
        Ok(match raw {
            RawOp::Msg { id, envelope, len } => Op::Msg {
                id: self.define(id, Kind::Message)?,
                envelope,
                len,
            },
            RawOp::Recv { id, pattern, len } => Op::Recv {
                id: self.define(id, Kind::Receive)?,
                pattern,
                len,
            },
            RawOp::Mprobe { id, pattern } => Op::Mprobe {
                id: self.define(id, Kind::Mprobe)?,
                pattern,
            },
            RawOp::Probe { pattern } => Op::Probe { pattern },
            RawOp::Cancel { recv } => Op::Cancel {
                recv: self.receive(recv)?,
            },
            RawOp::Mrecv { mprobe, len } => Op::Mrecv {
                mprobe: self.use_up(mprobe)?,
                len,
            },
            RawOp::Mcancel { mprobe } => Op::Mcancel {
                mprobe: self.use_up(mprobe)?,
            },
        })
    }

    pub(super) fn into_names(self) -> Vec<u64> {
        self.names
    }

    fn define(&mut self, id: u64, kind: Kind) -> Result<Index, Mistake> {
        let index = u32::try_from(self.names.len()).map_err(|_| Mistake::TooManyIds)?;
        match self.known.entry(id) {
            Entry::Occupied(first) => Err(Mistake::Reused {
                id,
                kind: first.get().kind,
            }),
            Entry::Vacant(free) => {
                free.insert(Known {
                    index: Index(index),
                    kind,
                    used_up: false,
                });
                self.names.push(id);
                Ok(Index(index))
            }
        }
    }

    fn receive(&self, id: u64) -> Result<Index, Mistake> {
        let unknown = |found| Mistake::Unknown {
            id,
            found,
            wanted: "a recv",
        };
        match self.known.get(&id) {
            Some(known) if known.kind == Kind::Receive => Ok(known.index),
            Some(known) => Err(unknown(Instead::Other(known.kind))),
            None => Err(unknown(Instead::Nothing)),
        }
    }

    fn use_up(&mut self, id: u64) -> Result<Index, Mistake> {
        let unknown = |found| Mistake::Unknown {
            id,
            found,
            wanted: "an unused mprobe",
        };
        match self.known.get_mut(&id) {
            Some(known) if known.kind != Kind::Mprobe => Err(unknown(Instead::Other(known.kind))),
            Some(known) if known.used_up => Err(unknown(Instead::UsedUp)),
            Some(known) => {
                known.used_up = true;
                Ok(known.index)
            }
            None => Err(unknown(Instead::Nothing)),
        }
    }
}
