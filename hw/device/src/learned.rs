//! The choices that a device has learned for the messages to and from a peer.

use std::fmt;
use std::ops::RangeInclusive;

/// A choice between two ways to carry messages, which a device has learned for one peer and one
/// class of lengths.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LearnedChoice {
    /// Whether it is about messages to the peer or from it.
    pub direction: LearnedDirection,
    /// The lengths of the class' messages, in bytes.
    pub lengths: RangeInclusive<usize>,
    /// Both ways.
    pub ways: [LearnedWay; 2],
    /// Which of `ways` is preferred: all messages take it but those of a trial.
    pub preferred: usize,
    /// How often a time was taken, of one or more messages each.
    pub samples: u64,
    /// How often the preferred way has changed.
    pub changes: u64,
}

/// One of the two ways of a [`LearnedChoice`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LearnedWay {
    /// The way, in a few words.
    pub name: &'static str,
    /// Its time when it was last measured, in nanoseconds a byte; `None` if it never was.
    pub ns_per_byte: Option<f64>,
}

/// Whether messages go to the peer or come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnedDirection {
    /// To the peer.
    Sent,
    /// From the peer.
    Received,
}

impl LearnedChoice {
    /// A choice between two ways of these names of which nothing was learned yet.
    pub fn new(
        direction: LearnedDirection,
        lengths: RangeInclusive<usize>,
        names: [&'static str; 2],
    ) -> Self {
        let ways = names.map(|name| LearnedWay { name, ns_per_byte: None });
        LearnedChoice { direction, lengths, ways, preferred: 0, samples: 0, changes: 0 }
    }
}

impl fmt::Display for LearnedDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LearnedDirection::Sent => "sent",
            LearnedDirection::Received => "received",
        })
    }
}
