//! Where the log goes: standard error, which a service manager collects.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

/// Starts logging at `levels`, in the form of the `--log-level` option.
///
/// # Errors
/// When `levels` cannot be read.
pub fn start(levels: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(levels).with_context(|| {
        format!(
            "--log-level {levels:?}: must be error, warn, info, debug or trace, \
             or a list of MODULE=LEVEL"
        )
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
