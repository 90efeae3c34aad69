//! Counters that may begin shortly before their end, as `starts.toml` lists them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use toml::Table;

use crate::slips::{Edit, edits, entries, nothing_left, text};
use crate::tokens::tokens;

/// The list.
pub const FILE: &str = "lab/planted/starts.toml";

/// A counter whose start is chosen in the copy.
#[derive(Debug)]
pub struct LateStart {
    /// Its name in errors.
    pub name: String,
    /// Where its start is chosen.
    pub edits: Vec<Edit>,
}

/// The list, read.
#[derive(Debug)]
pub struct Starts {
    /// All starts.
    pub starts: Vec<LateStart>,
    /// Files whose counters begin elsewhere, or need no start.
    pub without: Vec<String>,
}

impl Starts {
    /// Reads the list of a source. Fails with all that is wrong in it.
    pub fn read(source: &Path) -> Result<Starts, Vec<String>> {
        let text = fs::read_to_string(source.join(FILE));
        let text = text.map_err(|error| vec![format!("{FILE}: {error}")])?;
        parse(&text)
            .map_err(|errors| errors.into_iter().map(|error| format!("{FILE}: {error}")).collect())
    }

    /// The files that count with numbers that wrap, and that the list does not name; and those that
    /// it names among the others without a need. `files`: path and text of each.
    pub fn unlisted<'a>(&self, files: impl IntoIterator<Item = (&'a str, String)>) -> Vec<String> {
        let started: BTreeSet<&str> = self
            .starts
            .iter()
            .flat_map(|start| &start.edits)
            .map(|edit| edit.file.as_str())
            .collect();
        let mut without: BTreeSet<&str> = self.without.iter().map(String::as_str).collect();
        let mut found = Vec::new();
        for (path, text) in files {
            let is_named = without.remove(path) || started.contains(path);
            if wraps(&text) && !is_named {
                found.push(format!("{path} counts with `wrapping_add(1)`, and {FILE} lacks it"));
            }
        }
        found.extend(without.iter().map(|path| format!("{FILE}: there is no {path}")));
        found
    }
}

/// Whether code in front of the unit tests of a file counts with a number that wraps.
fn wraps(text: &str) -> bool {
    let all = tokens(text);
    let texts: Vec<&str> = all.iter().map(|token| token.text).collect();
    let is = |at: usize, what: &[&str]| texts[at..].starts_with(what);
    let test = (0..texts.len()).find(|&at| is(at, &["mod", "tests", "{"])).unwrap_or(texts.len());
    (0..test).any(|at| is(at, &["wrapping_add", "(", "1", ")"]))
}

fn parse(text: &str) -> Result<Starts, Vec<String>> {
    let mut table: Table =
        text.parse().map_err(|error: toml::de::Error| vec![error.to_string()])?;
    let starts = entries(&mut table, "start", start)?;
    let without = entries(&mut table, "without", without)?;
    nothing_left(&table).map_err(|error| vec![error])?;
    Ok(Starts { starts, without })
}

fn start(mut table: Table) -> Result<LateStart, String> {
    let name = text(&mut table, "name")?;
    text(&mut table, "counts")?;
    let edits = edits(&mut table)?;
    nothing_left(&table)?;
    if let Some(edit) = edits.iter().find(|edit| !edit.put.contains("planted::start")) {
        return Err(format!("`put` is \"{}\", without planted::start", edit.put));
    }
    Ok(LateStart { name, edits })
}

fn without(mut table: Table) -> Result<String, String> {
    let file = text(&mut table, "file")?;
    text(&mut table, "why")?;
    nothing_left(&table)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Starts, parse};
    use crate::tree::{listed, source};

    const LIST: &str = r#"
        [[start]]
        name = "A"
        counts = "Calls."
        file = "a.rs"
        place = "f"
        find = "0"
        put = "planted::start(0)"
        [[without]]
        file = "b.rs"
        why = "It begins in a.rs."
    "#;

    #[test]
    fn a_start_names_what_it_counts_and_asks_where_to_start() {
        assert_eq!(parse(LIST).unwrap().starts[0].name, "A");
        for (from, to, error) in [
            ("planted::start(0)", "1", "start 1 (A): `put` is \"1\""),
            ("counts", "wrong", "it lacks `counts`"),
            ("why", "reason", "it lacks `why`"),
            ("[[without]]", "[[others]]", "has no [[without]]"),
        ] {
            let errors = parse(&LIST.replace(from, to)).expect_err(to).join("\n");
            assert!(errors.contains(error), "{errors}");
        }
    }

    #[test]
    fn a_counter_without_a_start_and_a_reason_without_a_file_are_said() {
        let starts = parse(LIST).unwrap();
        let count = "fn f() { x.wrapping_add(1); }";
        let unlisted = |files: &[(&'static str, &str)]| {
            starts.unlisted(files.iter().map(|&(path, text)| (path, text.to_owned())))
        };
        assert!(unlisted(&[("a.rs", count), ("b.rs", count)]).is_empty());
        let of_test = format!("mod tests {{ {count} }} // wrapping_add(1)");
        assert!(unlisted(&[("b.rs", count), ("c.rs", &of_test)]).is_empty());
        assert!(unlisted(&[("b.rs", count), ("c.rs", count)])[0].starts_with("c.rs counts"));
        assert!(unlisted(&[])[0].contains("there is no b.rs"));
    }

    #[test]
    fn each_counter_that_wraps_has_a_start_or_a_reason() {
        let source = source();
        let starts = Starts::read(&source).unwrap();
        let paths = listed(&source).unwrap();
        let is_product = |path: &str| {
            let is_proof = ["tests", "benches", "examples", "fuzz"]
                .iter()
                .any(|part| path.split('/').any(|of_path| of_path == *part));
            let is_lab = path.starts_with("lab/") && !path.starts_with("lab/hca/");
            path.ends_with(".rs") && !path.ends_with("/tests.rs") && !is_proof && !is_lab
        };
        let files = paths
            .iter()
            .filter(|path| is_product(path))
            .filter_map(|path| Some((path.as_str(), fs::read_to_string(source.join(path)).ok()?)));
        let unlisted = starts.unlisted(files);
        assert!(unlisted.is_empty(), "\n{}", unlisted.join("\n"));
    }
}
