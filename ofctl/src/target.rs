//! Which socket a command talks to.

use std::path::{Path, PathBuf};

/// Socket of a bridge: `unix:PATH`, a path, or the name of a bridge in the run directory.
pub(crate) fn bridge_socket(bridge: &str, run_dir: &Path) -> PathBuf {
    match bridge.strip_prefix("unix:") {
        Some(path) => PathBuf::from(path),
        None if bridge.contains('/') => PathBuf::from(bridge),
        None => run_dir.join(format!("{bridge}.mgmt")),
    }
}

/// Socket of the JSON-RPC server.
pub(crate) fn rpc_socket(run_dir: &Path) -> PathBuf {
    run_dir.join("rpc.sock")
}

/// What to tell a user whose connection to `socket` failed.
pub(crate) fn cannot_connect(socket: &Path, error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let absent = error.kind() == ErrorKind::NotFound;
    let hint = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let directory = socket.parent().unwrap_or(Path::new("."));
            if absent && rpc_socket(directory).exists() {
                ": no such bridge? \"ofctl bridge list\" shows them"
            } else {
                ": is switchd running, with this run directory (--run-dir, TOLLGATE_RUNDIR)?"
            }
        }
        ErrorKind::PermissionDenied => ": switchd runs as another user?",
        _ => "",
    };
    format!("cannot connect to {}: {error}{hint}", socket.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_a_name_a_path_or_a_unix_target() {
        let socket = |bridge| bridge_socket(bridge, Path::new("/run/tollgate"));
        assert_eq!(socket("br0"), Path::new("/run/tollgate/br0.mgmt"));
        assert_eq!(socket("unix:/tmp/x.mgmt"), Path::new("/tmp/x.mgmt"));
        assert_eq!(socket("unix:x.mgmt"), Path::new("x.mgmt"));
        assert_eq!(socket("./x.mgmt"), Path::new("./x.mgmt"));
    }
}
