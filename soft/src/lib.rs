//! Tag matching in software.

#![forbid(unsafe_code)]

mod class;
mod hash;
mod index;
mod layout;
mod link;
mod posted;
mod slab;
mod stats;
mod tag;
mod unexpected;

pub use layout::{LayoutError, TagLayout};
pub use posted::PostedList;
pub use slab::{PostedHandle, StaleHandle, UnexpectedHandle};
pub use stats::MatchStats;
pub use tag::{Pattern, SourceId, Tag, TagMask};
pub use unexpected::UnexpectedList;
