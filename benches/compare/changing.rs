//! A tree of small files, and a writer that changes it and knows at each moment what it holds.

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

/// Files of a directory at first, and how many names it has for them.
const FILES: usize = 10;
const NAMES: u64 = 12;
/// Directories in one that has some.
const INNER: usize = 1_000;
/// The largest file, in bytes.
const LARGEST: u64 = 8_000;
/// How often the writer writes.
const TICK: Duration = Duration::from_millis(100);

/// A tree on a disk; dropping it removes it.
pub struct Tree {
    /// Where it is.
    pub root: PathBuf,
    /// Directories in it.
    pub directories: usize,
}

impl Tree {
    /// Makes one of so many files.
    pub fn make(root: PathBuf, files: usize) -> Result<Self> {
        // What a run that was ended has left.
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

    /// Where a directory is: each thousandth one holds those after it.
    fn directory(&self, at: usize) -> PathBuf {
        let outer = self.root.join((at / INNER).to_string());
        if at.is_multiple_of(INNER) { outer } else { outer.join(format!("d{}", at % INNER)) }
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

/// What has been done to a tree, in bytes on the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// How much more it holds.
    pub grown: i64,
    /// What files held that were created, removed or replaced.
    pub named: u64,
    /// How much files have grown and shrunk that were written in place.
    pub in_place: u64,
    /// How many there were.
    pub count: u64,
}

/// A thread that changes so many files a second, anywhere in the tree: one in four is created, removed, replaced by a new
/// one under its name, and written in place.
pub struct Writer {
    changes: Arc<Mutex<Changes>>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Writer {
    /// Starts it.
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

    /// What it has done.
    pub fn changes(&self) -> Changes {
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it.
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
    // A name that is there, or for a new file one that is not.
    let path = loop {
        let at = random.next() as usize % tree.directories;
        let path = tree.directory(at).join((random.next() % NAMES).to_string());
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

/// What `du` says that a tree holds, in bytes on the disk.
pub fn du(root: &Path) -> Result<f64> {
    let arguments = ["-s", "-x", "--block-size=1"];
    let output = std::process::Command::new("du").args(arguments).arg(root).output()?;
    ensure!(output.status.success(), "du: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split('\t').next().unwrap_or_default().parse()?)
}
