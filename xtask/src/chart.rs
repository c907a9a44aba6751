//! Figures as SVG.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Of a chart of lines; one of bars is as wide as its groups need.
const SIZE: (u32, u32) = (900, 520);

/// What a group of bars takes at least: its name, in lines of so many letters, stands under it.
const GROUP_WIDTH: u32 = 88;
const NAME_LETTERS: usize = 12;

/// One colour for each series; the first three, one for each switch, also differ in grey.
const COLOURS: [RGBColor; 6] = [
    RGBColor(214, 96, 77),
    RGBColor(33, 102, 172),
    RGBColor(150, 150, 150),
    RGBColor(244, 165, 130),
    RGBColor(146, 197, 222),
    RGBColor(64, 64, 64),
];

/// Bars in groups.
pub(crate) struct Bars<'a> {
    pub(crate) title: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) groups: &'a [&'a str],
    /// One value for each group.
    pub(crate) series: &'a [(&'a str, Vec<f64>)],
    pub(crate) logarithmic: bool,
}

/// Lines over a logarithmic x axis.
pub(crate) struct Lines<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) series: &'a [(&'a str, Vec<(f64, f64)>)],
}

/// Writes a chart of bars.
pub(crate) fn bars(path: &Path, bars: &Bars<'_>) -> anyhow::Result<()> {
    let groups = bars.groups.len() as u32;
    let root = canvas(path, (SIZE.0.max(140 + GROUP_WIDTH * groups), SIZE.1))?;
    let width = bars.series.len() as f64 + 1.0;
    let x = 0.0..width * bars.groups.len() as f64;
    let values = bars.series.iter().flat_map(|(_, values)| values).copied();
    let (low, high) = range(values, bars.logarithmic);
    let mut builder = ChartBuilder::on(&root);
    builder.caption(bars.title, ("sans-serif", 24)).margin(12);
    builder.x_label_area_size(64).y_label_area_size(72);
    let names: Vec<_> = bars.groups.iter().map(|name| lines_of(name)).collect();
    // The two kinds of axis are different types.
    macro_rules! draw {
        ($y:expr) => {{
            let mut chart = builder.build_cartesian_2d(x, $y).map_err(failed)?;
            let mut mesh = chart.configure_mesh();
            mesh.disable_x_mesh().x_labels(0).y_desc(bars.unit).label_style(("sans-serif", 16));
            mesh.y_label_formatter(&number);
            mesh.draw().map_err(failed)?;
            for (number, (name, values)) in bars.series.iter().enumerate() {
                let colour = COLOURS[number % COLOURS.len()];
                let drawn = values.iter().enumerate().filter(|(_, value)| value.is_finite());
                let rectangles = drawn.map(|(group, value)| {
                    let left = group as f64 * width + number as f64 + 0.5;
                    Rectangle::new([(left, low), (left + 0.95, value.max(low))], colour.filled())
                });
                chart.draw_series(rectangles).map_err(failed)?.label(*name).legend(
                    move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()),
                );
            }
            let style = ("sans-serif", 16).into_font().color(&BLACK);
            let style = style.pos(Pos::new(HPos::Center, VPos::Top));
            for (group, name) in names.iter().enumerate() {
                let at = chart.backend_coord(&((group as f64 + 0.5) * width, low));
                for (line, text) in (0..).zip(name) {
                    root.draw_text(text, &style, (at.0, at.1 + 6 + 16 * line)).map_err(failed)?;
                }
            }
            legend(&mut chart)?;
        }};
    }
    if bars.logarithmic {
        draw!((low..high).log_scale());
    } else {
        draw!(low..high);
    }
    root.present().map_err(failed)
}

/// Writes a chart of lines, both axes logarithmic.
pub(crate) fn lines(path: &Path, lines: &Lines<'_>) -> anyhow::Result<()> {
    let root = canvas(path, SIZE)?;
    let points = || lines.series.iter().flat_map(|(_, points)| points).copied();
    let (low, high) = range(points().map(|(_, y)| y), true);
    let (left, right) = points().fold((f64::MAX, 0.0_f64), |(a, b), (x, _)| (a.min(x), b.max(x)));
    let mut chart = ChartBuilder::on(&root)
        .caption(lines.title, ("sans-serif", 24))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d((left..right * 1.05).log_scale(), (low..high).log_scale())
        .map_err(failed)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(lines.x_label).y_desc(lines.unit).label_style(("sans-serif", 16));
    mesh.x_label_formatter(&number).y_label_formatter(&number).draw().map_err(failed)?;
    for (number, (name, points)) in lines.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let finite: Vec<_> = points.iter().copied().filter(|(_, y)| y.is_finite()).collect();
        let dots = finite.iter().map(|point| Circle::new(*point, 4, colour.filled()));
        chart.draw_series(dots).map_err(failed)?;
        chart
            .draw_series(LineSeries::new(finite.iter().copied(), colour.stroke_width(2)))
            .map_err(failed)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    legend(&mut chart)?;
    root.present().map_err(failed)
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn canvas(path: &Path, size: (u32, u32)) -> anyhow::Result<Canvas<'_>> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {directory:?}"))?;
    }
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    Ok(root)
}

fn legend<'a, X: Ranged<ValueType = f64>, Y: Ranged<ValueType = f64>>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> anyhow::Result<()> {
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8));
    labels.label_font(("sans-serif", 16)).border_style(BLACK).draw().map_err(failed)
}

/// An axis's number without zeros that say nothing.
fn number(value: &f64) -> String {
    if *value >= 10.0 { format!("{value:.0}") } else { format!("{}", (value * 1e3).round() / 1e3) }
}

/// A name in lines that fit under its group, broken between words.
fn lines_of(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= NAME_LETTERS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Bounds of an axis with room for the values and, above them, for the legend; a logarithmic one
/// begins at a power of ten.
fn range(values: impl Iterator<Item = f64>, logarithmic: bool) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = finite.fold((f64::MAX, 0.0_f64), |(a, b), y| (a.min(y), b.max(y)));
    if high == 0.0 {
        return (if logarithmic { 0.1 } else { 0.0 }, 1.0);
    }
    if logarithmic { (10_f64.powf(low.log10().floor()), high * 8.0) } else { (0.0, high * 1.3) }
}

fn failed<E: std::error::Error>(error: E) -> anyhow::Error {
    anyhow!("the figure cannot be drawn: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_broken_between_words() {
        assert_eq!(lines_of("new flow per packet"), ["new flow per", "packet"]);
        assert_eq!(lines_of("alone"), ["alone"]);
        assert_eq!([0.1, 2.0, 1e3].map(|value| number(&value)), ["0.1", "2", "1000"]);
    }

    #[test]
    fn charts_are_drawn_whatever_is_missing() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("bars.svg");
        let series = [("a", vec![1.0, f64::NAN]), ("b", vec![100.0, 3.0])];
        let chart = Bars {
            title: "t",
            unit: "us",
            groups: &["x", "y"],
            series: &series,
            logarithmic: true,
        };
        bars(&path, &chart)?;
        assert!(std::fs::read_to_string(&path)?.contains("<rect"));
        let series = [("a", vec![(1.0, 2.0), (8.0, f64::NAN)]), ("b", vec![])];
        lines(&path, &Lines { title: "t", x_label: "x", unit: "us", series: &series })?;
        assert!(std::fs::read_to_string(&path)?.contains("</svg>"));
        Ok(())
    }
}
