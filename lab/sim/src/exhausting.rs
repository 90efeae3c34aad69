//! `--exhaust`: exhaustive search of small scopes.

use std::num::NonZero;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread::available_parallelism;
use std::time::Instant;

use tagmatch_sim::Scope;

/// A scope and the least numbers of states: with all messages through the list, and with one
/// sender's messages past it. Fewer states mean that the search left something out.
type Family = (Scope, [u64; 2]);

/// Scopes that take some seconds: all delays of small programs, all small programs with delays that
/// are bounded, and a NIC that takes few operations and is rarely told the count.
const CI: [Family; 5] = [
    (Scope::new(2, 2, 1, 1), [80_000, 65_000]),
    (Scope::new(2, 2, 0, 2), [95_000, 75_000]),
    (Scope { operations: 3, sync_limit: 9, ..Scope::new(2, 3, 0, 1) }, [40_000, 30_000]),
    (Scope { held_max: 2, ..Scope::new(2, 3, 0, 2) }, [180_000, 135_000]),
    (Scope { held_max: 2, ..Scope::new(3, 3, 1, 1) }, [390_000, 360_000]),
];

/// Larger scopes of the same kinds, which take minutes.
const FULL: [Family; 3] = [
    (Scope::new(2, 2, 1, 2), [550_000, 420_000]),
    (Scope { held_max: 3, ..Scope::new(3, 3, 1, 1) }, [1_900_000, 1_400_000]),
    (Scope { held_max: 2, ..Scope::new(3, 3, 1, 2) }, [7_900_000, 5_700_000]),
];

/// The scopes to be explored.
#[derive(Clone, Debug)]
pub(crate) struct Families(Vec<Family>);

impl FromStr for Families {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let families = match text {
            "ci" => CI.to_vec(),
            "full" => CI.into_iter().chain(FULL).collect(),
            _ => vec![one(text)?],
        };
        Ok(Families(families))
    }
}

/// Parses `RECEIVES,MESSAGES,CANCELS,TAGS,HELD`. HELD is [`Scope::held_max`], 0 if there is no
/// bound.
fn one(text: &str) -> Result<Family, String> {
    let parts = text.split(',').map(str::parse).collect::<Result<Vec<u8>, _>>();
    match parts.ok().as_deref() {
        Some(&[receives @ 0..=4, messages @ 0..=4, cancels, tags @ 1..=u8::MAX, held]) => {
            let held_max = if held == 0 { usize::MAX } else { held.into() };
            let size = Scope::new(receives.into(), messages.into(), cancels.into(), tags);
            Ok((Scope { held_max, ..size }, [1, 1]))
        }
        _ => Err(
            "expected ci, full, or a size such as 2,2,1,1,0: up to 4 receives, up to 4 messages, \
             cancels, at least 1 tag, and the bound of outstanding completions"
                .into(),
        ),
    }
}

/// Explores each family twice: with all messages through the NIC's list, and with the messages of
/// one sender past it. Too few states are a failure, too.
pub(crate) fn run(Families(families): &Families) -> ExitCode {
    let threads = available_parallelism().map_or(1, NonZero::get);
    for &(size, least) in families {
        for (second_passes, least) in [false, true].into_iter().zip(least) {
            let scope = Scope { second_passes, ..size };
            let begin = Instant::now();
            let explored = match scope.explore(threads) {
                Ok(explored) => explored,
                Err(failure) => {
                    println!("{scope}: {failure}");
                    return ExitCode::FAILURE;
                }
            };
            println!("{scope}: {explored}, {:.1} s", begin.elapsed().as_secs_f64());
            if explored.states < least {
                println!("expected at least {least} states: the search left something out");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
