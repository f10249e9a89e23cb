//! Templates that many texts have in common, mined with a tree of fixed depth.
//!
//! Source: P. He, J. Zhu, Z. Zheng, M. R. Lyu, "Drain: An Online Log Parsing Approach with Fixed Depth Tree" (ICWS 2017).
//! A text goes down by its shape (what stands between its words, and so how many there are), then by its first word, to a
//! leaf with a few groups, and joins the group that it has most words in common with. Two things differ, since the texts
//! are a sample that lies there as a whole: a shape with more first words than a node may have children does without that
//! level, and a place in a template with few different words keeps them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Words of a text beyond which it has no template.
const MAX_WORDS: usize = 64;
/// First words that a shape may have before it does without that level.
const MAX_CHILDREN: usize = 16;
/// Groups of a leaf.
const MAX_GROUPS: usize = 64;
/// Least share of its words that a text has in common with its group.
const SIMILAR: f64 = 0.4;
/// Words of one place that a template may keep apart.
const KEPT: usize = 16;
/// Least texts for each word that is kept.
const TEXTS_A_WORD: usize = 8;

/// What a word that gives way consists of.
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

    /// What stands for it.
    fn word(self) -> &'static str {
        match self {
            Self::Digits => "<number>",
            _ => "<id>",
        }
    }
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The same in each text.
    Literal(String),
    /// One of a few words.
    Few(Class),
    /// A word that gives way.
    Many(Class),
}

/// What texts have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
    /// How many of the texts it was made of.
    pub texts: usize,
}

impl Template {
    /// A regular expression for all of a text, in which the words that stay are groups.
    pub(super) fn regex(&self) -> String {
        let mut out = "^".to_owned();
        for part in &self.parts {
            match part {
                Part::Literal(text) => quote(&mut out, text),
                Part::Few(class) => out.extend(["(", class.regex(), ")"]),
                Part::Many(class) => out.push_str(class.regex()),
            }
        }
        out.push('$');
        out
    }

    /// What a text becomes, as the replacement of [`Template::regex`].
    pub(super) fn replacement(&self) -> String {
        self.written(|text| text.replace('$', "$$"), |group| format!("${{{group}}}"), Class::word)
    }

    fn written(
        &self,
        literal: impl Fn(&str) -> String,
        few: impl Fn(usize) -> String,
        many: impl Fn(Class) -> &'static str,
    ) -> String {
        let (mut out, mut group) = (String::new(), 0);
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(&literal(text)),
                Part::Few(_) => {
                    group += 1;
                    out.push_str(&few(group));
                }
                Part::Many(class) => out.push_str(many(*class)),
            }
        }
        out
    }

    /// For people: `user/<id>/login`.
    pub(super) fn shown(&self) -> String {
        self.written(str::to_owned, |_| "<word>".to_owned(), Class::word)
    }

    /// What it consists of, in order.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// A literal in Go's dialect.
pub(super) fn quote(out: &mut String, text: &str) {
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            out.push('\\');
        }
        out.push(character);
    }
}

/// A text as the words in it and what stands between them, which has one piece more.
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
        // A number behind a word is a word of its own.
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

/// Whether the word says nothing of which group a text belongs to.
fn is_masked(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
        || word.len() >= 8
            && word.bytes().all(|byte| byte.is_ascii_hexdigit())
            && word.bytes().any(|byte| byte.is_ascii_digit())
}

struct Group<'t> {
    /// The words; none where they differ.
    template: Vec<Option<&'t str>>,
    members: Vec<Vec<&'t str>>,
}

impl<'t> Group<'t> {
    /// Which part of the words that say something is the same. A number among words is something else, as a word among
    /// numbers is: `user.all` beside `user.1` may be the sum of all.
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

/// The templates that at least `least` of these different texts have, the one with most texts first.
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

/// Puts a text into the group that it is most like, or into one of its own.
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

/// What a group has in common, if that is something, and if something gives way.
fn template(between: &[&str], group: &Group<'_>, least: usize) -> Option<Template> {
    let texts = group.members.len();
    if texts < least {
        return None;
    }
    let mut parts: Vec<Part> = Vec::new();
    let (mut has_word, mut has_many) = (false, false);
    let mut push = |part: Part| match (parts.last_mut(), part) {
        (Some(Part::Literal(before)), Part::Literal(text)) => before.push_str(&text),
        (_, Part::Literal(text)) if text.is_empty() => {}
        (_, part) => parts.push(part),
    };
    let mut marks = between.iter();
    push(Part::Literal(marks.next().copied().unwrap_or_default().to_owned()));
    for (at, known) in group.template.iter().enumerate() {
        if let Some(word) = known {
            has_word |= word.len() > 1 && word.contains(char::is_alphabetic);
            push(Part::Literal((*word).to_owned()));
        } else {
            let mut words: HashMap<&str, usize> = HashMap::new();
            for member in &group.members {
                *words.entry(member.get(at).copied().unwrap_or_default()).or_default() += 1;
            }
            let class = words.keys().map(|word| Class::of(word)).max().unwrap_or(Class::Any);
            let is_few = words.len() <= KEPT && words.len() * TEXTS_A_WORD <= texts;
            has_many |= !is_few;
            push(if is_few { Part::Few(class) } else { Part::Many(class) });
        }
        push(Part::Literal(marks.next().copied().unwrap_or_default().to_owned()));
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
        // Letters alone, each another word.
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
    fn words_that_differ_give_way_and_few_stay() {
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
    fn random_words_have_nothing_in_common() {
        let texts: Vec<String> = (0..300)
            .map(word)
            .chain((0..300).map(|n| format!("{}-{}", word(n), word(n + 500))))
            .collect();
        assert_eq!(mined(&texts), []);
        assert_eq!(mined(&vec![String::new(); 50]), []);
    }
}
