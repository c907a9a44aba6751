//! A real virtual machine on a vhost-user socket: Debian's cloud kernel, a busybox initramfs, QEMU.

pub mod image;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use image::Image;

use crate::process::Supervised;
use crate::skip::{Missing, program};

/// Guest memory in MB: the kernel, busybox and two copies of a 20 MB file.
const MEMORY_MB: u32 = 192;

/// Who makes the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The switch listens, QEMU connects.
    Connects,
    /// QEMU listens, the switch connects (the recommended mode: the switch may restart).
    Listens,
}

/// What a guest does once its network is up; it powers off afterwards.
#[derive(Debug, Clone)]
pub enum Task {
    /// Serves `bytes` random bytes on TCP port 5000 once and prints their SHA-256; answers pings.
    Serve {
        /// How many bytes.
        bytes: u64,
    },
    /// Pings `peer` `pings` times, then fetches its file and prints the SHA-256 of what came.
    Fetch {
        /// The other guest's address.
        peer: String,
        /// How many pings.
        pings: u32,
    },
}

impl fmt::Display for Task {
    /// As the guest's init reads it from the kernel's command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serve { bytes } => write!(f, "serve:{bytes}"),
            Self::Fetch { peer, pings } => write!(f, "fetch:{peer}:{pings}"),
        }
    }
}

/// How a guest is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names the guest in messages and its console's file.
    pub name: String,
    /// The vhost-user socket.
    pub socket: PathBuf,
    /// Who makes it.
    pub role: Role,
    /// The card's address.
    pub mac: String,
    /// The guest's own address with its prefix length, such as `10.1.0.1/24`.
    pub address: String,
    /// What it does.
    pub task: Task,
    /// Further properties of the card, such as `mrg_rxbuf=off`.
    pub device: String,
    /// The CPU that QEMU is pinned to.
    pub core: usize,
}

/// A running guest; QEMU ends when this is dropped.
#[derive(Debug)]
pub struct Vm {
    process: Supervised,
}

impl Vm {
    /// Whether QEMU and what goes into the image are there; makes the image on first use.
    pub fn available() -> Result<Image, Missing> {
        program("qemu-system-x86_64", "qemu-system-x86")?;
        Image::get()
    }

    /// Boots a guest. `directory` takes its console.
    pub fn boot(image: &Image, options: &Options, directory: &Path) -> anyhow::Result<Self> {
        let console = directory.join(format!("{}.console", options.name));
        let process = Supervised::spawn(&options.name, &mut command(image, options), &console)?;
        Ok(Self { process })
    }

    /// What the guest has printed so far.
    pub fn console(&self) -> String {
        self.process.output()
    }

    /// Waits until the guest has printed a line that begins with `guest: KEY ` and returns the rest
    /// of that line.
    pub fn report(&mut self, key: &str, limit: Duration) -> anyhow::Result<String> {
        let start = format!("guest: {key} ");
        self.process.wait_until(&format!("\"{start}\""), limit, |console| {
            // Only whole lines: the console is read while it is written.
            let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let line = whole.lines().find_map(|line| line.trim().strip_prefix(&start));
            line.map(str::to_owned)
        })
    }
}

fn command(image: &Image, options: &Options) -> Command {
    let listen = if options.role == Role::Listens { ",server=on" } else { "" };
    let device =
        if options.device.is_empty() { String::new() } else { format!(",{}", options.device) };
    let mut command = Command::new("taskset");
    command.args(["-c", &options.core.to_string(), "qemu-system-x86_64"]);
    // The switch maps the guest's memory, so it must be a shared file descriptor.
    command.args(["-machine", "q35,accel=tcg,memory-backend=m", "-cpu", "max"]);
    command.args(["-m", &MEMORY_MB.to_string(), "-object"]);
    command.arg(format!("memory-backend-memfd,id=m,size={MEMORY_MB}M,share=on"));
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-serial", "stdio", "-kernel"]).arg(&image.kernel);
    command.arg("-initrd").arg(&image.initramfs).arg("-append").arg(format!(
        "console=ttyS0 quiet panic=-1 vm.address={} vm.task={}",
        options.address, options.task
    ));
    command.arg("-chardev");
    command.arg(format!("socket,id=c0,path={}{listen}", options.socket.display()));
    command.args(["-netdev", "vhost-user,id=n0,chardev=c0", "-device"]);
    // vectors=0: QEMU 7.2 without KVM crashes when a vhost-user card uses MSI-X.
    command.arg(format!("virtio-net-pci,netdev=n0,mac={},vectors=0{device}", options.mac));
    command
}
