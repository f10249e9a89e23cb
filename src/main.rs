//! The binary: the allocator, and argv into the library.

use std::process::ExitCode;

/// jemalloc returns freed pages and keeps fragmentation low where text of changing sizes is replaced
/// all the time, which is what this process does; and it can sample the heap, which
/// `/debug/pprof/heap` shows. Its functions are prefixed: under the plain names a static binary with
/// heap sampling ends before `main`. The limit: C code in the process keeps using libc's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc's options, read before `main`. The heap is sampled from the start, once in 2 MiB of what
/// is allocated, so that the first profile shows everything that lives. More samples would cost more than 1% of the CPU. Few arenas and small thread caches
/// keep an idle process small; freed pages go back after a second. No background thread: it would wake an
/// idle process.
// Exporting a symbol is unsafe because it could collide with another; this name is what the prefixed
// jemalloc reads and nothing else defines it.
#[allow(unsafe_code)]
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: &[u8; 132] =
    b"prof:true,prof_active:true,lg_prof_sample:21,narenas:2,tcache_max:4096,\
dirty_decay_ms:1000,muzzy_decay_ms:0,background_thread:false\0";

fn main() -> ExitCode {
    kstatd::app::main(std::env::args_os().collect())
}
