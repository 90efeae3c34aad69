//! Figures and quoted text, as people read them.

use std::fmt::Display;

/// A size for a table: `0 B`, `8 B`, `4 KiB`, `1 MiB`, `1000 B`.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// A count in groups of three digits: `1 234 567`.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Three significant digits, never fewer than the whole number: `0.123`, `12.3`, `1234`.
pub fn show_3(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 || v == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Rounded to one decimal.
pub fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// The text, cut to so many characters.
pub fn shorten(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars - 3).chain("...".chars()).collect()
}

/// The error of a value that somebody has written: what it should be, the value, what is expected.
pub fn invalid(what: &str, value: impl Display, expected: impl Display) -> String {
    format!("invalid {what} `{value}`: expected {expected}")
}

/// A text without control characters. Quoted text (a file's name, a peer's message) may have some,
/// which could break the line or control the terminal.
pub fn one_line(text: impl Display) -> String {
    let text = text.to_string();
    if !text.contains(char::is_control) {
        return text;
    }
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown() {
        assert_eq!(show_size(0), "0 B");
        assert_eq!(show_size(1000), "1000 B");
        assert_eq!(show_size(1025), "1025 B");
        assert_eq!(show_size(4096), "4 KiB");
        assert_eq!(show_size(4 << 20), "4 MiB");
        assert_eq!(show_count(1), "1");
        assert_eq!(show_count(123), "123");
        assert_eq!(show_count(1_234_567), "1 234 567");
        assert_eq!(show_3(0.0), "0.00");
        assert_eq!(show_3(0.1234), "0.123");
        assert_eq!(show_3(1.234), "1.23");
        assert_eq!(show_3(99.97), "100");
        assert_eq!(show_3(12345.6), "12346");
    }

    #[test]
    fn an_error_of_a_value_says_what_is_expected() {
        let expected = "invalid size `4X`: expected a number such as 8, 4K or 1M";
        assert_eq!(invalid("size", "4X", "a number such as 8, 4K or 1M"), expected);
    }

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J\u{9b}\u{e9}"), "a\\nb\\u{1b}[2J\\u{9b}\u{e9}");
    }
}
