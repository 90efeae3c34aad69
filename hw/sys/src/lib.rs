//! Declaring C libraries by hand and loading them at run time, for tagmatch's `-sys` crates.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! [`structures!`] and [`constants!`] declare the types of a header, assert their layout, and list
//! them for a comparison with the installed header. [`functions!`] declares the functions of a
//! library. [`load`] loads the library and finds a function in it. [`signals`] keeps the program's
//! signal handlers meanwhile.

mod functions;
mod layout;
pub mod load;
pub mod signals;

pub use functions::Missing;
pub use layout::{Constant, Structure};
