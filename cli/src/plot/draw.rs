//! Drawing figures: a white page, dark text, a grid that recedes, colours that people with any
//! eyesight tell apart (Okabe and Ito), the legend beside the curves and never over them.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Tick;
use super::{Figure, LINES_MAX, Line};
use crate::failure::Failure;
use crate::units::shorten;

const PANEL: (u32, u32) = (880, 500);
/// Above the charts: a line of heading each, and air.
const HEAD_PX: u32 = 24;
const HEAD_LINE_PX: u32 = 20;
/// As much of a line of heading as fits above one chart.
const HEAD_CHARS: usize = 110;
/// The legend: what is beside a name, a character of it, and how many are shown.
const LEGEND_PX: u32 = 44;
const LEGEND_CHAR_PX: u32 = 7;
const LEGEND_CHARS: usize = 44;
/// What is around a plot: title, labels, air.
const PLOT_PX: Around = Around { top: 44, right: 12, bottom: 68, left: 100 };
const FONTS: &str = "DejaVu Sans, Helvetica, Arial, sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const MUTED: RGBColor = RGBColor(0x55, 0x55, 0x55);
const GRID: RGBColor = RGBColor(0xd4, 0xd4, 0xd4);
const FINE_GRID: RGBColor = RGBColor(0xee, 0xee, 0xee);
/// The curve that is looked at first.
const STRONG: &str = "p50";
const COLOURS: [RGBColor; LINES_MAX] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0x66, 0x66, 0x66),
    RGBColor(0, 0, 0),
];

struct Around {
    top: u32,
    right: u32,
    bottom: u32,
    left: u32,
}

/// Draws `figures` below `heading`, two beside one another where there are several.
pub(crate) fn render(figures: &[Figure], heading: &[String]) -> Result<String, Failure> {
    let columns: u32 = if figures.len() > 1 { 2 } else { 1 };
    let rows = u32::try_from(figures.len()).unwrap_or(u32::MAX).div_ceil(columns).max(1);
    let size = (PANEL.0 * columns, PANEL.1.saturating_mul(rows).saturating_add(head_px(heading)));
    let mut svg = String::new();
    draw(figures, heading, size, columns, &mut svg)
        .map_err(|error| Failure::Measurement(format!("--plot: cannot draw: {error}")))?;
    Ok(svg)
}

fn head_px(heading: &[String]) -> u32 {
    let lines = u32::try_from(heading.len()).unwrap_or(0);
    HEAD_PX + HEAD_LINE_PX * lines
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(
    figures: &[Figure],
    heading: &[String],
    size: (u32, u32),
    columns: u32,
    svg: &mut String,
) -> Drawn {
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (line, y) in heading.iter().zip((16..).step_by(20)) {
        let line = shorten(line, HEAD_CHARS * columns as usize);
        root.draw(&Text::new(line, (24, y), text(13, MUTED)))?;
    }
    let (_, body) = root.split_vertically(head_px(heading));
    let rows = figures.len().div_ceil(columns as usize).max(1);
    for (figure, area) in figures.iter().zip(body.split_evenly((rows, columns as usize))) {
        panel(figure, &area)?;
    }
    root.present()
}

fn text(px: i32, colour: RGBColor) -> TextStyle<'static> {
    (FONTS, px).into_font().color(&colour)
}

/// A line's places; points that have none are left out.
fn places(figure: &Figure, line: &Line) -> Vec<(f64, f64)> {
    let place = |&(x, y): &(f64, f64)| Some((figure.x.scale.place(x)?, figure.y.scale.place(y)?));
    line.points.iter().filter_map(place).collect()
}

fn labelled(ticks: &[Tick]) -> impl Iterator<Item = (f64, String)> {
    ticks.iter().filter_map(|tick| Some((tick.at, tick.label.clone()?)))
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .fold(None, |ends, value| match ends {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        })
        .unwrap_or((0.0, 1.0))
}

fn legend_px(lines: &[Line]) -> u32 {
    let chars = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    LEGEND_PX + LEGEND_CHAR_PX * u32::try_from(chars.clamp(16, LEGEND_CHARS)).unwrap_or(0)
}

fn panel(figure: &Figure, area: &Area<'_>) -> Drawn {
    let lines = &figure.lines;
    let curves: Vec<_> = lines.iter().map(|line| places(figure, line)).collect();
    let all = || curves.iter().flatten();
    let (x, y) = (ends(all().map(|point| point.0)), ends(all().map(|point| point.1)));
    let (x0, x1) = figure.x.scale.range(x.0, x.1);
    let (y0, y1) = figure.y.scale.range(y.0, y.1);
    let (x_ticks, y_ticks) = (figure.x.scale.ticks(x0, x1), figure.y.scale.ticks(y0, y1));

    let title = text(19, INK).font.style(FontStyle::Bold).color(&INK);
    area.draw(&Text::new(shorten(&figure.title, 70), (24, 8), title))?;
    // One curve is named by the title.
    let legend_px = if lines.len() > 1 { legend_px(lines) } else { 16 };
    let (plot, legend) = area.split_horizontally(PANEL.0 - legend_px);
    let mut chart = ChartBuilder::on(&plot)
        .margin_top(PLOT_PX.top)
        .margin_left(PLOT_PX.left)
        .margin_bottom(PLOT_PX.bottom)
        .margin_right(PLOT_PX.right)
        .build_cartesian_2d(x0..x1, y0..y1)?;
    // The grid first, fine lines below strong ones, so that curves lie over both.
    for strong in [false, true] {
        let style = if strong { GRID } else { FINE_GRID }.stroke_width(1);
        let wanted = |tick: &&Tick| tick.label.is_some() == strong;
        let vertical = x_ticks.iter().filter(wanted).map(|t| [(t.at, y0), (t.at, y1)]);
        let horizontal = y_ticks.iter().filter(wanted).map(|t| [(x0, t.at), (x1, t.at)]);
        let lines = vertical.chain(horizontal);
        chart.draw_series(lines.map(|ends| PathElement::new(ends.to_vec(), style)))?;
    }
    for ((line, curve), colour) in lines.iter().zip(&curves).zip(COLOURS) {
        let width = if line.name == STRONG { 4 } else { 2 };
        chart.draw_series(LineSeries::new(curve.iter().copied(), colour.stroke_width(width)))?;
        if figure.markers {
            let markers = curve.iter().map(|&place| Circle::new(place, 3, colour.filled()));
            chart.draw_series(markers)?;
        }
    }
    let frame = vec![(x0, y1), (x0, y0), (x1, y0)];
    chart.draw_series([PathElement::new(frame, INK.stroke_width(1))])?;
    // Where a place of the chart is in its area.
    let (left, top) = plot.get_base_pixel();
    let pixel = |place: (f64, f64)| {
        let (x, y) = chart.backend_coord(&place);
        (x - left, y - top)
    };
    let placed = |px, h, v| text(px, INK).pos(Pos::new(h, v));
    let below = placed(13, HPos::Center, VPos::Top);
    for (tick, label) in labelled(&x_ticks) {
        let (x, y) = pixel((tick, y0));
        plot.draw(&Text::new(label, (x, y + 8), below.clone()))?;
    }
    let beside = placed(13, HPos::Right, VPos::Center);
    for (tick, label) in labelled(&y_ticks) {
        let (x, y) = pixel((x0, tick));
        plot.draw(&Text::new(label, (x - 8, y), beside.clone()))?;
    }
    let (middle_x, bottom) = pixel((f64::midpoint(x0, x1), y0));
    let name = placed(15, HPos::Center, VPos::Top);
    plot.draw(&Text::new(figure.x.label.clone(), (middle_x, bottom + 32), name))?;
    let (_, middle_y) = pixel((x0, f64::midpoint(y0, y1)));
    let name = placed(15, HPos::Center, VPos::Top).transform(FontTransform::Rotate270);
    plot.draw(&Text::new(figure.y.label.clone(), (12, middle_y), name))?;
    let named = if lines.len() > 1 { lines } else { &[][..] };
    for ((line, colour), y) in named.iter().zip(COLOURS).zip((52..).step_by(22)) {
        let style = colour.stroke_width(3);
        legend.draw(&PathElement::new(vec![(4, y), (26, y)], style))?;
        let beside = text(13, INK).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw(&Text::new(shorten(&line.name, LEGEND_CHARS), (34, y), beside))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Scale};
    use super::*;

    #[test]
    fn a_heading_is_as_long_as_its_charts_are_wide() {
        let axis = || Axis { label: String::new(), scale: Scale::Counts };
        let (x, y, title) = (axis(), axis(), String::new());
        let figure = Figure { title, x, y, lines: Vec::new(), markers: false };
        let heading = ["x".repeat(300)];
        for (figures, shown) in [(1, 107), (2, 217), (3, 217)] {
            let svg = render(&vec![figure.clone(); figures], &heading).unwrap();
            assert!(svg.contains(&format!("\n{}...\n", "x".repeat(shown))), "{figures}");
        }
    }
}
