//! The configuration file: its documented defaults are the real ones, and mistakes are answered
//! with the key, its line and what would be right.

use std::fs;
use std::path::Path;

use tollgate_policy::SchedulerConfig;
use tollgate_switchd::config::{Config, PortMode, SlowPathConfig, TenantConfig, load, parse};

fn example() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/switchd.toml");
    fs::read_to_string(path).unwrap()
}

/// The example with each `#key = default` line in force.
fn example_with_defaults_written_out() -> String {
    example()
        .lines()
        .map(|line| {
            let shows_default = line
                .strip_prefix('#')
                .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
            format!("{}\n", shows_default.unwrap_or(line))
        })
        .collect()
}

#[test]
fn the_example_is_valid_as_it_stands() {
    let config = parse(&example()).unwrap();
    assert_eq!(config.bridges.len(), 1);
    assert_eq!(config.ports.len(), 2);
    assert_eq!(config.pmd, Config::default().pmd);
}

#[test]
fn every_documented_default_is_the_real_default() {
    let text = example_with_defaults_written_out();
    let mut written = parse(&text).unwrap();
    let real = parse(&example()).unwrap();

    assert_eq!(written.pmd, real.pmd);
    let per_tenant = written.cache.megaflows_per_tenant.take();
    assert_eq!(written.cache, real.cache);
    assert_eq!(per_tenant, Some(real.cache.megaflows_per_tenant()));
    let policy = real.scheduler.policy(2_500_000_000);
    let (tenant, default) = (&written.tenants["vm1"], &real.tenants["vm1"]);
    let knobs = |tenant: &TenantConfig| tenant.settings().knobs(&policy).unwrap();
    assert_eq!(knobs(tenant), knobs(default));
    assert_eq!(tenant.controller_pps, default.controller_pps);
    assert_eq!(tenant.megaflows, Some(real.cache.megaflows_per_tenant() as u64));
    assert_eq!(tenant.exact_entries, Some(real.cache.exact_entries as u64), "if it is alone");
    assert_eq!(written.bridges, real.bridges);
    assert_eq!(real.slow_path, SlowPathConfig::default(), "optional: the daemon's own");
    assert_eq!(written.scheduler.protection, real.scheduler.protection);
    assert_eq!(written.scheduler.policy(2_500_000_000), real.scheduler.policy(2_500_000_000));
    assert_eq!(real.scheduler.policy(2_500_000_000), SchedulerConfig::default());
    let (port, default) = (&written.ports[0], &real.ports[0]);
    assert_eq!(port.mode, default.mode);
    assert_eq!(port.queue_pairs, default.queue_pairs);
    assert_eq!(port.tenant.as_ref(), Some(&default.name));
    assert_eq!(port.ofport, Some(1), "the lowest free number");
}

#[test]
fn the_example_shows_every_key() {
    let mut shown: toml::Table = example_with_defaults_written_out().parse().unwrap();
    let mut whole = parse(&example_with_defaults_written_out()).unwrap();
    // Only the first port is written in full.
    whole.ports.truncate(1);
    shown["ports"].as_array_mut().unwrap().truncate(1);
    assert_eq!(shown, toml::Table::try_from(whole).unwrap());
    // An optional key that the example left out would be missing in both.
    let optional = [
        "cap_cycles",
        "floor_cycles",
        "horizon_cycles",
        "megaflows_per_tenant",
        "mark_depth_cycles",
        "megaflows",
        "exact_entries",
        "core",
        "nice",
        "socket",
        "tenant",
        "ofport",
        "pmd",
        "mac",
    ];
    for key in optional {
        assert!(example().contains(&format!("\n#{key} = ")), "{key}");
    }
}

/// Line, key and message of the only problem in `text`.
fn problem(text: &str) -> (Option<usize>, String, String) {
    let mut problems = parse(text).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problem = problems.remove(0);
    (problem.line, problem.key, problem.message)
}

#[test]
fn a_port_has_the_keys_of_its_type_and_dpdk_says_what_it_needs() {
    let port = |keys: &str| {
        format!("[[bridges]]\nname = 'br0'\n[[ports]]\nbridge = 'br0'\nname = 'nic0'\n{keys}\n")
    };
    let (line, key, message) = problem(&port("mtu = 1500"));
    assert_eq!((line, key.as_str()), (Some(6), "ports[0].mtu"));
    assert!(message.contains("dpdk"), "{message}");
    let card = "devargs = 'net_null0'\ntype = 'dpdk'";
    let (line, key, message) = problem(&port(card));
    assert_eq!((line, key.as_str()), (Some(7), "ports[0].type"));
    if cfg!(feature = "dpdk") {
        assert!(message.contains("[dpdk]"), "{message}");
        let with = |keys: &str| format!("[dpdk]\n{}", port(&format!("{card}\n{keys}")));
        assert!(parse(&with("")).unwrap().ports[0].is_uplink());
        for (keys, key) in
            [("queues = 9", "queues"), ("mtu = 67", "mtu"), ("mode = 'connect'", "mode")]
        {
            assert_eq!(problem(&with(keys)).1, format!("ports[0].{key}"));
        }
    } else {
        assert!(message.contains("--features dpdk"), "{message}");
        assert_eq!(problem("[dpdk]\n").1, "dpdk");
    }
}

#[test]
fn mistakes_are_answered_with_key_line_and_what_would_be_right() {
    let bridge = "[[bridges]]\nname = 'br0'\n";
    let cases = [
        ("[pmd]\ncore = [1]\n", 2, "pmd.core", "cores"),
        ("[pmd]\n\ncores = 1\n", 3, "pmd.cores", "sequence"),
        ("[pmd]\ncores = [1, 2,\n 1]\n", 3, "pmd.cores[2]", "twice"),
        ("[scheduler]\nquantum_cycles = 0\n", 2, "scheduler.quantum_cycles", "must be 1 to"),
        ("[scheduler]\ncap_cycles = 9999\n", 2, "scheduler.cap_cycles", "two quanta"),
        ("[scheduler]\nrefill = 'remote'\n", 2, "scheduler.refill", "`coordinator`"),
        ("[scheduler]\nperiod_us = 0\n", 2, "scheduler.period_us", "1 to 100000"),
        ("[scheduler]\nboost = 2.5\n", 2, "scheduler.boost", "0.001 to 2"),
        ("[scheduler]\nprotection = 'on'\n", 2, "scheduler.protection", "boolean"),
        ("[cache]\nexact_entries = 63\n", 2, "cache.exact_entries", "64 to 16777216"),
        ("[cache]\nmegaflows_per_tenant = 0\n", 2, "cache.megaflows_per_tenant", "1 to"),
        ("[tenants.a]\ncontroller_pps = -1\n", 2, "tenants.a.controller_pps", "u32"),
        ("[tenants.a]\ncap_cycles = 9999\n", 2, "tenants.a.cap_cycles", "10000 (two quanta)"),
        ("[tenants.a]\nrx_overrun = 'lose'\n", 2, "tenants.a.rx_overrun", "mark-then-drop"),
        ("[tenants.a]\nsetups_per_second = 0\n", 2, "tenants.a.setups_per_second", "1 to"),
        ("[slow_path]\nnice = 99\n", 2, "slow_path.nice", "-20 to 19"),
        ("[tenants.a]\n[tenants.b]\nweight = nan\n", 3, "tenants.b.weight", "0.001 to 1000"),
        ("[tenants]\n'a/b' = {}\n", 2, "tenants.a/b", "letters, digits"),
        ("[[bridges]]\nname = 'br0'\nport = 1\n", 3, "bridges[0].port", "name"),
        ("bridges = [{name = '7'}]\n", 1, "bridges[0].name", "number"),
        ("[[bridges]]\nname = 'a'\n[[bridges]]\nname = 'a'\n", 4, "bridges[1].name", "another"),
        ("\n[[ports]]\nbridge = 'br9'\nname = 'p'\n", 3, "ports[0].bridge", "no bridge"),
        (
            "[[bridges]]\nname = 'a'\nfail_mode = 'standalone'\n",
            3,
            "bridges[0].fail_mode",
            "not implemented",
        ),
        (
            "[[bridges]]\nname = 'a'\ncontrollers = ['tcp:10.0.0.1',\n'ssl:10.0.0.1']\n",
            3,
            "bridges[0].controllers",
            "\"ssl:10.0.0.1\": TLS",
        ),
        (
            "[[bridges]]\nname = 'a'\ncontrollers = ['tcp:localhost:6653']\n",
            3,
            "bridges[0].controllers",
            "no IP address",
        ),
    ];
    for (text, line, key, message) in cases {
        let (found_line, found_key, found_message) = problem(text);
        assert_eq!((found_line, found_key.as_str()), (Some(line), key), "{text}: {found_message}");
        assert!(found_message.contains(message), "{text}: {found_message}");
    }
    let port_cases = [
        ("mode = 'server'", "ports[0].mode", "listen"),
        ("ofport = 65280", "ports[0].ofport", "1 to 65279"),
        ("queue_pairs = 9", "ports[0].queue_pairs", "1 to 8"),
        ("queue_pairs = -1", "ports[0].queue_pairs", "u16"),
        ("pmd = 1", "ports[0].pmd", "no PMD 1"),
        ("socket = 'relative'", "ports[0].socket", "absolute"),
        ("tenant = 'system'", "ports[0].tenant", "own account"),
    ];
    for (line, key, message) in port_cases {
        let text = format!("{bridge}[[ports]]\nbridge = 'br0'\nname = 'p'\n{line}\n");
        let (found_line, found_key, found_message) = problem(&text);
        assert_eq!((found_line, found_key.as_str()), (Some(6), key), "{found_message}");
        assert!(found_message.contains(message), "{line}: {found_message}");
    }
}

#[test]
fn a_missing_key_is_named() {
    let (line, key, message) = problem("[[bridges]]\n[[ports]]\n");
    assert_eq!(line, Some(1));
    assert_eq!(key, "bridges[0]");
    assert!(message.contains("name"), "{message}");
}

#[test]
fn text_that_is_no_toml_has_its_line() {
    let (line, _, message) = problem("[pmd]\ncores = [\n\n[scheduler]\n");
    assert!(line.is_some(), "{message}");
    assert_eq!(problem("[pmd]\ncores == 1\n").0, Some(2));
}

#[test]
fn all_wrong_values_are_told_at_once() {
    let text = "[scheduler]\nquantum_cycles = 0\n[slow_path]\nnice = 99\n";
    let keys: Vec<String> =
        parse(text).unwrap_err().into_iter().map(|problem| problem.key).collect();
    assert_eq!(keys, ["scheduler.quantum_cycles", "slow_path.nice"]);
}

#[test]
fn the_file_is_named_in_errors_and_need_not_be_sane() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    assert!(load(&path).unwrap_err().to_string().contains("t.toml"));
    fs::write(&path, [0xff, 0xfe]).unwrap();
    load(&path).unwrap_err();
    fs::write(&path, "[pmd]\ncor = 1\n").unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("t.toml: line 2: `pmd.cor`: unknown field"), "{error}");
    load(Path::new("/dev/zero")).unwrap_err();
    fs::write(&path, "[".repeat(100_000)).unwrap();
    load(&path).unwrap_err();
    fs::write(&path, "a.".repeat(100_000)).unwrap();
    load(&path).unwrap_err();
    fs::write(&path, "").unwrap();
    assert_eq!(load(&path).unwrap(), Config::default());
}

#[test]
fn modes_are_spelled_as_documented() {
    let text = "[[bridges]]\nname='b0'\n[[ports]]\nbridge='b0'\nname='p'\nmode='connect'\n";
    assert_eq!(parse(text).unwrap().ports[0].mode, PortMode::Connect);
}
