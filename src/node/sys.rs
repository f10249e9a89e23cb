//! System calls that the standard library lacks, or lacks relative to a descriptor.
//!
//! Names are resolved in an open directory, one component at a time and without following symbolic
//! links, so that a container cannot redirect the walk outside its own tree.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileAttributes {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) is_directory: bool,
    /// True if the file has several hard links.
    pub(super) is_shared: bool,
    /// Bytes on disk.
    pub(super) bytes: u64,
    /// Modification and status change time: seconds and nanoseconds of each.
    pub(super) times: [i64; 4],
}

/// Opens a directory by its path; the last component must not be a symbolic link.
pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    Ok(file.into())
}

/// Opens a file of a directory for reading.
pub(super) fn open_file(directory: &OwnedFd, path: &CStr) -> io::Result<File> {
    open_at(directory, path, libc::O_RDONLY | libc::O_NONBLOCK).map(File::from)
}

/// Opens a subdirectory. The error is `EXDEV` if anything is mounted on it: a file system whose server is gone would not answer.
pub(super) fn open_subdirectory(parent: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: all zeroes are a valid value.
    let mut how: libc::open_how = unsafe { zeroed() };
    how.flags = flags as u64;
    how.resolve = libc::RESOLVE_NO_XDEV;
    // SAFETY: the name ends in NUL, and both it and the structure outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            parent.as_raw_fd(),
            name.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    if let Ok(fd) = RawFd::try_from(fd)
        && fd >= 0
    {
        // SAFETY: the descriptor was just opened and has no other owner.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    match io::Error::last_os_error() {
        // Kernels before 5.6, and seccomp profiles that do not know the call. These open what is mounted too.
        error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            open_at(parent, name, libc::O_RDONLY | libc::O_DIRECTORY)
        }
        error => Err(error),
    }
}

fn open_at(directory: &OwnedFd, path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the path ends in NUL and outlives the call.
    let fd = unsafe { libc::openat(directory.as_raw_fd(), path.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the attributes of an entry; the empty name is the directory itself.
pub(super) fn stat(directory: &OwnedFd, name: &CStr) -> io::Result<FileAttributes> {
    stat_with(directory, name, libc::AT_EMPTY_PATH)
}

/// Returns the attributes of an entry as the kernel knows them. Unlike [`stat`] it does not ask the server of a file system that is
/// mounted there, which may be gone.
pub(super) fn known_stat(directory: &OwnedFd, name: &CStr) -> io::Result<FileAttributes> {
    stat_with(directory, name, libc::AT_STATX_DONT_SYNC)
}

/// Returns true if a directory is on a file system of this host, whose attributes [`known_stat`] returns as they are. Others may have
/// changed at their server.
pub(super) fn is_local(directory: &OwnedFd) -> bool {
    /// The types of `linux/magic.h` and of ZFS: ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS and bcachefs.
    const LOCAL: [u32; 8] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x794c_7630,
        0xf2f5_2010,
        0x2fc1_2fc1,
        0xca45_1a4e,
    ];
    // SAFETY: all zeroes are a valid value.
    let mut found: libc::statfs = unsafe { zeroed() };
    // SAFETY: the result is written to a local value.
    let result = unsafe { libc::fstatfs(directory.as_raw_fd(), &raw mut found) };
    // The type is signed or not, and has 32 or 64 bits, depending on architecture and C library.
    result == 0 && LOCAL.contains(&(found.f_type as u32))
}

fn stat_with(directory: &OwnedFd, name: &CStr, flags: libc::c_int) -> io::Result<FileAttributes> {
    let flags = flags | libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
    // SAFETY: all zeroes are a valid value.
    let mut stat: libc::statx = unsafe { zeroed() };
    // SAFETY: the name ends in NUL, and the result is written to a local value.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            directory.as_raw_fd(),
            name.as_ptr(),
            flags,
            libc::STATX_BASIC_STATS,
            &raw mut stat,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let time = |time: libc::statx_timestamp| [time.tv_sec, i64::from(time.tv_nsec)];
    let ([modified, modified_nanos], [changed, changed_nanos]) =
        (time(stat.stx_mtime), time(stat.stx_ctime));
    Ok(FileAttributes {
        device: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        is_directory: u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR,
        is_shared: stat.stx_nlink > 1,
        bytes: stat.stx_blocks * 512,
        times: [modified, modified_nanos, changed, changed_nanos],
    })
}

/// Reads directory entries into `buffer` and returns their total length; 0 at the end.
pub(super) fn read_directory(directory: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
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

/// A directory entry.
pub(super) struct Entry<'a> {
    pub(super) name: &'a CStr,
    pub(super) inode: u64,
    /// True if it is known to be a directory. Some file systems do not report the type.
    pub(super) is_directory: bool,
}

/// Iterates over the entries in a buffer of `getdents64` records.
pub(super) fn entries(records: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    /// The offsets of the record length, type and name; the inode comes first, followed by an
    /// eight-byte offset.
    const LENGTH: usize = 16;
    const TYPE: usize = 18;
    const NAME: usize = 19;
    let mut rest = records;
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes([*rest.get(LENGTH)?, *rest.get(LENGTH + 1)?]);
        let record = rest.get(..usize::from(length)).filter(|record| record.len() > NAME)?;
        rest = &rest[usize::from(length)..];
        let name = CStr::from_bytes_until_nul(&record[NAME..]).ok()?;
        let inode = u64::from_ne_bytes(*record.first_chunk()?);
        Some(Entry { name, inode, is_directory: record[TYPE] == libc::DT_DIR })
    })
    .filter(|entry| !matches!(entry.name.to_bytes(), b"." | b".."))
}

/// Gives the calling thread idle IO priority and the lowest CPU priority.
pub(super) fn lower_priority() {
    const PROCESS: i32 = 0;
    const WHO_PROCESS: i32 = 1;
    const CLASS_IDLE: i32 = 3 << 13;
    // SAFETY: neither call touches memory; 0 is the calling thread. A call that is refused has no
    // effect.
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE);
        libc::syscall(libc::SYS_setpriority, PROCESS, 0, 19);
    }
}

/// Returns the CPU time of the calling thread, in seconds.
pub(super) fn thread_cpu_seconds() -> f64 {
    // SAFETY: all zeroes are a valid value.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: the result is written to a local value.
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

/// Returns the project ID of a directory; 0 means none.
pub(super) fn project_id(directory: &OwnedFd) -> io::Result<u32> {
    /// `_IOR('X', 31, struct fsxattr)`, which has this layout on every supported architecture.
    const GET_ATTRIBUTES: u32 =
        (2 << 30) | ((size_of::<Attributes>() as u32) << 16) | (0x58 << 8) | 31;
    // SAFETY: all zeroes are a valid value.
    let mut attributes: Attributes = unsafe { zeroed() };
    // SAFETY: the kernel writes one such structure into a local value.
    let result =
        unsafe { libc::ioctl(directory.as_raw_fd(), GET_ATTRIBUTES as _, &raw mut attributes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(attributes.project)
}

/// Returns the bytes and inodes that a project uses on the file system of `directory`.
pub(super) fn project_usage(directory: &OwnedFd, project: u32) -> io::Result<(u64, u64)> {
    const PROJECT_QUOTA: u32 = 2;
    const GET: u32 = 0x80_0007;
    // SAFETY: all zeroes are a valid value.
    let mut quota: libc::dqblk = unsafe { zeroed() };
    // SAFETY: the kernel writes one such structure into a local value.
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
        let here = open_directory(&std::env::temp_dir()).expect("a directory");
        assert_eq!(size_of::<Attributes>(), 28);
        match project_id(&here) {
            Ok(project) => assert_eq!(project, 0),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
        assert!(project_usage(&here, 4_000_000_000).is_err(), "nobody has such a project");
    }
}
