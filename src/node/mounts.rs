//! Finds the writable layers of containers: the upper directories of overlay mounts.

use std::path::{Path, PathBuf};

/// An overlay mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overlay {
    /// The mount point.
    pub(super) mount_point: String,
    /// The upper directory, which receives the writes.
    pub(super) upper: PathBuf,
}

impl Overlay {
    /// Returns the container ID, if the mount point has one: a path component of 64 hexadecimal
    /// digits.
    pub(super) fn container(&self) -> Option<&str> {
        let is_number =
            |part: &&str| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.mount_point.split('/').find(is_number)
    }
}

/// Reads the overlay mounts from a table in the format of `/proc/PID/mountinfo`, each upper
/// directory once.
///
/// # Errors
///
/// When the table cannot be read.
pub(super) fn overlays(table: &Path) -> std::io::Result<Vec<Overlay>> {
    std::fs::read(table).map(|text| parse(&text))
}

/// Parses the overlay mounts of a mount table.
fn parse(text: &[u8]) -> Vec<Overlay> {
    let mut found: Vec<Overlay> =
        String::from_utf8_lossy(text).lines().filter_map(overlay).collect();
    // Of several bind mounts of one overlay, prefer the one whose path contains a container ID.
    found.sort_by_cached_key(|of| {
        (of.upper.clone(), of.container().is_none(), of.mount_point.clone())
    });
    found.dedup_by(|later, earlier| later.upper == earlier.upper);
    found
}

/// Returns the mount point and upper directory of each overlay.
#[cfg(fuzzing)]
pub(crate) fn overlay_paths(text: &[u8]) -> Vec<(String, PathBuf)> {
    parse(text).into_iter().map(|Overlay { mount_point, upper }| (mount_point, upper)).collect()
}

fn overlay(line: &str) -> Option<Overlay> {
    let (mount, rest) = line.split_once(" - ")?;
    let mut rest = rest.split(' ');
    let (kind, _, options) = (rest.next()?, rest.next()?, rest.next()?);
    if kind != "overlay" {
        return None;
    }
    let upper = options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
    let upper = unescape(upper);
    let mount_point = unescape(mount.split(' ').nth(4)?);
    upper.starts_with('/').then(|| Overlay { mount_point, upper: PathBuf::from(upper) })
}

/// Decodes octal escapes; a space is written as `\040`.
fn unescape(text: &str) -> String {
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
