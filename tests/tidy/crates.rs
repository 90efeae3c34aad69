//! The table of crates in ARCHITECTURE.md is complete, and says what the manifests and the code do.

use std::collections::{BTreeMap, BTreeSet};

use super::{code, has_word, is_rust};

const PAGE: &str = "ARCHITECTURE.md";
/// Code of tests that needs `unsafe` in a crate that otherwise has none outside of a folder.
const UNSAFE_TESTS: [&str; 2] = ["tests/api/raw_memory.rs", "tests/common/fork.rs"];

/// Where a crate may have `unsafe`.
#[derive(Debug, PartialEq, Eq)]
enum MayUnsafe {
    Nowhere,
    In(Vec<String>),
    Everywhere,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct CrateRow {
    pub(super) name: String,
    pub(super) is_published: bool,
    /// Folders of ours, and names of others.
    pub(super) uses: BTreeSet<String>,
    may_unsafe: MayUnsafe,
}

/// The rows by folder.
fn rows(page: &str) -> BTreeMap<String, CrateRow> {
    let lines = page.lines().skip_while(|line| !line.starts_with("| folder | crate |")).skip(2);
    let lines = lines.take_while(|line| line.starts_with('|'));
    let spans = |cell: &str| -> Vec<String> {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(|span| span.trim_end_matches('/').to_owned())
            .collect()
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [folder, name, _, ours, outside, may_unsafe] = cells[..] else { return None };
        let outside = outside.split(", ").filter(|name| !name.is_empty()).map(str::to_owned);
        let may_unsafe = match may_unsafe {
            "" => MayUnsafe::Nowhere,
            "yes" => MayUnsafe::Everywhere,
            places => MayUnsafe::In(spans(places)),
        };
        let row = CrateRow {
            name: spans(name).pop()?,
            is_published: !name.contains("(unpublished)"),
            uses: spans(ours).into_iter().chain(outside).collect(),
            may_unsafe,
        };
        Some((spans(folder).pop()?, row))
    };
    lines.filter_map(row).collect()
}

/// The packages of the workspace by folder, as their manifests describe them.
pub(super) fn packages(files: &[(String, String)]) -> BTreeMap<String, CrateRow> {
    let manifests = files.iter().filter_map(|(path, text)| {
        let folder = path.strip_suffix("Cargo.toml")?.trim_end_matches('/');
        // Packages outside of the workspace.
        let is_apart = ["lab/fuzz", "lab/mutants", "lab/planted/switch"].contains(&folder);
        (!is_apart && text.contains("[package]")).then_some((folder, text))
    });
    let value = |text: &str, key: &str| -> Option<String> {
        let package = text.split("[package]").nth(1)?.split("\n[").next()?.to_owned();
        let line = package
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?
            .to_owned();
        Some(line.trim_matches('"').to_owned())
    };
    let of_root =
        |folder: &str| if folder.is_empty() { "src".to_owned() } else { folder.to_owned() };
    let manifests: Vec<_> = manifests
        .filter_map(|(folder, text)| Some((of_root(folder), value(text, "name")?, text)))
        .collect();
    let folders: BTreeMap<&str, &str> =
        manifests.iter().map(|(folder, name, _)| (name.as_str(), folder.as_str())).collect();
    let package = |(folder, name, text): &(String, String, &String)| {
        let listed = text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let lines = listed.split("\n[").next().unwrap_or_default().lines();
        let names = lines.filter(|line| line.starts_with(char::is_alphabetic));
        let names = names.filter_map(|line| line.split(['.', ' ', '=']).next());
        let uses = names.map(|name| folders.get(name).map_or(name, |folder| *folder).to_owned());
        let row = CrateRow {
            name: name.clone(),
            is_published: value(text, "publish").as_deref() != Some("false"),
            uses: uses.collect(),
            may_unsafe: MayUnsafe::Nowhere,
        };
        (folder.clone(), row)
    };
    manifests.iter().map(package).collect()
}

/// What the table says differently than the manifests.
fn differences(
    table: &BTreeMap<String, CrateRow>,
    packages: &BTreeMap<String, CrateRow>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, package) in packages {
        let Some(row) = table.get(folder) else {
            found.push(format!("{PAGE}: the table of crates lacks {folder}"));
            continue;
        };
        if (&row.name, row.is_published) != (&package.name, package.is_published) {
            found.push(format!(
                "{PAGE}: {folder} is {}, published: {}",
                package.name, package.is_published
            ));
        }
        for name in package.uses.difference(&row.uses) {
            found.push(format!("{PAGE}: {folder} uses {name}, which the table doesn't say"));
        }
        for name in row.uses.difference(&package.uses) {
            found.push(format!("{PAGE}: {folder} doesn't use {name}"));
        }
    }
    let gone = table.keys().filter(|folder| !packages.contains_key(*folder));
    found.extend(gone.map(|folder| format!("{PAGE}: there is no crate in {folder}")));
    found
}

/// Whether the table allows `unsafe` in a file of one of its crates.
fn allows(table: &BTreeMap<String, CrateRow>, path: &str) -> bool {
    let rows = table.iter().filter(|(folder, _)| path.starts_with(&format!("{folder}/")));
    // The crate of the innermost folder.
    match rows.max_by_key(|(folder, _)| folder.len()).map(|(_, row)| &row.may_unsafe) {
        Some(MayUnsafe::Everywhere) => true,
        Some(MayUnsafe::In(places)) => places.iter().any(|place| path.starts_with(place)),
        _ => UNSAFE_TESTS.contains(&path),
    }
}

fn unsafe_elsewhere(table: &BTreeMap<String, CrateRow>, path: &str, text: &str) -> Vec<String> {
    if allows(table, path) {
        return Vec::new();
    }
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let bare = code(line);
        let lifted = bare.contains("allow(unsafe_code") || bare.contains("expect(unsafe_code");
        lifted || has_word(&bare, "unsafe")
    });
    lines
        .map(|(at, _)| format!("{path}:{}: unsafe, which {PAGE} doesn't allow here", at + 1))
        .collect()
}

/// The attribute that the root of a crate lacks.
fn lacking(folder: &str, row: &CrateRow, files: &[(String, String)]) -> Option<String> {
    let lint = match row.may_unsafe {
        MayUnsafe::Nowhere => "#![forbid(unsafe_code)]",
        MayUnsafe::In(_) => "#![deny(unsafe_code)]",
        MayUnsafe::Everywhere => return None,
    };
    let folder = if folder == "src" { "src".to_owned() } else { format!("{folder}/src") };
    let root = files.iter().find(|(path, _)| *path == format!("{folder}/lib.rs"))?;
    (!root.1.contains(&format!("\n{lint}\n"))).then(|| format!("{}: lacks {lint}", root.0))
}

fn table(files: &[(String, String)]) -> BTreeMap<String, CrateRow> {
    let page = files.iter().find(|(path, _)| path == PAGE);
    rows(page.map_or("", |(_, text)| text))
}

#[test]
fn the_table_of_crates_says_what_the_manifests_say() {
    let files = super::files();
    super::assert_none(&differences(&table(&files), &packages(&files)));
}

#[test]
fn unsafe_stands_where_the_table_of_crates_says() {
    let files = super::files();
    let table = table(&files);
    let rust = files.iter().filter(|(path, _)| is_rust(path) && !path.starts_with("tests/tidy/"));
    let mut found: Vec<_> =
        rust.clone().flat_map(|(path, text)| unsafe_elsewhere(&table, path, text)).collect();
    found.extend(table.iter().filter_map(|(folder, row)| lacking(folder, row, &files)));
    let has_unsafe = |place: &str| {
        rust.clone().any(|(path, text)| {
            path.starts_with(place) && text.lines().any(|line| has_word(&code(line), "unsafe"))
        })
    };
    for (folder, row) in &table {
        let places = match &row.may_unsafe {
            MayUnsafe::Nowhere => Vec::new(),
            MayUnsafe::In(places) => places.clone(),
            MayUnsafe::Everywhere => vec![format!("{folder}/")],
        };
        let stale = places.into_iter().filter(|place| !has_unsafe(place));
        found.extend(stale.map(|place| format!("{PAGE}: there is no unsafe in {place}")));
    }
    found.extend(
        UNSAFE_TESTS
            .iter()
            .filter(|path| !has_unsafe(path))
            .map(|path| format!("no unsafe in {path}")),
    );
    super::assert_none(&found);
}

#[test]
fn a_crate_that_the_table_lacks_or_that_uses_more_is_found() {
    let page = "| folder | crate | what it is | uses of ours | uses from outside | `unsafe` |\n|---|\n\
                | `a/` | `x-a` | one | `b` | libc | yes |\n| `b/` | `x-b` (unpublished) | two | | | `b/src/raw.rs` |\n";
    let manifest = |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\n{rest}");
    let files = |rest: &str| {
        let a = manifest(
            "x-a",
            &format!("\n[dependencies]\nx-b.workspace = true\nlibc = \"1\"\n{rest}"),
        );
        let b = manifest("x-b", "publish = false\n");
        vec![("a/Cargo.toml".to_owned(), a), ("b/Cargo.toml".to_owned(), b)]
    };
    let table = rows(page);
    assert_eq!(differences(&table, &packages(&files(""))), Vec::<String>::new());
    assert_eq!(
        differences(
            &table,
            &packages(&files("log = \"0\"\n\n[dev-dependencies]\nserde = \"1\"\n"))
        )
        .len(),
        1
    );
    assert_eq!(differences(&table, &packages(&files("")[..1])).len(), 3);
    let mut more = files("");
    more.push(("c/Cargo.toml".to_owned(), manifest("x-c", "")));
    assert_eq!(differences(&table, &packages(&more)).len(), 1);

    let text = "fn f() {\n    unsafe { g() }\n}\n";
    assert!(unsafe_elsewhere(&table, "a/src/lib.rs", text).is_empty());
    assert!(unsafe_elsewhere(&table, "b/src/raw.rs", text).is_empty());
    assert_eq!(unsafe_elsewhere(&table, "b/src/lib.rs", text).len(), 1);
    assert_eq!(unsafe_elsewhere(&table, "d/src/lib.rs", text).len(), 1);
}
