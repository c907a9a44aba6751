//! Tables, raw samples and charts of a comparison.

use std::fs::File;
use std::path::Path;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::bench::{Sample, WARM};
use super::row::{Kind, Row};
use crate::chart::{self, Bars};
use crate::raw::csv_file;
use crate::spread::Spread;

/// Names of switches and of our own generator in samples.
pub(super) const TOLLGATE: &str = "Tollgate";
pub(super) const OVS: &str = "OVS-DPDK";
pub(super) const OURS: &str = "tollgate-guest";
/// Stands where a switch's name does.
pub(super) const FLOOR: &str = "floor";
const OTHER: &str = "other";

/// A core that is taken away for longer than this shows in the figures of its run.
const GAP_US: f64 = 1000.0;

/// A thread is the limit when it is idle for less of the time; what is left are polls that came in
/// between two bursts.
const BUSY_PERCENT: f64 = 90.0;

/// Fewer completed requests than this hide how late the others were.
const COMPLETED_PERCENT: f64 = 99.0;

/// Two generators agree on a ratio when the medians differ by less than this factor, or the ranges
/// overlap.
const AGREEMENT: f64 = 1.15;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    Cycles,
    Mpps,
    MissPmd,
    MissAll,
    P50,
    P99,
}

impl Figure {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Cycles => "cycles per packet",
            Self::Mpps => "Mpps",
            Self::MissPmd => "PMD cycles per miss",
            Self::MissAll => "PMD and slow-path cycles per miss",
            Self::P50 => "p50",
            Self::P99 => "p99",
        }
    }

    fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::Cycles => sample.cycles_per_packet,
            Self::Mpps => sample.mpps,
            Self::MissPmd => sample.cycles_per_miss,
            Self::MissAll => sample.cycles_per_miss_with_slow_path,
            Self::P50 => sample.p50_us,
            Self::P99 => sample.p99_us,
        }
    }

    /// What a row is about.
    fn of_kind(kind: Kind) -> [Self; 2] {
        match kind {
            Kind::Throughput => [Self::Cycles, Self::Mpps],
            Kind::RoundTrips => [Self::P50, Self::P99],
            Kind::Misses => [Self::MissPmd, Self::MissAll],
        }
    }
}

/// What kept a throughput from being higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Generator,
    Switch,
    /// Neither had no time: they waited for each other, or for memory that both use.
    Neither,
}

impl Limit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Switch => "switch",
            Self::Neither => "neither",
        }
    }
}

/// The samples of a row by one generator.
pub(super) fn of_row<'a>(samples: &'a [Sample], row: &str, generator: &str) -> Vec<&'a Sample> {
    samples.iter().filter(|s| s.row == row && s.generator == generator).collect()
}

fn spread(samples: &[&Sample], switch: &str, of: impl Fn(&Sample) -> f64) -> Option<Spread> {
    let own = samples.iter().filter(|s| s.switch == switch).map(|s| of(s));
    Spread::of(own.filter(|value| value.is_finite()))
}

/// Our figure over theirs, within each pair: drift of the machine cancels.
pub(super) fn ratios(samples: &[&Sample], figure: Figure) -> Option<Spread> {
    let value = |switch: &str, pair: u32| {
        let found = samples.iter().find(|s| s.switch == switch && s.pair == pair);
        found.map(|s| figure.of(s))
    };
    let pairs = samples.iter().filter(|s| s.switch == TOLLGATE).map(|s| s.pair);
    let ratios = pairs.filter_map(|pair| Some(value(TOLLGATE, pair)? / value(OVS, pair)?));
    Spread::of(ratios.filter(|ratio| ratio.is_finite()))
}

/// Who was the limit, by the medians of the busy parts.
pub(super) fn limit(samples: &[&Sample], switch: &str) -> Limit {
    let is_busy = |of: fn(&Sample) -> f64| {
        spread(samples, switch, of).is_some_and(|busy| busy.median >= BUSY_PERCENT)
    };
    if is_busy(|s| s.pmd_busy_percent) {
        Limit::Switch
    } else if is_busy(|s| s.generator_busy_percent) {
        Limit::Generator
    } else {
        Limit::Neither
    }
}

/// Why a row's figures are not to be judged, if so.
pub(super) fn invalid(samples: &[&Sample]) -> Option<&'static str> {
    let any = |wrong: &dyn Fn(&Sample) -> bool| samples.iter().any(|sample| wrong(sample));
    if any(&|s| s.mpps.is_finite() && s.uncached_percent > 100.0 * WARM) {
        return Some("not every flow was cached");
    }
    if any(&|s| s.p99_us.is_finite() && s.completed_percent < COMPLETED_PERCENT) {
        return Some("requests were left out");
    }
    None
}

/// Median and range of every figure, and the ratio of the two switches pair by pair.
pub(super) fn tables(samples: &[Sample], rows: &[Row]) -> String {
    let mut parts = Vec::new();
    let of_kind = |kind: Kind| rows.iter().filter(move |row| row.kind == kind);
    if of_kind(Kind::Throughput).next().is_some() {
        parts.push(throughput(samples, of_kind(Kind::Throughput)).to_string());
    }
    for kind in [Kind::RoundTrips, Kind::Misses] {
        if of_kind(kind).next().is_some() {
            parts.push(pairs_of_figures(samples, kind, of_kind(kind)).to_string());
        }
    }
    parts.push(ratio_table(samples, rows).to_string());
    let runs = samples.iter().filter(|s| s.switch != FLOOR);
    let disturbed = runs.clone().filter(|s| s.generator_loop_max_us > GAP_US).count();
    parts.push(format!("{disturbed} of {} runs lost their generator for over 1 ms.", runs.count()));
    for row in rows {
        if let Some(why) = invalid(&of_row(samples, row.name, OURS)) {
            parts.push(format!("{}: {why}; its figures say nothing.", row.name));
        }
    }
    parts.join("\n\n")
}

fn empty(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    table
}

fn shown(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{spread:.digits$}"))
}

fn throughput<'a>(samples: &[Sample], rows: impl Iterator<Item = &'a Row>) -> Table {
    let mut table = empty(&[
        "VM to VM",
        "",
        "Mpps",
        "cycles per packet",
        "packets per burst",
        "PMD busy %",
        "generator busy %",
        "limit",
    ]);
    for row in rows {
        let own = of_row(samples, row.name, OURS);
        let floor = row.has_floor().then_some((FLOOR, ""));
        for (switch, title) in [(TOLLGATE, row.title), (OVS, "")].into_iter().chain(floor) {
            let of = |figure: fn(&Sample) -> f64| spread(&own, switch, figure);
            let percent = |figure| {
                of(figure)
                    .map_or_else(|| "-".to_owned(), |busy: Spread| format!("{:.0}", busy.median))
            };
            let limit = if switch == FLOOR { "-" } else { limit(&own, switch).name() };
            table.add_row([
                title.to_owned(),
                switch.to_owned(),
                shown(of(|s| s.mpps), 2),
                shown(of(|s| s.cycles_per_packet), 0),
                shown(of(|s| s.packets_per_burst), 1),
                percent(|s| s.pmd_busy_percent),
                percent(|s| s.generator_busy_percent),
                limit.to_owned(),
            ]);
        }
    }
    table
}

fn pairs_of_figures<'a>(
    samples: &[Sample],
    kind: Kind,
    rows: impl Iterator<Item = &'a Row>,
) -> Table {
    let figures = Figure::of_kind(kind);
    let [first, second] = figures.map(Figure::title);
    let (unit, digits) = if kind == Kind::RoundTrips { (", us", 2) } else { ("", 0) };
    let mut table = empty(&["", "", &format!("{first}{unit}"), &format!("{second}{unit}")]);
    for row in rows {
        let own = of_row(samples, row.name, OURS);
        for (switch, title) in [(TOLLGATE, row.title), (OVS, "")] {
            let [first, second] =
                figures.map(|figure| shown(spread(&own, switch, |s| figure.of(s)), digits));
            table.add_row([title.to_owned(), switch.to_owned(), first, second]);
        }
    }
    table
}

fn ratio_table(samples: &[Sample], rows: &[Row]) -> Table {
    let mut table = empty(&["Tollgate / OVS-DPDK, within pairs", "cost or latency", "Mpps or p99"]);
    for row in rows {
        let own = of_row(samples, row.name, OURS);
        let cells = Figure::of_kind(row.kind).map(|figure| {
            let unit = if row.kind == Kind::Throughput { "" } else { figure.title() };
            format!("{} {unit}", shown(ratios(&own, figure), 2)).trim().to_owned()
        });
        let [first, second] = cells;
        table.add_row([row.title.to_owned(), first, second]);
    }
    table
}

/// What the other generator saw of the rows that it can send, and whether both say the same.
pub(super) fn agreement(samples: &[Sample], rows: &[Row]) -> Table {
    let mut table =
        empty(&["Tollgate / OVS-DPDK", "", "tollgate-guest", "the other generator", ""]);
    for row in rows.iter().filter(|row| row.by_others) {
        for figure in Figure::of_kind(row.kind) {
            let ratio = |generator| ratios(&of_row(samples, row.name, generator), figure);
            let (own, other) = (ratio(OURS), ratio(OTHER));
            let agreed = own.zip(other).is_some_and(|(own, other)| agree(own, other));
            table.add_row([
                row.title.to_owned(),
                figure.title().to_owned(),
                shown(own, 2),
                shown(other, 2),
                if agreed { "agree" } else { "DIFFER" }.to_owned(),
            ]);
        }
    }
    table
}

fn agree(one: Spread, other: Spread) -> bool {
    let factor = one.median / other.median;
    let near = (1.0 / AGREEMENT..=AGREEMENT).contains(&factor);
    near || (one.min <= other.max && other.min <= one.max)
}

/// Draws one chart for each kind of row that was measured.
pub(super) fn draw(samples: &[Sample], rows: &[Row], out: &Path) -> anyhow::Result<()> {
    let throughput =
        ["Cycles per packet of the PMD (lower is better)", "Throughput (higher is better)"];
    let charts = [
        (Kind::Throughput, throughput, ["cycles", "million frames a second"], ["cycles", "mpps"]),
        (
            Kind::RoundTrips,
            ["Round trip, one in flight: median (lower is better)", "Round trip: 99th percentile"],
            ["us", "us"],
            ["trips-p50", "trips-p99"],
        ),
        (
            Kind::Misses,
            ["A flow's set-up: PMD (lower is better)", "A flow's set-up: PMD and slow path"],
            ["cycles", "cycles"],
            ["misses-pmd", "misses"],
        ),
    ];
    for (kind, titles, units, files) in charts {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        if rows.is_empty() {
            continue;
        }
        let names: Vec<&str> = rows.iter().map(|row| row.title).collect();
        for (number, figure) in Figure::of_kind(kind).into_iter().enumerate() {
            let medians = |switch: &str| {
                let median = |row: &&Row| {
                    let own = of_row(samples, row.name, OURS);
                    spread(&own, switch, |s| figure.of(s)).map_or(f64::NAN, |s| s.median)
                };
                rows.iter().map(median).collect::<Vec<f64>>()
            };
            let bars = Bars {
                title: titles[number],
                unit: units[number],
                groups: &names,
                series: &[(TOLLGATE, medians(TOLLGATE)), (OVS, medians(OVS))],
                logarithmic: figure == Figure::Cycles,
            };
            chart::bars(&out.join(format!("{}.svg", files[number])), &bars)?;
        }
    }
    Ok(())
}

/// One line for every run.
pub(super) struct Csv(csv::Writer<File>);

impl Csv {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut csv = csv_file(path)?;
        csv.write_record([
            "row",
            "pair",
            "switch",
            "generator",
            "mpps",
            "cycles_per_packet",
            "packets_per_burst",
            "pmd_busy_percent",
            "generator_busy_percent",
            "uncached_percent",
            "pmd_cycles_per_miss",
            "pmd_and_slow_path_cycles_per_miss",
            "p50_us",
            "p99_us",
            "completed_percent",
            "generator_loop_p99_us",
            "generator_loop_max_us",
            "core_to_core_cycles",
        ])?;
        Ok(Self(csv))
    }

    /// Written at once, so that an interrupted run leaves what it has measured.
    pub(super) fn write(&mut self, s: &Sample) -> anyhow::Result<()> {
        let [row, switch, generator] = [s.row, s.switch, s.generator].map(str::to_owned);
        let figures = [
            s.mpps,
            s.cycles_per_packet,
            s.packets_per_burst,
            s.pmd_busy_percent,
            s.generator_busy_percent,
            s.uncached_percent,
            s.cycles_per_miss,
            s.cycles_per_miss_with_slow_path,
            s.p50_us,
            s.p99_us,
            s.completed_percent,
            s.generator_loop_p99_us,
            s.generator_loop_max_us,
            s.core_to_core_cycles,
        ];
        // What was not measured is empty.
        let figure =
            |value: f64| if value.is_finite() { format!("{value:.4}") } else { String::new() };
        let record = [row, s.pair.to_string(), switch, generator].into_iter();
        self.0.write_record(record.chain(figures.map(figure)))?;
        Ok(self.0.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_agree_by_median_or_by_range() {
        let spread = |min, median, max| Spread { median, min, max };
        assert!(agree(spread(0.5, 0.5, 0.5), spread(0.55, 0.55, 0.55)));
        assert!(agree(spread(0.4, 0.5, 0.9), spread(0.8, 0.8, 0.8)));
        assert!(!agree(spread(0.4, 0.5, 0.6), spread(0.7, 0.8, 0.9)));
    }

    #[test]
    fn ratios_are_taken_within_pairs_and_the_limit_is_named() -> anyhow::Result<()> {
        let sample = |switch, pair, mpps: f64, pmd_busy_percent| Sample {
            row: "size-64",
            pair,
            switch,
            generator: OURS,
            mpps,
            cycles_per_packet: 100.0,
            packets_per_burst: 32.0,
            pmd_busy_percent,
            generator_busy_percent: 99.0,
            uncached_percent: 0.0,
            cycles_per_miss: f64::NAN,
            cycles_per_miss_with_slow_path: f64::NAN,
            p50_us: f64::NAN,
            p99_us: f64::NAN,
            completed_percent: 40.0,
            generator_loop_p99_us: 1.0,
            generator_loop_max_us: 1.0,
            core_to_core_cycles: f64::NAN,
        };
        // The machine is half as fast in the second pair.
        let samples = [
            sample(TOLLGATE, 1, 10.0, 60.0),
            sample(OVS, 1, 5.0, 95.0),
            sample(TOLLGATE, 2, 5.0, 60.0),
            sample(OVS, 2, 2.5, 95.0),
        ];
        let own = of_row(&samples, "size-64", OURS);
        let ratio = Spread { median: 2.0, min: 2.0, max: 2.0 };
        assert_eq!(ratios(&own, Figure::Mpps), Some(ratio));
        assert_eq!(ratios(&own, Figure::P99), None);
        assert_eq!(limit(&own, TOLLGATE), Limit::Generator);
        assert_eq!(limit(&own, OVS), Limit::Switch);
        assert_eq!(invalid(&own), None);
        let floor = Sample {
            row: "size-64",
            switch: FLOOR,
            generator: OURS,
            cycles_per_packet: 21.0,
            ..Sample::EMPTY
        };
        let beside: Vec<_> = samples.iter().cloned().chain([floor]).collect();
        let text = tables(&beside, &super::super::row::chosen(&["size-64".to_owned()])?);
        let line = text.lines().find(|line| line.contains(FLOOR)).unwrap_or_default();
        assert!(line.contains(" 21 ") && !line.contains("NaN"), "{text}");
        assert!(text.contains("0 of 4 runs lost"), "{text}");
        assert_eq!(ratios(&of_row(&beside, "size-64", OURS), Figure::Mpps), Some(ratio));
        let cold = Sample { uncached_percent: 1.0, ..sample(OVS, 3, 1.0, 95.0) };
        assert!(invalid(&[&cold]).is_some());
        let directory = tempfile::tempdir()?;
        draw(&samples, &super::super::row::chosen(&[])?, directory.path())?;
        let chart = std::fs::read_to_string(directory.path().join("mpps.svg"))?;
        assert!(chart.contains("OVS-DPDK"));
        Ok(())
    }
}
