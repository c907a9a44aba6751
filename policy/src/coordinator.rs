//! The coordinated refill, which exists beside the local one so that both can be measured: a thread
//! beside the PMDs grants every registered tenant its part of the time that elapses,
//!
//! ```text
//! e = boost x elapsed x w / (sum of all registered tenants' weights)
//! ```
//!
//! on every PMD, whether the tenant has work there or not, and the PMD adds it to the tenant's
//! budget up to the cap ([`Scheduler::refill_grant`](crate::Scheduler::refill_grant)).

use crate::limits::CREDIT_CYCLES_MAX;
use crate::weight::Weight;

/// What each of `weights` is granted for the time from `since_cycles` to `now_cycles`, in cycles, on
/// every PMD.
///
/// Periods in a row add up exactly: a tenant's grants differ from its part of the whole time by less
/// than one cycle, however short the periods (between two changes of the weights).
pub fn grants(
    since_cycles: u64,
    now_cycles: u64,
    weights: &[Weight],
    boost_thousandths: u32,
) -> impl Iterator<Item = i64> {
    let total: u128 = weights.iter().map(|weight| u128::from(weight.thousandths())).sum();
    let divisor = total.max(1) * 1000;
    let boost = u128::from(boost_thousandths);
    // At most 2^64 x 2^32 x 2^20, and the divisor is at least 1000.
    let earned_by = move |cycles: u64, weight: Weight| {
        u128::from(cycles) * boost * u128::from(weight.thousandths()) / divisor
    };
    weights.iter().map(move |weight| {
        let earned =
            earned_by(now_cycles, *weight).saturating_sub(earned_by(since_cycles, *weight));
        // More than fills any budget from any debt; it keeps a sum of grants far below 2^63.
        earned.min(2 * u128::from(CREDIT_CYCLES_MAX)) as i64
    })
}
