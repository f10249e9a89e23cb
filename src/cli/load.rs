//! The configuration files in use, and whether they are loaded for the first time.

use std::path::PathBuf;

/// A configuration file named by a flag or the options file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsFile {
    /// The path.
    pub path: String,
    /// The content in use; `None` when it is unusable and the flags allow starting without it.
    pub content: Option<Vec<u8>>,
    /// The error of the current file content.
    pub error: Option<String>,
}

/// The configuration files in use. They stay in use while their new content is invalid.
#[derive(Clone, Debug, Default)]
pub struct FilesInUse {
    /// The options file.
    pub options: Option<OptionsFile>,
    /// The custom resource configuration.
    pub custom: Option<OptionsFile>,
    /// The web configuration, which reloads itself.
    pub web_config: Option<PathBuf>,
    /// A content of the options file that the running process has rejected, and the reason.
    pub rejected: Option<(Vec<u8>, String)>,
}

/// The occasion on which flags and options file are resolved.
#[derive(Clone, Copy, Debug)]
pub enum Load<'a> {
    /// At start-up, when `--continue-without-config` may ignore an unreadable file.
    First,
    /// On a reload: an invalid file changes nothing and does not block other files.
    Again(&'a FilesInUse),
}

impl Load<'_> {
    /// Returns the reason why the running process has rejected this content of the options file, if it has.
    pub fn rejection(&self, content: &[u8]) -> Option<&str> {
        match self {
            Self::Again(FilesInUse { rejected: Some((rejected, reason)), .. })
                if rejected == content =>
            {
                Some(reason)
            }
            _ => None,
        }
    }
}
