//! The tokens of a Rust file, as far as the rules need them.

// The file alone. The crate depends on others, which each build of this package's tests would
// build.
#[allow(dead_code, unreachable_pub)]
#[path = "../../lab/planted/src/tokens.rs"]
mod rust;

/// Identifiers, numbers, `::`, and single characters of punctuation. Comments, strings, characters,
/// lifetimes, attributes, and all items that only tests compile are left out.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    without_tests(&all_tokens(text))
}

pub(crate) fn all_tokens(text: &str) -> Vec<String> {
    let found = rust::tokens(text).into_iter();
    found.filter(|token| !token.is_quoted).map(|token| token.text.to_owned()).collect()
}

/// Index after the bracket that closes the one at `open`.
pub(crate) fn after_closing(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Whether only tests compile the item under this attribute: `cfg(test)`, or `cfg(all(..))` with
/// `test` in it.
fn is_for_tests(attribute: &[String]) -> bool {
    let is_test = |token: &String| token == "test" || token == "doctest";
    match attribute {
        [cfg, _, test, ..] if cfg == "cfg" && is_test(test) => true,
        [cfg, _, all, rest @ ..] if cfg == "cfg" && all == "all" => {
            let mut depth = 0;
            rest.iter().any(|token| {
                depth += i32::from(token == "(") - i32::from(token == ")");
                depth == 1 && is_test(token)
            })
        }
        _ => false,
    }
}

fn without_tests(tokens: &[String]) -> Vec<String> {
    let is = |i: usize, token: &str| tokens.get(i).is_some_and(|t| t == token);
    let mut found = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let inner = is(i, "#") && is(i + 1, "!") && is(i + 2, "[");
        let outer = is(i, "#") && is(i + 1, "[");
        if !inner && !outer {
            found.push(tokens[i].clone());
            i += 1;
            continue;
        }
        let open = if inner { i + 2 } else { i + 1 };
        let end = after_closing(tokens, open);
        i = end;
        if is_for_tests(&tokens[open + 1..end]) {
            if inner {
                return Vec::new();
            }
            i = after_item(tokens, end);
        }
    }
    found
}

/// Index after the item, field or statement that begins at `i`.
fn after_item(tokens: &[String], mut i: usize) -> usize {
    const ITEMS: [&str; 14] = [
        "fn", "struct", "enum", "union", "trait", "impl", "mod", "use", "const", "static", "type",
        "unsafe", "async", "extern",
    ];
    let is = |i: usize, token: &str| tokens.get(i).is_some_and(|t| t == token);
    while is(i, "#") {
        i = after_closing(tokens, i + 1);
    }
    let visibility = usize::from(is(i, "pub"));
    let first = if is(i + visibility, "(") && visibility == 1 {
        after_closing(tokens, i + 1)
    } else {
        i + visibility
    };
    let is_item = tokens.get(first).is_some_and(|token| ITEMS.contains(&token.as_str()));
    while i < tokens.len() {
        match tokens[i].as_str() {
            ";" => return i + 1,
            "," if !is_item => return i + 1,
            "}" => return i,
            "{" => return after_closing(tokens, i),
            "(" | "[" => i = after_closing(tokens, i),
            _ => i += 1,
        }
    }
    i
}
