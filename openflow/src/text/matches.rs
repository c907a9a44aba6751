//! Parses the match part of a flow.
//!
//! Some names mean a field that depends on the protocol (`nw_src`, `tp_dst`), which may be named
//! later in the text. So all items are collected first and resolved in the end.

use super::error::ParseError;
use super::known::is_unsupported_field;
use super::lexer::Item;
use super::names::PortNames;
use super::suggest::nearest;
use super::value::{parse_field, parse_number};
use crate::field::{
    ETH_TYPE_ARP, ETH_TYPE_IPV4, ETH_TYPE_IPV6, ETH_TYPE_RARP, Field, IP_PROTO_ICMP,
    IP_PROTO_ICMPV6, IP_PROTO_SCTP, IP_PROTO_TCP, IP_PROTO_UDP, OFPVID_PRESENT, Prerequisite,
    is_later_fragment,
};
use crate::oxm::{Match, OxmField};

/// Shorthands: name, `eth_type`, `ip_proto`.
const PROTOCOLS: [(&str, u16, Option<u8>); 17] = [
    ("ip", ETH_TYPE_IPV4, None),
    ("ipv4", ETH_TYPE_IPV4, None),
    ("ip4", ETH_TYPE_IPV4, None),
    ("icmp", ETH_TYPE_IPV4, Some(IP_PROTO_ICMP)),
    ("tcp", ETH_TYPE_IPV4, Some(IP_PROTO_TCP)),
    ("udp", ETH_TYPE_IPV4, Some(IP_PROTO_UDP)),
    ("sctp", ETH_TYPE_IPV4, Some(IP_PROTO_SCTP)),
    ("ipv6", ETH_TYPE_IPV6, None),
    ("ip6", ETH_TYPE_IPV6, None),
    ("icmp6", ETH_TYPE_IPV6, Some(IP_PROTO_ICMPV6)),
    ("tcp6", ETH_TYPE_IPV6, Some(IP_PROTO_TCP)),
    ("udp6", ETH_TYPE_IPV6, Some(IP_PROTO_UDP)),
    ("sctp6", ETH_TYPE_IPV6, Some(IP_PROTO_SCTP)),
    ("arp", ETH_TYPE_ARP, None),
    ("rarp", ETH_TYPE_RARP, None),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
];

/// Names that are neither shorthands nor simply a field. (Those with a meaning by protocol are in
/// [`AMBIGUOUS`].)
const SPECIAL_KEYS: [&str; 3] = ["dl_vlan", "vlan_tci", "nw_tos"];

/// `dl_vlan` of untagged packets, from OpenFlow 1.0.
const DL_VLAN_NONE: u128 = 0xffff;

/// A match being read.
pub(super) struct MatchParser<'a> {
    names: &'a dyn PortNames,
    /// The fields so far, each with the text that set it.
    fields: Vec<(OxmField, String)>,
    deferred: Vec<(&'a str, &'a str)>,
}

impl<'a> MatchParser<'a> {
    pub(super) fn new(names: &'a dyn PortNames) -> MatchParser<'a> {
        MatchParser { names, fields: Vec::new(), deferred: Vec::new() }
    }

    /// Takes one item of the flow; `also` are the names that the caller would have understood.
    pub(super) fn item(&mut self, item: Item<'a>, also: &[&str]) -> Result<(), ParseError> {
        let Item { key, value } = item;
        let protocol = PROTOCOLS.iter().find(|(name, ..)| *name == key);
        match (protocol, value) {
            (Some((_, eth_type, ip_proto)), None) => {
                self.set(OxmField::exact(Field::EthType, *eth_type), key.to_owned())?;
                ip_proto.map_or(Ok(()), |proto| {
                    self.set(OxmField::exact(Field::IpProto, proto), key.to_owned())
                })
            }
            (Some(_), Some(value)) => {
                Err(ParseError::new(format!("{key}={value}: {key} stands alone, without a value")))
            }
            // Every packet is an Ethernet frame.
            (None, None) if key == "eth" => Ok(()),
            (None, Some("(0,0)")) if key == "packet_type" => Ok(()),
            (None, _) if key == "packet_type" => {
                Err(ParseError::new("only Ethernet frames are matched: packet_type=(0,0)"))
            }
            (None, _) if !is_match_key(key) => Err(unknown_keyword(key, also)),
            (None, None) => Err(ParseError::new(format!("field {key} has no value"))),
            (None, Some(value)) => {
                self.deferred.push((key, value));
                Ok(())
            }
        }
    }

    /// The match, when all items are in.
    pub(super) fn finish(mut self) -> Result<Match, ParseError> {
        let mut deferred = std::mem::take(&mut self.deferred);
        // What other names depend on comes first.
        deferred.sort_by_key(|(key, _)| match *key {
            "dl_type" | "eth_type" => 0,
            "nw_proto" | "ip_proto" | "nw_frag" | "ip_frag" => 1,
            "vlan_vid" | "dl_vlan" | "vlan_tci" => 2,
            "icmp_type" | "icmpv6_type" => 3,
            _ => 4,
        });
        for (key, value) in deferred {
            self.resolve(key, value)?;
        }
        let matched = |fields: &[(OxmField, String)]| {
            Match::from_fields_unchecked(fields.iter().map(|(field, _)| *field))
        };
        let all = matched(&self.fields);
        for (field, text) in &self.fields {
            let needed = field.field().info().prerequisite;
            if field.mask() != 0 && !needed.satisfied_by(&all) {
                return Err(needs(text, needed.remedy(), &all));
            }
        }
        Ok(Match::from_fields(self.fields.iter().map(|(field, _)| *field))?)
    }

    fn resolve(&mut self, key: &str, value: &str) -> Result<(), ParseError> {
        let text = format!("{key}={value}");
        match key {
            "dl_vlan" => self.set(parse_dl_vlan(key, value)?, text),
            "vlan_vid" => self.set(parse_vlan_vid(key, value)?, text),
            "vlan_tci" => self.vlan_tci(value, text),
            "vlan_pcp" | "dl_vlan_pcp" => {
                let tagged = OxmField::masked(Field::VlanVid, OFPVID_PRESENT, OFPVID_PRESENT);
                if self.get(Field::VlanVid).is_none() {
                    self.set(tagged, text.clone())?;
                }
                self.set(parse_field(Field::VlanPcp, key, value, self.names)?, text)
            }
            "nw_tos" => {
                // The low two bits are the ECN's, and are ignored as ovs-ofctl documents.
                let tos = parse_number(key, value, 255)?;
                self.set(OxmField::exact(Field::IpDscp, tos >> 2), text)
            }
            _ => {
                let matched = self.matched();
                let field =
                    field_for(key, &matched).map_err(|needed| needs(&text, needed, &matched))?;
                self.set(parse_field(field, key, value, self.names)?, text)
            }
        }
    }

    /// The 802.1Q control word as OpenFlow 1.0 had it, with bit 12 for "tagged".
    fn vlan_tci(&mut self, value: &str, text: String) -> Result<(), ParseError> {
        let (value, mask) = value.split_once('/').unwrap_or((value, "0xffff"));
        let value = parse_number("vlan_tci", value, 0xffff)?;
        let mut mask = parse_number("vlan_tci", mask, 0xffff)?;
        if value == 0 && mask == 0xffff {
            // Untagged, where a priority means nothing.
            mask = 0x1fff;
        }
        let pcp_mask = mask >> 13;
        if pcp_mask != 0 && pcp_mask != 7 {
            return Err(ParseError::new(format!(
                "{text}: the mask must cover all three priority bits (0xe000) or none"
            )));
        }
        self.set(OxmField::masked(Field::VlanVid, value, mask & 0x1fff), text.clone())?;
        self.set(OxmField::masked(Field::VlanPcp, value >> 13, pcp_mask), text)
    }

    fn matched(&self) -> Match {
        Match::from_fields_unchecked(self.fields.iter().map(|(field, _)| *field))
    }

    fn get(&self, field: Field) -> Option<&OxmField> {
        self.fields.iter().map(|(set, _)| set).find(|set| set.field() == field)
    }

    fn set(&mut self, field: OxmField, text: String) -> Result<(), ParseError> {
        match self.fields.iter().find(|(set, _)| set.field() == field.field()) {
            Some((set, _)) if *set == field => Ok(()),
            Some((_, before)) => {
                Err(ParseError::new(format!("{text} contradicts {before}: both match one field")))
            }
            None => {
                self.fields.push((field, text));
                Ok(())
            }
        }
    }
}

/// A name whose field depends on the protocol: what it means under which match, and what to add
/// to a match under which it means nothing.
struct Ambiguous {
    names: &'static [&'static str],
    meanings: &'static [(Prerequisite, Field)],
    needed: &'static str,
}

use self::Prerequisite as P;

const AMBIGUOUS: [Ambiguous; 7] = [
    Ambiguous {
        names: &["nw_src", "ip_src"],
        meanings: &[(P::Ipv4, Field::Ipv4Src), (P::Arp, Field::ArpSpa)],
        needed: "ip or arp",
    },
    Ambiguous {
        names: &["nw_dst", "ip_dst"],
        meanings: &[(P::Ipv4, Field::Ipv4Dst), (P::Arp, Field::ArpTpa)],
        needed: "ip or arp",
    },
    Ambiguous {
        names: &["nw_proto", "ip_proto"],
        meanings: &[(P::Ip, Field::IpProto), (P::Arp, Field::ArpOp)],
        needed: "ip, ipv6 or arp",
    },
    Ambiguous {
        names: &["tp_src"],
        meanings: &[
            (P::Tcp, Field::TcpSrc),
            (P::Udp, Field::UdpSrc),
            (P::Sctp, Field::SctpSrc),
            (P::Icmpv4, Field::Icmpv4Type),
            (P::Icmpv6, Field::Icmpv6Type),
        ],
        needed: "tcp, udp or sctp",
    },
    Ambiguous {
        names: &["tp_dst"],
        meanings: &[
            (P::Tcp, Field::TcpDst),
            (P::Udp, Field::UdpDst),
            (P::Sctp, Field::SctpDst),
            (P::Icmpv4, Field::Icmpv4Code),
            (P::Icmpv6, Field::Icmpv6Code),
        ],
        needed: "tcp, udp or sctp",
    },
    Ambiguous {
        names: &["icmp_type"],
        meanings: &[(P::Icmpv4, Field::Icmpv4Type), (P::Icmpv6, Field::Icmpv6Type)],
        needed: "icmp or icmp6",
    },
    Ambiguous {
        names: &["icmp_code"],
        meanings: &[(P::Icmpv4, Field::Icmpv4Code), (P::Icmpv6, Field::Icmpv6Code)],
        needed: "icmp or icmp6",
    },
];

fn ambiguous(key: &str) -> Option<&'static Ambiguous> {
    AMBIGUOUS.iter().find(|entry| entry.names.contains(&key))
}

/// The field that a name stands for under what is matched so far; the error says what the match
/// would need for the name to have a meaning.
pub(super) fn field_for(key: &str, matched: &Match) -> Result<Field, &'static str> {
    match ambiguous(key) {
        None => Field::from_name(key).ok_or("a field of that name"),
        Some(Ambiguous { meanings, needed, .. }) => meanings
            .iter()
            .find(|(prerequisite, _)| prerequisite.satisfied_by(matched))
            .map(|(_, field)| *field)
            .ok_or(needed),
    }
}

/// All fields that a name of the flow language may stand for, none if it is no name.
pub fn fields_named(name: &str) -> Vec<Field> {
    match (name, ambiguous(name)) {
        (_, Some(entry)) => entry.meanings.iter().map(|(_, field)| *field).collect(),
        ("dl_vlan" | "vlan_tci", None) => vec![Field::VlanVid],
        ("nw_tos", None) => vec![Field::IpDscp],
        (_, None) => Field::from_name(name).into_iter().collect(),
    }
}

fn parse_dl_vlan(key: &str, value: &str) -> Result<OxmField, ParseError> {
    let expected = "a VLAN id from 0 to 4095, or 0xffff for untagged packets";
    match parse_number(key, value, 0xffff)? {
        DL_VLAN_NONE => Ok(OxmField::exact(Field::VlanVid, 0_u8)),
        vid if vid < 4096 => Ok(OxmField::exact(Field::VlanVid, vid | u128::from(OFPVID_PRESENT))),
        _ => Err(ParseError::value(key, value, expected)),
    }
}

fn parse_vlan_vid(key: &str, value: &str) -> Result<OxmField, ParseError> {
    let field = parse_field(Field::VlanVid, key, value, &super::NoNames)?;
    let (vid, present) = (field.value(), u128::from(OFPVID_PRESENT));
    if field.is_exact() && vid != 0 && vid & present == 0 {
        return Err(ParseError::new(format!(
            "{key}={value} matches nothing, tagged packets have bit 12 set: write dl_vlan={vid} or {key}={:#x}",
            vid | present
        )));
    }
    Ok(field)
}

fn is_match_key(key: &str) -> bool {
    !fields_named(key).is_empty()
}

fn needs(text: &str, needed: &str, matched: &Match) -> ParseError {
    let upper = ["tcp", "udp", "sctp", "icmp"].iter().any(|name| needed.contains(name));
    if upper && is_later_fragment(matched) {
        return ParseError::new(format!(
            "{text}: the fragments that ip_frag=later matches have no such field"
        ));
    }
    ParseError::new(format!("{text} needs {needed} in the match"))
}

/// Every name that a match understands.
fn match_keys<'a>() -> impl Iterator<Item = &'a str> {
    let fields = Field::ALL.iter().flat_map(|field| {
        let info = field.info();
        std::iter::once(info.name).chain(info.aliases.iter().copied())
    });
    let ambiguous = AMBIGUOUS.iter().flat_map(|entry| entry.names.iter().copied());
    SPECIAL_KEYS
        .into_iter()
        .chain(ambiguous)
        .chain(PROTOCOLS.iter().map(|(name, ..)| *name))
        .chain(fields)
}

fn unknown_keyword(key: &str, also: &[&str]) -> ParseError {
    if is_unsupported_field(key) {
        return ParseError::new(format!("field {key} is not supported"));
    }
    let candidates = match_keys().chain(also.iter().copied());
    ParseError::new(match nearest(key, candidates) {
        Some(meant) => format!("unknown keyword {key}; did you mean {meant}?"),
        None => format!("unknown keyword {key}"),
    })
}
