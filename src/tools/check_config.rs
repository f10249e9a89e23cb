//! `kstatd check-config`: reports every problem of a file, in file order.

use std::path::Path;

use serde_json::Value;

use super::manifests::Manifest;
use super::render_kube::{self, RenderError};
use crate::config_file;
use crate::mapper::{Problem, Severity};
use crate::resources::custom::{self, Config, Definition, Shape};
use crate::statsd::MappingError;
use crate::statsd::mapping;

/// The result of checking a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// One line per problem and a final summary.
    pub text: String,
    /// True if the file is unusable.
    pub failed: bool,
}

impl Report {
    /// Returns the report of an unreadable file.
    #[must_use]
    pub fn unreadable(path: &Path, reason: &str) -> Self {
        Self { text: format!("{}: error: {reason}\n", path.display()), failed: true }
    }

    /// Returns the report of a file with these problems. If none is an error, `contents` summarises
    /// the file.
    #[must_use]
    pub fn new(path: &Path, mut problems: Vec<Problem>, contents: &str) -> Self {
        let name = path.display();
        problems.sort_by_key(|problem| (problem.line, problem.column));
        let mut text = String::new();
        for problem in &problems {
            let severity = match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            text.push_str(&format!("{name}: {severity}: {problem}\n"));
        }
        let count = |wanted| problems.iter().filter(|problem| problem.severity == wanted).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let sum =
            if errors == 0 { format!("valid, {contents}") } else { format!("errors: {errors}") };
        text.push_str(&format!("{name}: {sum}, warnings: {warnings}\n"));
        Self { text, failed: errors > 0 }
    }
}

/// Checks a mapping file of the StatsD side.
pub fn mapping(path: &Path) -> Report {
    match mapping::load(path) {
        Ok(mapper) => {
            let contents = format!("rules: {}", mapper.rules().len());
            Report::new(path, mapper.warnings().to_vec(), &contents)
        }
        Err(MappingError::Read { reason, .. }) => Report::unreadable(path, &reason),
        Err(MappingError::Invalid { problems, .. }) => Report::new(path, problems, ""),
    }
}

/// Checks a custom resource configuration against the custom resource definitions in `manifests`.
///
/// # Errors
///
/// When a definition is malformed.
pub fn custom_resources(path: &Path, manifests: &[Manifest]) -> Result<Report, RenderError> {
    let text = match config_file::read(path) {
        Ok(text) => text,
        Err(reason) => return Ok(Report::unreadable(path, &reason)),
    };
    let (_, problems, contents) = custom_problems(&text, manifests)?;
    Ok(Report::new(path, problems, &contents))
}

/// Returns a custom resource configuration, its problems, and a summary of its content.
///
/// # Errors
///
/// When a definition is malformed.
pub(crate) fn custom_problems(
    text: &str,
    manifests: &[Manifest],
) -> Result<(Config, Vec<Problem>, String), RenderError> {
    let loaded = custom::load(text);
    let mut problems = loaded.problems;
    problems.extend(loaded.config.problems());
    let mut kinds = Vec::new();
    for manifest in manifests {
        kinds.extend(shapes(manifest)?);
    }
    problems.extend(loaded.config.problems_against(&kinds));
    if !manifests.is_empty() {
        problems.extend(loaded.config.problem_without_definitions(&kinds));
    }
    let metrics = loaded.config.families().count();
    let contents = format!("resources: {}, metrics: {metrics}", loaded.config.entries.len());
    Ok((loaded.config, problems, contents))
}

/// Returns the kinds that a manifest defines, with the schemas of their objects.
fn shapes(manifest: &Manifest) -> Result<Vec<(Definition, Shape)>, RenderError> {
    let definitions = render_kube::definitions(std::slice::from_ref(manifest))?;
    let versions = manifest.object.pointer("/spec/versions").and_then(Value::as_array);
    let shape = |definition: &Definition| {
        let mut versions = versions.into_iter().flatten();
        let version = versions.find(|version| version["name"] == *definition.version);
        Shape::of_objects(version.and_then(|version| version.pointer("/schema/openAPIV3Schema")))
    };
    let with_shape = |definition| (Clone::clone(&definition), shape(&definition));
    Ok(definitions.into_iter().map(with_shape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), text).expect("write");
        mapping(file.path())
    }

    #[test]
    fn valid_and_broken_files() {
        let valid = report("mappings:\n- {match: a.*, name: n}\n");
        assert!(!valid.failed && valid.text.contains("valid, rules: 1, "), "{}", valid.text);
        let broken = report(
            "mappings:\n- {match: a.*, name: \"bad name\"}\n- {match: \"\", name: n, foo: 1}\n",
        );
        assert!(broken.failed);
        assert!(broken.text.contains("line 2, column "), "{}", broken.text);
        assert!(broken.text.contains("line 3, column "), "{}", broken.text);
        let lines: Vec<&str> =
            broken.text.lines().filter_map(|line| line.split_once("line ")?.1.get(..1)).collect();
        assert!(lines.is_sorted() && lines.len() >= 3, "{}", broken.text);
        assert!(mapping(Path::new("/none")).failed);
    }
}
