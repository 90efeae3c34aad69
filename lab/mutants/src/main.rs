//! `tagmatch-mutants changed SINCE SECONDS`: mutants in the lines that were changed since a commit.
//! `room PACKAGE COUNT SEED SECONDS`: COUNT mutants of a package, drawn by SEED, or all. Both end
//! after SECONDS, builds included.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tagmatch_mutants::board::{self, Asked, Row};
use tagmatch_mutants::copy::{Copy, Placed, WORK};
use tagmatch_mutants::list::{self, Choice};
use tagmatch_mutants::programs::{Built, Program};
use tagmatch_planted::tree;

/// Packages whose tests need nothing of the machine: one that misses a mutant is an error.
const STRICT: [&str; 4] =
    ["tagmatch-soft", "tagmatch-shadow", "tagmatch-device", "tagmatch-secret"];
/// Such a mutant is missed so many times. Random tests don't notice each mutant each time.
const STRICT_TIMES: usize = 3;
/// Packages whose promises the tests of others check as well.
const TESTED_BY: [(&str, &str); 2] =
    [("tagmatch-ofi-provider", "tagmatch-provider"), ("tagmatch-fabric", "tagmatch-ofi")];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let source = tree::source();
    let done = match words[..] {
        ["changed", since, seconds] => ask_changed(&source, since, seconds),
        ["room", package, count, seed, seconds] => {
            ask_room(&source, package, Draw { count, seed }, seconds)
        }
        _ => Err("usage: tagmatch-mutants changed SINCE SECONDS | room PACKAGE COUNT SEED SECONDS"
            .into()),
    };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

/// A sample: how many, and by which draw.
struct Draw<'a> {
    count: &'a str,
    seed: &'a str,
}

/// Asks about the lines that were changed. Returns how many mutants the strict packages miss.
fn ask_changed(source: &Path, since: &str, seconds: &str) -> Result<usize, String> {
    let deadline = deadline(seconds)?;
    let choice = Choice::Lines(list::changed(source, since)?);
    let seed = list::head(source)?;
    ask(source, &choice, &Draw { count: "all", seed: &seed }, deadline)
}

/// Asks about a package. Returns how many mutants it misses.
fn ask_room(source: &Path, package: &str, draw: Draw<'_>, seconds: &str) -> Result<usize, String> {
    ask(source, &Choice::Package(package), &draw, deadline(seconds)?)
}

fn deadline(seconds: &str) -> Result<Instant, String> {
    let seconds = seconds.parse().map_err(|error| format!("{seconds}: {error}"))?;
    Ok(Instant::now() + Duration::from_secs(seconds))
}

/// Asks the tests about the chosen mutants, package by package, strict ones first. Returns how many
/// are missed that count.
fn ask(
    source: &Path,
    choice: &Choice<'_>,
    draw: &Draw<'_>,
    deadline: Instant,
) -> Result<usize, String> {
    let mut listed = list::list(source, choice)?;
    let whole = listed.mutants.len();
    listed.mutants.sort_by_key(|placed| hash(draw.seed, &placed.mutant.name));
    if draw.count != "all" {
        listed.mutants.truncate(draw.count.parse().map_err(|error| format!("COUNT: {error}"))?);
    }
    for (number, placed) in (1..).zip(&mut listed.mutants) {
        placed.number = number;
    }
    println!(
        "mutants: {} of {whole}; {} accepted, {} in constants left out",
        listed.mutants.len(),
        listed.accepted,
        listed.constant
    );
    let names: BTreeSet<String> =
        listed.mutants.iter().map(|placed| placed.package.clone()).collect();
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_by_key(|name| (!STRICT.contains(&name.as_str()), hash(draw.seed, name)));
    let mut copy = Copy { source, mutants: listed.mutants };
    let mut missed = 0;
    for (done, package) in names.iter().enumerate() {
        let is_strict = STRICT.contains(&package.as_str());
        let rest = names.len() - done;
        let row = ask_package(&mut copy, package, rest, deadline);
        if row.asked() > 0 {
            println!("mutants: {package}: {row}");
        }
        if is_strict || matches!(choice, Choice::Package(_)) {
            missed += row.missed + row.unreached;
        }
    }
    Ok(missed)
}

/// Builds the tests of a package, and asks them. Packages that are left, this one included, share
/// the time that is left then.
fn ask_package(copy: &mut Copy<'_>, package: &str, rest: usize, deadline: Instant) -> Row {
    let began = Instant::now();
    let also = TESTED_BY.iter().filter(|(tested, _)| *tested == package).map(|(_, by)| *by);
    let packages: Vec<&str> = [package].into_iter().chain(also).collect();
    let count = copy.of(package).count();
    let built = match copy.build(&packages, deadline) {
        Ok(built) => built,
        Err(reason) => {
            println!("NOT CHECKED mutants: {count} of {package}: {reason}");
            return Row { not_asked: count, ..Row::default() };
        }
    };
    let tests = try_out(copy.source, built, deadline);
    let now = Instant::now();
    let share = deadline.saturating_duration_since(now) / u32::try_from(rest).unwrap_or(1);
    let mutants: Vec<&Placed> = copy.of(package).collect();
    println!(
        "mutants: {package}: {} of {count} compile, asked after {} s",
        mutants.len(),
        (now - began).as_secs()
    );
    let times = if STRICT.contains(&package) { STRICT_TIMES } else { 1 };
    let row = board::ask(&mutants, &tests, times, now + share);
    if row.not_asked > 0 {
        let is_over = Instant::now() >= now + share;
        let reason = if is_over { "the time was over" } else { "not all tests could be asked" };
        println!("NOT CHECKED mutants: {} of {package}: {reason}", row.not_asked);
    }
    row
}

/// Runs the programs once without a mutant.
fn try_out(source: &Path, built: Vec<Built>, deadline: Instant) -> Asked {
    let scratch = source.join(WORK).join("reached");
    let mut tests = Asked { programs: Vec::new(), is_complete: true };
    for built in built {
        let label = format!("{} {}", built.package, built.name);
        let Some(program) = Program::try_out(built, &scratch, deadline) else {
            println!("mutants: {label} is not asked");
            tests.is_complete = false;
            continue;
        };
        if !program.failing.is_empty() {
            let failing = program.failing.join(", ");
            println!("mutants: {label}: these fail without a mutant: {failing}");
        }
        tests.programs.push(program);
    }
    tests
}

/// A number that depends on the seed and a name.
fn hash(seed: &str, name: &str) -> u64 {
    let bytes = seed.bytes().chain([0]).chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        let mixed = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        mixed ^ (mixed >> 29)
    })
}
