//! Heap profiles by allocating call stack, as sampled by jemalloc.
//!
//! jemalloc writes its samples to a path. An in-memory file has one that needs no writable folder.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;

use super::profile::{Profile, Sample};
use super::symbols::Symbols;

/// The names of jemalloc's controls.
const ENABLED: &[u8] = b"opt.prof\0";
const DUMP: &[u8] = b"prof.dump\0";

/// Returns whether heap sampling is enabled.
pub(super) fn is_sampled() -> bool {
    // SAFETY: this control is a bool.
    unsafe { tikv_jemalloc_ctl::raw::read(ENABLED) }.unwrap_or(false)
}

/// Returns the live heap in the sampler's own format, `heap_v2`.
///
/// # Errors
///
/// When there is no memory for the text or the sampler cannot write it.
pub(super) fn dump() -> io::Result<String> {
    let mut file = file_in_memory()?;
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    // SAFETY: this control takes the address of a C string and no longer needs it after the call.
    unsafe { tikv_jemalloc_ctl::raw::write(DUMP, path.as_ptr()) }
        .map_err(|error| io::Error::other(format!("the sampler cannot write: {error}")))?;
    // The sampler used its own handle, so this one is still at the beginning.
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Creates an in-memory file.
fn file_in_memory() -> io::Result<File> {
    // SAFETY: the name is a C string; a valid descriptor has no other owner.
    let file = unsafe {
        match libc::memfd_create(c"kstatd-heap".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(File::from_raw_fd(descriptor)),
        }
    };
    // Some sandboxes do not support memfd.
    file.or_else(|error| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .mode(0o600)
            .open("/dev/shm")
            .map_err(|_| error)
    })
}

/// Objects and bytes by stack, the innermost address first.
pub(super) type Stacks = HashMap<Vec<u64>, [f64; 2]>;

/// Parses the output of [`dump`]: the mean number of bytes between samples, and the estimated heap.
///
/// # Errors
///
/// When the format is unknown; the text contains the line.
pub(super) fn parse(dump: &str) -> Result<(f64, Stacks), String> {
    let mut lines = dump.lines();
    let first = lines.next().unwrap_or_default();
    let interval: f64 = first
        .strip_prefix("heap_v2/")
        .and_then(|number| number.parse().ok())
        .filter(|interval| *interval > 0.0)
        .ok_or_else(|| format!("{first:?} is not a heap_v2 header"))?;
    let mut stacks = Stacks::new();
    let mut stack: Option<Vec<u64>> = None;
    for line in lines {
        let malformed = || format!("{line:?} in a heap_v2 file");
        let line = line.trim();
        if line == "MAPPED_LIBRARIES:" {
            break;
        }
        if let Some(addresses) = line.strip_prefix('@') {
            let address = |text: &str| {
                let digits = text.trim_start_matches("0x");
                // Return addresses are behind their calls.
                u64::from_str_radix(digits, 16).ok().map(|address| address.saturating_sub(1))
            };
            let addresses: Option<_> = addresses.split_ascii_whitespace().map(address).collect();
            stack = Some(addresses.ok_or_else(malformed)?);
        } else if let Some(sums) = line.strip_prefix("t*:")
            && let Some(stack) = stack.take()
        {
            // `t*: objects: bytes [objects ever: bytes ever]`
            let mut fields = sums.split([':', ' ']).filter(|field| !field.is_empty());
            let mut number = || fields.next()?.parse::<f64>().ok();
            let (objects, bytes) = number().zip(number()).ok_or_else(malformed)?;
            let sum = stacks.entry(stack).or_default();
            for (sum, value) in sum.iter_mut().zip(unbiased(objects, bytes, interval)) {
                *sum += value;
            }
        }
    }
    Ok((interval, stacks))
}

/// Scales samples to the estimated total. An object of `s` bytes is sampled with the probability
/// `1 - e^(-s/interval)`; this applies it to the mean size of the sampled objects.
fn unbiased(objects: f64, bytes: f64, interval: f64) -> [f64; 2] {
    if objects <= 0.0 {
        return [0.0; 2];
    }
    let scale = 1.0 / (1.0 - (-(bytes / objects) / interval).exp());
    if scale.is_finite() { [objects * scale, bytes * scale] } else { [objects, bytes] }
}

/// Subtracts `before` from `after`.
pub(super) fn difference(mut after: Stacks, before: Stacks) -> Stacks {
    for (stack, [objects, bytes]) in before {
        let sum = after.entry(stack).or_default();
        sum[0] -= objects;
        sum[1] -= bytes;
    }
    after.retain(|_, [_, bytes]| bytes.abs() >= 1.0);
    after
}

/// Builds the profile, attributing allocations to the callers of the allocator, whose own frames
/// are removed.
pub(super) fn profile(interval: f64, stacks: Stacks) -> (Profile, Symbols) {
    let sample = |(stack, values): (Vec<u64>, [f64; 2])| Sample {
        stack,
        values: values.map(|value| value.round() as i64),
        thread: None,
        of_base: false,
    };
    let mut profile = Profile {
        kinds: [("inuse_objects", "count"), ("inuse_space", "bytes")],
        period: ("space", "bytes", interval as i64),
        duration: None,
        comments: vec![format!("about one sample per {interval} bytes allocated")],
        samples: stacks.into_iter().map(sample).collect(),
    };
    let symbols = Symbols::of(&profile.addresses());
    for sample in &mut profile.samples {
        let names = sample.stack.iter().map(|address| match symbols.name(*address) {
            Some(name) => name.readable.as_str(),
            None => "",
        });
        let inside = frames_of_the_allocator(names);
        sample.stack.drain(..inside.min(sample.stack.len().saturating_sub(1)));
    }
    (profile, symbols)
}

/// Returns the number of innermost frames that belong to the allocator or to containers growing
/// through it.
fn frames_of_the_allocator<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    let mut in_allocator = true;
    names
        .take_while(|name| {
            // The allocator is the only C code that allocates here, and it has no callbacks. Its
            // internal functions have names without a prefix, and tail calls hide their callers.
            in_allocator &= !name.contains("::");
            in_allocator || is_shim(name)
        })
        .count()
}

/// Returns whether a function only forwards allocations of its caller.
fn is_shim(name: &str) -> bool {
    const SHIMS: [&str; 6] =
        ["__rust", "__rg_", "__rdl_", "alloc::", "hashbrown::raw::", "tikv_jemallocator::"];
    // `<alloc::vec::Vec<T> as core::clone::Clone>::clone`
    let path = name.trim_start_matches('<');
    SHIMS.iter().any(|shim| path.starts_with(shim))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "heap_v2/524288
  t*: 3: 1572884 [0: 0]
  t0: 3: 1572884 [0: 0]
@ 0x10 0x20 0x30
  t*: 1: 20 [0: 0]
  t0: 1: 20 [0: 0]
@ 0x10 0x40
  t*: 2: 33554432 [0: 0]
  t1: 2: 33554432 [0: 0]

MAPPED_LIBRARIES:
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/kstatd
@ 0x1
";

    #[test]
    fn samples_are_scaled() {
        let (interval, stacks) = parse(DUMP).expect("profile");
        assert_eq!((interval, stacks.len()), (524_288.0, 2));
        let small = stacks[&vec![0x0f, 0x1f, 0x2f]];
        // One object of 20 bytes was sampled; every byte is sampled once per half MiB.
        assert!((small[1] - 524_298.0).abs() < 1.0, "{small:?}");
        assert!((small[0] * 20.0 - small[1]).abs() < 1e-6, "{small:?}");
        let large = stacks[&vec![0x0f, 0x3f]];
        assert!((large[1] - 33_554_432.0).abs() < 1.0, "{large:?}");
    }

    #[test]
    fn an_empty_dump_is_a_profile() {
        let (_, stacks) =
            parse("heap_v2/1024\n  t*: 0: 0 [0: 0]\n\nMAPPED_LIBRARIES:\n").expect("");
        assert!(stacks.is_empty());
        assert_eq!(unbiased(0.0, 0.0, 1024.0), [0.0, 0.0]);
    }

    #[test]
    fn invalid_dumps_are_rejected() {
        for (text, part) in [
            ("", "\"\""),
            ("heap_v2/x\n", "heap_v2/x"),
            ("heap_v2/1\n@ 0xzz\n", "@ 0xzz"),
            ("heap_v2/1\n@ 0x1\n t*: x: 1\n", "t*: x"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_difference_has_both_signs() {
        let after = Stacks::from([(vec![1], [2.0, 20.0]), (vec![2], [1.0, 8.0])]);
        let before =
            Stacks::from([(vec![1], [1.0, 10.0]), (vec![2], [1.0, 8.0]), (vec![3], [1.0, 4.0])]);
        let expected = Stacks::from([(vec![1], [1.0, 10.0]), (vec![3], [-1.0, -4.0])]);
        assert_eq!(difference(after, before), expected);
    }

    #[test]
    fn only_the_innermost_allocator_frames_are_removed() {
        for (stack, expected) in [
            (&["prof_backtrace_impl", "_rjem_je_prof_tctx_create", "_rjem_malloc", "a::b"][..], 3),
            (&["_rjem_mallocx", "__rustc::__rust_alloc", "alloc::raw_vec::grow", "a::b"], 3),
            (&["do_rallocx", "__rustc::__rust_realloc", "a::b", "main"], 2),
            (&["do_rallocx", "<kstatd::a::B>::c", "alloc::d"], 1),
            (&["_rjem_realloc", "<alloc::vec::Vec<T> as a::T>::push", "a::b", "alloc::c::d"], 2),
            (&["a::b", "alloc::c::d"], 0),
            // A caller without a name says less than the one behind it.
            (&["", "_rjem_malloc", "", "a::b"], 3),
            (&[], 0),
        ] {
            assert_eq!(frames_of_the_allocator(stack.iter().copied()), expected, "{stack:?}");
        }
    }

    #[test]
    fn a_file_in_memory_can_be_opened_by_its_path() {
        let mut file = file_in_memory().expect("file");
        std::fs::write(format!("/proc/self/fd/{}", file.as_raw_fd()), "text").expect("write");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "text");
    }
}
