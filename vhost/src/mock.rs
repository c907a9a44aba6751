//! The other side, for tests: a guest's memory and driver, a frontend, and a host for rings.
//!
//! A driver here does what it is told, right or wrong; nothing panics but on a broken test.
#![allow(clippy::disallowed_methods)] // control side
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "for tests only"
)]

mod driver;
mod frontend;
mod host;
mod ram;

pub use driver::{Descriptor, Driver, Layout};
pub use frontend::MockFrontend;
pub use host::MockHost;
pub use ram::Ram;

use std::sync::Arc;

use crate::features::Features;
use crate::ring::{ActiveVring, VringConfig};
use crate::shared::RingPlaceError;
use crate::status::PortStatus;

/// The first pair's ring to the guest (receiveq1).
pub const TO_GUEST: u16 = 0;
/// The first pair's ring from the guest (transmitq1).
pub const FROM_GUEST: u16 = 1;

/// A ring ready to be used without any session, over memory mapped as the switch maps it.
///
/// # Errors
/// As when a session activates a ring.
pub fn activate(
    ram: &Ram,
    driver: &Driver,
    index: u16,
    features: Features,
    status: &Arc<PortStatus>,
) -> Result<ActiveVring, RingPlaceError> {
    let config = VringConfig {
        index,
        size: u32::from(driver.size()),
        addresses: driver.addresses(),
        base: driver.base(),
        features,
        call: None,
        fault: None,
    };
    ActiveVring::activate(config, &ram.map(), status)
}

/// An Ethernet frame of `len` bytes whose content depends on `seed` and position.
pub fn frame(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_mul(31).wrapping_add(at as u8) ^ (at >> 8) as u8).collect()
}
