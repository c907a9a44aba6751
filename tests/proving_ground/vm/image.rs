//! The guest's kernel and initramfs: made once per target directory from Debian packages.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::fs::{FlockOperation, flock};

use crate::binaries::target_directory;
use crate::process::run;
use crate::skip::{Missing, program};

/// The package whose dependency is the current cloud kernel.
const KERNEL_META_PACKAGE: &str = "linux-image-cloud-amd64";

/// The modules that a virtio-net card needs, in load order, below `kernel/` in the package.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];

/// The guest's init script.
const INIT: &str = include_str!("init.sh");

/// A kernel and an initramfs to boot.
#[derive(Debug, Clone)]
pub struct Image {
    /// `vmlinuz`.
    pub kernel: PathBuf,
    /// The cpio archive.
    pub initramfs: PathBuf,
}

impl Image {
    /// The image, made if it is not there. Processes that ask at the same time wait for one another.
    pub fn get() -> Result<Self, Missing> {
        let busybox = program("busybox", "busybox-static")?;
        Self::make(&busybox).map_err(|error| Missing(format!("no guest image: {error:#}")))
    }

    fn make(busybox: &Path) -> anyhow::Result<Self> {
        let directory = target_directory()?.join("proving-ground/vm");
        fs::create_dir_all(&directory)?;
        let lock = File::create(directory.join("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let image =
            Self { kernel: directory.join("vmlinuz"), initramfs: directory.join("initramfs.cpio") };
        if !image.kernel.exists() {
            unpack_kernel(&directory)?;
        }
        // Made every time: it costs little, and the script in it may have changed.
        let archive = archive(&directory, busybox)?;
        fs::write(directory.join("new"), archive)?;
        fs::rename(directory.join("new"), &image.initramfs)?;
        Ok(image)
    }
}

/// Downloads the kernel's package and unpacks it (nothing is installed); `vmlinuz` is moved in last,
/// so that its presence means that the rest is there.
fn unpack_kernel(directory: &Path) -> anyhow::Result<()> {
    let depends = run(Command::new("apt-cache").args(["depends", KERNEL_META_PACKAGE]))?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .with_context(|| format!("{KERNEL_META_PACKAGE} names no kernel (apt-get update?)"))?;
    let unpacked = directory.join("package");
    let _ = fs::remove_dir_all(&unpacked);
    fs::create_dir_all(&unpacked)?;
    // -o: an archive fetched as root would otherwise warn about a directory apt's own user cannot enter.
    let mut fetch = Command::new("apt-get");
    fetch.args(["-o", "APT::Sandbox::User=root", "download", package]).current_dir(&unpacked);
    run(&mut fetch)?;
    let archive = only_entry(&unpacked, ".deb")?;
    run(Command::new("dpkg").arg("-x").arg(archive).arg(&unpacked))?;
    let kernel = only_entry(&unpacked.join("boot"), "vmlinuz-")?;
    fs::rename(kernel, directory.join("vmlinuz"))?;
    Ok(())
}

/// The one entry of a directory whose name contains `part`.
fn only_entry(directory: &Path, part: &str) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().contains(part)) {
            found.push(path);
        }
    }
    ensure!(found.len() == 1, "one {part} expected in {directory:?}, found {found:?}");
    found.pop().context("nothing found")
}

/// The initramfs: busybox, the modules and the init script.
fn archive(directory: &Path, busybox: &Path) -> anyhow::Result<Vec<u8>> {
    let modules = only_entry(&directory.join("package/lib/modules"), "")?.join("kernel");
    let mut cpio = Cpio::default();
    for name in ["bin", "proc", "sys", "dev", "tmp", "lib"] {
        cpio.directory(name)?;
    }
    cpio.file("init", INIT.as_bytes())?;
    cpio.file("bin/busybox", &fs::read(busybox)?)?;
    let mut list = String::new();
    for module in MODULES {
        let bytes = fs::read(modules.join(module)).with_context(|| format!("module {module}"))?;
        let name = format!("lib/{}", module.rsplit('/').next().unwrap_or(module));
        cpio.file(&name, &bytes)?;
        list.push_str(&format!("/{name}\n"));
    }
    cpio.file("modules", list.as_bytes())?;
    cpio.finish()
}

/// Writes the "newc" format (linux/Documentation/driver-api/early-userspace/buffer-format.rst).
#[derive(Debug, Default)]
struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    fn directory(&mut self, name: &str) -> anyhow::Result<()> {
        self.entry(name, 0o040_755, &[])
    }

    fn file(&mut self, name: &str, data: &[u8]) -> anyhow::Result<()> {
        self.entry(name, 0o100_755, data)
    }

    fn finish(mut self) -> anyhow::Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> anyhow::Result<()> {
        self.entries += 1;
        let length = u32::try_from(data.len())?;
        let name_length = u32::try_from(name.len() + 1)?;
        write!(self.bytes, "070701")?;
        // inode, mode, uid, gid, links, mtime, size, four device numbers, name length, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        for field in fields {
            write!(self.bytes, "{field:08X}")?;
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(data);
        self.align();
        Ok(())
    }

    /// Names and data each end on a multiple of four bytes from the archive's start.
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
