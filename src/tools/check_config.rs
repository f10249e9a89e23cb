//! `kstatd check-config`: every problem of a file, not only the first, in the order of the file.

use std::path::Path;

use crate::config_file;
use crate::resources::custom;
use crate::statsd::mapper::{Mapper, Problem, Severity};

/// What is to be said about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// One line for each problem and one at the end.
    pub text: String,
    /// Whether the file cannot be used.
    pub failed: bool,
}

impl Report {
    /// About a file whose text cannot be read.
    #[must_use]
    pub fn unreadable(path: &Path, reason: &str) -> Self {
        Self { text: format!("{}: error: {reason}\n", path.display()), failed: true }
    }

    /// About a file with these problems. If none of them is an error, `contents` says what is in it.
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
    let text = match config_file::read(path) {
        Ok(text) => text,
        Err(reason) => return Report::unreadable(path, &reason),
    };
    match Mapper::from_yaml(&text) {
        Ok(mapper) => {
            let contents = format!("rules: {}", mapper.rules().len());
            Report::new(path, mapper.warnings().to_vec(), &contents)
        }
        Err(problems) => Report::new(path, problems, ""),
    }
}

/// Checks a configuration of custom resource metrics.
pub fn custom_resources(path: &Path) -> Report {
    let text = match config_file::read(path) {
        Ok(text) => text,
        Err(reason) => return Report::unreadable(path, &reason),
    };
    let loaded = custom::load(&text);
    let mut problems = loaded.problems.clone();
    problems.extend(loaded.config.problems());
    let metrics = loaded.config.families().count();
    let contents = format!("resources: {}, metrics: {metrics}", loaded.config.entries.len());
    Report::new(path, problems, &contents)
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
