//! The options file of kube-state-metrics (`--config`): YAML whose keys override flags.
//!
//! [`merge`] applies a text to the flags and reports every problem with its position. Start-up,
//! reload and `check-config` share it, so they accept the same files. [`values`] defines the
//! notations of each type; this module defines the keys and the constraints of their values.

mod values;

use std::collections::{BTreeMap, BTreeSet};

use super::custom;
use super::error::{self, ConfigError};
use super::flag::Field;
use super::kube_args::{FLAGS, KubeArgs};
use super::load::Load;
use crate::config_file::{
    Document, Node, Position, Problem, ProblemClass, Severity, Values, hint, nearest,
};
use crate::kube::check_url;
use crate::resources;
use crate::resources::select::filter::{FamilyFilter, FilterError};

/// A key of the file, which sets a flag.
#[derive(Clone, Copy)]
struct Key {
    name: &'static str,
    flag: &'static str,
    field: &'static Field<KubeArgs>,
    /// True for a deprecated key, which is used only if the flag is empty otherwise.
    is_fallback: bool,
}

/// Iterates over all keys in the order of the flags; the second key of a flag is a deprecated one.
fn keys() -> impl Iterator<Item = Key> + Clone {
    FLAGS.iter().flat_map(|flag| {
        flag.keys.into_iter().flat_map(|keys| {
            let key = |(at, name): (usize, &&'static str)| Key {
                name,
                flag: flag.name,
                field: &keys.field,
                is_fallback: at > 0,
            };
            keys.names.iter().enumerate().map(key)
        })
    })
}

/// Returns whether the options file has this key.
pub fn is_key(name: &str) -> bool {
    keys().any(|key| key.name == name)
}

/// The old name of `custom_resource_state_config_file`.
const OLD_CUSTOM_RESOURCE_FILE: &str = "custom_resource_config_file";

/// The flags overridden by an options file.
pub struct MergedOptions {
    /// The flags; values of the wrong type left them unchanged.
    pub args: KubeArgs,
    /// All problems of the file, in file order. If one of them is an error, the file must not be
    /// used.
    pub problems: Vec<Problem>,
    /// The positions of the values, by key.
    positions: BTreeMap<&'static str, Position>,
}

impl MergedOptions {
    /// Returns the first error.
    pub fn error(&self) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.severity == Severity::Error)
    }

    /// Returns a start-up error of kube-state-metrics with these flags, located at the keys that cause it. The file
    /// alone is valid.
    pub fn startup_problem(&self, error: &ConfigError) -> Problem {
        let position = error.keys.iter().find_map(|key| self.positions.get(key)).copied();
        Problem::error(
            ProblemClass::Contradiction,
            position.unwrap_or(Position { line: 1, column: 1 }),
            error.to_string(),
            "",
        )
    }
}

/// Overrides `args` with the values of an options file.
pub fn merge(text: &str, args: &KubeArgs, load: Load<'_>) -> MergedOptions {
    let mut merged =
        MergedOptions { args: args.clone(), problems: Vec::new(), positions: BTreeMap::new() };
    let parsed = leading_tab(text).map_or_else(|| Document::parse(text), Err);
    let document = match parsed {
        Ok(document) => document,
        Err(problem) => {
            merged.problems.push(problem);
            return merged;
        }
    };
    const WANTED: &str = "keys with values, such as resources: {pods: {}}";
    let mut values = Values::new(&document);
    let entries = document.root().and_then(|root| values.entries(root, "the file", WANTED));
    let entries = entries.unwrap_or_default();
    for &((name, position), _) in &entries {
        if !is_key(name) {
            values.problems.push(unknown_key(name, position));
        } else if name == OLD_CUSTOM_RESOURCE_FILE {
            values.problems.push(Problem::warning(
                ProblemClass::Deprecated,
                position,
                format!("{OLD_CUSTOM_RESOURCE_FILE} is deprecated"),
                "write custom_resource_state_config_file",
            ));
        }
    }
    let mut given = Vec::new();
    let mut keys: Vec<Key> = keys().collect();
    // With a switch, other keys may have no meaning.
    keys.sort_by_key(|key| !matches!(key.field, Field::Switch(_)));
    for key in keys {
        // Of duplicate keys, which are reported separately, the last one counts.
        if let Some((_, node)) = entries.iter().rev().find(|((name, _), _)| *name == key.name) {
            // The type of a deprecated key without effect is checked nevertheless.
            if is_used(&key, &mut merged.args) {
                given.push((key, *node));
                merged.positions.insert(key.name, node.position);
            }
            apply(&mut values, &key, node, &mut merged.args);
        }
    }
    let mut problems = values.problems;
    problems.extend(combination_problems(&merged.args, &given, load));
    problems.sort_by_key(|problem| (problem.line, problem.column));
    merged.problems = problems;
    merged
}

/// Returns whether a key of the file has an effect: a deprecated one has none if the flag or the key in its place has a value.
fn is_used(key: &Key, args: &mut KubeArgs) -> bool {
    !key.is_fallback || matches!(key.field, Field::Text(field) if field(args).is_empty())
}

/// Stores the value of a key in the flags.
fn apply(values: &mut Values<'_>, key: &Key, node: &Node, args: &mut KubeArgs) {
    fn put<T>(target: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *target = value;
        }
    }
    let name = key.name;
    match key.field {
        Field::Text(field) => {
            let text = values.text(node, name);
            if is_used(key, args) {
                put(field(args), text);
            }
        }
        Field::Url(field) => {
            let text = values.text(node, name);
            let url = text.as_deref().filter(|url| !url.is_empty());
            if let Some(Err(error)) = url.map(check_url) {
                let message = format!("{name}: {error}");
                let hint = "write a URL such as https://10.0.0.1:6443";
                values.error(ProblemClass::InvalidUrl, node.position, message, hint);
            }
            put(field(args), text);
        }
        Field::Switch(field) => put(field(args), values.boolean(node, name)),
        Field::Int(field) => put(field(args), values.int(node, name, 64)),
        Field::ShortInt(field) => {
            let number = values.int(node, name, 32);
            put(field(args), number.and_then(|number| i32::try_from(number).ok()));
        }
        Field::Port(field) => {
            let number = values.int(node, name, 64);
            if let Some(port) = number.filter(|port| u16::try_from(*port).is_err()) {
                let (message, hint) =
                    (format!("{name} is {port}"), "a port must be from 0 to 65535");
                values.error(ProblemClass::InvalidPort, node.position, message, hint);
            }
            put(field(args), number);
        }
        Field::Float(field) => put(field(args), values.float(node, name)),
        Field::Nanos(field) => put(field(args), values.duration(node, name)),
        Field::Names(field) => put(field(args), values.texts(node, name)),
        Field::Resources(field) => {
            let Some(set) = values.set(node, name) else { return };
            for (resource, position) in set.iter().flatten() {
                if resources::find(resource).is_none() && !args.custom_resources_only {
                    values.problems.push(unknown_resource(name, resource, *position));
                }
            }
            replace(field(args), set);
        }
        Field::Patterns(field) => patterns(values, name, node, field(args), false),
        Field::OptInPatterns(field) => patterns(values, name, node, field(args), true),
        Field::Labels(field) => {
            let Some(lists) = values.lists(node, name) else { return };
            for ((resource, position), keys) in &lists {
                if resource != "*" && resources::find(resource).is_none() {
                    values.problems.push(unknown_resource(name, resource, *position));
                }
                for (label, position) in keys.iter().filter(|(key, _)| key.matches('*').count() > 1)
                {
                    let message = format!("{name}: {resource}: {label:?} has more than one *");
                    let hint = "only one wildcard per label is allowed";
                    values.error(ProblemClass::SeveralWildcards, *position, message, hint);
                }
            }
            let keys =
                |keys: Vec<(String, Position)>| keys.into_iter().map(|(key, _)| key).collect();
            *field(args) =
                lists.into_iter().map(|((resource, _), list)| (resource, keys(list))).collect();
        }
    }
}

/// Applies a set of patterns and reports those that are invalid.
fn patterns(
    values: &mut Values<'_>,
    name: &str,
    node: &Node,
    into: &mut BTreeSet<String>,
    is_opt_in: bool,
) {
    let Some(set) = values.set(node, name) else { return };
    for (pattern, position) in set.iter().flatten() {
        let one = std::slice::from_ref(pattern);
        let (filter, syntax) = match is_opt_in {
            false => (FamilyFilter::new(one, &[], &[]), "the syntax is that of ECMAScript"),
            true => (FamilyFilter::new(&[], &[], one), "the syntax is that of Go's regexp (RE2)"),
        };
        if let Err(FilterError::Pattern { reason, .. }) = filter {
            let message = format!("{name}: pattern {pattern:?}: {reason}");
            values.error(ProblemClass::InvalidPattern, *position, message, syntax);
        }
    }
    replace(into, set);
}

/// Applies a set: `null` empties the flag, an empty set leaves it unchanged.
fn replace(target: &mut BTreeSet<String>, set: Option<Vec<(String, Position)>>) {
    match set {
        None => target.clear(),
        Some(set) if set.is_empty() => {}
        Some(set) => *target = set.into_iter().map(|(member, _)| member).collect(),
    }
}

/// Returns the problems of combinations of values and of referenced files. `given` contains the keys of the file.
fn combination_problems(args: &KubeArgs, given: &[(Key, &Node)], load: Load<'_>) -> Vec<Problem> {
    let position = |wanted: &dyn Fn(&Key) -> bool| {
        given.iter().rev().find(|(key, _)| wanted(key)).map(|(_, node)| node.position)
    };
    let mut problems = Vec::new();
    if !args.metric_allowlist.is_empty()
        && !args.metric_denylist.is_empty()
        && let Some(position) =
            position(&|key| matches!(key.name, "metric_denylist" | "metric_allowlist"))
    {
        let message = "metric_allowlist and metric_denylist exclude each other".to_owned();
        let hint = "give only one of them, as a flag or here";
        problems.push(Problem::error(ProblemClass::Contradiction, position, message, hint));
    }
    // On a reload, referenced files are read once, by the caller.
    let Load::First = load else { return problems };
    // An inline configuration takes precedence over a file.
    let inline = !args.custom_resource_config.is_empty();
    let custom_flag =
        if inline { "custom-resource-state-config" } else { "custom-resource-state-config-file" };
    if let Some(position) = position(&|key| key.flag == custom_flag)
        && let Err(errors) = custom::read(args, Load::First)
    {
        let invalid = |error: ConfigError| {
            let hint = "check it separately with --custom-resource-state-config-file";
            Problem::error(ProblemClass::InvalidOptions, position, error.to_string(), hint)
        };
        problems.extend(errors.0.into_iter().map(invalid));
    }
    if let Some(position) = position(&|key| key.name == "tls_config")
        && let Some(error) = error::web_problem(args, Load::First)
    {
        let (class, hint) = (ProblemClass::InvalidOptions, "name a file that can be used");
        problems.push(Problem::error(class, position, error.to_string(), hint));
    }
    problems
}

fn unknown_resource(key: &str, resource: &str, position: Position) -> Problem {
    let names: Vec<_> = resources::registry().iter().map(|resource| resource.name()).collect();
    let hint = hint(resource, &names, "available are");
    let message = format!("{key}: resource {resource} does not exist");
    Problem::error(ProblemClass::UnknownResource, position, message, hint)
}

fn unknown_key(name: &str, position: Position) -> Problem {
    // Suggest the key when the file uses the flag's name.
    let of_flag = keys().find(|key| key.flag == name.trim_start_matches("--"));
    let meant = of_flag.map(|key| key.name).or_else(|| nearest(name, keys().map(|key| key.name)));
    let hint = match meant {
        Some(known) => format!("write {known}"),
        None => "remove it, or see the keys in the documentation".to_owned(),
    };
    let message = format!("unknown key {name:?} has no effect");
    Problem::warning(ProblemClass::UnknownField, position, message, hint)
}

/// Indentation must use spaces; after the first key the YAML parser enforces that.
fn leading_tab(text: &str) -> Option<Problem> {
    for (line, content) in (1..).zip(text.lines()) {
        let rest = content.trim_start();
        let indent = content.get(..content.len() - rest.len()).unwrap_or_default();
        if let Some(tab) = indent.find('\t') {
            let position = Position { line, column: tab as u64 + 1 };
            let message = "a tab before the first key".to_owned();
            return Some(Problem::error(ProblemClass::YamlSyntax, position, message, "use blanks"));
        }
        if !rest.is_empty() && !rest.starts_with('#') {
            break;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str) -> Result<KubeArgs, String> {
        let mut args = KubeArgs::default();
        args.resources.insert("jobs".into());
        args.node = "n".into();
        merged(text, &args)
    }

    fn merged(text: &str, args: &KubeArgs) -> Result<KubeArgs, String> {
        let merged = merge(text, args, Load::First);
        match merged.error() {
            Some(error) => Err(error.to_string()),
            None => Ok(merged.args),
        }
    }

    #[test]
    fn only_present_keys_override_flags() {
        let args = applied(
            "resources: {pods: {}, nodes: }\nlabels_allow_list: {pods: [\"a/b\", \"x]y\"]}\n\
             server_idle_timeout: 1m30s\nserver_read_timeout: \"5s\"\nnamespaces: [b, a]\nport: 9\n\
             auto-gomemlimit: true\nuse_api_server_cache: true\nnamespace: ns\nunknown: {a: 1}\n",
        )
        .expect("valid");
        assert_eq!(Vec::from_iter(args.resources), ["nodes", "pods"]);
        let keys = args.labels_allowlist.keys("pods").expect("list");
        assert_eq!(keys, ["a/b", "x]y"]);
        assert_eq!(
            (args.server_idle_timeout, args.server_read_timeout),
            (90_000_000_000, 5_000_000_000)
        );
        assert_eq!((args.namespaces, args.port), (vec!["b".to_owned(), "a".to_owned()], 9));
        assert!(args.auto_gomemlimit && args.use_apiserver_cache);
        assert_eq!((args.pod_namespace.as_str(), args.node.as_str()), ("ns", "n"));
    }

    #[test]
    fn empty_files_and_empty_sets_change_nothing() {
        for text in ["", "# nothing\n", "{}", "resources: {}\n", "---\n", "node: ~\n"] {
            let args = applied(text).expect("valid");
            assert_eq!(Vec::from_iter(args.resources), ["jobs"], "{text:?}");
            assert_eq!(args.node, "n", "{text:?}");
        }
    }

    #[test]
    fn null_clears_sets_lists_and_maps_and_an_empty_map_clears_too() {
        let args = |text: &str| {
            let mut args = KubeArgs { namespaces: vec!["a".into()], ..KubeArgs::default() };
            args.metric_allowlist.insert("x".into());
            args.labels_allowlist =
                [("nodes".to_owned(), vec!["*".to_owned()])].into_iter().collect();
            let args = merged(text, &args).expect(text);
            (
                args.metric_allowlist.is_empty(),
                args.namespaces.is_empty(),
                args.labels_allowlist.keys("nodes").is_none_or(<[String]>::is_empty),
            )
        };
        assert_eq!(args("port: 1\n"), (false, false, false));
        assert_eq!(args("metric_allowlist:\nnamespaces: ~\n"), (true, true, false));
        assert_eq!(args("metric_allowlist: {}\nnamespaces: []\n"), (false, true, false));
        assert_eq!(args("labels_allow_list:\n"), (false, false, true));
        assert_eq!(args("labels_allow_list: {}\n"), (false, false, true));
        assert_eq!(args("labels_allow_list: {pods: }\n"), (false, false, true));
    }

    #[test]
    fn scalars_are_parsed_like_in_go() {
        for text in [
            "port: 26910.7\n",
            "port: 2.691e4\n",
            "port: 0x691e\n",
            "port: 064436\n",
            "port: 26910\n---\nport: x\n",
        ] {
            assert_eq!(applied(text).expect(text).port, 26910, "{text:?}");
        }
        for (text, on) in [("yes", true), ("\"On\"", true), ("True", true), ("n", false)] {
            let text = format!("use_api_server_cache: {text}\n");
            assert_eq!(applied(&text).expect(&text).use_apiserver_cache, on, "{text:?}");
        }
        assert_eq!(applied("shard: -0.5\n").expect("valid").shard, 0);
        assert_eq!(applied("node: 1.50\n").expect("valid").node, "1.50");
        assert_eq!(applied("server_read_timeout: 0s\n").expect("valid").server_read_timeout, 0);
        let args = applied("labels_allow_list: {pods: [1, true, ~]}\n").expect("valid");
        assert_eq!(args.labels_allowlist.keys("pods").expect("list"), ["1", "true"]);
        let args = applied("auto-gomemlimit-ratio: 1\n").expect("valid");
        assert!((args.auto_gomemlimit_ratio - 1.0).abs() < f64::EPSILON);
    }

    /// Returns line, column and problem class of each problem.
    fn positions(text: &str) -> Vec<(u64, u64, ProblemClass)> {
        let problems = merge(text, &KubeArgs::default(), Load::First).problems;
        assert!(problems.iter().all(|problem| !problem.hint.is_empty()), "{problems:?}");
        problems.iter().map(|problem| (problem.line, problem.column, problem.class)).collect()
    }

    #[test]
    fn every_problem_has_a_position() {
        use ProblemClass::*;
        let text = "resources:\n  pods: {}\n  foo: {}\n  deployment:\nport: x\n\
                    labels_allow_list:\n  pods: [a*, \"a*b*\"]\n  jbos: [x]\n\
                    metric_denylist: {\"(\": }\nmetric_opt_in_list: {\"a**\": {}}\n\
                    auth_filter: true\ntls_config: web.yml\ncustom_resource_config: \"x\"\n\
                    telemetry_port: 65536\nresorces: {}\nuse_api_server_cache: true\n\
                    custom_resource_config_file: f\nnamespaces: a\nnamespaces: [a]\n";
        assert_eq!(
            positions(text),
            [
                (3, 3, UnknownResource),
                (4, 3, UnknownResource),
                (5, 7, YamlType),
                (7, 14, SeveralWildcards),
                (8, 3, UnknownResource),
                (9, 19, InvalidPattern),
                (10, 22, InvalidPattern),
                (12, 13, InvalidOptions),
                (13, 25, InvalidOptions),
                (14, 17, InvalidPort),
                (15, 1, UnknownField),
                (17, 1, Deprecated),
                (19, 1, DuplicateKey),
            ]
        );
    }

    /// An error of the file that is read is reported at the key that names it, not at the other one.
    #[test]
    fn an_error_of_a_file_is_at_the_key_that_names_it() {
        let (new, old) = ("custom_resource_state_config_file", "custom_resource_config_file");
        for (text, line) in [
            (format!("{new}: /none\n{old}: /other\n"), 1),
            (format!("{old}: /other\n{new}: /none\n"), 2),
            (format!("{new}: ''\n{old}: /other\n"), 2),
        ] {
            let mut found = positions(&text);
            found.retain(|(_, _, class)| *class == ProblemClass::InvalidOptions);
            assert_eq!(found.iter().map(|(line, ..)| *line).collect::<Vec<_>>(), [line], "{text}");
        }
        let flag = KubeArgs { custom_resource_config_file: "/none".into(), ..KubeArgs::default() };
        let problems = merge(&format!("{old}: /other\n"), &flag, Load::First).problems;
        assert!(problems.iter().all(|problem| problem.class == ProblemClass::Deprecated));
    }

    /// As in kube-state-metrics, wherever the switch is.
    #[test]
    fn names_are_not_checked_with_custom_resources_only() {
        let text = "resources: {foo: {}}\n";
        assert_eq!(positions(text), [(1, 13, ProblemClass::UnknownResource)]);
        assert_eq!(positions(&format!("{text}custom_resources_only: true\n")), []);
        let args = KubeArgs { custom_resources_only: true, ..KubeArgs::default() };
        assert!(merge(text, &args, Load::First).problems.is_empty());
    }

    #[test]
    fn conflicts_with_flags_are_detected() {
        let mut args = KubeArgs::default();
        let file = "port: 1\nmetric_denylist: {a: }\nnamespace: ns\n";
        assert!(merge(file, &args, Load::First).problems.is_empty());
        args.metric_allowlist.insert("b".into());
        args.pod = "p".into();
        let problems = merge(file, &args, Load::First).problems;
        let lines: Vec<_> = problems.iter().map(|one| (one.line, one.class)).collect();
        assert_eq!(lines, [(2, ProblemClass::Contradiction)]);
        // Problems of the flags alone are not attributed to the file.
        assert!(
            merge("port: 1\n", &KubeArgs { auth_filter: true, ..args }, Load::First)
                .problems
                .is_empty()
        );
    }

    #[test]
    fn hints_suggest_the_intended_value() {
        for (text, part) in [
            ("resorces: {pods: }\n", "write resources"),
            ("metric-labels-allowlist: {}\n", "write labels_allow_list"),
            ("use-apiserver-cache: true\n", "write use_api_server_cache"),
            ("resources: {pod: }\n", "write pods"),
            ("resources: [pods]\n", "write a map"),
            ("labels_allow_list: {pods: a}\n", "list"),
            ("port: \"1\"\n", "without quotes"),
            ("server_read_timeout: 5\n", "60s"),
        ] {
            let problems = merge(text, &KubeArgs::default(), Load::First).problems;
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            assert!(problems[0].to_string().contains(part), "{text}: {}", problems[0]);
        }
    }

    #[test]
    fn resources_beside_a_wildcard_must_exist() {
        assert!(positions("labels_allow_list: {\"*\": [a], pods: [b]}\n").is_empty());
        assert_eq!(positions("labels_allow_list: {\"*\": [a], foo: [b]}\n").len(), 1);
    }

    /// The deprecated key of the custom resource file is used only if neither the flag nor the other key names a file.
    #[test]
    fn the_deprecated_key_is_a_fallback() {
        let merged = |flag: &str, text: &str| {
            let flags =
                KubeArgs { custom_resource_config_file: flag.to_owned(), ..KubeArgs::default() };
            merge(text, &flags, Load::First).args.custom_resource_config_file
        };
        let old = "custom_resource_config_file: B\n";
        assert_eq!(merged("A", old), "A");
        assert_eq!(merged("", old), "B");
        assert_eq!(merged("A", "custom_resource_config_file: ''\n"), "A");
        assert_eq!(merged("A", "custom_resource_state_config_file: ''\n"), "");
        assert_eq!(merged("A", "custom_resource_state_config_file: C\n"), "C");
        for text in [
            format!("{old}custom_resource_state_config_file: C\n"),
            format!("custom_resource_state_config_file: C\n{old}"),
        ] {
            assert_eq!(merged("A", &text), "C");
        }
        let text = format!("custom_resource_state_config_file: ''\n{old}");
        assert_eq!(merged("A", &text), "B");
    }

    #[test]
    fn syntax_and_semantic_problems_differ_in_class() {
        let form = |text: &str| {
            merge(text, &KubeArgs::default(), Load::First)
                .error()
                .expect(text)
                .class
                .is_syntax_error()
        };
        for text in ["{{", "port: x\n", "port: 1\nport: 1\n", "labels_allow_list: {pods: ['**']}\n"]
        {
            assert!(form(text), "{text}");
        }
        for text in
            ["resources: {foo: }\n", "tls_config: /nonexistent\n", "metric_allowlist: {\"(\": }\n"]
        {
            assert!(!form(text), "{text}");
        }
    }

    #[test]
    fn broken_files_are_errors() {
        for text in [
            "resources: [pods]\n",
            "resources: {pods: \"\"}\n",
            "resources: {pods: true}\n",
            "resources: {pods: []}\n",
            "resources: {pods: x}\n",
            "resources: \"\"\n",
            "labels_allow_list: []\n",
            "labels_allow_list: {pods: a}\n",
            "namespaces: a\n",
            "port: x\n",
            "port: \"26910\"\n",
            "total_shards: \"2\"\n",
            "shard: 4294967296\n",
            "object_limit: 1e30\n",
            "object_limit: .inf\n",
            "object_limit: .nan\n",
            "enable_gzip_encoding: \"true\"\n",
            "enable_gzip_encoding: 1\n",
            "auto-gomemlimit-ratio: \"1\"\n",
            "server_read_timeout: 5\n",
            "server_read_timeout: 5q\n",
            "server_read_timeout: \"\"\n",
            "node: [a]\n",
            "node: a\nnode: a\n",
            "\tport: 1\n",
            "# x\n \t# y\nport: 1\n",
            "- a\n",
            "hello\n",
            "{{",
        ] {
            assert!(applied(text).is_err(), "{text:?}");
        }
        let error = applied("port: 1\nshard: x\n").expect_err("invalid");
        assert!(error.contains("line 2"), "{error}");
    }
}
