//! Structural rules of the source: an import goes to a lower level or stays in its room, files of a room do not
//! import each other in a cycle, every file is compiled, every flag is read, `unsafe` is only in listed files, errors
//! have types, and the defects of `tests/mutants` still fit the source.
//! The levels are those in `docs/design.md`.

#[path = "house/errors.rs"]
mod errors;
#[path = "house/flags.rs"]
mod flags;
#[path = "house/imports.rs"]
mod imports;
#[path = "house/mutants.rs"]
mod mutants;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use imports::{Import, imports, undeclared};
use syn::visit::Visit as _;

/// Returns the level of each room, from the block in `docs/design.md` with lines `LEVEL  ROOM ROOM …  purpose`.
fn levels() -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(root().join("docs/design.md")).unwrap();
    let block = text.split("```levels\n").nth(1).expect("docs/design.md shows the levels");
    let block = block.split("```").next().unwrap();
    let mut levels = BTreeMap::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let rooms = line.split("  ").map(str::trim).filter(|part| !part.is_empty());
        let [level, rooms, _what] = rooms.collect::<Vec<_>>()[..] else {
            panic!("`{line}` is not `LEVEL  ROOMS  what for`");
        };
        for room in rooms.split(' ') {
            let level = level.parse().unwrap_or_else(|_| panic!("`{line}` begins with no level"));
            assert!(levels.insert(room.to_owned(), level).is_none(), "{room} is listed twice");
        }
    }
    levels
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the first component of a module path; `None` for the crate root.
fn room(file: &str) -> Option<&str> {
    let first = file.split('/').next()?.trim_end_matches(".rs");
    (!matches!(first, "lib" | "main")).then_some(first)
}

#[test]
fn imports_go_to_lower_levels() {
    let levels = levels();
    let level = |room: &str| {
        *levels.get(room).unwrap_or_else(|| panic!("docs/design.md says no level for src/{room}"))
    };
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for Import { from, to, path } in imports(&root().join("src")) {
        let (Some(above), Some(below)) = (room(&from), room(&to)) else { continue };
        seen.extend([above.to_owned(), below.to_owned()]);
        if above != below && level(below) >= level(above) {
            wrong.push(format!("src/{from} ({}) imports {path} ({})", level(above), level(below)));
        }
    }
    assert!(wrong.is_empty(), "imports that do not go down a level:\n{}", wrong.join("\n"));
    let listed: BTreeSet<_> = levels.into_keys().collect();
    let missing: Vec<_> = listed.difference(&seen).collect();
    assert!(missing.is_empty(), "docs/design.md lists rooms that nothing is in: {missing:?}");
}

#[test]
fn every_file_is_compiled() {
    let files = undeclared(&root().join("src"));
    let lines = files.iter().map(|(file, parent)| format!("src/{file}: no `mod` in src/{parent}"));
    assert!(
        files.is_empty(),
        "files that are part of no program:\n{}",
        Vec::from_iter(lines).join("\n")
    );
}

#[test]
fn every_flag_is_read() {
    let rows = flags::rows(root());
    assert!(rows.len() > 60, "only {} flags", rows.len());
    let unread = rows.iter().filter(|flag| !flag.is_read && !flag.is_without_effect());
    let lines =
        unread.map(|flag| format!("src/{}: --{}, field `{}`", flag.file, flag.name, flag.field));
    let lines = Vec::from_iter(lines);
    assert!(
        lines.is_empty(),
        "flags that nothing reads, and whose help does not begin with \"Accepted for compatibility\":\n{}",
        lines.join("\n")
    );
}

/// The files that mention `unsafe` code: the library root, which denies it, and those that contain it, for calls of
/// the system or the allocator without a safe form.
const UNSAFE: [&str; 12] = [
    "lib.rs",
    "main.rs",
    "node/sys.rs",
    "server/pprof/cpu.rs",
    "server/pprof/heap.rs",
    "statsd/receive/batch.rs",
    "statsd/receive/net.rs",
    "telemetry/stderr.rs",
    "tools/terminal.rs",
    "util/allocator.rs",
    "util/descriptors.rs",
    "util/program_pages.rs",
];

/// Returns the path below `src` and the text of each file.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root().join("src")).unwrap().to_str().unwrap();
                found.insert(name.to_owned(), std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Log messages that are the originals', letter by letter.
const ORIGINAL_MESSAGES: [&str; 2] = ["error dumping FSM", "counter must be non-negative value"];

/// Collects the messages of log calls: the first text that is not the value of a field.
#[derive(Default)]
struct LogMessages(Vec<String>);

impl<'ast> syn::visit::Visit<'ast> for LogMessages {
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.segments.first().is_none_or(|first| first.ident != "tracing") {
            return;
        }
        let mut is_value = false;
        for token in call.tokens.clone() {
            let text = token.to_string();
            if text.starts_with('"') && !is_value {
                return self.0.push(text.trim_matches('"').to_owned());
            }
            is_value = text == "=";
        }
    }
}

/// All begin with a capital letter, as those of the originals do.
#[test]
fn log_messages_have_one_style() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (file, text) in sources() {
        let mut messages = LogMessages::default();
        syn::visit::Visit::visit_file(&mut messages, &syn::parse_file(&text).unwrap());
        count += messages.0.len();
        messages.0.retain(|message| {
            let is_lower = message.starts_with(char::is_lowercase);
            (is_lower || message.ends_with('.')) && !ORIGINAL_MESSAGES.contains(&message.as_str())
        });
        wrong.extend(messages.0.iter().map(|message| format!("src/{file}: {message}")));
    }
    assert!(count > 100, "{count} messages");
    assert!(wrong.is_empty(), "messages that begin with no capital letter:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_is_only_in_listed_files() {
    let files = sources().into_iter().filter(|(_, text)| text.contains("unsafe_code"));
    let found: Vec<String> = files.map(|(file, _)| file).collect();
    assert_eq!(found, UNSAFE);
    // The lint denies it everywhere else.
    let library = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    assert!(library.contains("#![deny(unsafe_code)]") && !library.contains("allow(unsafe_code)"));
    for other in ["tests/double/src/lib.rs", "tests/endurance/src/lib.rs"] {
        let text = std::fs::read_to_string(root().join(other)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{other}");
    }
}

/// An error that another file gets has a type, so that it can be told from others and from a value.
#[test]
fn errors_have_types() {
    let is_test = |file: &str| file.split('/').any(|part| matches!(part, "tests" | "tests.rs"));
    let mut found = Vec::new();
    for (file, text) in sources().iter().filter(|(file, _)| !is_test(file)) {
        let mut errors = errors::TextErrors::default();
        errors.visit_file(&syn::parse_file(text).unwrap());
        found.extend(errors.0.into_iter().map(|function| format!("src/{file}: {function}")));
    }
    assert_eq!(found, Vec::<String>::new());
    let mut errors = errors::TextErrors::default();
    let wrong = "impl A { pub(crate) async fn f() -> io::Result<Result<u8, String>> { g() } }";
    errors.visit_file(&syn::parse_file(wrong).unwrap());
    assert_eq!(errors.0, ["f"]);
}

/// A patch that fits only roughly may change another place than the one it was written for.
#[test]
fn defects_fit_the_source() {
    let mut misfits = Vec::new();
    for entry in std::fs::read_dir(root().join("tests/mutants")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            let patch = std::fs::read_to_string(&path).unwrap();
            assert!(patch.contains("\n@@ "), "{} changes nothing", path.display());
            let found = mutants::misfits(&patch, root());
            misfits.extend(found.into_iter().map(|why| format!("{}: {why}", path.display())));
        }
    }
    assert_eq!(misfits, Vec::<String>::new());
    let wrong = "--- a/Cargo.toml\n+++ b/Cargo.toml\n@@ -1 +1 @@\n-[pakkage]\n+[package]\n";
    assert_eq!(mutants::misfits(wrong, root()), ["Cargo.toml does not contain\n[pakkage]\n"]);
}

#[test]
fn tried_mutants_are_in_functions_of_the_source() {
    let list = std::fs::read_to_string(root().join("tests/mutation/mutants.csv")).unwrap();
    assert_eq!(mutants::removed_functions(&list, root()), Vec::<String>::new());
    let wrong =
        "file,function\nsrc/main.rs,gone,x\nsrc/main.rs,\"A<B, C>::gone\",x\nsrc/main.rs,main,x\n";
    let removed = mutants::removed_functions(wrong, root());
    assert_eq!(removed, ["src/main.rs: A<B, C>::gone", "src/main.rs: gone"]);
}

#[test]
fn files_have_no_import_cycles() {
    let mut graph: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for Import { from, to, path } in imports(&root().join("src")) {
        if from != to && room(&from) == room(&to) && room(&from).is_some() {
            graph.entry(from).or_default().insert(to, path);
        }
    }
    let cycles = cycles(&graph);
    assert!(cycles.is_empty(), "files that import each other:\n{}", cycles.join("\n"));
}

/// Returns one line for each edge that is part of a cycle.
fn cycles(graph: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<String> {
    let reach = |from: &str| {
        let mut found = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for next in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
                if found.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        found
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reach(file))).collect();
    let edges =
        graph.iter().flat_map(|(from, to)| to.iter().map(move |(to, path)| (from, to, path)));
    edges
        .filter(|(from, to, _)| {
            reached.get(to.as_str()).is_some_and(|back| back.contains(from.as_str()))
        })
        .map(|(from, to, path)| format!("src/{from} -> src/{to}: {path}"))
        .collect()
}

#[test]
fn import_cycles_are_detected() {
    let edge = |to: &str| BTreeMap::from([(to.to_owned(), format!("use of {to}"))]);
    let mut graph = BTreeMap::from([("a".to_owned(), edge("b")), ("b".to_owned(), edge("c"))]);
    assert_eq!(cycles(&graph), Vec::<String>::new());
    graph.insert("c".to_owned(), edge("b"));
    assert_eq!(cycles(&graph), ["src/b -> src/c: use of c", "src/c -> src/b: use of b"]);
}
