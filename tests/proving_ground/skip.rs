//! Tests that need a peer which may be missing: SKIP with the reason, or a failure in CI.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Names the file that skipped tests are added to, one line each.
pub const SKIP_LIST: &str = "TOLLGATE_SKIP_LIST";

/// Why a peer cannot take part: a program that is not installed, no hugepages, no package archive.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Whether whatever would be skipped is to fail: `REQUIRE_PEERS=1` in the environment.
pub fn peers_are_required() -> bool {
    env::var_os("REQUIRE_PEERS").is_some_and(|value| value == "1")
}

/// Says that the running test is skipped.
///
/// # Panics
/// With `REQUIRE_PEERS=1` in the environment: there a skipped test is a failed one.
#[allow(clippy::print_stdout)]
pub fn skip(missing: &Missing) {
    assert!(!peers_are_required(), "REQUIRE_PEERS=1, and this test would be skipped: {missing}");
    println!("SKIP {missing}");
    if let Some(list) = env::var_os(SKIP_LIST) {
        // A runner shows nothing of tests that pass; whoever started it reads the list. One write
        // to a file opened for appending keeps lines of several tests apart.
        let file = File::options().append(true).create(true).open(list);
        let _ = file.and_then(|mut file| file.write_all(format!("SKIP {missing}\n").as_bytes()));
    }
}

/// Unwraps a `Result<T, Missing>`; when something is missing, skips the test by returning `Ok(())`.
#[macro_export]
macro_rules! require {
    ($peer:expr) => {
        match $peer {
            Ok(peer) => peer,
            Err(missing) => {
                $crate::skip::skip(&missing);
                return Ok(());
            }
        }
    };
}

/// Looks a program up in `PATH` and in the sbin directories that an ordinary user's PATH leaves out.
pub fn program(name: &str, debian_package: &str) -> Result<PathBuf, Missing> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Missing(format!("{name} is not installed (Debian: {debian_package})")))
}

/// A Python that can import `module`: `TOLLGATE_PYTHON` if it is set, else `python3`.
pub fn python_with(module: &str, package: &str) -> Result<PathBuf, Missing> {
    let named = env::var_os("TOLLGATE_PYTHON").map(PathBuf::from);
    let python = named.map_or_else(|| program("python3", "python3"), Ok)?;
    let imported = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if imported.is_ok_and(|output| output.status.success()) {
        return Ok(python);
    }
    Err(Missing(format!(
        "{} has no module {module} (PyPI: {package}; another Python by TOLLGATE_PYTHON)",
        python.display()
    )))
}

/// Whether what switchd's feature `dpdk` is built with is installed; debug builds have it then.
pub fn libdpdk() -> Result<(), Missing> {
    let mut probe = Command::new("pkg-config");
    probe.args(["--exists", "libdpdk >= 22.11"]).stdout(Stdio::null()).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let packages = "libdpdk-dev pkg-config libclang1-14 libclang-common-14-dev";
    Err(Missing(format!("libdpdk is not installed (Debian: {packages})")))
}

/// Whether at least `count` 2 MB hugepages are free now.
pub fn hugepages(count: u64) -> Result<(), Missing> {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let free: u64 = std::fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_default();
    if free >= count {
        return Ok(());
    }
    Err(Missing(format!(
        "{count} free 2 MB hugepages are needed and {free} are there \
         (as root: echo 1024 > /proc/sys/vm/nr_hugepages)"
    )))
}
