//! A target, its figure, and whether it was met.

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

/// What a figure must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Nothing: it is shown, and no target.
    Shown,
}

/// One target and what was measured for it.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    what: String,
    bound: Bound,
    /// NaN when it could not be measured, which is a target missed.
    measured: f64,
    /// Beside the figure: what it was made from.
    detail: String,
    /// Why a bound that was missed says nothing.
    excuse: Option<&'static str>,
}

impl Verdict {
    pub(crate) fn new(what: impl Into<String>, bound: Bound, measured: f64) -> Self {
        Self { what: what.into(), bound, measured, detail: String::new(), excuse: None }
    }

    /// A figure that is no target.
    pub(crate) fn shown(what: impl Into<String>, measured: f64) -> Self {
        Self::new(what, Bound::Shown, measured)
    }

    pub(crate) fn with(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// A bound that cannot be reached here, for this reason: not missed, and shown as such.
    pub(crate) fn excused(mut self, excuse: Option<&'static str>) -> Self {
        self.excuse = excuse;
        self
    }

    /// Whether the figure keeps the bound, or need not.
    pub(crate) fn met(&self) -> bool {
        self.kept() || self.excuse.is_some()
    }

    fn kept(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.measured <= bound,
            Bound::AtLeast(bound) => self.measured >= bound,
            Bound::Shown => true,
        }
    }

    pub(crate) fn is_target(&self) -> bool {
        !matches!(self.bound, Bound::Shown)
    }
}

/// All targets, one a line.
pub(crate) fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["target", "bound", "measured", "", "from"]);
    for verdict in verdicts {
        let bound = match verdict.bound {
            Bound::AtMost(bound) => format!("<= {bound:.2}"),
            Bound::AtLeast(bound) => format!(">= {bound:.2}"),
            Bound::Shown => "-".to_owned(),
        };
        let met = match (verdict.is_target(), verdict.kept()) {
            (false, _) => "shown",
            (true, true) => "pass",
            (true, false) => verdict.excuse.unwrap_or("FAIL"),
        };
        table.add_row([
            verdict.what.clone(),
            bound,
            format!("{:.3}", verdict.measured),
            met.to_owned(),
            verdict.detail.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{Bound, Verdict};

    #[test]
    fn what_could_not_be_measured_is_not_met() {
        assert!(!Verdict::new("x", Bound::AtMost(1.0), f64::NAN).met());
        assert!(!Verdict::new("x", Bound::AtLeast(1.0), f64::NAN).met());
        assert!(Verdict::new("x", Bound::AtMost(1.0), 1.0).met());
        assert!(!Verdict::new("x", Bound::AtLeast(1.0), 0.9).met());
        assert!(Verdict::new("x", Bound::AtLeast(1.0), 0.9).excused(Some("bound")).met());
        let shown = Verdict::shown("x", f64::NAN);
        assert!(shown.met() && !shown.is_target());
    }
}
