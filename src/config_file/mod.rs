//! Configuration files: reading them, parsing YAML into a tree with source positions, and reporting problems.
//!
//! Text goes in, a [`Document`] or a [`Problem`] comes out. The owner of a file interprets its keys: the StatsD
//! mapping, or the options file of the Kubernetes side.

mod nearest;
mod problem;
pub(crate) mod reader;
mod scalar;
mod values;
mod yaml;

pub(crate) use nearest::{hint, nearest};
pub(crate) use problem::Position;
pub use problem::{Problem, ProblemClass, Severity};
pub(crate) use scalar::{Resolved, resolve};
pub(crate) use values::{Entry, Values};
pub(crate) use yaml::{Document, Node, Notation, Scalar, Value};

/// The reason why a file has no text.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// The line has a byte that is not text in this encoding.
    #[error("line {0}: not {1}")]
    NotText(usize, &'static str),
}

/// Reads a text file.
///
/// # Errors
/// The file cannot be read, or is neither UTF-8 nor UTF-16.
pub(crate) fn read(path: &std::path::Path) -> Result<String, FileError> {
    text(reader::read(path)?)
}

/// Reads a text file without applying its content, see [`reader::peek`].
///
/// # Errors
/// As [`read`].
pub(crate) fn peek(path: &std::path::Path) -> Result<String, FileError> {
    text(reader::peek(path)?)
}

/// Decodes the content of a file: UTF-8, or UTF-16 with a byte order mark, which YAML allows.
///
/// # Errors
/// The line of the first byte that is neither.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, FileError> {
    if let Some(text) = utf_16(&bytes) {
        return text.map_err(|valid| not_encoded(valid.as_bytes(), "UTF-16"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        not_encoded(valid, "UTF-8")
    })
}

/// Returns the error for a file whose first part, `valid`, is in `encoding`, and the next character is not.
fn not_encoded(valid: &[u8], encoding: &'static str) -> FileError {
    FileError::NotText(valid.iter().filter(|byte| **byte == b'\n').count() + 1, encoding)
}

/// Decodes text that begins with a UTF-16 byte order mark; `None` if it does not.
///
/// # Errors
/// The text before the first unit that is not UTF-16.
fn utf_16(bytes: &[u8]) -> Option<Result<String, String>> {
    let unit: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let (pairs, odd) = bytes.as_chunks::<2>();
    let mut text = String::new();
    for unit in char::decode_utf16(pairs.iter().skip(1).map(|pair| unit(*pair))) {
        match unit {
            Ok(character) => text.push(character),
            Err(_) => return Some(Err(text)),
        }
    }
    Some(if odd.is_empty() { Ok(text) } else { Err(text) })
}
