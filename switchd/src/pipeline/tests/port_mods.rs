//! PORT_MOD: ports that receive nothing, send nothing, or neither.

use tollgate_frame::DropReason;
use tollgate_openflow::ErrorCode;
use tollgate_openflow::port::{OFPPC_NO_FWD, OFPPC_NO_RECV, OFPPC_PORT_DOWN};
use tollgate_openflow::port_mod::PortMod;

use super::frames::Frame;
use super::sim::{NOWHERE, Sim, key_of};
use crate::pipeline::events::{Event, PortReason};

fn port_mod(port_no: u32, config: u32, mask: u32) -> PortMod {
    PortMod { port_no, hw_addr: [0; 6], config, mask, advertise: 0 }
}

fn configure(sim: &Sim, port_no: u32, config: u32) {
    sim.core.port_mod(sim.bridge, &port_mod(port_no, config, 0x65)).unwrap();
    sim.core.tell_pmds();
}

#[test]
fn a_ports_configuration_takes_effect_on_cached_decisions() {
    let mut sim = Sim::new(3);
    sim.add("priority=1,actions=ALL");
    sim.add("priority=2,in_port=3,actions=output:1,output:2");
    let frame = Frame::udp(1, 2).build();
    let reached = |sim: &mut Sim| (sim.ports_reached(1, &frame), sim.ports_reached(3, &frame));
    assert_eq!(reached(&mut sim), (vec![2, 3], vec![1, 2]));
    configure(&sim, 2, OFPPC_NO_FWD);
    assert_eq!(reached(&mut sim), (vec![3], vec![1]));
    assert_eq!(sim.ports_reached(2, &frame), [1, 3]);
    configure(&sim, 2, OFPPC_NO_RECV);
    assert_eq!(reached(&mut sim), (vec![2, 3], vec![1, 2]));
    assert_eq!(sim.ports_reached(2, &frame), NOWHERE);
    let walked = sim.fresh_walk(2, &key_of(2, &frame));
    assert_eq!((walked.drop_reason, walked.visits.len()), (DropReason::RxDisabled, 0));
    configure(&sim, 2, OFPPC_PORT_DOWN);
    assert_eq!(reached(&mut sim), (vec![3], vec![1]));
    assert_eq!(sim.ports_reached(2, &frame), NOWHERE);
    configure(&sim, 2, 0);
    assert_eq!(reached(&mut sim), (vec![2, 3], vec![1, 2]));
    assert_eq!(sim.ports_reached(2, &frame), [1, 3]);
}

#[test]
fn a_change_is_told_and_nothing_changed_is_not() {
    let sim = Sim::new(2);
    sim.events();
    configure(&sim, 2, OFPPC_NO_FWD);
    configure(&sim, 2, OFPPC_NO_FWD);
    let [Event::PortStatus(status)] = &sim.events()[..] else { panic!("one event") };
    assert_eq!(status.reason, PortReason::Modify);
    assert_eq!((status.port.ofport, status.port.config), (2, OFPPC_NO_FWD));
    // Only the bits of the mask change.
    let request = port_mod(2, OFPPC_NO_RECV, OFPPC_NO_RECV | OFPPC_PORT_DOWN);
    sim.core.port_mod(sim.bridge, &request).unwrap();
    let [Event::PortStatus(status)] = &sim.events()[..] else { panic!("one event") };
    assert_eq!(status.port.config, OFPPC_NO_FWD | OFPPC_NO_RECV);
}

#[test]
fn what_a_port_has_not_is_refused() {
    let sim = Sim::new(2);
    let refused = |request: PortMod| sim.core.port_mod(sim.bridge, &request).unwrap_err().code;
    assert_eq!(refused(port_mod(9, 0, 1)), ErrorCode::OFPPMFC_BAD_PORT);
    assert_eq!(refused(port_mod(1, 0, 2)), ErrorCode::OFPPMFC_BAD_CONFIG);
    let request = PortMod { advertise: 1, ..port_mod(1, 0, 1) };
    assert_eq!(refused(request), ErrorCode::OFPPMFC_BAD_ADVERTISE);
}
