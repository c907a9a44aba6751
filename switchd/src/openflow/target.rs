//! Where controllers are, in the notation of Open vSwitch (ovs-vsctl(8), "Controller Commands").

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::check_socket_path;
use crate::names::shortened;

/// The port of OpenFlow (OpenFlow 1.3.5, section 6.3.3).
const OPENFLOW_PORT: u16 = 6653;

/// A controller to connect to, or a place where controllers connect to the switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// `tcp:IP[:PORT]`: the switch connects.
    Tcp(SocketAddr),
    /// `unix:PATH`: the switch connects.
    Unix(PathBuf),
    /// `ptcp:[PORT][:IP]`: the switch listens, on all IPv4 addresses if none is given.
    PassiveTcp(SocketAddr),
    /// `punix:PATH`: the switch listens.
    PassiveUnix(PathBuf),
}

const FORMS: &str = "tcp:IP:PORT or unix:PATH (the switch connects), ptcp:PORT:IP or punix:PATH \
                     (the switch listens)";

impl Target {
    /// Parses a target.
    ///
    /// # Errors
    /// What would be right, to follow after the name of the offending key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let described = |reason: String| format!("{}: {reason}", shortened(text));
        let (method, rest) =
            text.split_once(':').ok_or_else(|| described(format!("must be {FORMS}")))?;
        let target = match method {
            "tcp" => active_address(rest).map(Self::Tcp),
            "ptcp" => passive_address(rest).map(Self::PassiveTcp),
            "unix" => socket_path(rest).map(Self::Unix),
            "punix" => socket_path(rest).map(Self::PassiveUnix),
            "ssl" | "pssl" => Err(format!(
                "TLS is not spoken here: use {}: on a network that you trust, or a tunnel",
                if method == "ssl" { "tcp" } else { "ptcp" }
            )),
            _ => Err(format!("must be {FORMS}")),
        };
        target.map_err(described)
    }

    /// Whether the switch listens.
    pub fn is_passive(&self) -> bool {
        matches!(self, Self::PassiveTcp(_) | Self::PassiveUnix(_))
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::PassiveTcp(address) => {
                write!(f, "ptcp:{}:", address.port())?;
                match address.ip() {
                    IpAddr::V4(ip) => write!(f, "{ip}"),
                    IpAddr::V6(ip) => write!(f, "[{ip}]"),
                }
            }
            Self::PassiveUnix(path) => write!(f, "punix:{}", path.display()),
        }
    }
}

/// `IP` or `IP:PORT`.
fn active_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(ip) = parse_ip(text) {
        return Ok(SocketAddr::new(ip, OPENFLOW_PORT));
    }
    let (ip, port) = text.rsplit_once(':').ok_or_else(|| bad_ip(text))?;
    Ok(SocketAddr::new(parse_ip(ip)?, parse_port(port)?))
}

/// Nothing, `PORT` or `PORT:IP`.
fn passive_address(text: &str) -> Result<SocketAddr, String> {
    let (port, ip) = text.split_once(':').unwrap_or((text, ""));
    let port = if port.is_empty() { OPENFLOW_PORT } else { parse_port(port)? };
    let ip = if ip.is_empty() { Ipv4Addr::UNSPECIFIED.into() } else { parse_ip(ip)? };
    Ok(SocketAddr::new(ip, port))
}

/// An address; one of IPv6 stands in brackets.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    match inner {
        Some(ip) => ip.parse().map(IpAddr::V6).map_err(|_| bad_ip(text)),
        None => text.parse().map(IpAddr::V4).map_err(|_| bad_ip(text)),
    }
}

fn bad_ip(text: &str) -> String {
    format!(
        "{} is no IP address (names are not looked up; IPv6 stands in brackets, as in [::1])",
        shortened(text)
    )
}

fn parse_port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("{} is no TCP port: 1 to 65535", shortened(text)))
}

fn socket_path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    check_socket_path(path)?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_open_vswitch_reads_them() {
        for (text, canonical) in [
            ("tcp:10.0.0.1:6633", "tcp:10.0.0.1:6633"),
            ("tcp:10.0.0.1", "tcp:10.0.0.1:6653"),
            ("tcp:[::1]:6653", "tcp:[::1]:6653"),
            ("tcp:[fe80::1]", "tcp:[fe80::1]:6653"),
            ("ptcp:", "ptcp:6653:0.0.0.0"),
            ("ptcp:6633", "ptcp:6633:0.0.0.0"),
            ("ptcp:6633:127.0.0.1", "ptcp:6633:127.0.0.1"),
            ("ptcp::127.0.0.1", "ptcp:6653:127.0.0.1"),
            ("ptcp:6633:[::]", "ptcp:6633:[::]"),
            ("unix:/run/c.sock", "unix:/run/c.sock"),
            ("punix:/run/c.sock", "punix:/run/c.sock"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.to_string(), canonical);
            assert_eq!(Target::parse(canonical), Ok(target));
        }
    }

    #[test]
    fn what_is_wrong_with_a_target_is_said_with_what_would_be_right() {
        for (text, hint) in [
            ("", "tcp:IP:PORT"),
            ("10.0.0.1", "tcp:IP:PORT"),
            ("udp:10.0.0.1", "tcp:IP:PORT"),
            ("ssl:10.0.0.1:6653", "TLS"),
            ("pssl:6653", "ptcp"),
            ("tcp:", "no IP address"),
            ("tcp:controller.example:6653", "names are not looked up"),
            ("tcp:::1", "brackets"),
            ("tcp:10.0.0.1:", "1 to 65535"),
            ("tcp:10.0.0.1:70000", "1 to 65535"),
            ("ptcp:0", "1 to 65535"),
            ("ptcp:127.0.0.1:6653", "1 to 65535"),
            ("punix:run/x", "absolute"),
        ] {
            let error = Target::parse(text).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
