//! Giving back the pages of the program that only its start has used.
//!
//! Reading flags, files and certificates runs through most of the program once, and the kernel maps the
//! surroundings of each page that is touched. What serving and watching need later is a tenth of it. So
//! when the start is over, all of the program's own pages are let go; those that are still in use come
//! back at their next use, from the page cache, for one minor fault each.
//!
//! A mapping is let go only if the kernel reports that none of its pages was ever written to: neither a
//! resident copy (`Anonymous: 0 kB`) nor one on the swap device (`Swap: 0 kB`, where relocated pages may
//! lie). Then the file holds the same bytes. See `proc_pid_smaps(5)` and `MADV_DONTNEED` in `madvise(2)`.
#![allow(unsafe_code)]

use std::fs;

/// Lets the program's own pages go. Nothing happens where `/proc` is missing.
pub fn release() {
    let (Ok(program), Ok(smaps)) =
        (fs::read_link("/proc/self/exe"), fs::read_to_string("/proc/self/smaps"))
    else {
        return;
    };
    for (start, len) in unmodified_mappings(&smaps, &program.to_string_lossy()) {
        // SAFETY: the range is a private mapping of a file without a page of our own in it, so that its
        // content is that of the file before and after. The file cannot be written to while it runs.
        let code = unsafe { libc::madvise(start as *mut libc::c_void, len, libc::MADV_DONTNEED) };
        if code != 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "Pages stay mapped");
        }
    }
}

/// Returns the starts and lengths of the read-only mappings of `program` without modified pages.
fn unmodified_mappings(smaps: &str, program: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut current = None;
    let mut zero_anonymous = false;
    for line in smaps.lines() {
        match line.split_once(": ") {
            // Only the first line of a mapping has no ": ": its device number has a colon alone.
            None => (current, zero_anonymous) = (mapping(line, program), false),
            Some(("Anonymous", rest)) => zero_anonymous = rest.trim() == "0 kB",
            // Follows `Anonymous`.
            Some(("Swap", rest)) if zero_anonymous && rest.trim() == "0 kB" => {
                found.extend(current.take());
            }
            Some(_) => {}
        }
    }
    found
}

/// `start-end perms offset device inode path`, if it is read-only and of `program`.
fn mapping(line: &str, program: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let path = fields.nth(3)?;
    if path != program || !permissions.starts_with('r') || permissions.contains('w') {
        return None;
    }
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 fe:00 53 /bin/kstatd
Rss:                   8 kB
Anonymous:             0 kB
Swap:                  0 kB
SwapPss:               0 kB
VmFlags: rd mr mw me sd
3000-9000 r-xp 00002000 fe:00 53 /bin/kstatd
Anonymous:             0 kB
Swap:                  0 kB
9000-a000 r--p 00008000 fe:00 53 /bin/kstatd
Anonymous:             4 kB
Swap:                  0 kB
a000-b000 rw-p 00009000 fe:00 53 /bin/kstatd
Anonymous:             0 kB
Swap:                  0 kB
b000-c000 r-xp 00000000 fe:00 54 /lib/libc.so.6
Anonymous:             0 kB
Swap:                  0 kB
c000-d000 rw-p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
d000-e000 r--p 0000b000 fe:00 53 /bin/kstatd
Anonymous:             0 kB
Swap:                  4 kB
e000-f000 r--p 0000c000 fe:00 53 /bin/kstatd
Anonymous:             0 kB
";

    /// A mapping whose relocated pages were swapped out (`d000`) keeps them, and so does one that does not say.
    #[test]
    fn only_unmodified_pages_of_the_program_are_released() {
        assert_eq!(unmodified_mappings(SMAPS, "/bin/kstatd"), [(0x1000, 0x2000), (0x3000, 0x6000)]);
    }

    /// Kilobytes in memory of the read-only mappings of `program`.
    fn resident(program: &str) -> usize {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_ours = false;
        let mut sum = 0;
        for line in smaps.lines() {
            match line.split_once(": ") {
                None => is_ours = mapping(line, program).is_some(),
                Some(("Rss", rest)) if is_ours => {
                    sum += rest.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
                }
                Some(_) => {}
            }
        }
        sum
    }

    #[test]
    fn released_pages_are_reloaded_on_use() {
        let program = fs::read_link("/proc/self/exe").unwrap();
        let program = program.to_str().unwrap();
        // Touches much of the program, as a start does. What it returns must be the same afterwards.
        let bytes = |start: usize, len: usize| {
            let mut maps = fs::File::open("/proc/self/mem").unwrap();
            std::io::Seek::seek(&mut maps, std::io::SeekFrom::Start(start as u64)).unwrap();
            let mut bytes = vec![0; len];
            std::io::Read::read_exact(&mut maps, &mut bytes).unwrap();
            bytes
        };
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let parts = unmodified_mappings(&smaps, program);
        let before: Vec<Vec<u8>> = parts.iter().map(|&(start, len)| bytes(start, len)).collect();
        let full = resident(program);
        release();
        let rest = resident(program);
        assert!(rest < full / 2, "{rest} kB of {full} kB are still there");
        let after: Vec<Vec<u8>> = parts.iter().map(|&(start, len)| bytes(start, len)).collect();
        assert!(before == after, "the program is another one");
    }
}
