//! DPDK's process-wide environment.

use std::ffi::{CString, c_char, c_int};
use std::sync::atomic::{AtomicU8, Ordering};

use tollgate_dpdk_sys as dpdk;

use super::calls::{c_string, check, last_reason};
use crate::NicError;

/// DPDK's process-wide environment.
#[derive(Clone, Copy, Debug)]
pub struct Eal(());

const UNTRIED: u8 = 0;
const TRIED: u8 = 1;
const READY: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNTRIED);

impl Eal {
    /// Initialises DPDK with the given EAL arguments, for instance `--no-huge -m 128 --no-pci`. It is done
    /// on a thread of its own: EAL pins the thread that it is called on.
    ///
    /// # Errors
    /// On the second call in a process, or in DPDK's words.
    pub fn init(arguments: &[String]) -> Result<Self, NicError> {
        let program = c_string("tollgate")?;
        let strings = arguments.iter().map(|text| c_string(text));
        let strings: Vec<CString> =
            std::iter::once(Ok(program)).chain(strings).collect::<Result<_, _>>()?;
        if STATE.compare_exchange(UNTRIED, TRIED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(NicError::EalOnce);
        }
        let outcome = std::thread::scope(|scope| scope.spawn(|| init(strings)).join());
        outcome.unwrap_or_else(|_| Err(NicError::Eal("its thread has ended".to_owned())))?;
        STATE.store(READY, Ordering::Release);
        Ok(Self(()))
    }
}

fn init(strings: Vec<CString>) -> Result<(), NicError> {
    // EAL permutes the array and keeps pointers into the strings for the life of the process.
    let mut argv: Vec<*mut c_char> = strings.into_iter().map(CString::into_raw).collect();
    // SAFETY: `argv` holds as many valid, writable, NUL-terminated strings as are announced; the
    // strings are never freed, and the state that was set makes this the only call.
    let result = unsafe { dpdk::rte_eal_init(argv.len() as c_int, argv.as_mut_ptr()) };
    if result < 0 { Err(NicError::Eal(last_reason())) } else { Ok(()) }
}

/// Gives the calling thread its own part of each pool, without which it would go to their shared rings for
/// every mbuf. To be called by each polling thread before it polls; without effect where DPDK is not
/// initialised.
///
/// # Errors
/// When there are more threads than DPDK was built for.
pub fn register_polling_thread() -> Result<(), NicError> {
    if STATE.load(Ordering::Acquire) != READY {
        return Ok(());
    }
    // SAFETY: DPDK is initialised; the call concerns the calling thread only.
    let result = unsafe { dpdk::rte_thread_register() };
    // It says -1 and gives the reason in rte_errno.
    if result < 0 {
        return Err(NicError::Dpdk { call: "rte_thread_register", reason: last_reason() });
    }
    check("rte_thread_register", result)
}
