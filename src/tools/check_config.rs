//! `kstatd check-config`: reports every problem of a file, in file order.

use std::path::Path;

use serde_json::{Value, json};

use super::manifests::Manifest;
use super::render_kube;
use crate::cli::config::{self, Load};
use crate::cli::kube_args::KubeArgs;
use crate::cli::options_file;
use crate::config_file;
use crate::mapper::{Mapper, Problem, Severity};
use crate::resources::custom::{self, Config, Definition, Shape};
use crate::server::web_config::WebConfig;
use crate::tools::{CommandError, Result};

/// The kind of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A mapping file of the StatsD side.
    Mapping,
    /// An options file of the Kubernetes side.
    Options,
    /// A custom resource metrics configuration.
    CustomResources,
    /// A web configuration.
    Web,
}

/// The hint for a file whose kind is not recognised.
const NAME_THE_KIND: &str = "name the kind of the file: --statsd.mapping-config, --config, \
                             --custom-resource-state-config-file or --web.config.file";

impl FileKind {
    /// Recognizes a file by its top-level keys.
    ///
    /// # Errors
    /// The file cannot be read, or only once, or its keys fit no kind or several.
    pub fn of(path: &Path) -> Result<Self> {
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(format!(
                "{}: not a regular file, so it is read once: {NAME_THE_KIND}",
                path.display()
            )
            .into());
        }
        let text =
            config_file::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let keys = top_level_keys(&text);
        let has = |is_key: &dyn Fn(&str) -> bool| keys.iter().any(|key| is_key(key));
        let fits = [
            (Self::Mapping, has(&|key| ["mappings", "defaults"].contains(&key))),
            (Self::Options, has(&options_file::is_key)),
            (Self::CustomResources, has(&|key| ["spec", "kind"].contains(&key))),
            (Self::Web, has(&WebConfig::is_key)),
        ];
        let unfit = |kinds: &str| -> CommandError {
            format!("{}: the keys {keys:?} fit {kinds}; {NAME_THE_KIND}", path.display()).into()
        };
        let mut fitting = fits.into_iter().filter(|(_, fits)| *fits);
        match (fitting.next(), fitting.next()) {
            (Some((kind, _)), None) => Ok(kind),
            (None, _) => Err(unfit("no kind of configuration")),
            _ => Err(unfit("several kinds of configurations")),
        }
    }
}

/// Returns the top-level keys of a file, which may be malformed.
fn top_level_keys(text: &str) -> Vec<String> {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => {
            let keys = text.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned()));
            keys.filter(|key| !key.is_empty() && !key.starts_with([' ', '#', '-'])).collect()
        }
    }
}

/// The result of checking a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    file: String,
    problems: Vec<Problem>,
    /// A summary of a readable file, or the reason why it cannot be used.
    contents: Result<String>,
}

impl Report {
    /// Returns the report of an unreadable file.
    fn unreadable(path: &Path, reason: &str) -> Self {
        let file = path.display().to_string();
        Self { file, problems: Vec::new(), contents: Err(reason.into()) }
    }

    /// Returns the report of a file with these problems. If none is an error, `contents` summarises
    /// the file.
    fn new(path: &Path, mut problems: Vec<Problem>, contents: &str) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Self { file: path.display().to_string(), problems, contents: Ok(contents.to_owned()) }
    }

    /// Returns the path of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns true if the file is unusable.
    pub fn failed(&self) -> bool {
        self.contents.is_err() || self.count(Severity::Error) > 0
    }

    fn count(&self, wanted: Severity) -> usize {
        self.problems.iter().filter(|problem| problem.severity == wanted).count()
    }

    /// Formats one line per problem and a final summary.
    pub fn text(&self) -> String {
        let name = &self.file;
        let contents = match &self.contents {
            Ok(contents) => contents,
            Err(reason) => return format!("{name}: error: {reason}\n"),
        };
        let mut text = String::new();
        for problem in &self.problems {
            text.push_str(&format!("{name}: {}: {problem}\n", word(problem.severity)));
        }
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let sum =
            if errors == 0 { format!("valid, {contents}") } else { format!("errors: {errors}") };
        text.push_str(&format!("{name}: {sum}, warnings: {warnings}\n"));
        text
    }

    /// Formats the report as JSON.
    pub fn json(&self) -> Value {
        let problems = self.problems.iter().map(|problem| {
            json!({
                "severity": word(problem.severity),
                "line": problem.line,
                "column": problem.column,
                "message": problem.message,
                "hint": problem.hint,
            })
        });
        json!({
            "file": self.file,
            "valid": !self.failed(),
            "contents": self.contents.as_ref().ok().filter(|_| !self.failed()),
            "error": self.contents.as_ref().err().map(ToString::to_string),
            "problems": problems.collect::<Vec<Value>>(),
        })
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// Checks a web configuration and the files that it refers to.
fn web(path: &Path) -> Report {
    let problems = match WebConfig::problems(path) {
        Ok(problems) => problems,
        Err(reason) => return Report::unreadable(path, &reason.to_string()),
    };
    if !problems.is_empty() {
        return Report::new(path, problems, "");
    }
    match WebConfig::load(path) {
        Ok(web) => {
            let word = |is_on| if is_on { "yes" } else { "no" };
            let contents = format!("TLS: {}, users: {}", word(web.is_tls), word(web.had_users));
            Report::new(path, problems, &contents)
        }
        Err(error) => Report::unreadable(path, &error.reason),
    }
}

/// Checks a file. A custom resource configuration is checked against the definitions in `manifests`.
///
/// # Errors
/// When a definition is malformed.
pub fn check(kind: FileKind, path: &Path, manifests: &[Manifest]) -> Result<Report> {
    if kind == FileKind::Web {
        return Ok(web(path));
    }
    let text = match config_file::read(path) {
        Ok(text) => text,
        Err(reason) => return Ok(Report::unreadable(path, &reason.to_string())),
    };
    let (problems, contents) = match kind {
        FileKind::Mapping => mapping_problems(&text),
        FileKind::Options => options_problems(&text),
        FileKind::CustomResources | FileKind::Web => {
            let (_, problems, contents) = custom_problems(&text, manifests)?;
            (problems, contents)
        }
    };
    Ok(Report::new(path, problems, &contents))
}

/// Returns the problems of a mapping, and a summary of its content.
pub(crate) fn mapping_problems(text: &str) -> (Vec<Problem>, String) {
    match Mapper::from_yaml(text) {
        Ok(mapper) => (mapper.warnings().to_vec(), format!("rules: {}", mapper.rules().len())),
        Err(problems) => (problems, String::new()),
    }
}

/// Returns the problems of an options file as the only configuration of kube-state-metrics, and a summary of its content.
fn options_problems(text: &str) -> (Vec<Problem>, String) {
    let mut merged = options_file::merge(text, &KubeArgs::default(), Load::First);
    let mut contents = String::new();
    if merged.error().is_none() {
        match config::kube_state_metrics(&merged.args, Load::First) {
            Ok(config) => {
                let resources = config.kube.map_or(0, |kube| kube.pipeline.resources.len());
                contents = format!("resources: {resources}");
            }
            Err(errors) => {
                let problems = errors.0.iter().map(|error| merged.startup_problem(error));
                let problems: Vec<_> = problems.collect();
                merged.problems.extend(problems);
            }
        }
    }
    (merged.problems, contents)
}

/// Returns a custom resource configuration, its problems, and a summary of its content.
///
/// # Errors
///
/// When a definition is malformed.
pub(crate) fn custom_problems(
    text: &str,
    manifests: &[Manifest],
) -> Result<(Config, Vec<Problem>, String)> {
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
fn shapes(manifest: &Manifest) -> Result<Vec<(Definition, Shape)>> {
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
        check(FileKind::Mapping, file.path(), &[]).expect("a report")
    }

    #[test]
    fn valid_and_broken_files() {
        let valid = report("mappings:\n- {match: a.*, name: n}\n");
        assert!(!valid.failed() && valid.text().contains("valid, rules: 1, "), "{}", valid.text());
        let broken = report(
            "mappings:\n- {match: a.*, name: \"bad name\"}\n- {match: \"\", name: n, foo: 1}\n",
        );
        assert!(broken.failed());
        assert!(broken.text().contains("line 2, column "), "{}", broken.text());
        assert!(broken.text().contains("line 3, column "), "{}", broken.text());
        let text = broken.text();
        let lines: Vec<&str> =
            text.lines().filter_map(|line| line.split_once("line ")?.1.get(..1)).collect();
        assert!(lines.is_sorted() && lines.len() >= 3, "{}", broken.text());
        let missing = check(FileKind::Mapping, Path::new("/none"), &[]);
        assert!(missing.expect("a report").failed());
    }
}
