//! Shapes of code that a reader stumbles over, and that no lint of `clippy` finds.

use super::tokens::{after_closing, all_tokens};
use super::{files, is_rust};

/// Statements `let (a, b) = (x, y);`: each value has a statement of its own.
fn joined(tokens: &[String]) -> Vec<String> {
    let is = |i: usize, token: &str| tokens.get(i).is_some_and(|t| t == token);
    let statement = |at: usize| {
        if !is(at, "let") || !is(at + 1, "(") {
            return None;
        }
        let end = after_closing(tokens, at + 1);
        let names = &tokens[at + 2..end - 1];
        let is_flat = names.iter().all(|t| t == "," || t.chars().all(super::is_name));
        let is_joined = is_flat && is(end, "=") && is(end + 1, "(");
        let is_whole = is_joined && is(after_closing(tokens, end + 1), ";");
        is_whole.then(|| format!("let ({}) = (..)", names.join(" ")))
    };
    (0..tokens.len()).filter_map(statement).collect()
}

/// Calls `.into_iter().for_each(..)`: an `if let` or a `for` says what it does.
fn for_each(tokens: &[String]) -> usize {
    let call = [".", "into_iter", "(", ")", ".", "for_each"];
    tokens.windows(call.len()).filter(|window| *window == call).count()
}

#[test]
fn each_value_has_a_statement_of_its_own() {
    let files = files();
    let rust = files.iter().filter(|(path, _)| is_rust(path));
    let found = rust.flat_map(|(path, text)| {
        let tokens = all_tokens(text);
        let joined = joined(&tokens).into_iter().map(move |what| format!("{path}: {what}"));
        let loops = (0..for_each(&tokens)).map(move |_| {
            format!("{path}: into_iter().for_each(); use `if let` for an option, `for` for others")
        });
        joined.chain(loops).collect::<Vec<_>>()
    });
    super::assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn shapes_are_found() {
    let count = |text: &str| joined(&all_tokens(text)).len();
    assert_eq!(count("let (a, mut b) = (f(1, 2), 3);"), 1);
    assert_eq!(count("let (a, b) = pair();\nlet (a, b) = (x, y).swap();\n(a, b) = (b, a);"), 0);
    assert_eq!(count("if let (Some(a), Some(b)) = (x, y) {}\n// let (a, b) = (x, y);"), 0);
    let count = |text: &str| for_each(&all_tokens(text));
    assert_eq!(count("option\n    .into_iter()\n    .for_each(drop); list.iter().for_each(f);"), 1);
}
