//! Where containers write: the upper directories of the overlays in the mount table.

use std::path::{Path, PathBuf};

/// One overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overlay {
    /// Where it is mounted.
    pub(super) point: String,
    /// What is written there lies here.
    pub(super) upper: PathBuf,
}

impl Overlay {
    /// The number that the runtime gave to its container, if its place has one: a component of 64 hexadecimal digits.
    pub(super) fn container(&self) -> Option<&str> {
        let is_number =
            |part: &&str| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.point.split('/').find(is_number)
    }
}

/// The overlays of a table in the form of `/proc/PID/mountinfo`, each upper directory once.
///
/// # Errors
///
/// The table cannot be read.
pub(super) fn overlays(table: &Path) -> std::io::Result<Vec<Overlay>> {
    std::fs::read(table).map(|text| written(&text))
}

/// Those of the text of a table.
fn written(text: &[u8]) -> Vec<Overlay> {
    let mut found: Vec<Overlay> =
        String::from_utf8_lossy(text).lines().filter_map(overlay).collect();
    found.sort_by(|a, b| (&a.upper, &a.point).cmp(&(&b.upper, &b.point)));
    // A mount that is bound elsewhere too: the place that names a container says more.
    found.sort_by_key(|of| (of.upper.clone(), of.container().is_none()));
    found.dedup_by(|later, earlier| later.upper == earlier.upper);
    found
}

/// Where each is mounted, and where it is written to.
#[cfg(fuzzing)]
pub(crate) fn places(text: &[u8]) -> Vec<(String, PathBuf)> {
    written(text).into_iter().map(|Overlay { point, upper }| (point, upper)).collect()
}

fn overlay(line: &str) -> Option<Overlay> {
    let (mount, rest) = line.split_once(" - ")?;
    let mut rest = rest.split(' ');
    let (kind, _, options) = (rest.next()?, rest.next()?, rest.next()?);
    if kind != "overlay" {
        return None;
    }
    let upper = options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
    let upper = plain(upper);
    let point = plain(mount.split(' ').nth(4)?);
    upper.starts_with('/').then(|| Overlay { point, upper: PathBuf::from(upper) })
}

/// Spaces and the like stand as `\040`.
fn plain(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                out.push(char::from(code));
                out.push_str(&part[3..]);
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_directories_and_their_containers() {
        let number = "0123456789abcdef".repeat(4);
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = format!(
            "22 1 0:5 / / rw shared:1 - ext4 /dev/vda rw\n\
             30 22 0:40 / /run/merged\\040x rw - overlay overlay rw,lowerdir=/l,upperdir=/u/1/fs,workdir=/w\n\
             31 22 0:40 / /run/k8s.io/{number}/rootfs rw - overlay overlay rw,upperdir=/u/1/fs\n\
             32 22 0:41 / /ro rw - overlay overlay ro,lowerdir=/l:/m\n\
             33 22 0:42 / /other rw - overlay overlay rw,upperdir=/u/2\\054/fs\n"
        );
        std::fs::write(file.path(), text).expect("written");
        let found = overlays(file.path()).expect("a table");
        let found: Vec<_> =
            found.iter().map(|of| (of.upper.to_str().unwrap(), of.container())).collect();
        assert_eq!(found, [("/u/1/fs", Some(number.as_str())), ("/u/2,/fs", None)]);
        assert!(overlays(Path::new("/no/such")).is_err());
    }
}
