//! Translation of regular expressions from the dialect of allow and deny patterns to that of the `fancy_regex` crate.
//!
//! A pattern goes in; one that selects the same names, or an error, comes out. The dialect is ECMAScript with .NET
//! additions (`\A`, `\Z`, atomic groups, conditionals, class subtraction, options). A pattern is read once, left to
//! right, and rewritten. A first pass counts its groups, because later groups decide if `\1` is a back-reference and
//! `\k` an escape. Groups lose their names.

use std::fmt::Write;

use crate::go::cursor::Cursor;
use crate::go::regex::{DialectError, push_literal};

/// Translates a pattern.
///
/// # Errors
///
/// The error that the original reports, with its position in characters from 1.
pub(crate) fn translate(pattern: &str) -> Result<String, DialectError> {
    let groups = pass(pattern, None)?.opened;
    Ok(pass(pattern, Some(&groups))?.out)
}

fn pass<'p>(
    pattern: &'p str,
    groups: Option<&'p [Option<String>]>,
) -> Result<Translator<'p>, DialectError> {
    let mut translator = Translator {
        input: Cursor::new(pattern),
        out: String::with_capacity(pattern.len() + 8),
        open: Vec::new(),
        last: Last::Nothing,
        options: Options::default(),
        opened: Vec::new(),
        groups,
    };
    match translator.run() {
        Ok(()) => Ok(translator),
        Err(reason) => {
            Err(DialectError::new(pattern, translator.input.position, reason.to_owned()))
        }
    }
}

/// The last element of the pattern, which decides if a repetition may follow.
#[derive(Clone, Copy)]
enum Last {
    /// Nothing since the start of the group, a `|` or an option.
    Nothing,
    /// An element that can be repeated and starts at this length of the output.
    Atom { start: usize, assertion: bool },
    /// An element that has been repeated.
    Repeated,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Group,
    Look,
    /// The condition of a conditional, if it is not a group.
    Condition,
    /// The alternatives of a conditional; at most two are allowed.
    Conditional {
        alternatives: u8,
    },
}

#[derive(Clone, Copy)]
struct Frame {
    kind: Kind,
    start: usize,
    options: Options,
}

/// The options that the translation resolves itself.
#[derive(Clone, Copy, Default)]
struct Options {
    /// Ignore blanks and comments.
    extended: bool,
    /// Only named groups capture.
    explicit: bool,
}

struct Translator<'p> {
    input: Cursor<'p>,
    out: String,
    open: Vec<Frame>,
    last: Last,
    options: Options,
    /// The names of the groups opened so far.
    opened: Vec<Option<String>>,
    /// The names of all groups; unknown during the first pass.
    groups: Option<&'p [Option<String>]>,
}

/// An item of a bracket expression.
enum Item {
    Character(char),
    Set(&'static str),
}

type Step = Result<(), &'static str>;

/// A counted repetition: the length of its text and its bounds.
type Counts = (usize, u32, Option<u32>);

impl Translator<'_> {
    fn run(&mut self) -> Step {
        while let Some(character) = self.input.peek() {
            match character {
                '(' => self.open_group()?,
                ')' => self.close_group()?,
                '|' => self.alternative()?,
                '*' | '+' | '?' | '{' => self.repeat()?,
                '[' => {
                    self.input.position += 1;
                    let class = self.class()?;
                    self.atom(&class, false);
                }
                '^' | '$' | '.' => {
                    self.input.position += 1;
                    let assertion = character != '.';
                    self.atom(character.encode_utf8(&mut [0; 4]), assertion);
                }
                '\\' => self.escape()?,
                '#' if self.options.extended => {
                    let comment = self.input.rest().split('\n').next().unwrap_or_default();
                    self.input.position += comment.len();
                }
                _ if self.options.extended && character.is_whitespace() => {
                    self.input.position += character.len_utf8();
                }
                _ => {
                    self.input.position += character.len_utf8();
                    self.plain(character);
                }
            }
        }
        if self.open.is_empty() { Ok(()) } else { Err("a group without )") }
    }

    fn atom(&mut self, text: &str, assertion: bool) {
        self.last = Last::Atom { start: self.out.len(), assertion };
        self.out.push_str(text);
    }

    fn plain(&mut self, character: char) {
        let start = self.out.len();
        push_literal(&mut self.out, character);
        self.last = Last::Atom { start, assertion: false };
    }

    fn alternative(&mut self) -> Step {
        if let Some(Frame { kind: Kind::Conditional { alternatives }, .. }) = self.open.last_mut() {
            *alternatives += 1;
            if *alternatives > 2 {
                return Err("a conditional with more than two alternatives");
            }
        }
        self.input.position += 1;
        self.out.push('|');
        self.last = Last::Nothing;
        Ok(())
    }

    fn repeat(&mut self) -> Step {
        let (length, low, high) = match self.input.peek() {
            Some('*') => (1, 0, None),
            Some('+') => (1, 1, None),
            Some('?') => (1, 0, Some(1)),
            _ => match self.counts()? {
                Some(counts) => counts,
                None => {
                    self.input.position += 1;
                    self.plain('{');
                    return Ok(());
                }
            },
        };
        let (start, assertion) = match self.last {
            Last::Atom { start, assertion } => (start, assertion),
            Last::Nothing => return Err("a repetition of nothing"),
            Last::Repeated => return Err("a repetition of a repetition"),
        };
        self.input.position += length;
        let lazy = if self.input.eat("?") { "?" } else { "" };
        self.last = Last::Repeated;
        match (assertion, high) {
            // Repeating an assertion changes nothing, and the crates do not support it.
            (true, _) if low > 0 => {}
            (true, _) => {
                self.out.insert_str(start, "(?:");
                self.out.push_str("|)");
            }
            // Writing to a String cannot fail.
            (false, None) => _ = write!(self.out, "{{{low},}}{lazy}"),
            (false, Some(high)) => _ = write!(self.out, "{{{low},{high}}}{lazy}"),
        }
        Ok(())
    }

    /// Parses `{n}`, `{n,}` or `{n,m}` into length and counts; `None` means a literal brace.
    fn counts(&self) -> Result<Option<Counts>, &'static str> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let Some((inner, _)) = self.input.rest().get(1..).and_then(|inner| inner.split_once('}'))
        else {
            return Ok(None);
        };
        let (low, high) = match inner.split_once(',') {
            None => (inner, Some(inner)),
            Some((low, "")) => (low, None),
            Some((low, high)) => (low, Some(high)),
        };
        if !digits(low) || !high.is_none_or(digits) {
            return Ok(None);
        }
        let count = |text: &str| text.parse().map_err(|_| "a repetition that is too large");
        let (low, high) = (count(low)?, high.map(count).transpose()?);
        match high {
            Some(high) if high < low => Err("a repetition whose limits are in the wrong order"),
            _ => Ok(Some((inner.len() + 2, low, high))),
        }
    }

    fn push(&mut self, kind: Kind, text: &str) {
        self.open.push(Frame { kind, start: self.out.len(), options: self.options });
        self.out.push_str(text);
        self.last = Last::Nothing;
    }

    fn open_group(&mut self) -> Step {
        if !self.input.eat("(?") {
            self.input.position += 1;
            if self.options.explicit {
                self.push(Kind::Group, "(?:");
            } else {
                self.opened.push(None);
                self.push(Kind::Group, "(");
            }
            return Ok(());
        }
        if self.input.eat("#") {
            let (comment, _) = self.input.rest().split_once(')').ok_or("a comment without )")?;
            self.input.position += comment.len() + 1;
            return Ok(());
        }
        if self.input.eat("(") {
            return self.conditional();
        }
        for (start, kind) in [
            (":", Kind::Group),
            (">", Kind::Group),
            ("=", Kind::Look),
            ("!", Kind::Look),
            ("<=", Kind::Look),
            ("<!", Kind::Look),
        ] {
            if self.input.eat(start) {
                self.push(kind, &format!("(?{start}"));
                return Ok(());
            }
        }
        for (start, end) in [("<", '>'), ("'", '\'')] {
            if self.input.eat(start) {
                let name = self.input.rest().split_once(end).map(|(name, _)| name);
                let name = name.filter(|name| is_name(name)).ok_or("a group name that is none")?;
                if self.open.last().is_some_and(|frame| frame.kind == Kind::Condition) {
                    return Err("a group with a name in a condition");
                }
                let named = Some(name.to_owned());
                if self.opened.contains(&named) {
                    return Err("a second group of that name");
                }
                self.input.position += name.len() + 1;
                self.opened.push(named);
                self.push(Kind::Group, "(");
                return Ok(());
            }
        }
        self.set_options()
    }

    /// Parses the part after `(?(`: the number or name of a group, or a lookahead expression.
    fn conditional(&mut self) -> Step {
        let kind = Kind::Conditional { alternatives: 1 };
        if let (Some(groups), Some((condition, _))) =
            (self.groups, self.input.rest().split_once(')'))
        {
            let named = groups.iter().position(|name| name.as_deref() == Some(condition));
            if let Some(number) = named.map(|index| index + 1).or_else(|| condition.parse().ok()) {
                if !(1..=groups.len()).contains(&number) {
                    return Err("a condition on a group that does not exist");
                }
                self.input.position += condition.len() + 1;
                self.push(kind, &format!("(?({number})"));
                return Ok(());
            }
        }
        self.push(kind, "(?(");
        let look = ["?=", "?!", "?<=", "?<!"].into_iter().find(|look| self.input.eat(look));
        self.push(Kind::Condition, &format!("({}", look.unwrap_or("?=")));
        Ok(())
    }

    /// Parses `(?flags)` and `(?flags:`, starting at the flags.
    fn set_options(&mut self) -> Step {
        let before = self.options;
        let mut flags = String::from("(?");
        let (mut on, mut empty) = (true, true);
        loop {
            let character = self.input.next().ok_or("a group without )")?;
            match character {
                'x' => self.options.extended = on,
                'n' => self.options.explicit = on,
                'i' | 'm' | 's' => {
                    let sign = if on { "" } else { "-" };
                    // Flags are set one by one, because the crates reject duplicates.
                    _ = write!(flags, "{sign}{character})(?");
                }
                '-' => on = false,
                '+' => on = true,
                ')' if !empty => {
                    self.out.push_str(flags.strip_suffix("(?").unwrap_or_default());
                    self.last = Last::Nothing;
                    return Ok(());
                }
                ':' => {
                    // The flags apply until the end of the group that encloses them.
                    let inner = flags.strip_suffix("(?").unwrap_or_default().to_owned();
                    let options = std::mem::replace(&mut self.options, before);
                    self.push(Kind::Group, "(?:");
                    self.out.push_str(&inner);
                    self.options = options;
                    return Ok(());
                }
                _ => return Err("a group of an unknown kind"),
            }
            empty = false;
        }
    }

    fn close_group(&mut self) -> Step {
        let frame = self.open.pop().ok_or("a ) without (")?;
        self.input.position += 1;
        self.options = frame.options;
        if frame.kind == Kind::Condition {
            self.out.push_str("))");
            self.last = Last::Nothing;
        } else {
            if ["(", "(?:", "(?>"].iter().any(|start| self.out.ends_with(start)) {
                // The crate does not repeat an empty group unless it has alternatives.
                self.out.push('|');
            }
            self.out.push(')');
            self.last = Last::Atom { start: frame.start, assertion: frame.kind == Kind::Look };
        }
        Ok(())
    }

    /// Translates a backslash outside brackets.
    fn escape(&mut self) -> Step {
        self.input.position += 1;
        let character = self.input.next().ok_or("a backslash at the end")?;
        match character {
            'b' => self.atom(r"\b", true),
            'B' => self.atom(r"\B", true),
            // There is only one search, from the start of the name, so `\G` equals `\A`.
            'A' | 'G' => self.atom(r"\A", true),
            'z' | 'Z' => self.atom(r"\z", true),
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => {
                let class = format!("[{}]", set(character));
                self.atom(&class, false);
            }
            'k' if self.groups.is_some_and(|groups| groups.iter().any(Option::is_some)) => {
                let inner =
                    self.input.rest().strip_prefix('<').and_then(|rest| rest.split_once('>'));
                let (name, _) = inner.ok_or("a back-reference without a name")?;
                let mut groups = self.groups.into_iter().flatten();
                let index = groups.position(|group| group.as_deref() == Some(name));
                let index = index.ok_or("a back-reference to a group that does not exist")?;
                self.input.position += name.len() + 2;
                self.back_reference(index + 1);
            }
            '1'..='9' => match self.group_number(character) {
                Some((number, length)) => {
                    self.input.position += length;
                    self.back_reference(number);
                }
                None => {
                    let character = self.character(character);
                    self.plain(character);
                }
            },
            _ => {
                let character = self.character(character);
                self.plain(character);
            }
        }
        Ok(())
    }

    /// Writes a back-reference. A group that did not participate matches the empty text.
    fn back_reference(&mut self, number: usize) {
        let text = format!("(?:(?({number})\\{number}|))");
        self.atom(&text, false);
    }

    /// Parses the longest group number that begins with the digit `first` and exists; returns it and the length of the
    /// further digits.
    fn group_number(&self, first: char) -> Option<(usize, usize)> {
        let groups = self.groups.map_or(0, <[_]>::len);
        let digit = |character: char| character.to_digit(10).map(|digit| digit as usize);
        let mut number = digit(first).filter(|number| *number <= groups)?;
        let mut length = 0;
        for digit in self.input.rest().chars().map_while(digit) {
            let longer = number * 10 + digit;
            if longer > groups {
                break;
            }
            (number, length) = (longer, length + 1);
        }
        Some((number, length))
    }

    /// Translates a backslash and `first` to one character; an escape without a meaning is literal.
    fn character(&mut self, first: char) -> char {
        let hex = |text: Option<&str>| {
            let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            char::from_u32(u32::from_str_radix(text, 16).ok()?)
        };
        match first {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'f' => '\x0c',
            'v' => '\x0b',
            'a' => '\x07',
            'e' => '\x1b',
            '0'..='7' => self.octal(first),
            'x' | 'u' => {
                let length = if first == 'x' { 2 } else { 4 };
                match hex(self.input.rest().get(..length)) {
                    Some(character) => {
                        self.input.position += length;
                        character
                    }
                    None => first,
                }
            }
            'c' => match self.input.peek() {
                Some(letter) if letter.is_ascii_alphabetic() => {
                    self.input.position += 1;
                    char::from(letter as u8 & 0x1f)
                }
                _ => first,
            },
            _ => first,
        }
    }

    /// Parses up to three octal digits with a value below 256.
    fn octal(&mut self, first: char) -> char {
        let mut number = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.input.peek().and_then(|character| character.to_digit(8)) else {
                break;
            };
            if number >= 0x20 {
                break;
            }
            self.input.position += 1;
            number = number * 8 + digit;
        }
        char::from_u32(number).unwrap_or(first)
    }

    /// Translates a bracket expression, starting after `[`.
    fn class(&mut self) -> Result<String, &'static str> {
        let negated = self.input.eat("^");
        let mut items = String::new();
        let mut without = None;
        loop {
            if !items.is_empty() && self.input.eat("-[") {
                without = Some(self.class()?);
                if self.input.peek() != Some(']') {
                    return Err("something after a class that is taken away");
                }
            }
            if self.input.eat("]") {
                break;
            }
            let low = match self.item()? {
                Item::Set(set) => {
                    items.push_str(set);
                    continue;
                }
                Item::Character(low) => low,
            };
            push_literal(&mut items, low);
            let mut ahead = self.input.rest().chars();
            if ahead.next() != Some('-') || matches!(ahead.next(), None | Some(']' | '[')) {
                continue;
            }
            self.input.position += 1;
            match self.item()? {
                Item::Character(high) if high < low => {
                    return Err("a range whose ends are in the wrong order");
                }
                Item::Character(high) => {
                    items.push('-');
                    push_literal(&mut items, high);
                }
                Item::Set(set) => {
                    push_literal(&mut items, '-');
                    items.push_str(set);
                }
            }
        }
        let caret = if negated { "^" } else { "" };
        let class = match (items.is_empty(), negated) {
            (true, true) => r"[\s\S]".to_owned(),
            (true, false) => r"[^\s\S]".to_owned(),
            (false, _) => format!("[{caret}{items}]"),
        };
        Ok(match without {
            Some(without) => format!("[{class}--{without}]"),
            None => class,
        })
    }

    fn item(&mut self) -> Result<Item, &'static str> {
        let unclosed = "a class without ]";
        let character = self.input.next().ok_or(unclosed)?;
        if character != '\\' {
            return Ok(Item::Character(character));
        }
        let character = self.input.next().ok_or(unclosed)?;
        Ok(match character {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => Item::Set(set(character)),
            'b' => Item::Character('\x08'),
            'c' if self.input.peek() == Some(']') => {
                return Err("a control character without a letter");
            }
            _ => Item::Character(self.character(character)),
        })
    }
}

/// Returns the items of `\d` and similar classes.
fn set(letter: char) -> &'static str {
    match letter {
        'd' => "0-9",
        'D' => "[^0-9]",
        's' => r"\s",
        'S' => r"\S",
        'w' => "0-9A-Za-z_",
        _ => "[^0-9A-Za-z_]",
    }
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|character: char| character.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|character| character == '_' || character.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(pattern: &str) -> fancy_regex::Regex {
        let translated = translate(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        fancy_regex::Regex::new(&translated)
            .unwrap_or_else(|error| panic!("{pattern} as {translated}: {error}"))
    }

    /// Recorded from kube-state-metrics: the number of pod families that each pattern keeps, or null if it refuses to
    /// start.
    #[test]
    fn recorded_patterns() {
        let text = include_str!("../../../../tests/data/allow_patterns.json");
        let data: serde_json::Value = serde_json::from_str(text).unwrap();
        let names: Vec<&str> =
            data["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let patterns = data["patterns"].as_object().unwrap();
        assert!(patterns.len() > 200);
        let mut wrong = Vec::new();
        for (pattern, kept) in patterns {
            let ours =
                translate(pattern).map_err(|error| error.to_string()).and_then(|translated| {
                    let regex = fancy_regex::Regex::new(&translated)
                        .map_err(|error| format!("{translated}: {error}"))?;
                    Ok(names.iter().filter(|name| regex.is_match(name).unwrap()).count() as u64)
                });
            if ours.as_ref().ok().copied() != kept.as_u64() {
                wrong.push(format!("{pattern}: {ours:?}, not {kept}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn commas_and_ends_of_lines() {
        for (pattern, text, matches) in [
            ("^a{2,}$", "aaa", true),
            ("^a{,2}$", "a{,2}", true),
            ("^a{2,3}?$", "a", false),
            (r"^\x2c$", ",", true),
            ("(?x)a#b\nc", "ac", true),
            (r"^(?:(a)|b)\1$", "b", true),
            (r"^(?:(a)|b)\1$", "ab", false),
        ] {
            assert_eq!(regex(pattern).is_match(text).unwrap(), matches, "{pattern} {text}");
        }
        assert!(translate("a{3,2}").is_err());
    }

    #[test]
    fn errors_have_a_place() {
        assert_eq!(
            translate("é*+").unwrap_err().to_string(),
            "a repetition of a repetition at character 3 of the pattern"
        );
    }

    #[test]
    fn any_text_is_translated_or_refused() {
        let parts = ["(", ")", "(?", "[", "]", "\\", "-[", "{1", "}", "é", "k", "<", ">", "1", "*"];
        let mut state = 1u32;
        for _ in 0..20_000 {
            let pattern: String = (0..6)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    parts[(state >> 16) as usize % parts.len()]
                })
                .collect();
            let _ = translate(&pattern);
        }
    }
}
