//! Mutation testing with one build for all mutants.
//!
//! cargo-mutants changes one place of the source, builds and runs the tests, again and again: a minute for each mutant. This
//! program takes cargo-mutants' list and writes all of its mutants into one copy of the source, each behind a condition. It
//! builds the library's tests once, learns which tests reach which mutant, and runs those with the mutant switched on.
//!
//! ```text
//! kstatd-mutation try LIST.json [--again]  tries mutants that are not in tests/mutation/mutants.csv, and those that survived
//! kstatd-mutation repeat COUNT DAY         tries COUNT of those that were caught, others on each day
//! kstatd-mutation score                    prints the number of mutants by result
//! ```

mod build;
mod instrument;
mod list;
mod run;
mod sites;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use build::Tree;
use instrument::Switch;
use list::{List, Name, Outcome};
use sites::{Key, Site, sites};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn list_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants.csv")
}

fn read_list() -> Result<List, String> {
    std::fs::read_to_string(list_path())
        .map_or_else(|_| Ok(List::default()), |text| List::parse(&text))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result =
        match arguments.as_slice() {
            ["try", path] => try_list(path, false),
            ["try", path, "--again"] => try_list(path, true),
            ["repeat", count, day] => match (count.parse(), day.parse()) {
                (Ok(count), Ok(day)) => repeat(count, day),
                _ => Err(format!("{count}, {day}: not two numbers")),
            },
            ["score"] => score(),
            _ => Err("usage: kstatd-mutation try LIST.json [--again] | repeat COUNT DAY | score"
                .to_owned()),
        };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The line, the column and the genre of a mutant.
type Place<'a> = (usize, usize, &'a str);

/// Returns the mutants of cargo-mutants' list as places of the source.
fn listed(tree: &Tree, path: &str) -> Result<Vec<(Site, String)>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let all: Vec<serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let mut files: BTreeMap<&str, HashMap<Place<'_>, Vec<&str>>> = BTreeMap::new();
    for mutant in &all {
        let text = |name: &str| mutant[name].as_str().unwrap_or_default();
        let start = &mutant["span"]["start"];
        let number = |name: &str| start[name].as_u64().unwrap_or_default() as usize;
        let place = (number("line"), number("column"), text("genre"));
        files.entry(text("file")).or_default().entry(place).or_default().push(text("replacement"));
    }
    let mut found = Vec::new();
    for (file, mut places) in files {
        let sites = sites(file, &tree.read(file)?)?;
        for site in &sites {
            let place = (site.position.0, site.position.1, site.key.genre.as_str());
            for replacement in places.remove(&place).unwrap_or_default() {
                found.push((site.clone(), replacement.to_owned()));
            }
        }
        for (line, column, genre) in places.into_keys() {
            eprintln!("{file}:{line}:{column}: {genre}: not found");
        }
    }
    Ok(found)
}

fn switches(mutants: &[(Site, String)]) -> Vec<Switch<'_>> {
    // Mutants of one place have one site, so that they come into one chain of conditions.
    let mut switches: Vec<Switch<'_>> = Vec::new();
    for (id, (site, replacement)) in mutants.iter().enumerate() {
        let site = match switches.last() {
            Some(last) if last.site.key == site.key => last.site,
            _ => site,
        };
        switches.push(Switch { id, site, replacement });
    }
    switches.retain(|switch| !switch.site.is_fixed);
    switches
}

fn try_list(path: &str, all: bool) -> Result<(), String> {
    let tree = Tree::new(&repository());
    let list = read_list()?;
    let mutants = listed(&tree, path)?;
    let known = |id: usize| {
        let (site, replacement) = mutants.get(id)?;
        list.0.get(&(site.key.clone(), replacement.clone())).map(|known| known.result.as_str())
    };
    let mut switches = switches(&mutants);
    switches.retain(|switch| known(switch.id) != Some("unviable"));
    let mut wanted: Vec<usize> = switches.iter().map(|switch| switch.id).collect();
    wanted.retain(|&id| all || known(id).is_none_or(|result| result == "survived"));
    let fixed = mutants.iter().filter(|(site, _)| site.is_fixed).count();
    println!("{} mutants, {fixed} of them in places where a condition cannot be", mutants.len());
    let mut unviable = BTreeSet::new();
    let built = tree.build(&switches, &mut unviable);
    println!("built: {} do not compile", unviable.len());
    // Places that are no longer in these files are forgotten.
    let names: BTreeSet<Name> =
        mutants.iter().map(|(site, replacement)| (site.key.clone(), replacement.clone())).collect();
    let files: BTreeSet<&str> = names.iter().map(|(key, _)| key.file.as_str()).collect();
    let mut kept = list.clone();
    kept.0.retain(|name, _| !files.contains(name.0.file.as_str()) || names.contains(name));
    let list = Mutex::new(kept);
    let note = |id: usize, outcome: Outcome| {
        let Some((site, replacement)) = mutants.get(id) else { return };
        if outcome.result == "survived" {
            println!("{}: {}", described(site, replacement), outcome.by);
        }
        let mut list = list.lock().expect("no panics");
        list.0.insert((site.key.clone(), replacement.clone()), outcome);
        if let Err(error) = std::fs::write(list_path(), list.render()) {
            eprintln!("{}: {error}", list_path().display());
        }
    };
    for &id in &unviable {
        note(id, Outcome { result: "unviable".to_owned(), by: String::new() });
    }
    let binary = built?;
    let tests = run::trace(&binary, &repository().join("target"));
    println!("{} tests", tests.len());
    let begun = Instant::now();
    wanted.retain(|id| !unviable.contains(id));
    let wanted = shuffled(&wanted, &mutants);
    let time = time_limit();
    run::in_parallel(&wanted, |&id| {
        if begun.elapsed() < time {
            note(id, run::attempt(&binary, id, &tests));
        }
    });
    println!("{} s", begun.elapsed().as_secs());
    score()
}

/// Returns mutants in an order that is random but always the same, one of each room after the other: those of the first
/// minutes are a sample of each.
fn shuffled(ids: &[usize], mutants: &[(Site, String)]) -> Vec<usize> {
    let mut rooms: BTreeMap<&str, Vec<(u64, usize)>> = BTreeMap::new();
    for &id in ids {
        let Some((site, replacement)) = mutants.get(id) else { continue };
        let mut hasher = std::hash::DefaultHasher::new();
        (&site.key, replacement).hash(&mut hasher);
        rooms.entry(run::room(&site.key.file)).or_default().push((hasher.finish(), id));
    }
    rooms.values_mut().for_each(|ids| ids.sort_unstable());
    let longest = rooms.values().map(Vec::len).max().unwrap_or_default();
    let turns = (0..longest).flat_map(|turn| rooms.values().filter_map(move |ids| ids.get(turn)));
    turns.map(|(_, id)| *id).collect()
}

/// Tries mutants again that were caught: the tests have to catch them still. Stops after `TIME` seconds of tests.
fn repeat(count: usize, day: usize) -> Result<(), String> {
    let tree = Tree::new(&repository());
    let list = read_list()?;
    let mut files: HashMap<&str, Vec<Site>> = HashMap::new();
    let mut mutants = Vec::new();
    let mut by = Vec::new();
    let is_certain = |known: &Outcome| known.result == "caught" && known.by != "crash";
    let caught: Vec<_> = list.0.iter().filter(|(_, known)| is_certain(known)).collect();
    // Neighbours in the list are in the same file, so each day takes one in every so many.
    let step = (caught.len() / count.max(1)).max(1);
    for ((key, replacement), known) in caught.iter().skip(day % step).step_by(step) {
        // What is no longer in the source is left out.
        let Ok(text) = tree.read(&key.file) else { continue };
        if !files.contains_key(key.file.as_str()) {
            files.insert(&key.file, sites(&key.file, &text)?);
        }
        let sites = files.get(key.file.as_str()).map_or(&[][..], Vec::as_slice);
        if let Some(site) = sites.iter().find(|site| site.key == *key) {
            mutants.push((site.clone(), replacement.clone()));
            by.push(known.by.as_str());
        }
    }
    let switches = switches(&mutants);
    let mut unviable = BTreeSet::new();
    let binary = tree.build(&switches, &mut unviable)?;
    let (begun, time) = (Instant::now(), time_limit());
    let (missed, tried) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    run::in_parallel(&switches, |switch| {
        let Some(test) = by.get(switch.id) else { return };
        if unviable.contains(&switch.id) || begun.elapsed() >= time {
            return;
        }
        tried.fetch_add(1, Ordering::Relaxed);
        if run::fails(&binary, switch.id, &[test], Duration::from_secs(60)).is_none() {
            missed.lock().expect("no panics").push(switch.id);
        }
    });
    // Another test may catch what the one of the list does not: it may have another name now.
    let mut missed = missed.into_inner().expect("no panics");
    if !missed.is_empty() {
        let tests = run::trace(&binary, &repository().join("target"));
        missed.retain(|&id| run::attempt(&binary, id, &tests).result == "survived");
    }
    println!(
        "{} of {} caught mutants tried: {} survive",
        tried.into_inner(),
        caught.len(),
        missed.len()
    );
    for id in &missed {
        let Some((site, replacement)) = mutants.get(*id) else { continue };
        println!("{}", described(site, replacement));
    }
    if missed.is_empty() { Ok(()) } else { Err("mutants survive that were caught".to_owned()) }
}

/// Returns the time after which no further mutant is tried.
fn time_limit() -> Duration {
    let seconds = std::env::var("TIME").ok().and_then(|time| time.parse().ok());
    seconds.map_or(Duration::MAX, Duration::from_secs)
}

fn described(site: &Site, replacement: &str) -> String {
    let (key, (line, column)) = (&site.key, site.position);
    let Key { file, function, genre, original, .. } = key;
    format!("{file}:{line}:{column}: {genre} {original} -> {replacement} in {function}")
}

fn score() -> Result<(), String> {
    let list = read_list()?;
    let rooms = run::score(list.0.iter().map(|((key, _), outcome)| (key.file.as_str(), outcome)));
    println!(
        "| Room | Tried | Caught | Timeout | Unviable | Accepted | Survived |\n|---|---|---|---|---|---|---|"
    );
    for (room, results) in &rooms {
        let of = |name: &str| results.get(name).copied().unwrap_or_default();
        println!(
            "| `{room}` | {} | {} | {} | {} | {} | {} |",
            results.values().sum::<usize>(),
            of("caught"),
            of("timeout"),
            of("unviable"),
            of("accepted"),
            of("survived")
        );
    }
    Ok(())
}
