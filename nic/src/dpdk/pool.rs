//! The mbufs of one queue, which one thread polls.
#![allow(clippy::disallowed_methods)] // control side

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_dpdk_sys as dpdk;

use super::calls::{Mbuf, c_string, last_reason};
use crate::NicError;

/// A pool. Its memory stays mapped as long as this lives, or one of its mbufs is somewhere.
#[derive(Debug)]
pub(super) struct Pool(Raw);

#[derive(Clone, Copy, Debug)]
struct Raw(NonNull<dpdk::rte_mempool>);

// SAFETY: a mempool may be used from any thread (it is a ring with per-lcore caches), and the
// wrapper only hands the pointer to DPDK's functions.
unsafe impl Send for Raw {}
// SAFETY: as for `Send`.
unsafe impl Sync for Raw {}

/// Pools that nobody needs any more and of which mbufs are still in the ring of a device that they were
/// handed to.
static RETIRED: Mutex<Vec<Raw>> = Mutex::new(Vec::new());

/// Names must differ as long as both pools exist.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Pool {
    /// Makes a pool of `mbufs`, each with room for `data_bytes` beside its headroom, of which polling
    /// threads may keep `cache` each to themselves.
    pub(super) fn new(
        mbufs: u32,
        cache: u32,
        data_room: u16,
        socket: i32,
    ) -> Result<Arc<Self>, NicError> {
        sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = c_string(&format!("tollgate_{number}"))?;
        // SAFETY: the name is NUL-terminated; the other arguments are plain numbers.
        let pool = unsafe {
            dpdk::rte_pktmbuf_pool_create(name.as_ptr(), mbufs, cache, 0, data_room, socket)
        };
        let pool = NonNull::new(pool).ok_or_else(|| NicError::Dpdk {
            call: "rte_pktmbuf_pool_create",
            reason: format!(
                "{} ({mbufs} mbufs of {data_room} bytes: `-m` or the hugepages may be too few)",
                last_reason()
            ),
        })?;
        Ok(Arc::new(Self(Raw(pool))))
    }

    pub(super) fn as_ptr(&self) -> *mut dpdk::rte_mempool {
        self.0.0.as_ptr()
    }

    /// Mbufs that are not in it.
    pub(super) fn in_use(&self) -> u32 {
        self.0.in_use()
    }

    #[inline]
    pub(super) fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool is alive.
        NonNull::new(unsafe { dpdk::shim_pktmbuf_alloc(self.as_ptr()) })
    }
}

impl Raw {
    fn in_use(self) -> u32 {
        // SAFETY: the pool is alive: a `Pool` holds it, or the list of those that are retired. The
        // count is a racy read by design.
        unsafe { dpdk::rte_mempool_in_use_count(self.0.as_ptr()) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        retired().push(self.0);
        sweep();
    }
}

fn retired() -> std::sync::MutexGuard<'static, Vec<Raw>> {
    RETIRED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees the retired pools that have all their mbufs back.
fn sweep() {
    retired().retain(|pool| {
        let is_whole = pool.in_use() == 0;
        if is_whole {
            // SAFETY: nobody holds it, and nobody an mbuf that would be given back to it.
            unsafe { dpdk::rte_mempool_free(pool.0.as_ptr()) };
        }
        !is_whole
    });
}
