//! The switch does what it says: the real daemon, with guests that are a virtio-net driver in this
//! process. Needs no root, no hugepages, no peer.

mod accounting;
mod cards;
mod controllers;
mod forwarding;
mod lifecycle;
mod ports;
mod recipes;
mod tables;
mod top;
