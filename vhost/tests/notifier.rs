//! Signals that cannot stall whoever sends them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tollgate_vhost::limits::NOTIFIER_BATCH;
use tollgate_vhost::{CallFd, Notifier};

/// An eventfd as the peer and as the switch hold it.
fn pair() -> (OwnedFd, Arc<CallFd>) {
    let peer = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let call = CallFd::new(peer.try_clone().unwrap()).unwrap();
    (peer, Arc::new(call))
}

/// The counter, reset by reading it; 0 when it was not signalled.
fn count(fd: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    match rustix::io::read(fd, &mut bytes) {
        Ok(_) => u64::from_ne_bytes(bytes),
        Err(_) => 0,
    }
}

#[test]
fn every_signal_queued_arrives_with_the_flush() {
    let mut notifier = Notifier::new().unwrap();
    let pairs: Vec<_> = (0..5).map(|_| pair()).collect();
    for round in 1..=100 {
        for (_, call) in &pairs {
            notifier.queue(call);
        }
        assert!(pairs.iter().all(|(peer, _)| count(peer) == 0), "not before the flush");
        assert_eq!(notifier.flush(), 5);
        assert!(notifier.is_empty());
        assert!(pairs.iter().all(|(peer, _)| count(peer) == 1), "round {round}");
    }
    assert_eq!((notifier.sent(), notifier.refused()), (500, 0));
    assert_eq!(notifier.flush(), 0);
}

#[test]
fn a_full_batch_flushes_itself() {
    let mut notifier = Notifier::new().unwrap();
    let (peer, call) = pair();
    for _ in 0..NOTIFIER_BATCH * 3 + 1 {
        notifier.queue(&call);
    }
    assert_eq!(count(&peer), NOTIFIER_BATCH as u64 * 3);
    notifier.flush();
    assert_eq!(count(&peer), 1);
}

#[test]
fn tp_01_a_full_counter_without_nonblock_does_not_stall_the_sender() {
    let mut notifier = Notifier::new().unwrap();
    let (peer, call) = pair();
    let full = u64::MAX - 1;
    rustix::io::write(&peer, &full.to_ne_bytes()).unwrap();
    let flags = fcntl_getfl(&peer).unwrap();
    fcntl_setfl(&peer, flags - OFlags::NONBLOCK).unwrap();
    // A plain write would now wait until the peer reads.
    let (other_peer, other) = pair();
    for _ in 0..1000 {
        notifier.queue(&call);
        notifier.queue(&other);
        assert_eq!(notifier.flush(), 2);
    }
    assert_eq!(count(&other_peer), 1000, "whoever comes behind is signalled all the same");
    assert!(count(&peer) >= full);
}

#[test]
fn tp_02_what_is_not_an_eventfd_is_refused() {
    let (reader, writer) = std::io::pipe().unwrap();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    for fd in [OwnedFd::from(reader), writer.into(), socket.into(), file.into()] {
        let error = CallFd::new(fd).unwrap_err();
        assert!(error.to_string().ends_with("was passed where an eventfd belongs"), "{error}");
    }
}

#[test]
fn a_notifier_leaves_nothing_behind() {
    let call = pair().1;
    for _ in 0..10 {
        let mut notifier = Notifier::new().unwrap();
        notifier.queue(&call);
        notifier.flush();
        notifier.queue(&call);
    }
    assert_eq!(Arc::strong_count(&call), 1);
    // Its context shows as a mapping; other tests' are in this process too, but not ten.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.lines().filter(|line| line.contains("[aio]")).count() < 10);
}
