//! Addresses and identifiers that stay the same over restarts without being stored.

use std::fs;

/// What tells this host from others.
#[derive(Clone, Debug)]
pub(crate) struct HostIdentity(String);

impl HostIdentity {
    /// From machine-id(5), or the host's name where there is none.
    pub(crate) fn of_this_host() -> Self {
        let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let name = rustix::system::uname();
        if id.trim().is_empty() {
            Self(name.nodename().to_string_lossy().into_owned())
        } else {
            Self(id)
        }
    }

    /// A locally administered address for `name`.
    pub(crate) fn mac(&self, name: &str) -> [u8; 6] {
        // machine-id(5) asks not to publish the id itself; this much of a hash of it is no id.
        let hash = fnv1a([self.0.as_bytes(), &[0], name.as_bytes()].concat().as_slice());
        let [_, _, a, b, c, d, e, f] = hash.to_be_bytes();
        // Individual and locally administered (IEEE 802-2014, section 8.2.2).
        [a & 0xfc | 2, b, c, d, e, f]
    }

    /// The datapath id of a bridge (OpenFlow 1.3.5, section 7.3.1): the lower 48 bits are an
    /// address, the upper 16 are ours to choose.
    pub(crate) fn datapath_id(&self, bridge: &str) -> u64 {
        self.mac(bridge).iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
    }
}

/// The 64-bit FNV-1a hash: the same on every host and in every version.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_stable_and_differ_by_host_and_name() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        let (a, b) = (HostIdentity("a".into()), HostIdentity("b".into()));
        assert_eq!(a.mac("br0"), a.mac("br0"));
        assert_ne!(a.mac("br0"), b.mac("br0"));
        assert_ne!(a.datapath_id("br0"), a.datapath_id("br1"));
        assert_eq!(a.mac("br0")[0] & 3, 2);
        assert_eq!(a.datapath_id("br0") >> 48, 0);
        let _ = HostIdentity::of_this_host();
    }
}
