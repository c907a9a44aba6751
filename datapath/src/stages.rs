//! Where the cycles of a packet go, stage by stage: what a PMD notes of the tasks that it samples.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::megaflow::single_writer_add;

/// A stage of a task. ARCHITECTURE.md says where each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Descriptors and headers from the sender's ring, and their return.
    Fetch,
    /// Whether one decision is for all packets of the port.
    Port,
    /// Fields of the headers, and the hash of each key.
    Parse,
    /// The exact-match table.
    Exact,
    /// The megaflows, and the entry that one gets in the exact-match table.
    Megaflow,
    /// The copy for the slow path.
    Miss,
    /// Action lists, down to the list of outputs.
    Actions,
    /// Copies into the receivers' rings, which are then shown, with interrupts.
    Deliver,
    /// Counters, what is learned of the task, and the boundary at its end.
    Account,
}

impl Stage {
    /// All of them, in the order of a packet.
    pub const ALL: [Self; 9] = [
        Self::Fetch,
        Self::Port,
        Self::Parse,
        Self::Exact,
        Self::Megaflow,
        Self::Miss,
        Self::Actions,
        Self::Deliver,
        Self::Account,
    ];

    /// Its name for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Port => "port",
            Self::Parse => "parse",
            Self::Exact => "exact",
            Self::Megaflow => "megaflow",
            Self::Miss => "miss",
            Self::Actions => "actions",
            Self::Deliver => "deliver",
            Self::Account => "account",
        }
    }
}

/// One stage of the sampled tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCount {
    /// What passed in it, its readings of the clock included.
    pub cycles: u64,
    /// Packets that it had to do with.
    pub packets: u64,
    /// How often the clock was read for it, beyond what an unsampled task does.
    pub readings: u64,
}

/// What a PMD has noted of its sampled tasks, ever or in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageSnapshot {
    /// Tasks that were sampled.
    pub tasks: u64,
    /// Tasks whose sample was thrown away: the kernel ran something else meanwhile.
    pub spoiled_tasks: u64,
    /// What one reading of the clock takes, as it was when sampling was last turned on.
    pub reading_cycles: u64,
    /// By stage, in the order of [`Stage::ALL`].
    pub stages: [StageCount; Stage::ALL.len()],
}

impl StageSnapshot {
    /// One stage.
    #[must_use]
    pub fn of(&self, stage: Stage) -> StageCount {
        self.stages.get(stage as usize).copied().unwrap_or_default()
    }

    /// Cycles of a stage without what the readings of the clock took.
    #[must_use]
    pub fn net_cycles(&self, stage: Stage) -> u64 {
        let StageCount { cycles, readings, .. } = self.of(stage);
        cycles.saturating_sub(readings * self.reading_cycles)
    }

    /// Packets that the sampled tasks have dealt with.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.of(Stage::Account).packets
    }

    /// What was added since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut stages = self.stages;
        for (now, then) in stages.iter_mut().zip(&earlier.stages) {
            now.cycles = now.cycles.saturating_sub(then.cycles);
            now.packets = now.packets.saturating_sub(then.packets);
            now.readings = now.readings.saturating_sub(then.readings);
        }
        Self {
            tasks: self.tasks.saturating_sub(earlier.tasks),
            spoiled_tasks: self.spoiled_tasks.saturating_sub(earlier.spoiled_tasks),
            reading_cycles: self.reading_cycles,
            stages,
        }
    }
}

/// The same, written by one PMD and read by anybody.
#[derive(Debug, Default)]
pub(crate) struct StageCells {
    tasks: AtomicU64,
    spoiled_tasks: AtomicU64,
    reading_cycles: AtomicU64,
    stages: [CountCells; Stage::ALL.len()],
}

#[derive(Debug, Default)]
struct CountCells {
    cycles: AtomicU64,
    packets: AtomicU64,
    readings: AtomicU64,
}

impl StageCells {
    pub(crate) fn set_reading_cycles(&self, cycles: u64) {
        self.reading_cycles.store(cycles, Relaxed);
    }

    pub(crate) fn spoiled(&self) {
        single_writer_add(&self.spoiled_tasks, 1);
    }

    /// Adds one task.
    pub(crate) fn add(&self, stages: &[StageCount; Stage::ALL.len()]) {
        for (cells, count) in self.stages.iter().zip(stages) {
            single_writer_add(&cells.cycles, count.cycles);
            single_writer_add(&cells.packets, count.packets);
            single_writer_add(&cells.readings, count.readings);
        }
        single_writer_add(&self.tasks, 1);
    }

    pub(crate) fn snapshot(&self) -> StageSnapshot {
        let of = |cells: &CountCells| StageCount {
            cycles: cells.cycles.load(Relaxed),
            packets: cells.packets.load(Relaxed),
            readings: cells.readings.load(Relaxed),
        };
        StageSnapshot {
            tasks: self.tasks.load(Relaxed),
            spoiled_tasks: self.spoiled_tasks.load(Relaxed),
            reading_cycles: self.reading_cycles.load(Relaxed),
            stages: std::array::from_fn(|at| self.stages.get(at).map(of).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_found_by_their_place_and_differ_in_name() {
        for (at, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, at);
            assert!(
                Stage::ALL.iter().filter(|other| other.as_str() == stage.as_str()).count() == 1
            );
        }
    }

    #[test]
    fn a_span_has_what_was_added_in_it_and_readings_are_taken_off() {
        let cells = StageCells::default();
        cells.set_reading_cycles(30);
        let mut task = [StageCount::default(); Stage::ALL.len()];
        task[Stage::Parse as usize] = StageCount { cycles: 400, packets: 32, readings: 2 };
        task[Stage::Account as usize] = StageCount { cycles: 10, packets: 32, readings: 1 };
        cells.add(&task);
        let before = cells.snapshot();
        cells.add(&task);
        cells.add(&task);
        cells.spoiled();
        let span = cells.snapshot().since(&before);
        assert_eq!((span.tasks, span.spoiled_tasks, span.packets()), (2, 1, 64));
        assert_eq!(span.of(Stage::Parse), StageCount { cycles: 800, packets: 64, readings: 4 });
        assert_eq!(span.net_cycles(Stage::Parse), 800 - 4 * 30);
        assert_eq!(span.net_cycles(Stage::Account), 0, "never less than nothing");
        assert_eq!(span.of(Stage::Exact), StageCount::default());
    }
}
