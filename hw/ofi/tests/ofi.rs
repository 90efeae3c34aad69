//! The device on a real libfabric: run by `ci/test ofi`, or by hand with
//! `cargo test -p tagmatch-ofi --test ofi -- --ignored` where libfabric1 is installed.
//!
//! Each test runs over each of the providers that are named in `TAGMATCH_TEST_OFI` (apart by
//! spaces), else over `tcp;ofi_rxm`. Those of `cxi` need `FI_PROVIDER_PATH` to name a folder with
//! the provider of `lab/cxi`.

#![allow(clippy::cast_possible_truncation, unreachable_pub, reason = "a test that fails loudly")]

mod ofi_parts {
    pub mod cxi;
    pub mod deaths;
    pub mod process;
    pub mod support;
}
