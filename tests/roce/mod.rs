//! Parts of the failure tests: hosts and faults, and traffic that notices messages which are lost,
//! repeated, changed or out of order.

#![allow(unreachable_pub, missing_docs, reason = "for one test binary")]

pub mod devices;
pub mod hosts;
pub mod job;
pub mod traffic;
