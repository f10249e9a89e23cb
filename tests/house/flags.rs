//! The rows of the flag tables, and whether the code reads their fields.

use std::path::Path;

/// The tables, relative to `src`.
const TABLES: [&str; 2] = ["cli/kube_args.rs", "cli/statsd_flags.rs"];

/// Rooms that may read the fields.
const READERS: [&str; 3] = ["app", "cli", "tools"];

/// Flags handled by the grammars themselves.
const ANSWERED: [&str; 1] = ["help"];

pub struct Row {
    pub file: &'static str,
    pub field: String,
    pub name: String,
    pub help: String,
    /// True if code outside of the tables reads the field.
    pub is_read: bool,
}

impl Row {
    pub fn is_without_effect(&self) -> bool {
        self.help.starts_with("Accepted for compatibility")
            || ANSWERED.contains(&self.name.as_str())
    }
}

pub fn rows(root: &Path) -> Vec<Row> {
    let mut readers = String::new();
    let mut rows = Vec::new();
    for room in READERS {
        read(&root.join("src").join(room), &mut readers);
    }
    for file in TABLES {
        let text = std::fs::read_to_string(root.join("src").join(file)).unwrap();
        let table =
            text.split("    FLAGS {\n").nth(1).unwrap_or_else(|| panic!("no FLAGS in {file}"));
        let table = table.split("\n    }\n").next().unwrap();
        for row in table.split(";\n") {
            let (field, rest) = row.split_once(':').unwrap_or_else(|| panic!("{row:?} in {file}"));
            let field = field.trim().to_owned();
            let mut texts = rest.split('"').skip(1).step_by(2);
            let name = texts.next().unwrap_or_else(|| panic!("{row:?} in {file}")).to_owned();
            let help = rest.trim_end().rsplit_once("\n").map_or("", |(_, line)| line.trim());
            let help = help.trim_matches('"').to_owned();
            let is_read = reads(&readers, &field);
            rows.push(Row { file, field, name, help, is_read });
        }
    }
    rows
}

/// Returns whether a text contains `.field` as a whole word.
fn reads(text: &str, field: &str) -> bool {
    text.match_indices(&format!(".{field}")).any(|(at, found)| {
        let behind = text[at + found.len()..].chars().next();
        behind.is_none_or(|next| !next.is_alphanumeric() && next != '_')
    })
}

fn read(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, into);
        } else {
            into.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}
