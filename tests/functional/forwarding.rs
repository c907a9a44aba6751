//! A frame comes out where the tables say, unchanged but for what the actions say.
//!
//! Every delivery is made twice: the first frame of a flow goes through the slow path, the second
//! through the caches, and both must meet the same fate.

use anyhow::ensure;
use etherparse::{PacketBuilder, SlicedPacket, VlanId};
use tollgate_guest::port::PortConfig;

use proving_ground::lab::{Arrivals, Lab, count, mac, udp};

/// Sends `frame` into `from` twice and demands that exactly `expected` comes out each time.
fn demand(
    lab: &mut Lab,
    from: &str,
    frame: &[u8],
    expected: &[(&str, &[u8])],
) -> anyhow::Result<()> {
    let mut wanted = Arrivals::new();
    for (port, frame) in expected {
        wanted.entry((*port).to_owned()).or_default().push(frame.to_vec());
    }
    for path in ["slow path", "cached path"] {
        let got = lab.deliver(from, frame)?;
        ensure!(got == wanted, "{path}: sent {frame:02x?}\ngot {got:02x?}\nnot {wanted:02x?}");
    }
    Ok(())
}

#[test]
fn frames_of_every_size_come_out_unchanged() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    lab.switch.add_flows(&["in_port=vm1,actions=output:vm2"])?;
    // Around the minimum, the copied header's end, a receive buffer's size, and a full frame.
    for payload in [18, 19, 100, 149, 150, 151, 200, 700, 1472] {
        let frame = udp(1, 2, 7, payload);
        demand(&mut lab, "vm1", &frame, &[("vm2", &frame)])?;
    }
    lab.switch.stop()
}

#[test]
fn a_frame_in_many_segments_arrives_whole() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1"])?;
    // A receiver with small buffers: one frame spans several of them.
    lab.attach("vm2", |config| PortConfig { rx_buffer_bytes: 256, ..config })?;
    lab.switch.add_flows(&["in_port=vm1,actions=output:vm2"])?;
    for segments in [1, 2, 3, 7, 16] {
        let frame = udp(1, 2, 7, 1400);
        let sent = lab.port("vm1")?.send(&frame, segments);
        ensure!(sent, "no room for {segments} segments");
        lab.settle()?;
        let got = lab.collect()?;
        ensure!(got.get("vm2") == Some(&vec![frame]), "{segments} segments: {got:02x?}");
    }
    lab.switch.stop()
}

#[test]
fn a_flood_reaches_every_port_but_its_own() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2", "vm3", "vm4"])?;
    lab.switch.add_flows(&["actions=flood"])?;
    let frame = udp(1, 2, 7, 40);
    let all = [("vm2", &frame[..]), ("vm3", &frame), ("vm4", &frame)];
    demand(&mut lab, "vm1", &frame, &all)?;
    let others = [("vm1", &frame[..]), ("vm3", &frame), ("vm4", &frame)];
    demand(&mut lab, "vm2", &frame, &others)?;
    lab.switch.stop()
}

#[test]
fn normal_learns_where_a_station_is() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2", "vm3"])?;
    lab.switch.add_flows(&["actions=NORMAL"])?;
    let there = udp(1, 2, 7, 40);
    let back = udp(2, 1, 7, 40);
    let flooded = lab.deliver("vm1", &there)?;
    ensure!(flooded.len() == 2, "a station not seen yet is looked for everywhere: {flooded:02x?}");
    demand(&mut lab, "vm2", &back, &[("vm1", &back)])?;
    demand(&mut lab, "vm1", &there, &[("vm2", &there)])?;
    // The station moves: what is sent to it follows, at the latest once it has spoken there.
    let moved = udp(2, 1, 7, 40);
    demand(&mut lab, "vm3", &moved, &[("vm1", &moved)])?;
    demand(&mut lab, "vm1", &there, &[("vm3", &there)])?;
    lab.switch.stop()
}

#[test]
fn the_highest_priority_that_matches_wins() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2", "vm3"])?;
    lab.switch.add_flows(&[
        "priority=1,in_port=vm1,actions=output:vm2",
        "priority=10,udp,in_port=vm1,udp_dst=53,actions=output:vm3",
        "priority=20,udp,in_port=vm1,udp_dst=53,nw_dst=10.0.0.9,actions=drop",
    ])?;
    let other = udp(1, 2, 80, 40);
    demand(&mut lab, "vm1", &other, &[("vm2", &other)])?;
    let dns = udp(1, 2, 53, 40);
    demand(&mut lab, "vm1", &dns, &[("vm3", &dns)])?;
    demand(&mut lab, "vm1", &udp(1, 9, 53, 40), &[])?;
    let drops = &lab.counters("vm1")?["drops"];
    ensure!(drops["rule_drop"] == 2, "both frames were dropped by a rule: {drops}");
    lab.switch.stop()
}

#[test]
fn a_change_of_flows_holds_for_frames_that_were_cached() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2", "vm3"])?;
    lab.switch.add_flows(&["priority=1,in_port=vm1,actions=output:vm2"])?;
    let frame = udp(1, 2, 80, 40);
    demand(&mut lab, "vm1", &frame, &[("vm2", &frame)])?;
    // ofctl returns after the barrier's reply: from then on no frame may go the old way.
    lab.switch.add_flows(&["priority=2,udp,udp_dst=80,actions=output:vm3"])?;
    demand(&mut lab, "vm1", &frame, &[("vm3", &frame)])?;
    lab.switch.ofctl(&["del-flows", "br0"])?;
    demand(&mut lab, "vm1", &frame, &[])?;
    let drops = &lab.counters("vm1")?["drops"];
    ensure!(drops["no_rule"] == 2, "no rule is left for either frame: {drops}");
    lab.switch.stop()
}

#[test]
fn set_field_rewrites_addresses_and_ports_with_right_checksums() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    lab.switch.add_flows(&["udp,in_port=vm1,actions=set_field:02:00:00:00:00:07->eth_dst,\
         set_field:10.0.0.7->ip_dst,set_field:10.0.0.8->ip_src,set_field:4000->udp_dst,\
         output:vm2"])?;
    let sent = udp(1, 2, 80, 301);
    // The wanted frame is built, not edited: its checksums are computed from nothing.
    let payload = &sent[14 + 20 + 8..];
    let builder = PacketBuilder::ethernet2(mac(1), mac(7))
        .ipv4([10, 0, 0, 8], [10, 0, 0, 7], 64)
        .udp(1000, 4000);
    let mut wanted = Vec::new();
    builder.write(&mut wanted, payload)?;
    demand(&mut lab, "vm1", &sent, &[("vm2", &wanted)])?;
    lab.switch.stop()
}

#[test]
fn a_header_changed_between_two_outputs_differs_at_each() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2", "vm3", "vm4"])?;
    lab.switch.add_flows(&["in_port=vm1,actions=output:vm2,\
         set_field:02:00:00:00:00:33->eth_dst,output:vm3,\
         set_field:02:00:00:00:00:44->eth_dst,output:vm4"])?;
    let frame = udp(1, 2, 7, 500);
    let with = |last: u8| [&mac(last)[..], &frame[6..]].concat();
    let (third, fourth) = (with(0x33), with(0x44));
    demand(&mut lab, "vm1", &frame, &[("vm2", &frame), ("vm3", &third), ("vm4", &fourth)])?;
    let clones = count(&lab.counters("vm1")?, "clones");
    ensure!(clones == 4, "two copies beyond the frame itself, twice: {clones}");
    lab.switch.stop()
}

#[test]
fn vlan_tags_are_pushed_and_popped() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2", "vm3"])?;
    lab.switch.add_flows(&[
        "in_port=vm1,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:vm2",
        "in_port=vm2,dl_vlan=7,actions=pop_vlan,output:vm1",
        "priority=1,in_port=vm2,actions=output:vm3",
    ])?;
    let plain = udp(1, 2, 7, 300);
    let mut tagged = plain.clone();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
    let vlan = SlicedPacket::from_ethernet(&tagged)?.vlan_ids();
    ensure!(vlan.first() == Some(&VlanId::try_new(7)?), "the test's own frame has tag 7: {vlan:?}");
    demand(&mut lab, "vm1", &plain, &[("vm2", &tagged)])?;
    demand(&mut lab, "vm2", &tagged, &[("vm1", &plain)])?;
    tagged[15] = 8;
    demand(&mut lab, "vm2", &tagged, &[("vm3", &tagged)])?;
    lab.switch.stop()
}

#[test]
fn goto_table_goes_on_there() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2", "vm3"])?;
    lab.switch.add_flows(&[
        "table=0,in_port=vm1,actions=set_field:02:00:00:00:00:09->eth_dst,goto_table:1",
        "table=1,priority=1,actions=output:vm2",
        "table=1,priority=2,dl_dst=02:00:00:00:00:02,actions=output:vm3",
    ])?;
    // Table 1 sees the address that table 0 wrote, not the one that came.
    let frame = udp(1, 2, 7, 60);
    let changed = [&mac(9)[..], &frame[6..]].concat();
    demand(&mut lab, "vm1", &frame, &[("vm2", &changed)])?;
    lab.switch.stop()
}

#[test]
fn a_frame_never_goes_back_where_it_came_from() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    lab.switch.add_flows(&["in_port=vm1,actions=output:vm1,output:vm2"])?;
    let frame = udp(1, 2, 7, 60);
    demand(&mut lab, "vm1", &frame, &[("vm2", &frame)])?;
    lab.switch.ofctl(&["del-flows", "br0"])?;
    // The reserved port is the way to ask for it (OpenFlow 1.3.5, A.2.1).
    lab.switch.add_flows(&["in_port=vm1,actions=in_port"])?;
    demand(&mut lab, "vm1", &frame, &[("vm1", &frame)])?;
    lab.switch.stop()
}
