//! What people read: rules, packets, decisions, in the words of flow text.

use tollgate_classifier::{ExtraKey, ExtraMatch};
use tollgate_datapath::Op;
use tollgate_openflow::field::{
    ETH_TYPE_IPV6, IP_PROTO_ICMPV6, IP_PROTO_TCP, IP_PROTO_UDP, OFPVID_PRESENT,
};
use tollgate_openflow::flow_mod::DEFAULT_PRIORITY;
use tollgate_openflow::text::{PortNames, format_actions, format_match, format_port};
use tollgate_openflow::{Action, Actions, Field, Instruction, Instructions, OxmField};
use tollgate_packet::edit::{Edit, apply_to_key};
use tollgate_packet::{FlowKey, FlowMatch, HeaderField, PortIndex};

use super::bridge::Bridge;
use super::describe::{match_of, packet_match};
use super::rule::Rule;

/// The ports of a bridge by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a>(pub(super) &'a Bridge);

impl PortNames for Names<'_> {
    fn number(&self, name: &str) -> Option<u32> {
        self.0.ports().find(|port| port.name == name).map(|port| port.ofport)
    }

    fn name(&self, number: u32) -> Option<&str> {
        self.0.port(number).map(|port| port.name.as_str())
    }
}

impl Names<'_> {
    /// A rule's priority and match.
    pub(super) fn rule(&self, rule: &Rule) -> String {
        format_match(&rule.source, rule.priority, self)
    }

    /// One step of what a rule does.
    pub(super) fn instruction(&self, instruction: &Instruction) -> String {
        // One alone is a valid list.
        let list = Instructions::new(vec![instruction.clone()]).unwrap_or_default();
        format_actions(&list, self)
    }

    /// Every field of a packet.
    pub(super) fn packet(&self, key: &FlowKey, extra: &ExtraKey) -> String {
        format_match(&packet_match(key, extra), DEFAULT_PRIORITY, self)
    }

    /// What a decision is good for; its `in_port` is an OpenFlow number.
    pub(super) fn decision(&self, matcher: &FlowMatch) -> String {
        format_match(&match_of(matcher, &ExtraMatch::ANY), DEFAULT_PRIORITY, self)
    }

    /// A decision's steps, which `meters` names the meters of, on a packet with these fields.
    pub(super) fn steps(&self, ops: &[Op], meters: &[u32], key: &FlowKey) -> Vec<String> {
        let mut key = *key;
        ops.iter().map(|op| self.step(op, meters, &mut key)).collect()
    }

    fn step(&self, op: &Op, meters: &[u32], key: &mut FlowKey) -> String {
        match op {
            Op::Output(index) => format!("output:{}", self.port(*index)),
            Op::Edit(edit) => {
                let text = self.edit(edit, key);
                // A walk has found it possible, on a packet of which more may be known than here.
                let _ = apply_to_key(edit, key);
                text
            }
            Op::Meter(place) => match meters.get(usize::from(*place)) {
                Some(id) => format!("meter:{id}"),
                None => "meter".to_owned(),
            },
            Op::Punt => "controller".to_owned(),
            Op::Burn(cycles) => format!("burn:{cycles}"),
        }
    }

    pub(super) fn port(&self, index: PortIndex) -> String {
        let mut ports = self.0.ports();
        match ports.find(|port| port.index == index) {
            Some(port) => format_port(port.ofport, self),
            None => "(a port that is gone)".to_owned(),
        }
    }

    fn edit(&self, edit: &Edit, key: &FlowKey) -> String {
        let action = match *edit {
            Edit::PushVlan { tpid } => Action::PushVlan(tpid),
            Edit::PopVlan => Action::PopVlan,
            Edit::DecTtl => Action::DecNwTtl,
            Edit::Set { field, value, mask } => {
                let field = openflow_field(field, key);
                let present = match field {
                    Field::VlanVid => u128::from(OFPVID_PRESENT),
                    _ => 0,
                };
                Action::SetField(OxmField::masked(field, value | present, mask | present))
            }
        };
        // One alone is a valid list.
        let list = Actions::new(vec![action]).unwrap_or_default();
        self.instruction(&Instruction::ApplyActions(list))
    }
}

/// What OpenFlow calls a field of a packet.
fn openflow_field(field: HeaderField, key: &FlowKey) -> Field {
    let of_protocol = |tcp, udp, sctp| match key.ip_proto {
        IP_PROTO_TCP => tcp,
        IP_PROTO_UDP => udp,
        _ => sctp,
    };
    let is_icmpv6 = key.eth_type == ETH_TYPE_IPV6 && key.ip_proto == IP_PROTO_ICMPV6;
    let of_version = |icmpv4, icmpv6| if is_icmpv6 { icmpv6 } else { icmpv4 };
    match field {
        HeaderField::EthSrc => Field::EthSrc,
        HeaderField::EthDst => Field::EthDst,
        HeaderField::VlanVid => Field::VlanVid,
        HeaderField::VlanPcp => Field::VlanPcp,
        HeaderField::IpDscp => Field::IpDscp,
        HeaderField::IpEcn => Field::IpEcn,
        HeaderField::IpTtl => Field::NwTtl,
        HeaderField::Ipv4Src => Field::Ipv4Src,
        HeaderField::Ipv4Dst => Field::Ipv4Dst,
        HeaderField::Ipv6Src => Field::Ipv6Src,
        HeaderField::Ipv6Dst => Field::Ipv6Dst,
        HeaderField::Ipv6Label => Field::Ipv6Flabel,
        HeaderField::L4Src => of_protocol(Field::TcpSrc, Field::UdpSrc, Field::SctpSrc),
        HeaderField::L4Dst => of_protocol(Field::TcpDst, Field::UdpDst, Field::SctpDst),
        HeaderField::IcmpType => of_version(Field::Icmpv4Type, Field::Icmpv6Type),
        HeaderField::IcmpCode => of_version(Field::Icmpv4Code, Field::Icmpv6Code),
        HeaderField::ArpOp => Field::ArpOp,
        HeaderField::ArpSpa => Field::ArpSpa,
        HeaderField::ArpTpa => Field::ArpTpa,
        HeaderField::ArpSha => Field::ArpSha,
        HeaderField::ArpTha => Field::ArpTha,
        HeaderField::NdTarget => Field::NdTarget,
        HeaderField::NdSll => Field::NdSll,
        HeaderField::NdTll => Field::NdTll,
    }
}
