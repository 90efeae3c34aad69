//! The tokens of a Rust file, and where each stands.

/// Part of a file: a name, a number, `::`, one character of punctuation, or a literal in quotes.
#[derive(Debug, Clone, Copy)]
pub struct Lexeme<'a> {
    /// The token as it stands in the file.
    pub text: &'a str,
    /// The offset of its first byte.
    pub at: usize,
    /// Whether it is a string, a character or a lifetime.
    pub is_quoted: bool,
}

impl Lexeme<'_> {
    /// The offset after its last byte.
    #[must_use]
    pub fn end(&self) -> usize {
        self.at + self.text.len()
    }

    /// Whether it is a name, a keyword or a number.
    #[must_use]
    pub fn is_name(&self) -> bool {
        !self.is_quoted && self.text.starts_with(is_name)
    }
}

/// The tokens of a text. Comments are left out. A literal that doesn't end reaches to the end.
#[must_use]
pub fn tokens(text: &str) -> Vec<Lexeme<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let comment = comment(rest);
        let quoted = quoted(rest);
        let length = if let Some(length) = comment.or(quoted) {
            length
        } else if is_name(first) {
            // A raw name has a prefix.
            let prefix = if rest.starts_with("r#") { 2 } else { 0 };
            prefix + length_while(&rest[prefix..], is_name)
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if comment.is_none() && !first.is_whitespace() {
            found.push(Lexeme { text: &rest[..length], at, is_quoted: quoted.is_some() });
        }
        at += length;
    }
    found
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn length_while(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// The length of the comment that the text begins with.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let mut depth = 0;
    let mut at = 0;
    text.starts_with("/*").then_some(())?;
    while at < text.len() {
        let marks = text.as_bytes().get(at..at + 2);
        depth += i32::from(marks == Some(b"/*")) - i32::from(marks == Some(b"*/"));
        at += if matches!(marks, Some(b"/*" | b"*/")) { 2 } else { 1 };
        if depth == 0 {
            return Some(at);
        }
    }
    Some(text.len())
}

/// The length of the string, character or lifetime that the text begins with.
fn quoted(text: &str) -> Option<usize> {
    if let Some(rest) = ["br", "cr", "r"].iter().find_map(|prefix| text.strip_prefix(prefix)) {
        let hashes = length_while(rest, |c| c == '#');
        if rest[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = text.len() - rest.len() + hashes + 1;
            let inside = text[begin..].find(&end);
            return Some(inside.map_or(text.len(), |inside| begin + inside + end.len()));
        }
        return None;
    }
    let mut chars = text.char_indices();
    let (_, quote) = chars.next()?;
    if quote == '\'' {
        let first = chars.clone().next()?.1;
        let is_char = first == '\\' || chars.clone().nth(1).is_some_and(|(_, c)| c == '\'');
        if !is_char {
            return Some(1 + length_while(&text[1..], is_name));
        }
    } else if quote != '"' {
        return None;
    }
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::tokens;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| token.text).collect()
    }

    #[test]
    fn literals_are_one_token_and_comments_none() {
        let text =
            "a::b /* x /* y */ z */ \"q\\\" // no\" 'c' '\\'' 'life r#\"raw \" raw\"# r#fn // end";
        let expected = [
            "a",
            "::",
            "b",
            "\"q\\\" // no\"",
            "'c'",
            "'\\''",
            "'life",
            "r#\"raw \" raw\"#",
            "r#fn",
        ];
        assert_eq!(texts(text), expected);
        assert_eq!(texts("x&&!y->Grüße"), ["x", "&", "&", "!", "y", "-", ">", "Grüße"]);
    }

    #[test]
    fn each_token_says_where_it_stands() {
        let text = "// ä\nlet r = b'x'; /* ü */ 'ö'";
        for token in tokens(text) {
            assert_eq!(&text[token.at..token.end()], token.text);
        }
    }

    #[test]
    fn a_literal_that_does_not_end_reaches_to_the_end() {
        for text in ["\"a", "r#\"a\"", "/* a", "'\\", "'", "\"\\"] {
            let end = tokens(text).last().map_or(text.len(), super::Lexeme::end);
            assert_eq!(end, text.len());
        }
    }
}
