//! `docs/settings.md` has every environment variable that the source names, and no other one. Its
//! table of the settings of verbs is made from the table in the source.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, is_name, is_rust};

const PAGE: &str = "docs/settings.md";
/// The beginning of all variables of this project, in two parts, so that it isn't found here.
const PREFIX: &str = concat!("TAGMATCH", "_");

/// The variables that a text names.
fn variables(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let starts = text.match_indices(PREFIX).map(|(at, _)| at);
    let names = starts.filter(|at| !text[..*at].ends_with(is_name)).map(|at| {
        let rest = &text[at..];
        rest.find(|c| !is_part(c)).map_or(rest, |end| &rest[..end])
    });
    // A beginning that stands for several, such as that of the settings of verbs.
    names.filter(|name| !name.ends_with('_')).collect()
}

/// What is wrong with the page, beside these files.
fn differences(page: &str, files: &[(String, String)]) -> Vec<String> {
    let mut named: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| is_rust(path)) {
        named.extend(variables(text).into_iter().map(|name| (name, path.as_str())));
    }
    let listed = variables(page);
    let missing = named.iter().filter(|(name, _)| !listed.contains(*name));
    let missing = missing.map(|(name, path)| format!("{PAGE}: lacks {name} of {path}"));
    let gone = listed.iter().filter(|name| !named.contains_key(*name));
    missing.chain(gone.map(|name| format!("{PAGE}: no source file names {name}"))).collect()
}

#[test]
fn the_page_of_settings_has_every_variable_of_the_source() {
    let files = super::files();
    let page = files.iter().find(|(path, _)| path == PAGE).expect("the page of settings");
    assert_none(&differences(&page.1, &files));
}

#[cfg(feature = "verbs")]
#[test]
fn the_table_of_verbs_is_the_one_in_the_source() {
    let row = |setting: &tagmatch::verbs::Setting| {
        let unit = Some(setting.unit).filter(|unit| !unit.is_empty());
        let values = [Some(setting.range), unit].into_iter().flatten().collect::<Vec<_>>();
        let variable = setting.variable;
        let name = setting.name;
        let default = setting.default;
        let values = values.join(": ");
        let meaning = setting.meaning;
        format!("| `{variable}` | `{name}` | {values} | {default} | {meaning} |\n")
    };
    let table: String = tagmatch::verbs::SETTINGS.iter().map(row).collect();
    let page = std::fs::read_to_string(super::root().join(PAGE)).unwrap();
    assert!(page.contains(&table), "{PAGE} has to have these rows:\n{table}");
}

#[test]
fn a_variable_that_only_one_side_has_is_found() {
    let file = |text: &str| vec![("a.rs".to_owned(), text.replace('~', PREFIX))];
    let find = |page: &str, text| differences(&page.replace('~', PREFIX), &file(text));
    assert_eq!(find("`~A`, `~B2_C`", "get(\"~A\"); // ~B2_C, as all of ~"), [""; 0]);
    assert_eq!(find("`~A`", "env(\"~A\"); env(\"~AB\")").len(), 1);
    assert_eq!(find("`~A` `~B`", "env(\"~A\")").len(), 1);
}
