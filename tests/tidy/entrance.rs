//! What readers and users meet first: README and ARCHITECTURE stay short, README's table of devices
//! is the one in the source, and each published crate says whether it promises anything.

use tagmatch::{Ability, DeviceKind};

use super::crates::packages;

const README_LINES_MAX: usize = 220;
const README_COLUMNS_MAX: usize = 120;
const ARCHITECTURE_WORDS_MAX: usize = 4500;

/// The packages that have users: `docs/promises.md`. Of `tagmatch-hca` the command.
const PROMISED: [&str; 6] = [
    "tagmatch",
    "tagmatch-comm",
    "tagmatch-launch",
    "tagmatch-provider",
    "tagperf",
    "tagmatch-hca",
];
const NOTHING: &str = "nternal, no promises";

fn text<'a>(files: &'a [(String, String)], path: &str) -> &'a str {
    files.iter().find(|(file, _)| file == path).map_or("", |(_, text)| text)
}

/// What each device can do, without the reasons.
fn table_of_devices() -> String {
    let row = |what: &str, has: &dyn Fn(DeviceKind) -> bool| {
        let cells = DeviceKind::ALL.map(|kind| if has(kind) { " yes |" } else { " no |" });
        format!("| {what} |{}\n", cells.concat())
    };
    let names = DeviceKind::ALL.map(|kind| format!(" `{}` |", kind.name())).concat();
    let mut table = format!("| |{names}\n|{}\n", "---|".repeat(DeviceKind::ALL.len() + 1));
    table += &row("matches by itself", &DeviceKind::matches);
    for ability in Ability::ALL {
        table += &row(ability.meaning(), &|kind| ability.lacking(kind).is_none());
    }
    table
}

#[test]
fn readme_fits_and_has_the_table_of_devices() {
    let files = super::files();
    let readme = text(&files, "README.md");
    assert!(readme.lines().count() <= README_LINES_MAX, "README is too long");
    let wide = readme.lines().filter(|line| line.chars().count() > README_COLUMNS_MAX);
    assert_eq!(wide.collect::<Vec<_>>(), [""; 0]);
    let table = table_of_devices();
    assert!(readme.contains(&table), "README has to have this table:\n{table}");
    let words = text(&files, "ARCHITECTURE.md").split_whitespace().count();
    assert!(words <= ARCHITECTURE_WORDS_MAX, "ARCHITECTURE has {words} words");
}

/// What a published crate without promises lacks.
fn silent(folder: &str, name: &str, files: &[(String, String)]) -> Vec<String> {
    let manifest = text(files, &format!("{folder}/Cargo.toml"));
    let page = text(files, &format!("{folder}/src/lib.rs"));
    let of_page = page.lines().take(6).any(|line| line.contains(NOTHING));
    let of_manifest =
        manifest.lines().any(|line| line.starts_with("description = ") && line.contains(NOTHING));
    let places = [(of_page, "first lines"), (of_manifest, "description")];
    let places = places.iter().filter(|(says, _)| !says);
    places.map(|(_, place)| format!("{name}: its {place} lack \"internal, no promises\"")).collect()
}

/// The crates of ours that the list of versions doesn't pin.
fn unpinned(manifest: &str) -> Vec<&str> {
    let ours = manifest.lines().filter(|line| line.contains("path = ") && line.contains("version"));
    ours.filter(|line| !line.contains("version = \"=")).collect()
}

#[test]
fn crates_without_promises_say_so_and_are_pinned() {
    let files = super::files();
    let mut found = Vec::new();
    for (folder, package) in packages(&files) {
        if package.is_published && !PROMISED.contains(&package.name.as_str()) {
            found.extend(silent(&folder, &package.name, &files));
        }
    }
    found.extend(
        unpinned(text(&files, "Cargo.toml")).iter().map(|line| format!("not pinned: {line}")),
    );
    super::assert_none(&found);
    let promises = text(&files, "docs/promises.md");
    let unnamed = PROMISED.iter().filter(|name| !promises.contains(&format!("`{name}`")));
    assert_eq!(unnamed.collect::<Vec<_>>(), [&""; 0]);
}

#[test]
fn a_silent_crate_and_one_that_is_not_pinned_are_found() {
    let files = |page: &str| {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let manifest = "description = \"x (internal, no promises)\"\n";
        vec![file("a/Cargo.toml", manifest), file("a/src/lib.rs", page)]
    };
    assert_eq!(silent("a", "x-a", &files("//! X.\n//!\n//! Internal, no promises.\n")), [""; 0]);
    assert_eq!(silent("a", "x-a", &files("//! X.\n")).len(), 1);
    assert_eq!(silent("b", "x-b", &files("")).len(), 2);
    let pinned = "a = { path = \"a\", version = \"=0.1.0\" }\nb = { path = \"b\" }\n";
    assert_eq!(unpinned(pinned), [""; 0]);
    assert_eq!(unpinned("a = { path = \"a\", version = \"0.1.0\" }\n").len(), 1);
}
