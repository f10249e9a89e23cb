//! Rules for names with an id in them: what gives way in a template of names is left out of the metric's name.

use std::collections::BTreeSet;

use super::captured::Form;
use super::template::{self, Part, Template, mine};
use super::yaml::{self, Rule};
use crate::statsd::mapper::MetricType;

/// Rules for one type of metric.
const MAX_RULES: usize = 8;

/// What `_` of a name that is shown may have been.
const SEPARATOR: &str = "[^0-9A-Za-z]+";

/// A rule, and what it is for.
#[derive(Clone, Debug)]
pub(super) struct NameRule {
    pub rule: Rule,
    /// What the names have in common.
    pub shown: String,
}

/// Rules for these names, all of one type. What `taken` says yes to is the name of another metric already.
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
            Form::Exposition => (as_shown(&template), true, metric(&template)),
        };
        // Names of other metrics are no place for these.
        let own = [name.clone(), format!("{name}_all"), format!("{name}_{}", kind.as_str())];
        let Some(name) = own.into_iter().find(|name| !taken(name)) else { continue };
        let rule = Rule { pattern, is_regex, kind: Some(kind), name, normalise: None };
        rules.push(NameRule { rule, shown: template.shown() });
    }
    rules
}

/// The name for what a regular expression of the template matches.
fn metric(template: &Template) -> String {
    let mut groups = 0;
    let pieces = template.parts().iter().map(|part| match part {
        Part::Literal(text) => text.clone(),
        Part::Many(_) => "_".to_owned(),
        Part::Few(_) => {
            groups += 1;
            format!("${{{groups}}}")
        }
    });
    joined(&pieces.collect::<String>())
}

/// A template of names with everything else between its words as one `_`.
fn joined(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        // A reference stays as it is.
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

/// For names that are shown: each `_` may have been sent as something else.
fn as_shown(template: &Template) -> String {
    let mut out = "^".to_owned();
    for part in template.parts() {
        match part {
            Part::Literal(text) => any_separator(&mut out, text),
            Part::Few(class) => out.extend(["(", class.regex(), ")"]),
            Part::Many(class) => out.push_str(class.regex()),
        }
    }
    out.push('$');
    out
}

/// A name that is shown, or a part of one, with something between its words where there is `_`.
fn any_separator(out: &mut String, text: &str) {
    for (at, words) in text.split('_').enumerate() {
        if at > 0 && !(words.is_empty() && out.ends_with(SEPARATOR)) {
            out.push_str(SEPARATOR);
        }
        template::quote(out, words);
    }
}

/// The template as a glob with the name that belongs to it, if that is no wider than the template.
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
            Part::Literal(text) => {
                for (at, piece) in text.split('.').enumerate() {
                    if at > 0 {
                        segments.push(Segment::default());
                    }
                    segments.last_mut()?.text.push_str(piece);
                }
            }
            Part::Few(_) => segments.last_mut()?.few += 1,
            Part::Many(_) => segments.last_mut()?.many += 1,
        }
    }
    let (mut pattern, mut name, mut stars) = (Vec::new(), Vec::new(), 0);
    for (at, Segment { text, few, many }) in segments.iter().enumerate() {
        match (few, many) {
            (0, 0) => {
                let first =
                    |c: char| c.is_ascii_alphabetic() || c == '_' || at > 0 && c.is_ascii_digit();
                let rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                if !text.starts_with(first) || !text.chars().all(rest) {
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

/// A rule for one metric without a rule, that changes values of its labels alone.
pub(super) fn of_metric(
    metric: &str,
    from: Option<&str>,
    kind: MetricType,
    normalise: Vec<(String, Vec<String>)>,
) -> Rule {
    let (pattern, is_regex) = match from {
        Some(name) if yaml::is_plain_glob(name) => (name.to_owned(), false),
        Some(name) => {
            let mut pattern = "^".to_owned();
            template::quote(&mut pattern, name);
            (pattern + "$", true)
        }
        None => {
            let mut pattern = "^".to_owned();
            any_separator(&mut pattern, metric);
            (pattern + "$", true)
        }
    };
    Rule {
        pattern,
        is_regex,
        kind: Some(kind),
        name: metric.to_owned(),
        normalise: Some(normalise),
    }
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
    fn what_gives_way_is_left_out_of_the_name() {
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
