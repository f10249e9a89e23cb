//! Unmaps the pages of the program's code and constants that are not in use.
//!
//! Startup, lists and scrapes run through much of the program, and the kernel maps 64 kB around each page that is touched.
//! What an idle process executes is a tenth of it. When it goes idle, and every 15 s, all of these pages are unmapped; those
//! that are still in use come back from the page cache, with one minor fault for each 64 kB.
//!
//! A mapping is left alone if the process has written to one of its pages (a relocation, a breakpoint), which is then in memory
//! or on the swap device. See `proc_pid_maps(5)`, `MADV_DONTNEED` in `madvise(2)`, and
//! [pagemap](https://docs.kernel.org/admin-guide/mm/pagemap.html) for the bits of an entry.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;

use super::memory_map::mapping;

/// Bits of an entry of `/proc/self/pagemap`.
const IS_PRESENT: u64 = 1 << 63;
const IS_SWAPPED: u64 = 1 << 62;
const IS_OF_FILE: u64 = 1 << 61;
const ENTRY_BYTES: usize = size_of::<u64>();

/// Unmaps the program's unmodified pages. Does nothing without `/proc`.
pub(crate) fn unmap() {
    let (Ok(program), Ok(maps), Ok(mut pagemap)) = (
        fs::read_link("/proc/self/exe"),
        fs::read_to_string("/proc/self/maps"),
        File::open("/proc/self/pagemap"),
    ) else {
        return;
    };
    for Range { start, end } in program_mappings(&maps, &program.to_string_lossy()) {
        if !is_unmodified(&mut pagemap, start..end) {
            continue;
        }
        // SAFETY: the range is a private mapping of a file without a modified page, so its content before and after is
        // that of the file, which cannot be written to while it runs.
        let code =
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
        if code != 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "Pages stay mapped");
        }
    }
}

/// Returns the addresses of the read-only mappings of `program`.
fn program_mappings(maps: &str, program: &str) -> Vec<Range<usize>> {
    let wanted = maps
        .lines()
        .filter_map(mapping)
        .filter(|mapping| mapping.path == program && mapping.permissions.starts_with("r-"));
    wanted.map(|mapping| mapping.start as usize..mapping.end as usize).collect()
}

/// Tells whether each page of the range that is in memory is the file's. False if that is unknown.
fn is_unmodified(pagemap: &mut File, range: Range<usize>) -> bool {
    entries(pagemap, range).is_ok_and(|entries| entries.into_iter().all(is_of_file))
}

/// Reads the entries of the page map for the pages of a range.
fn entries(pagemap: &mut File, range: Range<usize>) -> io::Result<Vec<u64>> {
    // SAFETY: this call has no requirements.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut bytes = vec![0; range.len() / page * ENTRY_BYTES];
    pagemap.seek(SeekFrom::Start((range.start / page * ENTRY_BYTES) as u64))?;
    pagemap.read_exact(&mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry)).collect())
}

/// Tells whether an entry of the page map has no modified page.
fn is_of_file(entry: u64) -> bool {
    entry & IS_SWAPPED == 0 && (entry & IS_PRESENT == 0 || entry & IS_OF_FILE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 r--p 00000000 fe:00 53                         /bin/kstatd
3000-9000 r-xp 00002000 fe:00 53                         /bin/kstatd
a000-b000 rw-p 00009000 fe:00 53                         /bin/kstatd
b000-c000 r-xp 00000000 fe:00 54                         /lib/libc.so.6
c000-d000 rw-p 00000000 00:00 0
d000-e000 r-xp 00000000 00:00 0                          [vdso]
e000-f000 ---p 0000b000 fe:00 53                         /bin/kstatd
";

    #[test]
    fn read_only_mappings_of_the_program_are_found() {
        assert_eq!(program_mappings(MAPS, "/bin/kstatd"), [0x1000..0x3000, 0x3000..0x9000]);
    }

    #[test]
    fn copies_are_told_from_pages_of_the_file() {
        for entry in [0, IS_PRESENT | IS_OF_FILE, IS_OF_FILE] {
            assert!(is_of_file(entry), "{entry:x}");
        }
        for entry in [IS_PRESENT, IS_SWAPPED, IS_SWAPPED | IS_OF_FILE] {
            assert!(!is_of_file(entry), "{entry:x}");
        }
    }

    /// A mapping with a page that was written to, as relocations do, is not that of the file any more.
    #[test]
    fn a_modified_mapping_is_recognised() {
        let mut pagemap = File::open("/proc/self/pagemap").expect("it is readable");
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), [7; 1 << 14]).expect("it is written");
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(file.as_file());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new private mapping, which nothing else uses, of the whole file.
        let start = unsafe {
            let private = libc::MAP_PRIVATE;
            libc::mmap(std::ptr::null_mut(), 1 << 14, protection, private, descriptor, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let range = start as usize..start as usize + (1 << 14);
        let bytes = start.cast::<u8>();
        // SAFETY: the mapping is readable and writable.
        unsafe { assert_eq!(bytes.add(5).read_volatile(), 7) };
        assert!(is_unmodified(&mut pagemap, range.clone()));
        // SAFETY: as above.
        unsafe { bytes.add(9_000).write_volatile(8) };
        assert!(!is_unmodified(&mut pagemap, range.clone()));
        // SAFETY: nothing refers to the mapping any more.
        unsafe { libc::munmap(start, 1 << 14) };
    }

    /// Returns the number of pages of these mappings that are in memory.
    fn resident(pagemap: &mut File, mappings: &[Range<usize>]) -> usize {
        let mut pages =
            |range: &Range<usize>| entries(pagemap, range.clone()).expect("it is readable");
        let entries = mappings.iter().flat_map(&mut pages);
        entries.filter(|entry| entry & IS_PRESENT != 0).count()
    }

    #[test]
    fn unmapped_pages_come_back_on_use() {
        let program = fs::read_link("/proc/self/exe").expect("a link");
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        let mut pagemap = File::open("/proc/self/pagemap").expect("it is readable");
        let mut mappings = program_mappings(&maps, &program.to_string_lossy());
        mappings.retain(|range| is_unmodified(&mut pagemap, range.clone()));
        // Touches the whole program.
        let content = |range: &Range<usize>| {
            let mut memory = File::open("/proc/self/mem").expect("it is readable");
            memory.seek(SeekFrom::Start(range.start as u64)).expect("it is seekable");
            let mut bytes = vec![0; range.len()];
            memory.read_exact(&mut bytes).expect("it is readable");
            bytes
        };
        let before: Vec<Vec<u8>> = mappings.iter().map(content).collect();
        let full = resident(&mut pagemap, &mappings);
        unmap();
        let rest = resident(&mut pagemap, &mappings);
        assert!(rest < full / 2, "{rest} of {full} pages are still there");
        let after: Vec<Vec<u8>> = mappings.iter().map(content).collect();
        assert!(before == after, "the program is another one");
    }
}
