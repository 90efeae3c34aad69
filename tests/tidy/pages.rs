//! The paths that pages for people name exist.

use std::path::{Component, Path};

/// Paths in a page, in links and in code spans, that lead nowhere. `files` are all paths of the
/// tree.
///
/// A span counts as a path if it begins with a folder at the root, or ends like a source file or
/// page. It may leave out the beginning: `ft/rest.rs` is found below `comm/src`. One `*` stands for
/// any text.
fn missing(page: &str, text: &str, files: &[&str]) -> Vec<String> {
    let exists = |path: &str| {
        let path = path.trim_end_matches('/');
        let (begin, end) = path.split_once('*').unwrap_or((path, ""));
        let fits = |file: &str| match file.strip_prefix(begin) {
            Some(rest) if path.contains('*') => {
                rest.ends_with(end) || rest.contains(&format!("{end}/"))
            }
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        let starts = |file: &str| file.match_indices('/').map(|(at, _)| at + 1).collect::<Vec<_>>();
        files.iter().any(|file| fits(file) || starts(file).iter().any(|&at| fits(&file[at..])))
    };
    let is_path = |span: &str| {
        let is_plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "_-./*".contains(c));
        let top = span.split_once('/').is_some_and(|(top, _)| {
            files.iter().any(|file| file.split_once('/').is_some_and(|(folder, _)| folder == top))
        });
        // `ci/planted/ROOM/NAME.patch`: a folder in capitals stands for any.
        let mut folders = span.split('/').rev().skip(1);
        let is_pattern = folders.any(|name| name.chars().all(|c| c.is_ascii_uppercase()));
        is_plain
            && !is_pattern
            && (top || [".rs", ".md", ".svg"].iter().any(|end| span.ends_with(end)))
    };
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut report = |path: &str| {
            found.push(format!("{page}:{}: there is no {path}", number + 1));
        };
        for span in line.split('`').skip(1).step_by(2) {
            let word = span.split_whitespace().next().unwrap_or_default();
            if is_path(word) && !exists(word) {
                report(word);
            }
        }
        for (at, _) in line.match_indices("](") {
            let link = &line[at + 2..];
            let link = link.split([')', '#']).next().unwrap_or_default();
            let target = beside(page, link);
            let is_there = files.iter().any(|file| {
                file.strip_prefix(&*target).is_some_and(|f| f.is_empty() || f.starts_with('/'))
            });
            if !link.is_empty() && !link.contains("://") && !is_there {
                report(link);
            }
        }
    }
    found
}

/// The path that `link` means in the page `page`.
fn beside(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
            _ => {}
        }
    }
    parts.join("/")
}

#[test]
fn pages_name_files_that_exist() {
    let files = super::files();
    let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    // What the changelog names may be gone since.
    let pages = files.iter().filter(|(path, _)| path.ends_with(".md") && path != "CHANGELOG.md");
    let found: Vec<String> = pages.flat_map(|(page, text)| missing(page, text, &paths)).collect();
    super::assert_none(&found);
}

#[test]
fn a_path_that_leads_nowhere_is_found() {
    let files = ["README.md", "docs/a.md", "comm/src/ft/rest.rs", "hw/tests/model.rs"];
    let find = |page, text| missing(page, text, &files).len();
    assert_eq!(find("README.md", "`comm/src/ft/gone.rs`, `gone.rs`, `comm/gone --all`\n"), 3);
    assert_eq!(find("README.md", "[a](docs/gone.md) [b](../docs/a.md#c)\n"), 1);
    assert_eq!(find("docs/a.md", "[a](docs/a.md) [b](../comm/) [c](a.md) [d](#e)\n"), 1);
    assert_eq!(find("README.md", "`comm/`, `ft/rest.rs`, `hw/tests/model*.rs`, `h*/tests/`\n"), 0);
    assert_eq!(find("README.md", "`/etc/a.conf`, `a/b`, `Worker::send`, [x](https://a.b)\n"), 0);
    assert_eq!(find("README.md", "`docs/NAME/x.md`\n"), 0);
}
