//! Raw bindings to the system's libdpdk, for `nic` alone. Everything in here is unsafe C: who calls
//! a function upholds what DPDK's own documentation of it asks for.
//!
//! The published crate of a similar name binds DPDK 18.05 and does not build; this one binds
//! whatever `pkg-config libdpdk` finds (22.11 or later), static inline functions by a C shim.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::ptr_as_ptr)]
#![allow(clippy::missing_safety_doc, clippy::multiple_unsafe_ops_per_block)]
#![allow(unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
