//! Mines templates shared by many strings, with a parse tree of fixed depth.
//!
//! Source: P. He, J. Zhu, Z. Zheng, M. R. Lyu, "Drain: An Online Log Parsing Approach with Fixed
//! Depth Tree" (ICWS 2017). A string descends by its shape (the separators between its words, which
//! also fixes their number) and then by its first word to a leaf with a few groups, and joins the
//! most similar group. There are two differences, because the sample is complete in advance: a
//! shape with too many distinct first words skips that level, and a template position with few
//! distinct words keeps them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of words above which a string has no template.
const MAX_WORDS: usize = 64;
/// The number of distinct first words above which a shape skips that level.
const MAX_CHILDREN: usize = 16;
/// The maximum number of groups per leaf.
const MAX_GROUPS: usize = 64;
/// The minimum similarity between a string and its group.
const SIMILAR: f64 = 0.4;
/// The maximum number of distinct words that a template position keeps.
const KEPT: usize = 16;
/// The minimum number of strings per kept word.
const TEXTS_A_WORD: usize = 8;

/// The character class of a variable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Digits,
    Ascii,
    Any,
}

impl Class {
    fn of(word: &str) -> Self {
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            Self::Digits
        } else if word.is_ascii() {
            Self::Ascii
        } else {
            Self::Any
        }
    }

    pub(super) fn regex(self) -> &'static str {
        match self {
            Self::Digits => "[0-9]+",
            Self::Ascii => "[0-9A-Za-z]+",
            Self::Any => r"[\pL\pN]+",
        }
    }

    /// Returns the placeholder for the class.
    fn word(self) -> &'static str {
        match self {
            Self::Digits => "<number>",
            _ => "<id>",
        }
    }
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePart {
    /// A constant.
    Literal(String),
    /// One of a few words.
    Few(Class),
    /// A variable word.
    Many(Class),
}

/// The template of a group of strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<TemplatePart>,
    /// The number of strings it was made from.
    pub texts: usize,
}

impl Template {
    /// Returns a regular expression that matches entire strings and captures the kept words.
    pub(super) fn regex(&self) -> String {
        self.pattern(quote)
    }

    /// Returns such a regular expression with the constants as `literal` appends them.
    pub(super) fn pattern(&self, literal: impl Fn(&mut String, &str)) -> String {
        let inner = self.written(literal, |_, class| format!("({})", class.regex()), Class::regex);
        format!("^{inner}$")
    }

    /// Returns the replacement for [`Template::regex`].
    pub(super) fn replacement(&self) -> String {
        let literal = |out: &mut String, text: &str| out.push_str(&text.replace('$', "$$"));
        self.written(literal, |group, _| format!("${{{group}}}"), Class::word)
    }

    /// Appends the parts, each as one of the functions has it. Kept words are numbered from 1.
    pub(super) fn written(
        &self,
        literal: impl Fn(&mut String, &str),
        few: impl Fn(usize, Class) -> String,
        many: impl Fn(Class) -> &'static str,
    ) -> String {
        let (mut out, mut group) = (String::new(), 0);
        for part in &self.parts {
            match part {
                TemplatePart::Literal(text) => literal(&mut out, text),
                TemplatePart::Few(class) => {
                    group += 1;
                    out.push_str(&few(group, *class));
                }
                TemplatePart::Many(class) => out.push_str(many(*class)),
            }
        }
        out
    }

    /// Formats the template for people: `user/<id>/login`.
    pub(super) fn shown(&self) -> String {
        self.written(String::push_str, |_, _| "<word>".to_owned(), Class::word)
    }

    /// Returns the parts in order.
    pub(super) fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }
}

/// Appends a literal in Go's regular expression syntax.
pub(super) fn quote(out: &mut String, text: &str) {
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            out.push('\\');
        }
        out.push(character);
    }
}

/// Splits a string into `n` words and the `n + 1` separators around them.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut words, mut between) = (Vec::new(), Vec::new());
    let mut rest = text;
    loop {
        let start = rest.find(char::is_alphanumeric).unwrap_or(rest.len());
        let (mark, from) = rest.split_at(start);
        between.push(mark);
        if from.is_empty() {
            return (words, between);
        }
        let end = from.find(|c: char| !c.is_alphanumeric()).unwrap_or(from.len());
        let (word, behind) = from.split_at(end);
        // A number after letters is a word of its own.
        let letters = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
        let (name, number) = word.split_at(letters);
        if name.len() > 1 && !number.is_empty() && Class::of(number) == Class::Digits {
            words.extend([name, number]);
            between.push("");
        } else {
            words.push(word);
        }
        rest = behind;
    }
}

/// Returns whether the word is an ID and therefore does not help to choose a group.
fn is_masked(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
        || word.len() >= 8
            && word.bytes().all(|byte| byte.is_ascii_hexdigit())
            && word.bytes().any(|byte| byte.is_ascii_digit())
}

struct Group<'t> {
    /// The common words; `None` where they differ.
    template: Vec<Option<&'t str>>,
    members: Vec<Vec<&'t str>>,
}

impl<'t> Group<'t> {
    /// Returns the fraction of the significant words that are equal. A number never matches a word:
    /// `user.all` beside `user.1` may be the sum of all.
    fn similarity(&self, words: &[&str]) -> f64 {
        let first = self.members.first().into_iter().flatten();
        if first.zip(words).any(|(known, word)| is_masked(known) != is_masked(word)) {
            return 0.0;
        }
        let pairs = self.template.iter().zip(words).filter(|(_, word)| !is_masked(word));
        let (mut all, mut same) = (0usize, 0usize);
        for (known, word) in pairs {
            all += 1;
            same += usize::from(known.is_some_and(|known| known == *word));
        }
        if all == 0 { 1.0 } else { same as f64 / all as f64 }
    }

    fn join(&mut self, words: Vec<&'t str>) {
        for (known, word) in self.template.iter_mut().zip(&words) {
            if known.is_some_and(|known| known != *word) {
                *known = None;
            }
        }
        self.members.push(words);
    }
}

/// Returns the templates shared by at least `least` of these distinct strings, the most common
/// first.
pub(super) fn mine<'t>(texts: impl Iterator<Item = &'t str>, least: usize) -> Vec<Template> {
    let mut shapes: BTreeMap<Vec<&str>, Vec<Vec<&str>>> = BTreeMap::new();
    for text in texts {
        let (words, between) = split(text);
        if words.len() <= MAX_WORDS {
            shapes.entry(between).or_default().push(words);
        }
    }
    let mut templates = Vec::new();
    for (between, texts) in shapes {
        if texts.len() < least {
            continue;
        }
        let first = |words: &[&'t str]| match words.first() {
            Some(word) if !is_masked(word) => *word,
            _ => "",
        };
        let children: BTreeSet<&str> = texts.iter().map(|words| first(words)).collect();
        let has_level = children.len() <= MAX_CHILDREN;
        let mut leaves: BTreeMap<&str, Vec<Group<'_>>> = BTreeMap::new();
        for words in texts {
            let leaf = leaves.entry(if has_level { first(&words) } else { "" }).or_default();
            place(leaf, words);
        }
        let groups = leaves.into_values().flatten();
        templates.extend(groups.filter_map(|group| template(&between, &group, least)));
    }
    templates.sort_by_key(|template| std::cmp::Reverse(template.texts));
    templates
}

/// Adds a string to the most similar group, or to a new one.
fn place<'t>(leaf: &mut Vec<Group<'t>>, words: Vec<&'t str>) {
    let mut best: Option<(f64, usize)> = None;
    for (at, group) in leaf.iter().enumerate() {
        let similarity = group.similarity(&words);
        if similarity >= SIMILAR && best.is_none_or(|(known, _)| similarity > known) {
            best = Some((similarity, at));
        }
    }
    if let Some((_, at)) = best {
        if let Some(group) = leaf.get_mut(at) {
            group.join(words);
        }
    } else if leaf.len() < MAX_GROUPS {
        let template = words.iter().map(|word| Some(*word)).collect();
        leaf.push(Group { template, members: vec![words] });
    }
}

/// Returns the template of a group, if it has both constant and variable parts.
fn template(between: &[&str], group: &Group<'_>, least: usize) -> Option<Template> {
    let texts = group.members.len();
    if texts < least {
        return None;
    }
    let mut parts: Vec<TemplatePart> = Vec::new();
    let (mut has_word, mut has_many) = (false, false);
    let mut push = |part: TemplatePart| match (parts.last_mut(), part) {
        (Some(TemplatePart::Literal(before)), TemplatePart::Literal(text)) => {
            before.push_str(&text)
        }
        (_, TemplatePart::Literal(text)) if text.is_empty() => {}
        (_, part) => parts.push(part),
    };
    let mut marks = between.iter();
    push(TemplatePart::Literal(marks.next().copied().unwrap_or_default().to_owned()));
    for (at, known) in group.template.iter().enumerate() {
        if let Some(word) = known {
            has_word |= word.len() > 1 && word.contains(char::is_alphabetic);
            push(TemplatePart::Literal((*word).to_owned()));
        } else {
            let mut words: HashMap<&str, usize> = HashMap::new();
            for member in &group.members {
                *words.entry(member.get(at).copied().unwrap_or_default()).or_default() += 1;
            }
            let class = words.keys().map(|word| Class::of(word)).max().unwrap_or(Class::Any);
            let is_few = words.len() <= KEPT && words.len() * TEXTS_A_WORD <= texts;
            has_many |= !is_few;
            push(if is_few { TemplatePart::Few(class) } else { TemplatePart::Many(class) });
        }
        push(TemplatePart::Literal(marks.next().copied().unwrap_or_default().to_owned()));
    }
    (has_word && has_many).then_some(Template { parts, texts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mined(texts: &[String]) -> Vec<(String, String, String)> {
        let templates = mine(texts.iter().map(String::as_str), 10);
        let said =
            |template: &Template| (template.shown(), template.regex(), template.replacement());
        templates.iter().map(said).collect()
    }

    fn word(number: usize) -> String {
        // Only letters, each word different.
        let mut rest = number * 7_919 % 456_976;
        (0..4)
            .map(|_| {
                let c = char::from(b'a' + (rest % 26) as u8);
                rest /= 26;
                c
            })
            .collect()
    }

    #[test]
    fn frequent_words_stay_and_others_become_placeholders() {
        let regions = ["eu", "us", "asia"];
        let texts: Vec<String> = (0..300)
            .map(|n| format!("/api/{}/orders[{}]/$x", regions[n % 3], word(n)))
            .chain((0..100).map(|n| format!("session{n}")))
            .collect();
        let expected = [
            (
                "/api/<word>/orders[<id>]/$x",
                r"^/api/([0-9A-Za-z]+)/orders\[[0-9A-Za-z]+\]/\$x$",
                "/api/${1}/orders[<id>]/$$x",
            ),
            ("session<number>", "^session[0-9]+$", "session<number>"),
        ];
        let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(mined(&texts), expected);
    }

    #[test]
    fn random_words_form_no_template() {
        let texts: Vec<String> = (0..300)
            .map(word)
            .chain((0..300).map(|n| format!("{}-{}", word(n), word(n + 500))))
            .collect();
        assert_eq!(mined(&texts), []);
        assert_eq!(mined(&vec![String::new(); 50]), []);
    }
}
