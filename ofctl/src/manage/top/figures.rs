//! From two readings of the counters to the figures of the interval between them.
//!
//! Time is a PMD's own: the cycles that have elapsed on its core. So no delay of this program or of
//! its connection makes a figure wrong.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Sample;
use super::histogram::Histogram;
use crate::manage::value::{items, member, members, text};

/// A tenant without turns counts as active from this part of the tenants' cycles on, in thousandths:
/// received packets are charged to it without one, but so is an interrupt now and then.
const ACTIVE_THOUSANDTHS: u64 = 10;

/// One interval.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) protection: Option<bool>,
    pub(super) pmds: Vec<PmdFigures>,
    /// What the slow-path thread spent by tenant, in MHz; only those that it spent something for.
    pub(super) slow_path_mhz: Vec<(String, f64)>,
}

/// One polling core.
#[derive(Debug)]
pub(super) struct PmdFigures {
    pub(super) pmd: u64,
    pub(super) core: u64,
    pub(super) interval_s: f64,
    pub(super) mhz: f64,
    /// By what they used, most first.
    pub(super) tenants: Vec<TenantFigures>,
    pub(super) system: Use,
    pub(super) idle: Use,
    pub(super) stolen: Use,
    pub(super) task_p99_us: Option<f64>,
    pub(super) rx_p99_us: Option<f64>,
    pub(super) system_p99_us: Option<f64>,
    pub(super) scan_p99_us: Option<f64>,
}

/// Part of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Use {
    pub(super) core_percent: f64,
    pub(super) mhz: f64,
}

/// One tenant on one polling core.
#[derive(Debug)]
pub(super) struct TenantFigures {
    pub(super) name: String,
    pub(super) weight: Option<f64>,
    /// Its weight over those of the tenants that were active; none while it was not.
    pub(super) entitled_percent: Option<f64>,
    /// Its part of what was spent for tenants; none if nothing was.
    pub(super) used_percent: Option<f64>,
    pub(super) of_core: Use,
    pub(super) credit_cycles: Option<i64>,
    pub(super) funded_per_s: f64,
    pub(super) slack_per_s: f64,
    pub(super) gated_per_s: f64,
    pub(super) packets_per_s: f64,
    pub(super) wait_p50_us: Option<f64>,
    pub(super) wait_p99_us: Option<f64>,
    pub(super) marks_per_s: f64,
    /// By reason, most first.
    pub(super) drops_per_s: Vec<(String, f64)>,
}

impl Figures {
    pub(super) fn between(before: &Sample, after: &Sample) -> Figures {
        let tsc_hz = number(&after.pmd_stats, "tsc_hz").max(1) as f64;
        let earlier = items(member(&before.pmd_stats, "pmds"));
        let pmds: Vec<PmdFigures> = items(member(&after.pmd_stats, "pmds"))
            .iter()
            .map(|pmd| {
                let index = number(pmd, "pmd");
                let earlier = earlier.iter().find(|earlier| number(earlier, "pmd") == index);
                let drops = DropsByTenant::between(before, after, index);
                Interval::new(earlier.unwrap_or(&Value::Null), pmd, tsc_hz).figures(&drops)
            })
            .collect();
        let interval_s = pmds.first().map_or(0.0, |pmd| pmd.interval_s);
        Figures {
            protection: member(&after.pmd_stats, "protection").as_bool(),
            slow_path_mhz: slow_path(&before.pmd_stats, &after.pmd_stats, interval_s),
            pmds,
        }
    }
}

/// Two readings of one PMD.
struct Interval<'a> {
    before: &'a Value,
    after: &'a Value,
    elapsed_cycles: u64,
    tsc_hz: f64,
}

impl<'a> Interval<'a> {
    fn new(before: &'a Value, after: &'a Value, tsc_hz: f64) -> Self {
        let elapsed_cycles = grown(before, after, "elapsed_cycles");
        Self { before, after, elapsed_cycles, tsc_hz }
    }

    fn figures(&self, drops: &DropsByTenant) -> PmdFigures {
        let cycles = self.tenant_cycles();
        let mut tenants: Vec<(u64, TenantFigures)> = members(member(self.after, "tenant_details"))
            .map(|(name, _)| (cycles.of(name), self.tenant(name, &cycles, drops)))
            .collect();
        tenants.sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.name.cmp(&y.name)));
        let own = |key| self.of_core(grown(self.before, self.after, key));
        let p99 = |name| {
            let of = |pmd| member(member(pmd, "histograms"), name);
            self.us_below(&Histogram::between(of(self.before), of(self.after)), 0.99)
        };
        PmdFigures {
            pmd: number(self.after, "pmd"),
            core: number(self.after, "core"),
            interval_s: self.elapsed_cycles as f64 / self.tsc_hz,
            mhz: self.tsc_hz / 1e6,
            tenants: tenants.into_iter().map(|(_, tenant)| tenant).collect(),
            system: own("system_cycles"),
            idle: own("idle_cycles"),
            stolen: own("stolen_cycles"),
            task_p99_us: p99("task"),
            rx_p99_us: p99("rx"),
            system_p99_us: p99("system"),
            scan_p99_us: p99("scan"),
        }
    }

    fn tenant(&self, name: &str, cycles: &TenantCycles, drops: &DropsByTenant) -> TenantFigures {
        let (before, after) = (detail(self.before, name), detail(self.after, name));
        let rate = |key| self.per_s(grown(before, after, key));
        let waits = Histogram::between(member(before, "wait"), member(after, "wait"));
        let weight = member(after, "weight").as_f64();
        let is_active = cycles.active.contains_key(name);
        let entitled = weight.filter(|_| is_active).map(|weight| weight / cycles.active_weight());
        let used = (cycles.all > 0).then(|| cycles.of(name) as f64 / cycles.all as f64);
        TenantFigures {
            name: name.to_owned(),
            weight,
            entitled_percent: entitled.map(|share| 100.0 * share),
            used_percent: used.map(|share| 100.0 * share),
            of_core: self.of_core(cycles.of(name)),
            credit_cycles: member(after, "credit_cycles").as_i64(),
            funded_per_s: rate("funded_turns"),
            slack_per_s: rate("slack_turns"),
            gated_per_s: rate("gated_turns"),
            packets_per_s: rate("packets"),
            wait_p50_us: self.us_below(&waits, 0.5),
            wait_p99_us: self.us_below(&waits, 0.99),
            marks_per_s: rate("marks"),
            drops_per_s: self.drops(name, before, after, drops),
        }
    }

    /// Of packets that its ports sent, for whatever reason, and of those that were for it and more than
    /// its share.
    fn drops(
        &self,
        name: &str,
        before: &Value,
        after: &Value,
        sent: &DropsByTenant,
    ) -> Vec<(String, f64)> {
        let (before, after) = (member(before, "drops"), member(after, "drops"));
        let over_share: BTreeMap<&String, u64> =
            members(after).map(|(reason, _)| (reason, grown(before, after, reason))).collect();
        let mut reasons: Vec<(String, u64)> = sent
            .of_tenant(name)
            .filter(|(reason, _)| !over_share.contains_key(reason))
            .chain(over_share.iter().map(|(reason, count)| (*reason, *count)))
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.clone(), count))
            .collect();
        reasons.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        reasons.into_iter().map(|(reason, count)| (reason, self.per_s(count))).collect()
    }

    fn tenant_cycles(&self) -> TenantCycles {
        let all_of = |pmd| members(member(pmd, "tenant_details"));
        let spent = all_of(self.after)
            .map(|(name, after)| (name.clone(), grown(detail(self.before, name), after, "cycles")));
        let by_tenant: BTreeMap<String, u64> = spent.collect();
        let all = by_tenant.values().sum();
        let active = all_of(self.after).filter_map(|(name, after)| {
            let before = detail(self.before, name);
            let turns = ["funded_turns", "slack_turns", "gated_turns"];
            let had_work = turns.iter().any(|key| grown(before, after, key) > 0);
            let spent = by_tenant.get(name).copied().unwrap_or(0);
            let is_active = had_work
                || spent > 0
                    && u128::from(spent) * 1000 >= u128::from(all) * u128::from(ACTIVE_THOUSANDTHS);
            Some((name.clone(), member(after, "weight").as_f64().filter(|_| is_active)?))
        });
        TenantCycles { active: active.collect(), by_tenant, all }
    }

    fn of_core(&self, cycles: u64) -> Use {
        if self.elapsed_cycles == 0 {
            return Use::default();
        }
        let part = cycles as f64 / self.elapsed_cycles as f64;
        Use { core_percent: 100.0 * part, mhz: part * self.tsc_hz / 1e6 }
    }

    fn per_s(&self, count: u64) -> f64 {
        if self.elapsed_cycles == 0 {
            return 0.0;
        }
        count as f64 * self.tsc_hz / self.elapsed_cycles as f64
    }

    fn us_below(&self, histogram: &Histogram, share: f64) -> Option<f64> {
        histogram.below_cycles(share).map(|cycles| cycles as f64 * 1e6 / self.tsc_hz)
    }
}

/// What was spent for tenants in an interval.
struct TenantCycles {
    by_tenant: BTreeMap<String, u64>,
    all: u64,
    /// The weights of those that had work.
    active: BTreeMap<String, f64>,
}

impl TenantCycles {
    fn of(&self, name: &str) -> u64 {
        self.by_tenant.get(name).copied().unwrap_or(0)
    }

    fn active_weight(&self) -> f64 {
        self.active.values().sum()
    }
}

/// Drops of packets that came in by a tenant's ports on one PMD.
struct DropsByTenant(BTreeMap<String, BTreeMap<String, u64>>);

impl DropsByTenant {
    fn between(before: &Sample, after: &Sample, pmd: u64) -> DropsByTenant {
        let mut drops = BTreeMap::<String, BTreeMap<String, u64>>::new();
        let polled = |port: &&Value| number(port, "pmd") == pmd;
        for port in items(&after.port_list).iter().filter(polled) {
            let name = member(port, "name");
            let mut earlier = items(&before.port_list).iter();
            let earlier = earlier.find(|earlier| member(earlier, "name") == name);
            let before = member(earlier.unwrap_or(&Value::Null), "drops");
            let after = member(port, "drops");
            let of_tenant = drops.entry(text(port, "tenant")).or_default();
            for (reason, _) in members(after) {
                *of_tenant.entry(reason.clone()).or_default() += grown(before, after, reason);
            }
        }
        DropsByTenant(drops)
    }

    fn of_tenant(&self, tenant: &str) -> impl Iterator<Item = (&String, u64)> {
        self.0.get(tenant).into_iter().flatten().map(|(reason, count)| (reason, *count))
    }
}

fn slow_path(before: &Value, after: &Value, interval_s: f64) -> Vec<(String, f64)> {
    let tenants = |stats| member(member(stats, "slow_path"), "tenants");
    let (before, after) = (tenants(before), tenants(after));
    let spent = members(after).map(|(name, _)| (name.clone(), grown(before, after, name)));
    let spent = spent.filter(|(_, cycles)| *cycles > 0 && interval_s > 0.0);
    spent.map(|(name, cycles)| (name, cycles as f64 / interval_s / 1e6)).collect()
}

fn detail<'a>(pmd: &'a Value, tenant: &str) -> &'a Value {
    member(member(pmd, "tenant_details"), tenant)
}

fn number(object: &Value, name: &str) -> u64 {
    member(object, name).as_u64().unwrap_or(0)
}

/// How far a counter has grown; one that is new has grown from zero. A tenant or port that was removed
/// and made again counts from zero too, and has no figures for that interval.
fn grown(before: &Value, after: &Value, name: &str) -> u64 {
    number(after, name).saturating_sub(number(before, name))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Two readings of a switch on a busy machine: `web` (weight 3) makes round trips beside `batch`
    /// (weight 1), whose packets are copied eight times; most of the core went to other processes.
    pub(in super::super) fn recorded() -> (Sample, Sample) {
        let recorded: Value = serde_json::from_str(include_str!("recorded.json")).unwrap();
        let sample = |name: &str| Sample {
            pmd_stats: recorded[name]["pmd_stats"].clone(),
            port_list: recorded[name]["port_list"].clone(),
        };
        (sample("before"), sample("after"))
    }

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() < 0.005
    }

    #[test]
    fn the_accounts_of_an_interval_are_the_whole_core() {
        let (before, after) = recorded();
        let figures = Figures::between(&before, &after);
        let [pmd] = figures.pmds.as_slice() else { panic!("{figures:?}") };
        let tenants: f64 = pmd.tenants.iter().map(|tenant| tenant.of_core.core_percent).sum();
        let others = [pmd.system, pmd.idle, pmd.stolen].map(|account| account.core_percent);
        let of_core = tenants + others.iter().sum::<f64>();
        assert!((of_core - 100.0).abs() < 0.1, "{of_core}: {figures:?}");
        assert!(near(pmd.stolen.core_percent, 97.566), "{figures:?}");
        assert!(near(pmd.interval_s, 4.128), "{figures:?}");
        let used: f64 = pmd.tenants.iter().filter_map(|tenant| tenant.used_percent).sum();
        assert!(near(used, 100.0), "{used}");
    }

    #[test]
    fn a_tenant_is_entitled_to_its_weight_among_those_that_had_work() {
        let (before, after) = recorded();
        let figures = Figures::between(&before, &after);
        let tenants: Vec<_> = figures.pmds[0]
            .tenants
            .iter()
            .map(|tenant| (tenant.name.as_str(), tenant.entitled_percent))
            .collect();
        // `idle` has a weight of 1, too.
        assert_eq!(tenants, [("batch", Some(25.0)), ("web", Some(75.0)), ("idle", None)]);
    }

    #[test]
    fn rates_and_waits_are_of_the_interval_by_the_pmds_own_clock() {
        let (before, after) = recorded();
        let figures = Figures::between(&before, &after);
        let web = &figures.pmds[0].tenants[1];
        assert!(near(web.packets_per_s, 360.223), "{web:?}");
        assert!(near(web.of_core.core_percent, 0.1753), "{web:?}");
        // 1462 waits, 1405 of them below 4096 cycles and 1457 below 262 144.
        assert!(near(web.wait_p50_us.unwrap(), 1.578), "{web:?}");
        assert!(near(web.wait_p99_us.unwrap(), 100.975), "{web:?}");
        let batch = &figures.pmds[0].tenants[0];
        assert_eq!(batch.credit_cycles, Some(-7774));
        assert!(near(batch.gated_per_s, 353.925), "{batch:?}");
        let reasons: Vec<&str> =
            batch.drops_per_s.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!(reasons, ["tx_no_queue", "tx_ring_full"]);
    }

    #[test]
    fn drops_over_share_are_the_tenants_whose_they_were_not_the_uplinks() {
        let (before, mut after) = recorded();
        after.port_list[2]["drops"] = json!({"tenant_over_share": 500, "no_rule": 3});
        after.pmd_stats["pmds"][0]["tenant_details"]["web"]["drops"]["tenant_over_share"] =
            json!(500);
        let figures = Figures::between(&before, &after);
        let reasons = |name: &str| {
            let mut tenants = figures.pmds[0].tenants.iter();
            let tenant = tenants.find(|tenant| tenant.name == name).unwrap();
            tenant.drops_per_s.iter().map(|(reason, _)| reason.clone()).collect::<Vec<_>>()
        };
        assert_eq!(reasons("web"), ["tenant_over_share"]);
        assert_eq!(reasons("idle"), ["no_rule"]);
    }

    #[test]
    fn packets_that_were_received_make_a_tenant_active_and_an_interrupt_does_not() {
        let (before, mut after) = recorded();
        let cycles = |after: &mut Sample, cycles: u64| {
            after.pmd_stats["pmds"][0]["tenant_details"]["idle"]["cycles"] = cycles.into();
            Figures::between(&before, after).pmds[0]
                .tenants
                .iter()
                .find(|tenant| tenant.name == "idle")
                .and_then(|tenant| tenant.entitled_percent)
        };
        assert_eq!(cycles(&mut after, 1_000_000), None);
        assert_eq!(cycles(&mut after, 10_000_000), Some(20.0));
    }

    #[test]
    fn nothing_elapsed_or_counted_is_zero_and_no_number_is_wild() {
        let (before, after) = recorded();
        for (before, after) in [(&after, &after), (&after, &before)] {
            let figures = Figures::between(before, after);
            for tenant in &figures.pmds[0].tenants {
                let rates = [tenant.packets_per_s, tenant.of_core.core_percent, tenant.of_core.mhz];
                assert_eq!(rates, [0.0; 3]);
                assert_eq!(tenant.wait_p99_us, None);
            }
            assert_eq!(figures.pmds[0].stolen, Use::default());
        }
    }
}
