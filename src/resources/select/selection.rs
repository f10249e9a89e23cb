//! Selection of the object labels and annotations that become labels of its series: `--metric-labels-allowlist` and
//! `--metric-annotations-allowlist`.
//!
//! [`AllowLists`] is a flag's value, a list of keys for each resource. [`AllowLists::resolve`] checks it against the
//! existing resources. [`Selection`] is the compiled list of one resource, and is evaluated for every key of every
//! object. [`label_name`](crate::resources::values::label_name) turns keys into label names.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

/// The keys that one resource exposes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Selection(Option<Arc<Keys>>);

#[derive(Debug, PartialEq, Eq)]
struct Keys {
    all: bool,
    /// Keys without a wildcard, sorted.
    exact: Vec<String>,
    /// The text before and after the `*`.
    patterns: Vec<(String, String)>,
}

impl Selection {
    /// Compiles a list of keys. An entry is a key, or a pattern in which one `*` matches any text without a newline. A
    /// lone `*` as the first entry selects every key; elsewhere it has no effect, and neither does an entry with
    /// several.
    pub fn new(list: &[String]) -> Self {
        if list.is_empty() {
            return Self(None);
        }
        let mut keys = Keys {
            all: list.first().is_some_and(|first| first == "*"),
            exact: Vec::new(),
            patterns: Vec::new(),
        };
        for entry in list {
            match entry.split_once('*') {
                None => keys.exact.push(entry.clone()),
                Some(("", "")) => {}
                Some((_, after)) if after.contains('*') => {
                    tracing::warn!(entry, "Allow list entry ignored: it has more than one *");
                }
                Some((before, after)) => keys.patterns.push((before.to_owned(), after.to_owned())),
            }
        }
        keys.exact.sort_unstable();
        Self(Some(Arc::new(keys)))
    }

    /// True if the list was empty, so the families have no series at all. A non-empty list gives one series per object
    /// even if no key matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// True if `key` is selected.
    #[inline]
    pub fn matches(&self, key: &str) -> bool {
        let Some(keys) = &self.0 else { return false };
        let fits = |(before, after): &(String, String)| {
            key.strip_prefix(before.as_str())
                .and_then(|rest| rest.strip_suffix(after.as_str()))
                .is_some_and(|middle| !middle.contains('\n'))
        };
        keys.all
            || keys.exact.binary_search_by(|exact| exact.as_str().cmp(key)).is_ok()
            || keys.patterns.iter().any(fits)
    }
}

/// An error in the value of an allow-list flag.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AllowListError {
    /// The text does not follow the grammar.
    #[error("at {at:?}: {problem}; the format is resource=[key1,key2],resource2=[*]")]
    Format {
        /// The text from the offending character on.
        at: String,
        /// The syntax error.
        problem: &'static str,
    },
    /// A key has more than one `*`.
    #[error("key {0:?} has more than one *")]
    Wildcards(String),
}

/// The name of a resource that does not exist, in a list of resources or an allow list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("resource {0} does not exist")]
pub struct UnknownResource(pub String);

/// The keys to expose for each resource: the value of an allow-list flag or of a key of the options file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowLists(BTreeMap<String, Vec<String>>);

impl AllowLists {
    /// Parses the value of a flag such as `pods=[app,team],nodes=[*]`. An empty text is an empty map; the last list of
    /// a resource wins; blanks around names and keys are ignored.
    ///
    /// Sloppy text that kube-state-metrics accepts has the same effect here: a list without its closing bracket loses
    /// its last key, words between two lists belong to the first of them, and trailing text without a bracket is
    /// ignored.
    ///
    /// # Errors
    ///
    /// The text does not follow that form, or a key has several `*`.
    pub fn parse_flag(text: &str) -> Result<Self, AllowListError> {
        let mut lists: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut resource = String::new();
        let mut word = 0;
        let mut before = None;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let after = chars.peek().map(|&(_, c)| c);
            let problem = match (before, c, after) {
                (Some(','), '=', _) => Some("= needs a resource before it"),
                (_, '=', after) if after != Some('[') => Some("= needs [ after it"),
                (before, '[', _) if before != Some('=') => Some("[ needs = before it"),
                (_, ']', Some(after)) if after != ',' => {
                    Some("] needs a comma or the end after it")
                }
                (None, ',', _) => Some("a comma needs something before it"),
                (_, ',', None | Some(',' | ']')) => Some("a comma needs something after it"),
                _ => None,
            };
            if let Some(problem) = problem {
                let at = text[at..].chars().take(32).collect();
                return Err(AllowListError::Format { at, problem });
            }
            match c {
                '=' => {
                    text[word..at].trim().clone_into(&mut resource);
                    lists.insert(resource.clone(), Vec::new());
                }
                '[' => {}
                ']' if before == Some('[') => {}
                ',' if before == Some(']') => {}
                ',' | ']' => {
                    let keys = lists.entry(resource.clone()).or_default();
                    keys.push(text[word..at].trim().to_owned());
                }
                _ => {
                    before = Some(c);
                    continue;
                }
            }
            word = at + c.len_utf8();
            before = Some(c);
        }
        let mut keys = lists.values().flatten();
        match keys.find(|key| key.matches('*').count() > 1) {
            Some(key) => Err(AllowListError::Wildcards(key.clone())),
            None => Ok(Self(lists)),
        }
    }

    /// Returns the keys of `resource`, if it has a list.
    pub fn keys(&self, resource: &str) -> Option<&[String]> {
        self.0.get(resource).map(Vec::as_slice)
    }

    /// Returns the lists that apply to the `enabled` resources. A list for `*` replaces all others and applies to each
    /// of them; otherwise a list may be for a resource that exists and is not enabled.
    ///
    /// # Errors
    ///
    /// A list or an entry of `enabled` names a resource for which `exists` is false.
    pub fn resolve<'r>(
        &self,
        enabled: impl IntoIterator<Item = &'r str>,
        exists: impl Fn(&str) -> bool,
    ) -> Result<Self, UnknownResource> {
        let known = |name: &str| {
            if exists(name) { Ok(()) } else { Err(UnknownResource(name.to_owned())) }
        };
        let every = self.0.get("*");
        let mut resolved = BTreeMap::new();
        for resource in enabled {
            known(resource)?;
            if let Some(keys) = every {
                resolved.insert(resource.to_owned(), keys.clone());
            }
        }
        let mut named = self.0.keys().filter(|resource| *resource != "*");
        named.try_for_each(|resource| known(resource))?;
        Ok(if every.is_some() { Self(resolved) } else { self.clone() })
    }

    /// Returns the selection of `resource`; call it on [resolved](Self::resolve) lists.
    pub fn selection(&self, resource: &str) -> Selection {
        Selection::new(self.keys(resource).unwrap_or_default())
    }
}

impl FromIterator<(String, Vec<String>)> for AllowLists {
    fn from_iter<I: IntoIterator<Item = (String, Vec<String>)>>(lists: I) -> Self {
        Self(lists.into_iter().collect())
    }
}

/// Splits a comma-separated list such as the value of `--resources`; trims the items and omits empty ones.
pub fn comma_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::recorded::{self, texts};
    use crate::resources::values::label_name;

    fn cases(file: &str) -> Vec<Value> {
        recorded::cases(file, 6)
    }

    fn lists(value: &Value) -> AllowLists {
        let entries = value.as_object().into_iter().flatten();
        entries.map(|(resource, keys)| (resource.clone(), texts(keys))).collect()
    }

    #[test]
    fn recorded_flags() {
        for case in cases("ksm/label_allowlist_flag.json") {
            let values = texts(&case["values"]);
            if !values.concat().is_ascii() {
                // The original applies byte offsets to characters; the next test covers our behaviour.
                continue;
            }
            let parsed: Result<Vec<_>, _> =
                values.iter().map(|value| AllowLists::parse_flag(value)).collect();
            match (parsed, case["error"].as_str()) {
                // A later occurrence of the flag replaces an earlier one.
                (Ok(parsed), None) => {
                    assert_eq!(*parsed.last().unwrap(), lists(&case["result"]), "{case}");
                }
                (Err(AllowListError::Wildcards(_)), Some(error)) => {
                    assert!(error.contains("one wildcard"), "{case}");
                }
                (Err(AllowListError::Format { .. }), Some(error)) => {
                    assert!(error.contains("metric=[label1"), "{case}");
                }
                (parsed, _) => panic!("{case}: {parsed:?}"),
            }
        }
    }

    #[test]
    fn keys_of_any_characters() {
        for (text, resource, key) in
            [("pods=[é]", "pods", "é"), ("pods=[日本]", "pods", "日本"), ("é=[a]", "é", "a")]
        {
            let parsed = AllowLists::parse_flag(text).unwrap();
            assert_eq!(parsed.keys(resource).unwrap(), [key], "{text}");
        }
    }

    /// Text beyond the recorded cases, with the original's result.
    #[test]
    fn sloppy_flags() {
        let result = |text: &str| {
            let shown = |(resource, keys): (&String, &Vec<String>)| format!("{resource}:{keys:?}");
            AllowLists::parse_flag(text).unwrap().0.iter().map(shown).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(result("a,b=[x]"), r#":["a"] b:["x"]"#);
        assert_eq!(result("pods=[a],x,nodes=[b]"), r#"nodes:["b"] pods:["a", "x"]"#);
        assert_eq!(result("pods=[a],x"), r#"pods:["a"]"#);
        assert_eq!(result("pods=[a,b,c"), r#"pods:["a", "b"]"#);
        assert_eq!(result("pods=[a],b,c]"), r#"pods:["a", "b", "c"]"#);
        assert_eq!(result("a=[b,c=[d]"), r#"a:["b"] c:["d"]"#);
        assert_eq!(result("a=[b=[c]"), r#"a:[] b:["c"]"#);
        assert_eq!(result("],pods=[a]"), r#":[""] pods:["a"]"#);
        assert_eq!(result("pods=[ ]"), r#"pods:[""]"#);
        assert_eq!(result("x, =[a]"), r#":["a"]"#);
        assert_eq!(result("pods=[*a*"), "pods:[]");
        assert_eq!(result("p**=[a]"), r#"p**:["a"]"#);
        for text in ["pods=[a],]", "a,", ", ", "pods=[,]", "pods=[a] ,nodes=[b]", "]=[a]", "x,=[a]"]
        {
            assert!(AllowLists::parse_flag(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_show_the_place() {
        let error = AllowLists::parse_flag("pods=[a],nodes=b").unwrap_err().to_string();
        assert!(error.starts_with("at \"=b\": = needs [ after it"), "{error}");
    }

    #[test]
    fn recorded_resolutions() {
        let exists = |name: &str| ["pods", "nodes", "deployments"].contains(&name);
        for case in cases("ksm/allowlist_resolution.json") {
            let enabled = texts(&case["enabled_resources"]);
            let resolved =
                lists(&case["allow_list"]).resolve(enabled.iter().map(String::as_str), exists);
            match case["error"].as_str() {
                None => assert_eq!(resolved, Ok(lists(&case["effective"])), "{case}"),
                Some(error) => {
                    assert_eq!(format!("{}.", resolved.unwrap_err()), error, "{case}");
                }
            }
        }
    }

    #[test]
    fn recorded_selections() {
        for case in cases("ksm/label_selection.json") {
            let selection = Selection::new(&texts(&case["allow"]));
            let input: BTreeMap<&str, &str> = case["input"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str().unwrap()))
                .collect();
            let pairs = input.iter().map(|(&key, &value)| (key, value));
            let selected = pairs.filter(|(key, _)| selection.matches(key));
            let mut written = Vec::new();
            label_name::write_labels(&mut written, "label", selected);
            let expected = case["labels"].as_array().unwrap().iter().map(|label| {
                let mut value = Vec::new();
                crate::exposition::escape::label_value(&mut value, label[1].as_str().unwrap());
                let value = String::from_utf8(value).unwrap();
                format!(",{}=\"{value}\"", label[0].as_str().unwrap())
            });
            let written = String::from_utf8(written).unwrap();
            assert_eq!(written, expected.collect::<String>(), "{case}");
        }
    }

    #[test]
    fn selections() {
        let selection = |list: &[&str]| {
            Selection::new(&list.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>())
        };
        assert!(selection(&[]).is_empty());
        assert!(!selection(&[]).matches("a"));
        assert!(!selection(&["**"]).is_empty());
        assert!(!selection(&["**"]).matches("a"));
        assert!(selection(&["*"]).matches("any\nthing"));
        assert!(!selection(&["a", "*"]).matches("b"));
        assert!(selection(&["a", "b*d"]).matches("bd"));
        assert!(selection(&["ab*ba"]).matches("abba"));
        assert!(!selection(&["ab*ba"]).matches("aba"));
        assert!(!selection(&["a*"]).matches("a\nb"));
        assert!(!selection(&["a.c"]).matches("abc"));
    }

    #[test]
    fn recorded_comma_lists() {
        for case in cases("ksm/comma_list_flags.json") {
            let values = texts(&case["values"]);
            let items: Vec<&str> = values.iter().flat_map(|value| comma_list(value)).collect();
            assert_eq!(items, texts(&case["as_namespaces"]), "{case}");
            let set: std::collections::BTreeSet<&str> = items.into_iter().collect();
            assert!(set.iter().copied().eq(texts(&case["as_resources"])), "{case}");
            let joined = set.into_iter().collect::<Vec<_>>().join(",");
            assert_eq!(joined, case["as_metrics"].as_str().unwrap(), "{case}");
        }
    }
}
