//! What a program asks for, and what it gets: fi_getinfo(3). `offer` compares its hints with
//! `profile`, what this provider has.

mod offer;
mod profile;

pub(crate) use offer::{check_opened, negotiate};
pub(crate) use profile::*;
