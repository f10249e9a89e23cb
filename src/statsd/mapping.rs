//! The mapping file: from its path to a [`Mapper`], for the pipeline and for the commands that use it without one.

use std::path::{Path, PathBuf};

use super::mapper::{Mapper, Problem};
use crate::config_file;

/// Why a mapping file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// It cannot be read.
    #[error("cannot read mapping file {path}: {reason}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// It is no valid mapping.
    #[error("mapping file {path} is not valid: {}", Problem::list(problems), path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Every problem found.
        problems: Vec<Problem>,
    },
}

/// Loads a mapping file.
///
/// # Errors
/// What keeps it from being used.
pub(crate) fn load(path: &Path) -> Result<Mapper, MappingError> {
    let text = config_file::read(path)
        .map_err(|reason| MappingError::Read { path: path.to_owned(), reason })?;
    Mapper::from_yaml(&text)
        .map_err(|problems| MappingError::Invalid { path: path.to_owned(), problems })
}

/// The same, with what it warns of in the log.
///
/// # Errors
/// What keeps it from being used.
pub(crate) fn load_and_warn(path: &Path) -> Result<Mapper, MappingError> {
    let mapper = load(path)?;
    for warning in mapper.warnings() {
        tracing::warn!(file = %path.display(), "{warning}");
    }
    Ok(mapper)
}
