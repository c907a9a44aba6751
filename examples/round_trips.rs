//! Two guests on a running switch, and how long a request takes from one to the other and back:
//!
//! ```text
//! cargo run --release --example round_trips -- $TOLLGATE_RUNDIR/vhost/vm1 $TOLLGATE_RUNDIR/vhost/vm2
//! ```
//!
//! Needs flows in both directions: `in_port=vm1,actions=output:vm2` and back.

use std::time::Duration;

use anyhow::Context as _;
use tollgate_guest::generator::{Generator, Phase};
use tollgate_guest::pair::PairConfig;
use tollgate_guest::port::PortConfig;

fn main() -> anyhow::Result<()> {
    let sockets: Vec<String> = std::env::args().skip(1).collect();
    let [here, there] = sockets.as_slice() else {
        anyhow::bail!("usage: round_trips SOCKET SOCKET");
    };
    let mut near = PortConfig::new("near", here);
    let mut far = PortConfig::new("far", there);
    (near.mac, near.ip) = ([2, 0, 0, 0, 0, 1], [10, 0, 0, 1]);
    (far.mac, far.ip) = ([2, 0, 0, 0, 0, 2], [10, 0, 0, 2]);
    let mut guests = Generator::attach(vec![near, far])?;
    let requests = PairConfig::rpc("requests", "near", "far", 1000.0);
    let report = guests.run(&Phase::new("round trips", Duration::from_secs(3), vec![requests]))?;
    let pair = report.pair("requests").context("the pair has a report")?;
    let latency =
        pair.latency_us.as_ref().context("no request came back: are there flows both ways?")?;
    #[allow(clippy::print_stdout, reason = "it is what the example is for")]
    {
        println!(
            "{} round trips, median {:.1} us, 99th percentile {:.1} us",
            pair.received, latency.p50, latency.p99
        );
    }
    Ok(())
}
