//! Removes secrets from text that leaves the process: passwords, tokens, keys and credentials in URLs.
//!
//! It knows secrets by their form or by the name before them. Values of structured data are removed by the names of
//! their keys before ([`redact_value`]), so that a secret of any form is found.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// The text that replaces a secret.
pub(crate) const REMOVED: &str = "[removed]";

/// The end of a name whose value is a secret.
const NAMES: &str = r"(?:password|passwd|passphrase|secret|token|credentials?|authorization|cookie|api[-_]?key|private[-_]?key|key-data|basic_auth_users)";

/// Forms of secrets with their replacements, applied in this order.
static FORMS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    // A value may be quoted, also within quoted text.
    let value = r#"(?:\\?"(?:[^"\\]|\\[^"])*\\?"|'[^']*'|[^\s,;&}\\"']+)"#;
    let named =
        format!(r#"(?i)({NAMES}[\\"']*\s*[:=]\s*(?:(?:basic|bearer|negotiate)\s+)?){value}"#);
    let forms = [
        (r"(?s)-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|\z)", "[removed]"),
        (r#"(://)[^/?#\s"'<>]*@"#, "$1[removed]@"),
        (r"(?i)\b((?:basic|bearer|negotiate)\s+)[\w.~+/=-]*[\d=+/][\w.~+/=-]*", "$1[removed]"),
        (r"\$2[abxy]?\$\d\d\$[./\w]+", "[removed]"),
        (r"\beyJ[\w-]{5,}(?:\.[\w-]*)+", "[removed]"),
        (&named, "$1[removed]"),
    ];
    forms.into_iter().filter_map(|(form, with)| Some((Regex::new(form).ok()?, with))).collect()
});

/// Names of flags and keys whose values are secrets.
static NAMED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("(?i)(?:{NAMES}|headers)$")).ok());

/// Returns whether the value of this key or flag is a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    NAMED.as_ref().is_none_or(|names| names.is_match(name))
}

/// Returns whether a text has a word that names a secret.
pub(crate) fn mentions_secrets(text: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).any(is_secret_name)
}

/// Returns the text without secrets of known forms.
pub(crate) fn redact(text: &str) -> String {
    let without = |text: String, (form, with): &(Regex, &str)| match form.replace_all(&text, *with)
    {
        Cow::Borrowed(_) => text,
        Cow::Owned(text) => text,
    };
    FORMS.iter().fold(text.to_owned(), without)
}

/// Removes the values of secret keys, at any depth. Returns whether there were any.
pub(crate) fn redact_value(value: &mut Value) -> bool {
    let mut found = false;
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| found |= redact_value(item)),
        Value::Object(fields) => {
            for (name, value) in fields {
                found |= if is_secret_name(name) { remove(value) } else { redact_value(value) };
            }
        }
        _ => {}
    }
    found
}

/// Removes all scalars of a value and keeps its structure. Returns false for null.
fn remove(value: &mut Value) -> bool {
    match value {
        Value::Null => return false,
        Value::Array(items) => items.iter_mut().for_each(|item| _ = remove(item)),
        Value::Object(fields) => fields.values_mut().for_each(|value| _ = remove(value)),
        _ => *value = REMOVED.into(),
    }
    true
}

/// Returns the arguments of a command line without secrets, which may follow a flag as an own argument.
pub(crate) fn redact_arguments(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut follows = false;
    let redacted = args.map(|arg| {
        let is_secret =
            std::mem::replace(&mut follows, arg.starts_with('-') && is_secret_name(&arg));
        if is_secret { REMOVED.to_owned() } else { redact(&arg) }
    });
    redacted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_nothing_else() {
        for (text, expected) in [
            (
                "https://me:pl4nted@h:1/x?a=b and http://h/",
                "https://[removed]@h:1/x?a=b and http://h/",
            ),
            ("Authorization: Bearer pl4nted.x", "Authorization: Bearer [removed]"),
            ("Authorization: Basic cGxhbnRlZA==", "Authorization: Basic [removed]"),
            ("header \"Bearer pl4nted\"", "header \"Bearer [removed]\""),
            ("--token=pl4nted --port=8080", "--token=[removed] --port=8080"),
            ("password: \"my pl4nted one\", a: 1", "password: [removed], a: 1"),
            (
                r#"error="x \"clientSecret\":\"a pl4nted\" y""#,
                r#"error="x \"clientSecret\":[removed] y""#,
            ),
            ("u: $2y$10$abcdefghijklmnopqrstuv/pl4nted", "u: [removed]"),
            ("x eyJhbGciOiJ.eyJzdWIiOi.pl4nted y", "x [removed] y"),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\npl4nted\n-----END RSA PRIVATE KEY-----\nb",
                "a\n[removed]\nb",
            ),
            (
                "resources: [secrets, tokens]\ntoken_file: /run/token\n",
                "resources: [secrets, tokens]\ntoken_file: /run/token\n",
            ),
            (
                "basic authentication failed, bearer authentication too",
                "basic authentication failed, bearer authentication too",
            ),
            ("kstatd_token_total{secret_type=\"x\"} 1", "kstatd_token_total{secret_type=\"x\"} 1"),
        ] {
            let redacted = redact(text);
            assert_eq!(redacted, expected);
            assert_eq!(redact(&redacted), redacted, "it is stable");
        }
    }

    #[test]
    fn values_and_arguments_are_removed_by_name() {
        let mut value = serde_json::json!({
            "basic_auth_users": {"me": "pl4nted"}, "http_server_config": {"headers": {"X-A": "pl4nted"}},
            "list": [{"apiKey": ["pl4nted"], "secret": null}], "name": "kept",
        });
        assert!(redact_value(&mut value));
        assert!(!value.to_string().contains("pl4nted") && value["name"] == "kept", "{value}");
        assert_eq!(value["basic_auth_users"]["me"], REMOVED);
        assert!(!redact_value(&mut serde_json::json!({"a": [1, {"token_file": "x"}]})));
        let args = ["kstatd", "--token", "pl4nted", "--resources", "secrets"].map(str::to_owned);
        assert_eq!(
            redact_arguments(args.into_iter()),
            ["kstatd", "--token", REMOVED, "--resources", "secrets"]
        );
        assert!(mentions_secrets("a: [\npassword: x") && !mentions_secrets("resources: secrets"));
    }
}
