//! Who pays for what enters at an uplink.

use tollgate_packet::{FlowKey, MacAddr};
use tollgate_policy::TenantIndex;

use super::super::bridge::PortInfo;
use super::super::trace::TraceRequest;
use super::sim::{Sim, index_of};

#[test]
fn packets_from_an_uplink_are_paid_for_by_the_tenant_that_they_go_to() {
    const UPLINK: u32 = 4;
    let sim = Sim::new(3);
    let port = PortInfo {
        name: "up".to_owned(),
        ofport: UPLINK,
        index: index_of(UPLINK),
        tenant: TenantIndex(9),
        uplink: true,
        config: 0,
    };
    sim.core.port_attach(sim.bridge, port).unwrap();
    sim.add("dl_dst=02:00:00:00:00:01,actions=1");
    sim.add("dl_dst=02:00:00:00:00:02,actions=2,2");
    sim.add("dl_dst=02:00:00:00:00:03,actions=1,2");
    sim.add("dl_dst=02:00:00:00:00:04,actions=drop");
    let owner = |from: u32, last: u8| {
        let eth_dst = MacAddr([2, 0, 0, 0, 0, last]);
        let key = FlowKey { eth_dst, in_port: from, ..FlowKey::default() };
        sim.core.answer(index_of(from), &key, 60).verdict.megaflow.owner.0
    };
    let owners: Vec<u16> = (1..=4).map(|last| owner(UPLINK, last)).collect();
    assert_eq!(owners, [1, 2, 9, 9], "several tenants and none are the uplink's own");
    assert_eq!(owner(3, 1), 3, "a guest pays for what it sends");

    // What operators are told is who pays, not whose port the packets enter by.
    let traced = |from: u32, last: u8| {
        let flow = format!("in_port=p{from},dl_dst=02:00:00:00:00:0{last}");
        let flow = flow.replace("p4", "up");
        sim.core.trace(sim.bridge, &TraceRequest::Flow(flow)).unwrap().owner.0
    };
    let traced_owners: Vec<u16> = (1..=4).map(|last| traced(UPLINK, last)).collect();
    assert_eq!((traced_owners, traced(3, 1)), (owners, 3));
    let (listed, _) = sim.core.megaflows(Some(sim.bridge), 10);
    let mut listed: Vec<_> = listed.iter().map(|m| (m.port.as_str(), m.owner.0)).collect();
    listed.sort_unstable();
    assert_eq!(listed, [("p3", 3), ("up", 1), ("up", 2), ("up", 9), ("up", 9)]);
}
