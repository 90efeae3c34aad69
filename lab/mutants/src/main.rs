//! `tagmatch-mutants changed SINCE SECONDS`: mutants in the lines that were changed since a commit.
//! `room PACKAGE COUNT SEED SECONDS`: COUNT mutants of a package, drawn by SEED, or all.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use regex::RegexSet;
use tagmatch_mutants::board::{self, Verdict};
use tagmatch_mutants::copy::{self, Placed, WORK};
use tagmatch_mutants::find;
use tagmatch_mutants::programs::Program;
use tagmatch_planted::tree;

/// Rooms that only tests use.
const APART: [&str; 9] = [
    "lab/comm-sim",
    "lab/cxi",
    "lab/fuzz",
    "lab/instructions",
    "lab/mutants",
    "lab/planted",
    "lab/sim",
    "lab/testkit",
    "lab/world",
];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let seconds = |text: &str| {
        text.parse().map(Duration::from_secs).map_err(|error| format!("{text}: {error}"))
    };
    let source = tree::source();
    let done = match words[..] {
        ["changed", since, limit] => seconds(limit).and_then(|limit| {
            let choice = Choice::Lines(changed(&source, since)?);
            run(&source, &choice, Draw { count: usize::MAX, seed: since }, limit)
        }),
        ["room", package, count, seed, limit] => seconds(limit).and_then(|limit| {
            let count = if count == "all" { Ok(usize::MAX) } else { count.parse() };
            let count = count.map_err(|error| format!("COUNT: {error}"))?;
            run(&source, &Choice::Package(package), Draw { count, seed }, limit)
        }),
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

/// Which mutants are asked about.
enum Choice<'a> {
    Package(&'a str),
    Lines(BTreeMap<String, BTreeSet<usize>>),
}

impl Choice<'_> {
    fn has_file(&self, package: &str, path: &str) -> bool {
        match self {
            Choice::Package(chosen) => package == *chosen,
            Choice::Lines(lines) => lines.contains_key(path),
        }
    }

    fn has_line(&self, path: &str, line: usize) -> bool {
        match self {
            Choice::Package(_) => true,
            Choice::Lines(lines) => lines.get(path).is_some_and(|lines| lines.contains(&line)),
        }
    }
}

/// A sample.
struct Draw<'a> {
    count: usize,
    seed: &'a str,
}

/// Asks the tests about the chosen mutants. Returns how many they miss.
fn run(
    source: &Path,
    choice: &Choice<'_>,
    draw: Draw<'_>,
    limit: Duration,
) -> Result<usize, String> {
    let began = Instant::now();
    let (mut mutants, accepted, constant) = list(source, choice)?;
    let whole = mutants.len();
    mutants.sort_by_key(|placed| hash(draw.seed, &placed.mutant.name));
    mutants.truncate(draw.count);
    for (number, placed) in (1..).zip(&mut mutants) {
        placed.number = number;
    }
    let packages: BTreeSet<String> = mutants.iter().map(|placed| placed.package.clone()).collect();
    let packages: Vec<String> = packages.into_iter().collect();
    let drawn = mutants.len();
    println!(
        "mutants: {drawn} of {whole} in {}; {accepted} accepted, {constant} in constants left out",
        packages.join(", ")
    );
    if mutants.is_empty() {
        return Ok(0);
    }
    let copy = copy::make(source, mutants, &packages)?;
    println!(
        "mutants: {} of {drawn} compile, built after {} s",
        copy.mutants.len(),
        began.elapsed().as_secs()
    );
    let scratch = source.join(WORK).join("reached");
    let mut programs = Vec::new();
    for built in copy.built {
        let label = format!("{} {}", built.package, built.name);
        match Program::try_out(built, &scratch) {
            Some(program) => {
                let failing = program.failing.join(", ");
                if !failing.is_empty() {
                    println!("mutants: {label}: these fail without a mutant: {failing}");
                }
                programs.push(program);
            }
            None => println!("mutants: {label} is not asked"),
        }
    }
    println!("mutants: {} programs, asked from {} s on", programs.len(), began.elapsed().as_secs());
    let asked = board::ask(&copy.mutants, &programs, Some(began + limit));
    let is_missed = |(_, verdict): &&(&Placed, Verdict)| *verdict == Verdict::Missed;
    for (package, row) in board::rows(&asked) {
        println!("mutants: {package}: {row}");
        if row.not_asked > 0 {
            println!(
                "NOT CHECKED mutants: {} of {package}, after {} s",
                row.not_asked,
                limit.as_secs()
            );
        }
    }
    Ok(asked.iter().filter(is_missed).count())
}

/// A number that depends on the seed and a name.
fn hash(seed: &str, name: &str) -> u64 {
    let bytes = seed.bytes().chain([0]).chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        let mixed = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        mixed ^ (mixed >> 29)
    })
}

/// The chosen mutants of the product, how many others are accepted, and how many places are left
/// out because the compiler evaluates them.
fn list(source: &Path, choice: &Choice<'_>) -> Result<(Vec<Placed>, usize, usize), String> {
    let settings = fs::read_to_string(source.join(".cargo/mutants.toml"))
        .map_err(|error| error.to_string())?;
    let settings: toml::Table =
        settings.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let texts = |key: &str| -> Vec<String> {
        let list = settings.get(key).and_then(toml::Value::as_array).into_iter().flatten();
        list.filter_map(|value| value.as_str().map(str::to_owned)).collect()
    };
    let accepted_names = RegexSet::new(texts("exclude_re")).map_err(|error| error.to_string())?;
    let globs = texts("exclude_globs");
    let is_excluded = |path: &str| globs.iter().any(|glob| path.contains(glob.trim_matches('*')));
    let mut packages: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    let mut accepted = 0;
    let mut constant = 0;
    for path in tree::listed(source).map_err(|error| error.to_string())? {
        let is_product = path.ends_with(".rs")
            && (path.starts_with("src/") || path.contains("/src/"))
            && !APART.iter().any(|folder| path.starts_with(folder))
            && !path.starts_with("benches/")
            && !path.contains("/tests/")
            && !is_excluded(&path);
        if !is_product {
            continue;
        }
        let Some(folder) = tree::crate_of(source, &path) else { continue };
        let manifest = source.join(folder).join("Cargo.toml").to_string_lossy().into_owned();
        let package = packages.entry(manifest).or_insert_with_key(|path| package_of(path)).clone();
        if !choice.has_file(&package, &path) {
            continue;
        }
        let Ok(text) = fs::read_to_string(source.join(&path)) else { continue };
        let of_file = find::mutants(&path, &text);
        let mut has_chosen = false;
        for mutant in of_file.mutants {
            let placed = Placed { number: 0, package: package.clone(), file: path.clone(), mutant };
            if !choice.has_line(&placed.file, placed.mutant.line) {
                continue;
            }
            has_chosen = true;
            if accepted_names.is_match(&placed.mutant.name) {
                accepted += 1;
            } else {
                found.push(placed);
            }
        }
        constant += if has_chosen { of_file.constant } else { 0 };
    }
    Ok((found, accepted, constant))
}

/// The name in a manifest.
fn package_of(manifest: &str) -> String {
    let text = fs::read_to_string(manifest).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    table
        .get("package")
        .and_then(|package| package.get("name")?.as_str())
        .unwrap_or_default()
        .to_owned()
}

/// The lines that were changed since a commit, by file.
fn changed(source: &Path, since: &str) -> Result<BTreeMap<String, BTreeSet<usize>>, String> {
    let output = Command::new("git")
        .args(["diff", "-U0", "--no-color", "--no-ext-diff", since])
        .current_dir(source)
        .output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git diff {since}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let mut lines: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut file = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(path) = line.strip_prefix("+++ b/") {
            path.clone_into(&mut file);
        } else if let Some(hunk) = line.strip_prefix("@@ ") {
            // `@@ -FROM,COUNT +FROM,COUNT @@`
            let Some(new) = hunk.split_whitespace().find_map(|word| word.strip_prefix('+')) else {
                continue;
            };
            let (from, count) = new.split_once(',').unwrap_or((new, "1"));
            let (Ok(from), Ok(count)) = (from.parse::<usize>(), count.parse::<usize>()) else {
                continue;
            };
            lines.entry(file.clone()).or_default().extend(from..from + count);
        }
    }
    Ok(lines)
}
