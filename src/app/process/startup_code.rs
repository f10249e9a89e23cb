//! Giving back the pages of the program that only its start has used.
//!
//! Reading flags, files and certificates runs through most of the program once, and the kernel maps the
//! surroundings of each page that is touched. What serving and watching need later is a tenth of it. So
//! when the start is over, all of the program's own pages are let go; those that are still in use come
//! back at their next use, from the page cache, for one minor fault each.
//!
//! A mapping is let go only if the kernel says that none of its pages was ever written to
//! (`Anonymous: 0 kB`): what would come back is what is there. See `proc_pid_smaps(5)` and
//! `MADV_DONTNEED` in `madvise(2)`.
#![allow(unsafe_code)]

use std::fs;

/// Lets the program's own pages go. Nothing happens where `/proc` is missing.
pub fn give_back() {
    let (Ok(program), Ok(smaps)) =
        (fs::read_link("/proc/self/exe"), fs::read_to_string("/proc/self/smaps"))
    else {
        return;
    };
    for (start, len) in unwritten(&smaps, &program.to_string_lossy()) {
        // SAFETY: the range is a private mapping of a file without a page of our own in it, so that its
        // content is that of the file before and after. The file cannot be written to while it runs.
        let code = unsafe { libc::madvise(start as *mut libc::c_void, len, libc::MADV_DONTNEED) };
        if code != 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "pages stay mapped");
        }
    }
}

/// Starts and lengths of the read-only mappings of `program` that nobody has written to.
fn unwritten(smaps: &str, program: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        match line.split_once(": ") {
            // The first line of a mapping has a colon in its device number alone.
            None => current = mapping(line, program),
            Some(("Anonymous", rest)) if rest.trim() == "0 kB" => found.extend(current.take()),
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
VmFlags: rd mr mw me sd
3000-9000 r-xp 00002000 fe:00 53 /bin/kstatd
Anonymous:             0 kB
9000-a000 r--p 00008000 fe:00 53 /bin/kstatd
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 53 /bin/kstatd
Anonymous:             0 kB
b000-c000 r-xp 00000000 fe:00 54 /lib/libc.so.6
Anonymous:             0 kB
c000-d000 rw-p 00000000 00:00 0
Anonymous:             0 kB
";

    #[test]
    fn only_unwritten_pages_of_the_program_are_let_go() {
        assert_eq!(unwritten(SMAPS, "/bin/kstatd"), [(0x1000, 0x2000), (0x3000, 0x6000)]);
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
    fn pages_that_are_not_needed_leave_memory_and_come_back() {
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
        let parts = unwritten(&smaps, program);
        let before: Vec<Vec<u8>> = parts.iter().map(|&(start, len)| bytes(start, len)).collect();
        let full = resident(program);
        give_back();
        let rest = resident(program);
        assert!(rest < full / 2, "{rest} kB of {full} kB are still there");
        let after: Vec<Vec<u8>> = parts.iter().map(|&(start, len)| bytes(start, len)).collect();
        assert!(before == after, "the program is another one");
    }
}
