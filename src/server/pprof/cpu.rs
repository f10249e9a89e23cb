//! CPU profiler: samples the call stack of the running thread at each tick of a timer.
//!
//! The kernel sends SIGPROF after each interval of CPU time used by the process. The handler writes
//! the interrupted thread's stack to a preallocated slot; symbols are resolved later on another
//! thread. As a signal handler must, it neither allocates nor locks nor waits.
//!
//! A process has one such timer; the caller ensures that there is one [`Session`] at a time.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::profile::{Profile, Sample};

/// Samples per second of CPU time; 99 avoids lockstep with work that runs every 10 ms.
const FREQUENCY: i64 = 99;

/// The CPU time between two samples, in nanoseconds.
const PERIOD: i64 = 1_000_000_000 / FREQUENCY;

/// The maximum depth of a stack, from the innermost frame.
const DEPTH: usize = 128;

/// The capacity between two calls of [`Session::collect`]: enough for fifty busy threads at ten
/// calls per second. Lost samples are counted.
const SLOTS: usize = 512;

/// The capacity for frames of distinct stacks in one profile (16 MiB). Samples with further stacks are counted as lost.
const MAX_FRAMES: usize = 2 << 20;

/// The states of a slot.
const FREE: u8 = 0;
const BEING_WRITTEN: u8 = 1;
const FULL: u8 = 2;

struct Slot {
    state: AtomicU8,
    thread: AtomicI32,
    depth: AtomicUsize,
    frames: [AtomicUsize; DEPTH],
}

struct Buffer {
    next: AtomicUsize,
    lost: AtomicU64,
    slots: Vec<Slot>,
}

/// The buffer of the handler; null while no session is active.
static BUFFER: AtomicPtr<Buffer> = AtomicPtr::new(ptr::null_mut());

/// The number of handlers that may hold [`BUFFER`].
static INSIDE: AtomicUsize = AtomicUsize::new(0);

impl Buffer {
    fn new() -> Self {
        let slot = || Slot {
            state: AtomicU8::new(FREE),
            thread: AtomicI32::new(0),
            depth: AtomicUsize::new(0),
            frames: [const { AtomicUsize::new(0) }; DEPTH],
        };
        let slots = std::iter::repeat_with(slot).take(SLOTS).collect();
        Self { next: AtomicUsize::new(0), lost: AtomicU64::new(0), slots }
    }

    /// Records the calling thread's stack from `pc` on.
    fn record(&self, pc: usize) {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % SLOTS];
        let taken =
            slot.state.compare_exchange(FREE, BEING_WRITTEN, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        slot.frames[0].store(pc, Ordering::Relaxed);
        let mut walk = Walk { slot, pc, below_handler: false, depth: 1 };
        // SAFETY: `frame` has the signature that the unwinder calls and gets the `walk` it expects,
        // which outlives the call. Once the unwinder has run before, which `Session::start`
        // ensures, it finds its tables without locking or allocating.
        unsafe {
            _Unwind_Backtrace(frame, ptr::from_mut(&mut walk).cast());
            slot.thread.store(libc::gettid(), Ordering::Relaxed);
        }
        slot.depth.store(walk.depth, Ordering::Relaxed);
        slot.state.store(FULL, Ordering::Release);
    }
}

/// The state of one unwinding.
struct Walk<'a> {
    slot: &'a Slot,
    pc: usize,
    /// True if the handler's own frames have been passed.
    below_handler: bool,
    depth: usize,
}

/// The unwinder's view of a frame.
#[repr(C)]
struct Context {
    _opaque: [u8; 0],
}

/// `_URC_NO_REASON` continues; `_URC_END_OF_STACK` stops.
const CONTINUE_UNWIND: c_int = 0;
const STOP_UNWIND: c_int = 5;

// The unwinder used by panics, which the standard library links.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

extern "C" fn frame(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: `Buffer::record` passes a `Walk` that nobody else has, and the unwinder a frame of
    // its own.
    let (walk, address) = unsafe { (&mut *walk.cast::<Walk<'_>>(), _Unwind_GetIP(context)) };
    if !walk.below_handler {
        walk.below_handler = address == walk.pc;
        return CONTINUE_UNWIND;
    }
    match walk.slot.frames.get(walk.depth) {
        Some(frame) if address != 0 => {
            // A return address is behind its call, which may be the last instruction of the
            // function.
            frame.store(address - 1, Ordering::Relaxed);
            walk.depth += 1;
            CONTINUE_UNWIND
        }
        _ => STOP_UNWIND,
    }
}

extern "C" fn nothing(_: *mut Context, _: *mut c_void) -> c_int {
    STOP_UNWIND
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    // SAFETY: a buffer is freed only after it was removed and no handler was inside, see `Drop`;
    // the kernel passes the interrupted thread's context; errno belongs to the interrupted thread.
    unsafe {
        if let Some(buffer) = BUFFER.load(Ordering::SeqCst).as_ref()
            && let Some(context) = context.cast::<libc::ucontext_t>().as_ref()
        {
            let errno = libc::__errno_location();
            let saved = *errno;
            buffer.record(interrupted_at(context));
            *errno = saved;
        }
    }
    INSIDE.fetch_sub(1, Ordering::SeqCst);
}

/// Returns the address of the next instruction.
fn interrupted_at(context: &libc::ucontext_t) -> usize {
    #[cfg(target_arch = "x86_64")]
    let pc = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let pc = context.uc_mcontext.pc as usize;
    pc
}

/// An active profile, from [`Session::start`] to its drop.
pub(super) struct Session {
    buffer: *mut Buffer,
    began: Instant,
}

// SAFETY: the buffer consists of atomics and is freed only on drop.
unsafe impl Send for Session {}
// SAFETY: the same.
unsafe impl Sync for Session {}

/// Stacks and the number of samples of each.
#[derive(Default)]
pub(super) struct Counts {
    stacks: HashMap<(Option<Arc<str>>, Vec<usize>), i64>,
    /// The number of frames in [`Self::stacks`].
    frames: usize,
    /// Samples without room in [`Self::stacks`].
    lost: u64,
    /// Thread names by ID.
    threads: HashMap<i32, Option<Arc<str>>>,
}

impl Counts {
    /// Counts a sample.
    fn add(&mut self, thread: i32, stack: Vec<usize>) {
        let name = self.threads.entry(thread).or_insert_with(|| thread_name(thread)).clone();
        let (frames, key) = (stack.len(), (name, stack));
        if let Some(count) = self.stacks.get_mut(&key) {
            *count += 1;
        } else if self.frames + frames <= MAX_FRAMES {
            self.frames += frames;
            self.stacks.insert(key, 1);
        } else {
            self.lost += 1;
        }
    }
}

impl Session {
    /// Starts the timer.
    ///
    /// # Errors
    ///
    /// When the system refuses the handler or the timer.
    pub(super) fn start() -> io::Result<Self> {
        // SAFETY: a zeroed sigaction is valid; the handler has the signature that SA_SIGINFO
        // requires; the pointers refer to values that outlive the calls; `nothing` accesses neither
        // of its arguments.
        unsafe {
            // The unwinder's own initialisation must not happen in a handler.
            _Unwind_Backtrace(nothing, ptr::null_mut());
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            // The handler stays installed: a late signal would otherwise terminate the process.
            if libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let session =
            Self { buffer: Box::into_raw(Box::new(Buffer::new())), began: Instant::now() };
        BUFFER.store(session.buffer, Ordering::SeqCst);
        set_timer(Duration::from_nanos(PERIOD as u64))?;
        Ok(session)
    }

    fn buffer(&self) -> &Buffer {
        // SAFETY: made by `start` and freed by the drop.
        unsafe { &*self.buffer }
    }

    /// Collects the samples since the last call.
    pub(super) fn collect(&self, counts: &mut Counts) {
        for slot in &self.buffer().slots {
            if slot.state.load(Ordering::Acquire) != FULL {
                continue;
            }
            let depth = slot.depth.load(Ordering::Relaxed);
            let frames = slot.frames.iter().take(depth);
            let stack = frames.map(|frame| frame.load(Ordering::Relaxed)).collect();
            let thread = slot.thread.load(Ordering::Relaxed);
            slot.state.store(FREE, Ordering::Release);
            counts.add(thread, stack);
        }
    }

    /// Ends the session and returns its profile.
    pub(super) fn finish(self, mut counts: Counts) -> Profile {
        let duration = self.began.elapsed();
        // No samples are written any more when the rest is collected; a failure only costs samples.
        let _ = set_timer(Duration::ZERO);
        self.collect(&mut counts);
        let lost = self.buffer().lost.load(Ordering::Relaxed) + counts.lost;
        drop(self);
        let sample = |((thread, stack), count): ((Option<Arc<str>>, Vec<usize>), i64)| Sample {
            stack: stack.into_iter().map(|address| address as u64).collect(),
            values: [count, count * PERIOD],
            thread,
            of_base: false,
        };
        let lost =
            (lost > 0).then(|| format!("{lost} samples were dropped because the buffer was full"));
        Profile {
            kinds: [("samples", "count"), ("cpu", "nanoseconds")],
            period: ("cpu", "nanoseconds", PERIOD),
            duration: Some(duration),
            comments: lost.into_iter().collect(),
            samples: counts.stacks.into_iter().map(sample).collect(),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The timer belongs to this session; after a failure the handler finds no buffer.
        let _ = set_timer(Duration::ZERO);
        BUFFER.store(ptr::null_mut(), Ordering::SeqCst);
        // A handler takes microseconds, and a later one finds no buffer.
        while INSIDE.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        // SAFETY: made by `start` from a box, removed from the handlers' view, and dropped once.
        drop(unsafe { Box::from_raw(self.buffer) });
    }
}

/// Sets the timer of the process's CPU time; 0 stops it.
fn set_timer(every: Duration) -> io::Result<()> {
    let every = libc::timeval {
        tv_sec: every.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(every.subsec_micros()),
    };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the pointer is to `timer`, which outlives the call.
    let result = unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn thread_name(id: i32) -> Option<Arc<str>> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
    Some(Arc::from(name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_ever_new_stacks_is_bounded() {
        let mut counts = Counts::default();
        let stacks = MAX_FRAMES / DEPTH;
        for round in 0..2 {
            for number in 0..stacks + 10 {
                counts.add(0, vec![number; DEPTH]);
            }
            assert_eq!((counts.stacks.len(), counts.lost), (stacks, 10 * (round + 1)));
        }
        assert!(counts.stacks.values().all(|count| *count == 2));
    }
}
