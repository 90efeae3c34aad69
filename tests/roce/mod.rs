//! What the failure tests are made of: hosts and faults, and traffic that notices what is lost,
//! repeated, changed or out of order.

#![allow(unreachable_pub, missing_docs, reason = "for one test binary")]

pub mod hosts;
pub mod traffic;
