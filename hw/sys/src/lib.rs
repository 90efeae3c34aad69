//! Declaring C libraries by hand and loading them at run time, for tagmatch's `-sys` crates.
//!
//! [`structures!`] and [`constants!`] declare the types of a header, assert their layout, and list
//! them for a comparison with the installed header. [`load`] finds a library and its functions.

mod layout;
pub mod load;

pub use layout::{Constant, Structure};
