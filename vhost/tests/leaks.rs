//! Nothing stays behind: file descriptors and mappings are counted over a thousand sessions. One
//! test alone in its process, so that the counts are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::os::fd::AsRawFd;

use tollgate_frame::Burst;
use tollgate_vhost::FetchStats;
use tollgate_vhost::mock::{Driver, FROM_GUEST, Layout, MockFrontend, Ram, TO_GUEST, frame};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::FrontendReq;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn guest_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:mock-guest")).count()
}

/// A session from the first message to one of many ends.
fn session(ram: &Ram, round: usize) {
    let layout = Layout::packed_at(0x10000, 64, 2048);
    let to = Driver::new(ram, layout, 64, 0);
    let mut from = Driver::new(ram, Layout::packed_at(layout.end(64), 64, 2048), 64, 0);
    let mut mock = MockFrontend::negotiated(1, u64::MAX);
    mock.share(ram).unwrap();
    mock.start(TO_GUEST.into(), &to).unwrap();
    mock.start(FROM_GUEST.into(), &from).unwrap();
    from.transmit(12, &frame(500, 0));
    let mut burst = Burst::new();
    mock.host.with_ring(FROM_GUEST, |ring| {
        ring.has_work();
        assert_eq!(ring.fetch(&mut burst, 32, &mut FetchStats::new()), 1);
        ring.complete();
    });
    if round.is_multiple_of(2) {
        // A change of memory while a burst still holds the old one.
        mock.share(ram).unwrap();
    }
    burst.clear();
    let call = mock.call(0).as_raw_fd();
    match round % 6 {
        0 => drop(mock.disconnect()),
        1 => {
            mock.frontend.reset_device().unwrap();
            drop(mock.disconnect());
        }
        2 => {
            // VU-01: more fds than the message allows, and than any does.
            for fds in [2, 8, 32, 33, 40] {
                mock.send_raw(FrontendReq::SET_VRING_KICK.into(), 1, &[0; 8], &vec![call; fds]);
            }
            drop(mock.disconnect());
        }
        3 => {
            // VU-02 and VU-05: fds where none belong, with the payload cut off.
            mock.send_raw(FrontendReq::SET_VRING_NUM.into(), 1, &[0; 3], &[call; 20]);
            drop(mock.disconnect());
        }
        4 => {
            // Fds with the body only.
            mock.send_bytes(&[8, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0], &[]);
            mock.send_bytes(&[0; 8], &[call, call]);
            drop(mock.end_of_session());
        }
        _ => {
            // VU-11: messages of features that are not offered, with fds.
            mock.send_raw(FrontendReq::SET_INFLIGHT_FD.into(), 1, &[0; 24], &[call]);
            drop(mock.end_of_session());
        }
    }
}

#[test]
fn a_thousand_sessions_leave_no_file_and_no_mapping_behind() {
    let ram = Ram::new(&[(0x10000, 1 << 20), (0x1000_0000, 1 << 16)]);
    (0..6).for_each(|round| session(&ram, round));
    let before = (open_files(), guest_mappings());
    (0..1000).for_each(|round| session(&ram, round));
    assert_eq!((open_files(), guest_mappings()), before);
}
