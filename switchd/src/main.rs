//! `switchd`: see the library.

use std::process::ExitCode;

use clap::Parser as _;
use tollgate_switchd::cli::Args;
use tollgate_switchd::{daemon, logging};

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = logging::start(&args.log_level).and_then(|()| daemon::run(&args));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // For whoever started it, whatever the log level.
            #[allow(clippy::print_stderr, reason = "the way of a command to say why it failed")]
            {
                eprintln!("switchd: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
