//! Mutants: small mistakes at every place of the source, hundreds of them in one build.
//!
//! [`list`] says which files have them, [`find`] lists the mutants of a file, and [`embed`] puts
//! all of them into its text: an environment variable chooses one when a program runs. [`copy`]
//! makes a copy of the source with them and drops those that don't compile. [`programs`] runs the
//! tests, and [`board`] asks them about each mutant.

#![forbid(unsafe_code)]

pub mod board;
pub mod copy;
pub mod embed;
pub mod find;
pub mod list;
pub mod programs;
pub mod run;
pub mod values;
