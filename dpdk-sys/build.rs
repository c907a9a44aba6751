//! Finds libdpdk with pkg-config, compiles the shim of its static inline functions, and lets
//! bindgen read the headers that are installed: no binding of another DPDK version can creep in.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const HELP: &str = "libdpdk was not found by pkg-config. On Debian: \
apt-get install libdpdk-dev pkg-config libclang1-14 libclang-common-14-dev";

fn main() {
    println!("cargo::rerun-if-changed=shim.c");
    println!("cargo::rerun-if-changed=shim.h");
    if pkg_config::Config::new().atleast_version("22.11").probe("libdpdk").is_err() {
        println!("cargo::error={HELP}");
        exit(1);
    }
    let cflags = cflags();
    let mut shim = cc::Build::new();
    cflags.iter().for_each(|flag| {
        shim.flag(flag);
    });
    shim.file("shim.c").compile("tollgate_dpdk_shim");

    let bindings = bindgen::Builder::default()
        .header("shim.h")
        .clang_args(&cflags)
        .allowlist_function("shim_.*|rte_eal_init|rte_pktmbuf_pool_create|rte_mempool_.*_count|rte_mempool_free")
        .allowlist_function("rte_eth_dev_(start|stop|close|get_port_by_name|socket_id|set_mtu|get_mtu|adjust_nb_rx_tx_desc)")
        .allowlist_function("rte_eth_(rx|tx)_queue_setup|rte_eth_promiscuous_(enable|disable|get)|rte_eth_xstats_get(_names)?")
        .allowlist_function("rte_strerror|rte_dev_probe|rte_dev_remove|rte_thread_(un)?register")
        .opaque_type("rte_mempool|rte_mbuf|rte_device|rte_eth_rxconf|rte_eth_txconf")
        .derive_default(true)
        .layout_tests(false)
        .generate();
    let bindings = match bindings {
        Ok(bindings) => bindings,
        Err(error) => {
            println!("cargo::error=bindgen cannot read the DPDK headers: {error}. {HELP}");
            exit(1);
        }
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs");
    if let Err(error) = bindings.write_to_file(&out) {
        println!("cargo::error=cannot write {}: {error}", out.display());
        exit(1);
    }
}

/// All of pkg-config's flags: `-include rte_config.h -march=...` decide the layout of structures.
fn cflags() -> Vec<String> {
    let output = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).split_whitespace().map(str::to_owned).collect()
}
