//! Why a device could not be had.

/// Why a device could not be had.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// Not in this program.
    #[error(
        "this switchd was built without DPDK: build it by \
         `cargo build -p tollgate-switchd --features dpdk` \
         (on Debian after `apt-get install libdpdk-dev pkg-config libclang1-14 libclang-common-14-dev`)"
    )]
    NotBuilt,
    /// DPDK can be initialised once per process.
    #[error("DPDK's environment is initialised already, or an earlier attempt failed")]
    EalOnce,
    /// DPDK's environment does not start.
    #[error(
        "rte_eal_init: {0}; EAL has said more on stderr (without hugepages: `--no-huge`, `-m` and so \
         many megabytes)"
    )]
    Eal(String),
    /// A zero byte in a name or argument.
    #[error("{0:?} contains a zero byte")]
    ZeroByte(String),
    /// More queues than the device has.
    #[error("queues: {asked} are asked for, the device ({driver}) has {most}")]
    TooManyQueues {
        /// As configured.
        asked: u16,
        /// As the device says.
        most: u16,
        /// Its driver.
        driver: String,
    },
    /// An MTU that the device cannot have.
    #[error("mtu: {asked} is asked for, the device ({driver}) takes {least} to {most}")]
    Mtu {
        /// As configured.
        asked: u16,
        /// As the device says.
        least: u16,
        /// As the device says.
        most: u16,
        /// Its driver.
        driver: String,
    },
    /// The device is another port's.
    #[error("devargs: the device {0} is in use by another port")]
    InUse(String),
    /// No such device.
    #[error(
        "devargs: there is no device {device}: {reason} (a PCI device must be bound to vfio-pci, a \
         virtual one's name begin with its driver's, as net_af_packet0 does)"
    )]
    NoDevice {
        /// What was looked for.
        device: String,
        /// DPDK's words.
        reason: String,
    },
    /// DPDK refused.
    #[error("{call}: {reason}")]
    Dpdk {
        /// The function that failed.
        call: &'static str,
        /// `rte_strerror`'s words.
        reason: String,
    },
}
