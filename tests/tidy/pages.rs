//! The paths and headings that pages for people name exist, and no paragraph stands twice.

use std::collections::BTreeMap;
use std::path::{Component, Path};

/// A shorter paragraph may stand twice: a command, or a reference.
const WORDS_MIN: usize = 12;

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
        // `docs/NAME/x.md`: a folder in capitals stands for any.
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

/// The parts of `ci/test` that a text names and that there are not, as in the reason of an ignored
/// test.
fn missing_parts(path: &str, text: &str, files: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (at, before) in line.match_indices("ci/test ") {
            let part = line[at + before.len()..]
                .split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()))
                .next();
            let part = part.filter(|part| !part.is_empty());
            let is_there = |part: &str| files.contains(&&*format!("ci/parts/{part}"));
            if let Some(part) = part.filter(|part| !is_there(part)) {
                found.push(format!("{path}:{}: ci/test has no part {part}", number + 1));
            }
        }
    }
    found
}

#[test]
fn parts_of_the_checks_that_are_named_exist() {
    let files = super::files();
    let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let rules = files.iter().filter(|(path, _)| path != "tests/tidy/pages.rs");
    let found: Vec<String> =
        rules.flat_map(|(path, text)| missing_parts(path, text, &paths)).collect();
    super::assert_none(&found);
    let wrong = missing_parts("a.rs", "`ci/test --all`, ci/test tcp\n\"ci/test gone\"", &paths);
    assert_eq!(wrong, ["a.rs:2: ci/test has no part gone"]);
}

/// Links to headings of pages, in the same page or another one, that there are not.
fn missing_headings(page: &str, text: &str, pages: &BTreeMap<&str, &str>) -> Vec<String> {
    let links = text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split(')').next());
    let missing = |link: &&str| {
        let Some((path, heading)) = link.split_once('#') else { return false };
        let target = if path.is_empty() { page.to_owned() } else { beside(page, path) };
        pages.get(target.as_str()).is_some_and(|text| {
            let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
            !headings.map(|line| anchor(line.trim_start_matches('#').trim())).any(|a| a == heading)
        })
    };
    links.filter(missing).map(|link| format!("{page}: there is no heading {link}")).collect()
}

/// The name by which a link means a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The paragraphs of a page, or of the documentation at the head of a source file.
fn paragraphs(path: &str, text: &str) -> Vec<String> {
    let is_page = path.ends_with(".md");
    let lines =
        text.lines().map_while(|line| if is_page { Some(line) } else { line.strip_prefix("//!") });
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in lines.map(str::trim) {
        is_code ^= line.starts_with("```");
        if line.is_empty() || is_code || line.starts_with(['|', '`', '#']) {
            found.push(String::new());
        } else if let Some(last) = found.last_mut() {
            last.push_str(line);
            last.push(' ');
        }
    }
    found.retain(|paragraph| paragraph.split_whitespace().count() >= WORDS_MIN);
    found
}

/// The paragraphs that stand in two places.
fn doubled(files: &[(String, String)]) -> Vec<String> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    let mut found = Vec::new();
    let is_page = |path: &str| {
        path.ends_with(".md")
            || path.ends_with(".rs") && !path.split('/').any(|part| part == "tests")
    };
    for (path, text) in files.iter().filter(|(path, _)| is_page(path)) {
        for paragraph in paragraphs(path, text) {
            let begin: String = paragraph.chars().take(60).collect();
            if let Some(first) = seen.insert(paragraph, path) {
                found.push(format!("{path}: {begin}… stands in {first}, too"));
            }
        }
    }
    found
}

#[test]
fn pages_name_headings_that_exist() {
    let files = super::files();
    let pages: BTreeMap<&str, &str> = files
        .iter()
        .filter(|(path, _)| path.ends_with(".md"))
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    super::assert_none(
        &pages
            .iter()
            .flat_map(|(page, text)| missing_headings(page, text, &pages))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_paragraph_stands_in_two_pages() {
    super::assert_none(&doubled(&super::files()));
}

#[test]
fn a_heading_that_is_not_there_and_a_doubled_paragraph_are_found() {
    let pages = BTreeMap::from([("a.md", "# Over RDMA: it's `x`\n"), ("docs/b.md", "## Two\n")]);
    let find = |page, text| missing_headings(page, text, &pages).len();
    assert_eq!(find("a.md", "[a](#over-rdma-its-x) [b](docs/b.md#two) [c](https://a.b#c)"), 0);
    assert_eq!(find("docs/b.md", "[a](#over) [b](../a.md#two) [c](../a.md#over-rdma-its-x)"), 2);

    let long = "one two three four five six seven eight nine ten eleven twelve";
    let file = |path: &str, text: String| (path.to_owned(), text);
    let page = file("a.md", format!("Before.\n\n{long}\nthirteen\n"));
    let head = file("b.rs", format!("//! {long} thirteen\n//!\n//! ```\n//! {long}\n//! ```\n"));
    assert_eq!(doubled(&[page.clone(), head]).len(), 1);
    assert_eq!(doubled(&[page, file("c.rs", format!("// {long}\n// thirteen\n"))]).len(), 0);
}
