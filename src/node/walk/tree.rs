//! A cached directory tree.
//!
//! A directory whose modification and status change times are unchanged has the same entries, so
//! one `statx` replaces reading it and its files. In a directory that changed, only [files] that
//! are new are examined. Three kinds of changes leave no trace in the directory's timestamps:
//!
//! - A file written in place changes only its own timestamps, and a replaced file may reuse the
//!   inode of the old one. So every directory is fully rescanned within [`PASSES`] passes, and in
//!   the next pass if a file was being written or had grown significantly.
//! - A change during a read, or just after it, may not advance the timestamps, because the kernel's
//!   coarse clock stands still for milliseconds. So a directory that changed within two seconds
//!   before a read is read again.
//! - A new hard link in another directory turns a file into a shared one, which is counted once.
//!   Until the directory of the first link is rescanned, the file counts twice.
//!
//! [files]: super::files

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::files::{FileHasher, Files, FilesBuilder};
use super::metrics::Call;
use super::rate_limiter::{RateLimiter, Stopped};
use crate::node::figure::Figure;
use crate::node::store::now;
use crate::node::sys::{self, Entry, FileAttributes};
use crate::util::descriptors;

/// The maximum depth; each level holds a descriptor open, and a few hundred bytes of stack.
const MAX_DEPTH: usize = 1000;

/// The walk holds at most one of this many descriptors. The others are for connections and files.
const DESCRIPTOR_SHARE: usize = 4;

/// The size of the directory read buffer, in bytes.
const BUFFER: usize = 32 << 10;

/// The number of passes within which each directory is rescanned regardless of its timestamps.
const PASSES: u8 = 16;

/// The seconds before a read in which a change may leave no trace in the timestamps. A file changed
/// within them counts as being written.
const TIMESTAMP_SLACK: i64 = 2;

/// In-place changes are significant above this fraction of the tree (1/1000), or above the size of
/// an average directory.
const SIGNIFICANT_SHARE: u64 = 1000;

/// Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    bytes: u64,
    inodes: u64,
}

impl Sum {
    const fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }

    const fn subtract(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.inodes = self.inodes.saturating_sub(other.inodes);
    }
}

/// A cached directory.
#[derive(Default)]
struct Directory {
    inode: u64,
    times: [i64; 4],
    /// True if the timestamps reveal every change since the last read.
    has_reliable_times: bool,
    /// True if the directory was ever read.
    is_known: bool,
    /// The usage of the directory itself and of its files with a single link.
    own: Sum,
    /// The files with a single link.
    files: Files,
    /// The files with several hard links.
    shared: Box<[(u64, u64)]>,
    children: Vec<(CString, Directory)>,
    /// Entries not remembered because the tree is at its limit, or that cannot be examined; their usage is missing from the
    /// figure.
    skipped: u64,
    /// The number of passes between full rescans, and how many are left until the next.
    rescan_interval: u8,
    passes_left: u8,
}

/// The result of reading a directory.
#[derive(Default)]
struct DirectoryScan {
    own: Sum,
    files: FilesBuilder,
    shared: Vec<(u64, u64)>,
    /// The names of the subdirectories, and the memory that they will take.
    names: Vec<CString>,
    names_size: usize,
    /// Subdirectories, and files with several hard links, that did not fit, and entries that cannot be examined.
    skipped: u64,
    /// The bytes by which known files have grown and shrunk.
    changed_bytes: u64,
    /// True if a file was being written.
    is_busy: bool,
}

impl DirectoryScan {
    /// Adds a subdirectory, if all of them fit into the limit of the tree. Most are in memory
    /// already, so new ones are only charged when they are entered.
    fn directory(&mut self, name: &CStr, limit: usize) {
        self.names_size += entry_size(name);
        if self.names_size <= limit {
            self.names.push(name.to_owned());
        } else {
            self.skipped += 1;
        }
    }
}

/// A cached directory tree.
#[derive(Default)]
pub(super) struct Tree {
    root: Directory,
    totals: Totals,
    /// The start time of the last complete pass.
    whole: Option<f64>,
}

/// The totals of a tree.
#[derive(Default)]
struct Totals {
    sum: Sum,
    /// Files with several hard links, by inode: the number of links in the tree, and bytes.
    shared: HashMap<u64, (u32, u64)>,
    /// The number of directories read, and of entries not examined: directories not read yet, and
    /// skipped entries.
    known: u64,
    unknown: u64,
    /// True if there are directories below the maximum depth, whose contents are unknown.
    is_cut: bool,
    /// Entries skipped for lack of memory, or because they cannot be examined; part of `unknown`.
    skipped: u64,
    /// The memory of the entire tree and its limit, in bytes.
    memory: usize,
    limit: usize,
    /// Staggers the rescans of directories.
    turn: u8,
    keys: FileHasher,
}

/// The memory of a file with several hard links: its entry in the directory and, twice as large, in
/// the table of the tree.
const SHARED: usize = 3 * size_of::<(u64, u64)>();

/// Returns the memory that a directory takes in its parent, including allocator overhead for its
/// name.
fn entry_size(name: &CStr) -> usize {
    size_of::<(CString, Directory)>() + (name.count_bytes() + 1).next_multiple_of(16)
}

impl Directory {
    /// Returns the memory of the directory's own contents, without those of its subdirectories.
    fn contents(&self) -> usize {
        let children: usize = self.children.iter().map(|(name, _)| entry_size(name)).sum();
        children + self.files.bytes_held() + self.shared.len() * SHARED
    }
}

impl Totals {
    /// Returns whether this many more bytes fit into the limit.
    const fn has_room(&self, bytes: usize) -> bool {
        self.memory.saturating_add(bytes) <= self.limit
    }

    /// Replaces the number of entries that a directory has skipped.
    const fn skip(&mut self, before: u64, after: u64) {
        self.skipped = self.skipped.saturating_sub(before) + after;
        self.unknown = self.unknown.saturating_sub(before) + after;
    }

    fn coverage(&self) -> f64 {
        if self.is_cut {
            return 0.0;
        }
        if self.unknown == 0 {
            return 1.0;
        }
        self.known as f64 / (self.known + self.unknown) as f64
    }

    fn add_shared(&mut self, inode: u64, bytes: u64) {
        let (names, counted) = self.shared.entry(inode).or_default();
        if *names == 0 {
            self.sum.inodes += 1;
        }
        self.sum.bytes = self.sum.bytes.saturating_sub(*counted) + bytes;
        (*names, *counted) = (*names + 1, bytes);
    }

    fn take_shared(&mut self, inode: u64) {
        let Some((names, bytes)) = self.shared.get_mut(&inode) else { return };
        *names -= 1;
        if *names == 0 {
            self.sum.subtract(Sum { bytes: *bytes, inodes: 1 });
            self.shared.remove(&inode);
        }
    }

    /// Removes a directory and everything below it.
    fn forget(&mut self, directory: Directory) {
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            if directory.is_known {
                self.known -= 1;
            } else {
                self.unknown = self.unknown.saturating_sub(1);
            }
            self.sum.subtract(directory.own);
            self.skip(directory.skipped, 0);
            self.memory = self.memory.saturating_sub(directory.contents());
            directory.shared.iter().for_each(|(inode, _)| self.take_shared(*inode));
            open.extend(directory.children.into_iter().map(|(_, child)| child));
        }
    }
}

impl Tree {
    /// Returns the memory of the tree in bytes.
    pub(super) const fn memory(&self) -> usize {
        self.totals.memory
    }

    /// Returns the number of entries skipped for lack of memory, or because they cannot be examined.
    pub(super) const fn skipped(&self) -> u64 {
        self.totals.skipped
    }

    /// Walks the tree once and returns its usage, or `None` if the directory does not exist. Calls
    /// `publish` with partial results from time to time. Every directory is reread within [`PASSES`]
    /// passes. The tree takes at most `memory` bytes; entries that do not fit are skipped and lower
    /// the coverage of the figure.
    pub(super) fn pass(
        &mut self,
        path: &Path,
        limiter: &mut RateLimiter,
        memory: usize,
        mut publish: impl FnMut(Figure),
    ) -> Result<Option<Figure>, Stopped> {
        let begun = now();
        limiter.call(Call::Open)?;
        let root = match sys::open_directory(path) {
            Ok(root) => root,
            Err(error) => {
                let gone = error.kind() == io::ErrorKind::NotFound;
                if !gone {
                    limiter.metrics.errors.inc();
                    tracing::debug!(path = %path.display(), %error, "Cannot be walked");
                }
                *self = Self::default();
                return Ok(None);
            }
        };
        limiter.call(Call::Stat)?;
        let seen = match sys::stat(&root, c"") {
            Ok(seen) => seen,
            Err(error) => {
                limiter.metrics.errors.inc();
                tracing::debug!(path = %path.display(), %error, "Cannot be walked");
                return Ok(None);
            }
        };
        // A tree that now has less memory starts over.
        if seen.inode != self.root.inode || self.totals.memory > memory {
            *self = Self::default();
        }
        self.totals.limit = memory;
        if !self.root.is_known && self.totals.unknown == 0 {
            self.totals.unknown = 1;
        }
        let whole = self.whole;
        let was_cut = std::mem::take(&mut self.totals.is_cut);
        let mut visit = Visit {
            totals: &mut self.totals,
            limiter,
            device: seen.device,
            is_local: sys::is_local(&root),
            max_depth: MAX_DEPTH.min(descriptors::of_process().limit / DESCRIPTOR_SHARE),
            buffer: vec![0; BUFFER],
            publish: &mut |sum: Sum, coverage| {
                publish(Figure {
                    bytes: sum.bytes,
                    inodes: Some(sum.inodes),
                    at: whole.unwrap_or_else(now),
                    coverage: if was_cut { 0.0 } else { coverage },
                });
            },
        };
        visit.visit_open(&mut self.root, &root, seen, 0)?;
        limiter.metrics.count(Call::Close);
        let coverage = self.totals.coverage();
        self.whole = Some(begun);
        let Sum { bytes, inodes } = self.totals.sum;
        Ok(Some(Figure { bytes, inodes: Some(inodes), at: begun, coverage }))
    }
}

/// Returns true if an error shows that a directory is not there any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// The state of one pass.
struct Visit<'a> {
    totals: &'a mut Totals,
    limiter: &'a mut RateLimiter,
    device: u64,
    /// The kernel knows all attributes of the file system, without asking a server.
    is_local: bool,
    max_depth: usize,
    buffer: Vec<u8>,
    publish: &'a mut dyn FnMut(Sum, f64),
}

impl Visit<'_> {
    /// Visits a directory by its name in its parent. Returns false if it is gone, or no longer a directory of this file
    /// system.
    fn visit(
        &mut self,
        directory: &mut Directory,
        parent: &OwnedFd,
        name: &CStr,
        depth: usize,
    ) -> Result<bool, Stopped> {
        if depth > self.max_depth {
            self.limiter.metrics.errors.inc();
            self.totals.is_cut = true;
            return Ok(true);
        }
        // A directory that needs neither a read nor a descent is only stat'ed. A new one is not opened before it is known to belong
        // to this file system: opening would mount an automount, and wait for a server that is gone.
        let needs_no_read = directory.is_known
            && directory.children.is_empty()
            && directory.has_reliable_times
            && directory.passes_left > 0;
        if needs_no_read || !directory.is_known {
            self.limiter.call(Call::Stat)?;
            let is_exact = self.is_local || !needs_no_read;
            let stat = if is_exact { sys::known_stat } else { sys::stat };
            let seen = stat(parent, name);
            match &seen {
                Ok(seen) if !seen.is_directory || seen.device != self.device => return Ok(false),
                Err(error) if is_gone(error) => return Ok(false),
                // Opening it tells whether something is mounted here that another user may not see.
                _ => {}
            }
            let is_unchanged = |seen: FileAttributes| {
                seen.inode == directory.inode && seen.times == directory.times
            };
            if needs_no_read && seen.is_ok_and(is_unchanged) {
                self.limiter.metrics.entries.inc();
                directory.passes_left -= 1;
                self.limiter.metrics.unchanged.inc();
                return Ok(true);
            }
        }
        self.limiter.call(Call::Open)?;
        let inside = match sys::open_subdirectory(parent, name) {
            Ok(inside) => inside,
            Err(error) => return Ok(self.open_failed(&error)),
        };
        self.limiter.call(Call::Stat)?;
        self.limiter.metrics.entries.inc();
        let seen = sys::stat(&inside, c"");
        let exists = match seen {
            Ok(seen) if seen.device == self.device => {
                self.visit_open(directory, &inside, seen, depth)?;
                true
            }
            _ => false,
        };
        self.limiter.metrics.count(Call::Close);
        Ok(exists)
    }

    /// Interprets the error of opening a directory, or of its attributes. Returns true unless it shows that the directory is gone.
    fn open_failed(&mut self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            _ if is_gone(error) => false,
            Some(libc::EXDEV) => false,
            code => {
                // Without free descriptors the directory is treated as too deep: the open ones
                // belong to its ancestors.
                self.totals.is_cut |= matches!(code, Some(libc::EMFILE | libc::ENFILE));
                self.limiter.metrics.errors.inc();
                true
            }
        }
    }

    /// Visits an open directory.
    fn visit_open(
        &mut self,
        directory: &mut Directory,
        open: &OwnedFd,
        seen: FileAttributes,
        depth: usize,
    ) -> Result<(), Stopped> {
        if directory.is_known && directory.inode != seen.inode {
            // The name now belongs to another directory.
            self.totals.forget(std::mem::take(directory));
            self.totals.unknown += 1;
        }
        let is_same =
            directory.is_known && directory.has_reliable_times && directory.times == seen.times;
        if is_same && directory.passes_left > 0 {
            directory.passes_left -= 1;
            self.limiter.metrics.unchanged.inc();
        } else {
            self.read(directory, open, seen)?;
        }
        let mut index = 0;
        while let Some((name, child)) = directory.children.get_mut(index) {
            if self.visit(child, open, name, depth + 1)? {
                index += 1;
            } else {
                let (name, child) = directory.children.swap_remove(index);
                self.totals.memory = self.totals.memory.saturating_sub(entry_size(&name));
                self.totals.forget(child);
            }
        }
        Ok(())
    }

    /// Reads a directory and examines its new entries, or all of them if a rescan is due.
    fn read(
        &mut self,
        directory: &mut Directory,
        open: &OwnedFd,
        seen: FileAttributes,
    ) -> Result<(), Stopped> {
        let begun = now() as i64;
        let mut found = DirectoryScan {
            own: Sum { bytes: seen.bytes, inodes: 1 },
            // The known files stay in memory meanwhile.
            files: FilesBuilder::new(self.totals.limit.saturating_sub(self.totals.memory)),
            ..DirectoryScan::default()
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            self.limiter.call(Call::Read)?;
            let read = match sys::read_directory(open, &mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) => {
                    // The directory was removed meanwhile or is unreadable: keep the cached state.
                    tracing::trace!(%error, "A directory cannot be read to its end");
                    self.limiter.metrics.errors.inc();
                    self.buffer = buffer;
                    return Ok(());
                }
            };
            self.limiter.bytes(read);
            for entry in sys::entries(&buffer[..read]) {
                if entry.is_directory {
                    found.directory(entry.name, self.totals.limit);
                } else {
                    self.entry(directory, open, seen.device, &entry, &mut found)?;
                }
            }
        }
        self.buffer = buffer;
        let (mut names, skipped) = (std::mem::take(&mut found.names), found.skipped);
        self.totals.memory = self.totals.memory.saturating_sub(directory.contents());
        self.keep_children(directory, &mut names);
        self.enter(directory, seen, found);
        let skipped = skipped + self.add_children(directory, names);
        self.totals.skip(directory.skipped, skipped);
        directory.skipped = skipped;
        // The status change time, which users cannot set, changes with each entry too.
        directory.has_reliable_times = seen.times[2] < begun - TIMESTAMP_SLACK;
        (self.publish)(self.totals.sum, self.totals.coverage());
        Ok(())
    }

    /// Examines an entry that is not known to be a directory.
    fn entry(
        &mut self,
        directory: &Directory,
        open: &OwnedFd,
        device: u64,
        entry: &Entry<'_>,
        found: &mut DirectoryScan,
    ) -> Result<(), Stopped> {
        let key = self.totals.keys.key(entry.name.to_bytes(), entry.inode);
        let before = directory.files.bytes(key);
        if let Some(bytes) = before
            && directory.passes_left > 0
        {
            found.own.add(Sum { bytes, inodes: 1 });
            found.files.add(key, bytes);
            return Ok(());
        }
        self.limiter.call(Call::Stat)?;
        self.limiter.metrics.entries.inc();
        let stat = if self.is_local { sys::known_stat } else { sys::stat };
        let file = match stat(open, entry.name) {
            Ok(file) => file,
            // A file that has been removed meanwhile uses nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => {
                self.limiter.metrics.errors.inc();
                found.skipped += 1;
                return Ok(());
            }
        };
        if file.device != device {
            return Ok(());
        }
        if file.is_directory {
            found.directory(entry.name, self.totals.limit);
            return Ok(());
        }
        let before = if file.is_shared {
            let more = (found.shared.len() + 1).saturating_sub(directory.shared.len());
            if !self.totals.has_room(more * SHARED) {
                found.skipped += 1;
                return Ok(());
            }
            found.shared.push((file.inode, file.bytes));
            self.totals.shared.get(&file.inode).map(|(_, bytes)| *bytes)
        } else {
            found.own.add(Sum { bytes: file.bytes, inodes: 1 });
            found.files.add(key, file.bytes);
            before
        };
        found.changed_bytes += before.map_or(0, |before| before.abs_diff(file.bytes));
        // Uses the status change time, which users cannot set.
        found.is_busy |= file.times[2] >= now() as i64 - TIMESTAMP_SLACK;
        Ok(())
    }

    /// Replaces the cached state by the result of a read and schedules the next full rescan.
    fn enter(&mut self, directory: &mut Directory, seen: FileAttributes, found: DirectoryScan) {
        let totals = &mut *self.totals;
        let DirectoryScan { own, files, shared, changed_bytes, is_busy, .. } = found;
        if !directory.is_known {
            // New directories start with the longest interval, staggered over the passes.
            (directory.rescan_interval, directory.passes_left) = (PASSES, totals.turn % PASSES);
            totals.turn = totals.turn.wrapping_add(1);
            (totals.known, totals.unknown) = (totals.known + 1, totals.unknown.saturating_sub(1));
        } else if changed_bytes > totals.sum.bytes / totals.known.max(SIGNIFICANT_SHARE) {
            // Files that were written in place are likely to be written again.
            (directory.rescan_interval, directory.passes_left) = (1, 0);
        } else if directory.passes_left == 0 {
            directory.rescan_interval = directory.rescan_interval.saturating_mul(2).min(PASSES);
            directory.passes_left = directory.rescan_interval - 1;
        } else {
            directory.passes_left -= 1;
        }
        if is_busy {
            directory.passes_left = 0;
        }
        totals.sum.subtract(directory.own);
        totals.sum.add(own);
        // Adds before removing, so that a file in both never drops to zero links.
        shared.iter().for_each(|(inode, bytes)| totals.add_shared(*inode, *bytes));
        directory.shared.iter().for_each(|(inode, _)| totals.take_shared(*inode));
        (directory.inode, directory.times) = (seen.inode, seen.times);
        totals.memory += shared.len() * SHARED;
        // Without room for them, the files are examined on every read of the directory.
        directory.files =
            if totals.has_room(files.bytes_held()) { files.finish() } else { Files::default() };
        totals.memory += directory.files.bytes_held();
        (directory.own, directory.is_known) = (own, true);
        directory.shared = shared.into_boxed_slice();
    }

    /// Removes the subdirectories that are not among `names`, and the known ones from `names`.
    fn keep_children(&mut self, directory: &mut Directory, names: &mut Vec<CString>) {
        names.sort_unstable();
        names.dedup();
        let (totals, children) = (&mut *self.totals, &mut directory.children);
        children.retain_mut(|(name, child)| {
            let is_kept = names.binary_search(name).is_ok();
            if is_kept {
                totals.memory += entry_size(name);
            } else {
                totals.forget(std::mem::take(child));
            }
            is_kept
        });
        children.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        names.retain(|name| children.binary_search_by(|(of, _)| of.cmp(name)).is_err());
    }

    /// Adds new subdirectories while there is room. Returns the number of skipped ones.
    fn add_children(&mut self, directory: &mut Directory, mut names: Vec<CString>) -> u64 {
        let (totals, before) = (&mut *self.totals, names.len());
        names.retain(|name| {
            let size = entry_size(name);
            let fits = totals.has_room(size);
            totals.memory += if fits { size } else { 0 };
            fits
        });
        totals.unknown += names.len() as u64;
        let skipped = before - names.len();
        directory.children.reserve_exact(names.len());
        directory.children.extend(names.into_iter().map(|name| (name, Directory::default())));
        directory.children.shrink_to_fit();
        skipped as u64
    }
}
