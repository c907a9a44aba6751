//! The verbs of `ovs-ofctl` that are known here but not supported.

/// Why there is no such verb, if it is one of `ovs-ofctl`'s.
pub(crate) fn reason(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "add-group"
        | "add-groups"
        | "mod-group"
        | "del-group"
        | "del-groups"
        | "insert-buckets"
        | "insert-bucket"
        | "remove-buckets"
        | "remove-bucket"
        | "dump-group-features"
        | "dump-group-stats" => "groups are not supported",
        "bundle" => "only flow-mods are bundled: --bundle with add-, mod-, del- or replace-flows",
        "get-frags" | "set-frags" => "fragments are always handled as they are (frags=normal)",
        "queue-get-config" | "queue-list" => "queues are not supported",
        "mod-table" | "dump-table-features" | "dump-table-desc" => {
            "tables are not configured; dump-tables has their counters"
        }
        "snoop" => "use monitor for what the switch reports",
        "add-tlv-map" | "del-tlv-map" | "dump-tlv-map" => "tunnels are not supported",
        "ct-flush" | "ct-flush-zone" => "connection tracking is not supported",
        "dump-ipfix-bridge" | "dump-ipfix-flow" => "IPFIX is not supported",
        "benchmark" => "use ping",
        "ofp-parse" | "ofp-parse-pcap" | "ofp-print" | "parse-flow" | "parse-flows"
        | "compose-packet" | "parse-packet" | "parse-actions" => {
            "it needs no switch: use ovs-ofctl's"
        }
        _ => return None,
    })
}
