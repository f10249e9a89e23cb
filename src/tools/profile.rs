//! `kstatd profile diff`: draws the change between two saved profiles as a differential flame graph.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::server::pprof::flame_graph::{self, Caption, DrawError, Extent};
use crate::server::pprof::saved::SavedProfile;
use crate::tools::Result;

/// The maximum size of a file, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// Reads two files and returns the differential flame graph as SVG. With `normalize`, the base is scaled to the total of
/// the other profile; otherwise CPU time is scaled to the same duration.
///
/// # Errors
///
/// A file is not a profile, the types differ, or the graph cannot be drawn.
pub(crate) fn diff(base: &Path, now: &Path, normalize: bool) -> Result<Vec<u8>> {
    compare(read(base)?, &read(now)?, normalize)
}

fn read(path: &Path) -> Result<SavedProfile> {
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    file.map_err(|error| format!("{}: {error}", path.display()))?;
    SavedProfile::read(&bytes).map_err(|error| format!("{}: {error}", path.display()).into())
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
) -> Result<Vec<u8>> {
    let kind = |profile: &SavedProfile| format!("{} ({})", profile.kind, profile.unit);
    if kind(&base) != kind(now) {
        return Err(format!(
            "the base has {}, the other profile {}: only profiles of one type can be compared",
            kind(&base),
            kind(now)
        )
        .into());
    }
    let sum = |profile: &SavedProfile| flame_graph::sum(&profile.stacks).ok_or(DrawError::TooLarge);
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
