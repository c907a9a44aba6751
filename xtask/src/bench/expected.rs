//! The expectations of `benches/instructions/expected.toml`, and how counts are held against them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::Count;

/// A count may be off by so much. They are the same from run to run; this leaves room for what a
/// change elsewhere does to inlining.
const TOLERANCE_PERCENT: f64 = 3.0;

/// The same with another compiler than the expectations were counted with.
const OTHER_RUSTC_TOLERANCE_PERCENT: f64 = 10.0;

const HEADER: &str = "\
# Instructions of each case of this bench, by callgrind, for 224 packets each. `cargo xtask bench` compares
# with them; `cargo xtask bench --bless` writes this file.
";

/// What is stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    /// What `rustc --version` said where the counts were taken.
    rustc: String,
    /// By case.
    instructions: BTreeMap<String, u64>,
}

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    /// None: a case that nothing is stored for.
    pub(super) expected: Option<u64>,
    /// None: a case that is stored and is no more.
    pub(super) got: Option<u64>,
    pub(super) fails: bool,
}

/// All cases.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) rows: Vec<Row>,
    pub(super) tolerance_percent: f64,
    /// What the reader is to know besides.
    pub(super) note: Option<String>,
}

impl Expected {
    pub(super) fn of(rustc: String, counts: &[Count]) -> Self {
        let instructions = counts.iter().map(|count| (count.name.clone(), count.instructions));
        Self { rustc, instructions: instructions.collect() }
    }

    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read {} (made by --bless)", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = format!("{HEADER}{}", toml::to_string(self)?);
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Holds `counts` against what is stored. Fewer instructions fail too: an expectation that is not
    /// lowered would let the next change take back what this one has won. Another compiler may do with
    /// any fewer, and only far more fail.
    pub(super) fn compare(&self, rustc: &str, counts: &[Count]) -> Compared {
        let same_rustc = self.rustc == rustc;
        let tolerance_percent =
            if same_rustc { TOLERANCE_PERCENT } else { OTHER_RUSTC_TOLERANCE_PERCENT };
        let counted = counts.iter().map(|count| {
            let expected = self.instructions.get(&count.name).copied();
            Row { name: count.name.clone(), expected, got: Some(count.instructions), fails: false }
        });
        let gone = self
            .instructions
            .iter()
            .filter(|(name, _)| counts.iter().all(|count| count.name != **name));
        let gone = gone.map(|(name, expected)| Row {
            name: name.clone(),
            expected: Some(*expected),
            got: None,
            fails: false,
        });
        let mut rows: Vec<_> = counted.chain(gone).collect();
        for row in &mut rows {
            row.fails = row.change_percent().is_none_or(|change| {
                change > tolerance_percent || (same_rustc && change < -tolerance_percent)
            });
        }
        let note = (!same_rustc).then(|| {
            format!(
                "counted with {rustc}, expected with {}: only what is more by over {tolerance_percent} % fails.",
                self.rustc
            )
        });
        Compared { rows, tolerance_percent, note }
    }
}

impl Row {
    /// None if there is nothing to compare.
    pub(super) fn change_percent(&self) -> Option<f64> {
        let (expected, got) = (self.expected? as f64, self.got? as f64);
        Some((got / expected - 1.0) * 100.0)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match (self.expected, self.got, self.change_percent()) {
            (Some(expected), Some(got), Some(change)) => {
                write!(f, "{name}: expected {expected}, got {got} ({change:+.1} %)")
            }
            (None, Some(got), _) => write!(f, "{name}: nothing expected, got {got}"),
            (expected, ..) => {
                write!(f, "{name}: expected {}, not counted", expected.unwrap_or_default())
            }
        }
    }
}

impl Compared {
    pub(super) fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.fails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUSTC: &str = "rustc 1.90.0";

    fn count(name: &str, instructions: u64) -> Count {
        Count { name: name.to_owned(), instructions }
    }

    fn failing(rustc: &str, counts: &[Count]) -> Vec<String> {
        let expected = Expected::of(RUSTC.to_owned(), &[count("a", 1000), count("b", 1000)]);
        expected.compare(rustc, counts).failures().map(Row::to_string).collect()
    }

    #[test]
    fn a_count_off_by_more_than_the_tolerance_fails_and_says_by_how_much() {
        assert!(failing(RUSTC, &[count("a", 1029), count("b", 971)]).is_empty());
        assert_eq!(
            failing(RUSTC, &[count("a", 1040), count("b", 960)]),
            ["a: expected 1000, got 1040 (+4.0 %)", "b: expected 1000, got 960 (-4.0 %)"]
        );
    }

    #[test]
    fn another_compiler_may_be_off_by_more_and_better_by_any() {
        assert!(failing("rustc 1.91.0", &[count("a", 1099), count("b", 10)]).is_empty());
        assert_eq!(failing("rustc 1.91.0", &[count("a", 1110), count("b", 1000)]).len(), 1);
        let compared = Expected::of(RUSTC.to_owned(), &[]).compare("rustc 1.91.0", &[]);
        assert!(compared.note.unwrap().contains("rustc 1.91.0"));
    }

    #[test]
    fn a_case_without_expectation_fails_and_so_does_an_expectation_without_case() {
        assert_eq!(
            failing(RUSTC, &[count("a", 1000), count("c", 7)]),
            ["c: nothing expected, got 7", "b: expected 1000, not counted"]
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("expected.toml");
        let expected = Expected::of(RUSTC.to_owned(), &[count("parse headers udp", 1000)]);
        expected.write(&path).unwrap();
        assert_eq!(Expected::read(&path).unwrap(), expected);
        fs::write(&path, "rustc = \"x\"\ntolerance = 3\n[instructions]\n").unwrap();
        assert!(Expected::read(&path).is_err());
    }
}
