//! The cases on the command line, in the grammar that every program reads:
//!
//! ```text
//! latency:SIZE:SOURCE:FILLERS:DEPTH:BATCH    SOURCE and FILLERS: exact, any
//! window:SIZE:WINDOW:BATCH
//! buffer:SIZE:1:BATCH                        out of Worker::buffer; of the floor: process_vm_readv
//! cold:SIZE:WINDOW:BATCH                    each message in another buffer, whose data are read afterwards;
//!                                            window 1: half round trips
//! posted:COUNT, unexpected:COUNT
//! collective:OPERATION:SIZE:BATCH
//! rma:OPERATION:SIZE:WINDOW:BATCH            put, get, fadd; put with window 1: half round trips
//! ranks:barrier:RANKS:BATCH
//! ```

use std::error::Error;
use std::str::FromStr;

use tagperf::shared::Operation;

/// An error ends the program with its text.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Round trips, windows or messages that are timed together.
    pub(crate) batch: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Half round trips past receives that never match.
    Latency { size: usize, any_source: bool, any_filler: bool, depth: usize },
    /// Messages one way, with an acknowledgement after each window.
    Window { size: usize, window: usize },
    /// Messages one way out of the worker's own memory, with an acknowledgement after each window.
    Buffer { size: usize, window: usize },
    /// As `Latency` (window 1) or `Window`; each message has another buffer, and its data are read
    /// after they have arrived.
    Cold { size: usize, window: usize },
    /// Barriers of a launched job with this many ranks.
    Ranks { ranks: u32 },
    /// Calls of a collective operation by both ranks.
    Collective { operation: Operation, size: usize },
    /// One-sided operations, each window of which ends before the next one begins; a window of one
    /// put is half a round trip.
    Rma { operation: RmaOperation, size: usize, window: usize },
    /// Memory of posted receives.
    Posted,
    /// Memory of unexpected messages.
    Unexpected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RmaOperation {
    Put,
    Get,
    FetchAdd,
}

impl RmaOperation {
    const ALL: [(&str, Self); 3] =
        [("put", Self::Put), ("get", Self::Get), ("fadd", Self::FetchAdd)];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, other)| *other == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let no_case = || format!("{name} is no case");
        let number = |text: &str| text.parse::<usize>().map_err(|_| no_case());
        let parts: Vec<_> = name.split(':').collect();
        let (kind, batch) = match parts[..] {
            ["latency", size, source, filler, depth, batch] => {
                let any_source = source == "any";
                let any_filler = filler == "any";
                let size = number(size)?;
                let depth = number(depth)?;
                (Kind::Latency { size, any_source, any_filler, depth }, batch)
            }
            ["window", size, window, batch] => {
                (Kind::Window { size: number(size)?, window: number(window)? }, batch)
            }
            ["buffer", size, window, batch] => {
                (Kind::Buffer { size: number(size)?, window: number(window)? }, batch)
            }
            ["cold", size, window, batch] => {
                (Kind::Cold { size: number(size)?, window: number(window)? }, batch)
            }
            ["ranks", "barrier", ranks, batch] => {
                (Kind::Ranks { ranks: ranks.parse().map_err(|_| no_case())? }, batch)
            }
            ["collective", operation, size, batch] => {
                let known = Operation::ALL.into_iter().find(|known| known.name() == operation);
                let operation = known.ok_or_else(no_case)?;
                (Kind::Collective { operation, size: number(size)? }, batch)
            }
            ["rma", operation, size, window, batch] => {
                let known = RmaOperation::ALL.iter().find(|(name, _)| *name == operation);
                let (_, operation) = *known.ok_or_else(no_case)?;
                (Kind::Rma { operation, size: number(size)?, window: number(window)? }, batch)
            }
            ["posted", batch] => (Kind::Posted, batch),
            ["unexpected", batch] => (Kind::Unexpected, batch),
            _ => return Err(no_case()),
        };
        Ok(Case { name: name.to_string(), kind, batch: number(batch)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_parsed() {
        let case: Case = "latency:8:any:exact:16:100".parse().unwrap();
        let kind = Kind::Latency { size: 8, any_source: true, any_filler: false, depth: 16 };
        assert_eq!((case.kind, case.batch), (kind, 100));
        let case: Case = "window:1024:64:3".parse().unwrap();
        assert_eq!((case.kind, case.batch), (Kind::Window { size: 1024, window: 64 }, 3));
        let case: Case = "buffer:1048576:1:5".parse().unwrap();
        assert_eq!((case.kind, case.batch), (Kind::Buffer { size: 1 << 20, window: 1 }, 5));
        let case: Case = "cold:4096:16:5".parse().unwrap();
        assert_eq!((case.kind, case.batch), (Kind::Cold { size: 4096, window: 16 }, 5));
        let case: Case = "ranks:barrier:16:2".parse().unwrap();
        assert_eq!((case.kind, case.batch), (Kind::Ranks { ranks: 16 }, 2));
        assert_eq!("posted:7".parse::<Case>().unwrap().batch, 7);
        let case: Case = "collective:bcast:8:10".parse().unwrap();
        let kind = Kind::Collective { operation: Operation::Bcast, size: 8 };
        assert_eq!((case.kind, case.batch), (kind, 10));
        let case: Case = "rma:fadd:8:1:10".parse().unwrap();
        let kind = Kind::Rma { operation: RmaOperation::FetchAdd, size: 8, window: 1 };
        assert_eq!((case.kind, case.batch), (kind, 10));
        for bad in [
            "rma:sub:8:1:10",
            "",
            "latency",
            "collective:gossip:8:10",
            "latency:8:any:exact:16",
            "window:-1:64:3",
            "posted:x",
            "post:1",
            "ranks:bcast:4:1",
        ] {
            assert!(bad.parse::<Case>().is_err(), "{bad}");
        }
    }
}
