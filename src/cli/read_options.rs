//! Reads the options file, merges it over the flags and handles failures.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, ConfigErrors, Result};
use super::kube_args::KubeArgs;
use super::load::{FilesInUse, Load, OptionsFile};
use super::options_file;
use crate::config_file::{self, Problem, ProblemClass, Severity};
use crate::server::web_config::WebConfig;

/// Resolves flags after merging the options file. On a reload, an options file that cannot be
/// resolved leaves the one in use.
///
/// # Errors
///
/// All errors, unless the file is unreadable at start-up and the flags allow continuing without it.
pub(super) fn with_options_file<C>(
    args: &KubeArgs,
    load: Load<'_>,
    resolve: impl Fn(KubeArgs, Option<OptionsFile>) -> Result<C>,
) -> Result<C> {
    let mut merged = args.clone();
    let resolved = merge_options_file(&mut merged, load).and_then(|file| resolve(merged, file));
    match (resolved, load) {
        (Err(errors), Load::Again(FilesInUse { options: Some(in_use), .. })) => {
            let mut merged = args.clone();
            if let Some(content) = &in_use.content {
                merged = options_file::merge(&String::from_utf8_lossy(content), args, load).args;
            }
            resolve(merged, Some(OptionsFile { error: Some(errors.first()), ..in_use.clone() }))
        }
        (resolved, _) => resolved,
    }
}

/// Merges the options file, if there is one, into `args`, which stay unchanged on errors.
///
/// # Errors
///
/// When the file is unusable, unless it is unreadable at start-up and the flags allow continuing
/// without it.
fn merge_options_file(args: &mut KubeArgs, load: Load<'_>) -> Result<Option<OptionsFile>> {
    let path = args.config.clone();
    let tolerant = args.continue_without_config && matches!(load, Load::First);
    let without = |error: &ConfigErrors| {
        tracing::warn!(%error, "Running without the options file until it is valid");
        let error = Some(error.first());
        Ok(Some(OptionsFile { path: path.clone(), content: None, error }))
    };
    let mut merged = args.clone();
    match read_options_file(&mut merged, load) {
        Err(error) if tolerant => without(&error.into()),
        Err(error) => Err(error.into()),
        Ok(None) => Ok(None),
        Ok(Some(ReadOptions { content, problems })) => {
            if let Some(reason) = load.rejection(&content) {
                return Err(ConfigError::of_options(&path, &reason).into());
            }
            let (errors, warnings): (Vec<Problem>, Vec<Problem>) =
                problems.into_iter().partition(|problem| problem.severity == Severity::Error);
            if !errors.is_empty() {
                let of_form = errors.iter().all(|problem| problem.class.is_syntax_error());
                let error = |problem: &Problem| ConfigError::of_options(&path, problem);
                let errors = ConfigErrors(errors.iter().map(error).collect());
                return if of_form && tolerant { without(&errors) } else { Err(errors) };
            }
            for problem in &warnings {
                tracing::warn!(file = path, "{problem}");
            }
            *args = merged;
            Ok(Some(OptionsFile { path, content: Some(content), error: None }))
        }
    }
}

/// Returns the configuration files named by flags and by a readable options file, regardless of
/// whether they are valid.
pub fn named_files(args: &KubeArgs) -> Vec<PathBuf> {
    // An options file that just began to answer is left for the code that applies it.
    let text = config_file::peek(Path::new(&args.config));
    let merged = text
        .ok()
        .map(|text| options_file::merge(&text, args, Load::Again(&FilesInUse::default())).args);
    let KubeArgs { kubeconfig, custom_resource_config_file, tls_config, .. } =
        merged.as_ref().unwrap_or(args);
    let named = [&args.config, kubeconfig, custom_resource_config_file, tls_config];
    let named = named.into_iter().filter(|path| !path.is_empty()).map(PathBuf::from);
    named.chain(WebConfig::files(Path::new(tls_config))).collect()
}

/// A merged options file.
pub struct ReadOptions {
    /// The content.
    pub content: Vec<u8>,
    /// Errors that prevent a start although the file is readable, and warnings.
    pub problems: Vec<Problem>,
}

/// Merges the options file, if there is one, into `args`.
///
/// # Errors
///
/// When it cannot be read or parsed. Its values may still be invalid for a start.
pub fn read_options_file(
    args: &mut KubeArgs,
    load: Load<'_>,
) -> Result<Option<ReadOptions>, ConfigError> {
    if args.config.is_empty() {
        return Ok(None);
    }
    let path = args.config.clone();
    let text = config_file::read(Path::new(&path))
        .map_err(|error| ConfigError::of_options(&path, &error))?;
    let merged = options_file::merge(&text, args, load);
    // A label key with several * selects nothing; the rest of the file is valid.
    let unread = |problem: &&Problem| {
        problem.class.is_syntax_error() && problem.class != ProblemClass::SeveralWildcards
    };
    if let Some(problem) = merged.problems.iter().find(unread) {
        return Err(ConfigError::of_options(&path, problem));
    }
    *args = merged.args;
    Ok(Some(ReadOptions { content: text.into_bytes(), problems: merged.problems }))
}
