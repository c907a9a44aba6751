//! The vhost-user protocol as a frontend sees it, right and wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::os::fd::AsRawFd;

use tollgate_frame::Burst;
use tollgate_vhost::mock::{Driver, FROM_GUEST, Layout, MockFrontend, Ram, TO_GUEST, frame};
use tollgate_vhost::{Features, FetchStats, RingFault, SessionEnd};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::FrontendReq;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};

/// Wants everything.
const ALL: u64 = u64::MAX;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const FROM: usize = FROM_GUEST as usize;
const TO: usize = TO_GUEST as usize;

/// Version 1, no reply wanted.
const PLAIN: u32 = 1;

fn alone() -> (Ram, Driver) {
    Driver::alone(64)
}

/// A negotiated session that has the memory, and two rings in it.
fn with_memory() -> (MockFrontend, Driver, Driver) {
    let ram = Ram::new(&[(0x10000, 1 << 20)]);
    let layout = Layout::packed_at(0x10000, 64, 2048);
    let to = Driver::new(&ram, layout, 64, 0);
    let from = Driver::new(&ram, Layout::packed_at(layout.end(64), 64, 2048), 64, 0);
    let mock = MockFrontend::negotiated(1, ALL);
    mock.share(&ram).unwrap();
    (mock, to, from)
}

/// The reason for which a session ended.
fn refusal(mock: MockFrontend) -> String {
    let (end, status, host) = mock.end_of_session();
    assert_eq!(host.started(), [] as [u16; 0], "all rings are back");
    assert!(!status.is_connected());
    match end {
        SessionEnd::Refused(reason) => {
            assert_eq!(status.last_error().as_ref(), Some(&reason));
            assert_eq!(status.session_errors(), 1);
            reason
        }
        other => panic!("ended as {other:?}"),
    }
}

fn fetch(mock: &MockFrontend) -> Vec<usize> {
    mock.host.with_ring(FROM_GUEST, |ring| {
        let mut burst = Burst::new();
        ring.has_work();
        ring.fetch(&mut burst, 32, &mut FetchStats::new());
        ring.complete();
        burst.packets().iter().map(|packet| packet.frame_len as usize).collect()
    })
}

#[test]
fn negotiation_offers_what_is_handled_and_nothing_else() {
    let mut mock = MockFrontend::connect(2);
    let offered = Features(mock.frontend.get_features().unwrap());
    let names = [
        "mrg_rxbuf",
        "ctrl_vq",
        "mq",
        "any_layout",
        "indirect_desc",
        "event_idx",
        "protocol_features",
        "version_1",
        "in_order",
    ];
    assert_eq!(offered.names(), names);
    mock.frontend.set_features(offered.0).unwrap();
    let protocol = mock.frontend.get_protocol_features().unwrap();
    // MQ, REPLY_ACK, RESET_DEVICE, CONFIGURE_MEM_SLOTS.
    assert_eq!(protocol.bits(), 1 | 1 << 3 | 1 << 13 | 1 << 15);
    mock.frontend.set_protocol_features(protocol).unwrap();
    assert_eq!(mock.frontend.get_queue_num().unwrap(), 2);
    assert_eq!(mock.frontend.get_max_mem_slots().unwrap(), 32);
    assert_eq!(mock.status.features(), offered);
    assert!(mock.status.is_connected());
    let (end, status, _) = mock.disconnect();
    assert!(matches!(end, SessionEnd::Disconnected));
    assert_eq!((status.is_connected(), status.last_error()), (false, None));
}

#[test]
fn a_ring_starts_when_everything_is_there_and_carries_frames() {
    let (mut mock, mut to, mut from) = with_memory();
    assert_eq!(mock.status.memory_regions(), 1);
    mock.set_up(FROM, &from).unwrap();
    assert_eq!(mock.host.started(), [] as [u16; 0], "not enabled yet");
    mock.frontend.set_vring_enable(FROM, true).unwrap();
    mock.start(TO, &to).unwrap();
    assert_eq!(mock.host.take_events(), ["start 1", "start 0"]);
    assert_eq!(mock.status.rings_started(), [0, 1]);

    from.transmit(12, &frame(77, 1));
    assert_eq!(fetch(&mock), [77]);
    to.post(1024);
    mock.host.with_ring(TO_GUEST, |ring| {
        ring.deliver(&frame(99, 2), &[]).unwrap();
        ring.publish();
        assert!(ring.call_fd().is_some());
    });
    assert_eq!(to.receive(12), [frame(99, 2)]);
}

#[test]
fn a_ring_starts_whatever_comes_last() {
    let steps = ["num", "addr", "kick", "enable"];
    for last in steps {
        let (mut mock, _, from) = with_memory();
        let order = steps.into_iter().filter(|step| *step != last).chain([last]);
        for step in order {
            assert_eq!(mock.host.started(), [] as [u16; 0], "before {step}");
            match step {
                "num" => mock.frontend.set_vring_num(FROM, 64).unwrap(),
                "addr" => {
                    let addresses = MockFrontend::addresses(&from);
                    mock.frontend.set_vring_addr(FROM, &addresses).unwrap();
                }
                "kick" => mock.frontend.set_vring_kick(FROM, mock.kick(FROM)).unwrap(),
                _ => mock.frontend.set_vring_enable(FROM, true).unwrap(),
            }
        }
        if last == "num" {
            // A size does not start a ring: it must be known before the kick.
            mock.frontend.set_vring_kick(FROM, mock.kick(FROM)).unwrap();
        }
        assert_eq!(mock.host.started(), [FROM_GUEST], "{last} last");
    }
}

#[test]
fn without_protocol_features_rings_are_enabled_from_the_start() {
    let (ram, from) = alone();
    let mock = MockFrontend::negotiated(1, ALL & !PROTOCOL_FEATURES);
    mock.share(&ram).unwrap();
    mock.set_up(FROM, &from).unwrap();
    // No replies without the feature: the next answer comes after the work.
    mock.frontend.get_features().unwrap();
    assert_eq!(mock.host.started(), [FROM_GUEST]);
}

#[test]
fn stopping_is_over_before_the_reply() {
    let (mut mock, _, mut from) = with_memory();
    mock.start(FROM, &from).unwrap();
    for _ in 0..5 {
        from.transmit(12, &frame(60, 0));
    }
    assert_eq!(fetch(&mock).len(), 5);
    mock.frontend.set_vring_enable(FROM, false).unwrap();
    assert_eq!(mock.host.started(), [] as [u16; 0]);
    from.transmit(12, &frame(61, 0));
    mock.frontend.set_vring_enable(FROM, true).unwrap();
    assert_eq!(fetch(&mock), [61], "it goes on where it was");
    assert_eq!(mock.frontend.get_vring_base(FROM).unwrap(), 6);
    assert_eq!(mock.host.started(), [] as [u16; 0]);
    assert_eq!(mock.host.take_events(), ["start 1", "stop 1", "start 1", "stop 1"]);
    // Only a new kick starts it again.
    mock.frontend.set_vring_enable(FROM, true).unwrap();
    assert_eq!(mock.host.started(), [] as [u16; 0]);
    mock.frontend.set_vring_kick(FROM, mock.kick(FROM)).unwrap();
    from.transmit(12, &frame(62, 0));
    assert_eq!(fetch(&mock), [62]);
}

#[test]
fn vu_15_memory_changes_while_rings_run() {
    let (mut mock, _, mut from) = with_memory();
    mock.start(FROM, &from).unwrap();
    mock.host.take_events();
    mock.share(from.ram()).unwrap();
    assert_eq!(mock.host.take_events(), ["stop 1", "start 1"]);
    from.transmit(12, &frame(60, 0));
    assert_eq!(fetch(&mock), [60], "in the new mapping");
    // Addresses and call fd likewise.
    mock.frontend.set_vring_addr(FROM, &MockFrontend::addresses(&from)).unwrap();
    mock.frontend.set_vring_call(FROM, mock.call(FROM)).unwrap();
    assert_eq!(mock.host.take_events(), ["stop 1", "start 1", "stop 1", "start 1"]);
    from.transmit(12, &frame(60, 0));
    assert_eq!(fetch(&mock), [60]);
    // Other memory: the ring has nowhere to be, and waits.
    let (other, _) = alone();
    mock.share(&other).unwrap();
    assert_eq!(mock.host.started(), [] as [u16; 0]);
    mock.share(from.ram()).unwrap();
    from.transmit(12, &frame(61, 0));
    assert_eq!(fetch(&mock), [61]);
}

fn region(ram: &Ram, index: usize) -> VhostUserMemoryRegionInfo {
    let info = ram.regions()[index];
    VhostUserMemoryRegionInfo {
        guest_phys_addr: info.guest_address,
        memory_size: info.size,
        userspace_addr: info.user_address,
        mmap_offset: info.file_offset,
        // Leaked on purpose: the message needs a raw fd, and this process ends soon.
        mmap_handle: std::os::fd::IntoRawFd::into_raw_fd(ram.files().swap_remove(index)),
    }
}

#[test]
fn vu_14_memory_slots_are_added_and_removed_while_rings_run() {
    let (mut mock, _, mut from) = with_memory();
    mock.start(FROM, &from).unwrap();
    let more = Ram::new(&[(0x1000_0000, 0x10000)]);
    mock.frontend.add_mem_region(&region(&more, 0)).unwrap();
    assert_eq!(mock.status.memory_regions(), 2);
    from.transmit(12, &frame(60, 0));
    assert_eq!(fetch(&mock), [60]);
    mock.frontend.remove_mem_region(&region(&more, 0)).unwrap();
    assert_eq!(mock.status.memory_regions(), 1);
    // The ring's own region goes and comes back.
    mock.frontend.remove_mem_region(&region(from.ram(), 0)).unwrap();
    assert_eq!(mock.host.started(), [] as [u16; 0]);
    mock.frontend.add_mem_region(&region(from.ram(), 0)).unwrap();
    from.transmit(12, &frame(61, 0));
    assert_eq!(fetch(&mock), [61]);
    // Twice the same, or one that is not there.
    assert!(mock.frontend.add_mem_region(&region(from.ram(), 0)).is_err());
    assert!(refusal(mock).contains("overlap in guest addresses"));
    let (mock, _to, _from) = with_memory();
    let mut frontend = mock.frontend.clone();
    assert!(frontend.remove_mem_region(&region(&more, 0)).is_err());
    assert_eq!(refusal(mock), "no such memory region to remove");
}

#[test]
fn vu_14_more_slots_than_there_are() {
    // Kept, so that its addresses stay taken.
    let (mock, _to, _from) = with_memory();
    let mut frontend = mock.frontend.clone();
    let rams: Vec<_> = (1..=32).map(|at| Ram::new(&[(at << 32, 0x1000)])).collect();
    for ram in &rams[..31] {
        frontend.add_mem_region(&region(ram, 0)).unwrap();
    }
    assert!(frontend.add_mem_region(&region(&rams[31], 0)).is_err());
    assert!(refusal(mock).starts_with("33 memory regions"));
}

#[test]
fn quarantine_lasts_until_the_ring_is_set_up_anew() {
    let (mut mock, _, mut from) = with_memory();
    mock.start(FROM, &from).unwrap();
    from.offer(999);
    assert_eq!(fetch(&mock), [] as [usize; 0]);
    let fault = Some(RingFault::HeadOutOfRange);
    assert_eq!(mock.status.fault(FROM_GUEST), fault);
    mock.frontend.set_vring_enable(FROM, false).unwrap();
    mock.frontend.set_vring_enable(FROM, true).unwrap();
    mock.share(from.ram()).unwrap();
    assert_eq!(mock.host.with_ring(FROM_GUEST, |ring| ring.fault()), fault);
    assert_eq!((mock.status.fault(FROM_GUEST), mock.status.quarantines()), (fault, 1));
    mock.frontend.get_vring_base(FROM).unwrap();
    let mut from = Driver::new(from.ram(), from.layout(), 64, 0);
    mock.start(FROM, &from).unwrap();
    from.transmit(12, &frame(60, 0));
    assert_eq!(fetch(&mock), [60]);
    assert_eq!(mock.status.fault(FROM_GUEST), None);
}

#[test]
fn a_reset_takes_every_ring_back() {
    let (mut mock, to, from) = with_memory();
    mock.start(TO, &to).unwrap();
    mock.start(FROM, &from).unwrap();
    mock.frontend.reset_device().unwrap();
    assert_eq!(mock.host.started(), [] as [u16; 0]);
    assert_eq!(mock.status.features(), Features(0));
    // And all can begin again, in the same memory.
    mock.frontend.set_features(Features::offered(1).0).unwrap();
    mock.start(FROM, &from).unwrap();
    assert_eq!(mock.host.started(), [FROM_GUEST]);
    mock.frontend.reset_owner().unwrap();
    assert_eq!(mock.host.started(), [] as [u16; 0]);
}

#[test]
fn vu_18_a_disconnect_takes_every_ring_back() {
    let (mut mock, to, from) = with_memory();
    mock.start(TO, &to).unwrap();
    mock.start(FROM, &from).unwrap();
    let (end, status, host) = mock.disconnect();
    assert!(matches!(end, SessionEnd::Disconnected));
    assert_eq!((host.started(), status.rings_started()), (vec![], vec![]));
    assert_eq!(status.memory_regions(), 0);
}

#[test]
fn vu_04_kick_and_call_without_fd_are_legal() {
    let (mut mock, _, from) = with_memory();
    mock.frontend.set_vring_num(FROM, 64).unwrap();
    mock.frontend.set_vring_addr(FROM, &MockFrontend::addresses(&from)).unwrap();
    let polled = (u64::from(FROM_GUEST) | 0x100).to_le_bytes();
    mock.send_raw(FrontendReq::SET_VRING_CALL.into(), PLAIN, &polled, &[]);
    mock.send_raw(FrontendReq::SET_VRING_ERR.into(), PLAIN, &polled, &[]);
    mock.send_raw(FrontendReq::SET_VRING_KICK.into(), PLAIN, &polled, &[]);
    mock.frontend.set_vring_enable(FROM, true).unwrap();
    mock.host.with_ring(FROM_GUEST, |ring| {
        assert!(ring.call_fd().is_none() && ring.kick_fd().is_none());
    });
}

#[test]
fn vu_03_missing_and_unexpected_fds() {
    let kick = u64::from(FROM_GUEST).to_le_bytes();
    let polled = (u64::from(FROM_GUEST) | 0x100).to_le_bytes();
    for request in
        [FrontendReq::SET_VRING_CALL, FrontendReq::SET_VRING_KICK, FrontendReq::SET_VRING_ERR]
    {
        let (mock, ..) = with_memory();
        mock.send_raw(request.into(), PLAIN, &kick, &[]);
        assert!(refusal(mock).contains("invalid message"), "{request:?} without fd");
        let (mock, ..) = with_memory();
        let fd = mock.call(0).as_raw_fd();
        mock.send_raw(request.into(), PLAIN, &polled, &[fd]);
        assert!(refusal(mock).contains("invalid message"), "{request:?} with fd and NOFD");
        let (mock, ..) = with_memory();
        let fd = mock.call(0).as_raw_fd();
        mock.send_raw(request.into(), PLAIN, &kick, &[fd, fd]);
        assert!(refusal(mock).contains("invalid message"), "{request:?} with two fds");
    }
    // A memory table of two regions with one file.
    let (mock, ..) = with_memory();
    let fd = mock.call(0).as_raw_fd();
    let table: Vec<u8> = [2, 0x1000, 0x1000, 0x1000, 0, 0x9000, 0x1000, 0x9000, 0]
        .iter()
        .flat_map(|word: &u64| word.to_le_bytes())
        .collect();
    mock.send_raw(FrontendReq::SET_MEM_TABLE.into(), PLAIN, &table, &[fd]);
    assert!(refusal(mock).contains("invalid message"));
}

#[test]
fn tp_02_only_eventfds_are_taken_as_kick_and_call() {
    let (reader, writer) = std::io::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let (ram, _) = alone();
    let memory = ram.files().swap_remove(0);
    let payload = u64::from(FROM_GUEST).to_le_bytes();
    for fd in [reader.as_raw_fd(), writer.as_raw_fd(), null.as_raw_fd(), memory.as_raw_fd()] {
        for request in
            [FrontendReq::SET_VRING_CALL, FrontendReq::SET_VRING_KICK, FrontendReq::SET_VRING_ERR]
        {
            let (mock, ..) = with_memory();
            mock.send_raw(request.into(), PLAIN, &payload, &[fd]);
            assert!(refusal(mock).contains("was passed where an eventfd belongs"));
        }
    }
}

#[test]
fn vu_08_rings_that_the_port_does_not_have() {
    for index in [2u32, 16, 0x10000, 0x10001, u32::MAX] {
        let state: Vec<u8> = [index, 64].iter().flat_map(|word| word.to_le_bytes()).collect();
        for request in
            [FrontendReq::SET_VRING_NUM, FrontendReq::SET_VRING_BASE, FrontendReq::GET_VRING_BASE]
        {
            let (mock, ..) = with_memory();
            mock.send_raw(request.into(), PLAIN, &state, &[]);
            assert_eq!(refusal(mock), format!("ring {index}: this port has 2 rings"));
        }
        let enable: Vec<u8> = [index, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        let (mock, ..) = with_memory();
        mock.send_raw(FrontendReq::SET_VRING_ENABLE.into(), PLAIN, &enable, &[]);
        assert_eq!(refusal(mock), format!("ring {index}: this port has 2 rings"));
        let mut address = vec![0; 40];
        address[..4].copy_from_slice(&index.to_le_bytes());
        let (mock, ..) = with_memory();
        mock.send_raw(FrontendReq::SET_VRING_ADDR.into(), PLAIN, &address, &[]);
        assert_eq!(refusal(mock), format!("ring {index}: this port has 2 rings"));
    }
    let (mock, ..) = with_memory();
    mock.send_raw(FrontendReq::SET_VRING_KICK.into(), PLAIN, &0x102u64.to_le_bytes(), &[]);
    assert_eq!(refusal(mock), "ring 2: this port has 2 rings");
}

#[test]
fn vu_09_ring_sizes_that_virtio_does_not_allow() {
    for size in [0u16, 3, 63, 0x8001, u16::MAX] {
        let (mock, _, from) = with_memory();
        mock.frontend.set_vring_num(FROM, size).unwrap();
        mock.frontend.set_vring_addr(FROM, &MockFrontend::addresses(&from)).unwrap();
        mock.frontend.set_vring_kick(FROM, mock.kick(FROM)).unwrap();
        let mut frontend = mock.frontend.clone();
        assert!(frontend.set_vring_enable(FROM, true).is_err());
        assert!(refusal(mock).contains(&format!("ring size {size} is not a power of two")));
    }
    // A thousand sizes are as good as the last.
    let (mut mock, _, from) = with_memory();
    for _ in 0..1000 {
        mock.frontend.set_vring_num(FROM, 32768).unwrap();
    }
    mock.start(FROM, &from).unwrap();
    assert!(mock.frontend.set_vring_num(FROM, 64).is_err());
    assert_eq!(refusal(mock), "ring 1: its size was set while it is running");
}

#[test]
fn vu_16_base_of_a_running_ring_and_of_an_idle_one() {
    let (mut mock, _, from) = with_memory();
    assert_eq!(mock.frontend.get_vring_base(FROM).unwrap(), 0, "never set up");
    mock.frontend.set_vring_base(FROM, 777).unwrap();
    assert_eq!(mock.frontend.get_vring_base(FROM).unwrap(), 777, "stopped");
    mock.start(FROM, &from).unwrap();
    assert!(mock.frontend.set_vring_base(FROM, 3).is_err());
    assert_eq!(refusal(mock), "ring 1: its base was set while it is running");
    let (mock, ..) = with_memory();
    let state: Vec<u8> = [1u32, 0x10000].iter().flat_map(|word| word.to_le_bytes()).collect();
    mock.send_raw(FrontendReq::SET_VRING_BASE.into(), PLAIN, &state, &[]);
    assert!(refusal(mock).contains("does not fit 16 bits"));
}

#[test]
fn vu_16_features_not_offered_or_changed_while_running() {
    let mock = MockFrontend::negotiated(1, ALL);
    assert!(mock.frontend.set_features(1 << 34 | 1 << 0).is_err());
    assert!(refusal(mock).contains(r#"["bit_0", "bit_34"]"#));
    let (mut mock, _, from) = with_memory();
    mock.start(FROM, &from).unwrap();
    let features = mock.status.features().0;
    mock.frontend.set_features(features).unwrap();
    assert!(mock.frontend.set_features(features & !(1 << 29)).is_err());
    assert_eq!(refusal(mock), "features were changed while rings are running");
    let mock = MockFrontend::negotiated(1, ALL);
    let log = (1u64 << 1).to_le_bytes();
    mock.send_raw(FrontendReq::SET_PROTOCOL_FEATURES.into(), PLAIN, &log, &[]);
    assert!(refusal(mock).contains("protocol features 0x2"));
}

#[test]
fn vq_16_bad_ring_addresses_close_the_connection() {
    let check = |spoil: fn(&mut vhost::VringConfigData), expected: &str| {
        let (mock, _, from) = with_memory();
        let mut addresses = MockFrontend::addresses(&from);
        spoil(&mut addresses);
        let _ = mock.frontend.set_vring_num(FROM, 64);
        let _ = mock.frontend.set_vring_kick(FROM, mock.kick(FROM));
        let _ = mock.frontend.clone().set_vring_enable(FROM, true);
        assert!(mock.frontend.set_vring_addr(FROM, &addresses).is_err());
        let reason = refusal(mock);
        assert!(reason.contains(expected), "{reason}");
    };
    // The vhost crate finds these.
    check(|addresses| addresses.desc_table_addr += 8, "invalid message");
    check(|addresses| addresses.avail_ring_addr += 1, "invalid message");
    check(|addresses| addresses.used_ring_addr += 2, "invalid message");
    check(|addresses| addresses.desc_table_addr = 0x1000, "does not lie inside one memory region");
    check(|addresses| addresses.used_ring_addr = u64::MAX - 3, "does not lie inside");
    check(|addresses| addresses.used_ring_addr += 2 << 20, "does not lie inside");
    check(|addresses| addresses.used_ring_addr = addresses.desc_table_addr, "overlap");
    check(|addresses| addresses.flags = 1, "dirty log");
}

#[test]
fn vu_13_memory_tables_that_lie() {
    let ram = Ram::new(&[(0x10000, 0x10000), (0x40000, 0x10000)]);
    let check = |spoil: fn(&mut [VhostUserMemoryRegionInfo]), expected: &str| {
        let mock = MockFrontend::negotiated(1, ALL);
        let mut regions = [region(&ram, 0), region(&ram, 1)];
        spoil(&mut regions);
        assert!(mock.frontend.set_mem_table(&regions).is_err());
        let reason = refusal(mock);
        assert!(reason.contains(expected), "{reason}");
    };
    check(|table| table[1].guest_phys_addr = 0x1ffff, "0 and 1 overlap in guest addresses");
    check(|table| table[1].userspace_addr = table[0].userspace_addr + 1, "in user addresses");
    check(|table| table[0].memory_size = 0x10001, "needs 65537 bytes of a file that has 65536");
    check(|table| table[0].mmap_offset = 0x1000, "needs 69632 bytes of a file that has 65536");
    // The vhost crate finds these.
    check(|table| table[0].memory_size = u64::MAX - 0xffff, "invalid message");
    check(|table| table[0].mmap_offset = u64::MAX - 0x1000, "invalid message");
    check(|table| table[1].guest_phys_addr = u64::MAX - 0x1000, "invalid message");
    // Not a file with memory in it.
    check(
        |table| {
            let (reader, _) = std::io::pipe().unwrap();
            table[1].mmap_handle = std::os::fd::IntoRawFd::into_raw_fd(reader);
        },
        "region 1 is not backed by a regular file",
    );
    // None, and more than a message may have.
    for count in [0u32, 33, u32::MAX] {
        let mock = MockFrontend::negotiated(1, ALL);
        let payload: Vec<u8> = [count, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        mock.send_raw(FrontendReq::SET_MEM_TABLE.into(), PLAIN, &payload, &[]);
        assert!(refusal(mock).contains("invalid message"));
    }
}

#[test]
fn vu_02_fds_on_messages_that_take_none() {
    for request in [
        FrontendReq::GET_FEATURES,
        FrontendReq::SET_OWNER,
        FrontendReq::GET_INFLIGHT_FD,
        FrontendReq::GET_VRING_BASE,
    ] {
        let mock = MockFrontend::negotiated(1, ALL);
        let fd = mock.call(0).as_raw_fd();
        mock.send_raw(request.into(), PLAIN, &[], &[fd]);
        assert!(refusal(mock).contains("invalid message"), "{request:?}");
    }
}

#[test]
fn vu_06_messages_that_are_none() {
    let word = |value: u32| value.to_le_bytes();
    let header = |request, flags, size| [word(request), word(flags), word(size)].concat();
    let get_features = u32::from(FrontendReq::GET_FEATURES);
    let set_num = u32::from(FrontendReq::SET_VRING_NUM);
    for bytes in [
        header(0, 1, 0),
        header(45, 1, 0),
        header(u32::MAX, 1, 0),
        header(get_features, 0, 0),
        header(get_features, 2, 0),
        header(get_features, 1 | 4, 0),
        header(get_features, 1 | 1 << 31, 0),
        header(set_num, 1, 4097),
        header(set_num, 1, u32::MAX),
        [header(set_num, 1, 4), vec![0; 4]].concat(),
        [header(set_num, 1, 9), vec![0; 9]].concat(),
        [header(get_features, 1, 1), vec![0]].concat(),
    ] {
        let mock = MockFrontend::negotiated(1, ALL);
        mock.send_bytes(&bytes, &[]);
        assert!(refusal(mock).contains("invalid message"), "{bytes:?}");
    }
}

#[test]
fn messages_of_features_that_are_not_offered_end_the_session() {
    use FrontendReq::*;
    for (request, len) in [
        (SEND_RARP, 8),
        (NET_SET_MTU, 8),
        (GET_CONFIG, 12),
        (SET_CONFIG, 12),
        (GET_INFLIGHT_FD, 24),
        (POSTCOPY_ADVISE, 0),
        (SET_STATUS, 8),
        (GET_STATUS, 0),
        (VRING_KICK, 8),
        (IOTLB_MSG, 40),
        (GET_SHMEM_CONFIG, 0),
    ] {
        let mock = MockFrontend::negotiated(1, ALL);
        mock.send_raw(request.into(), PLAIN, &vec![0; len], &[]);
        refusal(mock);
    }
}

#[test]
fn vu_07_half_a_header_holds_only_its_own_session() {
    let slow = MockFrontend::negotiated(1, ALL);
    slow.send_bytes(&[1, 0, 0, 0, 1, 0], &[]);
    let (mut other, _, from) = with_memory();
    other.start(FROM, &from).unwrap();
    assert_eq!(other.host.started(), [FROM_GUEST]);
    let (end, status, _) = slow.disconnect();
    assert!(matches!(end, SessionEnd::Refused(_)));
    assert_eq!(status.last_error().unwrap(), "the connection ended within a message");
}

#[test]
fn eight_pairs_run_side_by_side() {
    let ram = Ram::new(&[(0x10000, 16 << 20)]);
    let mut mock = MockFrontend::negotiated(8, ALL);
    mock.share(&ram).unwrap();
    let mut at = 0x10000;
    for index in 0..16 {
        let layout = Layout::packed_at(at, 64, 2048);
        at = layout.end(64);
        mock.start(index, &Driver::new(&ram, layout, 64, 0)).unwrap();
    }
    assert_eq!(mock.host.started(), (0..16).collect::<Vec<u16>>());
    let (_, status, host) = mock.disconnect();
    assert_eq!((host.started(), status.rings_started()), (vec![], vec![]));
}
