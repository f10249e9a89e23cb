//! Loads the mapping file into a [`Mapper`], for the pipeline and for the commands that run without one.

use std::path::{Path, PathBuf};

use crate::config_file;
use crate::mapper::{Mapper, Problem};

/// The number of warnings about a mapping file that are logged.
const MAX_WARNINGS: usize = 10;

/// An error while loading a mapping file.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// The file cannot be read.
    #[error("cannot read mapping file {path}: {reason}", path = path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// The file is not a valid mapping.
    #[error("mapping file {path} is not valid: {}", Problem::list(problems), path = path.display())]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// All problems found.
        problems: Vec<Problem>,
    },
}

impl MappingError {
    /// Returns the first problem and the number of further ones.
    pub(crate) fn first(&self) -> String {
        match self {
            Self::Read { reason, .. } => reason.clone(),
            Self::Invalid { problems, .. } => {
                let at = |problem: &&Problem| (problem.line, problem.column);
                let first =
                    problems.iter().min_by_key(at).map_or_else(String::new, Problem::to_string);
                match problems.len() {
                    0 | 1 => first,
                    count => format!("{first} (and {} more)", count - 1),
                }
            }
        }
    }
}

/// Loads a mapping file.
///
/// # Errors
/// Fails if the file cannot be read or is invalid.
pub(crate) fn load(path: &Path) -> Result<Mapper, MappingError> {
    let text = config_file::read(path)
        .map_err(|error| MappingError::Read { path: path.to_owned(), reason: error.to_string() })?;
    config_file::reader::forget_applied(path);
    Mapper::from_yaml(&text)
        .map_err(|problems| MappingError::Invalid { path: path.to_owned(), problems })
}

/// Loads a mapping file and logs its warnings.
///
/// # Errors
/// Fails if the file cannot be read or is invalid.
pub(crate) fn load_and_warn(path: &Path) -> Result<Mapper, MappingError> {
    let mapper = load(path)?;
    let file = path.display();
    for warning in mapper.warnings().iter().take(MAX_WARNINGS) {
        tracing::warn!(%file, "{warning}");
    }
    let others = mapper.warnings().len().saturating_sub(MAX_WARNINGS);
    if others > 0 {
        tracing::warn!(%file, others, "There are more warnings; `kstatd check-config` prints all");
    }
    Ok(mapper)
}
