//! The UCX device on a real libucp: run by `ci/test ucx`, or by hand with
//! `cargo test -p tagmatch-ucx --test ucx -- --ignored` where libucx0 is installed.
//!
//! Each test runs over each of the transports that are named in `TAGMATCH_TEST_UCX_TLS` (values of
//! `UCX_TLS`, apart by spaces), else over shared memory and over TCP.

#![allow(clippy::cast_possible_truncation, unreachable_pub, reason = "a test that fails loudly")]

mod ucx_parts {
    pub mod ends;
    pub mod handshake;
    pub mod matching;
    pub mod messages;
    pub mod process;
    pub mod raw;
    pub mod strangers;
    pub mod support;
}

use tagmatch_testkit::device as common;
