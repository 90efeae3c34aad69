//! Tables whose rows are printed as they come: widths are settled before the first.

use std::fmt::Write as _;

/// A column: its heading, and how wide it is at least.
pub(crate) struct Column(pub(crate) &'static str, pub(crate) usize);

/// Columns in order, all flush right.
pub(crate) struct Table(pub(crate) &'static [Column]);

impl Table {
    /// The heading, newline-terminated.
    pub(crate) fn heading(&self) -> String {
        self.row(&self.0.iter().map(|column| column.0.to_owned()).collect::<Vec<_>>())
    }

    /// A row, newline-terminated; cells beyond the columns are left out.
    pub(crate) fn row(&self, cells: &[String]) -> String {
        let mut out = String::new();
        for (Column(heading, width), cell) in self.0.iter().zip(cells) {
            let width = (*width).max(heading.chars().count());
            let gap = if out.is_empty() { "" } else { "  " };
            write!(out, "{gap}{cell:>width$}").expect("a String takes all");
        }
        out.push('\n');
        out
    }
}

/// A text of at most so many characters.
pub(crate) fn shorten(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars - 3).chain("...".chars()).collect()
}

/// Nanoseconds as us with three decimals, `-` if there is no figure.
pub(crate) fn us(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_under_their_headings() {
        let table = Table(&[Column("size", 8), Column("min", 7), Column("messages/s", 6)]);
        let row = ["4 KiB".to_owned(), us(Some(142.4)), us(None)];
        let text = table.heading() + &table.row(&row);
        assert_eq!(text, "    size      min  messages/s\n   4 KiB    0.142           -\n");
    }
}
