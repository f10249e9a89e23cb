//! Translation of regular expressions from Go's dialect, used in mapping files and opt-in patterns, to that of the
//! `regex` crate.
//!
//! A pattern goes in; a pattern for `regex::bytes` or Go's objection to it comes out.
//!
//! Both are RE2 relatives with leftmost-first matching in linear time. They differ in the syntax they accept and in the
//! meaning of `\d`, `\w`, `\s` and `\b`. A pattern is read once, left to right, and rewritten: syntax that Go rejects
//! is rejected, syntax that the crate would read differently is spelled out. Groups lose their names, because Go lets
//! two groups share one; the names are returned separately.

mod unicode;

use std::fmt::Write;

use crate::go::cursor::Cursor;

/// Go's limit for a repeat count, with nested counts multiplied.
const MAX_REPEAT: u32 = 1000;

/// A pattern for the `regex` crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Translated {
    pub(crate) pattern: String,
    /// The name of each group; group 0 is the entire match and has none.
    pub(crate) groups: Vec<Option<String>>,
    /// Substrings that every match contains. May be incomplete.
    pub(crate) literals: Vec<String>,
    /// The pattern is exactly the first of these literals.
    pub(crate) only_literal: bool,
}

/// The reason why Go rejects a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} at character {at} of the pattern")]
pub(crate) struct DialectError {
    /// Position in the pattern, in characters from 1.
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl DialectError {
    /// Creates an error at a position in bytes.
    pub(crate) fn new(pattern: &str, position: usize, message: String) -> Self {
        let before = pattern.get(..position).unwrap_or(pattern);
        Self { at: before.chars().count() + 1, message }
    }
}

/// The reason why a pattern in Go's dialect cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    /// Go rejects the pattern.
    #[error("{0}")]
    Dialect(#[from] DialectError),
    /// Its translation cannot be compiled; the last line of the message names the reason.
    #[error("{}", .0.to_string().lines().last().unwrap_or_default().trim())]
    Compile(#[from] regex::Error),
}

/// Translates a pattern.
///
/// # Errors
/// The first error that Go would report.
pub(crate) fn translate(pattern: &str) -> Result<Translated, DialectError> {
    let mut translator = Translator {
        input: Cursor::new(pattern),
        out: String::with_capacity(pattern.len() + 8),
        groups: vec![None],
        open: vec![Scope::default()],
        literals: Literals::default(),
    };
    match translator.run() {
        Ok(()) => {
            let Translator { out: pattern, groups, literals, .. } = translator;
            let (literals, only_literal) = literals.finish();
            Ok(Translated { pattern, groups, literals, only_literal })
        }
        Err(message) => Err(DialectError::new(pattern, translator.input.position, message)),
    }
}

/// The last element of a group, which decides if a repetition may follow.
#[derive(Clone, Copy, Default)]
enum Last {
    /// Nothing since the start of the group or a `|`.
    #[default]
    Nothing,
    /// An element that can be repeated and ends at this length of the output.
    Atom { end: usize, repeats: u32 },
    /// An element that has been repeated.
    Repeated { repeats: u32 },
}

impl Last {
    fn repeats(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Atom { repeats, .. } | Self::Repeated { repeats } => repeats,
        }
    }
}

/// The whole pattern or a group.
#[derive(Default)]
struct Scope {
    last: Last,
    /// The largest product of nested repeat counts so far.
    repeats: u32,
}

/// The runs of literal characters outside groups.
#[derive(Default)]
struct Literals {
    run: String,
    done: Vec<String>,
    /// The pattern contains more than literal characters.
    mixed: bool,
    /// The pattern has alternatives or flags, so a match need not contain the runs.
    void: bool,
}

impl Literals {
    fn end_run(&mut self) {
        self.mixed = true;
        if !self.run.is_empty() {
            self.done.push(std::mem::take(&mut self.run));
        }
    }

    fn finish(mut self) -> (Vec<String>, bool) {
        if self.void {
            return (Vec::new(), false);
        }
        if !self.mixed || !self.run.is_empty() {
            self.done.push(self.run);
        }
        (self.done, !self.mixed)
    }
}

struct Translator<'p> {
    input: Cursor<'p>,
    out: String,
    groups: Vec<Option<String>>,
    open: Vec<Scope>,
    literals: Literals,
}

type Step = Result<(), String>;

impl<'p> Translator<'p> {
    fn run(&mut self) -> Step {
        while let Some(character) = self.input.peek() {
            match character {
                '(' => self.open_group()?,
                ')' => self.close_group()?,
                '|' => {
                    self.input.position += 1;
                    self.out.push('|');
                    self.literals.void |= self.open.len() == 1;
                    self.set_last(Last::Nothing);
                }
                '*' | '+' | '?' => {
                    let op = character.to_string();
                    self.repeat(1, &op, None)?;
                }
                '{' => match self.counts() {
                    Some((length, low, high)) => {
                        let op = self.input.rest().get(..length).unwrap_or_default().to_owned();
                        self.repeat(length, &op, Some((low, high)))?;
                    }
                    None => self.literal(),
                },
                '[' => self.class()?,
                '.' | '^' | '$' => {
                    self.input.position += 1;
                    self.out.push(character);
                    self.atom(0);
                }
                '\\' => self.escape()?,
                _ => self.literal(),
            }
        }
        if self.open.len() > 1 { Err("missing closing )".to_owned()) } else { Ok(()) }
    }

    fn literal(&mut self) {
        if let Some(character) = self.input.next() {
            self.plain(character);
        }
    }

    /// Appends a literal character.
    fn plain(&mut self, character: char) {
        push_literal(&mut self.out, character);
        let end = self.out.len();
        self.set_last(Last::Atom { end, repeats: 0 });
        if self.open.len() == 1 {
            self.literals.run.push(character);
        }
    }

    /// Records that the output now ends with a repeatable element that is not a literal character.
    fn atom(&mut self, repeats: u32) {
        self.literals.end_run();
        let end = self.out.len();
        self.set_last(Last::Atom { end, repeats });
    }

    fn set_last(&mut self, last: Last) {
        if let Some(scope) = self.open.last_mut() {
            scope.repeats = scope.repeats.max(scope.last.repeats());
            scope.last = last;
        }
    }

    fn repeat(&mut self, length: usize, op: &str, counts: Option<(u32, Option<u32>)>) -> Step {
        let last = self.open.last().map(|scope| scope.last).unwrap_or_default();
        let (end, below) = match last {
            Last::Nothing => return Err(format!("missing argument to repetition operator {op}")),
            Last::Repeated { .. } => {
                return Err(format!("invalid nested repetition operator {op}"));
            }
            Last::Atom { end, repeats } => (end, repeats),
        };
        let mut repeats = below;
        if let Some((low, high)) = counts {
            if low > MAX_REPEAT || high.is_some_and(|high| high > MAX_REPEAT || high < low) {
                return Err(format!("invalid repeat count {op}"));
            }
            repeats = match high {
                // No instance of the element remains.
                Some(0) => 0,
                Some(high) => high.saturating_mul(below.max(1)),
                // Without an upper bound the lower one counts, and the inner element at least once.
                None => low.max(1).saturating_mul(below.max(1)),
            };
            if repeats > MAX_REPEAT {
                return Err(format!(
                    "invalid repeat count {op}: more than {MAX_REPEAT} with those inside"
                ));
            }
        }
        self.input.position += length;
        self.literals.run.pop();
        self.literals.end_run();
        let lazy = self.input.eat("?");
        // Flags may have been written since; the operator belongs before them.
        if lazy {
            self.out.insert(end, '?');
        }
        self.out.insert_str(end, op);
        if let Some(scope) = self.open.last_mut() {
            scope.last = Last::Repeated { repeats };
        }
        Ok(())
    }

    /// Parses `{n}`, `{n,}` or `{n,m}` into length and counts; `None` means a literal brace.
    fn counts(&self) -> Option<(usize, u32, Option<u32>)> {
        let inner = self.input.rest().strip_prefix('{')?;
        let inner = inner.get(..inner.find('}')?)?;
        let length = inner.len() + 2;
        match inner.split_once(',') {
            None => count(inner).map(|low| (length, low, Some(low))),
            Some((low, "")) => count(low).map(|low| (length, low, None)),
            Some((low, high)) => Some((length, count(low)?, Some(count(high)?))),
        }
    }

    fn open_group(&mut self) -> Step {
        let rest = self.input.rest();
        let named = rest.strip_prefix("(?P<").or_else(|| rest.strip_prefix("(?<"));
        if let Some(inner) = named {
            let name = inner.split_once('>').map(|(name, _)| name).unwrap_or_default();
            if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
                return Err("invalid named capture".to_owned());
            }
            self.input.position += rest.len() - inner.len() + name.len() + 1;
            self.groups.push(Some(name.to_owned()));
            self.push_group("(");
        } else if let Some(inner) = rest.strip_prefix("(?") {
            return self.flags(inner);
        } else {
            self.input.position += 1;
            self.groups.push(None);
            self.push_group("(");
        }
        Ok(())
    }

    fn push_group(&mut self, text: &str) {
        self.literals.end_run();
        self.out.push_str(text);
        self.open.push(Scope::default());
    }

    /// Translates `(?flags)` and `(?flags:…`; `inner` is the text after `(?`.
    fn flags(&mut self, inner: &str) -> Step {
        let bad = || "invalid or unsupported Perl syntax".to_owned();
        let (mut on, mut off, mut negative, mut seen) =
            (String::new(), String::new(), false, false);
        for (offset, character) in inner.char_indices() {
            match character {
                'i' | 'm' | 's' | 'U' => {
                    // The last mention of a flag counts; the crate rejects duplicates.
                    on.retain(|flag| flag != character);
                    off.retain(|flag| flag != character);
                    if negative {
                        off.push(character)
                    } else {
                        on.push(character)
                    }
                    seen = true;
                }
                '-' if !negative => (negative, seen) = (true, false),
                ':' | ')' if !negative || seen => {
                    self.input.position += "(?".len() + offset + 1;
                    self.literals.void |= character == ')';
                    let minus = if off.is_empty() { "" } else { "-" };
                    let flags = format!("(?{on}{minus}{off}");
                    if character == ':' {
                        self.push_group(&format!("{flags}:"));
                    } else if !(on.is_empty() && off.is_empty()) {
                        self.out.push_str(&flags);
                        self.out.push(')');
                    }
                    return Ok(());
                }
                _ => return Err(bad()),
            }
        }
        Err(bad())
    }

    fn close_group(&mut self) -> Step {
        if self.open.len() < 2 {
            return Err("unexpected )".to_owned());
        }
        self.input.position += 1;
        self.out.push(')');
        let inside = self.open.pop().map_or(0, |scope| scope.repeats.max(scope.last.repeats()));
        self.atom(inside);
        Ok(())
    }

    /// Translates a backslash outside brackets.
    fn escape(&mut self) -> Step {
        if self.input.eat("\\Q") {
            let rest = self.input.rest();
            let (quoted, length) = match rest.split_once("\\E") {
                Some((quoted, _)) => (quoted, quoted.len() + 2),
                None => (rest, rest.len()),
            };
            for character in quoted.chars() {
                self.plain(character);
            }
            self.input.position += length;
            return Ok(());
        }
        let boundary = match self.input.rest().as_bytes() {
            [b'\\', b'A', ..] => r"\A",
            [b'\\', b'z', ..] => r"\z",
            [b'\\', b'b', ..] => r"(?-u:\b)",
            [b'\\', b'B', ..] => r"(?-u:\B)",
            _ => "",
        };
        if boundary.is_empty() {
            match self.class_escape()? {
                Some(class) => {
                    let _ = write!(self.out, "[{class}]");
                }
                None => {
                    let character = self.character_escape()?;
                    self.plain(character);
                    return Ok(());
                }
            }
        } else {
            self.input.position += 2;
            self.out.push_str(boundary);
        }
        self.atom(0);
        Ok(())
    }

    /// Translates `\d`, `\pL` and similar classes into a bracket item.
    fn class_escape(&mut self) -> Result<Option<String>, String> {
        let class = match self.input.rest().as_bytes() {
            [b'\\', b'd', ..] => "0-9",
            [b'\\', b'D', ..] => "[^0-9]",
            [b'\\', b's', ..] => r"\t\n\x0C\r\x20",
            [b'\\', b'S', ..] => r"[^\t\n\x0C\r\x20]",
            [b'\\', b'w', ..] => "0-9A-Za-z_",
            [b'\\', b'W', ..] => "[^0-9A-Za-z_]",
            [b'\\', b'p' | b'P', ..] => return self.unicode_class().map(Some),
            _ => return Ok(None),
        };
        self.input.position += 2;
        Ok(Some(class.to_owned()))
    }

    fn unicode_class(&mut self) -> Result<String, String> {
        let rest = self.input.rest();
        let mut negative = rest.starts_with("\\P");
        let after = rest.get(2..).unwrap_or_default();
        let (name, length) = match after.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, _)) => (name, name.len() + 4),
                None => return Err("invalid character class range".to_owned()),
            },
            None => {
                let length = after.chars().next().map_or(0, char::len_utf8);
                (after.get(..length).unwrap_or_default(), length + 2)
            }
        };
        let (name, caret) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
        negative ^= caret;
        let class =
            unicode::class(name).ok_or_else(|| format!("unknown character class {name:?}"))?;
        self.input.position += length;
        Ok(if negative { format!("[^{class}]") } else { class })
    }

    /// Reads an escape sequence for one character.
    fn character_escape(&mut self) -> Result<char, String> {
        let rest = self.input.rest();
        let mut characters = rest.chars().skip(1);
        let Some(character) = characters.next() else {
            return Err("trailing backslash at end of expression".to_owned());
        };
        let invalid = || format!("invalid escape sequence \\{}", character.escape_debug());
        let (value, length) = match character {
            'a' => ('\x07', 2),
            'f' => ('\x0c', 2),
            'n' => ('\n', 2),
            'r' => ('\r', 2),
            't' => ('\t', 2),
            'v' => ('\x0b', 2),
            '0'..='7' => {
                let digits: String =
                    characters.take_while(|c| matches!(c, '0'..='7')).take(2).collect();
                // A single digit other than 0 would be a back-reference.
                if character != '0' && digits.is_empty() {
                    return Err(invalid());
                }
                let code = u32::from_str_radix(&format!("{character}{digits}"), 8).ok();
                (code.and_then(char::from_u32).ok_or_else(invalid)?, 2 + digits.len())
            }
            'x' => {
                let after = rest.get(2..).unwrap_or_default();
                let (digits, length) = match after.strip_prefix('{') {
                    Some(inner) => {
                        let digits =
                            inner.split_once('}').map(|(digits, _)| digits).ok_or_else(invalid)?;
                        (digits, digits.len() + 4)
                    }
                    None => (after.get(..2).ok_or_else(invalid)?, 4),
                };
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(invalid());
                }
                let code = u32::from_str_radix(digits, 16).ok();
                (code.and_then(char::from_u32).ok_or_else(invalid)?, length)
            }
            _ if character.is_ascii() && !character.is_ascii_alphanumeric() => (character, 2),
            _ => return Err(invalid()),
        };
        self.input.position += length;
        Ok(value)
    }

    /// Translates a bracket expression.
    fn class(&mut self) -> Step {
        self.input.position += 1;
        let mut class = String::from("[");
        if self.input.eat("^") {
            class.push('^');
        }
        let mut first = true;
        loop {
            let Some(character) = self.input.peek() else {
                return Err("missing closing ]".to_owned());
            };
            if character == ']' && !first {
                self.input.position += 1;
                break;
            }
            first = false;
            if let Some(name) = self.posix_class()? {
                class.push_str(&name);
                continue;
            }
            if let Some(item) = self.class_escape()? {
                class.push_str(&item);
                continue;
            }
            let low = self.class_character()?;
            push_literal(&mut class, low);
            let mut ahead = self.input.rest().chars();
            if ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']') {
                self.input.position += 1;
                let high = self.class_character()?;
                if high < low {
                    return Err(format!(
                        "invalid character class range {}-{}",
                        low.escape_debug(),
                        high.escape_debug()
                    ));
                }
                class.push('-');
                push_literal(&mut class, high);
            }
        }
        class.push(']');
        self.out.push_str(&class);
        self.atom(0);
        Ok(())
    }

    fn class_character(&mut self) -> Result<char, String> {
        match self.input.peek() {
            Some('\\') => self.character_escape(),
            Some(_) => self.input.next().ok_or_else(|| "missing closing ]".to_owned()),
            None => Err("missing closing ]".to_owned()),
        }
    }

    /// Translates `[:alpha:]` and similar classes.
    fn posix_class(&mut self) -> Result<Option<String>, String> {
        const NAMES: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print",
            "punct", "space", "upper", "word", "xdigit",
        ];
        let Some((name, _)) =
            self.input.rest().strip_prefix("[:").and_then(|inner| inner.split_once(":]"))
        else {
            return Ok(None);
        };
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("unknown character class {name:?}"));
        }
        self.input.position += name.len() + 4;
        Ok(Some(format!("[:{name}:]")))
    }
}

/// Parses a repeat count: decimal, without leading zeros.
fn count(digits: &str) -> Option<u32> {
    let leading_zero = digits.len() > 1 && digits.starts_with('0');
    if digits.is_empty() || leading_zero || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Too large for the type is too large for the limit.
    Some(digits.parse().unwrap_or(u32::MAX))
}

/// Appends a character that stands for itself to a pattern for the `regex` or `fancy_regex` crate.
pub(crate) fn push_literal(out: &mut String, character: char) {
    if character.is_alphanumeric() || character == '_' {
        out.push(character);
    } else {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\x{{{:X}}}", u32::from(character));
    }
}

#[cfg(test)]
mod tests;
