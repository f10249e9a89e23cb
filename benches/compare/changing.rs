//! A directory tree of small files, and a writer that changes it and records its true size.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::explosion::Random;

/// Initial files per directory, and the number of file names that the writer uses in it.
const FILES: usize = 10;
const FILE_NAMES: u64 = 12;
/// Subdirectories of a directory that has any.
const SUBDIRECTORIES: usize = 1_000;
/// The largest file, in bytes.
const LARGEST: u64 = 8_000;
/// Interval between two batches of changes.
const TICK: Duration = Duration::from_millis(100);

/// A tree on a disk; dropping it removes it.
pub struct Tree {
    /// The root directory.
    pub root: PathBuf,
    /// Number of directories.
    pub directories: usize,
}

impl Tree {
    /// Creates a tree with this many files.
    pub fn make(root: PathBuf, files: usize) -> Result<Self> {
        // Left over from an aborted run.
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
        }
        let tree = Self { root, directories: files.div_ceil(FILES) };
        let mut random = Random(1);
        for directory in 0..tree.directories {
            let path = tree.directory(directory);
            fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
            for file in 0..FILES {
                fs::write(path.join(file.to_string()), content(&mut random))?;
            }
        }
        Ok(tree)
    }

    /// Returns the path of a directory. Every thousandth directory contains those that follow it.
    fn directory(&self, at: usize) -> PathBuf {
        let outer = self.root.join((at / SUBDIRECTORIES).to_string());
        if at.is_multiple_of(SUBDIRECTORIES) {
            outer
        } else {
            outer.join(format!("d{}", at % SUBDIRECTORIES))
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            eprintln!("{} stays: {error}", self.root.display());
        }
    }
}

fn content(random: &mut Random) -> Vec<u8> {
    vec![b'x'; usize::try_from(1 + random.next() % LARGEST).unwrap_or_default()]
}

/// The changes of a tree so far, in bytes on disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// Net growth.
    pub grown: i64,
    /// Sizes of the files that were created, removed or replaced.
    pub named: u64,
    /// Sum of the absolute size changes of files written in place.
    pub in_place: u64,
    /// Number of changes.
    pub count: u64,
}

/// A thread that makes a number of changes a second at random places of the tree. A quarter each creates a file,
/// removes one, replaces one by a new file of the same name, and writes one in place.
pub struct Writer {
    changes: Arc<Mutex<Changes>>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Writer {
    /// Starts the writer.
    pub fn start(tree: &Arc<Tree>, per_second: f64) -> Self {
        let (changes, done) = (Arc::<Mutex<Changes>>::default(), Arc::<AtomicBool>::default());
        let (tree, noted, stop) = (Arc::clone(tree), Arc::clone(&changes), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let (start, mut made, mut random) = (Instant::now(), 0_u64, Random(2));
            while !stop.load(Ordering::Relaxed) {
                let due = (start.elapsed().as_secs_f64() * per_second) as u64;
                while made < due {
                    change(&tree, &mut random, made % 4, &noted)?;
                    made += 1;
                }
                std::thread::sleep(TICK);
            }
            Ok(())
        });
        Self { changes, done, thread: Some(thread) }
    }

    /// Returns the changes so far.
    pub fn changes(&self) -> Changes {
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the writer.
    pub fn stop(mut self) -> Result<Changes> {
        self.done.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it runs")?;
        thread.join().map_err(|_| anyhow!("the writer panicked"))??;
        Ok(self.changes())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

fn change(tree: &Tree, random: &mut Random, how: u64, noted: &Mutex<Changes>) -> Result<()> {
    // An existing name, or a free one for a new file.
    let path = loop {
        let at = random.next() as usize % tree.directories;
        let path = tree.directory(at).join((random.next() % FILE_NAMES).to_string());
        if path.exists() == (how != 0) {
            break path;
        }
    };
    let held = |path: &Path| path.symlink_metadata().map_or(0, |file| file.blocks() * 512);
    let before = held(&path);
    let new = content(random);
    let mut changes = noted.lock().unwrap_or_else(PoisonError::into_inner);
    match how {
        0 => fs::write(&path, new)?,
        1 => fs::remove_file(&path)?,
        2 => {
            let beside = path.with_extension("new");
            fs::write(&beside, new)?;
            fs::rename(beside, &path)?;
        }
        _ => File::options().write(true).truncate(true).open(&path)?.write_all(&new)?,
    }
    let after = held(&path);
    match how {
        3 => changes.in_place += before.abs_diff(after),
        _ => changes.named += before + after,
    }
    changes.grown += after.cast_signed() - before.cast_signed();
    changes.count += 1;
    Ok(())
}

/// Returns the disk usage of a tree in bytes, as reported by `du`.
pub fn du(root: &Path) -> Result<f64> {
    let arguments = ["-s", "-x", "--block-size=1"];
    let output = std::process::Command::new("du").args(arguments).arg(root).output()?;
    ensure!(output.status.success(), "du: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split('\t').next().unwrap_or_default().parse()?)
}
