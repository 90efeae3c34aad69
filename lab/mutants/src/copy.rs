//! The copy of the source with all mutants that compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tagmatch_planted::tree;

use crate::embed::{Embedded, embed};
use crate::find::Mutant;
use crate::programs::Built;
use crate::run::{Ending, Limit, run};

/// The folder of all that is made, in the folder of the source.
pub const WORK: &str = "target/mutants";
/// How often mutants that don't compile are dropped before giving up.
const ROUNDS_MAX: usize = 40;

/// A mutant with its place.
#[derive(Debug, Clone)]
pub struct Placed {
    pub number: u32,
    pub package: String,
    pub file: String,
    pub mutant: Mutant,
}

/// The copy, and the mutants in it.
#[derive(Debug)]
pub struct Copy<'a> {
    pub source: &'a Path,
    /// Those of packages that were built compile.
    pub mutants: Vec<Placed>,
}

impl Copy<'_> {
    /// The mutants of a package that are left.
    pub fn of<'a>(&'a self, package: &'a str) -> impl Iterator<Item = &'a Placed> {
        self.mutants.iter().filter(move |placed| placed.package == package)
    }

    /// Builds the tests of these packages. Drops mutants that don't compile. Fails with a reason if
    /// this takes longer than to the deadline.
    pub fn build(&mut self, packages: &[&str], deadline: Instant) -> Result<Vec<Built>, String> {
        let target = self.source.join(WORK);
        for _ in 0..ROUNDS_MAX {
            let files = write(self.source, &self.mutants)?;
            let (ending, messages) = build(&target, packages, deadline);
            match ending {
                Ending::Passed => return Ok(messages.iter().filter_map(built).collect()),
                Ending::Failed => {}
                Ending::TookTooLong | Ending::OutOfTime => {
                    return Err("the time was over before its tests were built".into());
                }
            }
            let mut wrong = wrong(&files, &messages);
            if wrong.is_empty() {
                // No part of a file is to blame for these errors: the file has no mutants then.
                let in_error = |placed: &&Placed| rendered(&messages).contains(&placed.file);
                wrong.extend(self.mutants.iter().filter(in_error).map(|placed| placed.number));
            }
            if wrong.is_empty() {
                println!("{}", rendered(&messages));
                return Err("no mutant is to blame for these errors".into());
            }
            self.mutants.retain(|placed| !wrong.contains(&placed.number));
            let left = self.mutants.len();
            println!("mutants: {} don't compile, {left} are left", wrong.len());
            if packages.iter().all(|package| self.of(package).next().is_none()) {
                return Ok(Vec::new());
            }
        }
        Err(format!("mutants still don't compile after {ROUNDS_MAX} rounds"))
    }
}

/// Writes the copy with these mutants.
fn write(source: &Path, mutants: &[Placed]) -> Result<BTreeMap<String, Embedded>, String> {
    let mut by_file: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
    for placed in mutants {
        by_file.entry(&placed.file).or_default().push((placed.number, &placed.mutant));
    }
    let read = |path: &str| {
        fs::read_to_string(source.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let mut changed = BTreeMap::new();
    let mut files = BTreeMap::new();
    for (path, mutants) in by_file {
        let embedded = embed(&read(path)?, &mutants);
        changed.insert(path.to_owned(), embedded.text.clone());
        files.insert(path.to_owned(), embedded);
        if let Some(folder) = tree::crate_of(source, path) {
            let manifest = folder.join("Cargo.toml").to_string_lossy().into_owned();
            let text = tree::with_switch(&read(&manifest)?, &folder);
            changed.insert(manifest, text);
        }
    }
    let copy = source.join(WORK).join("tree");
    tree::listed(source)
        .and_then(|paths| tree::copy(source, &copy, &paths, &changed))
        .map_err(|error| format!("{}: {error}", copy.display()))?;
    tree::lock(&copy)?;
    Ok(files)
}

/// Builds the tests, and returns what cargo says. The packages have all their features, as in the
/// tests of the whole workspace.
fn build(work: &Path, packages: &[&str], deadline: Instant) -> (Ending, Vec<Value>) {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--no-run", "--no-fail-fast", "--locked", "--message-format=json"]);
    cargo.args(["--all-features", "--tests"]);
    for package in packages {
        cargo.args(["-p", package]);
    }
    cargo.current_dir(work.join("tree")).env("CARGO_TARGET_DIR", work.join("target"));
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    // Mutants look wrong to many lints.
    cargo.env("RUSTFLAGS", "--cap-lints=allow");
    let ended = run(cargo, Limit { time: Duration::MAX, deadline }, false);
    (ended.ending, ended.lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn is_error(message: &Value) -> bool {
    message["message"]["level"] == "error"
}

fn rendered(messages: &[Value]) -> String {
    let errors = messages.iter().filter(|message| is_error(message));
    errors.filter_map(|message| message["message"]["rendered"].as_str()).take(5).collect()
}

/// The mutants that errors are blamed on.
fn wrong(files: &BTreeMap<String, Embedded>, messages: &[Value]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for message in messages.iter().filter(|message| is_error(message)) {
        let spans = message["message"]["spans"].as_array().into_iter().flatten();
        let mut spans: Vec<&Value> = spans.collect();
        spans.sort_by_key(|span| span["is_primary"] != true);
        let blamed = spans.into_iter().find_map(|span| {
            let embedded = files.get(span["file_name"].as_str()?)?;
            let at = |key: &str| span[key].as_u64().and_then(|at| usize::try_from(at).ok());
            let bytes: Range<usize> = at("byte_start")?..at("byte_end")?;
            embedded.blamed(&bytes)
        });
        found.extend(blamed.into_iter().flatten());
    }
    found
}

/// The program of tests that a message is about.
fn built(message: &Value) -> Option<Built> {
    if message["profile"]["test"] != true {
        return None;
    }
    let folder: PathBuf = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    // `path+file:///FOLDER#NAME@VERSION`
    let package = message["package_id"].as_str()?.rsplit('#').next()?.split('@').next()?;
    let target = &message["target"];
    let name = if target["kind"][0] == "test" { target["name"].as_str()? } else { "lib" };
    Some(Built {
        package: package.into(),
        name: name.into(),
        folder,
        file: message["executable"].as_str()?.into(),
    })
}
