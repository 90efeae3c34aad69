//! What the tests of several crates share. Nothing here is shipped: crates use it as a
//! dev-dependency, without a version, and the simulator as a dependency.
//!
//! - [`contract`] has the tests of all devices: what each device promises.
//! - [`hostile`] makes all hostile variants of a message from its description.
//! - [`matching`] has the tests of devices that match by themselves.
//! - [`device`] is for the tests of devices: owned events, and other processes.
//! - [`oracle`] is the reference for MPI matching: plain lists, searched from the front.
//! - [`process`] sends signals, and raises the limit on descriptors.
//! - [`random`] is the random number generator: the same seed gives the same numbers.
//! - [`scratch`] has a directory for the files of a test.
//! - [`tagtrace`] has random matching histories, and the record that their replay must write.
//! - [`weakened`] weakens orders of atomic accesses in models, one at a time.
#![forbid(unsafe_code)]

pub mod contract;
pub mod device;
pub mod hostile;
pub mod matching;
pub mod oracle;
pub mod process;
pub mod random;
pub mod scratch;
pub mod tagtrace;
pub mod weakened;
