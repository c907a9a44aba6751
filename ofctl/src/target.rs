//! Which socket a command talks to.

use std::path::{Path, PathBuf};

/// Where the OpenFlow of a bridge is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Unix(path) => path.display().fmt(f),
            Target::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A bridge: `unix:PATH`, `tcp:HOST[:PORT]`, a path, or a name in the run directory.
pub(crate) fn bridge(bridge: &str, run_dir: &Path) -> Target {
    if let Some(path) = bridge.strip_prefix("unix:") {
        return Target::Unix(PathBuf::from(path));
    }
    if let Some(host) = bridge.strip_prefix("tcp:") {
        let has_port = match host.strip_prefix('[') {
            Some(v6) => v6.contains("]:"),
            None => host.contains(':'),
        };
        let port = if has_port { String::new() } else { format!(":{OPENFLOW_PORT}") };
        return Target::Tcp(format!("{host}{port}"));
    }
    Target::Unix(match bridge.contains('/') {
        true => PathBuf::from(bridge),
        false => run_dir.join(format!("{bridge}.mgmt")),
    })
}

/// The port that is registered for OpenFlow.
const OPENFLOW_PORT: u16 = 6653;

/// Socket of the JSON-RPC server.
pub(crate) fn rpc_socket(run_dir: &Path) -> PathBuf {
    run_dir.join("rpc.sock")
}

/// What to tell a user whose connection to `target` failed.
pub(crate) fn cannot_connect(target: &Target, error: &std::io::Error) -> String {
    let hint = match target {
        Target::Unix(socket) => hint(socket, error),
        Target::Tcp(_) => "",
    };
    format!("cannot connect to {target}: {error}{hint}")
}

fn hint(socket: &Path, error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    let absent = error.kind() == ErrorKind::NotFound;
    match error.kind() {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_a_name_a_path_or_a_target() {
        let bridge = |text| bridge(text, Path::new("/run/tollgate")).to_string();
        assert_eq!(bridge("br0"), "/run/tollgate/br0.mgmt");
        assert_eq!(bridge("unix:/tmp/x.mgmt"), "/tmp/x.mgmt");
        assert_eq!(bridge("unix:x.mgmt"), "x.mgmt");
        assert_eq!(bridge("./x.mgmt"), "./x.mgmt");
        assert_eq!(bridge("tcp:127.0.0.1"), "tcp:127.0.0.1:6653");
        assert_eq!(bridge("tcp:127.0.0.1:6633"), "tcp:127.0.0.1:6633");
        assert_eq!(bridge("tcp:[::1]"), "tcp:[::1]:6653");
        assert_eq!(bridge("tcp:[::1]:6633"), "tcp:[::1]:6633");
    }
}
