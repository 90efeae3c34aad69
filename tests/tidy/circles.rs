//! Files form no circles. A circle is a set of files of one crate where each file imports the
//! others, directly or through other files of the circle: none can be understood, tested or moved
//! alone.
//!
//! Nor do folders: of two modules that stand beside each other, a folder with all its files or a
//! file, one lies above the other. So what two folders share lies below both.
//!
//! `use` declarations and paths in the code count as imports; both are followed through re-exports
//! to the file that defines the name. Tests don't count, nor do faces: files that only declare
//! modules and re-export names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::modules::{Import, Modules};

/// One circle a line: its files, a colon, and why they are not one file, nor further apart.
const ALLOWED: &str = "tests/circles.txt";
/// No reason is good enough for more files than this.
const FILES_MAX: usize = 3;

struct Circle {
    files: BTreeSet<String>,
    imports: Vec<Import>,
}

/// The imports of every crate: its root is a `lib.rs` or `main.rs` in a folder `src`.
fn imports(files: &BTreeMap<String, String>) -> Vec<BTreeSet<Import>> {
    let is_root = |path: &str| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    let roots = files.keys().filter(|path| is_root(path));
    roots.map(|root| Modules::of(root, files).imports()).collect()
}

/// Imports as those of the modules that stand beside each other: where the paths of the two files
/// part.
pub(super) fn of_neighbours(imports: &BTreeSet<Import>) -> BTreeSet<Import> {
    let neighbours = imports.iter().filter_map(|Import { from, to, name }| {
        let parts = from.split('/').zip(to.split('/'));
        let shared: usize = parts.take_while(|(a, b)| a == b).map(|(a, _)| a.len() + 1).sum();
        let module = |path: &str| {
            let end = path[shared..].find('/').map_or(path.len(), |end| shared + end);
            path[..end].trim_end_matches(".rs").to_owned()
        };
        let name = format!("{} has {name} of {}", &from[shared..], &to[shared..]);
        // A folder lies within the module of the file that bears its name.
        let import = Import { from: module(from), to: module(to), name };
        (import.from != import.to).then_some(import)
    });
    neighbours.collect()
}

/// The circles of folders. No reason is good enough for one.
fn folder_violations(files: &BTreeMap<String, String>) -> Vec<String> {
    let circles = imports(files).into_iter().flat_map(|of| circles_of(of_neighbours(&of)));
    let is_folder = |module: &String| {
        let inside = format!("{module}/");
        files.range(inside.clone()..).next().is_some_and(|(path, _)| path.starts_with(&inside))
    };
    let with_folders = circles.filter(|circle| circle.files.iter().any(is_folder));
    with_folders.map(|circle| circle.describe("a circle", "modules")).collect()
}

fn circles_of(imports: BTreeSet<Import>) -> Vec<Circle> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in &imports {
        next.entry(&import.from).or_default().insert(&import.to);
        next.entry(&import.to).or_default();
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|file| (*file, reached(file, &next))).collect();
    let mut left: BTreeSet<&str> = next.keys().copied().collect();
    let mut found = Vec::new();
    while let Some(first) = left.pop_first() {
        let both = |other: &&str| reach[first].contains(*other) && reach[*other].contains(first);
        let files: BTreeSet<String> =
            left.iter().copied().filter(both).chain([first]).map(Into::into).collect();
        left.retain(|file| !files.contains(*file));
        if files.len() > 1 {
            let is_inside = |i: &&Import| files.contains(&i.from) && files.contains(&i.to);
            let imports = imports.iter().filter(is_inside).cloned().collect();
            found.push(Circle { files, imports });
        }
    }
    found
}

/// All files that `file` imports, and those that these import, and so on.
fn reached<'a>(file: &str, next: &BTreeMap<&str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut ahead: Vec<&str> = next[file].iter().copied().collect();
    while let Some(other) = ahead.pop() {
        if found.insert(other) {
            ahead.extend(&next[other]);
        }
    }
    found
}

impl Circle {
    fn name(&self) -> String {
        self.files.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// The files, and below them, per pair of files, the names by which the first needs the second.
    fn describe(&self, what: &str, of: &str) -> String {
        let mut ties: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for import in &self.imports {
            ties.entry((&import.from, &import.to)).or_default().push(&import.name);
        }
        let ties = ties
            .iter()
            .map(|((from, to), names)| format!("    {from} -> {to}: {}", names.join(", ")));
        let count = self.files.len();
        format!("{}: {what} of {count} {of}\n{}", self.name(), ties.collect::<Vec<_>>().join("\n"))
    }
}

/// Circles that are not allowed, and lines of the list that allow none.
fn violations(files: &BTreeMap<String, String>, allowed: &str) -> Vec<String> {
    let circles: Vec<_> = imports(files).into_iter().flat_map(circles_of).collect();
    let mut found = Vec::new();
    for circle in &circles {
        let name = circle.name();
        let reason = allowed.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(": "));
        match reason {
            _ if circle.files.len() > FILES_MAX => found.push(circle.describe("a circle", "files")),
            None => {
                let what = format!("a circle without a line in {ALLOWED}");
                found.push(circle.describe(&what, "files"));
            }
            Some(reason) if reason.trim().len() < 20 => {
                found.push(format!("{name}: the reason in {ALLOWED} is too short to be one"));
            }
            Some(_) => {}
        }
    }
    for line in allowed.lines() {
        let named = line.split_once(": ").map_or(line, |(named, _)| named);
        if !circles.iter().any(|circle| circle.name() == named) {
            found.push(format!("{ALLOWED}: no circle any more, take the line out: {named}"));
        }
    }
    found
}

#[test]
fn files_form_no_circles() {
    let files = super::files().into_iter().filter(|(path, _)| super::is_rust(path)).collect();
    let allowed = fs::read_to_string(super::root().join(ALLOWED)).unwrap();
    super::assert_none(&violations(&files, &allowed));
}

#[test]
fn folders_form_no_circles() {
    let files = super::files().into_iter().filter(|(path, _)| super::is_rust(path)).collect();
    super::assert_none(&folder_violations(&files));
}

/// A crate of these files, each a path below `src` and a text.
fn tree(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(path, text)| (format!("a/src/{path}"), (*text).to_owned())).collect()
}

const FOUR: [(&str, &str); 5] = [
    ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\npub use a::A;\n"),
    ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
    ("b.rs", "pub struct B;\nimpl B { fn f() -> crate::c::C { todo() } }\n"),
    ("c.rs", "use super::d as e;\npub struct C(e::D);\n"),
    ("d.rs", "pub struct D(Vec<super::a::A>);\n"),
];

#[test]
fn a_circle_of_four_is_found_and_never_allowed() {
    let files = tree(&FOUR);
    let name = "a/src/a.rs, a/src/b.rs, a/src/c.rs, a/src/d.rs";
    let found = violations(&files, &format!("{name}: they are four parts of one idea\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(name), "{found:?}");
    for tie in ["a.rs -> a/src/b.rs: B", "c.rs -> a/src/d.rs: D", "d.rs -> a/src/a.rs: A"] {
        assert!(found[0].contains(tie), "{found:?}");
    }
}

#[test]
fn a_circle_is_followed_through_reexports_and_globs() {
    // By the crate's face, by a face that renames, and by a glob.
    for import in ["crate::A", "crate::x::Renamed", "crate::x::*"] {
        let mut files = FOUR;
        let text = format!("use {import};\npub struct D([A; 3], Renamed);\n");
        files[4].1 = &text;
        let mut files = tree(&files);
        let face = files.get_mut("a/src/lib.rs").unwrap();
        face.push_str("mod x;\n");
        let x = "pub use super::A as Renamed;\npub use crate::a::*;\n";
        files.insert("a/src/x/mod.rs".into(), x.into());
        let found = violations(&files, "");
        assert_eq!(found.len(), 1, "{import}: {found:?}");
        assert!(!found[0].contains("x/mod.rs"), "a face is no part of a circle: {found:?}");
    }
}

#[test]
fn a_circle_of_folders_is_found_where_their_files_form_none() {
    let files = |up: &str| {
        tree(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a/mod.rs", "mod top;\nmod base;\n"),
            ("a/top.rs", "use crate::b::in_b::B;\npub struct Top(B);\n"),
            ("a/base.rs", "pub struct Base;\n"),
            ("b.rs", "pub mod in_b;\nuse in_b::B;\npub struct Bs(B);\n"),
            ("b/in_b.rs", "use crate::c::C;\npub struct B(C);\n"),
            ("c.rs", up),
        ])
    };
    let circle = files("pub struct C(crate::a::base::Base);\n");
    assert!(violations(&circle, "").is_empty());
    let found = folder_violations(&circle);
    assert!(found.len() == 1 && found[0].starts_with("a/src/a, a/src/b, a/src/c"), "{found:?}");
    assert!(found[0].contains("a/src/a -> a/src/b: a/top.rs has B of b/in_b.rs"), "{found:?}");
    assert_eq!(folder_violations(&files("pub struct C;\n")), Vec::<String>::new());
    // Files alone are the other rule's.
    assert_eq!(folder_violations(&tree(&FOUR)), Vec::<String>::new());
}

#[test]
fn a_module_with_definitions_is_a_file_of_its_own() {
    let files = tree(&[
        ("lib.rs", "mod a;\n"),
        ("a/mod.rs", "mod b;\nuse b::B;\npub struct A(B);\n"),
        ("a/b.rs", "use super::A;\npub struct B(Box<A>);\n"),
    ]);
    let name = "a/src/a/b.rs, a/src/a/mod.rs";
    let found = violations(&files, "");
    assert!(found.len() == 1 && found[0].starts_with(name), "{found:?}");
    assert_eq!(violations(&files, &format!("{name}: short\n")).len(), 1);
    assert!(violations(&files, &format!("{name}: a tree of values needs its leaves\n")).is_empty());
    let gone = "a/src/a.rs, a/src/b.rs: a circle that was mended long ago\n";
    assert_eq!(violations(&tree(&FOUR[..2]), gone).len(), 1);
}

#[test]
fn what_is_no_import_makes_no_circle() {
    // Comments, text, tests, fields of the same name, names that are only handed on, other crates.
    let tests = "#[cfg(test)]\nmod tests { use super::*; use crate::a::A; }\n";
    let files = tree(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\npub fn f() {}\n"),
        ("a.rs", "use crate::b::B;\nuse std::f;\npub struct A(B);\n"),
        ("b.rs", &format!("// use crate::a::A;\n/// [`crate::a::A`]\npub struct B;\n{tests}")),
        ("c.rs", "fn g() { \"crate::a::A\"; h('\"'); self.A; r#\"crate::f\"#; ::crate_a::A }\n"),
    ]);
    assert_eq!(violations(&files, ""), Vec::<String>::new());
}
