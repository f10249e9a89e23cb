//! The options file where it lies: read, merged over the flags, and what happens where it cannot be used.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, ConfigErrors};
use super::kube_args::KubeArgs;
use super::options_file;
use crate::config_file::{self, Problem, ProblemClass, Severity};
use crate::server::web_config::WebConfig;

/// An options file that is named by `--config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsFile {
    /// Its path.
    pub path: String,
    /// Its content, `None` when it cannot be used and the flags say to start without it.
    pub content: Option<Vec<u8>>,
}

/// At which time flags and options file are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// At the start, when `--continue-without-config` may do without the file.
    First,
    /// While the process runs: a file that cannot be used changes nothing.
    Again,
}

/// Reads the options file, if one is named, into `args`, which stay as they are when it cannot be used.
///
/// # Errors
///
/// When it cannot be used, with `args` as they were, unless this is the start, the file cannot even be read
/// and the flags say to go on without it.
pub(super) fn merge_options_file(
    args: &mut KubeArgs,
    load: Load,
) -> Result<Option<OptionsFile>, ConfigErrors> {
    let path = args.config.clone();
    let tolerant = args.continue_without_config && load == Load::First;
    let without = |error: &ConfigErrors| {
        tracing::warn!(%error, "running without the options file until it is usable");
        Ok(Some(OptionsFile { path: path.clone(), content: None }))
    };
    let mut merged = args.clone();
    match read_options_file(&mut merged) {
        Err(error) if tolerant => without(&error.into()),
        Err(error) => Err(error.into()),
        Ok(None) => Ok(None),
        Ok(Some(ReadOptions { path, content, problems })) => {
            let (errors, warnings): (Vec<Problem>, Vec<Problem>) =
                problems.into_iter().partition(|problem| problem.severity == Severity::Error);
            if !errors.is_empty() {
                let of_form = errors.iter().all(|problem| problem.class.is_of_form());
                let error = |problem: Problem| {
                    let reason = problem.to_string();
                    ConfigError::OptionsFile { path: path.clone(), reason }
                };
                let errors = ConfigErrors(errors.into_iter().map(error).collect());
                return if of_form && tolerant { without(&errors) } else { Err(errors) };
            }
            for problem in &warnings {
                tracing::warn!(file = path, "{problem}");
            }
            *args = merged;
            Ok(Some(OptionsFile { path, content: Some(content) }))
        }
    }
}

/// The files that flags and options file name, as far as the latter can be read, and those that these name, whether or
/// not they can be used.
#[must_use]
pub fn named_files(args: &KubeArgs) -> Vec<PathBuf> {
    let text = config_file::read(Path::new(&args.config));
    let merged = text.ok().map(|text| options_file::merge(&text, args).args);
    let KubeArgs { kubeconfig, custom_resource_config_file, tls_config, .. } =
        merged.as_ref().unwrap_or(args);
    let named = [&args.config, kubeconfig, custom_resource_config_file, tls_config];
    let named = named.into_iter().filter(|path| !path.is_empty()).map(PathBuf::from);
    named.chain(WebConfig::files(Path::new(tls_config))).collect()
}

/// An options file that was merged.
pub struct ReadOptions {
    /// Its path.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
    /// What is against its use, though it can be read: errors for a start, and warnings.
    pub problems: Vec<Problem>,
}

/// Reads the options file, if one is named, into `args`.
///
/// # Errors
///
/// When it cannot be read or understood. What it says may still be nothing to start with.
pub fn read_options_file(args: &mut KubeArgs) -> Result<Option<ReadOptions>, ConfigError> {
    if args.config.is_empty() {
        return Ok(None);
    }
    let path = args.config.clone();
    let text = match config_file::read(Path::new(&path)) {
        Ok(text) => text,
        Err(reason) => return Err(ConfigError::OptionsFile { path, reason }),
    };
    let merged = options_file::merge(&text, args);
    // A label key with several * selects nothing; all else of the file is understood.
    let unread = |problem: &&Problem| {
        problem.class.is_of_form() && problem.class != ProblemClass::SeveralWildcards
    };
    if let Some(problem) = merged.problems.iter().find(unread) {
        return Err(ConfigError::OptionsFile { path, reason: problem.to_string() });
    }
    *args = merged.args;
    Ok(Some(ReadOptions { path, content: text.into_bytes(), problems: merged.problems }))
}
