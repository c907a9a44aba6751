//! The OpenFlow server of a bridge that only remembers: what it answers, whom it tells what, and
//! whom it does not wait for.

mod bundles;
mod controllers;
mod conversation;
mod events;
mod hostile;
#[path = "../support/peer.rs"]
mod peer;
mod roles;
mod server;
