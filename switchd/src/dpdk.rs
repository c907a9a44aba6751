//! DPDK's environment, for the ports that are network cards.

use anyhow::Context as _;
use tollgate_nic::Eal;

use crate::config::DpdkConfig;
use crate::cores;

/// Initialises it with what is configured, and with what a switch needs where that says nothing of it.
///
/// # Errors
/// In DPDK's words; it says more on stderr.
pub(crate) fn start(config: &DpdkConfig, polled: &[usize]) -> anyhow::Result<Eal> {
    let others = cores::others(polled)?;
    let arguments = arguments(&config.eal_args, &others);
    tracing::info!(?arguments, "DPDK");
    Eal::init(&arguments).context("[dpdk] eal_args")
}

/// The configured arguments, and in front of them:
/// - one lcore, which floats over the CPUs that no PMD polls on: the PMDs are threads of ours, and EAL
///   would otherwise start one of its own on each CPU;
/// - nothing shared with, or left to, other programs of DPDK on this host.
fn arguments(configured: &[String], others: &[usize]) -> Vec<String> {
    let has = |options: &[&str]| {
        let is_one = |argument: &String| {
            let option = argument.split('=').next().unwrap_or_default();
            // Short options may have their value right behind them.
            options
                .iter()
                .any(|known| option == *known || (known.len() == 2 && argument.starts_with(known)))
        };
        configured.iter().any(is_one)
    };
    let mut arguments = Vec::new();
    if !has(&["-l", "-c", "--lcores"]) {
        let others: Vec<String> = others.iter().map(usize::to_string).collect();
        arguments.push(format!("--lcores=0@({})", others.join(",")));
    }
    if !has(&["--in-memory", "--no-shconf", "--file-prefix", "--legacy-mem", "--proc-type"]) {
        // EAL has the one only without hugepages, and the other only with them.
        let private = if has(&["--no-huge"]) { "--no-shconf" } else { "--in-memory" };
        arguments.push(private.to_owned());
    }
    if !has(&["--telemetry", "--no-telemetry"]) {
        arguments.push("--no-telemetry".to_owned());
    }
    arguments.extend_from_slice(configured);
    arguments
}

#[cfg(test)]
mod tests {
    use super::arguments;

    fn with(configured: &[&str]) -> String {
        let configured: Vec<String> = configured.iter().map(|text| (*text).to_owned()).collect();
        arguments(&configured, &[0, 2]).join(" ")
    }

    #[test]
    fn what_is_configured_comes_last_and_what_it_leaves_open_is_added() {
        assert_eq!(with(&[]), "--lcores=0@(0,2) --in-memory --no-telemetry");
        assert_eq!(
            with(&["--no-huge", "-m", "512"]),
            "--lcores=0@(0,2) --no-shconf --no-telemetry --no-huge -m 512"
        );
        assert_eq!(
            with(&["-l0", "--file-prefix=x", "--telemetry"]),
            "-l0 --file-prefix=x --telemetry"
        );
    }
}
