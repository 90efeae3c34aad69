//! What doc comments say of other files and of devices.

use crate::{assert_none, files, is_rust};

/// A line for each paragraph that may name UCX alone: its path, its first words, and why.
const UCX_ALONE: &str = "tests/ucx_alone.txt";
/// The crates whose documentation users read for what holds over their device.
const PUBLIC: [&str; 4] = ["src/", "fallback/src/", "hw/device/src/", "comm/src/"];

/// The paragraphs of a file's doc comments, with the numbers of their first lines. A row of a table
/// and an item of a list are paragraphs.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim);
        let Some(doc) = doc.filter(|doc| !doc.is_empty()) else {
            is_open = false;
            continue;
        };
        let begins = ["| ", "- ", "# "].iter().any(|start| doc.starts_with(start));
        match found.last_mut().filter(|_| is_open && !begins) {
            Some((_, paragraph)) => {
                paragraph.push(' ');
                paragraph.push_str(doc);
            }
            None => found.push((number + 1, doc.to_owned())),
        }
        is_open = true;
    }
    found
}

/// Paragraphs that name UCX, not libfabric, and have no line in the list of reasons.
fn names_ucx_alone(path: &str, text: &str, reasons: &str) -> Vec<String> {
    let has_reason = |paragraph: &str| {
        reasons.lines().filter_map(|line| line.split_once(": ")).any(|(file, rest)| {
            let (begin, why) = rest.split_once(": ").unwrap_or((rest, ""));
            file == path && paragraph.starts_with(begin) && !why.is_empty()
        })
    };
    let is_wrong = |paragraph: &str| {
        paragraph.contains("UCX") && !paragraph.contains("libfabric") && !has_reason(paragraph)
    };
    let wrong = paragraphs(text).into_iter().filter(|(_, paragraph)| is_wrong(paragraph));
    wrong
        .map(|(line, _)| {
            format!(
                "{path}:{line}: UCX without libfabric: say what holds over libfabric, or give a \
                 reason in {UCX_ALONE}"
            )
        })
        .collect()
}

#[test]
fn what_is_said_of_ucx_is_said_of_libfabric_too() {
    let files = files();
    let (_, reasons) = files.iter().find(|(path, _)| path == UCX_ALONE).unwrap();
    let is_public = |path: &str| is_rust(path) && PUBLIC.iter().any(|at| path.starts_with(at));
    let mut found: Vec<String> = files
        .iter()
        .filter(|(path, _)| is_public(path))
        .flat_map(|(path, text)| names_ucx_alone(path, text, reasons))
        .collect();
    // A reason whose paragraph is gone.
    for line in reasons.lines() {
        let (path, begin) = line.split_once(": ").unwrap();
        let (begin, _) = begin.split_once(": ").unwrap();
        let file = files.iter().find(|(other, _)| other == path);
        let has_it = |text: &str| paragraphs(text).iter().any(|(_, it)| it.starts_with(begin));
        if !file.is_some_and(|(_, text)| has_it(text)) {
            found.push(format!("{UCX_ALONE}: {path} has no paragraph that begins: {begin}"));
        }
    }
    assert_none(&found);
}

/// Lines of doc comments that refer a reader to the file that they stand in.
fn cites_itself(path: &str, text: &str) -> Vec<String> {
    let own = format!("`{path}`");
    let is_doc = |line: &str| ["///", "//!"].iter().any(|c| line.trim_start().starts_with(c));
    let wrong = text.lines().enumerate().filter(|(_, line)| is_doc(line) && line.contains(&own));
    wrong.map(|(number, _)| format!("{path}:{}: it cites itself", number + 1)).collect()
}

#[test]
fn no_file_refers_a_reader_to_itself() {
    let files = files();
    let rust = files.iter().filter(|(path, _)| is_rust(path));
    assert_none(&rust.flat_map(|(path, text)| cites_itself(path, text)).collect::<Vec<_>>());
}

#[test]
fn ucx_alone_and_a_citation_of_oneself_are_found() {
    let text = "/// Empty over\n/// UCX.\n///\n/// Over UCX and\n/// libfabric none.\nfn f() {}\n";
    assert_eq!(names_ucx_alone("src/a.rs", text, "").len(), 1);
    assert!(names_ucx_alone("src/a.rs", text, "src/a.rs: Empty over: it is so").is_empty());
    assert_eq!(names_ucx_alone("src/a.rs", text, "src/a.rs: Empty over: ").len(), 1);
    assert_eq!(names_ucx_alone("src/a.rs", text, "src/b.rs: Empty over: it is so").len(), 1);
    assert_eq!(
        cites_itself("src/a.rs", "//! So (`src/a.rs`) it is.\n"),
        ["src/a.rs:1: it cites itself"]
    );
    assert!(cites_itself("src/a.rs", "//! See `src/b.rs`.\nlet a = \"`src/a.rs`\";\n").is_empty());
}

#[test]
fn the_page_of_devices_has_the_table_of_abilities() {
    let files = files();
    let (_, page) = files.iter().find(|(path, _)| path == "docs/devices.md").unwrap();
    assert!(page.contains(&tagmatch_device::Ability::table()), "see hw/device/src/abilities.md");
}
