//! The colour of each series: the same one in all charts that are drawn together.

use super::figure::{Figure, LINES_MAX};

/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [&str; LINES_MAX] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000"];

/// The colours of names, by their place in the list. A ninth name has the colour of the first
/// again.
pub(super) struct Colours<'a>(Vec<&'a str>);

impl<'a> Colours<'a> {
    /// Colours for the names of `series`, and for those of the figures' lines that are not among
    /// them.
    pub(super) fn new(series: &'a [String], figures: &'a [Figure]) -> Self {
        let lines = figures.iter().flat_map(|figure| &figure.lines).map(|line| &line.name);
        let mut names: Vec<&str> = Vec::new();
        for name in series.iter().chain(lines) {
            if !names.contains(&&**name) {
                names.push(name);
            }
        }
        Self(names)
    }

    /// The colours of a figure's lines. A line whose colour another line has already gets the first
    /// one that is free.
    pub(super) fn of_lines(&self, figure: &Figure) -> Vec<&'static str> {
        let mut taken: Vec<&'static str> = Vec::new();
        for line in &figure.lines {
            let at = self.0.iter().position(|name| *name == line.name).unwrap_or(0);
            let own = COLOURS[at % LINES_MAX];
            let free = COLOURS.into_iter().find(|colour| !taken.contains(colour));
            taken.push(if taken.contains(&own) { free.unwrap_or(own) } else { own });
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::axis::Scale;
    use super::super::figure::{Axis, Line};
    use super::*;

    fn figure(names: &[&str]) -> Figure {
        let axis = || Axis::new("", Scale::Counts);
        let line = |name: &&str| Line { name: (*name).to_owned(), points: Vec::new() };
        Figure::new("", axis(), axis(), names.iter().map(line).collect())
    }

    #[test]
    fn a_series_has_one_colour_in_all_charts() {
        let figures = [figure(&["a", "b", "c"]), figure(&["c", "d", "a"])];
        let colours = Colours::new(&[], &figures);
        let [first, second] = figures.each_ref().map(|figure| colours.of_lines(figure));
        assert_eq!((first[2], first[0]), (second[0], second[2]));
        assert!(!first.contains(&second[1]), "d has a colour of its own");
        // Charts in other files, by the same list of names.
        let series = ["z", "b", "c"].map(str::to_owned);
        let elsewhere = [figure(&["c", "b"])];
        let all = Colours::new(&series, &figures).of_lines(&figures[0]);
        assert_eq!(Colours::new(&series, &elsewhere).of_lines(&elsewhere[0]), [all[2], all[1]]);
    }

    #[test]
    fn lines_of_one_chart_never_share_a_colour() {
        let names: Vec<_> = (0..12).map(|number| number.to_string()).collect();
        let shown: Vec<_> = [0, 8, 1, 9, 2, 10, 3, 11].map(|at: usize| &*names[at]).into();
        let figures = [figure(&shown)];
        let mut found = Colours::new(&names, &figures).of_lines(&figures[0]);
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), LINES_MAX);
    }
}
