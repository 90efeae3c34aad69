//! Rules of the tree that no compiler checks: long files have a reason, `unsafe` stands only in
//! named places and says why it is sound, public items are documented, dependencies are used, files
//! form no circles, and pages name only files that exist.

mod circles;
mod crates;
mod entrance;
mod house;
mod imports;
mod layers;
mod modules;
mod pages;
mod prose;
mod settings;
mod shapes;
mod timers;
mod tokens;
mod type_names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A longer file needs a reason in [`LONG_FILES`].
const LINES_MAX: usize = 600;
/// rustfmt keeps code within these.
const COLUMNS_MAX: usize = 100;
/// The most lines of a program in `examples/`.
const SCREEN_LINES: usize = 80;
/// One file a line: its path, a colon, and why it is as long as it is.
const LONG_FILES: &str = "tests/long_files.txt";
/// The folder of the source that is checked. `ci/test --all` runs this program out of a copy into
/// which slips are planted, and names the source.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let named = std::env::var_os("TAGMATCH_TREE");
        named.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
    })
}

/// Path, relative to the root, and text of every file that is or may be checked in.
fn files() -> Vec<(String, String)> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .ok()
        .filter(|output| output.status.success() && !output.stdout.is_empty());
    let paths: Vec<String> = match listed {
        Some(output) => String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect(),
        // A copy without its history.
        None => walk(root()),
    };
    let read = |path: String| Some((path.clone(), fs::read_to_string(root().join(&path)).ok()?));
    let files: Vec<_> = paths.into_iter().filter_map(read).collect();
    assert!(files.iter().any(|(path, _)| path == "tests/tidy/main.rs"), "the tree was not found");
    files
}

fn walk(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path: PathBuf = entry.path();
        let name = entry.file_name();
        if name == "target" || name.to_string_lossy().starts_with(".git") {
            continue;
        }
        if path.is_dir() {
            found.extend(walk(&path));
        } else if let Ok(inside) = path.strip_prefix(root()) {
            found.push(inside.to_string_lossy().into_owned());
        }
    }
    found
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

/// Fails with everything that was found, so one run shows all that must be mended.
fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `text` has `word` as a whole name.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_name) && !text[at + word.len()..].starts_with(is_name)
    })
}

/// The line without its comment and without text in quotes.
fn code(line: &str) -> String {
    let mut out = String::new();
    for (index, part) in line.split('"').enumerate() {
        let (before, comment) = part.split_once("//").map_or((part, false), |(b, _)| (b, true));
        if index % 2 == 0 {
            out.push_str(before);
            if comment {
                break;
            }
        }
    }
    out
}

fn too_long(path: &str, text: &str, reasons: &str) -> Vec<String> {
    let lines = text.lines().count();
    let reason = reasons.lines().find_map(|line| line.strip_prefix(path)?.strip_prefix(": "));
    match reason {
        _ if path.ends_with("Cargo.lock") => vec![],
        None if lines > LINES_MAX => {
            vec![format!("{path}: {lines} lines, and no reason in {LONG_FILES}")]
        }
        Some(_) if lines <= LINES_MAX => {
            vec![format!("{path}: {lines} lines need no reason in {LONG_FILES}")]
        }
        Some(reason) if reason.trim().len() < 20 => {
            vec![format!("{path}: the reason in {LONG_FILES} is too short to be one")]
        }
        _ => vec![],
    }
}

#[test]
fn long_files_have_a_reason() {
    let files = files();
    let reasons = fs::read_to_string(root().join(LONG_FILES)).unwrap();
    let mut found: Vec<_> =
        files.iter().flat_map(|(path, text)| too_long(path, text, &reasons)).collect();
    for line in reasons.lines() {
        let path = line.split_once(": ").map_or(line, |(path, _)| path);
        if !files.iter().any(|(file, _)| file == path) {
            found.push(format!("{LONG_FILES}: there is no {path}"));
        }
    }
    assert_none(&found);
}

/// Comments of more than [`COLUMNS_MAX`] columns, which rustfmt leaves as they are. A row of a
/// table, a link and an example can't be broken.
fn wide_comments(path: &str, text: &str) -> Vec<String> {
    let mut is_example = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        is_example ^= comment.starts_with("```");
        let is_whole = is_example || comment.starts_with('|') || comment.contains("://");
        !is_whole && line.chars().count() > COLUMNS_MAX
    });
    lines.map(|(at, _)| format!("{path}:{}: more than {COLUMNS_MAX} columns", at + 1)).collect()
}

#[test]
fn comments_are_not_too_wide() {
    let files = files();
    let rust = files.iter().filter(|(path, _)| is_rust(path));
    assert_none(&rust.flat_map(|(path, text)| wide_comments(path, text)).collect::<Vec<_>>());
}

/// Each `unsafe` block and impl has a `SAFETY:` comment before its statement; each `unsafe fn` has
/// documentation with a section on safety.
fn undocumented_unsafe(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let bare = code(line);
        if !has_word(&bare, "unsafe") {
            continue;
        }
        let is_function = bare.contains("unsafe fn ") && !bare.contains("unsafe fn(");
        let wanted = if is_function { "# Safety" } else { "SAFETY:" };
        let is_block = bare.contains("unsafe {") || bare.contains("unsafe impl");
        if (is_function || is_block) && !is_explained(&lines[..number], wanted) {
            found.push(format!("{path}:{}: unsafe without {wanted}", number + 1));
        }
    }
    found
}

/// Whether the lines right before a statement, or at its beginning, contain `wanted`.
fn is_explained(before: &[&str], wanted: &str) -> bool {
    for line in before.iter().rev().take(30) {
        if line.contains(wanted) {
            return true;
        }
        let line = line.trim();
        let is_apart = line.starts_with("//") || line.starts_with("#[");
        if !is_apart && (line.is_empty() || line.ends_with([';', '}'])) {
            return false;
        }
    }
    false
}

#[test]
fn unsafe_says_why_it_is_sound() {
    let files = files();
    let rust = files.iter().filter(|(path, _)| is_rust(path) && path != "tests/tidy/main.rs");
    assert_none(&rust.flat_map(|(path, text)| undocumented_unsafe(path, text)).collect::<Vec<_>>());
}

/// kill(1) is in procps, which minimal systems lack. A shell's `kill` is built in.
#[test]
fn tests_send_signals_without_a_program() {
    let program = concat!("Command::new(", "\"kill\")");
    let files = files();
    let users = files.iter().filter(|(path, text)| is_rust(path) && text.contains(program));
    let instead = "use tagmatch_testkit::process::send_signal";
    assert_none(
        &users.map(|(path, _)| format!("{path}: {program}; {instead}")).collect::<Vec<_>>(),
    );
}

/// The macros of the standard library that print. They panic, or wait, where standard output or
/// error is full.
const PRINTING: [&str; 4] = ["print", "println", "eprint", "eprintln"];

/// Places where a library prints, outside its tests.
fn printing(path: &str, text: &str) -> Vec<String> {
    let tokens = tokens::tokens(text);
    let prints = |pair: &&[String]| PRINTING.contains(&pair[0].as_str()) && pair[1] == "!";
    let found = tokens.windows(2).filter(prints);
    found
        .map(|pair| format!("{path}: {}! in a library; use tagmatch_os::notice", pair[0]))
        .collect()
}

#[test]
fn no_library_prints() {
    // Programs, and what only tests build.
    let is_program = |path: &str| {
        ["benches/", "cli/", "lab/mutants/", "lab/sim/", "lab/testkit/"]
            .iter()
            .any(|folder| path.starts_with(folder))
            || path.ends_with("src/main.rs")
            || path.contains("/tests")
    };
    let files = files();
    let libraries = files.iter().filter(|(path, _)| {
        is_rust(path) && (path.starts_with("src/") || path.contains("/src/")) && !is_program(path)
    });
    assert_none(&libraries.flat_map(|(path, text)| printing(path, text)).collect::<Vec<_>>());
}

/// Items that are `pub` and undocumented. rustc's `missing_docs` covers fields and other details.
fn undocumented_public(path: &str, text: &str) -> Vec<String> {
    const ITEMS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro"];
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(item) = line.trim_start().strip_prefix("pub ") else {
            continue;
        };
        let mut words = item.split([' ', '(', '<']).filter(|w| !["unsafe", "async"].contains(w));
        if !words.next().is_some_and(|word| ITEMS.contains(&word)) {
            continue;
        }
        // Attributes, which may take several lines, stand between documentation and item.
        let above: Vec<&str> = lines[..number].iter().rev().map(|line| line.trim()).collect();
        let end = above.iter().position(|line| line.is_empty() || line.ends_with([';', '}', '{']));
        let above = &above[..end.unwrap_or(above.len())];
        let is_hidden = above.iter().any(|line| line.contains("#[doc(hidden)]"));
        // In a macro the documentation is what its caller gives.
        const DOCUMENTATION: [&str; 3] = ["///", "#[doc", "$(#["];
        let is_documented = |line: &&str| DOCUMENTATION.iter().any(|begin| line.starts_with(begin));
        if !is_hidden && !above.iter().any(is_documented) {
            found.push(format!("{path}:{}: public and undocumented", number + 1));
        }
    }
    found
}

#[test]
fn what_is_public_is_documented() {
    let files = files();
    let is_library =
        |path: &str| is_rust(path) && (path.starts_with("src/") || path.contains("/src/"));
    let mut found: Vec<_> = files
        .iter()
        .filter(|(path, _)| is_library(path))
        .flat_map(|(path, text)| undocumented_public(path, text))
        .collect();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with("Cargo.toml")) {
        // Packages outside of the workspace.
        let is_apart = ["lab/fuzz/", "lab/mutants/", "lab/planted/switch/"]
            .iter()
            .any(|folder| path.starts_with(folder));
        if text.contains("[package]")
            && !is_apart
            && !text.contains("\n[lints]\nworkspace = true\n")
        {
            found.push(format!("{path}: does not take the lints of the workspace"));
        }
        if path == "Cargo.toml" {
            for lint in ["missing_docs = \"warn\"", "undocumented_unsafe_blocks = \"deny\""] {
                if !text.contains(&format!("\n{lint}\n")) {
                    found.push(format!("{path}: lacks {lint}"));
                }
            }
        }
    }
    assert_none(&found);
}

/// Examples in documentation that `tagmatch` re-exports must not import crates that its users don't
/// depend on.
fn foreign_imports(path: &str, text: &str) -> Vec<String> {
    const ROOMS: [&str; 12] = [
        "device",
        "model",
        "os",
        "shm",
        "verbs",
        "ucx",
        "ofi",
        "soft",
        "fallback",
        "shadow",
        "emu",
        "rdma_core_sys",
    ];
    let is_foreign = |line: &str| {
        let code = line.trim().strip_prefix("///").or(line.trim().strip_prefix("//!"));
        let import = code.and_then(|code| code.trim().strip_prefix("use tagmatch_"));
        import.is_some_and(|import| ROOMS.iter().any(|room| import.starts_with(room)))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| is_foreign(line));
    lines.map(|(number, _)| format!("{path}:{}: not `use tagmatch::`", number + 1)).collect()
}

#[test]
fn examples_import_what_users_depend_on() {
    let files = files();
    let is_of_page = |path: &str| {
        is_rust(path)
            && ["src/", "hw/", "soft/src/"].iter().any(|room| path.starts_with(room))
            && !path.contains("/tests/")
    };
    let pages = files.iter().filter(|(path, _)| is_of_page(path));
    assert_none(&pages.flat_map(|(path, text)| foreign_imports(path, text)).collect::<Vec<_>>());
}

fn bad_example(path: &str, text: &str, tests: &str) -> Vec<String> {
    let is_long = text.lines().count() > SCREEN_LINES;
    let is_run = tests.contains(&format!("\"../{path}\""));
    let found = [(is_long, "does not fit a screen"), (!is_run, "is not run by tests/examples.rs")];
    let found = found.iter().filter(|(is_bad, _)| *is_bad);
    found.map(|(_, what)| format!("{path} {what}")).collect()
}

#[test]
fn examples_fit_a_screen_and_are_run() {
    let files = files();
    let tests = fs::read_to_string(root().join("tests/examples.rs")).unwrap();
    let examples = files.iter().filter(|(path, _)| path.starts_with("examples/"));
    let found = examples.flat_map(|(path, text)| bad_example(path, text, &tests));
    assert_none(&found.collect::<Vec<_>>());
}

/// Dependencies of a manifest that no source file of the package names.
fn unused(manifest: &str, texts: &[&str]) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            continue;
        }
        let is_list = section == "dependencies" || section.ends_with("-dependencies");
        let is_list =
            is_list || section.starts_with("target.") && section.ends_with("dependencies");
        let Some((name, _)) = line.split_once('=').filter(|_| is_list) else {
            continue;
        };
        let name = name.trim().split('.').next().unwrap_or_default().replace('-', "_");
        // The provider's library has the name that libfabric asks for.
        let name = name.replace("tagmatch_provider", "tagmatch_fi");
        if !texts.iter().any(|text| text.lines().any(|line| has_word(&code(line), &name))) {
            found.push(name);
        }
    }
    found
}

#[test]
fn what_is_depended_on_is_used() {
    let files = files();
    let mut found = Vec::new();
    for (path, manifest) in files.iter().filter(|(path, _)| path.ends_with("Cargo.toml")) {
        let folder = path.trim_end_matches("Cargo.toml");
        let of_package = |file: &str| {
            const PARTS: [&str; 5] = ["src/", "tests/", "benches/", "examples/", "fuzz_targets/"];
            file.strip_prefix(folder).is_some_and(|f| PARTS.iter().any(|part| f.starts_with(part)))
        };
        let texts: Vec<&str> = files
            .iter()
            .filter(|(file, _)| is_rust(file) && of_package(file))
            .map(|(_, text)| text.as_str())
            .collect();
        found.extend(
            unused(manifest, &texts).iter().map(|name| format!("{path}: {name} is unused")),
        );
    }
    assert_none(&found);
}

/// Every rule finds the violation that it is for, and accepts correct text.
#[test]
fn the_rules_find_what_is_planted() {
    let long = "x\n".repeat(601);
    assert_eq!(too_long("a.rs", &long, "").len(), 1);
    assert_eq!(too_long("a.rs", &long, "a.rs: why\n").len(), 1);
    assert_eq!(too_long("a.rs", "x\n", "a.rs: one table that is read as a whole\n").len(), 1);
    assert!(too_long("a.rs", &long, "a.rs: one table that is read as a whole\n").is_empty());

    assert_eq!(printing("a.rs", "fn f() { eprintln!(\"x\") }\n").len(), 1);
    let tests = "// println!\n#[cfg(test)]\nmod tests { fn f() { println!() } }\n";
    assert!(printing("a.rs", tests).is_empty());

    assert_eq!(foreign_imports("a.rs", "    /// use tagmatch_device::Buffer;\n").len(), 1);
    assert!(foreign_imports("a.rs", "/// # use tagmatch_device as tagmatch;\n").is_empty());
    assert!(foreign_imports("a.rs", "use tagmatch_device::Buffer;\n").is_empty());

    let count = |text: &str| wide_comments("a.rs", text).len();
    let wide = "word ".repeat(20);
    assert_eq!(count(&format!("    // {wide}.\n    /// {wide}.\n//! {wide}.\n")), 3);
    assert_eq!(
        count(&format!("// | {wide} |\n// ```\n// {wide}.\n// ```\n// {}\n", &wide[..90])),
        0
    );

    let count = |text: &str| undocumented_unsafe("a.rs", text).len();
    assert_eq!(count("fn f() {\n    g();\n    unsafe { h() }\n}\n"), 1);
    assert_eq!(count("// SAFETY: of another.\nlet a = 1;\nlet b = unsafe { h() };\n"), 1);
    assert_eq!(count("unsafe impl Send for A {}\n"), 1);
    assert_eq!(count("/// Does.\npub unsafe fn f() {}\n"), 1);
    assert_eq!(count("// SAFETY: none needed.\nlet b =\n    unsafe { h() };\n"), 0);
    assert_eq!(count("/// # Safety\n/// None.\n#[inline]\nunsafe fn f() {}\n"), 0);
    assert_eq!(count("// unsafe { }\nlet a = \"unsafe { }\";\n"), 0);

    let count = |text, tests| bad_example("examples/a.rs", text, tests).len();
    assert_eq!(count(&long, ""), 2);
    assert_eq!(count("x\n", "#[path = \"../examples/a.rs\"]\nmod a;\n"), 0);

    let count = |text| undocumented_public("a.rs", text).len();
    assert_eq!(count("pub fn f() {}\n"), 1);
    assert_eq!(count("/// Of another.\nfn g() {}\n\npub unsafe fn f() {}\n"), 1);
    assert_eq!(count("/// Does.\n#[inline]\npub const fn f() {}\n"), 0);
    assert_eq!(count("pub(crate) fn f() {}\npub use a::b;\n"), 0);

    let manifest = "[package]\nname = \"a\"\n[dependencies]\nlibc.workspace = true\nb-c = \"1\"\n";
    assert_eq!(unused(manifest, &["use libc::c_int;\n"]), ["b_c"]);
    assert!(unused(manifest, &["libc::f(); // b_c\n", "use b_c as d;\n"]).is_empty());
}
