//! The list of tried mutants, `tests/mutation/mutants.csv`.

use std::collections::BTreeMap;

use crate::sites::Key;

/// The columns of the list.
const HEAD: &str = "file,function,genre,original,nth,replacement,result,by";

/// What is known about a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `caught`, `timeout`, `unviable`, `survived` or `accepted`.
    pub result: String,
    /// The test that fails, or the reason for which a survivor is accepted.
    pub by: String,
}

/// A mutant: its place and the text that replaces the original one.
pub type Name = (Key, String);

/// All tried mutants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List(pub BTreeMap<Name, Outcome>);

impl List {
    /// Parses the file.
    ///
    /// # Errors
    /// Names the line that has not all columns.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut list = BTreeMap::new();
        for (index, line) in text.lines().enumerate().skip(1) {
            let wrong = || format!("mutants.csv, line {}: not `{HEAD}`", index + 1);
            let [file, function, genre, original, nth, replacement, result, by] =
                <[String; 8]>::try_from(fields(line)).map_err(|_| wrong())?;
            let nth = nth.parse().map_err(|_| wrong())?;
            let key = Key { file, function, genre, original, nth };
            list.insert((key, replacement), Outcome { result, by });
        }
        Ok(Self(list))
    }

    /// Returns the text of the file, sorted by place.
    pub fn render(&self) -> String {
        let mut out = format!("{HEAD}\n");
        for ((key, replacement), outcome) in &self.0 {
            let nth = key.nth.to_string();
            let columns = [
                &key.file,
                &key.function,
                &key.genre,
                &key.original,
                &nth,
                replacement,
                &outcome.result,
                &outcome.by,
            ];
            out += &columns.map(|column| quoted(column)).join(",");
            out.push('\n');
        }
        out
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                fields[last].push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => fields[last].push(character),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let key = Key {
            file: "src/a.rs".to_owned(),
            function: "<impl From<A, B> for C>::from".to_owned(),
            genre: "MatchArm".to_owned(),
            original: "\"a,b\" | ','".to_owned(),
            nth: 2,
        };
        let outcome =
            Outcome { result: "accepted".to_owned(), by: "says \"why\", with a comma".to_owned() };
        let list = List(BTreeMap::from([((key, String::new()), outcome)]));
        assert_eq!(List::parse(&list.render()).as_ref(), Ok(&list));
        assert!(List::parse("file\nsrc/a.rs,too,few").is_err());
    }
}
