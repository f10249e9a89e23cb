//! Reads the custom resource configuration named by flags or the options file.

use std::io;
use std::path::Path;

use super::error::{ConfigError, ConfigErrors, Result};
use super::kube_args::KubeArgs;
use super::load::{FilesInUse, Load, OptionsFile};
use crate::config_file::{self, reader};
use crate::resources::custom::{self, Loaded};

/// The custom resource configuration of a file or a flag.
pub(crate) struct CustomConfigSource {
    /// The flag that configures it, for messages.
    pub(crate) flag: String,
    /// The configuration; `None` while an optional file is missing.
    pub(crate) loaded: Option<Loaded>,
    /// The file, unless the configuration is given in a flag.
    pub(crate) file: Option<OptionsFile>,
}

/// Returns the error for an invalid custom resource configuration.
pub(crate) fn invalid(flag: &str, reason: &dyn std::fmt::Display) -> ConfigError {
    format!("failed to parse Custom Resource State metrics: --{flag}: {reason}").into()
}

/// Reads the custom resource configuration, if there is one.
///
/// # Errors
///
/// When it is unreadable or invalid. A metric that cannot be compiled is an error only on a reload,
/// where the previous file stays in use; at start-up it only disables the custom metrics.
pub(crate) fn read(args: &KubeArgs, load: Load<'_>) -> Result<Option<CustomConfigSource>> {
    if !args.custom_resource_config.is_empty() {
        let flag = "custom-resource-state-config (its text)".to_owned();
        let loaded = Some(content(&flag, &args.custom_resource_config, load)?);
        return Ok(Some(CustomConfigSource { flag, loaded, file: None }));
    }
    if args.custom_resource_config_file.is_empty() {
        return Ok(None);
    }
    let path = args.custom_resource_config_file.clone();
    let flag = format!("custom-resource-state-config-file={path}");
    let in_use = match load {
        Load::Again(FilesInUse { custom: Some(file), .. }) if file.path == path => Some(file),
        _ => None,
    };
    let may_be_missing = args.continue_without_custom_resource_config
        && in_use.is_none_or(|file| file.content.is_none());
    let read = match reader::read(Path::new(&path)) {
        Err(error) if may_be_missing && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(invalid(&flag, &error).into()),
        Ok(bytes) => config_file::text(bytes)
            .map_err(|reason| invalid(&flag, &reason).into())
            .and_then(|text| Ok(Some((content(&flag, &text, load)?, text)))),
    };
    let (read, error) = match (read, in_use) {
        (Ok(read), _) => {
            let missing = || invalid(&flag, &"there is no such file").to_string();
            let error = read.is_none().then(missing);
            (read, error)
        }
        (Err(errors), None) => return Err(errors),
        (Err(errors), Some(file)) => {
            let text =
                file.content.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let loaded = |text: &str| content(&flag, text, Load::First);
            let mut loaded = text.as_deref().map(loaded).transpose()?;
            // They were logged when the file was accepted.
            loaded.iter_mut().for_each(|loaded| loaded.problems.clear());
            (loaded.zip(text), Some(errors.first()))
        }
    };
    let (loaded, text) = read.unzip();
    let file = OptionsFile { path, content: text.map(String::into_bytes), error };
    Ok(Some(CustomConfigSource { flag, loaded, file: Some(file) }))
}

/// Parses and validates the text of a configuration.
fn content(flag: &str, text: &str, load: Load<'_>) -> Result<Loaded> {
    let loaded = custom::load(text);
    let errors: Vec<_> = loaded.errors().map(|problem| invalid(flag, problem)).collect();
    if !errors.is_empty() {
        return Err(ConfigErrors(errors));
    }
    if let Load::Again(_) = load {
        loaded.config.compile().map_err(|error| invalid(flag, &error))?;
    }
    Ok(loaded)
}
