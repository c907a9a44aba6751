//! DPDK's side of it.

mod calls;
mod device;
mod eal;
mod pool;
mod rx;
mod tx;

pub use device::Device;
pub use eal::{Eal, register_polling_thread};
pub use rx::RxQueue;
pub use tx::TxQueue;
