//! What the flow language refuses, and the words it uses: the field, and what would be right.

use tollgate_openflow::port::{OFPP_LOCAL, PortDesc};
use tollgate_openflow::text::{PortTable, parse_flow, parse_flow_line, parse_flow_stats_request};
use tollgate_openflow::{FlowCommand, FlowMod};

fn ports() -> PortTable {
    let port =
        |port_no, name: &str| PortDesc { port_no, name: name.to_owned(), ..PortDesc::default() };
    PortTable::new(&[port(1, "vm1"), port(2, "vm2")])
}

fn add(text: &str) -> Result<FlowMod, String> {
    parse_flow(text, FlowCommand::Add, &ports()).map_err(|error| error.to_string())
}

fn delete(text: &str) -> Result<FlowMod, String> {
    parse_flow(text, FlowCommand::Delete, &ports()).map_err(|error| error.to_string())
}

#[track_caller]
fn assert_refused(text: &str, message: &str) {
    match add(text) {
        Err(error) => assert_eq!(error, message, "{text}"),
        Ok(flow) => panic!("{text} was accepted: {flow:?}"),
    }
}

#[test]
fn a_misspelt_name_is_refused_with_the_nearest_one() {
    assert_refused("tcp,tp_dstt=80,actions=drop", "unknown keyword tp_dstt; did you mean tp_dst?");
    assert_refused("prioritty=1,actions=drop", "unknown keyword prioritty; did you mean priority?");
    assert_refused("actions=otput:1", "unknown action otput; did you mean output?");
    assert_refused(
        "ip,actions=set_field:1.2.3.4->ip_srcc",
        "set_field:1.2.3.4->ip_srcc: unknown field ip_srcc; did you mean ip_src?",
    );
    assert_refused("qwertzuiop=1,actions=drop", "unknown keyword qwertzuiop");
    assert_refused("actions=vm9", "unknown action vm9, and no port has that name");
    assert_refused("actions=learn(table=1)", "action learn is not supported");
    assert_refused("tun_id=5,actions=drop", "field tun_id is not supported");
}

#[test]
fn a_missing_prerequisite_is_refused_and_named() {
    assert_refused("tp_dst=80,actions=drop", "tp_dst=80 needs tcp, udp or sctp in the match");
    assert_refused("tcp_dst=80,actions=drop", "tcp_dst=80 needs tcp or tcp6 in the match");
    assert_refused("nw_src=1.2.3.4,actions=drop", "nw_src=1.2.3.4 needs ip or arp in the match");
    assert_refused("ip,ipv6_src=::1,actions=drop", "ipv6_src=::1 needs ipv6 in the match");
    assert_refused("arp,nw_ttl=3,actions=drop", "nw_ttl=3 needs ip or ipv6 in the match");
    assert_refused("actions=mod_nw_src:1.2.3.4", "mod_nw_src:1.2.3.4 needs ip in the match");
    assert_refused("ip,actions=mod_tp_dst:1", "mod_tp_dst:1 needs tcp, udp or sctp in the match");
    assert_refused("icmp,actions=mod_tp_dst:1", "mod_tp_dst:1 needs tcp, udp or sctp in the match");
    assert_refused("actions=dec_ttl,1", "dec_ttl needs ip or ipv6 in the match");
    assert_refused(
        "actions=pop_vlan,1",
        "pop_vlan needs a VLAN tag (dl_vlan=N or vlan_tci=0x1000/0x1000) in the match",
    );
    assert_refused(
        "dl_vlan=5,actions=pop_vlan,pop_vlan",
        "pop_vlan needs a VLAN tag (dl_vlan=N or vlan_tci=0x1000/0x1000) in the match",
    );
}

#[test]
fn writing_to_bits_is_refused_with_what_would_be_right() {
    assert_refused(
        "actions=load:0x1ff->reg0[0..7]",
        "load:0x1ff->reg0[0..7]: 0x1ff does not fit into 8 bits",
    );
    assert_refused(
        "actions=load:1->reg0[32]",
        "load:1->reg0[32]: reg0[32]: expected a bit from 0 to 31 instead of 32",
    );
    assert_refused(
        "actions=load:1->reg0[7..3]",
        "load:1->reg0[7..3]: reg0[7..3]: the first bit is above the last: write reg0[3..7]",
    );
    assert_refused("actions=load:1->reg0[", "load:1->reg0[: reg0[: missing `]'");
    assert_refused("actions=load:x->reg0", "load:x->reg0: x is no number");
    assert_refused("actions=load:1", "load:1: expected load:VALUE->FIELD[FIRST..LAST]");
    assert_refused(
        "actions=load:1->reg16[]",
        "load:1->reg16[]: unknown field reg16; did you mean reg1?",
    );
    assert_refused(
        "actions=load:1->NXM_NX_REGG0",
        "load:1->NXM_NX_REGG0: unknown field NXM_NX_REGG0; did you mean NXM_NX_REG0?",
    );
    assert_refused(
        "actions=load:1->NXM_NX_TUN_ID[]",
        "load:1->NXM_NX_TUN_ID[]: field NXM_NX_TUN_ID is not supported",
    );
    assert_refused("actions=load:1->eth_type[]", "load:1->eth_type[]: eth_type cannot be written");
    assert_refused(
        "actions=load:0->NXM_OF_VLAN_TCI[]",
        "load:0->NXM_OF_VLAN_TCI[]: NXM_OF_VLAN_TCI[] spans more than one field: \
         write OXM_OF_VLAN_VID[], OXM_OF_VLAN_PCP[], push_vlan or pop_vlan",
    );
    assert_refused(
        "actions=move:eth_src[]->reg1[]",
        "move:eth_src[]->reg1[]: the source is 48 bits wide and the destination 32: \
         write which bits, as in reg0[0..31]",
    );
    assert_refused("actions=move:ip_src[]->reg1[]", "move:ip_src[]->reg1[] needs ip in the match");
    assert_refused("actions=load:1->tcp_dst[]", "load:1->tcp_dst[] needs tcp or tcp6 in the match");
    assert_refused(
        "actions=write_actions(set_field:1.2.3.4->ip_dst)",
        "set_field:1.2.3.4->ip_dst needs ip in the match",
    );
}

#[test]
fn what_a_resubmit_a_note_and_a_controller_need_is_said() {
    assert_refused(
        "actions=resubmit(,)",
        "resubmit(,) needs a port or a table: resubmit(PORT,TABLE) or resubmit(,TABLE)",
    );
    assert_refused(
        "actions=resubmit(,300)",
        "resubmit to table=300: expected a number from 0 to 254",
    );
    assert_refused("actions=resubmit(,1,ct)", "resubmit: ct is not supported");
    assert_refused("actions=note:1", "note=1: expected pairs of hexadecimal digits");
    assert_refused(
        "actions=controller(reason=boredom)",
        "reason=boredom: expected no_match, action or invalid_ttl",
    );
    assert_refused("actions=controller(userdata=01)", "controller: userdata is not supported");
    assert_refused(
        "actions=controller(maxlen=5)",
        "controller: unknown maxlen; it takes max_len=BYTES, reason=REASON and id=ID",
    );
    assert_refused(
        "actions=write_actions(note:00)",
        "write_actions: note:00 cannot wait in an action set",
    );
    assert_refused(
        "actions=output:reg0[]",
        "output:reg0[]: output to a register, or of the beginning of a packet, is not supported",
    );
    assert_refused(
        "dl_vlan=1,actions=push_vlan:0x8100,push_vlan:0x8100",
        "push_vlan: a frame has at most 2 tags",
    );
}

#[test]
fn what_later_fragments_and_other_codes_do_not_have_is_refused() {
    assert_refused(
        "tcp,ip_frag=later,tp_dst=80,actions=drop",
        "tp_dst=80: the fragments that ip_frag=later matches have no such field",
    );
    assert_refused(
        "udp,udp_dst=80,ip_frag=later,actions=drop",
        "udp_dst=80: the fragments that ip_frag=later matches have no such field",
    );
    assert_refused(
        "icmp6,icmp_type=135,icmp_code=1,nd_target=::1,actions=drop",
        "nd_target=::1 needs icmp6,icmp_type=135,icmp_code=0 or icmp6,icmp_type=136,icmp_code=0 \
         in the match",
    );
    assert_refused(
        "packet_type=(1,0x800),actions=drop",
        "only Ethernet frames are matched: packet_type=(0,0)",
    );
    assert!(add("eth,actions=drop").unwrap().matcher.is_any());
    assert!(add("packet_type=(0,0),actions=drop").unwrap().matcher.is_any());
}

#[test]
fn a_value_out_of_range_is_refused_with_the_range() {
    assert_refused(
        "priority=70000,actions=drop",
        "priority=70000: expected a number from 0 to 65535",
    );
    assert_refused("table=255,actions=drop", "table=255: expected a number from 0 to 254");
    assert_refused("table=-1,actions=drop", "table=-1: expected a number from 0 to 254");
    assert_refused(
        "dl_vlan=5000,actions=drop",
        "dl_vlan=5000: expected a VLAN id from 0 to 4095, or 0xffff for untagged packets",
    );
    assert_refused("ip,nw_proto=300,actions=drop", "nw_proto=300: expected a number from 0 to 255");
    assert_refused(
        "ip,nw_src=1.2.3.400,actions=drop",
        "nw_src=1.2.3.400: expected an IPv4 address a.b.c.d, with /LENGTH or /MASK if wanted",
    );
    assert_refused(
        "ip,nw_src=10.0.0.1/33,actions=drop",
        "nw_src=10.0.0.1/33: expected a prefix length from 0 to 32 after the `/'",
    );
    assert_refused(
        "dl_src=00:11,actions=drop",
        "dl_src=00:11: expected an Ethernet address aa:bb:cc:dd:ee:ff",
    );
    assert_refused("arp,arp_op=1/1,actions=drop", "arp_op=1/1: expected a value without a mask");
    assert_refused(
        "tcp,tp_dst=080,actions=drop",
        "tp_dst=080: expected a number without a leading zero (ovs-ofctl reads those as octal)",
    );
    assert_refused(
        "in_port=vm7,actions=drop",
        "in_port=vm7: expected a port number up to 65279, the name of a port of this bridge, or LOCAL",
    );
    assert_refused(
        "ip,ip_frag=maybe,actions=drop",
        "ip_frag=maybe: expected no, yes, first, later or not_later",
    );
    assert_refused(
        "tcp,tcp_flags=+syn+syn,actions=drop",
        "tcp_flags=+syn+syn: expected flags such as syn|ack, +syn-ack or 0x12/0x3f",
    );
    assert_refused("actions=push_vlan:0x8200", "push_vlan:0x8200: expected 0x8100 or 0x88a8");
    assert_refused(
        "actions=mod_vlan_vid:5000",
        "mod_vlan_vid=5000: expected a number from 0 to 4095",
    );
}

#[test]
fn what_would_silently_mean_something_else_is_refused() {
    assert_refused("tcp,udp,actions=drop", "udp contradicts tcp: both match one field");
    assert_refused(
        "in_port=1,in_port=2,actions=drop",
        "in_port=2 contradicts in_port=1: both match one field",
    );
    assert_refused(
        "vlan_vid=10,actions=drop",
        "vlan_vid=10 matches nothing, tagged packets have bit 12 set: write dl_vlan=10 or vlan_vid=0x100a",
    );
    assert_refused(
        "dl_vlan=3,actions=set_field:5->vlan_vid",
        "set_field:5->vlan_vid: vlan_vid is set together with bit 12: write 4101 or mod_vlan_vid:5",
    );
    assert_refused(
        "importance=3,actions=drop",
        "importance exists since OpenFlow 1.4; this is 1.3",
    );
    assert_refused(
        "cookie=1/2,actions=drop",
        "cookie=1/2: an added flow has a cookie without a mask",
    );
}

#[test]
fn actions_are_needed_and_stand_in_the_order_of_execution() {
    assert_refused("ip", "must specify an action (actions=drop drops)");
    assert_refused("ip,actions", "must specify an action (actions=drop drops)");
    assert_refused("actions=drop,1", "drop must be the only action");
    assert_refused("actions=1,drop", "drop must be the only action");
    assert_refused("actions=goto_table:1,drop", "drop must be the only action");
    assert_refused("actions=goto_table:1,output:2", "output must come before goto_table");
    assert_refused("actions=goto_table:1,goto_table:2", "goto_table may be given once");
    assert_refused("actions=output:1,meter:2", "meter must come before output");
    assert_refused(
        "table=2,actions=goto_table:2",
        "goto_table:2 goes back: the flow is in table 2",
    );
    assert_refused("actions=output", "output needs a port: output:VALUE");
    assert_refused(
        "actions=apply_actions(1)",
        "apply_actions is what a plain list of actions means",
    );
    assert_refused(
        "actions=set_field:1.2.3.4",
        "set_field:1.2.3.4: expected set_field:VALUE->FIELD",
    );
    assert!(add("actions=").unwrap().instructions.iter().next().is_none(), "no actions: drop");
}

#[test]
fn names_out_of_place_are_refused() {
    assert_refused("out_port=1,actions=drop", "out_port is for selecting flows to dump or delete");
    let refused = |text| delete(text).unwrap_err();
    assert!(refused("priority=3").starts_with("priority selects one flow: only with --strict"));
    assert_eq!(refused("cookie=5"), "cookie=5: to select by a cookie give a mask too: cookie=5/-1");
    assert_eq!(refused("idle_timeout=5"), "idle_timeout is for flows that are added or modified");
    assert_eq!(refused("send_flow_rem"), "send_flow_rem is for flows that are added or modified");
    assert_eq!(
        refused("ip,actions=drop"),
        "actions: only flows that are added or modified have them"
    );
    assert!(parse_flow_stats_request("priority=3", &ports()).is_err());
}

#[test]
fn deletions_and_dumps_select_by_table_cookie_and_output() {
    let flow = delete("table=3,cookie=0x5/-1,out_port=vm2,out_group=9,ip").unwrap();
    assert_eq!((flow.table_id, flow.cookie, flow.cookie_mask), (3, 5, u64::MAX));
    assert_eq!((flow.out_port, flow.out_group), (2, 9));
    assert_eq!(delete("").unwrap().table_id, 255, "no table: all of them");
    let request = parse_flow_stats_request("out_port=LOCAL,cookie=1/3", &ports()).unwrap();
    assert_eq!((request.out_port, request.table_id), (OFPP_LOCAL, 255));
    assert_eq!((request.cookie, request.cookie_mask), (1, 3));
    let strict = parse_flow("priority=7,in_port=vm1", FlowCommand::DeleteStrict, &ports()).unwrap();
    assert_eq!(strict.priority, 7);
}

#[test]
fn a_line_of_a_file_is_a_comment_a_flow_or_a_command() {
    let line = |text| parse_flow_line(text, FlowCommand::Add, &ports()).unwrap();
    assert_eq!(line(""), None);
    assert_eq!(line("   # only a comment"), None);
    assert_eq!(line("ip,actions=drop # why").unwrap().command, FlowCommand::Add);
    assert_eq!(line("add ip,actions=drop").unwrap().command, FlowCommand::Add);
    assert_eq!(line("modify ip,actions=drop").unwrap().command, FlowCommand::Modify);
    assert_eq!(line("modify_strict ip,actions=drop").unwrap().command, FlowCommand::ModifyStrict);
    assert_eq!(line("delete in_port=vm1").unwrap().command, FlowCommand::Delete);
    assert_eq!(line("delete").unwrap().command, FlowCommand::Delete);
    let strict = line("delete_strict priority=9,in_port=vm1").unwrap();
    assert_eq!((strict.command, strict.priority), (FlowCommand::DeleteStrict, 9));
    // Only where flows are added.
    let delete = |text| parse_flow_line(text, FlowCommand::Delete, &ports());
    assert_eq!(delete("in_port=vm1").unwrap().unwrap().command, FlowCommand::Delete);
    assert!(delete("add in_port=vm1").is_err());
}

#[test]
fn numbers_and_masks_have_their_limits() {
    for text in ["ip,nw_src=10.0.0.0/0,actions=drop", "ip,nw_src=*,actions=drop"] {
        assert_eq!(add(text).unwrap().matcher, add("ip,actions=drop").unwrap().matcher, "{text}");
    }
    for text in
        ["ip,nw_src=10.1.2.3/32,actions=drop", "ip,nw_src=10.1.2.3/255.255.255.255,actions=drop"]
    {
        let exact = add("ip,nw_src=10.1.2.3,actions=drop").unwrap();
        assert_eq!(add(text).unwrap().matcher, exact.matcher, "{text}");
    }
    for text in [
        "ipv6,ipv6_src=::/129,actions=drop",
        "ip,nw_src=1.2.3.4/,actions=drop",
        "metadata=0x,actions=drop",
        "metadata=0x10000000000000000,actions=drop",
        "metadata=+5,actions=drop",
    ] {
        assert!(add(text).is_err(), "{text}");
    }
    let long = format!("ip,actions={}", "output:1,".repeat(10_000));
    assert!(add(&long).is_err());
}
