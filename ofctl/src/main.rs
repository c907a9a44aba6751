//! `ofctl`: controls a running switch.
//!
//! Flows go over OpenFlow 1.3 with the verbs, grammar and output of `ovs-ofctl`; bridges, ports,
//! tenants and PMDs go over JSON-RPC.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod cli;
mod frame;
mod limits;
mod manage;
mod openflow;
mod output;
mod rpc;
mod stream;
mod target;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(message) = unsupported_verb(&error) {
                output::fail(&message);
                return ExitCode::FAILURE;
            }
            // Help and version go to standard output and are no failure.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            };
        }
    };
    if let Some(seconds) = cli.timeout_s {
        exit_after(Duration::from_secs(seconds));
    }
    match run(&cli) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::fail(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// What to say about a verb that ovs-ofctl has and this program has not.
fn unsupported_verb(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(verb) => Some(format!("{verb}: {}", cli::unsupported::reason(verb)?)),
        _ => None,
    }
}

fn run(cli: &cli::Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        cli::Command::OpenFlow(_) if cli.json => {
            anyhow::bail!("--json is for the commands that are not ovs-ofctl's")
        }
        cli::Command::OpenFlow(command) => openflow::run(cli, command),
        cli::Command::Manage(command) => manage::run(cli, command).map(|()| ExitCode::SUCCESS),
    }
}

/// `--timeout` bounds everything, whatever the other side does, so it ends the process.
fn exit_after(timeout: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(timeout);
        output::fail(&format!("no answer within {} s (--timeout)", timeout.as_secs()));
        std::process::exit(1);
    });
}
