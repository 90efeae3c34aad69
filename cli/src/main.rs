//! The command. All of it is in the library, so that tests and fuzzers reach it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tagperf::run()
}
