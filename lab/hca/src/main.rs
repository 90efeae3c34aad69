//! The command `tagmatch-hca`: see the crate's page.

use std::process::ExitCode;

fn main() -> ExitCode {
    tagmatch_hca::run(std::env::args_os().skip(1).collect())
}
