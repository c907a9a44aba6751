//! Generators of valid matches, actions, flows and messages.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod spelling;

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_openflow::bundle::*;
use tollgate_openflow::controller::{AsyncConfig, AsyncMasks, Role};
use tollgate_openflow::event::*;
use tollgate_openflow::field::Prerequisite;
use tollgate_openflow::group::*;
use tollgate_openflow::message::{ErrorMessage, Features, Hello, SwitchConfig};
use tollgate_openflow::meter::*;
use tollgate_openflow::multipart::*;
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port::*;
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::queue::QueueStats;
use tollgate_openflow::table_features::{TableFeatures, TableProperty};
use tollgate_openflow::*;

/// A field with any value, and with any mask where it may have one.
fn field(field: Field) -> BoxedStrategy<OxmField> {
    let full = field.full_mask();
    match field {
        Field::NwFrag => select(&[(0_u8, 3_u8), (1, 1), (1, 3), (3, 3), (0, 2)][..])
            .prop_map(move |(value, mask)| OxmField::masked(field, value, mask))
            .boxed(),
        Field::InPort => port().prop_map(move |port| OxmField::exact(field, port)).boxed(),
        _ => {
            let mask = if field.info().maskable {
                prop_oneof![Just(full), (1..=full)].boxed()
            } else {
                Just(full).boxed()
            };
            (0..=full, mask)
                .prop_map(move |(value, mask)| OxmField::masked(field, value, mask))
                .boxed()
        }
    }
}

fn port() -> impl Strategy<Value = u32> {
    prop_oneof![
        1..=TEXT_PORT_MAX,
        1..20_u32,
        select(&[OFPP_LOCAL, OFPP_CONTROLLER, OFPP_NORMAL][..])
    ]
}

/// Fields that stand for a protocol stack, after which others are possible.
fn protocol() -> impl Strategy<Value = Vec<OxmField>> {
    let eth = |value: u16| OxmField::exact(Field::EthType, value);
    let ip = |value: u8| OxmField::exact(Field::IpProto, value);
    let eth_type = select(&[0x0800_u16, 0x86dd, 0x0806, 0x8035, 0x8847, 0x88cc, 0x0600][..]);
    prop_oneof![
        Just(vec![]),
        eth_type.prop_map(move |kind| vec![eth(kind)]),
        (select(&[0x0800_u16, 0x86dd][..]), prop_oneof![any::<u8>(), select(&[6_u8, 17, 132][..])])
            .prop_map(move |(kind, proto)| vec![eth(kind), ip(proto)]),
        Just(vec![eth(0x0800), ip(1)]),
        Just(vec![eth(0x86dd), ip(58)]),
        select(&[135_u8, 136][..]).prop_map(move |kind| vec![
            eth(0x86dd),
            ip(58),
            OxmField::exact(Field::Icmpv6Type, kind)
        ]),
    ]
}

/// Any valid match: a protocol stack, and a random choice of the fields that it allows.
pub(crate) fn a_match() -> impl Strategy<Value = Match> {
    let all: Vec<_> = Field::ALL.iter().map(|f| option::weighted(0.25, field(*f))).collect();
    (protocol(), all).prop_map(|(mut fields, chosen)| {
        for field in chosen.into_iter().flatten() {
            if fields.iter().any(|set| set.field() == field.field()) {
                continue;
            }
            fields.push(field);
            if Match::from_fields(fields.iter().copied()).is_err() {
                fields.pop();
            }
        }
        Match::from_fields(fields).unwrap()
    })
}

fn action() -> impl Strategy<Value = Action> {
    let settable: Vec<Field> =
        Field::ALL.iter().copied().filter(|field| field.info().settable).collect();
    let set = select(settable)
        .prop_flat_map(field)
        .prop_map(|f| Action::SetField(OxmField::exact(f.field(), f.value())));
    prop_oneof![
        (1..=TEXT_PORT_MAX).prop_map(|port| Action::Output { port, max_len: 0 }),
        select(&[OFPP_IN_PORT, OFPP_NORMAL, OFPP_FLOOD, OFPP_ALL, OFPP_LOCAL, OFPP_TABLE][..])
            .prop_map(|port| Action::Output { port, max_len: 0 }),
        any::<u16>().prop_map(|max_len| Action::Output { port: OFPP_CONTROLLER, max_len }),
        set,
        select(&[0x8100_u16, 0x88a8][..]).prop_map(Action::PushVlan),
        Just(Action::PopVlan),
        Just(Action::DecNwTtl),
        any::<u32>().prop_map(Action::Group),
        any::<u8>().prop_map(Action::SetNwTtl),
        nicira(),
    ]
}

/// Bits of any field, at most `most` of them.
fn subfield(most: u32) -> impl Strategy<Value = SubField> {
    select(Field::ALL).prop_flat_map(move |field| {
        let width = SubField::whole(field).bits();
        (0..width).prop_flat_map(move |offset| {
            (1..=(width - offset).min(most)).prop_map(move |bits| {
                SubField::new(field, offset.try_into().unwrap(), bits.try_into().unwrap()).unwrap()
            })
        })
    })
}

/// An action of Nicira's but the masked set-field, which flow text does not have.
fn nicira() -> impl Strategy<Value = Action> {
    let load = (subfield(64), any::<u64>()).prop_map(|(dst, value)| Action::RegLoad {
        dst,
        value: value & u64::try_from(dst.mask() >> dst.offset()).unwrap(),
    });
    let cut = |sub: SubField, bits: u32| {
        SubField::new(sub.field(), sub.offset().try_into().unwrap(), bits.try_into().unwrap())
    };
    let copy = (subfield(128), subfield(128)).prop_map(move |(src, dst)| {
        let bits = src.bits().min(dst.bits());
        Action::RegMove { src: cut(src, bits).unwrap(), dst: cut(dst, bits).unwrap() }
    });
    let in_port = prop_oneof![1..=TEXT_PORT_MAX, Just(OFPP_LOCAL), Just(OFPP_CONTROLLER)];
    let resubmit = (option::of(in_port), option::of(0..=254_u8))
        .prop_filter("says nothing", |(port, table)| port.is_some() || table.is_some())
        .prop_map(|(in_port, table)| Action::Resubmit { in_port, table });
    let controller = (any::<u16>(), any::<u16>(), 0..=2_u8)
        .prop_filter("an output", |(_, id, reason)| (*id, *reason) != (0, OFPR_ACTION))
        .prop_map(|(max_len, controller_id, reason)| Action::Controller {
            max_len,
            controller_id,
            reason,
        });
    let note = vec(any::<u8>(), 0..30).prop_map(|bytes| Action::note(&bytes));
    prop_oneof![load, copy, resubmit, controller, note]
}

/// A set-field with a mask.
fn masked_set_field() -> impl Strategy<Value = Action> {
    let maskable = |field: &Field| field.info().settable && field.info().maskable;
    let fields: Vec<Field> = Field::ALL.iter().copied().filter(maskable).collect();
    select(fields).prop_flat_map(field).prop_map(Action::SetField)
}

/// Actions of which each has its prerequisites in `matcher`.
fn actions_for(matcher: Match) -> impl Strategy<Value = Option<Actions>> {
    vec(action(), 0..12).prop_map(move |candidates| {
        let mut kept = Vec::new();
        for action in candidates {
            kept.push(action);
            let consistent = flow_mod::first_inconsistent(&matcher, &kept).is_none();
            if !consistent || Actions::new(kept.clone()).is_err() {
                kept.pop();
            }
        }
        (!kept.is_empty()).then(|| Actions::new(kept).unwrap())
    })
}

/// Of a list what can be in an action set.
fn action_set(actions: Option<Actions>) -> Option<Actions> {
    let kept = actions?.iter().filter(|action| action.may_be_in_a_set()).cloned().collect();
    Some(Actions::new(kept).unwrap()).filter(|kept| !kept.is_empty())
}

/// Instructions that a flow of `matcher` in table `table_id` may have.
pub(crate) fn instructions(matcher: Match, table_id: u8) -> impl Strategy<Value = Instructions> {
    let known = matcher.clone();
    let metadata = (any::<u64>(), any::<u64>())
        .prop_map(|(value, mask)| Instruction::WriteMetadata { metadata: value & mask, mask });
    let goto = (table_id.saturating_add(1)..=254).prop_map(Instruction::GotoTable);
    let has_next = table_id < 254;
    (
        option::weighted(0.2, any::<u32>().prop_map(Instruction::Meter)),
        actions_for(matcher.clone()),
        any::<bool>(),
        actions_for(matcher).prop_map(action_set),
        option::of(metadata),
        if has_next { option::of(goto).boxed() } else { Just(None).boxed() },
    )
        .prop_map(|(meter, apply, clear, write, metadata, goto)| {
            let list = [
                goto,
                metadata,
                write.map(Instruction::WriteActions),
                clear.then_some(Instruction::ClearActions),
                apply.map(Instruction::ApplyActions),
                meter,
            ];
            Instructions::new(list.into_iter().flatten().collect()).unwrap()
        })
        .prop_filter("a list does not fit the match", move |done| {
            let all = done.apply_actions().iter().chain(done.write_actions());
            flow_mod::check_consistency(table_id, &known, done).is_ok()
                && !flow_mod::pushes_too_many_tags(&known, all)
        })
}

fn flags() -> impl Strategy<Value = FlowFlags> {
    proptest::sample::subsequence(FlowFlags::NAMES.to_vec(), 0..=5)
        .prop_map(|flags| flags.into_iter().fold(FlowFlags::default(), |all, (flag, _)| all | flag))
}

prop_compose! {
    pub(crate) fn flow_stats()(matcher in a_match(), table_id in 0..=254_u8)(
        instructions in instructions(matcher.clone(), table_id),
        matcher in Just(matcher),
        table_id in Just(table_id),
        duration in (any::<u32>(), 0..1_000_000_000_u32),
        (priority, idle_timeout_s, hard_timeout_s) in any::<(u16, u16, u16)>(),
        flags in flags(),
        (cookie, packet_count, byte_count) in any::<(u64, u64, u64)>(),
    ) -> FlowStats {
        FlowStats {
            table_id,
            duration: Duration::new(duration.0.into(), duration.1),
            priority,
            idle_timeout_s,
            hard_timeout_s,
            flags,
            cookie,
            packet_count,
            byte_count,
            matcher,
            instructions,
        }
    }
}

prop_compose! {
    pub(crate) fn flow_mod()(
        command in select(&[
            FlowCommand::Add, FlowCommand::Modify, FlowCommand::ModifyStrict,
            FlowCommand::Delete, FlowCommand::DeleteStrict,
        ][..]),
        flow in flow_stats(),
        (cookie_mask, buffer_id, out_port, out_group) in any::<(u64, u32, u32, u32)>(),
    ) -> FlowMod {
        FlowMod {
            cookie: flow.cookie,
            cookie_mask,
            table_id: flow.table_id,
            command,
            idle_timeout_s: flow.idle_timeout_s,
            hard_timeout_s: flow.hard_timeout_s,
            priority: flow.priority,
            buffer_id,
            out_port,
            out_group,
            flags: flow.flags,
            matcher: flow.matcher,
            instructions: flow.instructions,
        }
    }
}

fn name(max: usize) -> impl Strategy<Value = String> {
    vec(select("abcxyz019-._ \"\u{e4}".chars().collect::<Vec<_>>()), 0..max / 2)
        .prop_map(String::from_iter)
}

prop_compose! {
    fn port_desc()(
        (port_no, hw_addr, config, state) in any::<(u32, [u8; 6], u32, u32)>(),
        name in name(16),
        (curr, advertised, supported, peer, curr_speed_kbps, max_speed_kbps) in
            any::<(u32, u32, u32, u32, u32, u32)>(),
    ) -> PortDesc {
        PortDesc {
            port_no, hw_addr, name, config, state, curr, advertised, supported, peer,
            curr_speed_kbps, max_speed_kbps,
        }
    }
}

fn port_stats() -> impl Strategy<Value = PortStats> {
    (any::<u32>(), any::<[u64; 12]>(), any::<u32>(), 0..1_000_000_000_u32).prop_map(
        |(port_no, c, seconds, nanoseconds)| PortStats {
            port_no,
            rx_packets: c[0],
            tx_packets: c[1],
            rx_bytes: c[2],
            tx_bytes: c[3],
            rx_dropped: c[4],
            tx_dropped: c[5],
            rx_errors: c[6],
            tx_errors: c[7],
            rx_frame_err: c[8],
            rx_over_err: c[9],
            rx_crc_err: c[10],
            collisions: c[11],
            duration: Duration::new(seconds.into(), nanoseconds),
        },
    )
}

fn table_features() -> impl Strategy<Value = TableFeatures> {
    let property = (any::<u16>(), vec(any::<u8>(), 0..40))
        .prop_map(|(kind, body)| TableProperty { kind, body });
    (any::<(u8, u64, u64, u32, u32)>(), name(32), vec(property, 0..6)).prop_map(
        |((table_id, metadata_match, metadata_write, config, max_entries), name, properties)| {
            TableFeatures {
                table_id,
                name,
                metadata_match,
                metadata_write,
                config,
                max_entries,
                properties,
            }
        },
    )
}

fn flow_request() -> impl Strategy<Value = FlowStatsRequest> {
    (any::<(u8, u32, u32, u64, u64)>(), a_match()).prop_map(
        |((table_id, out_port, out_group, cookie, cookie_mask), matcher)| FlowStatsRequest {
            table_id,
            out_port,
            out_group,
            cookie,
            cookie_mask,
            matcher,
        },
    )
}

fn meter_bands() -> impl Strategy<Value = Vec<MeterBand>> {
    let kind = prop_oneof![
        Just(MeterBandKind::Drop),
        any::<u8>().prop_map(|prec_level| MeterBandKind::DscpRemark { prec_level }),
    ];
    let band = (kind, any::<u32>(), any::<u32>()).prop_map(|(kind, rate, burst_size)| MeterBand {
        kind,
        rate,
        burst_size,
    });
    vec(band, 0..=8)
}

fn meter_config() -> impl Strategy<Value = MeterConfig> {
    (any::<u32>(), 0..16_u16, meter_bands()).prop_map(|(meter_id, flags, bands)| MeterConfig {
        meter_id,
        flags,
        bands,
    })
}

fn duration() -> impl Strategy<Value = Duration> {
    (any::<u32>(), 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s.into(), ns))
}

fn meter_stats() -> impl Strategy<Value = MeterStats> {
    let band = any::<(u64, u64)>()
        .prop_map(|(packet_count, byte_count)| MeterBandStats { packet_count, byte_count });
    (any::<(u32, u32, u64, u64)>(), duration(), vec(band, 0..4)).prop_map(
        |((meter_id, flow_count, packet_in_count, byte_in_count), duration, bands)| MeterStats {
            meter_id,
            flow_count,
            packet_in_count,
            byte_in_count,
            duration,
            bands,
        },
    )
}

fn queue_stats() -> impl Strategy<Value = QueueStats> {
    (any::<(u32, u32, u64, u64, u64)>(), option::of(duration())).prop_map(
        |((port_no, queue_id, tx_bytes, tx_packets, tx_errors), duration)| QueueStats {
            port_no,
            queue_id,
            tx_bytes,
            tx_packets,
            tx_errors,
            duration,
        },
    )
}

fn multipart_request() -> impl Strategy<Value = MultipartRequest> {
    prop_oneof![
        Just(MultipartRequest::Desc),
        flow_request().prop_map(MultipartRequest::Flow),
        flow_request().prop_map(MultipartRequest::Aggregate),
        Just(MultipartRequest::Table),
        any::<u32>().prop_map(|port_no| MultipartRequest::PortStats { port_no }),
        vec(table_features(), 0..3).prop_map(MultipartRequest::TableFeatures),
        Just(MultipartRequest::PortDesc),
        any::<(u32, u32)>()
            .prop_map(|(port_no, queue_id)| MultipartRequest::Queue { port_no, queue_id }),
        any::<u32>().prop_map(|group_id| MultipartRequest::Group { group_id }),
        Just(MultipartRequest::GroupDesc),
        Just(MultipartRequest::GroupFeatures),
        any::<u32>().prop_map(|meter_id| MultipartRequest::Meter { meter_id }),
        any::<u32>().prop_map(|meter_id| MultipartRequest::MeterConfig { meter_id }),
        Just(MultipartRequest::MeterFeatures),
    ]
}

pub(crate) fn multipart_reply() -> impl Strategy<Value = MultipartReply> {
    let desc = (name(256), name(256), name(256), name(32), name(256)).prop_map(
        |(mfr_desc, hw_desc, sw_desc, serial_num, dp_desc)| DescStats {
            mfr_desc,
            hw_desc,
            sw_desc,
            serial_num,
            dp_desc,
        },
    );
    let aggregate = any::<(u64, u64, u32)>().prop_map(|(packet_count, byte_count, flow_count)| {
        AggregateStats { packet_count, byte_count, flow_count }
    });
    let table = any::<(u8, u32, u64, u64)>().prop_map(
        |(table_id, active_count, lookup_count, matched_count)| TableStats {
            table_id,
            active_count,
            lookup_count,
            matched_count,
        },
    );
    prop_oneof![
        desc.prop_map(MultipartReply::Desc),
        vec(flow_stats(), 0..5).prop_map(MultipartReply::Flow),
        aggregate.prop_map(MultipartReply::Aggregate),
        vec(table, 0..5).prop_map(MultipartReply::Table),
        vec(port_stats(), 0..5).prop_map(MultipartReply::PortStats),
        vec(table_features(), 0..5).prop_map(MultipartReply::TableFeatures),
        vec(port_desc(), 0..5).prop_map(MultipartReply::PortDesc),
        vec(queue_stats(), 0..5).prop_map(MultipartReply::Queue),
        vec(any::<u8>(), 0..50).prop_map(MultipartReply::Group),
        vec(any::<u8>(), 0..50).prop_map(MultipartReply::GroupDesc),
        any::<(u32, u32, [u32; 4], [u32; 4])>().prop_map(
            |(types, capabilities, max_groups, actions)| {
                MultipartReply::GroupFeatures(GroupFeatures {
                    types,
                    capabilities,
                    max_groups,
                    actions,
                })
            }
        ),
        vec(meter_stats(), 0..5).prop_map(MultipartReply::Meter),
        vec(meter_config(), 0..5).prop_map(MultipartReply::MeterConfig),
        any::<(u32, u32, u32, u8, u8)>().prop_map(
            |(max_meter, band_types, capabilities, max_bands, max_color)| {
                MultipartReply::MeterFeatures(MeterFeatures {
                    max_meter,
                    band_types,
                    capabilities,
                    max_bands,
                    max_color,
                })
            }
        ),
    ]
}

fn packet_in() -> impl Strategy<Value = PacketIn> {
    (any::<(u32, u16, u8, u8, u64)>(), a_match(), vec(any::<u8>(), 0..100)).prop_map(
        |((buffer_id, total_len, reason, table_id, cookie), matcher, data)| PacketIn {
            buffer_id,
            total_len,
            reason,
            table_id,
            cookie,
            matcher,
            data,
        },
    )
}

fn packet_out() -> impl Strategy<Value = PacketOut> {
    let actions = vec(prop_oneof![4 => action(), 1 => masked_set_field()], 0..8)
        .prop_filter_map("some action is wrong", |actions| Actions::new(actions).ok());
    (any::<(u32, u32)>(), actions, vec(any::<u8>(), 0..100)).prop_map(
        |((buffer_id, in_port), actions, data)| PacketOut { buffer_id, in_port, actions, data },
    )
}

fn flow_removed() -> impl Strategy<Value = FlowRemoved> {
    (flow_stats(), any::<u8>()).prop_map(|(flow, reason)| FlowRemoved {
        cookie: flow.cookie,
        priority: flow.priority,
        reason,
        table_id: flow.table_id,
        duration: flow.duration,
        idle_timeout_s: flow.idle_timeout_s,
        hard_timeout_s: flow.hard_timeout_s,
        packet_count: flow.packet_count,
        byte_count: flow.byte_count,
        matcher: flow.matcher,
    })
}

/// What may be in a bundle.
fn change() -> impl Strategy<Value = Message> {
    let port_mod = any::<(u32, [u8; 6], u32, u32, u32)>().prop_map(
        |(port_no, hw_addr, config, mask, advertise)| PortMod {
            port_no,
            hw_addr,
            config,
            mask,
            advertise,
        },
    );
    let command = select(&[GroupCommand::Add, GroupCommand::Modify, GroupCommand::Delete][..]);
    let group_mod = (command, any::<(u8, u32)>(), vec(any::<u8>(), 0..40)).prop_map(
        |(command, (group_type, group_id), buckets)| GroupMod {
            command,
            group_type,
            group_id,
            buckets,
        },
    );
    prop_oneof![
        flow_mod().prop_map(|flow_mod| Message::FlowMod(Box::new(flow_mod))),
        packet_out().prop_map(|packet| Message::PacketOut(Box::new(packet))),
        port_mod.prop_map(Message::PortMod),
        group_mod.prop_map(|group_mod| Message::GroupMod(Box::new(group_mod))),
    ]
}

fn bundle_message() -> impl Strategy<Value = Message> {
    use BundleCommand as C;
    let command = select(
        &[
            C::OpenRequest,
            C::OpenReply,
            C::CloseRequest,
            C::CloseReply,
            C::CommitRequest,
            C::CommitReply,
            C::DiscardRequest,
            C::DiscardReply,
        ][..],
    );
    prop_oneof![
        (any::<u32>(), command, 0..4_u16).prop_map(|(bundle_id, command, flags)| {
            Message::BundleControl(BundleControl { bundle_id, command, flags })
        }),
        (any::<u32>(), 0..4_u16, change()).prop_map(|(bundle_id, flags, message)| {
            Message::BundleAdd(BundleAdd { bundle_id, flags, message: Box::new(message) })
        }),
    ]
}

fn meter_mod() -> impl Strategy<Value = MeterMod> {
    let command = select(&[MeterCommand::Add, MeterCommand::Modify, MeterCommand::Delete][..]);
    (command, meter_config()).prop_map(|(command, meter)| MeterMod {
        command,
        flags: meter.flags,
        meter_id: meter.meter_id,
        bands: meter.bands,
    })
}

/// Messages about one controller's connection.
fn controller_message() -> impl Strategy<Value = Message> {
    let role =
        || any::<(u32, u64)>().prop_map(|(role, generation_id)| Role { role, generation_id });
    let masks = || {
        any::<(u32, u32, u32)>().prop_map(|(packet_in, port_status, flow_removed)| AsyncMasks {
            packet_in,
            port_status,
            flow_removed,
        })
    };
    let config =
        move || (masks(), masks()).prop_map(|(master, slave)| AsyncConfig { master, slave });
    prop_oneof![
        role().prop_map(Message::RoleRequest),
        role().prop_map(Message::RoleReply),
        Just(Message::GetAsyncRequest),
        config().prop_map(Message::GetAsyncReply),
        config().prop_map(Message::SetAsync),
        packet_in().prop_map(|packet| Message::PacketIn(Box::new(packet))),
        flow_removed().prop_map(|flow| Message::FlowRemoved(Box::new(flow))),
        (any::<u8>(), port_desc())
            .prop_map(|(reason, port)| Message::PortStatus(Box::new(PortStatus { reason, port }))),
    ]
}

/// Any message.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    let data = || vec(any::<u8>(), 0..100);
    let config = || {
        any::<(u16, u16)>().prop_map(|(flags, miss_send_len)| SwitchConfig { flags, miss_send_len })
    };
    let features = any::<(u64, u32, u8, u8, u32)>().prop_map(
        |(datapath_id, n_buffers, n_tables, auxiliary_id, capabilities)| Features {
            datapath_id,
            n_buffers,
            n_tables,
            auxiliary_id,
            capabilities,
        },
    );
    prop_oneof![
        any::<Option<u32>>().prop_map(|versions| Message::Hello(Hello { versions })),
        (any::<(u16, u16)>(), data()).prop_map(|((error_type, code), data)| {
            Message::Error(ErrorMessage { code: ErrorCode { error_type, code }, data })
        }),
        data().prop_map(Message::EchoRequest),
        data().prop_map(Message::EchoReply),
        Just(Message::FeaturesRequest),
        features.prop_map(Message::FeaturesReply),
        Just(Message::GetConfigRequest),
        config().prop_map(Message::GetConfigReply),
        config().prop_map(Message::SetConfig),
        change(),
        bundle_message(),
        meter_mod().prop_map(|meter_mod| Message::MeterMod(Box::new(meter_mod))),
        controller_message(),
        multipart_request().prop_map(Message::MultipartRequest),
        (multipart_reply(), any::<bool>())
            .prop_map(|(reply, more)| Message::MultipartReply { reply, more }),
        Just(Message::BarrierRequest),
        Just(Message::BarrierReply),
        (select(&[17_u8, 22, 23, 30, 255][..]), data())
            .prop_map(|(message_type, body)| Message::Unknown { message_type, body }),
    ]
}

/// A match says so itself that it fulfils all prerequisites.
pub(crate) fn has_all_prerequisites(matcher: &Match) -> bool {
    let met = |p: Prerequisite| p.satisfied_by(matcher);
    matcher.iter().all(|field| met(field.field().info().prerequisite))
}
