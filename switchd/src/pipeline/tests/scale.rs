//! What many rules and many decisions take. Prints it; run with `--release -- --ignored scale`.

use std::fs;
use std::time::Instant;

use tollgate_openflow::{FlowCommand, FlowMod};

use super::frames::{Frame, Layer3, Layer4};
use super::sim::{Sim, key_of, parsed};

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn rule(n: u32) -> FlowMod {
    let [a, b, c, d] = n.to_be_bytes();
    let port = n % 50_000;
    parsed(
        FlowCommand::Add,
        &format!(
            "priority=100,tcp,nw_src=10.{a}.{b}.{c},tp_dst={port},nw_dst=10.9.9.{d},actions=output:2"
        ),
    )
}

#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "what it measured")]
fn a_million_rules_and_a_hundred_thousand_decisions() {
    let sim = Sim::new(3);
    sim.add("priority=1,actions=output:3");
    sim.add("priority=90,tcp,nw_src=10.0.0.0/8,tp_dst=0x8000/0x8000,actions=output:3");
    let decisions = 100_000_u32;
    for n in 0..decisions {
        let [_, a, b, c] = n.to_be_bytes();
        let rule = format!("priority=50,ip,nw_src=10.{a}.{b}.{c},actions=output:2");
        sim.core.flow_mod(sim.bridge, &parsed(FlowCommand::Add, &rule)).unwrap();
    }
    let started = Instant::now();
    for n in 0..decisions {
        let [_, a, b, c] = n.to_be_bytes();
        let layer3 = Layer3::Ipv4 {
            src: [10, a, b, c],
            dst: [10, 9, 9, 9],
            tos: 0,
            ttl: 64,
            fragment: 0,
            layer4: Layer4::Tcp(n as u16, n as u16),
        };
        let frame = Frame { layer3, ..Frame::udp(1, 2) }.build();
        let answer = sim.answer(1, &key_of(1, &frame));
        sim.pmd.install(answer.verdict.megaflow);
    }
    println!(
        "{decisions} misses: {:?}, {} decisions",
        started.elapsed(),
        sim.pmd.megaflows().len()
    );
    let (before, rules) = (resident_bytes(), 900_000_u32);
    let mut spent = std::time::Duration::ZERO;
    let mut rounds = std::time::Duration::ZERO;
    for batch in 0..rules / 1000 {
        let batch: Vec<FlowMod> = (0..1000).map(|n| rule(batch * 1000 + n)).collect();
        let started = Instant::now();
        let outcomes = sim.core.flow_mods(sim.bridge, &batch);
        assert!(outcomes.iter().all(Result::is_ok));
        spent += started.elapsed();
        if batch[0].priority == 100 && spent.as_millis() % 200 < 5 {
            let started = Instant::now();
            sim.core.tell_pmds();
            rounds = rounds.max(started.elapsed());
        }
    }
    println!(
        "{rules} rules: {spent:?}, {} bytes each; longest round {rounds:?}; {} decisions left",
        (resident_bytes() - before) / rules as usize,
        sim.pmd.megaflows().len()
    );
    let started = Instant::now();
    sim.core.tell_pmds();
    println!("a round: {:?}, {} decisions left", started.elapsed(), sim.pmd.megaflows().len());
    let started = Instant::now();
    sim.core.collect();
    println!("collecting: {:?}", started.elapsed());
    let started = Instant::now();
    let mut dump = sim.core.flow_dump(sim.bridge, &Default::default()).unwrap();
    let mut dumped = 0;
    loop {
        let flows = dump.next_flows(256);
        dumped += flows.len();
        if flows.is_empty() {
            break;
        }
    }
    println!("dumping {dumped}: {:?}", started.elapsed());
    let strict: Vec<FlowMod> =
        (0..100_000).map(|n| FlowMod { command: FlowCommand::DeleteStrict, ..rule(n) }).collect();
    let started = Instant::now();
    assert!(sim.core.flow_mods(sim.bridge, &strict).iter().all(Result::is_ok));
    println!("100000 strict deletions: {:?}", started.elapsed());
    let started = Instant::now();
    sim.core.flow_mod(sim.bridge, &FlowMod::new(FlowCommand::Delete)).unwrap();
    println!("deleting the rest: {:?}", started.elapsed());
    let started = Instant::now();
    sim.core.tell_pmds();
    println!("a round: {:?}", started.elapsed());
}
