//! Generates the text of flows in all the ways that it can be written.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

type Text = BoxedStrategy<String>;

/// One of these texts.
fn one_of(texts: &'static [&'static str]) -> Text {
    select(texts).prop_map(str::to_owned).boxed()
}

/// A number below `end`, decimal or hexadecimal.
fn number(end: u64) -> Text {
    (0..end, any::<bool>())
        .prop_map(|(n, hex)| if hex { format!("{n:#x}") } else { n.to_string() })
        .boxed()
}

/// A number, and perhaps a mask.
fn masked(end: u64) -> Text {
    (number(end), proptest::option::of(number(end)))
        .prop_map(|(value, mask)| mask.map_or(value.clone(), |mask| format!("{value}/{mask}")))
        .boxed()
}

fn mac() -> Text {
    any::<[u8; 6]>()
        .prop_map(|bytes| {
            let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:x}")).collect();
            parts.join(":")
        })
        .boxed()
}

fn masked_mac() -> Text {
    let masks = one_of(&["", "/ff:ff:ff:00:00:00", "/01:00:00:00:00:00", "/0f:f0:00:ff:00:01"]);
    (mac(), masks).prop_map(|(mac, mask)| mac + &mask).boxed()
}

fn ipv4() -> Text {
    any::<[u8; 4]>().prop_map(|ip| std::net::Ipv4Addr::from(ip).to_string()).boxed()
}

fn masked_ipv4() -> Text {
    let masks = prop_oneof![
        Just(String::new()),
        (0..=32).prop_map(|length| format!("/{length}")),
        ipv4().prop_map(|mask| format!("/{mask}")),
    ];
    (ipv4(), masks).prop_map(|(ip, mask)| ip + &mask).boxed()
}

fn ipv6() -> Text {
    prop_oneof![
        any::<[u8; 16]>().prop_map(|ip| std::net::Ipv6Addr::from(ip).to_string()),
        one_of(&["::", "::1", "fe80::1", "2001:db8::", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"]),
    ]
    .boxed()
}

fn masked_ipv6() -> Text {
    let masks = prop_oneof![
        Just(String::new()),
        (0..=128).prop_map(|length| format!("/{length}")),
        ipv6().prop_map(|mask| format!("/{mask}")),
    ];
    (ipv6(), masks).prop_map(|(ip, mask)| ip + &mask).boxed()
}

/// `NAME=VALUE` under one of the names.
fn field(names: &'static [&'static str], value: Text) -> Text {
    (select(names), value).prop_map(|(name, value)| format!("{name}={value}")).boxed()
}

/// A frame's protocol, the fields that it has beside those of every frame, and what can be done
/// to it.
struct Protocol {
    /// All ways to say that it is this one.
    spellings: &'static [&'static str],
    fields: Vec<Text>,
    /// Ways to write to its own fields.
    actions: Vec<Text>,
}

fn common_fields() -> Vec<Text> {
    vec![
        field(&["in_port"], one_of(&["1", "16", "LOCAL", "local", "65279"])),
        field(&["dl_src", "eth_src"], masked_mac()),
        field(&["dl_dst", "eth_dst"], masked_mac()),
        field(&["metadata"], masked(1 << 40)),
        field(&["reg0"], masked(1 << 32)),
        field(&["reg9"], masked(1 << 32)),
        field(&["reg15"], masked(0x100)),
    ]
}

fn vlan_fields() -> Text {
    prop_oneof![
        3 => Just(String::new()),
        1 => field(&["dl_vlan"], number(4096)),
        1 => (number(4096), number(8)).prop_map(|(vid, pcp)| {
            format!("dl_vlan={vid},dl_vlan_pcp={pcp}")
        }),
        1 => number(4096).prop_map(|vid| format!("dl_vlan={vid},vlan_pcp=0x3")),
        1 => one_of(&[
            "vlan_tci=0", "vlan_tci=0x1000/0x1000", "vlan_tci=0x3005", "vlan_tci=0x1005/0x1fff",
            "vlan_vid=0x1005", "vlan_vid=0x1000/0x1000", "dl_vlan=0xffff", "vlan_tci=0x5000/0xf000",
        ]),
    ]
    .boxed()
}

fn ip_fields() -> Vec<Text> {
    vec![
        field(&["nw_tos"], number(256)),
        field(&["nw_ecn", "ip_ecn"], number(4)),
        field(&["nw_ttl"], number(256)),
    ]
}

/// Which fragments; not the later ones, which have no ports.
fn fragments() -> Text {
    prop_oneof![
        3 => Just(String::new()),
        1 => field(&["ip_frag", "nw_frag"], one_of(&["no", "yes", "first", "not_later"])),
    ]
    .boxed()
}

fn ipv4_fields() -> Vec<Text> {
    let mut fields = ip_fields();
    fields.push(field(&["nw_src", "ip_src"], masked_ipv4()));
    fields.push(field(&["nw_dst", "ip_dst"], masked_ipv4()));
    fields
}

fn ipv6_fields() -> Vec<Text> {
    let mut fields = ip_fields();
    fields.push(field(&["ipv6_src"], masked_ipv6()));
    fields.push(field(&["ipv6_dst"], masked_ipv6()));
    fields.push(field(&["ipv6_label"], masked(1 << 20)));
    fields
}

fn action(format: impl Fn(String) -> String + 'static, value: Text) -> Text {
    value.prop_map(format).boxed()
}

fn ip_actions() -> Vec<Text> {
    vec![
        one_of(&["dec_ttl", "move:nw_ttl[]->reg1[0..7]", "move:NXM_NX_IP_TTL[0..3]->reg1[8..11]"]),
        action(|n| format!("mod_nw_ttl:{n}"), number(256)),
        action(|n| format!("mod_nw_ecn:{n}"), number(4)),
        action(
            |n| format!("mod_nw_tos:{n}"),
            (0..64_u64).prop_map(|n| (n * 4).to_string()).boxed(),
        ),
        action(|n| format!("set_field:{n}->ip_dscp"), number(64)),
        action(|n| format!("set_field:{n}->nw_ttl"), number(256)),
        action(|n| format!("load:{n}->NXM_NX_IP_ECN[]"), number(4)),
        action(|n| format!("load:{n}->OXM_OF_IP_DSCP[2..3]"), number(4)),
    ]
}

fn ipv4_actions() -> Vec<Text> {
    let mut actions = ip_actions();
    actions.extend([
        action(|ip| format!("mod_nw_src:{ip}"), ipv4()),
        action(|ip| format!("mod_nw_dst:{ip}"), ipv4()),
        action(|ip| format!("set_field:{ip}->ip_src"), masked_ipv4()),
        action(|ip| format!("set_field:{ip}->nw_dst"), ipv4()),
        action(|n| format!("load:{n}->NXM_OF_IP_SRC[16..31]"), number(0x10000)),
        one_of(&["move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]", "move:ip_dst[8..15]->reg3[0..7]"]),
    ]);
    actions
}

fn ipv6_actions() -> Vec<Text> {
    let mut actions = ip_actions();
    actions.extend([
        action(|ip| format!("set_field:{ip}->ipv6_src"), masked_ipv6()),
        action(|ip| format!("set_field:{ip}->ipv6_dst"), ipv6()),
        action(|n| format!("set_field:{n}->ipv6_label"), masked(1 << 20)),
        action(|n| format!("load:{n}->NXM_NX_IPV6_DST[]"), number(u64::MAX)),
        action(|n| format!("load:{n}->ipv6_src[100..127]"), number(1 << 28)),
        one_of(&["move:ipv6_src[]->ipv6_dst[]", "move:NXM_NX_IPV6_SRC[3..34]->reg7"]),
    ]);
    actions
}

fn port_fields(src: &'static [&'static str], dst: &'static [&'static str]) -> Vec<Text> {
    vec![field(src, masked(1 << 16)), field(dst, masked(1 << 16))]
}

fn port_actions(name: &'static str) -> Vec<Text> {
    vec![
        action(|n| format!("mod_tp_src:{n}"), number(1 << 16)),
        action(|n| format!("mod_tp_dst:{n}"), number(1 << 16)),
        action(move |n| format!("set_field:{n}->{name}_src"), masked(1 << 16)),
        action(move |n| format!("load:{n}->{name}_dst[4..11]"), number(256)),
        Just(format!("move:{name}_src[]->{name}_dst[]")).boxed(),
    ]
}

fn with(mut first: Vec<Text>, second: Vec<Text>) -> Vec<Text> {
    first.extend(second);
    first
}

fn protocols() -> Vec<Protocol> {
    let tcp_flags = || {
        field(&["tcp_flags"], one_of(&["+syn-ack", "syn|ack", "0x12/0x3f", "+psh", "2", "-fin"]))
    };
    let nd = |link: &'static [&'static str]| {
        with(ipv6_fields(), vec![field(&["nd_target"], masked_ipv6()), field(link, masked_mac())])
    };
    vec![
        Protocol {
            spellings: &["", "eth", "rarp", "mpls", "dl_type=0x88cc", "eth_type=0x600"],
            fields: vec![],
            actions: vec![],
        },
        Protocol {
            spellings: &["arp", "dl_type=0x0806", "eth_type=2054"],
            fields: vec![
                field(&["arp_op", "nw_proto"], number(256)),
                field(&["arp_spa", "nw_src"], masked_ipv4()),
                field(&["arp_tpa", "nw_dst"], masked_ipv4()),
                field(&["arp_sha"], masked_mac()),
                field(&["arp_tha"], masked_mac()),
            ],
            actions: vec![
                action(|n| format!("set_field:{n}->arp_op"), number(256)),
                action(|ip| format!("set_field:{ip}->arp_spa"), masked_ipv4()),
                action(|mac| format!("set_field:{mac}->arp_tha"), masked_mac()),
                action(|n| format!("load:{n}->NXM_NX_ARP_SHA[]"), number(1 << 48)),
                one_of(&["move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]", "load:2->NXM_OF_ARP_OP[]"]),
            ],
        },
        Protocol {
            spellings: &[
                "ip",
                "dl_type=0x800",
                "ip,nw_proto=47",
                "eth_type=0x0800",
                "ip,ip_frag=later",
            ],
            fields: ipv4_fields(),
            actions: ipv4_actions(),
        },
        Protocol {
            spellings: &["ipv6", "dl_type=0x86dd", "ip6", "ipv6,nw_proto=59"],
            fields: ipv6_fields(),
            actions: ipv6_actions(),
        },
        Protocol {
            spellings: &["tcp", "ip,nw_proto=6", "dl_type=0x800,ip_proto=0x6"],
            fields: with(
                with(ipv4_fields(), vec![tcp_flags()]),
                port_fields(&["tp_src", "tcp_src"], &["tp_dst", "tcp_dst"]),
            ),
            actions: with(ipv4_actions(), port_actions("tcp")),
        },
        Protocol {
            spellings: &["udp6", "ipv6,nw_proto=17", "dl_type=0x86dd,ip_proto=17"],
            fields: with(
                ipv6_fields(),
                port_fields(&["tp_src", "udp_src"], &["tp_dst", "udp_dst"]),
            ),
            actions: with(ipv6_actions(), port_actions("udp")),
        },
        Protocol {
            spellings: &["sctp", "ip,nw_proto=132"],
            fields: with(
                ipv4_fields(),
                port_fields(&["tp_src", "sctp_src"], &["tp_dst", "sctp_dst"]),
            ),
            actions: with(ipv4_actions(), port_actions("sctp")),
        },
        Protocol {
            spellings: &["icmp", "ip,nw_proto=1"],
            fields: with(
                ipv4_fields(),
                vec![
                    field(&["icmp_type", "tp_src"], number(256)),
                    field(&["icmp_code", "tp_dst"], number(256)),
                ],
            ),
            actions: with(
                ipv4_actions(),
                vec![action(|n| format!("set_field:{n}->icmp_type"), number(256))],
            ),
        },
        Protocol {
            spellings: &["icmp6", "ipv6,nw_proto=58"],
            fields: with(
                ipv6_fields(),
                vec![
                    field(&["icmp_type", "icmpv6_type"], number(256)),
                    field(&["icmp_code", "icmpv6_code"], number(256)),
                ],
            ),
            actions: with(
                ipv6_actions(),
                vec![action(|n| format!("load:{n}->NXM_NX_ICMPV6_CODE[]"), number(256))],
            ),
        },
        Protocol {
            spellings: &["icmp6,icmp_type=135,icmp_code=0", "icmp6,icmpv6_type=0x87"],
            fields: nd(&["nd_sll"]),
            actions: with(
                ipv6_actions(),
                vec![
                    action(|ip| format!("set_field:{ip}->nd_target"), masked_ipv6()),
                    action(|mac| format!("set_field:{mac}->nd_sll"), masked_mac()),
                    one_of(&["move:nd_target[]->ipv6_dst[]", "move:eth_src[]->NXM_NX_ND_SLL[]"]),
                ],
            ),
        },
        Protocol {
            spellings: &["icmp6,icmp_type=136,icmp_code=0"],
            fields: nd(&["nd_tll"]),
            actions: with(
                ipv6_actions(),
                vec![
                    action(|mac| format!("set_field:{mac}->nd_tll"), masked_mac()),
                    action(|n| format!("load:{n}->nd_tll[8..15]"), number(256)),
                ],
            ),
        },
    ]
}

/// Actions for any frame.
fn any_action() -> Text {
    let bytes = vec(any::<u8>(), 0..20);
    prop_oneof![
        one_of(&[
            "1",
            "output:2",
            "output=3",
            "IN_PORT",
            "in_port",
            "NORMAL",
            "normal",
            "FLOOD",
            "all",
            "LOCAL",
            "CONTROLLER",
            "controller",
            "controller()",
            "output:LOCAL",
            "table",
        ]),
        action(|n| format!("CONTROLLER:{n}"), (0..1_u32 << 16).prop_map(|n| n.to_string()).boxed()),
        action(|n| format!("controller(max_len={n})"), number(1 << 16)),
        (number(1 << 16), one_of(&["no_match", "action", "invalid_ttl"]))
            .prop_map(|(id, reason)| { format!("controller(reason={reason},id={id},max_len=9)") }),
        action(|mac| format!("mod_dl_src:{mac}"), mac()),
        action(|mac| format!("mod_dl_dst={mac}"), mac()),
        action(|mac| format!("set_field:{mac}->eth_src"), masked_mac()),
        action(|mac| format!("set_field:{mac}->dl_dst"), mac()),
        action(|n| format!("set_field:{n}->metadata"), masked(1 << 50)),
        action(|n| format!("set_field:{n}->reg4"), masked(1 << 32)),
        action(|n| format!("load:{n}->NXM_NX_REG5[]"), number(1 << 32)),
        action(|n| format!("load:{n}->reg5[7..14]"), number(256)),
        action(|n| format!("load:{n}->OXM_OF_ETH_DST[]"), number(1 << 48)),
        action(|n| format!("load:{n}->metadata[32..63]"), number(1 << 32)),
        one_of(&[
            "load:1->reg0[31]",
            "load:0->NXM_NX_REG15",
            "load:1->NXM_OF_IN_PORT[]",
            "move:NXM_OF_IN_PORT[]->reg0[0..15]",
            "move:in_port_oxm[]->reg1[]",
            "move:OXM_OF_METADATA[]->NXM_OF_ETH_SRC[0..63]",
            "move:reg0[]->reg1[]",
            "move:metadata[0..31]->reg2",
            "move:eth_src[]->eth_dst[]",
            "set_field:2->in_port",
        ])
        .prop_filter("48 bits", |text| !text.contains("[0..63]")),
        action(|n| format!("resubmit:{n}"), (1..0xff00_u32).prop_map(|n| n.to_string()).boxed()),
        (0..255_u32).prop_map(|n| format!("resubmit(,{n})")),
        (0..255_u32).prop_map(|n| format!("resubmit(7,{n})")),
        bytes.prop_map(|bytes| {
            let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("note:{}", bytes.join("."))
        }),
        action(|n| format!("group:{n}"), number(1 << 31)),
        one_of(&["push_vlan:0x8100,pop_vlan", "push_vlan:0x88a8,set_field:4097->vlan_vid"]),
        action(|n| format!("push_vlan:33024,mod_vlan_vid:{n},mod_vlan_pcp:0x2"), number(4096)),
        action(
            |n| format!("push_vlan:0x8100,load:{n}->OXM_OF_VLAN_VID[],strip_vlan"),
            number(4096)
        ),
    ]
    .boxed()
}

/// What comes after the actions.
fn instructions() -> Text {
    let metadata = masked(1 << 40).prop_map(|value| format!("write_metadata:{value}"));
    (
        proptest::option::weighted(0.2, Just("clear_actions".to_owned())),
        proptest::option::weighted(
            0.2,
            one_of(&[
                "write_actions(output:1)",
                "write_actions(set_field:1->reg0,2)",
                "write_actions(load:5->reg1[],group:7)",
                "write_actions(resubmit(,9))",
            ]),
        ),
        proptest::option::weighted(0.2, metadata),
        proptest::option::weighted(0.3, (100..255_u32).prop_map(|t| format!("goto_table:{t}"))),
    )
        .prop_map(|(clear, write, metadata, goto)| {
            let all = [clear, write, metadata, goto];
            all.into_iter().flatten().collect::<Vec<_>>().join(",")
        })
        .boxed()
}

/// Table, priority, cookie, timeouts and flags.
fn head() -> Text {
    let parts: Vec<Text> = vec![
        field(&["table"], (0..100_u32).prop_map(|n| n.to_string()).boxed()),
        field(&["priority"], number(1 << 16)),
        field(&["cookie"], number(u64::MAX)),
        field(&["idle_timeout"], number(1 << 16)),
        field(&["hard_timeout"], number(1 << 16)),
        one_of(&["send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts"]),
    ];
    some_of(parts)
}

/// Some of these texts, in order, with commas between them.
fn some_of(texts: Vec<Text>) -> Text {
    let count = texts.len();
    subsequence(texts, 0..=count.min(5))
        .prop_flat_map(|chosen| chosen)
        .prop_map(|texts| texts.into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(","))
        .boxed()
}

/// A whole flow to add.
pub(crate) fn flow() -> Text {
    let flows = protocols().into_iter().map(|protocol| {
        let fields = some_of(with(common_fields(), protocol.fields));
        let own: Vec<Text> = protocol.actions;
        let action = if own.is_empty() {
            any_action()
        } else {
            prop_oneof![any_action(), proptest::strategy::Union::new(own)].boxed()
        };
        let actions = vec(action, 0..5).prop_map(|actions| actions.join(","));
        let spelling = (one_of(protocol.spellings), fragments()).prop_map(|(name, fragments)| {
            let is_ip = ["ip", "tcp", "udp", "sctp", "icmp"].iter().any(|ip| name.starts_with(ip));
            let whole = !is_ip || fragments.is_empty() || name.contains("frag");
            if whole { name } else { format!("{name},{fragments}") }
        });
        (
            head(),
            spelling,
            vlan_fields(),
            fields,
            actions,
            proptest::option::weighted(0.1, number(1 << 16)),
            instructions(),
        )
            .prop_map(|(head, protocol, vlan, fields, actions, meter, instructions)| {
                let parts = [head, protocol, vlan, fields];
                let matched: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
                let meter = meter.filter(|meter| *meter != "0" && *meter != "0x0");
                let meter = meter.map_or(String::new(), |meter| format!("meter:{meter}"));
                let parts = [meter, actions, instructions];
                let done: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
                let done = if done.is_empty() { "drop".to_owned() } else { done.join(",") };
                format!("{},actions={done}", matched.join(","))
            })
            .prop_filter("a frame has two tags", |flow| flow.matches("push_vlan").count() < 2)
            .boxed()
    });
    proptest::strategy::Union::new(flows.collect::<Vec<_>>()).boxed()
}
