//! What was allocated and is not needed any more goes back to the system, when that is due.
//!
//! The allocator keeps freed pages for a second, for whoever allocates next, and lets them go as it is used. A process
//! that comes to rest does not use it: what its last scrapes held would stay in memory for good. So whoever does work
//! that takes much memory holds a [`Busy`], whoever has let much go says so ([`freed`]), and a second after the last of them
//! all pages that nobody uses are given back. At rest there is no timer and no thread.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

const FLUSH_THREAD: &CStr = c"thread.tcache.flush";
/// 4096 stands for all arenas.
const PURGE_ALL: &CStr = c"arena.4096.purge";
/// How long freed pages wait for somebody who needs them, as long as the allocator itself keeps them.
const REST: Duration = Duration::from_secs(1);

/// Holders of a [`Busy`].
static BUSY: AtomicUsize = AtomicUsize::new(0);
/// Whether somebody waits for the rest.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// Work that takes much memory, as long as this lives.
pub(crate) struct Busy(());

impl Busy {
    /// It begins.
    pub(crate) fn new() -> Self {
        BUSY.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if BUSY.fetch_sub(1, Ordering::SeqCst) == 1 {
            freed();
        }
    }
}

/// Much was freed just now: what of it nobody needs goes back a second after the last work that takes much.
pub(crate) fn freed() {
    // Without a runtime the process is ending.
    let Ok(runtime) = Handle::try_current() else { return };
    if !IS_AWAITED.swap(true, Ordering::SeqCst) {
        runtime.spawn(async {
            sleep(REST).await;
            IS_AWAITED.store(false, Ordering::SeqCst);
            // Else whoever is busy now is the last one later.
            if BUSY.load(Ordering::SeqCst) == 0 {
                give_back();
            }
        });
    }
}

/// Gives the pages that nobody uses back to the system: nothing else would do so before the process allocates again.
pub(crate) fn give_back() {
    for control in [FLUSH_THREAD, PURGE_ALL] {
        // SAFETY: these controls neither read nor write a value. A failure leaves the pages for later.
        unsafe {
            tikv_jemalloc_sys::mallctl(
                control.as_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            );
        }
    }
}
