//! The pipeline against oracles, with a stand-in for the PMDs.

mod batches;
mod counters;
mod equivalence;
mod flow_mods;
mod frames;
mod ovs;
mod removals;
mod rules;
mod sim;
mod staleness;
mod stations;
mod traces;
mod vlans;
