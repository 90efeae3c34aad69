//! One word has one meaning: a new type doesn't take the name of another one.
//!
//! [`TAKEN`] lists the names that several files define, each with the number of files. It is
//! compared both ways, so a name leaves the list with its second meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{code, is_name, is_rust};

const TAKEN: &str = "tests/type_names.txt";

/// Whether a file has types of what is shipped. The bindings have the names of C headers, the
/// provider for tests has those of libfabric, and the simulated system those of the kernel.
fn counts(path: &str) -> bool {
    let is_test = |part: &str| matches!(part, "tests" | "tests.rs" | "benches" | "examples");
    let is_apart = ["lab/fuzz/", "lab/mutants/", "lab/testkit/", "lab/cxi/", "lab/world/"]
        .iter()
        .any(|part| path.starts_with(part));
    is_rust(path) && !is_apart && !path.contains("-sys/") && !path.split('/').any(is_test)
}

/// The types that a file defines, except in its tests.
fn defined(text: &str) -> BTreeSet<String> {
    let product = text.split("\nmod tests {").next().unwrap_or_default();
    let names = product.lines().filter_map(|line| {
        let line = code(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let kind = match words.first() {
            Some(word) if word.starts_with("pub") => 1,
            _ => 0,
        };
        let is_type = matches!(words.get(kind), Some(&("struct" | "enum" | "union" | "trait")));
        let name: String = words.get(kind + 1)?.chars().take_while(|c| is_name(*c)).collect();
        (is_type && name.starts_with(char::is_uppercase)).then_some(name)
    });
    names.collect()
}

/// The names that several files define, with these files.
fn taken(files: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| counts(path)) {
        for name in defined(text) {
            found.entry(name).or_default().push(path.clone());
        }
    }
    found.retain(|_, paths| paths.len() > 1);
    found
}

fn differences(found: &BTreeMap<String, Vec<String>>, list: &str) -> Vec<String> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let listed: BTreeMap<&str, usize> = lines
        .filter_map(|line| line.split_once(' '))
        .map(|(name, n)| (name, n.parse().unwrap_or(0)))
        .collect();
    let unlisted =
        found.iter().filter(|(name, paths)| listed.get(name.as_str()) != Some(&paths.len()));
    let unlisted = unlisted.map(|(name, paths)| {
        let known = listed.get(name.as_str()).copied().unwrap_or(1);
        format!(
            "`{name}` is defined {} times, {known} in {TAKEN}: {}",
            paths.len(),
            paths.join(", ")
        )
    });
    let stale = listed.keys().filter(|name| !found.contains_key(**name));
    unlisted.chain(stale.map(|name| format!("{TAKEN}: `{name}` has one meaning now"))).collect()
}

#[test]
fn a_new_type_does_not_take_the_name_of_another() {
    let list = fs::read_to_string(super::root().join(TAKEN)).unwrap();
    super::assert_none(&differences(&taken(&super::files()), &list));
}

#[test]
fn a_taken_name_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let one = file("soft/src/a.rs", "pub(crate) struct Place<T> {\n}\nmod tests {\n}");
    let two = file("hw/shm/src/b.rs", "    enum Place {}\n\nmod tests {\n    struct Other;\n}");
    let other =
        file("src/c.rs", "pub struct Other;\n// struct Place\nlet text = \"struct Place\";");
    let test = file("src/tests/d.rs", "struct Other;");
    let found = taken(&[one.clone(), two, other, test]);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["Place"]);
    assert_eq!(differences(&found, "# names\nPlace 2\n"), Vec::<String>::new());
    assert_eq!(differences(&found, "").len(), 1);
    assert_eq!(differences(&found, "Place 3\n").len(), 1);
    assert_eq!(differences(&taken(&[one]), "Place 2\n").len(), 1);
}
