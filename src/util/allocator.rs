//! Returns freed memory, and pages of the program, to the system when the process goes idle.
//!
//! jemalloc keeps freed pages for a second and purges them only during later allocations. A process that goes idle makes
//! none, so the memory of its last scrapes would stay resident. Memory-intensive work holds a [`PurgeGuard`], and code that
//! frees a lot of memory calls [`schedule_purge`]. One second after the last of them all unused pages are purged, and those
//! of the program are unmapped ([`program_pages`]). An idle process has neither a timer nor a thread for this.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::program_pages;

const FLUSH_THREAD: &CStr = c"thread.tcache.flush";
/// Purges the unused pages of all arenas: 4096 is `MALLCTL_ARENAS_ALL`.
const PURGE_ALL: &CStr = c"arena.4096.purge";
/// Delay before a purge, equal to jemalloc's own decay time.
const PURGE_DELAY: Duration = Duration::from_secs(1);

/// Number of live [`PurgeGuard`]s.
static GUARDS: AtomicUsize = AtomicUsize::new(0);
/// True while a purge is scheduled.
static IS_SCHEDULED: AtomicBool = AtomicBool::new(false);

/// A guard of memory-intensive work: no purge while one exists, and a purge after the last one is dropped.
pub(crate) struct PurgeGuard(());

impl PurgeGuard {
    /// Postpones purges until the guard is dropped.
    pub(crate) fn new() -> Self {
        GUARDS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for PurgeGuard {
    fn drop(&mut self) {
        if GUARDS.fetch_sub(1, Ordering::SeqCst) == 1 {
            schedule_purge();
        }
    }
}

/// Schedules a purge in [`PURGE_DELAY`] or when memory-intensive work ends, whichever is later.
pub(crate) fn schedule_purge() {
    // Without a runtime the process is shutting down.
    let Ok(runtime) = Handle::try_current() else { return };
    if !IS_SCHEDULED.swap(true, Ordering::SeqCst) {
        runtime.spawn(async {
            sleep(PURGE_DELAY).await;
            IS_SCHEDULED.store(false, Ordering::SeqCst);
            // Otherwise the last guard schedules another one.
            if GUARDS.load(Ordering::SeqCst) == 0 {
                purge();
                program_pages::unmap();
            }
        });
    }
}

/// Returns all unused pages to the system.
pub(crate) fn purge() {
    for control in [FLUSH_THREAD, PURGE_ALL] {
        // SAFETY: these controls neither read nor write a value. A failure leaves the pages for a later purge.
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
