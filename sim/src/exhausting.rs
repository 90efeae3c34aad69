//! `--exhaust`: small scopes, completely.

use std::num::NonZero;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread::available_parallelism;
use std::time::Instant;

use tagmatch_sim::Scope;

/// How much is explored: `RECEIVES,MESSAGES,CANCELS,TAGS,HELD`; the last is the bound of delays, 0 for none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size([u8; 5]);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::parse).collect::<Result<Vec<u8>, _>>();
        let size = parts.ok().and_then(|parts| <[u8; 5]>::try_from(parts).ok());
        match size {
            Some(size @ [0..=4, 0..=4, _, 1..=u8::MAX, _]) => Ok(Size(size)),
            _ => Err("wanted are receives and messages up to 4, cancels, tags from 1, and completions held back".into()),
        }
    }
}

/// Explores everything of a size, with the messages of all senders through the NIC's list, and with
/// those of one past it.
pub(crate) fn run(Size([receives, messages, cancels, tags, held]): Size) -> ExitCode {
    let threads = available_parallelism().map_or(1, NonZero::get);
    for second_passes in [false, true] {
        let held_max = if held == 0 { usize::MAX } else { held.into() };
        let size = Scope::new(receives.into(), messages.into(), cancels.into(), tags);
        let scope = Scope { second_passes, held_max, ..size };
        let begin = Instant::now();
        match scope.explore(threads) {
            Ok(explored) => println!("{scope}: {explored}, {:.1} s", begin.elapsed().as_secs_f64()),
            Err(failure) => {
                println!("{scope}: {failure}");
                return ExitCode::from(1);
            }
        }
    }
    ExitCode::SUCCESS
}
