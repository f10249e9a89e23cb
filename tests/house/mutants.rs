//! The defects of `tests/mutants` as patches.

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
