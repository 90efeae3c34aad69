//! Imports stand in one order: the standard library, other crates, this crate. An empty line stands
//! between them.

use super::is_rust;

/// Which group the line that begins an import is in.
fn group(line: &str, modules: &[&str]) -> Option<u8> {
    let root = line.strip_prefix("use ")?.split([':', ';', ' ']).next()?;
    let is_own = matches!(root, "crate" | "super" | "self")
        || root.starts_with(char::is_uppercase)
        || modules.contains(&root);
    Some(if matches!(root, "std" | "core" | "alloc") { 0 } else { 1 + u8::from(is_own) })
}

/// The imports at the head of a file that are out of order.
fn out_of_order(path: &str, text: &str) -> Vec<String> {
    let modules = text.lines().filter_map(|line| {
        let (visibility, name) = line.split_once("mod ")?;
        let is_module = visibility.is_empty() || visibility.starts_with("pub");
        name.strip_suffix(';').filter(|_| is_module)
    });
    let modules: Vec<&str> = modules.collect();
    let mut found = Vec::new();
    let mut last = None;
    let mut is_apart = false;
    let mut is_inside = false;
    for (at, line) in text.lines().enumerate() {
        if is_inside {
            is_inside = !line.ends_with(';');
            continue;
        }
        if let Some(group) = group(line, &modules) {
            is_inside = !line.ends_with(';');
            let fits = last.is_none_or(|last| if is_apart { group > last } else { group == last });
            if !fits {
                found.push(format!("{path}:{}: an import out of order", at + 1));
            }
            (last, is_apart) = (Some(group), false);
        } else if line.is_empty() {
            is_apart = true;
        } else if last.is_some() && !line.starts_with("#[") && !line.starts_with("// ") {
            break;
        }
    }
    found
}

#[test]
fn imports_stand_in_one_order() {
    let files = super::files();
    let rust = files.iter().filter(|(path, _)| is_rust(path));
    let found = rust.flat_map(|(path, text)| out_of_order(path, text));
    super::assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn an_import_out_of_order_is_found() {
    let count = |text: &str| out_of_order("a.rs", text).len();
    assert_eq!(count("use std::fs;\nuse libc::c_int;\n"), 1);
    assert_eq!(count("use std::{\n    fs,\n};\n\nuse libc::c_int;\n\nuse super::b;\n"), 0);
    assert_eq!(count("use crate::a;\n\nuse std::fs;\n"), 1);
    assert_eq!(
        count("mod a;\n\nuse std::fs;\n\nuse a::b;\nuse crate::c;\n\nfn f() {}\nuse x;\n"),
        0
    );
    assert_eq!(count("use crate::a;\n\nuse super::b;\n"), 1);
}
