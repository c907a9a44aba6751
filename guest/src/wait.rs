//! Sleeping until an eventfd is written or a time has come.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

/// A set of eventfds and a timer of microsecond grain (epoll's own counts milliseconds).
pub(crate) struct Waiter {
    epoll: Epoll,
    timer: OwnedFd,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

impl Waiter {
    /// Watches `events`, which must stay open as long as the waiter is used.
    pub(crate) fn new<'e>(events: impl IntoIterator<Item = &'e EventFd>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let files = events.into_iter().map(AsRawFd::as_raw_fd).chain([timer.as_raw_fd()]);
        for (index, file) in files.enumerate() {
            let event = EpollEvent::new(EventSet::IN, index as u64);
            epoll.ctl(ControlOperation::Add, file, event)?;
        }
        Ok(Self { epoll, timer })
    }

    /// Sleeps until an event's counter is not zero, or `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<()> {
        // A zero time would disarm the timer.
        let timeout = timeout.max(Duration::from_nanos(1));
        let value = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Setting it anew also clears an expiry that nobody has read.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        match self.epoll.wait(-1, &mut [EpollEvent::default()]) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_event_and_the_timer_both_end_the_sleep() {
        let event = EventFd::new(vmm_sys_util::eventfd::EFD_NONBLOCK).unwrap();
        let waiter = Waiter::new([&event]).unwrap();
        // Two sleeps that only the timer can end, the second with the first's expiry unread.
        waiter.wait(Duration::from_micros(50)).unwrap();
        waiter.wait(Duration::from_micros(50)).unwrap();
        event.write(1).unwrap();
        waiter.wait(Duration::from_secs(3600)).unwrap();
        assert_eq!(event.read().unwrap(), 1);
    }
}
