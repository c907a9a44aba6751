//! The clock that is read between the stages of a sampled task. While nobody asks, and in the tasks
//! in between, it stands: then each of its calls is one branch that is never taken.

use tollgate_accel::tsc;

use crate::limits::STAGE_SAMPLE_TASKS;
use crate::stages::{Stage, StageCells, StageCount};

#[derive(Debug)]
pub(crate) struct Stopwatch {
    is_on: bool,
    is_running: bool,
    /// Tasks from one sample to the next, less one, have these bits at most.
    gap_mask: u32,
    /// Where the gaps come from.
    random: u32,
    tasks_until_next: u32,
    /// When the present stage began.
    last_tsc: u64,
    /// What had been stolen when the task began.
    stolen_cycles: u64,
    stages: [StageCount; Stage::ALL.len()],
}

impl Stopwatch {
    pub(crate) fn new() -> Self {
        Self {
            is_on: false,
            is_running: false,
            gap_mask: 2 * STAGE_SAMPLE_TASKS - 1,
            random: 1,
            tasks_until_next: 0,
            last_tsc: 0,
            stolen_cycles: 0,
            stages: [StageCount::default(); Stage::ALL.len()],
        }
    }

    /// Samples tasks from now on, or no longer. Turning it on takes about a thousand cycles, in which
    /// it finds what a reading takes.
    pub(crate) fn set_on(&mut self, on: bool, cells: &StageCells) {
        (self.is_on, self.is_running, self.tasks_until_next) = (on, false, 0);
        if on {
            cells.set_reading_cycles(self.reading_cycles());
        }
    }

    /// For tests: no task is left out.
    #[cfg(test)]
    pub(crate) fn sample_every_task(&mut self) {
        self.gap_mask = 0;
    }

    /// A task begins, at a boundary of the books. It may be one to sample.
    #[inline]
    pub(crate) fn start(&mut self, boundary_tsc: u64, stolen_cycles: u64) {
        if self.is_on {
            self.start_if_due(boundary_tsc, stolen_cycles);
        }
    }

    #[cold]
    #[inline(never)]
    fn start_if_due(&mut self, boundary_tsc: u64, stolen_cycles: u64) {
        if self.tasks_until_next > 0 {
            self.tasks_until_next -= 1;
            return;
        }
        // (Marsaglia's xorshift.)
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.tasks_until_next = self.random & self.gap_mask;
        self.stages = [StageCount::default(); Stage::ALL.len()];
        (self.last_tsc, self.stolen_cycles) = (boundary_tsc, stolen_cycles);
        self.is_running = true;
    }

    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// What has passed since the last lap was this stage's, which had to do with so many packets (none
    /// where they are counted elsewhere).
    #[inline]
    pub(crate) fn lap(&mut self, stage: Stage, packets: usize) {
        if self.is_running {
            self.note(stage, packets);
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&mut self, stage: Stage, packets: usize) {
        let now = tsc::now();
        let cycles = now.saturating_sub(self.last_tsc);
        self.last_tsc = now;
        self.add(stage, StageCount { cycles, packets: packets as u64, readings: 1 });
    }

    /// Packets of a stage whose cycles its laps tell of.
    pub(crate) fn count(&mut self, stage: Stage, packets: usize) {
        self.add(stage, StageCount { packets: packets as u64, ..StageCount::default() });
    }

    fn add(&mut self, stage: Stage, more: StageCount) {
        if let Some(count) = self.stages.get_mut(stage as usize) {
            count.cycles += more.cycles;
            count.packets += more.packets;
            count.readings += more.readings;
        }
    }

    /// The task ends, at a boundary of the books, and has dealt with so many packets. What passed since
    /// the last lap was accounting.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        boundary_tsc: u64,
        stolen_cycles: u64,
        packets: usize,
        cells: &StageCells,
    ) {
        if self.is_running {
            self.settle(boundary_tsc, stolen_cycles, packets, cells);
        }
    }

    #[cold]
    #[inline(never)]
    fn settle(
        &mut self,
        boundary_tsc: u64,
        stolen_cycles: u64,
        packets: usize,
        cells: &StageCells,
    ) {
        self.is_running = false;
        // It cannot be told which stage was interrupted.
        if stolen_cycles != self.stolen_cycles {
            return cells.spoiled();
        }
        let cycles = boundary_tsc.saturating_sub(self.last_tsc);
        // The books read the clock in any task.
        self.add(Stage::Account, StageCount { cycles, packets: packets as u64, readings: 0 });
        // Every packet is either one that a decision was carried out on or a miss.
        let missed = self.stages.get(Stage::Miss as usize).map_or(0, |miss| miss.packets);
        self.count(Stage::Actions, packets.saturating_sub(missed as usize));
        cells.add(&self.stages);
    }

    /// What a lap takes by itself: the least of several rounds, as an interrupt may fall into one.
    fn reading_cycles(&mut self) -> u64 {
        const LAPS: u64 = 8;
        let round = |watch: &mut Self| {
            watch.note(Stage::Account, 0);
            let began_tsc = watch.last_tsc;
            (0..LAPS).for_each(|_| watch.note(Stage::Account, 0));
            watch.last_tsc.saturating_sub(began_tsc) / LAPS
        };
        (0..4).map(|_| round(self)).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_frame::DropReason;
    use tollgate_packet::edit::Edit;
    use tollgate_packet::{FlowKey, FlowMask, FlowMatch, HeaderField, MacAddr, PortIndex};
    use tollgate_policy::{Account, Refill, SchedulerConfig, TenantIndex};
    use tollgate_vhost::{Features, mock};

    use super::*;
    use crate::control::DatapathConfig;
    use crate::mail::Mail;
    use crate::megaflow::{Megaflow, MegaflowStats, Op};
    use crate::pmd::Pmd;
    use crate::pmd::bench::{Guest, add_port, add_ring_of, pmd, pmd_with_urgent_mail};
    use crate::settings::PortSettings;
    use crate::stage_sampling::{StageSamplers, StageSampling};
    use crate::stages::StageSnapshot;

    const FROM: u16 = 1;
    const TO: u16 = 2;
    const RING_ENTRIES: u16 = 64;
    /// A ring rests for a while after it was served.
    const TURNS: usize = 500;

    /// So large that a slow machine cuts no task.
    const SCHEDULER: SchedulerConfig = SchedulerConfig {
        quantum_cycles: 10_000_000,
        cap_cycles: 40_000_000,
        floor_cycles: 500_000_000,
        horizon_cycles: 500_000_000,
        refill: Refill::Local,
    };

    /// Everything from `FROM`, or what is sent to one station.
    fn megaflow(eth_dst: Option<u8>, ops: &[Op]) -> Arc<Megaflow> {
        let mut mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::ZERO });
        let mut key = FlowKey { in_port: FROM.into(), ..FlowKey::ZERO };
        if let Some(last) = eth_dst {
            mask.0.eth_dst = MacAddr::BROADCAST;
            key.eth_dst = MacAddr([2, 0, 0, 0, 0, last]);
        }
        Arc::new(Megaflow {
            matcher: FlowMatch::new(&key, mask),
            ops: ops.into(),
            meters: Box::default(),
            drop_reason: DropReason::RuleDrop,
            owner: TenantIndex(FROM),
            generation: 1,
            stats: MegaflowStats::default(),
        })
    }

    fn output() -> Op {
        Op::Output(PortIndex(TO))
    }

    struct Scene {
        pmd: Pmd,
        from: Guest,
        to: Guest,
    }

    impl Scene {
        /// A sender and a receiver; every task is sampled.
        fn new() -> Self {
            let mut scene = Self::unsampled();
            scene.pmd.carry_out(Mail::Stages(true));
            scene.pmd.egress.stopwatch.sample_every_task();
            scene
        }

        fn unsampled() -> Self {
            let config = DatapathConfig {
                scheduler: SCHEDULER,
                megaflows_max: 64,
                exact_entries: 64,
                ..DatapathConfig::default()
            };
            let mut pmd = pmd(&config).0;
            pmd.start_clock();
            pmd.accounts.suspect_no_gap();
            for port in [FROM, TO] {
                add_port(&mut pmd, port, &PortSettings::default());
            }
            let from = add_ring_of(&mut pmd, FROM, mock::FROM_GUEST, RING_ENTRIES);
            let to = add_ring_of(&mut pmd, TO, mock::TO_GUEST, RING_ENTRIES);
            Self { pmd, from, to }
        }

        /// Sends frames to these stations, for each a buffer or two; what that added.
        fn send(&mut self, stations: &[u8]) -> StageSnapshot {
            let before = self.stages();
            self.from.driver.take_used();
            self.to.driver.take_used();
            for station in stations {
                let mut frame = mock::frame(60, *station);
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, *station]);
                self.from.driver.transmit(Features::offered(1).net_header_bytes(), &frame);
                (0..2).for_each(|_| self.to.driver.post(256));
            }
            for _ in 0..TURNS {
                self.pmd.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
                self.pmd.one_turn(self.pmd.accounts.last_tsc());
            }
            self.to.driver.receive(Features::offered(1).net_header_bytes());
            self.stages().since(&before)
        }

        /// The packets of each stage that [`send`](Self::send) adds.
        fn packets(&mut self, stations: &[u8]) -> [u64; Stage::ALL.len()] {
            self.send(stations).stages.map(|stage| stage.packets)
        }

        fn stages(&self) -> StageSnapshot {
            self.pmd.shared.snapshot(0, 0).stages
        }

        /// What both tenants were charged.
        fn charged(&self) -> u64 {
            let snapshot = self.pmd.shared.snapshot(0, 0);
            [FROM, TO].map(|tenant| snapshot.tenant(TenantIndex(tenant)).cycles).iter().sum()
        }
    }

    /// Nothing of a task is left out, and nothing is in two stages.
    #[test]
    fn the_stages_of_sampled_tasks_add_up_to_what_the_books_charge_for_them() {
        let mut scene = Scene::new();
        let edit = Op::Edit(Edit::set(HeaderField::L4Dst, 9));
        scene.pmd.install(megaflow(Some(1), &[output()]));
        scene.pmd.install(megaflow(Some(2), &[output(), edit, output()]));
        scene.pmd.install(megaflow(Some(3), &[]));
        let mut added = Vec::new();
        let charged_before = scene.charged();
        // Runs and single packets, hits and misses.
        for stations in [&[1, 1, 1, 1, 1][..], &[1, 2, 3, 1], &[9, 8], &[2, 2, 1, 1, 1, 1, 3]] {
            added.push(scene.send(stations));
        }
        let sum =
            |added: &StageSnapshot| added.stages.iter().map(|stage| stage.cycles).sum::<u64>();
        let stages: u64 = added.iter().map(sum).sum();
        assert!(stages > 0);
        assert_eq!(stages, scene.charged() - charged_before);
        for added in added {
            assert!(added.reading_cycles > 0 && added.tasks > 0 && added.spoiled_tasks == 0);
            // What is taken off for the readings is less than what was measured.
            let net: u64 = Stage::ALL.iter().map(|stage| added.net_cycles(*stage)).sum();
            assert!(net > 0 && net < sum(&added), "{added:?}");
        }
    }

    // Fetch, port, parse, exact, megaflow, miss, actions, deliver, account.

    #[test]
    fn a_hit_in_the_exact_match_table_has_no_megaflow_and_a_repeat_is_a_hit() {
        let mut scene = Scene::new();
        scene.pmd.install(megaflow(Some(1), &[output()]));
        scene.pmd.install(megaflow(Some(2), &[output()]));
        assert_eq!(scene.packets(&[1, 1, 2]), [3, 3, 3, 3, 2, 0, 3, 3, 3], "two are new");
        assert_eq!(scene.packets(&[1, 2, 2, 1]), [4, 4, 4, 4, 0, 0, 4, 4, 4]);
        scene.pmd.carry_out(Mail::ExactMatch(false));
        let added = scene.send(&[1, 2, 2, 1, 1]);
        assert_eq!(added.stages.map(|stage| stage.packets), [5, 5, 5, 0, 5, 0, 5, 5, 5]);
        assert_eq!(added.of(Stage::Exact).cycles, 0, "it is off");
    }

    #[test]
    fn packets_that_are_decided_on_by_port_are_neither_parsed_nor_looked_up() {
        let mut scene = Scene::new();
        scene.pmd.install(megaflow(None, &[output()]));
        assert_eq!(scene.packets(&[1, 2]), [2, 2, 2, 2, 2, 0, 2, 2, 2], "not known yet");
        let added = scene.send(&[3, 4, 5]);
        assert_eq!(added.stages.map(|stage| stage.packets), [3, 3, 0, 0, 0, 0, 3, 3, 3]);
        for stage in [Stage::Parse, Stage::Exact, Stage::Megaflow, Stage::Miss] {
            assert_eq!(added.of(stage).cycles, 0, "{stage:?}");
        }
    }

    #[test]
    fn a_miss_has_no_actions_a_drop_has_nothing_delivered_and_copies_are_counted_each() {
        let mut scene = Scene::new();
        assert_eq!(scene.packets(&[1, 2]), [2, 2, 2, 2, 2, 2, 0, 0, 2]);
        let mut scene = Scene::new();
        scene.pmd.install(megaflow(Some(3), &[]));
        assert_eq!(scene.packets(&[3, 3]), [2, 2, 2, 2, 1, 0, 2, 0, 2]);
        scene.pmd.install(megaflow(Some(4), &[output(), output()]));
        assert_eq!(scene.packets(&[4, 3, 4, 5]), [4, 4, 4, 4, 2, 1, 3, 4, 4]);
    }

    #[test]
    fn nothing_is_noted_unless_somebody_asks() {
        let mut scene = Scene::unsampled();
        scene.pmd.install(megaflow(Some(1), &[output()]));
        scene.send(&[1, 1, 1, 1, 2]);
        assert_eq!(scene.stages(), StageSnapshot::default());
        scene.pmd.carry_out(Mail::Stages(true));
        assert!(scene.send(&[1]).tasks > 0);
        scene.pmd.carry_out(Mail::Stages(false));
        let before = scene.stages();
        scene.send(&[1, 1, 1, 1, 3]);
        assert_eq!(scene.stages(), before);
    }

    #[test]
    fn some_tasks_of_many_are_sampled_and_of_tenants_who_take_turns_each_is_met() {
        let cells = StageCells::default();
        let mut watch = Stopwatch::new();
        watch.set_on(true, &cells);
        let mut met = [0_u32; 2];
        for task in 0..3200 {
            watch.start(0, 0);
            met[task % 2] += u32::from(watch.is_running());
            watch.finish(0, 0, 0, &cells);
        }
        assert!(met.iter().all(|met| (50..150).contains(met)), "{met:?}, of 100 each");
    }

    #[test]
    fn a_task_in_which_time_was_stolen_is_thrown_away() {
        let cells = StageCells::default();
        let mut watch = Stopwatch::new();
        watch.set_on(true, &cells);
        watch.sample_every_task();
        watch.start(0, 5);
        watch.lap(Stage::Fetch, 3);
        watch.finish(u64::MAX, 6, 3, &cells);
        let reading_cycles = cells.snapshot().reading_cycles;
        let spoiled = StageSnapshot { spoiled_tasks: 1, reading_cycles, ..Default::default() };
        assert_eq!(cells.snapshot(), spoiled);
    }

    /// Two operators at once: who is done first does not end what the other sees.
    #[test]
    fn sampling_lasts_until_the_last_who_wants_it_is_gone() {
        let config =
            DatapathConfig { megaflows_max: 64, exact_entries: 64, ..DatapathConfig::default() };
        let (mut pmd, mailbox, _) = pmd_with_urgent_mail(&config);
        let samplers = [Arc::new(StageSamplers::new(Arc::new(mailbox)))];
        let start = || StageSampling::start(samplers.iter()).unwrap();
        let mut while_pmd_runs = |order: &mut (dyn FnMut() + Send)| {
            std::thread::scope(|scope| {
                let order = scope.spawn(order);
                while !order.is_finished() {
                    pmd.take_mail(u64::MAX);
                }
            });
            pmd.egress.stopwatch.is_on
        };
        let mut held = Vec::new();
        let is_on = [
            while_pmd_runs(&mut || held.push(start())),
            while_pmd_runs(&mut || held.push(start())),
            while_pmd_runs(&mut || _ = held.pop()),
            while_pmd_runs(&mut || _ = held.pop()),
            while_pmd_runs(&mut || held.push(start())),
        ];
        // Whoever goes waits for the PMD.
        while_pmd_runs(&mut || held.clear());
        assert_eq!(is_on, [true, true, true, false, true]);
    }
}
