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

/// The width of a column of times: of all up to 1000 seconds.
pub(crate) const US: usize = 9;

/// Nanoseconds as us with three decimals, with fewer if a column has no room for them; `-` if there is no figure.
pub(crate) fn us(ns: Option<f64>) -> String {
    let Some(ns) = ns else { return "-".to_owned() };
    let with = |decimals| format!("{:.decimals$}", ns / 1e3);
    (1..=3).rev().map(with).find(|text| text.len() <= US).unwrap_or_else(|| with(0))
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

    #[test]
    fn long_times_fit_into_their_columns() {
        let texts = [0.0, 99_999_999.4, 99_999_999.6, 393_530_437.0, 1e9, 12_345_678_900.0, 999e9]
            .map(|ns| us(Some(ns)));
        let expected =
            ["0.000", "99999.999", "100000.00", "393530.44", "1000000.0", "12345679", "999000000"];
        assert_eq!(texts, expected);
        assert!(texts.iter().all(|text| text.len() <= US));
    }
}
