//! Rules for metric names that contain IDs: the variable parts of a name template are left out of
//! the metric name.

use std::collections::BTreeSet;

use super::captured::Form;
use super::template::{self, Template, TemplatePart, mine};
use super::yaml::{self, Rule};
use crate::mapper::MetricType;

/// The maximum number of rules per metric type.
const MAX_RULES: usize = 8;

/// The pattern for `_` in an exposed name, which may have replaced any other character.
const SEPARATOR: &str = "[^0-9A-Za-z]+";

/// A rule for names and its description.
pub(super) struct NameRule {
    pub rule: Rule,
    /// The template of the names.
    pub shown: String,
}

/// Returns rules for names of one type. `taken` returns whether a metric name is in use.
pub(super) fn rules(
    names: &BTreeSet<String>,
    kind: MetricType,
    form: Form,
    least: usize,
    mut taken: impl FnMut(&str) -> bool,
) -> Vec<NameRule> {
    let templates = mine(names.iter().map(String::as_str), least);
    let mut rules: Vec<NameRule> = Vec::new();
    for template in templates.into_iter().take(MAX_RULES) {
        let (pattern, is_regex, name) = match form {
            Form::Lines(_) => match glob(&template, names) {
                Some((glob, name)) => (glob, false, name),
                None => (template.regex(), true, metric(&template)),
            },
            Form::Exposition => (template.pattern(any_separator), true, metric(&template)),
        };
        // The names of other metrics are not available.
        let own = [name.clone(), format!("{name}_all"), format!("{name}_{}", kind.as_str())];
        let Some(name) = own.into_iter().find(|name| !taken(name)) else { continue };
        let rule = Rule { pattern, is_regex, kind, name, normalise: None };
        rules.push(NameRule { rule, shown: template.shown() });
    }
    rules
}

/// Returns the metric name for matches of a template.
fn metric(template: &Template) -> String {
    let name = template.written(String::push_str, |group, _| format!("${{{group}}}"), |_| "_");
    joined(&name)
}

/// Collapses everything between the words of a template to one `_`.
fn joined(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        // Keep references unchanged.
        if character == '$' && rest.peek() == Some(&'{') {
            out.push('$');
            out.extend(rest.by_ref().take_while(|c| *c != '}'));
            out.push('}');
        } else if character.is_ascii_alphanumeric() {
            out.push(character);
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    let name = out.trim_matches('_');
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '$');
    if is_name { name.to_owned() } else { format!("_{name}") }
}

/// Appends an exposed name, or a part of one, with the separator pattern in place of `_`.
fn any_separator(out: &mut String, text: &str) {
    for (at, words) in text.split('_').enumerate() {
        if at > 0 && !(words.is_empty() && out.ends_with(SEPARATOR)) {
            out.push_str(SEPARATOR);
        }
        template::quote(out, words);
    }
}

/// Returns the template as a glob with the metric name, if that matches no other names.
fn glob(template: &Template, names: &BTreeSet<String>) -> Option<(String, String)> {
    #[derive(Default)]
    struct Segment {
        text: String,
        few: usize,
        many: usize,
    }
    let mut segments = vec![Segment::default()];
    for part in template.parts() {
        match part {
            TemplatePart::Literal(text) => {
                for (at, piece) in text.split('.').enumerate() {
                    if at > 0 {
                        segments.push(Segment::default());
                    }
                    segments.last_mut()?.text.push_str(piece);
                }
            }
            TemplatePart::Few(_) => segments.last_mut()?.few += 1,
            TemplatePart::Many(_) => segments.last_mut()?.many += 1,
        }
    }
    let (mut pattern, mut name, mut stars) = (Vec::new(), Vec::new(), 0);
    for (at, Segment { text, few, many }) in segments.iter().enumerate() {
        match (few, many) {
            (0, 0) => {
                if !yaml::is_plain_segment(text, at == 0) {
                    return None;
                }
                pattern.push(text.as_str());
                name.push(text.clone());
            }
            (1, 0) if text.is_empty() => {
                stars += 1;
                pattern.push("*");
                name.push(format!("${{{stars}}}"));
            }
            (0, _) if !text.contains(char::is_alphanumeric) => {
                stars += 1;
                pattern.push("*");
            }
            _ => return None,
        }
    }
    let fits = |name: &&String| {
        let parts = name.split('.').collect::<Vec<_>>();
        parts.len() == pattern.len()
            && parts.iter().zip(&pattern).all(|(part, wanted)| *wanted == "*" || part == wanted)
    };
    (names.iter().filter(fits).count() <= template.texts)
        .then(|| (pattern.join("."), joined(&name.join("_"))))
}

/// Returns a rule for a single unmapped metric that only normalises labels.
pub(super) fn of_metric(
    metric: &str,
    from: Option<&str>,
    kind: MetricType,
    normalise: Vec<(String, Vec<String>)>,
) -> Rule {
    let mut pattern = String::new();
    let is_regex = !from.is_some_and(yaml::is_plain_glob);
    match from {
        Some(name) if !is_regex => pattern.push_str(name),
        Some(name) => template::quote(&mut pattern, name),
        None => any_separator(&mut pattern, metric),
    }
    let pattern = if is_regex { format!("^{pattern}$") } else { pattern };
    Rule { pattern, is_regex, kind, name: metric.to_owned(), normalise: Some(normalise) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::line::ParserFlags;

    fn of(names: impl Iterator<Item = String>, form: Form) -> Vec<(String, String)> {
        let names = names.collect();
        let rules = rules(&names, MetricType::Counter, form, 10, |name| name == "taken");
        rules.into_iter().map(|rule| (rule.rule.pattern, rule.rule.name)).collect()
    }

    #[test]
    fn replaced_segments_are_omitted_from_the_name() {
        let lines = Form::Lines(ParserFlags::default());
        let pair = |a: &str, b: &str| vec![(a.to_owned(), b.to_owned())];
        assert_eq!(
            of((0..50).map(|n| format!("user.{n}.login")), lines),
            pair("user.*.login", "user_login")
        );
        assert_eq!(
            of(
                (0..50).map(|n| format!("user.{n}.login")).chain(["user.all.login".to_owned()]),
                lines
            ),
            pair(r"^user\.[0-9]+\.login$", "user_login")
        );
        assert_eq!(
            of((0..90).map(|n| format!("u.{n}.{}-x.done", ["a", "b"][n % 2])), lines),
            pair(r"^u\.[0-9]+\.([0-9A-Za-z]+)-x\.done$", "u_${1}_x_done")
        );
        assert_eq!(of((0..50).map(|n| format!("taken.{n}")), lines), pair("taken.*", "taken_all"));
        assert_eq!(
            of((0..50).map(|n| format!("user_{n}_login")), Form::Exposition),
            pair("^user[^0-9A-Za-z]+[0-9]+[^0-9A-Za-z]+login$", "user_login")
        );
    }
}
