//! Draws charts as SVG: a white page, dark text, a light grid, and the legend beside the curves,
//! never over them.

use super::axis::Tick;
use super::colours::Colours;
use super::figure::{Figure, Line};
use crate::show::shorten;

/// Width and height of a chart with all around it.
const PANEL: (f64, f64) = (880.0, 500.0);
/// Space above the charts, and for each line of the heading.
const HEAD_PX: f64 = 24.0;
const HEAD_LINE_PX: f64 = 20.0;
/// Characters of a heading's line that fit above one chart.
const HEAD_CHARS: usize = 110;
const TITLE_CHARS: usize = 70;
/// Width of the legend: its sample of the curve, and a character of a name; characters that are
/// shown.
const LEGEND_PX: f64 = 44.0;
const LEGEND_CHAR_PX: f64 = 8.0;
const LEGEND_CHARS: usize = 44;
/// Space around the plot, for the title, the labels and the axes' names.
const TOP: f64 = 44.0;
const RIGHT: f64 = 12.0;
const BOTTOM: f64 = 68.0;
const LEFT: f64 = 100.0;
const INK: &str = "#222222";
const MUTED: &str = "#555555";
const GRID: &str = "#d4d4d4";
const FINE_GRID: &str = "#eeeeee";
/// The curves that stand out: the median, and this library beside others.
const STRONG: [&str; 2] = ["p50", "tagmatch"];

/// Draws `figures` below `heading`, two side by side if there are several. A name of a line has one
/// colour in all of them; names of `series` have those of every page that is drawn with this list.
pub fn render(figures: &[Figure], heading: &[String], series: &[String]) -> String {
    let colours = Colours::new(series, figures);
    let columns = if figures.len() > 1 { 2 } else { 1 };
    let rows = figures.len().div_ceil(columns).max(1);
    let head = HEAD_PX + HEAD_LINE_PX * heading.len() as f64;
    let width = PANEL.0 * columns as f64;
    let height = PANEL.1 * rows as f64 + head;
    let mut svg = Svg::default();
    for (line, y) in heading.iter().zip((0u32..).map(|at| HEAD_PX + HEAD_LINE_PX * f64::from(at))) {
        let line = shorten(line, HEAD_CHARS * columns);
        svg.text((24.0, y + 4.0), &line, "start", &format!("font-size=\"13\" fill=\"{MUTED}\""));
    }
    for (at, figure) in figures.iter().enumerate() {
        let corner = ((at % columns) as f64 * PANEL.0, head + (at / columns) as f64 * PANEL.1);
        panel(&mut svg, figure, &colours.of_lines(figure), corner);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" \
         font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
        svg.0
    )
}

/// The elements of a page so far.
#[derive(Default)]
struct Svg(String);

impl Svg {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.0 += &format!("{element}\n");
    }

    /// Text whose baseline is at `at`; `anchor` says which end of it is there: start, middle or
    /// end.
    fn text(&mut self, (x, y): (f64, f64), text: &str, anchor: &str, style: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{text}</text>"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: u32) {
        self.polyline(&[from, to], colour, width);
    }

    fn polyline(&mut self, points: &[(f64, f64)], colour: &str, width: u32) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            points.join(" ")
        ));
    }

    fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        self.add(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
    }
}

/// Text that stands for itself in XML. Control characters, which XML forbids, were taken out
/// before.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The places of a line's points on both axes; a point that has none is left out.
fn places(figure: &Figure, line: &Line) -> Vec<(f64, f64)> {
    let place = |&(x, y): &(f64, f64)| Some((figure.x.scale.place(x)?, figure.y.scale.place(y)?));
    line.points.iter().filter_map(place).collect()
}

fn labelled(ticks: &[Tick]) -> impl Iterator<Item = (f64, &str)> {
    ticks.iter().filter_map(|tick| Some((tick.at, tick.label.as_deref()?)))
}

fn least_and_most(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = values.map(|value| (value, value));
    let ends = ends.reduce(|(low, high), (value, _)| (low.min(value), high.max(value)));
    ends.unwrap_or((0.0, 1.0))
}

/// The width of the legend. A single curve has none: the title names it.
fn legend_px(lines: &[Line]) -> f64 {
    if lines.len() < 2 {
        return 16.0;
    }
    let chars = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    LEGEND_PX + LEGEND_CHAR_PX * chars.clamp(16, LEGEND_CHARS) as f64
}

fn panel(svg: &mut Svg, figure: &Figure, colours: &[&str], corner: (f64, f64)) {
    let lines = &figure.lines;
    let curves: Vec<_> = lines.iter().map(|line| places(figure, line)).collect();
    let all = || curves.iter().flatten();
    let x_ends = least_and_most(all().map(|point| point.0));
    let y_ends = least_and_most(all().map(|point| point.1));
    let (x0, x1) = figure.x.scale.range(x_ends.0, x_ends.1);
    let (y0, y1) = figure.y.scale.range(y_ends.0, y_ends.1);
    let x_ticks = figure.x.scale.ticks(x0, x1);
    let y_ticks = figure.y.scale.ticks(y0, y1);
    let left = corner.0 + LEFT;
    let right = corner.0 + PANEL.0 - RIGHT - legend_px(lines);
    let top = corner.1 + TOP;
    let bottom = corner.1 + PANEL.1 - BOTTOM;
    let x_px = |x: f64| left + (x - x0) / (x1 - x0) * (right - left);
    let y_px = |y: f64| bottom - (y - y0) / (y1 - y0) * (bottom - top);

    let style = format!("font-size=\"19\" font-weight=\"bold\" fill=\"{INK}\"");
    svg.text(
        (corner.0 + 24.0, corner.1 + 24.0),
        &shorten(&figure.title, TITLE_CHARS),
        "start",
        &style,
    );
    // Fine lines of the grid below strong ones, curves over both.
    for (colour, is_strong) in [(FINE_GRID, false), (GRID, true)] {
        for tick in x_ticks.iter().filter(|tick| tick.label.is_some() == is_strong) {
            svg.line((x_px(tick.at), top), (x_px(tick.at), bottom), colour, 1);
        }
        for tick in y_ticks.iter().filter(|tick| tick.label.is_some() == is_strong) {
            svg.line((left, y_px(tick.at)), (right, y_px(tick.at)), colour, 1);
        }
    }
    svg.polyline(&[(left, top), (left, bottom), (right, bottom)], INK, 1);
    for ((line, curve), colour) in lines.iter().zip(&curves).zip(colours) {
        let points: Vec<_> = curve.iter().map(|&(x, y)| (x_px(x), y_px(y))).collect();
        svg.polyline(&points, colour, if STRONG.contains(&&*line.name) { 4 } else { 2 });
        points.iter().filter(|_| figure.markers).for_each(|&point| svg.dot(point, colour));
    }
    let small = format!("font-size=\"13\" fill=\"{INK}\"");
    for (at, label) in labelled(&x_ticks) {
        svg.text((x_px(at), bottom + 20.0), label, "middle", &small);
    }
    for (at, label) in labelled(&y_ticks) {
        svg.text((left - 8.0, y_px(at) + 4.5), label, "end", &small);
    }
    let style = format!("font-size=\"15\" fill=\"{INK}\"");
    let middle = f64::midpoint(left, right);
    svg.text((middle, bottom + 46.0), &figure.x.label, "middle", &style);
    let x = corner.0 + 24.0;
    let y = f64::midpoint(top, bottom);
    let turned = format!("{style} transform=\"rotate(-90 {x:.1} {y:.1})\"");
    svg.text((x, y), &figure.y.label, "middle", &turned);
    let named = lines.iter().zip(colours).filter(|_| lines.len() > 1);
    let entries = (0u32..).map(|at| top + 8.0 + 22.0 * f64::from(at));
    for ((line, colour), y) in named.zip(entries) {
        let x = right + RIGHT + 4.0;
        svg.line((x, y), (x + 22.0, y), colour, 3);
        svg.text((x + 30.0, y + 4.5), &shorten(&line.name, LEGEND_CHARS), "start", &small);
    }
}

#[cfg(test)]
mod tests {
    use super::super::axis::Scale;
    use super::super::figure::Axis;
    use super::*;

    #[test]
    fn a_heading_is_as_long_as_its_charts_are_wide() {
        let axis = || Axis { label: String::new(), scale: Scale::Counts };
        let x = axis();
        let y = axis();
        let title = String::new();
        let figure = Figure { title, x, y, lines: Vec::new(), markers: false };
        let heading = ["x".repeat(300)];
        for (figures, shown) in [(1, 107), (2, 217), (3, 217)] {
            let svg = render(&vec![figure.clone(); figures], &heading, &[]);
            assert!(svg.contains(&format!(">{}...<", "x".repeat(shown))), "{figures}");
        }
    }
}
