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
                eprintln!("switchd: {}", describe(&error));
            }
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, each once: some messages already end with their cause.
fn describe(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bug_a_cause_that_the_message_names_is_not_said_twice() {
        let cause = std::io::Error::other("no such thing");
        let named = anyhow::Error::new(cause).context("cannot read x: no such thing");
        assert_eq!(describe(&named), "cannot read x: no such thing");
        let unnamed = anyhow::anyhow!("no such thing").context("cannot read x");
        assert_eq!(describe(&unnamed), "cannot read x: no such thing");
    }
}
