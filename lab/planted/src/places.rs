//! The items of a file, and the paths that name them.

use std::ops::Range;

use crate::tokens::Lexeme;

/// A function, constant, type, trait, macro, implementation or module.
#[derive(Debug)]
pub struct Item {
    /// The names of what it is in, and its own: `tests::Fake::send`. An implementation has the name
    /// of its type.
    pub path: String,
    /// Its tokens, from its keyword on.
    pub tokens: Range<usize>,
    /// The brace that opens its body.
    pub body: Option<usize>,
}

impl Item {
    /// Whether a path, of which the beginning may be left out, names the item.
    #[must_use]
    pub fn is_called(&self, path: &str) -> bool {
        self.path.strip_suffix(path).is_some_and(|above| above.is_empty() || above.ends_with("::"))
    }
}

/// All items of a file, those in bodies of functions too.
#[must_use]
pub fn items(tokens: &[Lexeme<'_>]) -> Vec<Item> {
    let file = File { tokens, closing: closing(tokens) };
    let mut found = Vec::new();
    file.collect(0..tokens.len(), "", &mut found);
    found
}

/// For each opening bracket the index of the one that closes it; for other tokens, their own.
fn closing(tokens: &[Lexeme<'_>]) -> Vec<usize> {
    let mut closing: Vec<usize> = (0..tokens.len()).collect();
    let mut open = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => open.push(index),
            ")" | "]" | "}" => {
                if let Some(opening) = open.pop() {
                    closing[opening] = index;
                }
            }
            _ => {}
        }
    }
    closing
}

struct File<'a> {
    tokens: &'a [Lexeme<'a>],
    closing: Vec<usize>,
}

impl<'a> File<'a> {
    fn text(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    /// Appends the items in a range of tokens. Their paths begin with `above`.
    fn collect(&self, range: Range<usize>, above: &str, found: &mut Vec<Item>) {
        let mut at = range.start;
        while at < range.end {
            let Some(name) = self.name(at) else {
                at += 1;
                continue;
            };
            let path = if above.is_empty() { name.into() } else { format!("{above}::{name}") };
            let (end, body) = self.end(at);
            if let Some(body) = body {
                self.collect(body + 1..end - 1, &path, found);
            }
            found.push(Item { path, tokens: at..end, body });
            at = end;
        }
    }

    /// The name of the item whose keyword is at this index.
    fn name(&self, at: usize) -> Option<&'a str> {
        let next = self.tokens.get(at + 1)?;
        match self.text(at) {
            "fn" | "mod" | "trait" | "struct" | "enum" if next.is_name() => Some(next.text),
            "const" | "static" => {
                let name = if next.text == "mut" { at + 2 } else { at + 1 };
                (self.text(name + 1) == ":").then(|| self.text(name))
            }
            "macro_rules" => Some(self.text(at + 2)),
            "impl" => self.implementor(at),
            _ => None,
        }
    }

    /// The name of the type that the implementation at this index is for.
    fn implementor(&self, at: usize) -> Option<&'a str> {
        let mut name = None;
        let mut depth = 0;
        for at in at + 1..self.tokens.len() {
            match self.text(at) {
                "<" => depth += 1,
                // An arrow closes nothing.
                ">" if self.text(at - 1) != "-" => depth -= 1,
                "{" | "where" if depth == 0 => break,
                "dyn" | "mut" => {}
                "for" if depth == 0 && self.text(at + 1) != "<" => name = None,
                text if depth == 0 && self.tokens[at].is_name() => name = Some(text),
                _ => {}
            }
        }
        name
    }

    /// The index after the item at this index, and its body's brace.
    fn end(&self, at: usize) -> (usize, Option<usize>) {
        let is_value = ["const", "static"].contains(&self.text(at));
        let mut index = at;
        while index < self.tokens.len() {
            match self.text(index) {
                ";" => return (index + 1, None),
                "{" if !is_value && self.closing[index] > index => {
                    return (self.closing[index] + 1, Some(index));
                }
                _ => index = self.closing[index] + 1,
            }
        }
        (self.tokens.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::items;
    use crate::tokens::tokens;

    fn paths(text: &str) -> Vec<String> {
        items(&tokens(text)).into_iter().map(|item| item.path).collect()
    }

    #[test]
    fn items_are_called_by_what_they_are_in() {
        let text = "
            const SIZE: usize = { 3 };
            static mut NAMES: [&str; 2] = [\"fn no() {}\", \"\"];
            struct Pair(u8, u8);
            enum Side { Left }
            macro_rules! twice { ($a:expr) => { fn $a() {} } }
            impl<F: Fn(u8) -> Vec<u8>, const N: usize> Device for tcp::Socket<F> where F: Send {
                fn poll(&mut self) -> impl Iterator<Item = u8> { const IN: u8 = 1; }
            }
            impl Pair { const fn sum(&self, f: fn(u8)) -> [u8; 2] { fn inner() {} } }
            trait Poll { fn poll(&self); fn rest(&self) {} }
            mod tests { mod more { fn test() {} } }";
        let expected = "SIZE NAMES Pair Side twice Socket::poll::IN Socket::poll Socket \
                        Pair::sum::inner Pair::sum Pair Poll::poll Poll::rest Poll \
                        tests::more::test tests::more tests";
        assert_eq!(paths(text).join(" "), expected);
    }

    #[test]
    fn the_beginning_of_a_path_may_be_left_out() {
        let text = "mod tests { impl Fake { fn send() {} } }";
        let found = items(&tokens(text));
        let send = &found[0];
        assert!(["tests::Fake::send", "Fake::send", "send"].iter().all(|p| send.is_called(p)));
        assert!(["end", "tests::send", "x::tests::Fake::send"].iter().all(|p| !send.is_called(p)));
    }

    #[test]
    fn text_that_is_no_rust_has_no_end() {
        for text in ["fn f(", "impl", "fn f() {", "impl<T", "const A: u8", "}}} fn g() {}"] {
            assert!(items(&tokens(text)).iter().all(|item| item.tokens.end <= tokens(text).len()));
        }
    }
}
