//! Chooses normalisation steps for a label: the minimal set of built-in steps that explains a
//! sample of its values or, if that is not enough, regular expressions for templates that the
//! values share.

use std::collections::BTreeMap;

use super::template::mine;
use super::yaml;
use crate::mapper::Step;

/// The built-in replacement steps, in the order they are applied.
const WORDS: [Step; 7] =
    [Step::Uuid, Step::Ip, Step::Email, Step::Timestamp, Step::Base64, Step::Hex, Step::Number];
/// The same steps, the most dispensable first.
const GIVEN_UP: [Step; 7] =
    [Step::Base64, Step::Hex, Step::Number, Step::Timestamp, Step::Email, Step::Ip, Step::Uuid];
/// Masks that show the structure of a value. Unlike in rules, a number of any length is a number.
const MASKS: [Step; 7] =
    [Step::Uuid, Step::Ip, Step::Email, Step::Timestamp, Step::Base64, Step::Number, Step::Hex];
/// The maximum number of values that counts as few.
const FEW: usize = 32;
/// The number of values seen only once up to which a small set is considered complete.
const ONCE: usize = 4;
/// The maximum number of regular expressions per label.
const MAX_REGEXES: usize = 8;
/// Lengths to truncate values to.
const LENGTHS: [usize; 9] = [256, 128, 96, 64, 48, 32, 24, 16, 8];

/// The chosen steps for a label.
pub(super) struct Choice {
    /// The steps in the syntax of a mapping file.
    pub steps: Vec<String>,
    /// The most common template of the values.
    pub shown: String,
    /// The fraction of the sample that has this template.
    pub share: f64,
}

/// Applies the steps and counts the resulting values.
fn after(values: &[String], steps: &[Step]) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for value in values {
        let mut value = value.clone();
        for step in steps {
            value = step.apply(&value);
        }
        *out.entry(value).or_default() += 1;
    }
    out
}

fn once(values: &BTreeMap<String, usize>) -> usize {
    values.values().filter(|count| **count == 1).count()
}

/// Returns the steps that leave the fewest distinct values; `None` if none saves at least a tenth.
pub(super) fn choose(values: &[String]) -> Option<Choice> {
    let helps = |left: usize, of: usize| left * 10 <= of * 9;
    let mut steps = of_words(values);
    let mut texts: Vec<String> = steps.iter().filter_map(yaml::step).collect();
    let mut left = after(values, &steps);
    if !helps(left.len(), values.len()) {
        (steps, texts, left) = (Vec::new(), Vec::new(), after(values, &[]));
    }
    let built_in = steps.clone();
    if left.len() > FEW {
        let least = (left.len() / 50).max(5);
        let templates = mine(left.keys().map(String::as_str), least);
        let mut more = Vec::new();
        for template in templates.iter().take(MAX_REGEXES) {
            let (regex, replacement) = (template.regex(), template.replacement());
            if let Ok(compiled) = Step::replace(&regex) {
                more.push((
                    Step::Replace(compiled, replacement.clone()),
                    yaml::replace(&regex, &replacement),
                ));
            }
        }
        let with: Vec<Step> =
            steps.iter().cloned().chain(more.iter().map(|(step, _)| step.clone())).collect();
        let fewer = after(values, &with);
        if helps(fewer.len(), left.len()) {
            texts.extend(more.into_iter().map(|(_, text)| text));
            (steps, left) = (with, fewer);
        }
    }
    if left.len() > FEW {
        // Values with a common prefix and many continuations have no template, or too many.
        let cut = LENGTHS.into_iter().map(Step::Truncate).find(|step| {
            let cut = after(values, &[&built_in[..], std::slice::from_ref(step)].concat());
            let has_word = |text: &String| text.chars().filter(|c| c.is_alphabetic()).count() > 3;
            cut.len() <= FEW.min(values.len() / 10) && cut.keys().all(has_word)
        });
        if let Some(cut) = cut {
            steps = [&built_in[..], &[cut]].concat();
            texts = steps.iter().filter_map(yaml::step).collect();
            left = after(values, &steps);
        }
    }
    if steps.is_empty() {
        return None;
    }
    let top = |values: BTreeMap<String, usize>| {
        let top = values.into_iter().max_by_key(|(_, count)| *count);
        top.unwrap_or_default()
    };
    // If the steps remove a query, the masked query tells most.
    let masked = after(values, &MASKS);
    let mut ids = BTreeMap::new();
    for (value, count) in &masked {
        *ids.entry(with_ids(value)).or_default() += count;
    }
    let become_it = top(left);
    let tells = [top(masked), top(ids)].into_iter().find(|(_, count)| count * 4 >= become_it.1 * 3);
    let (shown, count) = tells.unwrap_or(become_it);
    Some(Choice { steps: texts, shown, share: count as f64 / values.len().max(1) as f64 })
}

/// Replaces all kinds of IDs by one placeholder.
fn with_ids(masked: &str) -> String {
    let words = ["<uuid>", "<number>", "<hex>", "<base64>"];
    words.iter().fold(masked.to_owned(), |text, word| text.replace(word, "<id>"))
}

/// Returns a minimal subset of the built-in steps with the effect of all of them.
fn of_words(values: &[String]) -> Vec<Step> {
    let is_url = |value: &&String| value.starts_with('/') || value.contains("://");
    // A value that is only a query would become empty, and the series would lose the label.
    let is_query = |value: &String| !value.is_empty() && Step::Url.apply(value).is_empty();
    let are_urls =
        values.iter().filter(is_url).count() * 2 >= values.len() && !values.iter().any(is_query);
    let mut steps: Vec<Step> = WORDS.to_vec();
    if are_urls {
        steps.insert(0, Step::Url);
    }
    let all = after(values, &steps);
    let most_once = ONCE + once(&all);
    let does = |steps: &[Step]| {
        let left = after(values, steps);
        let is_few = left.len() <= FEW && once(&left) <= most_once;
        is_few || left.len() <= all.len() + all.len() / 20
    };
    if are_urls && does(&[Step::Url]) {
        return vec![Step::Url];
    }
    for given_up in GIVEN_UP {
        let fewer: Vec<Step> = steps.iter().filter(|step| **step != given_up).cloned().collect();
        if does(&fewer) {
            steps = fewer;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(n: usize) -> String {
        let n = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            n >> 32,
            n & 0xffff,
            n & 0xfff,
            n >> 52,
            n >> 16
        )
    }

    fn letters(n: usize) -> String {
        let digit = |at: u32| char::from(b'a' + (n * 7_919 / 26_usize.pow(at) % 26) as u8);
        (0..4).map(digit).collect()
    }

    #[test]
    fn the_fewest_steps_that_explain_the_values() {
        let of = |value: fn(usize) -> String| choose(&(0..500).map(value).collect::<Vec<_>>());
        for (value, steps, shown) in [
            (
                (|n| format!("/websocket?appliance={n}")) as fn(usize) -> String,
                "url",
                "/websocket?appliance=<number>",
            ),
            (|n| format!("/websocket?appliance={}", uuid(n)), "url", "/websocket?appliance=<uuid>"),
            (|n| format!("https://a.org/u/{}/x", n + 1), "url", "https://a.org/u/<number>/x"),
            (|n| format!("order {}", uuid(n)), "uuid", "order <uuid>"),
            (|n| format!("{} of {n}", uuid(n)), "uuid number", "<uuid> of <number>"),
            (|n| n.to_string(), "number", "<number>"),
            (|n| (n + 10_000_000).to_string(), "number", "<number>"),
            (|n| format!("10.0.{}.{}", n / 250, n % 250), "ip", "<ip>"),
            (|n| format!("u{n}@example.org"), "email", "<email>"),
            (|n| (1_700_000_000 + n).to_string(), "timestamp", "<timestamp>"),
            (|n| format!("rs-{:010x}", n as u64 * 0x9e_3779_b97f), "hex", "rs-<hex>"),
            (
                |n| format!("job-{}-run", letters(n)),
                "{regex: '^job-[0-9A-Za-z]+-run$', replacement: 'job-<id>-run'}",
                "job-<id>-run",
            ),
            (
                |n| {
                    format!(
                        "connection lost because {}",
                        format!("{} ", letters(n)).repeat(n % 50 + 1)
                    )
                },
                "{truncate: 24}",
                "connection lost because ",
            ),
        ] {
            let choice = of(value).unwrap_or_else(|| panic!("nothing for {}", value(1)));
            assert_eq!((choice.steps.join(" ").as_str(), choice.shown.as_str()), (steps, shown));
        }
        assert!(of(letters).is_none());
        assert!(of(|n| format!("{} {}", letters(n), letters(n + 9))).is_none());
    }
}
