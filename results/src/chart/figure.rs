//! The content of a chart: curves, axes, titles.

use super::axis::Scale;

/// Curves that a reader can tell apart on a chart; more of them make another.
pub(super) const LINES_MAX: usize = 8;

/// A curve; points in order of x.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

/// An axis: a label with the unit, and a scale.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// What the axis shows, with the unit.
    pub label: String,
    /// How values become places.
    pub scale: Scale,
}

impl Axis {
    /// An axis.
    pub fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale }
    }
}

/// A chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The title above the chart.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// At most eight lines.
    pub lines: Vec<Line>,
    /// Whether single points are marked.
    pub markers: bool,
}

impl Figure {
    /// A chart whose points are marked.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, lines: Vec<Line>) -> Self {
        Self { title: title.into(), x, y, lines, markers: true }
    }
}
