//! The command line of `switchd`.

use std::path::PathBuf;

use clap::Parser;

use crate::limits::SHUTDOWN_DEADLINE_MS;
use crate::rundir::DEFAULT_RUN_DIR;

/// Tollgate, a software switch for virtual machines in which no tenant can take another's time.
#[derive(Clone, Debug, Parser)]
#[command(name = "switchd", version, override_usage = "switchd [OPTIONS]")]
pub struct Args {
    /// Configuration file (TOML); without one, every key has its default and there are no bridges.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Directory of the sockets; it is created if its parent exists.
    #[arg(long, value_name = "DIR", env = "TOLLGATE_RUNDIR", default_value = DEFAULT_RUN_DIR)]
    pub run_dir: PathBuf,

    /// What to log on standard error: error, warn, info, debug or trace, or a list of
    /// MODULE=LEVEL such as "info,tollgate_vhost=debug".
    #[arg(long, value_name = "LEVEL", env = "TOLLGATE_LOG", default_value = "info")]
    pub log_level: String,

    /// Check the configuration file, and end.
    #[arg(long, requires = "config")]
    pub check: bool,

    /// How long an orderly end may take before the process ends anyway, with status 1.
    #[arg(long, value_name = "MS", default_value_t = SHUTDOWN_DEADLINE_MS)]
    pub shutdown_timeout_ms: u64,
}
