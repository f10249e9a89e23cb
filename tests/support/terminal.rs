//! Pseudo terminals.

use std::fs::File;
use std::os::fd::FromRawFd as _;
use std::ptr::null_mut;

/// Opens a pseudo terminal with the default settings; returns the end of its reader and that of its programs.
pub fn pseudo_terminal() -> (File, File) {
    let (mut reader, mut programs) = (-1, -1);
    // SAFETY: the first two pointers lead to integers; the name, the settings and the size may be missing.
    let result = unsafe {
        libc::openpty(&raw mut reader, &raw mut programs, null_mut(), null_mut(), null_mut())
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both are open, and nothing else closes them.
    unsafe { (File::from_raw_fd(reader), File::from_raw_fd(programs)) }
}
