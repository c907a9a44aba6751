//! The pipeline against oracles, with a stand-in for the PMDs.

mod batches;
mod controllers;
mod counters;
mod equivalence;
mod flow_mods;
mod frames;
mod metering;
mod ovs;
mod port_mods;
mod removals;
mod resubmits;
mod rules;
mod scale;
mod sim;
mod staleness;
mod stations;
mod traces;
mod uplinks;
mod vlans;
