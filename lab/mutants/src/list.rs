//! Which mutants there are: those of a package, or of the lines that were changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use regex::RegexSet;
use tagmatch_planted::tree;

use crate::copy::Placed;
use crate::find;

/// Folders of code that only tests use.
const APART: [&str; 10] = [
    "benches",
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

/// Which mutants are asked about.
#[derive(Debug)]
pub enum Choice<'a> {
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

/// Mutants of the product.
#[derive(Debug, Default)]
pub struct Listed {
    /// The chosen ones.
    pub mutants: Vec<Placed>,
    /// How many others are accepted.
    pub accepted: usize,
    /// How many places are left out in these files because the compiler evaluates them.
    pub constant: usize,
}

/// The chosen mutants.
pub fn list(source: &Path, choice: &Choice<'_>) -> Result<Listed, String> {
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
    let mut found = Listed::default();
    let files = tree::listed(source).map_err(|error| error.to_string())?;
    let is_product = |path: &&String| {
        path.ends_with(".rs")
            && (path.starts_with("src/") || path.contains("/src/"))
            && !APART.iter().any(|folder| path.starts_with(folder))
            && !path.contains("/tests/")
            && !is_excluded(path)
    };
    let mut product: BTreeMap<&str, String> = BTreeMap::new();
    let mut only_tests = Vec::new();
    for path in files.iter().filter(is_product) {
        let Ok(text) = fs::read_to_string(source.join(path)) else { continue };
        only_tests.extend(find::test_modules(path, &text));
        product.insert(path, text);
    }
    product.retain(|path, _| {
        let module = path.trim_end_matches(".rs");
        !only_tests.iter().any(|of_tests| Path::new(module).starts_with(of_tests))
    });
    for (path, text) in product {
        let Some(folder) = tree::crate_of(source, path) else { continue };
        let manifest = source.join(folder).join("Cargo.toml").to_string_lossy().into_owned();
        let package = packages.entry(manifest).or_insert_with_key(|path| package_of(path)).clone();
        if !choice.has_file(&package, path) {
            continue;
        }
        let of_file = find::mutants(path, &text);
        let mut has_chosen = false;
        for mutant in of_file.mutants {
            let placed = Placed { number: 0, package: package.clone(), file: path.into(), mutant };
            if !choice.has_line(&placed.file, placed.mutant.line) {
                continue;
            }
            has_chosen = true;
            if accepted_names.is_match(&placed.mutant.name) {
                found.accepted += 1;
            } else {
                found.mutants.push(placed);
            }
        }
        found.constant += if has_chosen { of_file.constant } else { 0 };
    }
    Ok(found)
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
pub fn changed(source: &Path, since: &str) -> Result<BTreeMap<String, BTreeSet<usize>>, String> {
    let diff = git(source, &["diff", "-U0", "--no-color", "--no-ext-diff", since])?;
    let mut lines: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut file = String::new();
    for line in diff.lines() {
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

/// The id of the last commit.
pub fn head(source: &Path) -> Result<String, String> {
    git(source, &["rev-parse", "HEAD"])
}

/// What git prints.
fn git(source: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(words).current_dir(source).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)))
    }
}
