//! The content of a chart: curves, axes, titles.

use super::axis::Scale;

/// Curves that a reader can tell apart on a chart; more of them make another.
pub(super) const LINES_MAX: usize = 8;

/// A curve; points in order of x.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// An axis: what it shows, its unit in the label, and how.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
}

impl Axis {
    pub(crate) fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale }
    }
}

/// A chart.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// Whether single points are marked.
    pub(crate) markers: bool,
}

impl Figure {
    /// A chart whose points are marked.
    pub(crate) fn new(title: impl Into<String>, x: Axis, y: Axis, lines: Vec<Line>) -> Self {
        Self { title: title.into(), x, y, lines, markers: true }
    }
}
