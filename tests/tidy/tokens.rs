//! The tokens of a Rust file, as far as the rules need them.

/// Identifiers, numbers, `::`, and single characters of punctuation. Comments, strings, characters,
/// lifetimes, attributes, and all items that only tests compile are left out.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    without_tests(&all_tokens(text))
}

pub(crate) fn all_tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let starts = |i: usize, word: &str| word.chars().enumerate().all(|(k, c)| at(i + k) == c);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        if starts(i, "//") {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if starts(i, "/*") {
            let mut depth = 0;
            while i < chars.len() {
                depth += i32::from(starts(i, "/*")) - i32::from(starts(i, "*/"));
                i += if starts(i, "/*") || starts(i, "*/") { 2 } else { 1 };
                if depth == 0 {
                    break;
                }
            }
        } else if at(i) == '"' {
            i += 1;
            while i < chars.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if at(i) == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            i += if at(i + 1) == '\\' { 3 } else { 2 };
            while i < chars.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
        } else if at(i) == '\'' {
            // A lifetime.
            i += 1;
            while is_name(at(i)) {
                i += 1;
            }
        } else if is_name(at(i)) {
            let begin = i;
            while is_name(at(i)) {
                i += 1;
            }
            let word: String = chars[begin..i].iter().collect();
            let hashes = (i..).take_while(|&k| at(k) == '#').count();
            if ["r", "br", "cr"].contains(&word.as_str()) && at(i + hashes) == '"' {
                let end = format!("\"{}", "#".repeat(hashes));
                i += hashes + 1;
                while i < chars.len() && !starts(i, &end) {
                    i += 1;
                }
                i += end.len();
            } else if !(word == "r" && at(i) == '#') {
                found.push(word);
            }
        } else {
            let is_path = starts(i, "::");
            if !at(i).is_whitespace() {
                found.push(if is_path { "::".into() } else { at(i).to_string() });
            }
            i += if is_path { 2 } else { 1 };
        }
    }
    found
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
