//! One tree of directories, and what is known of it from earlier passes.
//!
//! A directory whose two times are the same has the same entries, so its files are not looked at again, nor is it read: one
//! call tells. Of one that has changed only those [files] are looked at that were not there before. Three things that does
//! not tell, and how each is bounded:
//!
//! - A file that is written in place changes its own times alone, and one that was replaced may have got the number of the
//!   one before. So all in a directory is looked at after 16 passes at most (the flag says how many), and in the next one
//!   where something was being written when it was looked at, or has grown much.
//! - What changes while, or just after, a directory is read may leave it with the same times, as a clock of the kernel
//!   stands still for milliseconds. So what has changed within two seconds before it was read is read again.
//! - A second name in another directory makes a file one that is to be counted once; until the directory of the first name
//!   has its turn again it counts twice.
//!
//! [files]: super::files

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::cost::Call;
use super::files::{Files, Gathered, Keys};
use super::pace::{Ended, Pace};
use crate::node::figure::Figure;
use crate::node::store::now;
use crate::node::sys::{self, Seen};

/// Directories in one another that are followed; each holds a descriptor open.
const DEEPEST: u32 = 200;

/// Bytes that are read of a directory at a time.
const BUFFER: usize = 32 << 10;

/// Seconds before it was read in which a change may have left no trace, and a file that has changed is being written.
const BLURRED: i64 = 2;

/// In-place changes by more than one part in so many of a tree, or by more than an average directory, are much.
const MUCH: u64 = 1000;

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

    const fn take(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.inodes = self.inodes.saturating_sub(other.inodes);
    }
}

/// A directory.
#[derive(Default)]
struct Directory {
    inode: u64,
    stamp: [i64; 4],
    /// Whether its times tell of every change since it was read.
    is_sharp: bool,
    /// Whether it was ever read.
    is_known: bool,
    /// Itself, and what is in it and has one name.
    own: Sum,
    /// Files in it with one name.
    files: Files,
    /// Files in it with several names.
    shared: Box<[(u64, u64)]>,
    children: Vec<(CString, Directory)>,
    /// After how many passes all in it is looked at whatever its times are, and how many are left.
    every: u8,
    left: u8,
}

/// What a directory was found to hold.
#[derive(Default)]
struct Found {
    own: Sum,
    files: Gathered,
    shared: Vec<(u64, u64)>,
    /// Directories in it.
    names: Vec<CString>,
    /// Bytes by which files that were there before have grown and shrunk.
    drift: u64,
    /// Whether a file in it was being written.
    is_busy: bool,
}

/// What became of a directory.
enum Fate {
    /// It is there, or at least nobody says that it is not.
    There,
    /// It has gone, or is no directory of this file system any more.
    Gone,
}

/// A tree.
#[derive(Default)]
pub(super) struct Tree {
    root: Directory,
    totals: Totals,
    /// When the last pass that went through all of it began.
    whole: Option<f64>,
}

/// What is known of all of it.
#[derive(Default)]
struct Totals {
    sum: Sum,
    /// Files with several names, by inode: how many of the names are in the tree, and bytes.
    shared: HashMap<u64, (u32, u64)>,
    /// Directories that were read, and those that were not yet.
    known: u64,
    unknown: u64,
    /// Gives the directories turns that are apart.
    turn: u8,
    keys: Keys,
}

impl Totals {
    fn coverage(&self) -> f64 {
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
            self.sum.take(Sum { bytes: *bytes, inodes: 1 });
            self.shared.remove(&inode);
        }
    }

    /// Forgets a directory with all that is in it.
    fn forget(&mut self, directory: Directory) {
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            if directory.is_known {
                self.known -= 1;
            } else {
                self.unknown = self.unknown.saturating_sub(1);
            }
            self.sum.take(directory.own);
            directory.shared.iter().for_each(|(inode, _)| self.take_shared(*inode));
            open.extend(directory.children.into_iter().map(|(_, child)| child));
        }
    }
}

impl Tree {
    /// Goes through it; what is found, or nothing where there is no such directory. `show` is told what is known so far,
    /// again and again. In `passes` passes at most each directory is read again.
    pub(super) fn pass(
        &mut self,
        path: &Path,
        pace: &mut Pace,
        passes: u8,
        mut show: impl FnMut(Figure),
    ) -> Result<Option<Figure>, Ended> {
        let begun = now();
        pace.call(Call::Open)?;
        let root = match sys::open(path) {
            Ok(root) => root,
            Err(error) => {
                let gone = error.kind() == io::ErrorKind::NotFound;
                if !gone {
                    pace.cost.errors.inc();
                    tracing::debug!(path = %path.display(), %error, "cannot be walked");
                }
                *self = Self::default();
                return Ok(None);
            }
        };
        pace.call(Call::Stat)?;
        let Ok(seen) = sys::look(&root, c"") else {
            return Ok(None);
        };
        if seen.inode != self.root.inode {
            *self = Self::default();
        }
        if !self.root.is_known && self.totals.unknown == 0 {
            self.totals.unknown = 1;
        }
        let whole = self.whole;
        let mut visit = Visit {
            totals: &mut self.totals,
            pace,
            device: seen.device,
            passes: passes.max(1),
            buffer: vec![0; BUFFER],
            show: &mut |sum: Sum, coverage| {
                show(Figure {
                    bytes: sum.bytes,
                    inodes: Some(sum.inodes),
                    at: whole.unwrap_or_else(now),
                    coverage,
                });
            },
        };
        visit.inside(&mut self.root, &root, seen, 0)?;
        pace.cost.count(Call::Close);
        let coverage = self.totals.coverage();
        self.whole = Some(begun);
        let Sum { bytes, inodes } = self.totals.sum;
        Ok(Some(Figure { bytes, inodes: Some(inodes), at: begun, coverage }))
    }
}

/// One pass.
struct Visit<'a> {
    totals: &'a mut Totals,
    pace: &'a mut Pace,
    device: u64,
    passes: u8,
    buffer: Vec<u8>,
    show: &'a mut dyn FnMut(Sum, f64),
}

impl Visit<'_> {
    /// A directory by its name in another one.
    fn by_name(
        &mut self,
        directory: &mut Directory,
        parent: &OwnedFd,
        name: &CStr,
        depth: u32,
    ) -> Result<Fate, Ended> {
        if depth > DEEPEST {
            self.pace.cost.errors.inc();
            return Ok(Fate::There);
        }
        // One that has to be neither read nor gone into is looked at from outside.
        if directory.is_known
            && directory.children.is_empty()
            && directory.is_sharp
            && directory.left > 0
        {
            self.pace.call(Call::Stat)?;
            self.pace.cost.entries.inc();
            let Ok(seen) = sys::look(parent, name) else { return Ok(Fate::Gone) };
            if !seen.is_directory || seen.device != self.device {
                return Ok(Fate::Gone);
            }
            if seen.inode == directory.inode && seen.stamp == directory.stamp {
                directory.left -= 1;
                self.pace.cost.unchanged.inc();
                return Ok(Fate::There);
            }
        }
        self.pace.call(Call::Open)?;
        let inside = match sys::open_in(parent, name) {
            Ok(inside) => inside,
            Err(error) => return Ok(self.unopened(&error)),
        };
        self.pace.call(Call::Stat)?;
        self.pace.cost.entries.inc();
        let seen = sys::look(&inside, c"");
        let fate = match seen {
            Ok(seen) if seen.device == self.device => {
                self.inside(directory, &inside, seen, depth)?;
                Fate::There
            }
            _ => Fate::Gone,
        };
        self.pace.cost.count(Call::Close);
        Ok(fate)
    }

    /// What it means that a directory cannot be opened.
    fn unopened(&self, error: &io::Error) -> Fate {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => Fate::Gone,
            _ => {
                self.pace.cost.errors.inc();
                Fate::There
            }
        }
    }

    /// A directory that is open.
    fn inside(
        &mut self,
        directory: &mut Directory,
        open: &OwnedFd,
        seen: Seen,
        depth: u32,
    ) -> Result<(), Ended> {
        if directory.is_known && directory.inode != seen.inode {
            // Another one has its name.
            self.totals.forget(std::mem::take(directory));
            self.totals.unknown += 1;
        }
        let is_same = directory.is_known && directory.is_sharp && directory.stamp == seen.stamp;
        if is_same && directory.left > 0 {
            directory.left -= 1;
            self.pace.cost.unchanged.inc();
        } else {
            self.read(directory, open, seen)?;
        }
        let mut index = 0;
        while let Some((name, child)) = directory.children.get_mut(index) {
            match self.by_name(child, open, name, depth + 1)? {
                Fate::There => index += 1,
                Fate::Gone => {
                    let (_, child) = directory.children.swap_remove(index);
                    self.totals.forget(child);
                }
            }
        }
        Ok(())
    }

    /// Reads a directory, and looks at what is new in it; at everything if it is its turn.
    fn read(&mut self, directory: &mut Directory, open: &OwnedFd, seen: Seen) -> Result<(), Ended> {
        let begun = now() as i64;
        let mut found = Found { own: Sum { bytes: seen.bytes, inodes: 1 }, ..Found::default() };
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            self.pace.call(Call::Read)?;
            let read = match sys::records(open, &mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) => {
                    // It was removed meanwhile, or it cannot be read: what was known of it stays.
                    tracing::trace!(%error, "a directory cannot be read to its end");
                    self.pace.cost.errors.inc();
                    self.buffer = buffer;
                    return Ok(());
                }
            };
            self.pace.bytes(read);
            for entry in entries(&buffer[..read]) {
                if entry.is_directory {
                    found.names.push(entry.name.to_owned());
                } else {
                    self.entry(directory, open, seen.device, &entry, &mut found)?;
                }
            }
        }
        self.buffer = buffer;
        let names = std::mem::take(&mut found.names);
        self.enter(directory, seen, found);
        self.rename(directory, names);
        directory.is_sharp = seen.stamp[0].max(seen.stamp[2]) < begun - BLURRED;
        (self.show)(self.totals.sum, self.totals.coverage());
        Ok(())
    }

    /// What is not known to be a directory.
    fn entry(
        &mut self,
        directory: &Directory,
        open: &OwnedFd,
        device: u64,
        entry: &Entry<'_>,
        found: &mut Found,
    ) -> Result<(), Ended> {
        let key = self.totals.keys.key(entry.name.to_bytes(), entry.inode);
        let before = directory.files.bytes(key);
        if let Some(bytes) = before
            && directory.left > 0
        {
            found.own.add(Sum { bytes, inodes: 1 });
            found.files.add(key, bytes);
            return Ok(());
        }
        self.pace.call(Call::Stat)?;
        self.pace.cost.entries.inc();
        // What has gone meanwhile holds nothing.
        let Ok(file) = sys::look(open, entry.name) else { return Ok(()) };
        if file.device != device {
            return Ok(());
        }
        if file.is_directory {
            found.names.push(entry.name.to_owned());
            return Ok(());
        }
        let before = if file.is_shared {
            found.shared.push((file.inode, file.bytes));
            self.totals.shared.get(&file.inode).map(|(_, bytes)| *bytes)
        } else {
            found.own.add(Sum { bytes: file.bytes, inodes: 1 });
            found.files.add(key, file.bytes);
            before
        };
        found.drift += before.map_or(0, |before| before.abs_diff(file.bytes));
        // By the time that nobody can set.
        found.is_busy |= file.stamp[2] >= now() as i64 - BLURRED;
        Ok(())
    }

    /// Puts what was found in the place of what was known, and decides when all of it is looked at again.
    fn enter(&mut self, directory: &mut Directory, seen: Seen, found: Found) {
        let totals = &mut *self.totals;
        let Found { own, files, shared, drift, is_busy, .. } = found;
        if !directory.is_known {
            // At first all have long turns, which begin at different passes.
            (directory.every, directory.left) = (self.passes, totals.turn % self.passes);
            totals.turn = totals.turn.wrapping_add(1);
            (totals.known, totals.unknown) = (totals.known + 1, totals.unknown.saturating_sub(1));
        } else if drift > totals.sum.bytes / totals.known.max(MUCH) {
            // Files that are written in place will be so again.
            (directory.every, directory.left) = (1, 0);
        } else if directory.left == 0 {
            directory.every = directory.every.saturating_mul(2).min(self.passes);
            directory.left = directory.every - 1;
        } else {
            directory.left -= 1;
        }
        if is_busy {
            directory.left = 0;
        }
        totals.sum.take(directory.own);
        totals.sum.add(own);
        // In this order, so that one that stays does not go for a moment.
        shared.iter().for_each(|(inode, bytes)| totals.add_shared(*inode, *bytes));
        directory.shared.iter().for_each(|(inode, _)| totals.take_shared(*inode));
        (directory.inode, directory.stamp) = (seen.inode, seen.stamp);
        (directory.own, directory.files, directory.is_known) = (own, files.finish(), true);
        directory.shared = shared.into_boxed_slice();
    }

    /// Keeps the directories that are still in it, and adds those that are new.
    fn rename(&mut self, directory: &mut Directory, mut names: Vec<CString>) {
        names.sort_unstable();
        names.dedup();
        let mut before = std::mem::take(&mut directory.children);
        before.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut before = before.into_iter().peekable();
        directory.children.reserve_exact(names.len());
        for name in names {
            while let Some((_, gone)) = before.next_if(|(earlier, _)| *earlier < name) {
                self.totals.forget(gone);
            }
            let child = match before.next_if(|(earlier, _)| *earlier == name) {
                Some((_, child)) => child,
                None => {
                    self.totals.unknown += 1;
                    Directory::default()
                }
            };
            directory.children.push((name, child));
        }
        before.for_each(|(_, gone)| self.totals.forget(gone));
    }
}

/// An entry of a directory.
struct Entry<'a> {
    name: &'a CStr,
    inode: u64,
    /// Whether it is known to be a directory. Not every file system tells.
    is_directory: bool,
}

/// The entries in records of a directory.
fn entries(records: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    /// Where the length of a record, its type and its name stand; its number is before them, and eight bytes of the system's.
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
