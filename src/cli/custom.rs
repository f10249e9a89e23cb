//! Reading the configuration of custom resources that flags or the options file name.

use std::path::Path;

use super::error::{ConfigError, ConfigErrors};
use super::kube_args::KubeArgs;
use crate::config_file::{self, Problem};
use crate::resources::custom;

/// A configuration of custom resources that is named, as far as it is there.
pub(crate) struct Named {
    /// The flag that names it, for messages.
    pub(crate) what: String,
    /// Its file, if it does not stand in a flag.
    pub(crate) path: Option<String>,
    /// What it says; `None` while its file may be missing, and is.
    pub(crate) content: Option<Content>,
}

/// What a configuration of custom resources says.
pub(crate) struct Content {
    /// The text.
    pub(crate) text: String,
    /// What is to be made of custom resources.
    pub(crate) config: custom::Config,
    /// Warnings.
    pub(crate) warnings: Vec<Problem>,
}

/// The error that a configuration of custom resources is, for the `reason`.
pub(crate) fn invalid(what: &str, reason: &dyn std::fmt::Display) -> ConfigError {
    ConfigError::Invalid(format!(
        "failed to parse Custom Resource State metrics: --{what}: {reason}"
    ))
}

/// Reads the configuration of custom resources, if one is named.
///
/// # Errors
///
/// When it cannot be read or understood.
pub(crate) fn read(args: &KubeArgs) -> Result<Option<Named>, ConfigErrors> {
    let (what, path, text) = if !args.custom_resource_config.is_empty() {
        let what = "custom-resource-state-config (its text)".to_owned();
        (what, None, Some(args.custom_resource_config.clone()))
    } else if !args.custom_resource_config_file.is_empty() {
        let path = args.custom_resource_config_file.clone();
        let what = format!("custom-resource-state-config-file={path}");
        let may_be_missing = args.continue_without_custom_resource_config;
        let text = if may_be_missing && !Path::new(&path).exists() {
            None
        } else {
            let text = config_file::read(Path::new(&path));
            Some(text.map_err(|reason| invalid(&what, &reason))?)
        };
        (what, Some(path), text)
    } else {
        return Ok(None);
    };
    let content = match text {
        Some(text) => {
            let loaded = custom::load(&text);
            let errors: Vec<_> = loaded.errors().map(|problem| invalid(&what, problem)).collect();
            if !errors.is_empty() {
                return Err(ConfigErrors(errors));
            }
            Some(Content { text, config: loaded.config, warnings: loaded.problems })
        }
        None => None,
    };
    Ok(Some(Named { what, path, content }))
}
