//! Random rules of the same small world as the frames.

use proptest::option::weighted;
use proptest::prelude::*;
use tollgate_openflow::flow_mod::first_inconsistent;
use tollgate_openflow::port::{OFPP_CONTROLLER, OFPP_FLOOD, OFPP_IN_PORT, OFPP_NORMAL};
use tollgate_openflow::subfield::SubField;
use tollgate_openflow::{
    Action, Actions, Field, FlowCommand, FlowMod, Instruction, Instructions, Match, OxmField,
};

use super::frames::{any_mac, any_port, ipv4, ipv6};

/// Ports of the switch under test; rules name one more, which is not there.
pub(super) const PORTS: u32 = 4;
/// Tables that random rules use.
const TABLES: u8 = 4;

/// What a rule does, before it is known which of it its match allows.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    apply: Vec<Action>,
    write: Vec<Action>,
    clear: bool,
    metadata: Option<(u64, u64)>,
    goto_next: Option<u8>,
}

/// A match in a table.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) table: u8,
    pub(super) matcher: Match,
}

impl Place {
    /// A wish in this table. Resubmits name a number of tables further on: rules that find
    /// themselves again would take every walk to its bounds.
    fn here(&self, wish: &Action) -> Option<Action> {
        match wish {
            Action::Resubmit { in_port, table } => {
                let table = table.map_or(self.table + 1, |step| self.table + step);
                let there = Action::Resubmit { in_port: *in_port, table: Some(table) };
                (table < TABLES).then_some(there)
            }
            wish => Some(wish.clone()),
        }
    }

    /// A flow-mod about this place; of the wishes, what the match does not allow is left out.
    pub(super) fn flow_mod(&self, command: FlowCommand, priority: u16, wishes: &Wishes) -> FlowMod {
        let here = |action: &Action| self.here(action);
        let mut apply: Vec<Action> = wishes.apply.iter().flat_map(here).collect();
        let mut write: Vec<Action> = wishes.write.iter().flat_map(here).collect();
        // A second or third tag is refused where the match tells that there are others.
        let pushes = |action: &Action| matches!(action, Action::PushVlan(_));
        let mut room = 1;
        for actions in [&mut apply, &mut write] {
            actions.retain(|action| !pushes(action) || std::mem::take(&mut room) == 1);
        }
        // Actions of both lists are checked in a row, as OVS does.
        while let Some((index, _)) = first_inconsistent(&self.matcher, &apply) {
            apply.remove(index);
        }
        let mut actions = [&apply[..], &write].concat();
        while let Some((index, _)) = first_inconsistent(&self.matcher, &actions) {
            actions.remove(index);
        }
        let write = actions.split_off(apply.len());
        let mut instructions = vec![
            Instruction::ApplyActions(Actions::new(apply).unwrap()),
            Instruction::WriteActions(Actions::new(write).unwrap()),
        ];
        if wishes.clear {
            instructions.push(Instruction::ClearActions);
        }
        if let Some((metadata, mask)) = wishes.metadata {
            instructions.push(Instruction::WriteMetadata { metadata, mask });
        }
        if let Some(step) = wishes.goto_next.filter(|step| self.table + step < TABLES) {
            instructions.push(Instruction::GotoTable(self.table + step));
        }
        FlowMod {
            table_id: self.table,
            priority,
            matcher: self.matcher.clone(),
            instructions: Instructions::new(instructions).unwrap(),
            ..FlowMod::new(command)
        }
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

/// The field's value; sometimes only a prefix of it is compared, or some other of its bits.
fn perhaps_masked(field: Field, value: u128, ignored: u128) -> OxmField {
    let mask = field.full_mask() & !ignored;
    OxmField::masked(field, value & mask, mask)
}

/// Bits to leave out: mostly none, or so many that different values agree in the rest.
fn any_ignored(field: Field) -> BoxedStrategy<u128> {
    let full = field.full_mask();
    let prefix = move |bits: u32| full >> bits & full;
    let width = full.count_ones();
    prop_oneof![
        3 => Just(0),
        2 => Just(1),
        1 => Just(prefix(1)),
        1 => Just(prefix(width / 2)),
        1 => (1..width.max(2)).prop_map(prefix),
        // A mask that is no prefix.
        1 => Just(full & !prefix(width / 2)),
    ]
    .boxed()
}

fn optional(
    field: Field,
    value: impl Strategy<Value = u128>,
) -> impl Strategy<Value = Vec<OxmField>> {
    weighted(0.3, (value, any_ignored(field)))
        .prop_map(move |chosen| {
            let maskable = field.info().maskable;
            chosen.map(|(value, ignored)| {
                perhaps_masked(field, value, if maskable { ignored } else { 0 })
            })
        })
        .prop_map(|field| field.into_iter().collect())
}

fn concat(
    parts: impl Strategy<Value = Vec<Vec<OxmField>>>,
) -> impl Strategy<Value = Vec<OxmField>> {
    parts.prop_map(|parts| parts.concat())
}

fn layer2_fields() -> impl Strategy<Value = Vec<OxmField>> {
    let tag = prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![OxmField::exact(Field::VlanVid, 0_u16)]),
        1 => Just(vec![OxmField::masked(Field::VlanVid, 0x1000_u16, 0x1000_u16)]),
        2 => (0..3_u16).prop_map(|vid| vec![OxmField::exact(Field::VlanVid, 0x1000 | vid)]),
        1 => (0..3_u16, 0..2_u8).prop_map(|(vid, pcp)| vec![
            OxmField::exact(Field::VlanVid, 0x1000 | vid),
            OxmField::exact(Field::VlanPcp, pcp),
        ]),
    ];
    concat(
        (
            optional(Field::InPort, (1..=u128::from(PORTS)).boxed()),
            optional(Field::EthSrc, any_mac().prop_map(|mac| number(&mac))),
            optional(Field::EthDst, any_mac().prop_map(|mac| number(&mac))),
            optional(Field::Metadata, 0..4_u128),
            optional(Field::Reg0, 0..4_u128),
            tag,
        )
            .prop_map(|(a, b, c, d, e, f)| vec![a, b, c, d, e, f]),
    )
}

fn layer4_fields(is_ipv6: bool) -> impl Strategy<Value = Vec<OxmField>> {
    let ports = |proto: u8, src: Field, dst: Field| {
        (
            optional(src, any_port().prop_map(u128::from)),
            optional(dst, any_port().prop_map(u128::from)),
        )
            .prop_map(move |(src, dst)| {
                [vec![OxmField::exact(Field::IpProto, proto)], src, dst].concat()
            })
    };
    let (proto, kind) = if is_ipv6 { (58_u8, Field::Icmpv6Type) } else { (1, Field::Icmpv4Type) };
    let icmp = vec![OxmField::exact(Field::IpProto, proto), OxmField::exact(kind, 8_u8)];
    prop_oneof![
        2 => Just(vec![]),
        2 => ports(6, Field::TcpSrc, Field::TcpDst),
        2 => ports(17, Field::UdpSrc, Field::UdpDst),
        1 => Just(icmp),
    ]
}

fn layer3_fields() -> impl Strategy<Value = Vec<OxmField>> {
    let ip = |ethertype: u16, src: Field, dst: Field, address: fn(u8) -> Vec<u8>| {
        let fields = (
            optional(src, (0..4_u8).prop_map(move |n| number(&address(n)))),
            optional(dst, (0..4_u8).prop_map(move |n| number(&address(n)))),
            optional(Field::IpDscp, prop_oneof![Just(0_u128), Just(10)]),
            optional(Field::NwFrag, 0..3_u128),
            layer4_fields(ethertype == 0x86dd),
        );
        fields.prop_map(move |(a, b, c, d, e)| {
            // OVS refuses to match the ports of fragments that have none.
            let later = d.iter().any(|field| field.value() & 2 != 0);
            let e = if later { vec![] } else { e };
            [vec![OxmField::exact(Field::EthType, ethertype)], a, b, c, d, e].concat()
        })
    };
    let arp = optional(Field::ArpTpa, (0..4_u8).prop_map(|n| number(&ipv4(n))))
        .prop_map(|tpa| [vec![OxmField::exact(Field::EthType, 0x0806_u16)], tpa].concat());
    prop_oneof![
        2 => Just(vec![]),
        3 => ip(0x0800, Field::Ipv4Src, Field::Ipv4Dst, |n| ipv4(n).to_vec()),
        2 => ip(0x86dd, Field::Ipv6Src, Field::Ipv6Dst, |n| ipv6(n).to_vec()),
        1 => arp,
    ]
}

/// Any match in any table, table 0 most of all.
pub(super) fn any_place() -> impl Strategy<Value = Place> {
    let table = prop_oneof![3 => Just(0), 2 => Just(1), 1 => 2..TABLES];
    (table, layer2_fields(), layer3_fields()).prop_map(|(table, layer2, layer3)| Place {
        table,
        matcher: Match::from_fields(layer2.into_iter().chain(layer3)).unwrap(),
    })
}

fn any_edit() -> impl Strategy<Value = Action> {
    let set = |field: Field, value: BoxedStrategy<u128>| {
        value.prop_map(move |value| Action::SetField(OxmField::exact(field, value))).boxed()
    };
    let ports = || any_port().prop_map(u128::from).boxed();
    let macs = || any_mac().prop_map(|mac| number(&mac)).boxed();
    let ipv4s = || (0..4_u8).prop_map(|n| number(&ipv4(n))).boxed();
    let ipv6s = || (0..4_u8).prop_map(|n| number(&ipv6(n))).boxed();
    prop_oneof![
        set(Field::EthSrc, macs()),
        set(Field::EthDst, macs()),
        set(Field::Ipv4Src, ipv4s()),
        set(Field::Ipv4Dst, ipv4s()),
        set(Field::Ipv6Dst, ipv6s()),
        set(Field::ArpTpa, ipv4s()),
        set(Field::IpDscp, Just(10).boxed()),
        set(Field::IpEcn, Just(3).boxed()),
        set(Field::TcpDst, ports()),
        set(Field::UdpSrc, ports()),
        set(Field::UdpDst, ports()),
        set(Field::VlanVid, (0x1000..0x1003_u128).boxed()),
        set(Field::VlanPcp, (0..2_u128).boxed()),
        prop_oneof![Just(0x8100), Just(0x88a8)].prop_map(Action::PushVlan),
        Just(Action::PopVlan),
        Just(Action::DecNwTtl),
        any_change_of_bits(),
        any_change_of_bits(),
        any_change_of_bits(),
    ]
}

/// Masked sets, loads and moves between fields of packets and of the pipeline.
fn any_change_of_bits() -> impl Strategy<Value = Action> {
    // Narrow runs of bits in which the small world's values differ.
    let bits = |fields: &'static [Field]| {
        (prop::sample::select(fields), 0..3_u8, 1..3_u8)
            .prop_map(|(field, offset, bits)| SubField::new(field, offset, bits).ok())
            .prop_filter_map("no such bits", |bits| bits)
    };
    let load = (bits(&WRITABLE), any::<u64>()).prop_map(|(dst, value)| {
        let value = value & ((1 << dst.bits()) - 1);
        Action::RegLoad { dst, value }
    });
    let copy = (bits(&READABLE), bits(&WRITABLE))
        .prop_filter_map("different widths", |(src, dst)| {
            (src.bits() == dst.bits()).then_some(Action::RegMove { src, dst })
        });
    prop_oneof![1 => load, 2 => copy]
}

const WRITABLE: [Field; 22] = [
    Field::EthSrc,
    Field::EthDst,
    Field::VlanVid,
    Field::VlanPcp,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Flabel,
    Field::IpDscp,
    Field::NwTtl,
    Field::TcpSrc,
    Field::UdpDst,
    Field::Icmpv4Type,
    Field::Icmpv6Code,
    Field::ArpOp,
    Field::ArpSpa,
    Field::ArpTha,
    Field::Reg0,
    Field::Reg1,
    Field::Metadata,
    Field::Metadata,
];

const READABLE: [Field; 16] = [
    Field::InPort,
    Field::EthSrc,
    Field::EthType,
    Field::VlanVid,
    Field::VlanPcp,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::NwFrag,
    Field::IpProto,
    Field::IpEcn,
    Field::TcpFlags,
    Field::TcpDst,
    Field::UdpSrc,
    Field::ArpTpa,
    Field::Reg0,
    Field::Metadata,
];

fn any_output() -> impl Strategy<Value = Action> {
    let port = prop_oneof![
        6 => 1..=PORTS + 1,
        1 => Just(OFPP_IN_PORT),
        1 => Just(OFPP_FLOOD),
        2 => Just(OFPP_NORMAL),
        1 => Just(OFPP_CONTROLLER),
    ];
    let output = port.prop_map(|port| Action::Output { port, max_len: 0 });
    let in_port = weighted(0.3, 1..=PORTS);
    let resubmit = (in_port, weighted(0.5, 1..3_u8))
        .prop_map(|(in_port, table)| Action::Resubmit { in_port, table });
    let enter = (1..=PORTS)
        .prop_map(|port| Action::SetField(OxmField::exact(Field::InPort, u128::from(port))));
    prop_oneof![12 => output, 3 => resubmit, 1 => enter]
}

/// Anything that a rule may do.
pub(super) fn any_wishes() -> impl Strategy<Value = Wishes> {
    let action = || prop_oneof![3 => any_edit(), 2 => any_output()];
    (
        prop::collection::vec(action(), 0..5),
        prop::collection::vec(action(), 0..3),
        // More often, and little of the action set would be left to test.
        prop::bool::weighted(0.15),
        weighted(0.3, (0..4_u64, 1..4_u64)),
        weighted(0.6, 1..3_u8),
    )
        .prop_map(|(apply, write, clear, metadata, goto_next)| Wishes {
            apply,
            write,
            clear,
            metadata,
            goto_next,
        })
}
