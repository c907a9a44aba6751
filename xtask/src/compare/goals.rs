//! The targets, as ratios to OVS-DPDK in the same invocation, with accounting and protection on.

use super::bench::Sample;
use super::report::{self, Figure};
use super::row::Row;
use crate::target::{Bound, Verdict};

/// What a figure of a row must be, ours over theirs.
struct Goal {
    row: &'static str,
    figure: Figure,
    bound: Bound,
    /// Whether a generator that is the limit for us keeps the ratio from being reached.
    or_generator_bound: bool,
}

const fn goal(row: &'static str, figure: Figure, bound: Bound) -> Goal {
    Goal { row, figure, bound, or_generator_bound: false }
}

const GOALS: [Goal; 16] = [
    goal("size-64", Figure::Cycles, Bound::AtMost(0.5)),
    Goal { or_generator_bound: true, ..goal("size-64", Figure::Mpps, Bound::AtLeast(1.3)) },
    goal("size-1500", Figure::Cycles, Bound::AtMost(0.5)),
    goal("size-1500", Figure::Mpps, Bound::AtLeast(1.8)),
    goal("exact-off", Figure::Cycles, Bound::AtMost(0.5)),
    goal("exact-off", Figure::Mpps, Bound::AtLeast(1.5)),
    goal("masks-20", Figure::Cycles, Bound::AtMost(0.25)),
    goal("masks-20", Figure::Mpps, Bound::AtLeast(3.0)),
    goal("masks-20-100k", Figure::Cycles, Bound::AtMost(0.2)),
    goal("masks-20-100k", Figure::Mpps, Bound::AtLeast(4.0)),
    goal("flows-1m", Figure::Cycles, Bound::AtMost(0.5)),
    goal("flows-1m", Figure::Mpps, Bound::AtLeast(1.5)),
    goal("misses", Figure::MissPmd, Bound::AtMost(0.1)),
    goal("misses", Figure::MissAll, Bound::AtMost(0.7)),
    goal("trips", Figure::P50, Bound::AtMost(0.6)),
    goal("trips", Figure::P99, Bound::AtMost(0.6)),
];

/// The verdicts on the rows that were measured, by the median of the ratios within pairs.
pub(super) fn verdicts(samples: &[Sample], rows: &[Row]) -> Vec<Verdict> {
    let of_rows = |row: &Row| {
        let goals = GOALS.iter().filter(|goal| goal.row == row.name);
        goals.map(|goal| verdict(goal, row, samples)).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_rows).collect()
}

fn verdict(goal: &Goal, row: &Row, samples: &[Sample]) -> Verdict {
    let own = report::of_row(samples, row.name, report::OURS);
    let what = format!("{}: {} / OVS-DPDK's", row.title, goal.figure.title());
    let ratio = match (report::ratios(&own, goal.figure), report::invalid(&own)) {
        (Some(ratio), None) => ratio,
        (ratio, invalid) => {
            let why = invalid.unwrap_or("nothing to divide");
            let shown = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}; "));
            return Verdict::new(what, goal.bound, f64::NAN).with(format!("{shown}{why}"));
        }
    };
    let limit = report::limit(&own, report::TOLLGATE);
    let bound_by_generator = goal.or_generator_bound && limit == report::Limit::Generator;
    let detail = match goal.figure {
        Figure::Mpps => format!("{ratio:.2}; our limit: {}", limit.name()),
        _ => format!("{ratio:.2}"),
    };
    let excuse = bound_by_generator.then_some("generator-bound");
    Verdict::new(what, goal.bound, ratio.median).with(detail).excused(excuse)
}
