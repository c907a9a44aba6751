//! Figures as SVG.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use plotters::prelude::*;

const SIZE: (u32, u32) = (1100, 520);

/// One colour for each switch, apart from each other also in grey.
const COLOURS: [RGBColor; 3] =
    [RGBColor(214, 96, 77), RGBColor(33, 102, 172), RGBColor(150, 150, 150)];

/// Bars in groups.
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) groups: &'a [&'a str],
    /// One value for each group.
    pub(super) series: &'a [(&'a str, Vec<f64>)],
    pub(super) logarithmic: bool,
}

/// Lines over a logarithmic x axis.
pub(super) struct Lines<'a> {
    pub(super) title: &'a str,
    pub(super) x_label: &'a str,
    pub(super) unit: &'a str,
    pub(super) series: &'a [(&'a str, Vec<(f64, f64)>)],
}

/// Writes a chart of bars.
pub(super) fn bars(path: &Path, bars: &Bars<'_>) -> anyhow::Result<()> {
    let root = canvas(path)?;
    let width = bars.series.len() as f64 + 1.0;
    let x = 0.0..width * bars.groups.len() as f64;
    let values = bars.series.iter().flat_map(|(_, values)| values).copied();
    let (low, high) = range(values, bars.logarithmic);
    let mut builder = ChartBuilder::on(&root);
    builder.caption(bars.title, ("sans-serif", 20)).margin(12);
    builder.x_label_area_size(40).y_label_area_size(60);
    let label = |at: &f64| {
        let group = (at / width).floor() as usize;
        bars.groups.get(group).map_or_else(String::new, |name| (*name).to_owned())
    };
    // The two kinds of axis are different types.
    macro_rules! draw {
        ($y:expr) => {{
            let mut chart = builder.build_cartesian_2d(x, $y).map_err(failed)?;
            let mut mesh = chart.configure_mesh();
            mesh.disable_x_mesh().x_labels(0).y_desc(bars.unit);
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
            let names = (0..bars.groups.len()).map(|group| {
                let at = (group as f64 + 0.5) * width;
                let style = ("sans-serif", 12).into_font().color(&BLACK);
                let style = style.pos(plotters::style::text_anchor::Pos::new(
                    plotters::style::text_anchor::HPos::Center,
                    plotters::style::text_anchor::VPos::Top,
                ));
                Text::new(label(&at), (at, low), style)
            });
            chart.draw_series(names).map_err(failed)?;
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
pub(super) fn lines(path: &Path, lines: &Lines<'_>) -> anyhow::Result<()> {
    let root = canvas(path)?;
    let points = || lines.series.iter().flat_map(|(_, points)| points).copied();
    let (low, high) = range(points().map(|(_, y)| y), true);
    let (left, right) = points().fold((f64::MAX, 0.0_f64), |(a, b), (x, _)| (a.min(x), b.max(x)));
    let mut chart = ChartBuilder::on(&root)
        .caption(lines.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((left..right * 1.05).log_scale(), (low..high).log_scale())
        .map_err(failed)?;
    chart.configure_mesh().x_desc(lines.x_label).y_desc(lines.unit).draw().map_err(failed)?;
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

fn canvas(path: &Path) -> anyhow::Result<Canvas<'_>> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {directory:?}"))?;
    }
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    Ok(root)
}

fn legend<'a, X: Ranged<ValueType = f64>, Y: Ranged<ValueType = f64>>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> anyhow::Result<()> {
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8));
    labels.border_style(BLACK).draw().map_err(failed)
}

/// Bounds of an axis with room for the values; a logarithmic one begins at a power of ten.
fn range(values: impl Iterator<Item = f64>, logarithmic: bool) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = finite.fold((f64::MAX, 0.0_f64), |(a, b), y| (a.min(y), b.max(y)));
    if high == 0.0 {
        return (if logarithmic { 0.1 } else { 0.0 }, 1.0);
    }
    if logarithmic { (10_f64.powf(low.log10().floor()), high * 2.0) } else { (0.0, high * 1.1) }
}

fn failed<E: std::error::Error>(error: E) -> anyhow::Error {
    anyhow!("the figure cannot be drawn: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
