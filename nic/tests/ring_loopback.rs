//! A device that returns what it is given (`net_ring`): frames come back whole, and no mbuf is lost.
#![cfg(feature = "dpdk")]
#![allow(missing_docs)]

use tollgate_frame::{Burst, Segment, Sink};
use tollgate_nic::{Eal, EthDev, EthDevError};

#[test]
fn frames_come_back_whole_and_no_mbuf_is_lost() {
    let arguments = [
        "--no-huge",
        "-m",
        "128",
        "--no-pci",
        "--no-telemetry",
        "--log-level=1",
        "--vdev=net_ring0",
    ];
    let eal = Eal::init(&arguments).unwrap();
    assert!(matches!(Eal::init(&arguments), Err(EthDevError::EalOnce)));
    assert!(EthDev::open(&eal, "net_ring9").unwrap_err().to_string().contains("get_port_by_name"));

    let mut device = EthDev::open(&eal, "net_ring0").unwrap();
    let at_rest = device.mbufs_in_use();
    let mut burst = Burst::new();
    let mut seen = 0;
    for round in 0..1000_usize {
        let frame: Vec<u8> = (0..60 + round).map(|at| (at * 7 + round) as u8).collect();
        let (header, payload) = frame.split_at(40);
        device.deliver(header, &[Segment::from_slice(payload)]).unwrap();
        assert_eq!(device.publish(), 0);
        let (fetched, dropped) = device.fetch(&mut burst, 32);
        assert_eq!((fetched, dropped), (1, 0));
        let packet = burst.packet(0).unwrap();
        let mut back = packet.header.bytes().to_vec();
        for segment in burst.payload(0) {
            let mut bytes = vec![0; segment.len()];
            segment.copy_to(&mut bytes);
            back.extend(bytes);
        }
        assert_eq!(back, frame);
        seen += 1;
        burst.clear();
        device.complete();
    }
    assert_eq!(seen, 1000);
    assert_eq!(device.mbufs_in_use(), at_rest);
}
