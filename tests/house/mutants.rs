//! The defects of `tests/mutants` as patches, and the list of tried mutants.

use std::collections::BTreeSet;
use std::path::Path;

/// Returns each hunk of a patch that does not fit its file: its lines before the change are not in the file.
pub fn misfits(patch: &str, root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let (mut file, mut hunk) = (String::new(), None::<String>);
    // The last hunk ends at the end of the patch.
    for line in patch.lines().chain(["@@"]) {
        if line.starts_with("@@") || line.starts_with("--- ") {
            if let Some(before) = hunk.take()
                && !std::fs::read_to_string(root.join(&file))
                    .is_ok_and(|text| text.contains(&before))
            {
                out.push(format!("{file} does not contain\n{before}"));
            }
            if let Some(path) = line.strip_prefix("--- a/") {
                path.clone_into(&mut file);
            } else {
                hunk = Some(String::new());
            }
        } else if let Some(before) = &mut hunk
            && !line.starts_with(['+', '\\'])
        {
            before.push_str(line.get(1..).unwrap_or_default());
            before.push('\n');
        }
    }
    out
}

/// Returns each function of `tests/mutation/mutants.csv` that is not in its file any more.
pub fn removed_functions(list: &str, root: &Path) -> Vec<String> {
    let places = list.lines().skip(1).filter_map(|line| {
        let (file, rest) = line.split_once(',')?;
        let function = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?.0,
            None => rest.split_once(',')?.0,
        };
        Some((file, function))
    });
    let places: BTreeSet<(&str, &str)> = places.collect();
    let is_there = |(file, function): &(&str, &str)| {
        let name = function.rsplit("::").next().unwrap_or_default();
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        text.contains(&format!("fn {name}(")) || text.contains(&format!("fn {name}<"))
    };
    let removed = places.iter().filter(|place| !is_there(place));
    removed.map(|(file, function)| format!("{file}: {function}")).collect()
}
