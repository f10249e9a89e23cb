//! `kstatd profile diff`: draws the change between two saved profiles as a differential flame graph.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::server::pprof::flame_graph::{self, Caption, DrawError, Extent};
use crate::server::pprof::saved::{ReadError, SavedProfile};

/// The maximum size of a file, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// The reason why two profiles could not be compared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file is not a profile.
    #[error("{}: {source}", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// The error.
        source: ReadError,
    },
    /// The profiles have different sample types.
    #[error(
        "the base has {base}, the other profile {now}: only profiles of one type can be compared"
    )]
    Types {
        /// The type of the base.
        base: String,
        /// The type of the other profile.
        now: String,
    },
    /// The graph could not be drawn.
    #[error(transparent)]
    Draw(#[from] DrawError),
}

/// Reads two files and returns the differential flame graph as SVG. With `normalize`, the base is scaled to the total of
/// the other profile; otherwise CPU time is scaled to the same duration.
///
/// # Errors
///
/// A file is not a profile, the types differ, or the graph cannot be drawn.
pub(crate) fn diff(base: &Path, now: &Path, normalize: bool) -> Result<Vec<u8>, ProfileError> {
    compare(read(base)?, &read(now)?, normalize)
}

fn read(path: &Path) -> Result<SavedProfile, ProfileError> {
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    file.map_err(|source| ProfileError::File { path: path.to_owned(), source })?;
    SavedProfile::read(&bytes)
        .map_err(|source| ProfileError::Profile { path: path.to_owned(), source })
}

/// Draws the change between two profiles.
///
/// # Errors
///
/// The types differ, or the graph cannot be drawn.
pub(crate) fn compare(
    mut base: SavedProfile,
    now: &SavedProfile,
    normalize: bool,
) -> Result<Vec<u8>, ProfileError> {
    let kind = |profile: &SavedProfile| format!("{} ({})", profile.kind, profile.unit);
    if kind(&base) != kind(now) {
        return Err(ProfileError::Types { base: kind(&base), now: kind(now) });
    }
    let sum = |profile: &SavedProfile| {
        flame_graph::sum(&profile.stacks).ok_or(ProfileError::Draw(DrawError::TooLarge))
    };
    let (before, total) = (sum(&base)?, sum(now)?);
    let scale = Extent { total, duration: now.duration }.scale(
        Extent { total: before, duration: base.duration },
        &now.unit,
        normalize,
    );
    for value in base.stacks.values_mut() {
        *value = (*value as f64 * scale).round() as i64;
    }
    let caption = Caption {
        title: &format!("Change of {}", now.kind),
        subtitle: flame_graph::change(sum(&base)?, total, &now.unit),
        unit: &now.unit,
        empty: "The profile has no samples.",
    };
    Ok(caption.draw(&now.stacks, Some(&base.stacks))?)
}
