//! Signals to guests that cannot stall the sender.
//!
//! A call fd belongs to its peer: a plain write to it blocks when the peer has cleared O_NONBLOCK
//! and filled the counter, and it may not be an eventfd at all. Linux AIO can signal an eventfd on
//! completion (IOCB_FLAG_RESFD, eventfd(2) and io_submit(2)): the kernel adds 1 without ever
//! waiting, a full counter included, and refuses what is not an eventfd. So each signal is an
//! empty read of an empty memfd, which completes inside `io_submit`, a batch per system call.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::limits::NOTIFIER_BATCH;

/// An eventfd that a guest's interrupts go to.
#[derive(Debug)]
pub struct CallFd(OwnedFd);

impl CallFd {
    /// Takes `fd`, if it is an eventfd.
    ///
    /// # Errors
    /// When it is something else; it is closed.
    pub fn new(fd: OwnedFd) -> Result<Self, NotAnEventFd> {
        check_eventfd(fd.as_fd())?;
        Ok(Self(fd))
    }
}

impl AsFd for CallFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A peer passed something else as an eventfd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} was passed where an eventfd belongs")]
pub struct NotAnEventFd {
    /// What the kernel calls it.
    pub kind: String,
}

/// Whether `fd` is an eventfd, by the only name that the kernel gives it.
pub(crate) fn check_eventfd(fd: BorrowedFd<'_>) -> Result<(), NotAnEventFd> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match std::fs::read_link(link) {
        Ok(target) if target.as_os_str() == "anon_inode:[eventfd]" => Ok(()),
        Ok(target) => Err(NotAnEventFd { kind: target.to_string_lossy().into_owned() }),
        Err(error) => Err(NotAnEventFd { kind: format!("an unreadable fd ({error})") }),
    }
}

/// `struct iocb` of linux/aio_abi.h, little-endian.
#[derive(Clone, Copy)]
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// The head of the completion ring that the kernel maps at the context's address (`struct
/// aio_ring` of fs/aio.c; libaio and fio rely on it as well).
#[repr(C)]
struct CompletionRing {
    id: u32,
    entries: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_length: u32,
}

const COMPLETION_RING_MAGIC: u32 = 0xa10a10a1;

/// Sends signals in batches, for one thread. All it needs is allocated in [`new`](Self::new).
pub struct Notifier {
    context: libc::c_ulong,
    /// An empty file to read nothing from.
    empty: OwnedFd,
    queued: Vec<Arc<CallFd>>,
    requests: Box<[Iocb; NOTIFIER_BATCH]>,
    sent: u64,
    refused: u64,
}

impl Notifier {
    /// Sets up an AIO context of the kernel.
    ///
    /// # Errors
    /// When the kernel has no AIO or its limit (fs.aio-max-nr) is reached.
    pub fn new() -> std::io::Result<Self> {
        let empty = memfd_create("tollgate-notifier", MemfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup(2) writes the new context's id to the second argument, a local that is
        // zero as it asks for.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, NOTIFIER_BATCH, &raw mut context) };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let request = Iocb {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: IOCB_CMD_PREAD,
            priority: 0,
            fd: empty.as_raw_fd().cast_unsigned(),
            buffer: 0,
            bytes: 0,
            offset: 0,
            reserved: 0,
            flags: IOCB_FLAG_RESFD,
            result_fd: 0,
        };
        let notifier = Self {
            context,
            empty,
            queued: Vec::with_capacity(NOTIFIER_BATCH),
            requests: Box::new([request; NOTIFIER_BATCH]),
            sent: 0,
            refused: 0,
        };
        if notifier.ring().magic != COMPLETION_RING_MAGIC {
            return Err(std::io::Error::other("the kernel's AIO completion ring is unknown"));
        }
        Ok(notifier)
    }

    /// Notes that `call` is to be signalled with the next flush; flushes by itself when a batch is
    /// full.
    pub fn queue(&mut self, call: &Arc<CallFd>) {
        if self.queued.len() == NOTIFIER_BATCH {
            self.flush();
        }
        self.queued.push(Arc::clone(call));
    }

    /// Whether anything is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Signals all that are queued; how many were. About 1200 cycles each, and never waits. To be
    /// called before a ring is handed back, whose signal would otherwise come late.
    pub fn flush(&mut self) -> u32 {
        let mut signalled = 0;
        let mut pointers = [std::ptr::null::<Iocb>(); NOTIFIER_BATCH];
        let mut count = 0;
        let slots = self.requests.iter_mut().zip(&mut pointers);
        for ((request, pointer), call) in slots.zip(&self.queued) {
            request.result_fd = call.as_fd().as_raw_fd().cast_unsigned();
            *pointer = request;
            count += 1;
        }
        let mut rest = pointers.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            let taken = self.submit(rest);
            signalled += taken;
            // What stopped the batch, if anything did, is the request after the last one taken:
            // the kernel refuses its fd. Skip it.
            let done = if taken < rest.len() {
                self.refused += 1;
                taken + 1
            } else {
                taken
            };
            rest = rest.get(done..).unwrap_or_default();
            self.reap();
        }
        self.queued.clear();
        self.sent += signalled as u64;
        u32::try_from(signalled).unwrap_or(u32::MAX)
    }

    /// Signals sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Signals that the kernel refused so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// How many of `requests` the kernel took; each has completed on return.
    fn submit(&self, requests: &[*const Iocb]) -> usize {
        // SAFETY: io_submit(2) reads as many pointers as it is told, each to a request in
        // `self.requests`. A request reads 0 bytes from our memfd, so its buffer (null) is never
        // touched.
        let taken = unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, requests.len(), requests.as_ptr())
        };
        usize::try_from(taken).unwrap_or(0).min(requests.len())
    }

    /// Empties the completion ring, which the kernel allows in user space.
    fn reap(&self) {
        let ring = self.ring();
        let tail = ring.tail.load(Ordering::Acquire);
        ring.head.store(tail, Ordering::Release);
    }

    fn ring(&self) -> &CompletionRing {
        let address = std::ptr::with_exposed_provenance::<CompletionRing>(self.context as usize);
        // SAFETY: the id of a context is the address of its completion ring, which the kernel maps
        // readable and writable from io_setup to io_destroy, that is as long as `self` lives.
        // Fields that the kernel changes meanwhile are atomics.
        unsafe { &*address }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // SAFETY: the context is ours and nothing refers to it afterwards.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier")
            .field("empty", &self.empty)
            .field("queued", &self.queued.len())
            .field("sent", &self.sent)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
