//! Writes drafted entries as a configuration file with comments.

use super::metrics::{EntryDraft, MetricDraft};
use crate::resources::custom::Definition;
use crate::resources::custom::config::{Block, LabelPaths};
use crate::tools::yaml_text::quoted;

/// The maximum length of a comment in characters.
const MAX_COMMENT: usize = 200;

const HEAD: &str = "\
# Drafted by `kstatd custom draft`: remove unused metrics, and write help texts that say more than a path.
# `path: [], valueFrom: [x]` is x of whichever top-level member has it, without a value error where none does.
# `errorLogV: 1` keeps absent values out of the log.
kind: CustomResourceStateMetrics
spec:
  resources:
";

/// Returns the file.
pub(super) fn write(drafts: &[EntryDraft<'_>]) -> String {
    let mut out = HEAD.to_owned();
    drafts.iter().for_each(|draft| entry(draft, &mut out));
    out
}

fn entry(draft: &EntryDraft<'_>, out: &mut String) {
    let Definition { group, version, kind, .. } = draft.definition;
    let [group, version, kind] = [group, version, kind].map(|text| scalar(text));
    comment("  ", &draft.origin, out);
    for left_out in &draft.left_out {
        comment("  ", &format!("Left out: {left_out}."), out);
    }
    out.push_str(&format!(
        "  - groupVersionKind: {{group: {group}, version: {version}, kind: {kind}}}\n"
    ));
    if let Some(prefix) = &draft.prefix {
        out.push_str(&format!("    metricNamePrefix: {}\n", scalar(prefix)));
    }
    label_paths("    ", &draft.labels, out);
    out.push_str("    metrics:\n");
    for metric in &draft.metrics {
        comment("    ", &metric.origin, out);
        write_metric(metric, out);
    }
}

fn write_metric(metric: &MetricDraft, out: &mut String) {
    out.push_str(&format!(
        "    - name: {}\n      help: {}\n",
        scalar(&metric.name),
        sentence(&metric.help)
    ));
    let MetricDraft { kind, block, labels, .. } = metric;
    let key = match *kind {
        "Info" => "info",
        "StateSet" => "stateSet",
        _ => "gauge",
    };
    // Every object has metadata; the rest may be absent, which is no reason for a line in the log.
    let is_optional = block.path.segments.first().is_some_and(|first| first != "metadata");
    if is_optional && *kind == "Gauge" {
        out.push_str("      errorLogV: 1\n");
    }
    if !labels.is_empty() {
        label_paths("      ", labels, out);
    }
    let settings = flow(block);
    out.push_str(&format!("      each:\n        type: {kind}\n        {key}: {{{settings}}}\n"));
}

fn label_paths(indent: &str, labels: &LabelPaths, out: &mut String) {
    out.push_str(&format!("{indent}labelsFromPath:\n"));
    for (label, path) in labels {
        out.push_str(&format!("{indent}  {}: {}\n", scalar(label), list(&path.segments)));
    }
}

/// Returns the keys of a block with their values, in flow style.
fn flow(block: &Block) -> String {
    let Block { label_name, path, value_from, label_from_key, labels_from_path, list, .. } = block;
    let word = |text: &str| (!text.is_empty()).then(|| scalar(text));
    let some_items = |items: &[String]| (!items.is_empty()).then(|| self::list(items));
    // An Info metric of the whole object needs no path.
    let is_whole = path.segments.is_empty() && value_from.segments.is_empty();
    let labels = labels_from_path
        .iter()
        .map(|(label, path)| format!("{}: {}", scalar(label), self::list(&path.segments)));
    let labels = labels.collect::<Vec<_>>().join(", ");
    let parts = [
        ("labelName", word(label_name)),
        ("path", (!is_whole).then(|| self::list(&path.segments))),
        ("valueFrom", some_items(&value_from.segments)),
        ("labelFromKey", word(label_from_key)),
        ("labelsFromPath", (!labels.is_empty()).then(|| format!("{{{labels}}}"))),
        ("list", some_items(list)),
    ];
    let parts = parts.into_iter().filter_map(|(key, value)| Some(format!("{key}: {}", value?)));
    parts.collect::<Vec<_>>().join(", ")
}

fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| scalar(item)).collect();
    format!("[{}]", items.join(", "))
}

/// Writes a comment line. Names in a definition may contain anything, also line breaks.
fn comment(indent: &str, text: &str, out: &mut String) {
    let text: String = text.chars().take(MAX_COMMENT).map(printable).collect();
    out.push_str(&format!("{indent}# {text}\n"));
}

fn printable(c: char) -> char {
    if c == ' ' || c.is_alphanumeric() || c.is_ascii_punctuation() { c } else { ' ' }
}

/// Returns a text as a YAML scalar, in quotes unless it is a plain word in every version of YAML.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    if text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(is_plain)
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
    {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// Returns a text of several words as a YAML scalar.
fn sentence(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " _./;,()".contains(c);
    let is_word = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.contains(' ');
    if is_word && text.chars().all(is_plain) { text.to_owned() } else { quoted(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::custom;

    /// Every text is read as it was written.
    #[test]
    fn scalars_are_read_back() {
        for text in [
            "a",
            "no",
            "NULL",
            "1",
            "1e3",
            "~",
            "-",
            "",
            " a",
            "a: b",
            "a #b",
            "é\u{85}\u{2028}\n\t\"\\",
            "\u{1}\u{7f}",
        ] {
            let file =
                format!("spec: {{resources: [{{groupVersionKind: {{group: {}}}}}]}}", scalar(text));
            let loaded = custom::load(&file);
            assert!(loaded.problems.is_empty(), "{file}: {:?}", loaded.problems);
            assert_eq!(loaded.config.entries[0].group, text);
            let file =
                format!("spec:\n  resources:\n  - metrics:\n    - help: {}\n", sentence(text));
            assert_eq!(custom::load(&file).config.entries[0].metrics[0].help, text);
        }
        let mut out = String::new();
        comment("", "a\nb\u{2028}c", &mut out);
        assert_eq!(out, "# a b c\n");
    }
}
