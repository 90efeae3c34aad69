//! The device on a real libfabric: run by `ci/test ofi`, or by hand with
//! `cargo test -p tagmatch-ofi --test ofi -- --ignored` where libfabric1 is installed.
//!
//! Each test runs over each of the providers that are named in `TAGMATCH_TEST_OFI` (apart by
//! spaces), else over `tcp;ofi_rxm`. Those of `cxi` need `FI_PROVIDER_PATH` to name a folder with
//! the provider of `lab/cxi`.

#![allow(clippy::cast_possible_truncation, unreachable_pub, reason = "a test that fails loudly")]

mod ofi_parts {
    pub mod cxi;
    pub mod process;
}

use std::ptr::NonNull;

use tagmatch_device::Buffer;
use tagmatch_ofi::{Ofi, OfiConfig};
use tagmatch_secret::Secret;
use tagmatch_testkit::device::loopback_of;
use tagmatch_testkit::matching::{Fixture, Settings};
use tagmatch_testkit::matching_contract;

struct Providers;

fn config(provider: &str) -> OfiConfig {
    let listen = vec![loopback_of(provider)];
    OfiConfig::default().provider(Some(provider.into())).listen(listen)
}

impl Fixture for Providers {
    type Device = Ofi;
    const MODULE: &'static str = "";
    const MAGIC: &'static [u8; 4] = b"TMof";
    const SOCKET: &'static str = "tagmatch-ofi-";
    const HAS_FIRST_BYTES: bool = true;

    /// A process has one endpoint of `shm`.
    fn ways() -> Vec<String> {
        Self::ways_across().into_iter().filter(|provider| provider != "shm").collect()
    }

    fn ways_across() -> Vec<String> {
        let named = std::env::var("TAGMATCH_TEST_OFI");
        let named = named.as_deref().unwrap_or("tcp;ofi_rxm");
        named.split_whitespace().map(Into::into).collect()
    }

    fn kept_of_the_dead(provider: &str) -> Option<usize> {
        match provider {
            "net" => None,
            // What is longer, these read out of its sender.
            "shm" | "sm2" => Some(4096),
            _ => Some(usize::MAX),
        }
    }

    /// A receive of `cxi` that fails has no facts of its message.
    fn names_the_dead(provider: &str) -> bool {
        provider != "cxi"
    }

    fn make(way: &str, settings: Settings) -> Ofi {
        let Settings { layout: [used, source], secret, connect_timeout } = settings;
        let secret = secret.map(|byte| Secret::from_bytes(&[byte; 16]).unwrap());
        let config = config(way).used(used).source(source).secret(secret);
        Ofi::new(config.connect_timeout(connect_timeout)).unwrap()
    }

    fn lend(memory: &mut [u8]) -> Buffer {
        // SAFETY: the memory lives longer than the device has it, by the contract.
        unsafe { Buffer::from_raw(NonNull::from(&mut *memory).cast(), memory.len(), true) }
    }
}

matching_contract!(
    #[ignore = "needs libfabric1: ci/test ofi"]
    Providers
);
