//! Files that people write: their text as a tree that knows where everything stands, and what can be wrong with it.
//!
//! Text goes in, a [`Document`] or a [`Problem`] comes out. What the keys of a file mean is the business of its owner:
//! the mapping of the StatsD side, the options file of the Kubernetes side. Nothing here knows either.

mod nearest;
mod problem;
mod scalar;
mod values;
mod yaml;

pub(crate) use nearest::nearest;
pub(crate) use problem::Place;
pub use problem::{Problem, ProblemClass, Severity};
pub(crate) use scalar::{Resolved, resolve};
pub(crate) use values::{Entry, Values};
pub(crate) use yaml::{Document, Node, NodeId, Notation, Scalar, Value};

/// Reads a file of text.
///
/// # Errors
/// In words, that it cannot be read, or where it is not UTF-8.
pub(crate) fn read(path: &std::path::Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: not UTF-8")
    })
}
