//! The options file of `kstatd node`: YAML whose keys override flags.

use super::error::ConfigError;
use super::load::{FilesInUse, Load, OptionsFile};
use super::node::NodeArgs;
use crate::config_file::{self, Document, ProblemClass, Severity, Values};
use crate::node::host::ProcessNames;

/// The only key.
const PROCESSES: &str = "processes";

/// Merges the options file, if there is one, into `args` and checks the result. On a reload, a file
/// that cannot be used, or that the process has rejected, leaves the content in use.
///
/// # Errors
///
/// When the process names of the flags are invalid, or at start-up the file cannot be used.
pub(super) fn merge(
    args: &mut NodeArgs,
    load: Load<'_>,
) -> Result<Option<OptionsFile>, ConfigError> {
    let Some(file) = args.config.clone() else {
        ProcessNames::new(&args.processes).map_err(|error| format!("--processes: {error}"))?;
        return Ok(None);
    };
    let path = file.display().to_string();
    let unusable = |reason: String| ConfigError::of_options(&path, &reason);
    let text = config_file::read(&file).map_err(|error| unusable(error.to_string()));
    let read = text.and_then(|text| match load.rejection(text.as_bytes()) {
        Some(reason) => Err(unusable(reason.to_owned())),
        None => Ok((processes(&text, args, unusable)?, text)),
    });
    match (read, load) {
        (Ok((processes, text)), _) => {
            args.processes = processes;
            let content = Some(text.into_bytes());
            Ok(Some(OptionsFile { path: path.clone(), content, error: None }))
        }
        (Err(error), Load::Again(FilesInUse { options: Some(in_use), .. })) => {
            let text = String::from_utf8_lossy(in_use.content.as_deref().unwrap_or_default());
            args.processes = processes(&text, args, unusable)?;
            Ok(Some(OptionsFile { error: Some(error.to_string()), ..in_use.clone() }))
        }
        (Err(error), _) => Err(error),
    }
}

/// Returns the process names of an options file, or those of the flags if it has none.
fn processes(
    text: &str,
    args: &NodeArgs,
    unusable: impl Fn(String) -> ConfigError,
) -> Result<Vec<String>, ConfigError> {
    let document = Document::parse(text).map_err(|problem| unusable(problem.to_string()))?;
    let mut values = Values::new(&document);
    let mut names = args.processes.clone();
    let root = document.root();
    const WANTED: &str = "keys with values, such as processes: [kubelet]";
    let entries = root.and_then(|root| values.entries(root, "the file", WANTED));
    for ((key, position), node) in entries.unwrap_or_default() {
        if key != PROCESSES {
            let message = format!("unknown key {key:?}");
            let hint = "the only key is processes";
            let class = ProblemClass::UnknownField;
            values.error(class, position, message, hint);
            continue;
        }
        let items = values.items(node, PROCESSES).unwrap_or_default();
        names = items.into_iter().filter_map(|item| values.text(item, PROCESSES)).collect();
        if let Err(error) = ProcessNames::new(&names) {
            let (class, message) = (ProblemClass::InvalidOptions, format!("{PROCESSES}: {error}"));
            values.error(class, node.position, message, "");
        }
    }
    let error = values.problems.iter().find(|problem| problem.severity == Severity::Error);
    error.map_or(Ok(names), |problem| Err(unusable(problem.to_string())))
}
