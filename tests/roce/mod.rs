//! Parts of the failure tests: hosts, devices and faults; traffic that notices messages which are
//! lost, repeated, changed or out of order; the tests of packets, and of a job of four processes.

#![allow(unreachable_pub, missing_docs, reason = "for one test binary")]

pub mod bystander;
pub mod devices;
pub mod hosts;
pub mod job;
pub mod packets;
pub mod traffic;
