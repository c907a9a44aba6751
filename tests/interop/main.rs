//! Judged by real peers: DPDK's testpmd, Linux in QEMU, Open vSwitch's ovs-ofctl, the controllers
//! os-ken and Faucet.
//!
//! Each test runs the real daemon in a private directory. A peer that is not installed makes its
//! tests print `SKIP reason`; with `REQUIRE_PEERS=1` they fail.

mod controllers;
mod osken;
mod ovs_ofctl;
mod testpmd;
mod vms;

use proving_ground::Switch;
use proving_ground::switch::Options;

/// A switch with `br0` and one PMD on core 0; the peers take core 1.
fn switch() -> anyhow::Result<Switch> {
    let switch = Switch::start(Options::default())?;
    switch.add_bridge("br0")?;
    Ok(switch)
}
