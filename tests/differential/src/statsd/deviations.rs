//! The deliberate differences between statsd_exporter and kstatd, as far as random lines and mappings meet them.

use super::mapping::{Mapping, Rule};
use crate::program::Treatment;

/// Rows of docs/compatibility.md by the beginning of their first cell.
pub const ROWS: &[(&str, Treatment)] = &[
    ("`]` before `[` in a name", Treatment::LeftOut),
    ("`1\\|c\\|c:abc`: container ID without a tag section", Treatment::Rewritten),
    ("Rate `nan` for these types", Treatment::NotGenerated),
    ("A line with more than 1,000 tags", Treatment::NotGenerated),
    ("A segment `*` in the name of a metric", Treatment::NotGenerated),
    ("Glob rule `a.b` after `a.b.c`", Treatment::LeftOut),
    ("Two glob rules with the same `match`", Treatment::LeftOut),
    ("`glob_disable_ordering`", Treatment::LeftOut),
    ("`$10`, `%`, `$1 $1a` in templates of glob rules", Treatment::NotGenerated),
    ("One-character label names in a mapping file", Treatment::NotGenerated),
    ("Unordered or duplicate buckets", Treatment::NotGenerated),
    ("Labels that a mapping adds to one sample", Treatment::LeftOut),
    ("An empty metric name", Treatment::LeftOut),
    ("A label name that begins with `__`", Treatment::NotGenerated),
    ("A tag `quantile` on a summary or `le` on a histogram", Treatment::NotGenerated),
    ("One name with two help texts", Treatment::NotGenerated),
    ("A counter or gauge `x` next to `x_count`", Treatment::NotGenerated),
    ("A name whose series have all expired", Treatment::NotGenerated),
    ("Buckets, quantiles and `max_age` after a reload", Treatment::NotGenerated),
    ("NaN among the values of a summary", Treatment::NotGenerated),
    ("0 and -0 among the values of a summary", Treatment::Rewritten),
    ("A counter whose integer part passes 2⁶⁴", Treatment::NotGenerated),
];

/// Returns whether both programs search the rules alike once `rule` follows `earlier`: an automaton of the original ignores
/// a glob rule that ends inside an earlier one, and a repeated rule demotes the first.
pub fn is_comparable(earlier: &[Rule], rule: &Rule) -> bool {
    let shares_tree = |other: &&Rule| {
        !other.is_regex
            && (other.metric_type.is_none()
                || rule.metric_type.is_none()
                || other.metric_type == rule.metric_type)
    };
    rule.is_regex
        || earlier.iter().filter(shares_tree).all(|other| {
            let rest = other.pattern.strip_prefix(&rule.pattern);
            rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with('.'))
        })
}

/// Returns the line that the original gets in place of `line`; `None` if neither program gets it.
pub fn for_original(line: &[u8], mapping: Option<&Mapping>, flags: &[String]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(line);
    let name = text.split(':').next().unwrap_or_default();
    let closes_first = match (name.find(']'), name.find('[')) {
        (Some(closing), opening) => opening.is_none_or(|opening| closing < opening),
        _ => false,
    };
    let plain = plain_name(name);
    if closes_first || plain.is_empty() {
        return None;
    }
    if let Some(mapping) = mapping {
        let samples = text.split(':').filter(|part| part.contains('|')).count();
        let adds_labels = mapping.rules.iter().any(|rule| !rule.labels.is_empty());
        if samples > 1 && adds_labels && !text.contains("|#") {
            return None;
        }
        if mapping.defaults.iter().any(|line| line.starts_with("glob_disable_ordering"))
            && TYPES.iter().any(|kind| {
                [&*plain, name].iter().any(|name| meets_dead_end(&mapping.rules, kind, name))
            })
        {
            return None;
        }
    }
    Some(with_container_label(&text, flags).map_or_else(|| line.to_vec(), String::into_bytes))
}

/// Returns the line with its container ID as a tag, if it has one and no tag section: the original rejects these, and in
/// kstatd the ID is the label `container_id`.
fn with_container_label(line: &str, flags: &[String]) -> Option<String> {
    let (start, id) = line.rsplit_once("|c:")?;
    let enabled = |format: &str| !flags.contains(&format!("--no-statsd.parse-{format}-tags"));
    if line.contains("|#") || start.contains("|c:") || id.is_empty() || id.contains(['|', ':']) {
        return None;
    }
    let (name, rest) = start.split_once(':')?;
    let tag = format!("container_id={id}");
    // At the beginning of the tags, since an empty tag at their end counts differently in the middle.
    let styles = [('[', "signalfx"), (',', "influxdb"), ('#', "librato")];
    let styles = styles.iter().filter(|(_, format)| enabled(format));
    let separator = styles.filter_map(|(separator, _)| name.find(*separator)).min();
    Some(match separator.map(|at| name.split_at(at + 1)) {
        Some((name, tags)) => format!("{name}{tag},{tags}:{rest}"),
        None if enabled("dogstatsd") => format!("{start}|#container_id:{id}"),
        // The section is skipped, and the original then finds the ID.
        None => format!("{start}|#|c:{id}"),
    })
}

const TYPES: [&str; 3] = ["counter", "gauge", "observer"];

/// Returns the name of a line without the tags in it.
fn plain_name(name: &str) -> String {
    if let Some((start, rest)) = name.split_once('[')
        && let Some((_, end)) = rest.split_once(']')
    {
        return format!("{start}{end}");
    }
    name.split([',', '#']).next().unwrap_or_default().to_owned()
}

/// Returns whether the search of the original among unordered rules, without backtracking, misses a rule that matches.
fn meets_dead_end(rules: &[Rule], kind: &str, name: &str) -> bool {
    let patterns: Vec<Vec<&str>> = rules
        .iter()
        .filter(|rule| !rule.is_regex && rule.metric_type.is_none_or(|own| own == kind))
        .map(|rule| rule.pattern.split('.').collect())
        .collect();
    let segments: Vec<&str> = name.split('.').collect();
    let matches = |pattern: &&Vec<&str>| {
        pattern.len() == segments.len()
            && pattern.iter().zip(&segments).all(|(one, segment)| *one == "*" || one == segment)
    };
    if patterns.iter().filter(matches).count() == 0 {
        return false;
    }
    let mut path: Vec<&str> = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        let leads = |next: &str| {
            let below = patterns.iter().filter(|pattern| {
                pattern.get(..at) == Some(&path[..]) && pattern.get(at) == Some(&next)
            });
            let lengths = below.map(Vec::len);
            lengths.clone().min().is_some_and(|min| min <= segments.len())
                && lengths.max().is_some_and(|max| max >= segments.len())
        };
        if leads(segment) {
            path.push(segment);
        } else if leads("*") {
            path.push("*");
        } else {
            return true;
        }
    }
    !patterns.contains(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_one_of_the_documentation() {
        let page = include_str!("../../../../docs/compatibility.md");
        for (row, _) in ROWS {
            assert!(page.contains(&format!("\n| {row}")), "{row}");
        }
    }

    #[test]
    fn container_ids_are_rewritten_for_the_original() {
        let same = |line: &str| {
            for_original(line.as_bytes(), None, &[]).map(|line| String::from_utf8(line).unwrap())
        };
        assert_eq!(same("a:1|c|c:x").as_deref(), Some("a:1|c|#container_id:x"));
        assert_eq!(same("a:1|c|#b:c|c:x").as_deref(), Some("a:1|c|#b:c|c:x"));
        assert_eq!(same("a[b=c]d:1|c|c:x").as_deref(), Some("a[container_id=x,b=c]d:1|c"));
        assert_eq!(same("a,b=c:1|c|c:x").as_deref(), Some("a,container_id=x,b=c:1|c"));
        assert_eq!(same("a:1|c|c:7|c:3").as_deref(), Some("a:1|c|c:7|c:3"));
        assert_eq!(same("a]b[c=d:1|c"), None);
        assert_eq!(same(",a=b:1|c"), None);
    }
}
