//! Formats rules as a mapping file.

use crate::config_file::{Resolved, resolve};
use crate::mapper::{MetricType, Step};
use crate::status::words::printable;
use crate::tools::yaml_text;

/// A rule of the mapping file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub pattern: String,
    pub is_regex: bool,
    pub kind: MetricType,
    pub name: String,
    /// Labels, each with its steps as text.
    pub normalise: Option<Vec<(String, Vec<String>)>>,
}

/// A mapping fragment, each part with its comments.
#[derive(Clone, Debug, Default)]
pub(super) struct Fragment {
    /// Labels with their steps as text, and comments.
    pub defaults: Vec<(String, Vec<String>, Vec<String>)>,
    /// Rules and their comments.
    pub rules: Vec<(Rule, Vec<String>)>,
}

impl Fragment {
    pub(super) fn is_empty(&self) -> bool {
        self.defaults.is_empty() && self.rules.is_empty()
    }

    /// Formats the fragment; remarks become YAML comments.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let say = |out: &mut String, indent: &str, lines: &[String]| {
            for line in lines {
                comment(out, indent, line);
            }
        };
        if !self.defaults.is_empty() {
            out.push_str("defaults:\n  normalise:\n");
        }
        for (label, steps, lines) in &self.defaults {
            say(&mut out, "    ", lines);
            out.push_str(&format!("    {}: [{}]\n", quoted(label), steps.join(", ")));
        }
        if !self.rules.is_empty() {
            out.push_str("mappings:\n");
        }
        for (rule, lines) in &self.rules {
            say(&mut out, "", lines);
            out.push_str(&format!("- match: {}\n", quoted(&rule.pattern)));
            let form = if rule.is_regex { "regex" } else { "glob" };
            out.push_str(&format!("  match_type: {form}\n"));
            out.push_str(&format!("  match_metric_type: {}\n", rule.kind.as_str()));
            out.push_str(&format!("  name: {}\n", quoted(&rule.name)));
            for (at, (label, steps)) in rule.normalise.iter().flatten().enumerate() {
                out.push_str(if at == 0 { "  normalise:\n" } else { "" });
                out.push_str(&format!("    {}: [{}]\n", quoted(label), steps.join(", ")));
            }
        }
        out
    }
}

/// Appends a comment.
pub(super) fn comment(out: &mut String, indent: &str, line: &str) {
    let line = printable(line);
    let space = if line.is_empty() { "" } else { " " };
    out.push_str(&format!("{indent}#{space}{line}\n"));
}

/// Quotes a string as a YAML scalar.
pub(super) fn quoted(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(word)
        && resolve(text) == Resolved::Text;
    if is_plain {
        text.to_owned()
    } else if printable(text) == text {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        yaml_text::quoted(text)
    }
}

/// Formats a step for a mapping file; `None` if its original notation is unknown.
pub(super) fn step(step: &Step) -> Option<String> {
    if let Some((word, _)) = Step::KEYWORDS.iter().find(|(_, known)| known == step) {
        return Some((*word).to_owned());
    }
    match step {
        Step::Truncate(bytes) => Some(format!("{{truncate: {bytes}}}")),
        Step::Replace(regex, replacement) => {
            // Go's dialect was translated; if that changed the expression, the original is lost.
            let again = Step::replace(regex.as_str()).ok()?;
            (again.as_str() == regex.as_str()).then(|| replace(regex.as_str(), replacement))
        }
        _ => None,
    }
}

/// Formats a step with a regular expression.
pub(super) fn replace(regex: &str, replacement: &str) -> String {
    format!("{{regex: {}, replacement: {}}}", quoted(regex), quoted(replacement))
}

/// Returns whether a name can be used unchanged as the `match` of a glob.
pub(super) fn is_plain_glob(name: &str) -> bool {
    name.split('.').enumerate().all(|(at, segment)| is_plain_segment(segment, at == 0))
}

/// Returns whether a segment of a name can be used unchanged in such a `match`.
pub(super) fn is_plain_segment(segment: &str, is_first: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || !is_first && c.is_ascii_digit();
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    segment.starts_with(first) && segment.chars().all(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapper::Mapper;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[ -~]{0,12}",
            proptest::sample::select(vec![
                "y", "null", "~", "1", "-", "a: b", "#x", "{", "'", "\"\\"
            ])
            .prop_map(str::to_owned),
        ]
    }

    proptest! {
        #[test]
        fn any_text_is_read_back(label in text(), replacement in text(), said in any::<String>()) {
            let mut pattern = String::new();
            super::super::template::quote(&mut pattern, &replacement);
            let steps = vec!["uuid".to_owned(), replace(&pattern, &replacement.replace('$', "$$"))];
            let fragment = Fragment { defaults: vec![(label.clone(), steps, vec![said])], rules: Vec::new() };
            let mapper = Mapper::from_yaml(&fragment.text());
            prop_assert!(mapper.is_ok(), "{:?}\n{}", mapper.err(), fragment.text());
            let mapper = mapper.expect("valid");
            let steps = mapper.defaults().normalise.steps(&label);
            prop_assert_eq!(steps.map(<[Step]>::len), Some(2));
            if !replacement.is_empty() {
                let steps = steps.unwrap_or_default();
                prop_assert_eq!(steps[1].apply(&replacement), replacement);
            }
        }
    }
}
