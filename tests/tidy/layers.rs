//! A page of a crate may have a table of its modules as layers: a section *Layers* in its `lib.rs`.
//! A module uses only modules that stand below it, or further right in its row. The table has all
//! modules of the crate.

use std::collections::BTreeMap;

use super::circles::of_neighbours;
use super::modules::Modules;

const HEADING: &str = "//! # Layers\n";

/// The modules of the table, from the top to the bottom; those of a row from left to right.
fn layers(section: &str) -> Vec<&str> {
    let rows = section.lines().take_while(|line| !line.starts_with("//! #"));
    let rows = rows.filter_map(|line| line.strip_prefix("//! | ")).skip(1);
    let modules = rows.filter_map(|row| row.split('|').next());
    modules.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

fn violations(root: &str, files: &BTreeMap<String, String>) -> Vec<String> {
    let Some((_, section)) = files[root].split_once(HEADING) else { return Vec::new() };
    let layers = layers(section);
    let folder = root.trim_end_matches("lib.rs");
    let depth = |path: &str| {
        let module = path.strip_prefix(folder)?.split('/').next()?.trim_end_matches(".rs");
        layers.iter().position(|layer| *layer == module)
    };
    let is_foreign = |path: &&String| path.starts_with(folder) && path.as_str() != root;
    let mut found: Vec<_> = files
        .keys()
        .filter(is_foreign)
        .filter(|path| depth(path).is_none())
        .map(|path| format!("{root}: {path} is in no layer of the table"))
        .collect();
    let imports = Modules::of(root, files).imports();
    let upward = of_neighbours(&imports).into_iter().filter(|import| {
        let is_top = |path: &str| !path[folder.len()..].contains('/');
        is_top(&import.from) && depth(&import.from) > depth(&import.to)
    });
    found.extend(upward.map(|import| format!("{root}: against the table: {}", import.name)));
    found
}

#[test]
fn tables_of_layers_are_true() {
    let files: BTreeMap<String, String> =
        super::files().into_iter().filter(|(path, _)| super::is_rust(path)).collect();
    let has_table = |path: &&String| path.ends_with("src/lib.rs") && files[*path].contains(HEADING);
    let roots: Vec<_> = files.keys().filter(has_table).collect();
    assert!(roots.iter().any(|root| *root == "comm/src/lib.rs"));
    let found = roots.into_iter().flat_map(|root| violations(root, &files));
    super::assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn an_import_upward_and_a_module_without_a_layer_are_found() {
    let page = format!("{HEADING}//!\n//! | module | what |\n//! |---|---|\n//! | [`a`] | top |\n");
    let check = |rows: &str| {
        let root =
            format!("{page}{rows}//! # More\n//! | `c` | no layer |\nmod a;\nmod b;\nmod c;\n");
        let files = [
            ("x/src/lib.rs", root.as_str()),
            ("x/src/a/mod.rs", "mod inside;\npub struct A(crate::b::B);\n"),
            ("x/src/a/inside.rs", "pub struct Inside(super::A);\n"),
            ("x/src/b.rs", "pub struct B(crate::c::C);\n"),
            ("x/src/c.rs", "pub struct C;\n"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        violations("x/src/lib.rs", &files.into())
    };
    let none = Vec::<String>::new();
    assert_eq!(check("//! | `b` | |\n//! | `c` | |\n"), none);
    assert_eq!(check("//! | `b`, `c` | |\n"), none);
    let found = check("//! | `c`, [`b`] | |\n");
    assert!(found.len() == 1 && found[0].contains("b.rs has C of c.rs"), "{found:?}");
    let found = check("//! | `b` | |\n");
    assert!(found[0].contains("x/src/c.rs is in no layer"), "{found:?}");
}
