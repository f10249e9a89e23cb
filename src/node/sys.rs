//! Calls of the system that the standard library does not have, or not by descriptor.
//!
//! Names are looked up in an open directory, one component at a time and never through a link, so that nobody who writes
//! into a tree can lead out of it whoever walks through it.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What the system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) is_directory: bool,
    /// Whether it has several names.
    pub(super) is_shared: bool,
    /// Bytes on the disk.
    pub(super) bytes: u64,
    /// When its content and its own data changed last: seconds and nanoseconds of both.
    pub(super) stamp: [i64; 4],
}

/// Opens a directory by its path, whose last component is no link.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    Ok(file.into())
}

/// Opens a directory in another one.
pub(super) fn open_in(parent: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name ends in NUL and outlives the call.
    let fd = unsafe { libc::openat(parent.as_raw_fd(), name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was opened just now and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a name in a directory is; the empty name is the directory itself.
pub(super) fn look(directory: &OwnedFd, name: &CStr) -> io::Result<Seen> {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;
    // SAFETY: all zeroes are a value of it.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: the name ends in NUL, and the result is written into a value that lives here.
    let result =
        unsafe { libc::fstatat(directory.as_raw_fd(), name.as_ptr(), &raw mut stat, flags) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Seen {
        device: stat.st_dev,
        inode: stat.st_ino,
        is_directory: stat.st_mode & libc::S_IFMT == libc::S_IFDIR,
        is_shared: stat.st_nlink > 1,
        bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
        stamp: [stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec],
    })
}

/// Reads records of a directory into `buffer`, as many as fit, and returns their length; 0 at the end.
pub(super) fn records(directory: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes no more than the length of the buffer into it.
    let read = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            directory.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// The disk serves this thread when nobody else wants anything from it, and the CPU nearly so.
pub(super) fn stand_back() {
    const PROCESS: i32 = 0;
    const WHO_PROCESS: i32 = 1;
    const CLASS_IDLE: i32 = 3 << 13;
    // SAFETY: neither call touches memory; 0 is the calling thread. One that is refused changes nothing.
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE);
        libc::syscall(libc::SYS_setpriority, PROCESS, 0, 19);
    }
}

/// Seconds of CPU that the calling thread has had.
pub(super) fn cpu() -> f64 {
    // SAFETY: all zeroes are a value of it.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: the result is written into a value that lives here.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// The project that a directory belongs to; 0 is none.
pub(super) fn project(directory: &OwnedFd) -> io::Result<u32> {
    /// `_IOR('X', 31, struct fsxattr)`, which has this layout on every architecture that the program is built for.
    const GET_ATTRIBUTES: u32 =
        (2 << 30) | ((size_of::<Attributes>() as u32) << 16) | (0x58 << 8) | 31;
    // SAFETY: all zeroes are a value of it.
    let mut attributes: Attributes = unsafe { zeroed() };
    // SAFETY: the kernel writes one such structure into a value that lives here.
    let result =
        unsafe { libc::ioctl(directory.as_raw_fd(), GET_ATTRIBUTES as _, &raw mut attributes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(attributes.project)
}

/// What the quota of a project of the file system on which `directory` is has counted: bytes and inodes.
pub(super) fn usage(directory: &OwnedFd, project: u32) -> io::Result<(u64, u64)> {
    const PROJECT_QUOTA: u32 = 2;
    const GET: u32 = 0x80_0007;
    // SAFETY: all zeroes are a value of it.
    let mut quota: libc::dqblk = unsafe { zeroed() };
    // SAFETY: the kernel writes one such structure into a value that lives here.
    let result = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            directory.as_raw_fd(),
            (GET << 8) | PROJECT_QUOTA,
            project,
            &raw mut quota,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((quota.dqb_curspace, quota.dqb_curinodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_projects_says_so() {
        let here = open(&std::env::temp_dir()).expect("a directory");
        assert_eq!(size_of::<Attributes>(), 28);
        match project(&here) {
            Ok(project) => assert_eq!(project, 0),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
        assert!(usage(&here, 4_000_000_000).is_err(), "nobody has such a project");
    }
}
