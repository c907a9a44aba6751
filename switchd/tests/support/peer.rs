//! Programs that judge us and need not be installed.

use std::process::{Command, Output};

/// Runs a peer; `None` when it is not installed, which is said (or, with REQUIRE_PEERS, a failure).
pub(crate) fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let program = command.get_program().to_string_lossy();
            assert!(std::env::var_os("REQUIRE_PEERS").is_none(), "{program}: {error}");
            #[allow(clippy::print_stdout, reason = "a skipped test says so")]
            {
                println!("SKIP: {program} cannot be run: {error}");
            }
            None
        }
    }
}

/// Standard output of a run that must succeed.
pub(crate) fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
