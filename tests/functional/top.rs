//! `ofctl top` says who uses the core while it is used.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tollgate_guest::generator::pin_to_core;

use proving_ground::binaries;
use proving_ground::lab::{Lab, udp};
use proving_ground::process::Supervised;

/// Two tenants send to a port without a guest for as long as `ofctl` with these arguments runs; returns
/// what it printed.
fn top_under_load(lab: &mut Lab, arguments: &[&str]) -> anyhow::Result<String> {
    let mut ofctl = binaries::command("ofctl")?;
    ofctl.env("TOLLGATE_RUNDIR", lab.switch.run_dir()).args(arguments);
    let output = lab.switch.run_dir().join("top.out");
    let mut ofctl = Supervised::spawn("ofctl", &mut ofctl, &output)?;
    let frame = udp(1, 2, 7, 60);
    loop {
        for sender in ["web", "batch"] {
            let port = lab.port(sender)?;
            for _ in 0..64 {
                if !port.send(&frame, 1) {
                    break;
                }
            }
        }
        if let Some(status) = ofctl.wait(Duration::ZERO)? {
            ensure!(status.success(), "{status}: {}", ofctl.output());
            return Ok(ofctl.output());
        }
    }
}

fn lab() -> anyhow::Result<Lab> {
    let mut lab = Lab::new(&["web", "batch"])?;
    lab.switch.add_port("sink", "sink")?;
    lab.switch.add_flows(&["ip,actions=set_field:10.0.9.9->ip_dst,output:sink"])?;
    lab.switch.ofctl(&["tenant", "set", "web", "--weight", "3"])?;
    for sender in ["web", "batch"] {
        lab.deliver(sender, &udp(1, 2, 7, 60))?;
    }
    // As in `time`: not before the daemon's start, which would inherit it.
    let _ = pin_to_core(1);
    Ok(lab)
}

#[test]
fn it_names_the_tenants_and_accounts_for_the_whole_core() -> anyhow::Result<()> {
    let mut lab = lab()?;
    let text = top_under_load(&mut lab, &["top", "--count", "1"])?;
    let row = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        let line = line.with_context(|| format!("no {name} in\n{text}"))?;
        anyhow::Ok(line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let mut of_core = 0.0;
    for name in ["web", "batch", "sink", "(system)", "(idle)", "(stolen)"] {
        of_core += row(name)?[4].parse::<f64>()?;
    }
    ensure!((99.0..101.0).contains(&of_core), "{of_core} % of the core in\n{text}");
    let (web, batch) = (row("web")?, row("batch")?);
    ensure!((&*web[1], &*web[2]) == ("3", "75.00"), "{text}");
    ensure!((&*batch[1], &*batch[2]) == ("1", "25.00"), "{text}");
    for sender in [web, batch] {
        ensure!(sender[10].parse::<u64>()? > 0, "packets: {text}");
        ensure!(sender[14].starts_with("tx_no_queue="), "why its packets are dropped: {text}");
    }
    ensure!(!text.contains('\x1b'), "no escape codes where there is no terminal: {text:?}");
    lab.switch.stop()
}

#[test]
fn as_json_it_is_one_object_for_each_interval() -> anyhow::Result<()> {
    let mut lab = lab()?;
    let text = top_under_load(&mut lab, &["--json", "top", "--interval", "1", "--count", "2"])?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(lines.len() == 2, "{text}");
    let mut accounted = 0;
    for line in &lines {
        let pmd = &line["pmds"][0];
        let interval_s = pmd["interval_s"].as_f64().context("no interval")?;
        if interval_s == 0.0 {
            // Others kept the PMD from its core all the while.
            continue;
        }
        let tenants = pmd["tenants"].as_array().context("no tenants")?;
        let of_tenants = tenants.iter().map(|tenant| tenant["core_percent"].as_f64());
        let others = ["system", "idle", "stolen"].map(|name| pmd[name]["core_percent"].as_f64());
        let of_core: f64 = of_tenants.chain(others).flatten().sum();
        ensure!((99.0..101.0).contains(&of_core), "{of_core} % of the core in {line}");
        ensure!(pmd["p99_us"]["task"].as_f64().is_some_and(|us| us > 0.0), "{line}");
        accounted += 1;
    }
    ensure!(accounted > 0, "the PMD never ran: {text}");
    lab.switch.stop()
}
