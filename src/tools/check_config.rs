//! `kstatd check-config`: every problem of a mapping file, not only the first.

use std::path::Path;

use crate::statsd::mapper::{Mapper, Severity};

/// What is to be said about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// One line for each problem and one at the end.
    pub text: String,
    /// Whether the file cannot be used.
    pub failed: bool,
}

/// Checks a mapping file of the StatsD side.
pub fn mapping(path: &Path) -> Report {
    let name = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Report { text: format!("{name}: {error}\n"), failed: true },
    };
    let loaded = Mapper::from_yaml(&text);
    let (mut problems, rules) = match &loaded {
        Ok(mapper) => (mapper.warnings().to_vec(), Some(mapper.rules().len())),
        Err(problems) => (problems.clone(), None),
    };
    problems.sort_by_key(|problem| (problem.line, problem.column));
    let mut report = String::new();
    for problem in &problems {
        let severity = match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        report.push_str(&format!("{name}: {severity}: {problem}\n"));
    }
    let count = |wanted| problems.iter().filter(|problem| problem.severity == wanted).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    match rules {
        Some(rules) => {
            report.push_str(&format!("{name}: valid, rules: {rules}, warnings: {warnings}\n"))
        }
        None => report.push_str(&format!("{name}: errors: {errors}, warnings: {warnings}\n")),
    }
    Report { text: report, failed: rules.is_none() }
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
